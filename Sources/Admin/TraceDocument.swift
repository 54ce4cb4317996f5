import DeliveryCore
import Gateway
import SluiceModel

/// JSON of `/trace`. Has no device token, no collapse identifier and no payload.
enum TraceDocument {
    /// Status and document of an answer.
    /// - Parameters:
    ///   - worker: members that identify the worker.
    ///   - now: time of the answer in milliseconds since the epoch.
    static func answer(
        _ findings: TraceFindings, of query: TraceQuery, jobsTopic: String, worker: [String: Any], now: Int64
    ) -> (status: Int, document: [String: Any]) {
        var document: [String: Any] = [
            "worker": worker, "now": Int(now), "complete": findings.isComplete,
            "pushes": findings.pushes.sorted {
                ($0.createdMilliseconds, $0.partition, $0.offset)
                    < ($1.createdMilliseconds, $1.partition, $1.offset)
            }.map { push($0, jobsTopic: jobsTopic) },
            "searched": searched(findings),
        ]
        if let id = query.notification { document["apns-id"] = "\(id)" }
        if let stage = findings.record, let partition = query.partition, let offset = query.offset {
            let (code, text) = words(of: stage)
            document["record"] =
                ["partition": Int(partition), "offset": Int(offset), "state": code, "text": text]
                as [String: Any]
        }
        guard findings.pushes.isEmpty else { return (200, document) }
        let subject = query.notification == nil ? "no push of the device" : "no push with this apns-id"
        guard findings.isComplete else {
            document["error"] =
                "\(subject) was found, but not everything was searched; name the push's token, or partition and "
                + "offset, or a longer time with `seconds`"
            return (503, document)
        }
        document["error"] =
            "the worker has \(subject) in memory or store: it has ended, has not been read yet, or is another "
            + "worker's; `sluice trace` also searches Kafka"
        if case .read(let extent) = findings.store, extent.unreadable > 0 {
            document["error"] =
                "no readable push was found; \(extent.unreadable) of \(extent.items) items of the store can't be "
                + "read, see `sluice inspect store --verify`"
        }
        return (404, document)
    }

    private static func searched(_ findings: TraceFindings) -> [String: Any] {
        var memory: [String: Any] = ["shards": findings.shards, "slots": findings.slots]
        if !findings.silent.isEmpty { memory["silent-threads"] = findings.silent }
        if !findings.ended.isEmpty { memory["ended-threads"] = findings.ended }
        var store: [String: Any] = [:]
        switch findings.store {
        case .none: store["text"] = "the worker has no store"
        case .notNeeded: store["text"] = "not searched, because memory has the push"
        case .read(let extent):
            store["partitions"] = extent.partitions.map { Int($0) }
            store["items"] = extent.items
            store["complete"] = extent.isComplete
            if extent.unreadable > 0 { store["unreadable"] = extent.unreadable }
        case .failed(let text): store["error"] = text
        }
        return ["memory": memory, "store": store]
    }

    // MARK: One push

    static func push(_ push: TracedPush, jobsTopic: String) -> [String: Any] {
        let (code, text) = words(of: push)
        var shown: [String: Any] = [
            "apns-id": "\(push.apnsID)", "state": code, "text": text,
            "source": [
                "topic": jobsTopic, "partition": Int(push.partition), "offset": Int(push.offset),
            ] as [String: Any],
            "topic": push.topic, "job": push.isBroadcast ? "broadcast" : "push",
            "push-type": "\(push.pushType.headerValue)", "priority": Int(push.priority.rawValue),
            "delivery": "\(push.delivery.name)", "has-collapse-id": push.hasCollapseIdentifier,
            "created-at": Int(push.createdMilliseconds), "attempts": push.attempts,
            "failures": push.failures, "stored": push.isStored,
        ]
        switch push.holder {
        case .shard(let index):
            shown["in"] = "memory"
            shown["shard"] = index
        case .store: shown["in"] = "store"
        }
        if let route = push.route {
            shown["app"] = route.app
            shown["credential"] = route.credential
            shown["environment"] = route.environment
        }
        func add(_ name: String, _ time: Int64?) { if let time { shown[name] = Int(time) } }
        add("until", push.untilMilliseconds)
        add("polled-at", push.polledMilliseconds)
        add("deliver-at", push.deliverAtMilliseconds)
        add("expires-at", push.expiryMilliseconds)
        add("first-sent-at", push.firstSentMilliseconds)
        add("last-sent-at", push.lastSentMilliseconds)
        add("stored-until", push.storedUntilMilliseconds)
        if push.isStoreAsked { shown["storing"] = true }
        if let status = push.lastStatus { shown["last-status"] = status }
        if let reason = push.lastReason { shown["last-reason"] = "\(reason.name)" }
        if let other = push.blockedBehind { shown["blocked-behind"] = "\(other)" }
        return shown
    }

