import SluiceModel

/// What a shard has done so far. Kept by its thread alone; read through it.
public struct ShardCounters: Sendable, Equatable {
    /// Records taken over from Kafka.
    public var records = 0
    /// Records that were not jobs and went to the dead-letter topic.
    public var deadLetters = 0
    /// Requests sent to APNs, repeats included.
    public var sent = 0
    /// Requests sent again.
    public var retried = 0
    /// Requests that ended without an answer: refused, connection lost, timed out.
    public var unanswered = 0
    /// Jobs given back unfinished, because their partition or the worker ends.
    public var abandoned = 0
    /// Terminal outcomes by ``OutcomeKind/rawValue``.
    public var outcomes = [Int](repeating: 0, count: OutcomeKind.allCases.count)
    /// Answers other than 200 by ``Reason/rawValue``.
    public var reasons = [Int](repeating: 0, count: Reason.allCases.count)
    // As they stand at the moment of reading.
    public var waiting = 0
    public var inFlight = 0
    public var retrying = 0
    public var openConnections = 0

    public init() {}

    /// Outcomes of one kind.
    public func count(of kind: OutcomeKind) -> Int { outcomes[Int(kind.rawValue)] }

    static func + (left: ShardCounters, right: ShardCounters) -> ShardCounters {
        var sum = left
        sum.records += right.records
        sum.deadLetters += right.deadLetters
        sum.sent += right.sent
        sum.retried += right.retried
        sum.unanswered += right.unanswered
        sum.abandoned += right.abandoned
        for index in sum.outcomes.indices { sum.outcomes[index] += right.outcomes[index] }
        for index in sum.reasons.indices { sum.reasons[index] += right.reasons[index] }
        sum.waiting += right.waiting
        sum.inFlight += right.inFlight
        sum.retrying += right.retrying
        sum.openConnections += right.openConnections
        return sum
    }
}
