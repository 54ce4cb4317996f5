/// The arithmetic behind a ``CapacityPlan``.
struct CapacitySizes {
    let load: CapacityLoad
    let costs: CapacityCosts
    let peak: Double
    /// Seconds of processor time of a job, the store's part included.
    let cpuPerJob: Double
    let shards: Int
    /// Jobs a second of a worker at the permitted use of its cores.
    let perWorkerRate: Double
    /// Jobs a second of a worker whose cores are busy all the time.
    let fullWorker: Double
    let bottleneck: CapacityPlan.Bottleneck
    var needed = 1
    var workers = 1
    var left = 1
    var partitions = 1
    var perPool = 1
    var perWorker = 1
    var connectionsUsual = 1
    var maxInFlight = 20_000
    var maxInFlightBytes = 64.0 * 1_048_576
    var heldItems = 0.0
    var disk = 0.0
    var memory = 0.0
    var mostMemory = 0.0
    var coresUsual = 0.0
    var restoreOfPartition = 0.0
    var restoreAfterFailure = 0.0
    var recovery = 0.0
    var lag = 0.0
    var returning = 0.0
    var massReturn = 0.0
    var restartLag = 0.0
    var restartRecovery = 0.0
    var rollingRestart = 0.0

    init(_ load: CapacityLoad, _ costs: CapacityCosts) {
        self.load = load
        self.costs = costs
        peak = load.rate * load.peakFactor
        let held = load.hasStore ? load.heldShare : 0
        cpuPerJob =
            costs.cpuPerJob + max(0, load.payloadBytes - costs.payloadOfCost) * costs.cpuPerPayloadByte
            + held * costs.cpuPerHeld
        // The remaining core is for the Kafka thread, librdkafka and the store.
        shards = max(1, load.cores - 1)
        let processor = max(0.01, Double(load.cores) * load.coreUse - costs.coresOfWakeUps) / cpuPerJob
        let byShards = Double(shards) * costs.ratePerShard * load.coreUse
        let byIntake = costs.ratePerWorker * load.coreUse
        // Connections of all pools at their maximum, each credential having its part of the load.
        let byConnections =
            Double(shards * load.credentials * load.mostConnections) * load.streams * load.streamUse
            / load.roundTrip
        perWorkerRate = min(processor, byShards, byIntake, byConnections)
        fullWorker = min(
            (Double(load.cores) - costs.coresOfWakeUps) / cpuPerJob, Double(shards) * costs.ratePerShard,
            costs.ratePerWorker,
            byConnections / load.streamUse * costs.streamEfficiency)
        bottleneck =
            perWorkerRate == byConnections
            ? .connections
            : perWorkerRate == processor ? .processor : perWorkerRate == byIntake ? .intake : .shards
    }

    /// Chooses workers, partitions and connections.
    mutating func divide() {
        needed = Self.up(peak / perWorkerRate)
        workers = needed + 1
        if load.zones > 1 {
            workers = max(needed, load.zones)
            while workers - Self.up(Double(workers) / Double(load.zones)) < needed { workers += 1 }
        }
        workers = load.workers ?? workers
        left = max(1, load.zones > 1 ? workers - Self.up(Double(workers) / Double(load.zones)) : workers - 1)
        let bytes = peak * recordBytes
        // Four for each worker divide evenly enough; the next multiple of twelve divides by 2, 3, 4, 6 and 12.
        let wanted = max(Double(workers * 4), bytes / costs.partitionBytes)
        partitions = load.partitions ?? Self.up(wanted / 12) * 12
        perPool = connections(rate: peak, workers: left)
        perWorker = perPool * shards * load.credentials
        connectionsUsual =
            max(load.leastConnections, connections(rate: load.rate, workers: workers)) * shards
            * load.credentials
            * workers
    }

    /// Computes all that follows from the division.
    mutating func fill() {
        let rate = peak / Double(left)
        let open = rate * (load.roundTrip + costs.outcomeTime)
        maxInFlight = max(20_000, Self.up(open * 2 / 1_000) * 1_000)
        maxInFlightBytes = max(64, (Double(maxInFlight) * recordBytes / 1_048_576).rounded(.up)) * 1_048_576
        heldItems = load.hasStore ? load.rate * load.heldShare * load.holdTime : 0
        if load.hasStore {
            // Twice, for a compaction, and for copies of partitions given up within the last half hour.
            disk = max(1e9, heldItems / Double(left) * storedBytes * costs.diskFactor * 2)
        }
        memory =
            costs.residentIdle + Double(perWorker) * costs.residentPerConnection
            + Double(maxInFlight) * (costs.residentPerJob + recordBytes)
            + costs.residentQueues
            + (load.hasStore ? costs.residentStore : 0)
        coresUsual = costs.coresOfWakeUps + load.rate / Double(workers) * cpuPerJob
        // Dead letters have all bytes of their records, in the producer's queue too.
        mostMemory =
            costs.residentIdle + Double(perWorker) * costs.residentPerConnection
            + Double(maxInFlight) * costs.residentPerJob + 2 * maxInFlightBytes + costs.mostResponses
            + costs.mostAhead + Double(partitions) * costs.residentPerPartition
            + (load.hasStore ? costs.residentStore : 0)
        let restores = load.hasStore && load.hasChangelog
        let perItem = restores ? costs.changelogFactor / costs.restoreRate : 0
        restoreOfPartition = heldItems / Double(partitions) * perItem
        let lost = Double(workers - left) / Double(workers)
        restoreAfterFailure =
            Double(Self.up(Double(partitions) * lost / Double(left))) * restoreOfPartition
        returning = load.hasStore ? load.returning ?? heldItems * 0.1 : 0
        massReturn = returning / (load.returnRate * Double(workers))
        failure(lost: lost)
        restart()
    }