    /// Returns a push's state as a code for scripts and as text for people.
    static func words(of push: TracedPush) -> (code: String, text: String) {
        let end = push.untilMilliseconds.map { " until \(StoreSummary.time($0))" } ?? ""
        let next = push.untilMilliseconds.map { " at \(StoreSummary.time($0))" } ?? ""
        switch push.state {
        case .pending(let cause): return words(of: cause, push, end: end, next: next)
        case .awaitingDevice:
            return ("loading", "waits until the store's pushes of its device are in memory")
        case .stored(.none):
            return push.deliverAtMilliseconds == nil
                ? ("due", "waits in the store for its turn")
                : ("scheduled", "waits in the store for its deliver-at\(next)")
        case .stored(.retrying):
            return ("retrying", "waits in the store for its next attempt\(next)")
        case .stored(.confirming):
            return ("confirming", "was accepted by APNs, and waits for its device's receipt\(end)")
        case .stored(.held):
            return (
                "held",
                "waits in the store for its device, which is offline"
                    + (push.untilMilliseconds == nil ? "" : "; next attempt without a report\(next)")
            )
        case .stored(.suspended):
            return ("suspended", "waits in the store until its topic's pushes continue")
        }
    }

    private static func words(
        of cause: PendingCause, _ push: TracedPush, end: String, next: String
    ) -> (code: String, text: String) {
        switch cause {
        case .stream: return ("waiting-for-stream", "waits for its turn and for a stream to APNs")
        case .inFlight:
            let since = push.lastSentMilliseconds.map { " since \(StoreSummary.time($0))" } ?? ""
            return ("in-flight", "is on a stream to APNs\(since); APNs has not answered")
        case .blocked:
            let other = push.blockedBehind.map { " \($0)" } ?? ""
            return ("blocked", "waits for the end of push\(other) of the same identity, which is in flight")
        case .deviceLimited:
            return (
                "device-limited",
                push.isBroadcast
                    ? "waits for the end of earlier broadcasts of its channel"
                    : "waits because its device has as many pushes in flight as it may"
            )
        case .coalescing:
            return ("coalescing", "waits for a newer push of its collapse identifier\(end)")
        case .catchingUp:
            return (
                "catching-up",
                "waits until the uncommitted records of its partition are read, because a newer push may be among them"
            )
        case .retrying: return ("retrying", "waits for its next attempt\(next)")
        case .scheduled: return ("scheduled", "waits for its deliver-at\(next)")
        case .held(.presumedOffline):
            return (
                "held",
                "waits for its device, which did not confirm in time; next attempt without a report\(next)"
            )
        case .held: return ("held", "waits for its device, which is offline")
        case .returning: return ("returning", "waits for its turn, because its device is back")
        case .confirming:
            return ("confirming", "was accepted by APNs, and waits for its device's receipt\(end)")
        case .topicStopped(let fault):
            let reason =
                switch fault {
                case .refusal: "APNs refuses the credential or the topic"
                case .overload: "APNs asks for a pause (503 with Retry-After)"
                case .tokens: "APNs refuses most device tokens of the topic"
                }
            return (
                "topic-stopped",
                "waits because its topic is stopped: \(reason)"
                    + (push.untilMilliseconds == nil ? "" : "; next probe\(next)")
            )
        case .topicPaused:
            return (
                "paused",
                "waits because an operator has paused its app, its topic or its credential; `sluice ctl status` shows "
                    + "the pauses"
            )
        case .sendingPaused:
            return (
                "sending-paused",
                "waits because an operator has paused all sending; `sluice ctl status` shows the pauses"
            )
        case .parked:
            return (
                "parked",
                "waits because its app takes more than its share of the worker and can't send as fast"
            )
        case .readAhead:
            return (
                "read-ahead",
                "waits because the worker is nearly full, and looks for pushes of priority 10 behind it in Kafka"
            )
        case .credentialUnavailable:
            return ("credential-unavailable", "waits because its credential has no connection to APNs")
        }
    }

    // MARK: Its record

    /// Returns the progress of a record as a code for scripts and as text for people.
    static func words(of stage: RecordStage) -> (code: String, text: String) {
        switch stage {
        case .elsewhere: ("elsewhere", "the partition is not this worker's")
        case .arriving: ("arriving", "the partition is being taken over")
        case .outstanding: ("outstanding", "the job was taken, and its outcome is not acknowledged yet")
        case .complete: ("complete", "the job has ended, or the store has it")
        case .unread(let next, let reasons) where reasons.isEmpty:
            ("unread", "the record has not been read; the next offset to read is \(next)")
        case .unread(let next, let reasons):
            (
                "intake-paused",
                "the record has not been read, because the partition is paused at offset \(next): "
                    + pauses(reasons).joined(separator: "; ")
            )
        }
    }

    private static func pauses(_ reasons: IntakeGate.Reason) -> [String] {
        let texts: [(IntakeGate.Reason, String)] = [
            (.limit, "the worker is at its limit of jobs or bytes"),
            (.window, "an old job holds the partition's watermark"),
            (.share, "the partition's held jobs take more than its share of the limit"),
            (.store, "the store can't take more"), (.allPaused, "an operator has paused all sending"),
            (.refused, "Kafka takes the outcome or dead letter of one of its records in no form"),
        ]
        return texts.filter { reasons.contains($0.0) }.map(\.1)
    }
}
