import DeliveryCore
import Gateway
import SluiceModel

/// Extent of a search of the store.
struct StoreExtent: Equatable {
    /// Partitions to search.
    var partitions: [Int32]
    /// Items read.
    var items = 0
    /// Items that could not be read as a push; any of them may be the one looked for.
    var unreadable = 0
    /// False when the time was over before the end.
    var isComplete = true
}

/// Pushes that a search has found in a worker, and the parts of the worker that were searched.
struct TraceFindings {
    /// Search of the store.
    enum StoreSearch: Equatable {
        /// The worker has no store.
        case none
        /// The store was not searched, because memory has the push.
        case notNeeded
        /// The partitions were read, as far as the time allowed.
        case read(StoreExtent)
        /// The store could not be read.
        case failed(String)
    }

    private(set) var pushes: [TracedPush] = []
    /// Progress of the query's record; nil when the query names no record, or the Kafka thread did not answer.
    private(set) var record: RecordStage?
    /// Shards that answered.
    private(set) var shards = 0
    /// Slots that were looked at.
    private(set) var slots = 0
    /// Names of loops that have ended.
    private(set) var ended: [String] = []
    /// Names of loops that did not answer in time.
    private(set) var silent: [String] = []
    var store = StoreSearch.none
    /// False when a shard left pushes out.
    private var hasAll = true
    private var stops: [TopicStop] = []
    private var unavailable: Set<String> = []

    /// Most pushes of one answer.
    static let mostPushes = 1024

    /// True when all that the worker has was searched, as far as the search needed it.
    var isComplete: Bool {
        guard hasAll, silent.isEmpty, ended.isEmpty else { return false }
        return switch store {
        case .none, .notNeeded: true
        case .read(let extent): extent.isComplete
        case .failed: false
        }
    }

    /// Takes the loops' answers. A later search of memory adds what was loaded from the store meanwhile.
    /// - Parameter loops: names of all loops: the Kafka thread's first, then the shards'.
    mutating func take(_ answers: [TraceAnswer], loops: [String]) {
        (shards, slots, ended, silent) = (0, 0, [], [])
        var answered: Set<Int> = []
        for answer in answers {
            switch answer {
            case .intake(let stage):
                answered.insert(0)
                record = stage
            case .shard(let index, let trace):
                answered.insert(index + 1)
                shards += 1
                slots += trace.slots
                if !trace.isComplete { hasAll = false }
                for push in trace.pushes { add(push) }
                stops = trace.stops + stops
                unavailable.formUnion(trace.unavailable)
            case .ended(let loop): ended.append(loop)
            }
        }
        silent = loops.enumerated().filter { !answered.contains($0) && !ended.contains($1) }.map(\.element)
    }

    /// Adds a push, unless its record was found already.
    mutating func add(_ push: TracedPush) {
        guard !pushes.contains(where: { ($0.partition, $0.offset) == (push.partition, push.offset) }) else {
            return
        }
        guard pushes.count < Self.mostPushes else {
            hasAll = false
            return
        }
        pushes.append(push)
    }

    /// Replaces the state of pushes that the store has with their topic by the state of the topic.
    mutating func explainSuspended() {
        for index in pushes.indices where pushes[index].state == .stored(.suspended) {
            if let stop = stops.first(where: { $0.topic == pushes[index].topic }) {
                pushes[index].state = .pending(stop.cause)
                pushes[index].untilMilliseconds = stop.probeMilliseconds
            } else if let route = pushes[index].route, unavailable.contains(route.credential) {
                pushes[index].state = .pending(.credentialUnavailable)
            }
        }
    }
}
