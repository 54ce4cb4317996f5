import Gateway

/// Whether all of a worker's loops turn. A stop in time counts as alive, because loops block for seconds in a stop, and
/// end.
struct Liveness {
    /// Stuck or ended loops, in words.
    var reasons: [String]

    init(_ snapshot: WorkerSnapshot, loops: [String]) {
        if let stop = snapshot.stop, stop.isInTime {
            reasons = []
            return
        }
        reasons = snapshot.missing(of: loops)
        if let stop = snapshot.stop {
            reasons.append("the worker's stop takes longer than \(stop.limit.components.seconds) s")
        }
    }

    var response: AdminResponse {
        .json(reasons.isEmpty ? 200 : 503, ["live": reasons.isEmpty, "reasons": reasons])
    }

    static let starting = AdminResponse.json(200, ["live": true, "reasons": [], "starting": true])
    static let stopping = AdminResponse.json(200, ["live": true, "reasons": [], "stopping": true])
}

/// Whether a worker does its part. A ready worker has partitions, or knows that there are none for it. It also has all
/// that is held for them, and can proceed with them.
struct Readiness {
    /// Missing parts, in words.
    var reasons: [String]
    var intake: IntakeSnapshot?

    init(_ snapshot: WorkerSnapshot, loops: [String]) {
        reasons = Liveness(snapshot, loops: loops).reasons
        intake = snapshot.intake
        switch intake?.phase {
        case .ended: reasons.append("the worker has stopped")
        case .running, nil: if snapshot.stop != nil { reasons.append(Self.stopping) }
        case .draining: reasons.append(Self.stopping)
        }
        guard let intake else { return }
        if let failure = intake.failure { reasons.append("the worker failed: \(failure)") }
        if !intake.isAssigned, intake.arriving == nil {
            reasons.append("the group has not assigned partitions yet")
        }
        if let arriving = intake.arriving { reasons.append(Self.describe(intake, arriving)) }
        if !intake.unexplained.isEmpty { reasons.append(Self.unexplained(intake.unexplained)) }
        if intake.isStoreFailing {
            reasons.append(
                "the store can't be written or read; the log has the error, and no jobs are read until the store works again"
            )
        }
        if intake.isMembershipInDoubt {
            reasons.append(
                "the process was stopped for long, or its Kafka thread was held up; nothing is sent until the group confirms its partitions"
            )
        }
        if intake.arePushesHeld {
            reasons.append(
                "Kafka takes no commits, or gives the transactional producer no identifier; the log has the error, and no push is begun until a commit succeeds"
            )
        }
    }

    private static let stopping = "the worker is stopping; it takes no new jobs"

    private static func describe(_ intake: IntakeSnapshot, _ arriving: Int) -> String {
        if !intake.restoring.isEmpty {
            let records = intake.restoredRecords == 1 ? "record" : "records"
            return
                "\(intake.restoring.count) of \(partitions(arriving)) being restored: \(intake.restoredRecords) \(records) restored, \(intake.remainingRecords) remaining"
        }
        if !intake.opening.isEmpty {
            return "the store of \(intake.opening.count) of \(assigned(arriving)) is being opened"
        }
        return "\(partitions(arriving)) being taken over"
    }

    private static func unexplained(_ numbers: [Int32]) -> String {
        let list = numbers.map { "\($0)" }.joined(separator: ", ")
        return
            "nothing is read of partition \(list), because the group's offset lies beyond the log's end; reset the group's offsets, or delete them"
    }

    private static func assigned(_ count: Int) -> String {
        "\(count) assigned \(count == 1 ? "partition" : "partitions")"
    }

    private static func partitions(_ count: Int) -> String {
        "\(assigned(count)) \(count == 1 ? "is" : "are")"
    }

    /// - Parameter switches: state of the switches, which never makes a worker unready, because a restart would not end a
    ///   pause; nil without switches.
    func response(_ switches: SwitchStatus?) -> AdminResponse {
        var document: [String: Any] = ["ready": reasons.isEmpty, "reasons": reasons]
        if let warning = switches.flatMap(Self.warning) { document["warnings"] = [warning] }
        if let intake {
            document["partitions"] = intake.partitions.map { Int($0.partition) }
            if intake.arriving != nil { document["restore"] = RestoreDocument.of(intake) }
        }
        return .json(reasons.isEmpty ? 200 : 503, document)
    }

    private static func warning(_ switches: SwitchStatus) -> String? {
        if !switches.areKnown { return "nothing is sent before the switches' topic is read" }
        guard switches.isTopicAway else { return nil }
        let pauses = switches.pauses.isEmpty ? "no pause is known" : "the last known pauses are in force"
        return "the switches' topic can't be read: \(pauses), and those of other workers have no effect here"
    }

    static let starting = AdminResponse.json(
        503,
        ["ready": false, "reasons": ["the worker is starting; it opens its store and connects to Kafka"]])
}

/// Progress of restoring.
enum RestoreDocument {
    static func of(_ intake: IntakeSnapshot) -> [String: Any] {
        [
            "opening": intake.opening.map { Int($0) }, "restoring": intake.restoring.map { Int($0) },
            "records-restored": intake.restoredRecords, "records-remaining": intake.remainingRecords,
        ]
    }
}
