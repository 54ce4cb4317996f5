extension WorkerMachine {
    /// Checks the invariants once a second. The worker continues whatever is found, and a note reports the finding to
    /// people.
    mutating func watchInvariants() {
        guard now >= nextInvariantCheck else { return }
        nextInvariantCheck = now + 1_000_000_000
        guard let problem = checkInvariants() else { return }
        counters.brokenInvariants += 1
        note(.invariantBroken(problem))
    }

    /// Returns the first broken invariant; nil: all is well. O(partitions).
    public func checkInvariants() -> String? {
        guard gate.load.jobs >= 0, gate.orphans.jobs >= 0 else { return "fewer than no jobs are taken" }
        guard gate.orphans.jobs == orphanedJobs else {
            return "\(orphanedJobs) jobs of revoked partitions, \(gate.orphans.jobs) counted"
        }
        var jobs = 0
        for index in partitions.indices {
            jobs += gate.load(index).jobs
            if let problem = partitions[index].brokenInvariant { return problem }
        }
        guard jobs == gate.load.jobs else {
            return "partitions have \(jobs) jobs, \(gate.load.jobs) are counted"
        }
        return nil
    }
}

extension PartitionLifecycle {
    /// First broken invariant of the partition; nil: all is well.
    fileprivate var brokenInvariant: String? {
        if watermark > end { return "the watermark of partition \(partition) is above its end" }
        if outstanding < 0 { return "partition \(partition) has fewer than no records under way" }
        return nil
    }
}
