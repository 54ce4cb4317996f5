extension CapacitySizes {
    /// Returns the figures of a plan with their formulas.
    func lines(_ plan: CapacityPlan) -> [CapacityPlan.Line] {
        var lines: [CapacityPlan.Line] = []
        func add(_ name: String, _ key: String, _ value: Double, _ unit: String, _ formula: String) {
            lines.append(.init(name: name, key: key, value: value, unit: unit, formula: formula))
        }
        func text(_ value: Double, _ unit: String = "") -> String { CapacityFormat.text(value, unit) }
        let share = "\(text(peak)) ÷ \(left) workers"
        add(
            "peak rate", "peak-rate", peak, "pushes/s",
            "rate \(text(load.rate)) × peak \(text(load.peakFactor))")
        add(
            "processor time of a job", "cpu-per-job", cpuPerJob, "s",
            "\(text(costs.cpuPerJob * 1e6)) µs + payload above \(text(costs.payloadOfCost)) bytes "
                + "+ held share \(text(load.heldShare)) × \(text(costs.cpuPerHeld * 1e6)) µs")
        add(
            "rate of a worker, planned", "worker-rate", perWorkerRate, "pushes/s",
            "lowest of (\(load.cores) cores × \(text(load.coreUse)) − \(text(costs.coresOfWakeUps))) ÷ \(text(cpuPerJob * 1e6)) µs, shards × "
                + "\(text(costs.ratePerShard * load.coreUse)), \(text(costs.ratePerWorker * load.coreUse)), "
                + "and its connections: \(bottleneck.rawValue)")
        add(
            "workers", "workers", Double(workers), "",
            load.workers != nil
                ? "given; the peak alone needs \(needed)"
                : "\(text(peak)) ÷ \(text(perWorkerRate)) = \(needed), and "
                    + (load.zones > 1
                        ? "as many when one of \(load.zones) zones is lost" : "one more that may fail"))
        add("shards of a worker", "shards", Double(shards), "", "\(load.cores) cores − 1; delivery.shards")
        add(
            "partitions", "partitions", Double(partitions), "",
            load.partitions != nil
                ? "given"
                : "more of 4 × workers and peak × \(text(recordBytes)) bytes ÷ "
                    + "\(text(costs.partitionBytes, "bytes/s")), next multiple of 12")
        add(
            "connections of a pool", "connections-per-pool", Double(perPool), "",
            "\(share) ÷ \(shards) shards ÷ \(load.credentials) credentials × round trip "
                + "\(text(load.roundTrip, "s")) ÷ (\(text(load.streams)) streams × \(text(load.streamUse))), at least "
                + "\(load.leastConnections)")
        add(
            "connections of a worker", "connections-per-worker", Double(perWorker), "",
            "\(perPool) × \(shards) shards × \(load.credentials) credentials")
        add(
            "connections of the group", "connections", Double(connectionsUsual), "",
            "the same at the average rate with all workers")
        add(
            "growth of a pool", "pool-growth", Double(perPool - load.leastConnections) * load.growthInterval,
            "s",
            "(\(perPool) − \(load.leastConnections)) × apns.growth-interval \(text(load.growthInterval, "s"))"
        )
        add(
            "jobs in flight of a worker", "max-in-flight", Double(maxInFlight), "",
            "2 × \(share) × (round trip + \(text(costs.outcomeTime, "s"))), at least 20,000; delivery.max-in-flight"
        )
        add(
            "bytes in flight of a worker", "max-in-flight-bytes", maxInFlightBytes, "bytes",
            "jobs in flight × \(text(recordBytes)) bytes, at least 64 MiB; delivery.max-in-flight-bytes")
        add(
            "cores in use, average", "cores-used", coresUsual, "",
            "\(text(costs.coresOfWakeUps)) for wake-ups + \(text(load.rate)) ÷ \(workers) workers × processor time of a job"
        )
        add(
            "memory of a worker", "memory", memory, "bytes",
            "\(text(costs.residentIdle, "bytes")) + connections × \(text(costs.residentPerConnection, "bytes")) + "
                + "jobs in flight × \(text(costs.residentPerJob + recordBytes)) bytes + queues \(text(costs.residentQueues, "bytes"))"
                + (load.hasStore ? " + store \(text(costs.residentStore, "bytes"))" : ""))
        add(
            "most memory of a worker", "most-memory", mostMemory, "bytes",
            "\(text(costs.residentIdle, "bytes")) + connections × \(text(costs.residentPerConnection, "bytes")) + "
                + "jobs in flight × \(text(costs.residentPerJob)) bytes + 2 × bytes in flight + responses "
                + "\(text(costs.mostResponses, "bytes")) + fetched ahead \(text(costs.mostAhead, "bytes")) + partitions × "
                + "\(text(costs.residentPerPartition)) bytes"
                + (load.hasStore ? " + store \(text(costs.residentStore, "bytes"))" : ""))
        add(
            "to APNs", "apns-traffic", peak * (load.payloadBytes + costs.pushOverhead), "bytes/s",
            "peak × (payload + \(text(costs.pushOverhead)) bytes)")
        add(
            "jobs, written by producers", "kafka-jobs", peak * recordBytes * load.replicationFactor,
            "bytes/s",
            "peak × (payload + \(text(costs.recordOverhead)) bytes) × \(text(load.replicationFactor)) replicas"
        )
        add(
            "outcomes, written by workers", "kafka-outcomes",
            peak * costs.outcomeBytes * load.replicationFactor,
            "bytes/s",
            "peak × \(text(costs.outcomeBytes)) bytes × \(text(load.replicationFactor)) replicas")
        if load.hasStore { addStore(plan, add) }
        add(
            "lag after a loss", "lag-after-loss", lag, "s",
            "session \(text(costs.sessionTimeout, "s")) + assignment \(text(costs.rebalance, "s")) + restoring + "
                + "growth of pools")
        add(
            "recovery after a loss", "recovery-after-loss", recovery, "s",
            "lag + backlog of the fullest worker ÷ (\(text(fullWorker)) − \(text(fullestRate)) pushes/s)")
        add(
            "lag at a restart", "lag-at-restart", restartLag, "s",
            "drain \(text(costs.drain, "s")) + round trip + assignment \(text(costs.rebalance, "s")) + restoring, away "
                + "and back + growth of pools")
        add(
            "recovery after a restart", "recovery-after-restart", restartRecovery, "s",
            "lag + backlog of the fullest other worker ÷ its spare rate")
        add(
            "rolling restart", "rolling-restart", rollingRestart, "s",
            "\(workers) workers × (drain + restart \(text(costs.restart, "s")) + assignment + restoring its partitions)"
        )
        return lines
    }

    private func addStore(
        _ plan: CapacityPlan, _ add: (String, String, Double, String, String) -> Void
    ) {
        func text(_ value: Double, _ unit: String = "") -> String { CapacityFormat.text(value, unit) }
        add(
            "held pushes of the group", "held-items", heldItems, "",
            "\(text(load.rate)) × held share \(text(load.heldShare)) × hold \(text(load.holdTime, "s"))")
        add(
            "disk of a worker", "disk", disk, "bytes",
            "held ÷ \(left) workers × (payload + \(text(costs.storedOverhead)) bytes) × "
                + "\(text(costs.diskFactor)) × 2 for compactions and copies given up, at least 1 GB")
        add(
            "changelog, written by workers", "changelog-traffic", changelogTraffic * load.replicationFactor,
            "bytes/s",
            "rate × held share × (payload + \(text(costs.storedOverhead)) + \(text(costs.tombstoneBytes)) bytes) × "
                + "\(text(load.replicationFactor)) replicas")
        add(
            "restoring a partition", "restore-partition", restoreOfPartition, "s",
            load.hasChangelog
                ? "held ÷ \(partitions) partitions × \(text(costs.changelogFactor)) records ÷ "
                    + "\(text(costs.restoreRate)) a second"
                : "no changelog: a partition never moves with its pushes")
        add(
            "restoring after a loss", "restore-after-loss", restoreAfterFailure, "s",
            "partitions of the lost (\(workers - left) of \(workers)) ÷ \(left) workers × restoring a partition"
        )
        add(
            "return after an outage", "mass-return", massReturn, "s",
            "\(text(returning)) pushes of devices that are back ÷ (delivery.return-rate \(text(load.returnRate)) × \(workers) workers)"
        )
    }

    /// Returns reasons not to run the plan as it is.
    func warnings(_ plan: CapacityPlan) -> [String] {
        func text(_ value: Double, _ unit: String = "") -> String { CapacityFormat.text(value, unit) }
        var warnings: [String] = []
        if workers == 1 {
            warnings.append(
                "No worker remains when the only worker is lost or restarts: all jobs wait meanwhile.")
        }
        if peak / Double(left) > perWorkerRate {
            warnings.append(
                "After a loss a worker has \(text(peak / Double(left))) pushes/s at the peak, planned are "
                    + "\(text(perWorkerRate)), and \(text(fullWorker)) are the most. The load needs \(needed) workers, and "
                    + "those that may fail.")
        }
        if partitions < workers {
            warnings.append(
                "\(partitions) partitions can't feed \(workers) workers; the others would be idle. Add partitions."
            )
        } else if partitions < workers * 2 {
            warnings.append(
                "\(partitions) partitions divide unevenly among \(workers) workers. Four for each worker are better."
            )
        }
        if fullestRate > fullWorker {
            warnings.append(
                "After a loss the fullest worker has \(text(fullestRate)) pushes/s and can carry "
                    + "\(text(fullWorker)). Add partitions or workers.")
        }
        if peak * recordBytes / Double(partitions) > costs.partitionBytes {
            warnings.append(
                "A partition has \(text(peak * recordBytes / Double(partitions), "bytes/s")) at the peak, more than "
                    + "\(text(costs.partitionBytes, "bytes/s")). Add partitions.")
        }
        if perPool > load.mostConnections {
            warnings.append(
                "A pool needs \(perPool) connections, and apns.max-connections is \(load.mostConnections). "
                    + "Set apns.max-connections to \(perPool) or more.")
        }
        if bottleneck == .connections {
            warnings.append(
                "Connections limit a worker to \(text(perWorkerRate)) pushes/s. A higher apns.max-connections needs "
                    + "fewer workers.")
        }
        if load.growthInterval * Double(perPool - load.leastConnections) > 30 {
            warnings.append(
                "A new worker's pools need \(text(load.growthInterval * Double(perPool - load.leastConnections), "s")) "
                    + "to grow to the peak. Set apns.connections to \(max(load.leastConnections, perPool / 2))."
            )
        }
        if maxInFlight > 20_000 {
            warnings.append("The default delivery.max-in-flight of 20,000 is too low: set \(maxInFlight).")
        }
        if restoreOfPartition > 60 {
            warnings.append(
                "Restoring a partition takes \(text(restoreOfPartition, "s")). More partitions shorten it.")
        }
        if restoreAfterFailure > 600 {
            warnings.append(
                "After a loss, pushes of the lost workers wait \(text(restoreAfterFailure, "s")) for restoring. More "
                    + "workers with smaller stores shorten it.")
        }
        if massReturn > 3_600 {
            let spare = max(0, fullWorker - peak / Double(workers))
            warnings.append(
                "The return of held pushes takes \(text(massReturn, "s")). Raise delivery.return-rate; a worker has "
                    + "\(text(spare)) pushes/s to spare.")
        }
        if load.heldShare > 0, !load.hasStore {
            warnings.append("Held pushes without a store stay in memory and hold back committed offsets.")
        }
        if load.hasStore, !load.hasChangelog, workers > 1 {
            warnings.append(
                "Without a changelog a lost worker's held pushes wait for its disk. Only one worker may be without."
            )
        }
        if workers > left, fullestRate <= fullWorker, !recovery.isFinite || !restartRecovery.isFinite {
            warnings.append(
                "The workers that remain after a loss carry the peak but have no time to catch up.")
        }
        if load.returnRate + peak / Double(workers) > fullWorker {
            warnings.append(
                "Returning pushes (delivery.return-rate \(text(load.returnRate))) exceed a worker's "
                    + "\(text(fullWorker)) pushes/s beside the peak. Lower it.")
        }
        if Double(connectionsUsual) > 1_000 {
            warnings.append(
                "\(connectionsUsual) connections to APNs at the average rate: start workers one after another, "
                    + "because APNs can take many new connections at once for an attack.")
        }
        return warnings
    }
}
