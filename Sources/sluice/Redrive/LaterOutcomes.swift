import SluiceModel

/// Identity by which a newer push replaces an older one, as far as records name it.
struct PushIdentity: Hashable, Sendable {
    /// Device token in lower case, or its hash.
    var device: String
    var topic: String
    /// Collapse identifier; nil: pushes of this topic carry whole states.
    var collapseIdentifier: String?

    /// Returns nil for a push that nothing replaces, and for one whose payload decides.
    init?(device: String, topic: String, pushType: String?, collapseIdentifier: String?) {
        let isState = pushType == PushType.widgets.name || pushType == PushType.controls.name
        guard collapseIdentifier != nil || isState else { return nil }
        self.device = device.lowercased()
        self.topic = topic
        self.collapseIdentifier = collapseIdentifier
    }

    /// Returns whether the payload decides about the identity, so that an outcome doesn't show it.
    static func isHidden(pushType: String?, collapseIdentifier: String?) -> Bool {
        pushType == PushType.liveActivity.name && collapseIdentifier == nil
    }
}

extension PushType {
    /// Value of `apns-push-type` as text.
    var name: String { headerValue.description }
}

/// Judges selected jobs by the outcomes of the period: of the same record, and of newer jobs of the same identity. Pure.
struct LaterOutcomes {
    private let jobs: [RedriveFacts]
    private var bySource: [RecordAddress: [Int]] = [:]
    private var byPush: [PushIdentity: [Int]] = [:]
    /// Ends by the jobs' numbers, of those that are not sent.
    private(set) var ends: [Int: RedriveEnd] = [:]
    /// Whether outcomes name devices by a hash. Newer pushes of dead letters, whose tokens are in the clear, stay unseen.
    private(set) var hasHashes = false

    init(_ jobs: [RedriveFacts]) {
        self.jobs = jobs
        for (number, job) in jobs.enumerated() {
            bySource[job.source, default: []].append(number)
            if let push = job.push { byPush[push, default: []].append(number) }
        }
    }

    /// Takes an outcome of the period.
    /// - Parameter timestamp: of its record, in milliseconds since the epoch.
    mutating func take(
        _ outcome: OutcomeSummary, at place: RecordAddress, timestampMilliseconds timestamp: Int64
    ) {
        hasHashes = hasHashes || outcome.isTokenHashed
        let source = RecordAddress(
            topic: outcome.sourceTopic, partition: outcome.partition, offset: outcome.offset)
        for number in bySource[source] ?? [] {
            let job = jobs[number]
            guard job.apnsID == nil || job.apnsID == outcome.apnsID else { continue }
            let isSameLog = place.topic == job.place.topic && place.partition == job.place.partition
            if isSameLog ? place.offset > job.place.offset : timestamp > job.timestampMilliseconds {
                ends[number] = .laterOutcome
            }
        }
        guard Self.replaces(outcome),
            let push = PushIdentity(
                device: outcome.deviceToken, topic: outcome.topic ?? "", pushType: outcome.pushType,
                collapseIdentifier: outcome.collapseIdentifier)
        else { return }
        for number in byPush[push] ?? [] where ends[number] == nil {
            let job = jobs[number]
            guard let created = job.firstMilliseconds else { continue }
            // A redriven copy of the job has the job's creation.
            let isLater =
                source.topic == job.source.topic && source.partition == job.source.partition
                ? source.offset > job.source.offset && outcome.createdMilliseconds != created
                : outcome.createdMilliseconds > created
            if isLater { ends[number] = .superseded }
        }
    }

    /// Returns whether an older push of the identity must not reach the device after this outcome.
    private static func replaces(_ outcome: OutcomeSummary) -> Bool {
        if outcome.job == JobKind.cancel.name.description { return true }
        if outcome.cause == OutcomeCause.deviceErased.name.description { return true }
        return [.accepted, .confirmed, .cancelled].contains(outcome.kind)
    }
}
