/// Watches a pool grow under a demand that it can't carry at first.
struct GrowthWatch: Sendable {
    /// Pushes per second.
    let demand: Double
    /// Seconds after which the pool has failed.
    let limitSeconds: Double
    /// Seconds to watch the pool after it carries the demand.
    let holdSeconds: Double

    private struct Look {
        var time: UInt64
        var finished: Int
        var waiting: Int
    }
    private var looks: [Look] = []
    private(set) var carriedAfter: Double?
    private(set) var mostConnections = 0

    init(demand: Double, limitSeconds: Double = 30, holdSeconds: Double = 2) {
        self.demand = demand
        self.limitSeconds = limitSeconds
        self.holdSeconds = holdSeconds
    }

    /// Records a sample and returns whether the watch is over. The demand is carried when the last second's
    /// rate was 99 % of it. The backlog must not have grown beyond a hundredth of a second's pushes.
    mutating func look(time: UInt64, finished: Int, waiting: Int, connections: Int) -> Bool {
        looks.append(Look(time: time, finished: finished, waiting: waiting))
        mostConnections = max(mostConnections, connections)
        let elapsed = Double(time - looks[0].time) / 1e9
        if carriedAfter == nil, let before = looks.last(where: { time - $0.time >= 1_000_000_000 }) {
            let seconds = Double(time - before.time) / 1e9
            let rate = Double(finished - before.finished) / seconds
            let isSteady = waiting <= max(before.waiting, Int(demand / 100))
            if rate >= 0.99 * demand, isSteady { carriedAfter = elapsed }
        }
        if let carriedAfter { return elapsed >= carriedAfter + holdSeconds }
        return elapsed >= limitSeconds
    }
}
