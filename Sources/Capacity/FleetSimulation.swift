/// Simulates workers, partitions and pools of a plan through an event, in steps of a tenth of a second.
///
/// The simulation knows single partitions, steps of pools, and restores of one partition after another. The formulas of
/// ``CapacityPlan`` know none of them. Results depend on the arguments alone.
public struct FleetSimulation: Sendable {
    public enum Event: String, Sendable, CaseIterable {
        /// Each worker stops and starts again, when the worker before is ready.
        case rollingRestart = "rolling-restart"
        /// All workers of a zone end at once and don't come back; one worker without zones.
        case zoneLost = "zone-lost"
        /// All devices come back within a minute, and their held pushes return.
        case massReturn = "mass-return"
    }

    public struct Result: Sendable, Equatable {
        public var event: Event
        /// Age of the oldest waiting job at its worst, in seconds.
        public var worstLag: Double
        /// Seconds from the event until the last backlog is gone; the length of the run when it never is.
        public var recovery: Double
        /// Whether the backlog was gone at the end.
        public var isRecovered: Bool
        /// Seconds from the first to the last restart's readiness, or until all held pushes have returned; else 0.
        public var duration: Double
        /// Most connections of the group.
        public var mostConnections: Int
        /// Jobs that arrived and that were sent.
        public var arrived: Double
        public var sent: Double
    }

    private struct Partition {
        var owner: Int
        /// Owner before, whose copy is recent.
        var before = -1
        /// Time from which the owner sends; infinite while nobody owns the partition.
        var opensAt = 0.0
        var backlog = 0.0
        /// Jobs a second that arrive.
        var rate: Double
    }

    private struct Worker {
        var isRunning = true
        /// Connections of each of its pools.
        var connections: Int
        var lastGrowth = -1e9
        /// Held pushes whose devices are back.
        var returning = 0.0
        /// Jobs that the worker sent in the latest step.
        var sent = 0.0
    }

    private static let step = 0.1
    /// Time of the event.
    private static let start = 30.0
    /// Longest run.
    private static let longest = 14_400.0

    private let plan: CapacityPlan
    private let costs: CapacityCosts
    private let cpuPerJob: Double
    private let pools: Int
    private var partitions: [Partition]
    private var workers: [Worker]
    private var now = 0.0

    /// Prepares a run of the peak load. A partition's rate differs from the mean by up to `skew`, a share.
    public init(_ plan: CapacityPlan, costs: CapacityCosts = .init(), skew: Double = 0.1) {
        self.plan = plan
        self.costs = costs
        cpuPerJob = CapacitySizes(plan.load, costs).cpuPerJob
        pools = plan.shards * plan.load.credentials
        let count = plan.workers
        let mean = plan.peakRate / Double(plan.partitions)
        // Rates on a line from mean − skew to mean + skew, in an order that neighbours don't share.
        let total = plan.partitions
        partitions = (0..<total).map { index in
            let place = total == 1 ? 0 : Double(index * 7919 % total) / Double(total - 1) * 2 - 1
            return Partition(owner: index % count, rate: mean * (1 + skew * place))
        }
        let sum = partitions.reduce(0) { $0 + $1.rate }
        for index in partitions.indices { partitions[index].rate *= plan.peakRate / sum }
        let need =
            plan.peakRate / Double(count * pools) * plan.load.roundTrip
            / (plan.load.streams * plan.load.streamUse)
        let usual = min(plan.load.mostConnections, max(plan.load.leastConnections, CapacitySizes.up(need)))
        workers = Array(repeating: Worker(connections: usual), count: count)
    }

    /// Runs until the backlog is gone after the event, for four simulated hours at most.
    public mutating func run(_ event: Event) -> Result {
        var result = Result(
            event: event, worstLag: 0, recovery: 0, isRecovered: false, duration: 0, mostConnections: 0,
            arrived: 0,
            sent: 0)
        var restarts = Restarts()
        var toReassignAt = Double.infinity
        var returned = 0.0
        var isOver = false
        while now < Self.longest {
            switch event {
            case .rollingRestart:
                isOver = advance(&restarts)
                result.duration = restarts.end
            case .zoneLost:
                if now < Self.start, now + Self.step >= Self.start {
                    for index in workers.indices where isLost(index) { stop(index) }
                    toReassignAt = now + costs.sessionTimeout
                }
                if now >= toReassignAt {
                    assign()
                    toReassignAt = .infinity
                    isOver = true
                }
            case .massReturn:
                if now >= Self.start, now < Self.start + 60 {
                    let part = plan.returning * Self.step / 60 / Double(workers.count)
                    for index in workers.indices { workers[index].returning += part }
                }
                let waiting = workers.reduce(0) { $0 + $1.returning }
                isOver = now >= Self.start + 60 && waiting < 0.5
                if now >= Self.start, !isOver { result.duration = now - Self.start }
            }
            result.arrived += plan.peakRate * Self.step
            returned = sendStep()
            result.sent += returned
            note(&result, isOver: isOver)
            now += Self.step
            if isOver, result.isRecovered, now > Self.start + 1 { break }
        }
        if !result.isRecovered { result.recovery = now - Self.start }
        return result
    }

    private func isLost(_ worker: Int) -> Bool {
        plan.load.zones > 1 ? worker % plan.load.zones == 0 : worker == 0
    }

