import DeliveryCore
import SluiceModel

/// Questions at the end of a world, when all is well: whether everything ends.
extension FleetWorld {
    var isQuiet: Bool {
        isAllRead && (0..<kafka.partitionCount(.jobs)).allSatisfy { itemsLeft($0) == 0 }
            && living.allSatisfy { $0.isIdle }
    }

    var isAllRead: Bool {
        (0..<kafka.partitionCount(.jobs)).allSatisfy {
            // Nothing is committed of a log whose records were all removed before they were read.
            max(kafka.log(.jobs, $0).start, kafka.committedOffset($0).offset) >= kafka.log(.jobs, $0).end
        }
    }

    /// Nanoseconds in which all that the stores have could return, one after the other.
    var timeOfReturns: UInt64 {
        let items = disks.reduce(0) { $0 + $1.parts.values.reduce(0) { $0 + $1.items.count } }
        return UInt64(items) * 1_000_000_000 / UInt64(scenario.limits.returnsPerSecond)
    }

    /// All reports of devices were heard a while ago: what was held for devices that are online isn't any more. Nor does
    /// anything wait with its topic, as APNs takes the pushes of all.
    /// - Parameter isLong: false: only processes are checked that have nothing in memory, and no device in line for its turn.
    func checkHeld(isLong: Bool) {
        for partition in 0..<kafka.partitionCount(.jobs) {
            // Before the partition is read, the disk can have an old copy.
            guard let owner = living.first(where: { $0.owns(partition) && $0.reads(partition) }),
                isLong || owner.isIdle && !owner.hasTurns,
                let part = disks[owner.host].parts[Int32(partition)]
            else { continue }
            for (key, item) in part.items where item.due > trueMilliseconds + 12_000 {
                // A device with more items than there is room for gets them in parts, and holds up others meanwhile.
                guard
                    !isLong || item.progress.wait != .parked
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

    /// Presences that have expired for long don't stay, unless the worker has the device in memory. The changelog has none
    /// that the store hasn't got.
    func presenceLeft(_ process: WorkerProcess, _ partition: Int, _ part: FleetPart) -> String? {
        let old = trueMilliseconds - Int64(3 * FleetScenario.expiryInterval / 1_000_000)
        if !process.isNew(partition),
            let token = part.presences.first(where: {
                $0.value.expiryMilliseconds < old && !process.knowsPresence(of: $0.key)
            })?.key
        {
            return "process \(process.serial) keeps the presence of token \(token) in partition \(partition)"
        }
        // Without transactions, the changelog can get late what a worker has written that lost the partition.
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
            // The store of a worker that hasn't got the partition any more has it.
            let isMissed =
                job.isBeforeNewLog
                && living.contains {
                    $0.owns(job.partition) && $0.mayMiss(job.partition, madeAnewAt: jobsMadeAnewAt)
                }
            if scenario.sharesNothing || isMissed, isKept(number, of: job.partition) { continue }
            return broken(.nothingLost, "job \(number) of partition \(job.partition) has no outcome")
        }
        // A transaction that is open hides what the changelog forgets.
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
                // Items of two logs with one key leave the moment of one of them.
                guard scenario.mode == .local, kafka.log(.jobs, 0).incarnation == 0 else { continue }
                guard let left = part.leftover else { continue }
                return broken(
                    .bounded,
                    "the store of process \(process.serial) keeps \(left) in partition \(partition) for ever")
            }
        }
    }
}