    /// Computes the time after a loss. Lost jobs wait until the group has noticed the loss, the partitions are
    /// restored, and the pools of the others carry the load.
    private mutating func failure(lost: Double) {
        guard workers > left else {
            (lag, recovery) = (.infinity, .infinity)
            return
        }
        lag =
            costs.sessionTimeout + costs.rebalance + restoreAfterFailure
            + growth(to: fullestRate)
        recovery = recoveryTime(lag: lag, moved: Double(partitions) * lost, remaining: left)
    }

    /// Computes the time after a planned restart. A stopping worker leaves the group, so its partitions move to the
    /// others. Others move to it afterwards, because the assignment doesn't remember which were its own.
    private mutating func restart() {
        guard workers > 1 else {
            restartLag = costs.drain + load.roundTrip + costs.restart + costs.rebalance
            restartRecovery = recoveryTime(lag: restartLag, moved: Double(partitions), remaining: 1)
            rollingRestart = restartLag
            return
        }
        let remaining = workers - 1
        let own = Self.up(Double(partitions) / Double(workers))
        let leaving =
            costs.drain + load.roundTrip + costs.rebalance
            + Double(Self.up(Double(own) / Double(remaining))) * restoreOfPartition
        // The restarted worker's pools begin with their least number of connections.
        let returning =
            costs.rebalance + Double(own) * restoreOfPartition
            + growth(from: load.leastConnections, to: peak / Double(partitions) * Double(own))
        // Partitions that are not restored when the worker is back can move a second time.
        let still = leaving <= costs.restart ? max(leaving, returning) : leaving + returning
        let fullest = peak / Double(partitions) * Double(Self.up(Double(partitions) / Double(remaining)))
        rollingRestart =
            Double(workers)
            * (costs.drain + load.roundTrip + costs.restart + costs.rebalance + Double(own)
                * restoreOfPartition)
        restartLag = still + growth(to: fullest)
        restartRecovery = recoveryTime(
            lag: restartLag, moved: Double(partitions) / Double(workers), remaining: remaining)
    }

    /// Returns the time until the backlog of moved partitions is gone, which the fullest worker decides.
    private func recoveryTime(lag: Double, moved: Double, remaining: Int) -> Double {
        let perPartition = peak / Double(partitions)
        let fullest = perPartition * Double(Self.up(Double(partitions) / Double(remaining)))
        let spare = fullWorker - fullest
        guard spare > 0 else { return .infinity }
        let backlog = Double(Self.up(moved / Double(remaining))) * perPartition * lag
        // A worker with little to catch up needs no more connections.
        let isShort = backlog / spare < load.growthInterval
        return lag + (isShort ? 0 : growth(to: fullWorker)) + backlog / spare
    }

    /// Returns the seconds in which the pools of a worker grow from their usual number until they carry a rate.
    private func growth(to rate: Double) -> Double {
        growth(from: connections(rate: peak, workers: workers), to: rate)
    }

    /// Returns the seconds in which pools grow from a number of connections until they carry a worker's rate.
    private func growth(from usual: Int, to rate: Double) -> Double {
        let pools = Double(shards * load.credentials)
        let wanted = Self.up(rate / pools * load.roundTrip / (load.streams * costs.streamEfficiency))
        return Double(max(0, min(wanted, load.mostConnections) - usual)) * load.growthInterval
    }

    /// Pushes a second at the peak of the remaining worker with most partitions.
    var fullestRate: Double {
        peak / Double(partitions) * Double(Self.up(Double(partitions) / Double(left)))
    }

    var recordBytes: Double { load.payloadBytes + costs.recordOverhead }
    var storedBytes: Double { load.payloadBytes + costs.storedOverhead }

    /// Bytes a second of the changelog at the average rate, a put and a deletion for each held push.
    var changelogTraffic: Double {
        guard load.hasStore, load.hasChangelog else { return 0 }
        return load.rate * load.heldShare * (storedBytes + costs.tombstoneBytes)
    }

    /// Connections that a pool needs to carry its part of a rate, not limited by `max-connections`.
    private func connections(rate: Double, workers: Int) -> Int {
        let part = rate / Double(max(1, workers) * shards * load.credentials)
        return max(load.leastConnections, Self.up(part * load.roundTrip / (load.streams * load.streamUse)))
    }

    /// Returns a number rounded up, which ignores errors of floating point, at least 1 and at most a billion.
    static func up(_ value: Double) -> Int {
        max(1, Int(min(1e9, (value - 1e-9).rounded(.up))))
    }
}