    private mutating func note(_ result: inout Result, isOver: Bool) {
        var lag = 0.0
        for partition in partitions where partition.backlog > 0 {
            lag = max(lag, partition.backlog / partition.rate)
        }
        result.worstLag = max(result.worstLag, lag)
        result.mostConnections = max(
            result.mostConnections, workers.reduce(0) { $0 + ($1.isRunning ? $1.connections * pools : 0) })
        let isCalm = lag < 0.5
        if now >= Self.start, !isCalm { result.recovery = now + Self.step - Self.start }
        result.isRecovered = isCalm && isOver
    }
}

// MARK: - Steps

extension FleetSimulation {
    /// Progress of a rolling restart.
    private struct Restarts {
        var next = 0
        /// Worker that is away, and the time of its next step.
        var away: (worker: Int, phase: Phase, until: Double)?
        var end = 0.0

        enum Phase {
            case draining
            case starting
            case readying
        }
    }

    /// Returns whether all workers have restarted.
    private mutating func advance(_ restarts: inout Restarts) -> Bool {
        guard now >= Self.start else { return false }
        guard let away = restarts.away else {
            guard restarts.next < workers.count else { return true }
            restarts.away = (restarts.next, .draining, now + costs.drain + plan.load.roundTrip)
            // A draining worker takes no new jobs.
            stop(restarts.next)
            restarts.next += 1
            return false
        }
        guard now >= away.until else { return false }
        switch away.phase {
        case .draining:
            assign()
            restarts.away = (away.worker, .starting, now + costs.restart)
        case .starting:
            workers[away.worker] = Worker(connections: plan.load.leastConnections)
            assign()
            restarts.away = (away.worker, .readying, now + costs.rebalance)
        case .readying:
            // Ready once all of its partitions are open.
            guard partitions.allSatisfy({ $0.owner != away.worker || $0.opensAt <= now }) else {
                return false
            }
            restarts.away = nil
            restarts.end = now - Self.start
        }
        return false
    }

    /// Stops a worker: its partitions have no owner.
    private mutating func stop(_ worker: Int) {
        workers[worker].isRunning = false
        for index in partitions.indices where partitions[index].owner == worker {
            partitions[index].owner = -1
            partitions[index].before = worker
            partitions[index].opensAt = .infinity
        }
    }

    /// Divides the partitions among the running workers, as few as possible moving, and lets new owners restore one
    /// partition after another.
    private mutating func assign() {
        let running = workers.indices.filter { workers[$0].isRunning }
        guard !running.isEmpty else { return }
        var owned = Array(repeating: 0, count: workers.count)
        for partition in partitions where partition.owner >= 0 { owned[partition.owner] += 1 }
        let most = CapacitySizes.up(Double(partitions.count) / Double(running.count))
        let least = partitions.count / running.count
        var moving = partitions.indices.filter { partitions[$0].owner < 0 }
        // Workers above the even share give partitions up while another has less than its share.
        var missing = running.reduce(0) { $0 + max(0, least - owned[$1]) } - moving.count
        for limit in [most, least] {
            for index in partitions.indices.reversed() where missing > 0 {
                let owner = partitions[index].owner
                guard owner >= 0, owned[owner] > limit else { continue }
                owned[owner] -= 1
                missing -= 1
                partitions[index].owner = -1
                // A copy that is not complete yet is worth nothing.
                if partitions[index].opensAt <= now { partitions[index].before = owner }
                moving.append(index)
            }
        }
        let perPartition = plan.restoreOfPartition
        var restoring = Array(repeating: 0.0, count: workers.count)
        for index in moving {
            guard let owner = running.min(by: { (owned[$0], $0) < (owned[$1], $1) }) else { return }
            owned[owner] += 1
            partitions[index].owner = owner
            if owner != partitions[index].before { restoring[owner] += perPartition }
            partitions[index].opensAt = now + costs.rebalance + restoring[owner]
        }
    }

    /// Lets jobs arrive and workers send. Returns the number of jobs sent.
    private mutating func sendStep() -> Double {
        let seconds = Self.step
        var waiting = Array(repeating: 0.0, count: workers.count)
        for index in partitions.indices {
            partitions[index].backlog += partitions[index].rate * seconds
            let owner = partitions[index].owner
            if owner >= 0, partitions[index].opensAt <= now { waiting[owner] += partitions[index].backlog }
        }
        var share = Array(repeating: 0.0, count: workers.count)
        for index in workers.indices where workers[index].isRunning {
            share[index] = send(&workers[index], waiting: waiting[index], seconds)
        }
        var sent = 0.0
        for index in partitions.indices {
            let owner = partitions[index].owner
            guard owner >= 0, partitions[index].opensAt <= now else { continue }
            let part = partitions[index].backlog * share[owner]
            partitions[index].backlog -= part
            sent += part
        }
        return sent
    }

    /// Returns the share of a worker's waiting jobs that it sends in a step; returning pushes take their part first.
    private func send(_ worker: inout Worker, waiting: Double, _ seconds: Double) -> Double {
        let load = plan.load
        let back = min(worker.returning, load.returnRate * seconds)
        worker.returning -= back
        let byStreams =
            Double(worker.connections * pools) * load.streams * costs.streamEfficiency / load.roundTrip
            * seconds
        let byProcessor = plan.workerLimit * seconds
        let limit = min(byProcessor, byStreams)
        let room = max(0, limit - back)
        if waiting + back > byStreams, byStreams < byProcessor, worker.connections < load.mostConnections,
            now >= worker.lastGrowth + load.growthInterval
        {
            worker.connections += 1
            worker.lastGrowth = now
        }
        guard waiting > 0 else { return 0 }
        return min(1, room / waiting)
    }
}
