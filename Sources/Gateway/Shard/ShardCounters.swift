import DeliveryCore
import EventLoop
import HTTP2
import SluiceModel

/// Counts of a shard since its start. Changed and read on the shard's thread only.
public struct ShardCounters: Sendable, Equatable {
    /// Records taken over from Kafka.
    public var records = 0
    /// Records that were not jobs and went to the dead-letter topic.
    public var deadLetters = 0
    /// Counts of the shard's decoder.
    public var decoding = JobDecoder.Counts()
    /// Requests sent to APNs, repeats included.
    public var sent = 0
    /// Requests sent again.
    public var retried = 0
    /// Requests that ended without an answer: refused, connection lost, timed out.
    public var unanswered = 0
    /// Pushes that arrived and of which nothing is known any more. A value above 0 is a fault.
    public var unaccounted = 0
    /// Topics stopped because APNs refused the credential or topic.
    public var stops = 0
    /// Stops among ``stops`` that followed because APNs rejected most of a topic's device tokens.
    public var tokenStops = 0
    /// Times that pushes of an app beyond its share were parked in the store.
    public var parkings = 0
    /// Times that pushes of priority 5 and 1 of an app began to wait in the store, so that records behind them are read.
    public var readAheads = 0
    /// Checks that found the shard's machines in an impossible state. A value above 0 is a fault.
    public var brokenInvariants = 0
    /// Jobs given back unfinished, because their partition or the worker ended.
    public var abandoned = 0
    /// Terminal outcomes by ``OutcomeKind/rawValue``.
    public var outcomes = [Int](repeating: 0, count: OutcomeKind.allCases.count)
    /// GOAWAY frames by ``Reason/rawValue``. `unknown` counts reasons that the table lacks. `absent` counts frames
    /// without debug data.
    public var goAways = [Int](repeating: 0, count: Reason.allCases.count)
    /// Wall-clock time of the last GOAWAY, in milliseconds since the epoch, by ``Reason/rawValue``; 0 before the first.
    public var lastGoAways = [Int64](repeating: 0, count: Reason.allCases.count)
    /// Answers whose reason the table lacks, by the reason's text: the first eight texts, and `other` for later ones.
    public var unknownReasons: [String: Int] = [:]
    // Values at the moment of reading.
    /// Jobs by ``ItemState/rawValue``.
    public var states = [Int](repeating: 0, count: ItemState.allCases.count)
    /// Open connections of all pools.
    public var openConnections = 0
    /// Credentials with the figures of their pools, by name.
    public var credentials: [String: CredentialFigures] = [:]
    /// Counts of the requests to the store.
    public var store = StoreCounters()
    /// Devices whose items may be in the store alone.
    public var evictedDevices = 0
    /// Items in memory that came from the store.
    public var residentItems = 0
    /// Online devices whose items in the store wait for room in memory.
    public var devicesAwaitingTurn = 0

    /// Jobs by the app's name; the empty name stands for jobs that no app has.
    public var apps: [String: AppFigures] = [:]
    /// Dead letters by the rule that the record broke.
    public var brokenRules: [String: Int] = [:]
    /// Topics whose pushes wait because APNs refuses the credential, the topic or most device tokens.
    public var stoppedTopics = 0
    /// Topics whose pushes wait because APNs has asked for a pause for them; the maximum of all shards.
    public var overloadedTopics = 0
    /// Topics that operators have paused, in the environments that jobs name; the maximum of all shards.
    public var pausedTopics = 0
    /// Work of the loop; of several loops in the sum of several shards.
    public var loops: [LoopUsage] = []

    public init() {}

    /// Counts an answer whose reason the table lacks. Returns true for the first answer with a text that is counted by
    /// itself.
    mutating func note(unknownReason text: String) -> Bool {
        let isNew = unknownReasons[text] == nil
        let isCounted = !isNew || unknownReasons.count < Self.mostUnknownReasons
        unknownReasons[isCounted ? text : Self.otherReason, default: 0] += 1
        return isNew && isCounted
    }

    static let mostUnknownReasons = 8
    static let otherReason = "other"

    /// Jobs in a stream scheduler.
    public var waiting: Int { count(in: .waiting) }
    /// Jobs on a stream.
    public var inFlight: Int { count(in: .inFlight) }
    /// Jobs between two attempts.
    public var retrying: Int { count(in: .retrying) }

    /// Counts of all pools.
    public var pools: PoolCounters {
        credentials.values.reduce(into: PoolCounters()) { $0 += $1.pools.counters }
    }

    /// Jobs in one state.
    public func count(in state: ItemState) -> Int { states[Int(state.rawValue)] }

    mutating func set(_ milestones: DeliveryMilestones) {
        sent = milestones.sent
        retried = milestones.retried
        stops = milestones.stops
        parkings = milestones.parkings
        readAheads = milestones.readAheads
        unaccounted = milestones.unaccounted
        for state in ItemState.allCases { states[Int(state.rawValue)] = milestones[state] }
    }

    /// Outcomes of one kind.
    public func count(of kind: OutcomeKind) -> Int { outcomes[Int(kind.rawValue)] }

    public static func + (left: ShardCounters, right: ShardCounters) -> ShardCounters {
        var sum = left
        sum.records += right.records
        sum.deadLetters += right.deadLetters
        sum.decoding.foreignHeaders += right.decoding.foreignHeaders
        sum.decoding.droppedHeaders += right.decoding.droppedHeaders
        sum.decoding.adjustedJobs += right.decoding.adjustedJobs
        sum.sent += right.sent
        sum.retried += right.retried
        sum.unanswered += right.unanswered
        sum.abandoned += right.abandoned
        for index in sum.outcomes.indices { sum.outcomes[index] += right.outcomes[index] }
        for index in sum.goAways.indices {
            sum.goAways[index] += right.goAways[index]
            sum.lastGoAways[index] = max(sum.lastGoAways[index], right.lastGoAways[index])
        }
        sum.stops += right.stops
        sum.tokenStops += right.tokenStops
        sum.parkings += right.parkings
        sum.readAheads += right.readAheads
        sum.brokenInvariants += right.brokenInvariants
        for (reason, count) in right.unknownReasons { sum.unknownReasons[reason, default: 0] += count }
        sum.unaccounted += right.unaccounted
        for index in sum.states.indices { sum.states[index] += right.states[index] }
        sum.openConnections += right.openConnections
        for (name, figures) in right.credentials {
            if sum.credentials[name]?.add(figures) == nil { sum.credentials[name] = figures }
        }
        sum.store = left.store + right.store
        for (name, figures) in right.apps { sum.apps[name] = sum.apps[name].map { $0 + figures } ?? figures }
        for (rule, count) in right.brokenRules { sum.brokenRules[rule, default: 0] += count }
        sum.stoppedTopics = max(left.stoppedTopics, right.stoppedTopics)
        sum.pausedTopics = max(left.pausedTopics, right.pausedTopics)
        sum.overloadedTopics = max(left.overloadedTopics, right.overloadedTopics)
        sum.loops += right.loops
        sum.evictedDevices += right.evictedDevices
        sum.residentItems += right.residentItems
        sum.devicesAwaitingTurn += right.devicesAwaitingTurn
        return sum
    }
}
