import HTTP2
import Metrics
import SluiceModel

/// Figures of a credential's pools at one moment: of one shard, or of several.
public struct PoolFigures: Sendable, Equatable {
    /// Connections by state, in the order of ``states``.
    public var connections = [Int](repeating: 0, count: PoolFigures.states.count)
    /// Connections that the pools aim at.
    public var target = 0
    /// Requests in flight on active and reserve connections.
    public var streamsInUse = 0
    /// Further requests that active and reserve connections accept now, by their limits of streams.
    public var streamsFree = 0
    /// Pools whose circuit is open or half open.
    public var circuitsOpen = 0
    /// Pools that open and send nothing, because APNs refuses their credential.
    public var stopped = 0
    /// Waiting pushes by priority, in the order of `Priority.allCases`.
    public var depths = [Int](repeating: 0, count: Priority.allCases.count)
    /// Age of the push that waits longest, by priority, in seconds; 0 when none waits.
    public var oldestAges = [Double](repeating: 0, count: Priority.allCases.count)
    /// Counts since the start.
    public var counters = PoolCounters()
    /// Answers other than 200 by ``Reason/rawValue``.
    public var reasons = [Int](repeating: 0, count: Reason.allCases.count)
    /// Times from a request's sending to its answer, by priority.
    public var latencies = [HistogramSnapshot](
        repeating: HistogramSnapshot(), count: Priority.allCases.count)
    /// Time at which the provider token in use was issued, in seconds since the epoch; nil without a token. The oldest.
    public var tokenIssued: Int64?
    /// Pools whose key rests.
    public var resting = 0
    /// Pools for which APNs has asked for a pause.
    public var overloaded = 0

    public static let states: [PoolSnapshot.ConnectionState] = [
        .opening, .active, .reserve, .retiring, .draining, .suspected,
    ]

    public init() {}

    init(_ snapshot: PoolSnapshot) {
        for connection in snapshot.connections {
            connections[Self.states.firstIndex(of: connection.state)!] += 1
            guard connection.state == .active || connection.state == .reserve else { continue }
            streamsInUse += connection.statistics.inFlight
            streamsFree += max(0, connection.statistics.streamLimit - connection.statistics.inFlight)
        }
        target = snapshot.targetConnections
        circuitsOpen = snapshot.circuit == .closed ? 0 : 1
        stopped = snapshot.stopReason == nil ? 0 : 1
        depths = snapshot.queues.map(\.depth)
        oldestAges = snapshot.queues.map { Double($0.oldestAgeNanoseconds ?? 0) / 1e9 }
        counters = snapshot.counters
    }

    public static func + (left: PoolFigures, right: PoolFigures) -> PoolFigures {
        var sum = left
        for index in sum.connections.indices { sum.connections[index] += right.connections[index] }
        sum.target += right.target
        sum.streamsInUse += right.streamsInUse
        sum.streamsFree += right.streamsFree
        sum.circuitsOpen += right.circuitsOpen
        sum.stopped += right.stopped
        for index in sum.depths.indices { sum.depths[index] += right.depths[index] }
        for index in sum.oldestAges.indices {
            sum.oldestAges[index] = max(sum.oldestAges[index], right.oldestAges[index])
        }
        sum.counters += right.counters
        for index in sum.reasons.indices { sum.reasons[index] += right.reasons[index] }
        for index in sum.latencies.indices {
            sum.latencies[index] = left.latencies[index] + right.latencies[index]
        }
        if let issued = right.tokenIssued { sum.tokenIssued = min(issued, left.tokenIssued ?? issued) }
        sum.resting += right.resting
        sum.overloaded += right.overloaded
        return sum
    }
}
