import DeliveryCore
import SluiceModel

/// Checks at the end of a healthy world that everything ends.
extension FleetWorld {
    var isQuiet: Bool {
        isAllRead && (0..<kafka.partitionCount(.jobs)).allSatisfy { itemsLeft($0) == 0 }
            && living.allSatisfy { $0.isIdle }
    }

    var isAllRead: Bool {
        (0..<kafka.partitionCount(.jobs)).allSatisfy {
            // A log has no commit when all its records were removed before they were read.
            max(kafka.log(.jobs, $0).start, kafka.committedOffset($0).offset) >= kafka.log(.jobs, $0).end
        }
    }

    /// Nanoseconds in which all stored items could return in turn.
    var timeOfReturns: UInt64 {
        let items = disks.reduce(0) { $0 + $1.parts.values.reduce(0) { $0 + $1.items.count } }
        return UInt64(items) * 1_000_000_000 / UInt64(scenario.limits.returnsPerSecond)
    }

    /// Checks that nothing is held for online devices.
    ///
    /// All reports of devices were read a while ago, so no push is held for a device that is online. No push waits with
    /// its topic either, because APNs accepts the pushes of all topics.
    ///
    /// - Parameter isLong: false: checks only processes with nothing in memory and no device waiting for its turn.
    func checkHeld(isLong: Bool) {
        for partition in 0..<kafka.partitionCount(.jobs) {
            // The disk can have an old copy before the partition is read.
            guard let owner = living.first(where: { $0.owns(partition) && $0.reads(partition) }),
                isLong || owner.isIdle && !owner.hasTurns,
                let part = disks[owner.host].parts[Int32(partition)]
            else { continue }
            for (key, item) in part.items where item.due > trueMilliseconds + 12_000 {
                // A device with more items than there is room for gets them in parts, and delays others meanwhile.
                guard
                    !isLong || item.progress.wait != .suspended
                        || owner.shards.contains(where: { $0.has(item.job) })
                        || Int(scenario.limits.pendingPerDevice) > scenario.residency.room / 2
                else {
                    return broken(
                        .progress,
                        "job \(item.job) stays in the store of process \(owner.serial) though its topic isn't refused"
                    )
                }
                guard item.progress.wait == .held, item.progress.wakeMilliseconds == 0,
                    part.presences[key.token]?.presence == .online, jobs[item.job].token == key.token,
                    // Since the topic has grown, reports of the device are in another partition.
                    partition == key.token % kafka.partitionCount(.jobs),
                    !owner.shards.contains(where: { $0.has(item.job) })
                else { continue }
                broken(
                    .progress,
                    "job \(item.job) stays in the store of process \(owner.serial) though its device, token \(key.token), is online"
                )
            }
        }
    }

    var unfinished: String {
        let offsets = (0..<kafka.partitionCount(.jobs)).map {
            "\(kafka.committedOffset($0).offset)/\(kafka.log(.jobs, $0).end), next job \(auditor.nextJob($0))"
        }
        let items = (0..<kafka.partitionCount(.jobs)).map { itemsLeft($0) }
        let kept = (0..<kafka.partitionCount(.jobs)).map { auditor.changelogSummary($0) }
        let left = disks.flatMap { disk in
            disk.parts.values.flatMap { part in
                part.items.map {
                    "job \($0.value.job) of partition \(part.partition), offset \($0.key.offset), token \($0.key.token), due in \($0.value.due - trueMilliseconds) ms, \(jobs[$0.value.job].outcomes) outcomes"
                }
            }
        }
        return "offsets \(offsets), items \(items), \(kept), \(left.prefix(30)) "
            + living.map(\.summary).joined(separator: "; ")
    }

    // MARK: The auditor's part

    /// Returns a description of an expired presence that is left, nil for none.
    ///
    /// Presences that have expired for long don't stay, unless the worker has the device in memory. The changelog has
    /// no presence that the store lacks.
    func presenceLeft(_ process: WorkerProcess, _ partition: Int, _ part: FleetPart) -> String? {
        let old = trueMilliseconds - Int64(3 * FleetScenario.expiryInterval / 1_000_000)
        if !process.isNew(partition),
            let token = part.presences.first(where: {
                $0.value.expiryMilliseconds < old && !process.knowsPresence(of: $0.key)
            })?.key
        {
            return "process \(process.serial) keeps the presence of token \(token) in partition \(partition)"
        }
        // Without transactions, writes of a worker that lost the partition can reach the changelog late.
        guard scenario.mode == .transactions,
            let token = auditor.presenceLeft(partition, besides: Set(part.presences.keys))
        else { return nil }
        return "the changelog keeps the presence of token \(token) in partition \(partition)"
    }

    var hasPresencesLeft: Bool {
        living.contains { process in
            disks[process.host].parts.contains { partition, part in
                process.owns(Int(partition)) && presenceLeft(process, Int(partition), part) != nil
            }
        }
    }

    func auditEnd() {
        for (number, job) in jobs.enumerated() where !job.isExempt && job.outcomes == 0 {
            // The store of a worker that has lost the partition has the item.
            let isMissed =
                job.isBeforeNewLog
                && living.contains {
                    $0.owns(job.partition) && $0.mayMiss(job.partition, madeAnewAt: jobsMadeAnewAt)
                }
            if scenario.sharesNothing || isMissed, isKept(number, of: job.partition) { continue }
            return broken(.nothingLost, "job \(number) of partition \(job.partition) has no outcome")
        }
        // An open transaction hides the changelog's removals.
        var passes = 0
        while passes < 40, !auditor.isBroken, hasPresencesLeft {
            pass(500_000_000)
            audit()
            passes += 1
        }
        for process in living {
            for (partition, part) in disks[process.host].parts where process.owns(Int(partition)) {
                if let problem = presenceLeft(process, Int(partition), part) {
                    return broken(.bounded, problem)
                }
                // Items of two logs with the same key leave the due time of one of them.
                guard scenario.mode == .local, kafka.log(.jobs, 0).incarnation == 0 else { continue }
                guard let left = part.leftover else { continue }
                return broken(
                    .bounded,
                    "the store of process \(process.serial) keeps \(left) in partition \(partition) for ever")
            }
        }
    }
}
