import DeliveryCore
import SluiceModel

/// An observer outside of the workers, which checks Sluice's promises.
///
/// The auditor knows the records of the jobs topic, the pushes that left the workers for APNs, and the committed
/// records.
final class FleetAuditor {
    var violation: FleetViolation? { didSet { isBroken = violation != nil } }
    /// Whether a promise is broken.
    private(set) var isBroken = false
    private var feedRead = 0
    private var commitsRead = 0
    /// Jobs of the present log, by partition and offset.
    private var jobsAt: [[Int32]] = []
    /// The group's offset, by partition.
    private var committed: [Int64] = []
    /// By identity: the newest job that was pushed, the assignment that has pushed it first, and when.
    private var newest: [Identity: (job: Int, assignment: Int, time: UInt64)] = [:]
    /// Jobs that a transaction's offsets cover while their outcomes aren't visible yet, and since when.
    private var owed: [(job: Int, since: UInt64)] = []

    /// Items that a reader of the changelog sees, by partition and key.
    private var changelog: [[Int: (token: Int, offset: Int64, job: Int)]] = []
    /// Number of the changelog's items of a job, by job.
    private var kept: [Int: Int] = [:]

    /// Presences that a reader of the changelog sees.
    private var presences: [PresenceKey: Bool] = [:]

    private struct PresenceKey: Hashable {
        var token: Int
        var partition: Int
    }

    /// Returns a token outside of the set with a presence in the changelog's partition; nil: there is none.
    func presenceLeft(_ partition: Int, besides tokens: Set<Int>) -> Int? {
        presences.keys.filter { $0.partition == partition && !tokens.contains($0.token) }.map(\.token).min()
    }

    /// Nanoseconds at which a reader of the changelog has last seen a job's item, by job.
    private var lastPut: [Int: UInt64] = [:]

    private struct Identity: Hashable {
        var token: Int
        /// Partition of the push's record. Pushes of two partitions have no order.
        var partition: Int
        var collapse: UInt64
    }

    /// Returns the job of a record.
    func job(_ partition: Int, _ offset: Int64) -> Int { Int(jobsAt[partition][Int(offset)]) }

    /// Returns the job at the group's offset of a partition; -1: none.
    func nextJob(_ partition: Int) -> Int32 {
        guard partition < committed.count else { return -1 }
        let offset = max(0, Int(committed[partition]))
        return offset < jobsAt[partition].count ? jobsAt[partition][offset] : -1
    }

    /// Returns whether the changelog has the item of a job.
    func isInChangelog(_ job: Int) -> Bool { kept[job] ?? 0 > 0 }

    /// - Parameter missesNewLog: Whether the partition's owner can't know that the log was recreated. Items of the old
    ///   log are restored when the log has grown as far, or the partition is assigned again.
    func itemsInChangelog(_ partition: Int, _ jobs: [FleetJob], missesNewLog: Bool) -> Int {
        guard partition < changelog.count else { return 0 }
        return changelog[partition].values.count {
            !jobs[$0.job].sharesKey && !(missesNewLog && jobs[$0.job].isBeforeNewLog)
        }
    }

    func changelogSummary(_ partition: Int) -> String {
        guard partition < changelog.count else { return "" }
        return changelog[partition].values.map { "job \($0.job), token \($0.token), offset \($0.offset)" }
            .joined(separator: "; ")
    }

    /// Returns the first job with an item under a token, among records before an offset.
    func inChangelog(_ partition: Int, _ token: Int, before offset: Int64, _ jobs: [FleetJob]) -> Int? {
        guard partition < changelog.count else { return nil }
        return changelog[partition].values.filter {
            $0.token == token && jobs[$0.job].token == token && $0.offset < offset
                && jobs[$0.job].outcomes == 0
        }.map(\.job).min()
    }

    private func sawChange(_ partition: Int, _ change: FleetChange, at now: UInt64) {
        while changelog.count <= partition { changelog.append([:]) }
        switch change {
        case .put(let key, let item, _):
            lastPut[item.job] = now
            let old = changelog[partition].updateValue((key.token, key.offset, item.job), forKey: change.key)
            guard old?.job != item.job else { return }
            kept[item.job, default: 0] += 1
            // The old item is one of the log before.
            if let old { isKeptNoMore(old.job) }
        case .remove:
            guard let old = changelog[partition].removeValue(forKey: change.key) else { return }
            isKeptNoMore(old.job)
        case .presence(let token, _): presences[PresenceKey(token: token, partition: partition)] = true
        case .forget(let token): presences[PresenceKey(token: token, partition: partition)] = nil
        case .mark, .unmark: break
        }
    }

    private func isKeptNoMore(_ job: Int) {
        let left = (kept[job] ?? 0) - 1
        kept[job] = left > 0 ? left : nil
    }

    // MARK: Facts

    func appended(_ number: Int, _ world: FleetWorld, _ jobs: inout [FleetJob]) {
        let job = jobs[number]
        while jobsAt.count <= job.partition {
            jobsAt.append([])
            committed.append(-1)
        }
        while jobsAt[job.partition].count < Int(job.offset) { jobsAt[job.partition].append(-1) }
        if Int(job.offset) < jobsAt[job.partition].count {
            // The log has lost its end. Workers that don't know yet, and commits of before, skip the record.
            jobsAt[job.partition][Int(job.offset)] = Int32(number)
            (jobs[number].isExempt, jobs[number].sharesKey) = (true, true)
        } else {
            jobsAt[job.partition].append(Int32(number))
        }
        guard job.incarnation > 0 else { return }
        if unsettled[job.partition] != nil || unnoticed.contains(job.partition)
            || job.offset < skipped[job.partition] ?? 0
            || skippedAbove[job.partition, default: []].contains(where: { $0.contains(job.offset) })
        {
            jobs[number].isExempt = true
        }
        // The store can't distinguish the items of two logs with the same offset.
        for log in logsBefore where job.partition < log.count && Int(job.offset) < log[job.partition].count {
            let older = Int(log[job.partition][Int(job.offset)])
            guard older >= 0, world.device(of: jobs[older].token) == world.device(of: job.token) else {
                continue
            }
            (jobs[older].isExempt, jobs[older].sharesKey) = (true, true)
            (jobs[number].isExempt, jobs[number].sharesKey) = (true, true)
        }
    }

    // MARK: Logs that end

    /// Jobs of earlier logs, by log, partition and offset.
    private var logsBefore: [[[Int32]]] = []
    /// By partition of a recreated log: processes that may not have noticed, and since when there are none.
    private var unsettled: [Int: (processes: Set<Int>, since: UInt64)] = [:]
    /// Partitions in which a process continues because it can't notice the new log.
    private var unnoticed: Set<Int> = []
    /// By partition: the offset below which processes that hadn't noticed reported records finished.
    private var skipped: [Int: Int64] = [:]
    /// By partition: ranges above that offset that the metadata of such commits reported finished.
    private var skippedAbove: [Int: [Range<Int64>]] = [:]

    /// Exempts records that retention removed before a commit covered them; these may be lost.
    func retained(_ partition: Int, from start: Int64, _ jobs: inout [FleetJob]) {
        guard partition < jobsAt.count else { return }
        for number in jobsAt[partition].prefix(Int(start))
        where number >= 0 && jobs[Int(number)].committedAt == 0 {
            jobs[Int(number)].isExempt = true
        }
    }

    /// By partition: lowest end that its log has lost records to.
    private var shortest: [Int: Int64] = [:]

    /// Notes what had ended before a log loses its end. Records of the end may be lost.
    func losesTail(_ partition: Int, from end: Int64, _ world: FleetWorld, _ jobs: inout [FleetJob]) {
        shortest[partition] = min(shortest[partition] ?? .max, end)
        for (offset, number) in jobsAt[partition].enumerated() where number >= 0 {
            let job = jobs[Int(number)]
            if offset >= end {
                (jobs[Int(number)].isExempt, jobs[Int(number)].sharesKey) = (true, true)
            } else if job.outcomes > 0, job.committedAt > 0, !job.isExempt,
                !world.isKept(Int(number), of: partition)
            {
                jobs[Int(number)].isSettled = true
            }
        }
    }

    /// Begins new logs after the jobs topic was deleted and recreated.
    func madeAnew(_ world: FleetWorld, _ jobs: inout [FleetJob]) {
        // The group's offsets are deleted with the topic. Without transactions, items that await removal are restored
        // again.
        for number in jobs.indices
        where jobs[number].committedAt == 0
            || jobs[number].outcomes > 0 && world.scenario.mode != .transactions
        {
            jobs[number].isExempt = true
        }
        if !jobs.isEmpty { logsBefore.append(jobsAt) }
        for partition in jobsAt.indices {
            jobsAt[partition] = []
            let processes = world.living.filter { world.kafka.owned($0.client).contains(partition) }
            unsettled[partition] = (Set(processes.map(\.serial)), .max)
        }
    }

    func isUnnoticed(_ partition: Int, _ jobs: inout [FleetJob]) {
        unnoticed.insert(partition)
        for number in jobsAt[partition] where number >= 0 { jobs[Int(number)].isExempt = true }
    }

    private func settle(_ world: FleetWorld) {
        for (partition, state) in unsettled {
            let left = state.processes.filter { serial in
                let process = world.processes[serial]
                return !process.isDead && !process.hasEnded
                    && world.kafka.owned(process.client).contains(partition) && !process.hasSeen(1, partition)
            }
            if !left.isEmpty || !world.processes.contains(where: { $0.hasSeen(1, partition) }) {
                unsettled[partition] = (left, .max)
            } else if state.since == .max {
                unsettled[partition] = (left, world.now)
            }
        }
    }

    /// Checks a push that leaves a worker.
    func pushed(
        _ number: Int, to token: Int, by process: WorkerProcess, slot: UInt16, _ world: FleetWorld
    ) {
        let job = world.jobs[number]
        let wall = world.wallMilliseconds(process.host)
        if wall >= job.facts.expirationMilliseconds {
            world.broken(
                .neverLate, "job \(number) is sent \(wall - job.facts.expirationMilliseconds) ms late")
        }
        if job.isSettled {
            world.broken(
                .noDuplicate, "job \(number) is sent again, because its log has lost its end")
        }
        let isCutOff = world.kafka.isCutOff(process.client)
        for other in world.living where other !== process && !job.isExempt && !isCutOff {
            // A process that was stopped may still count partitions as its own that the group has assigned to others.
            guard world.kafka.isMember(other.client), world.kafka.owned(other.client).contains(job.partition)
            else { continue }
            world.broken(
                .noDuplicate,
                "process \(process.serial) sends job \(number), whose partition \(job.partition) is process \(other.serial)'s"
            )
        }
        if job.committedAt > 0, world.scenario.mode == .none {
            world.broken(.noDuplicate, "job \(number) is sent though its outcome is committed")
        }
        if job.outcomes > 0, world.scenario.mode == .transactions, !job.isExempt {
            world.broken(.noDuplicate, "job \(number) is sent though its outcome was seen")
        }
        // A moved push meets pushes of other partitions, in no order of their offsets. After a crash a moved push is
        // sent under its old token, when its record is read before the change is.
        if token == job.token, !world.scenario.sharesNothing, !world.movedJobs.contains(number) {
            checkOrder(number, job, process, process.serial << 16 | Int(slot), world)
        }
    }

    private func checkOrder(
        _ number: Int, _ job: FleetJob, _ process: WorkerProcess, _ assignment: Int, _ world: FleetWorld
    ) {
        guard job.facts.collapseKey != 0, !job.isExempt else { return }
        let identity = Identity(
            token: job.token, partition: job.partition, collapse: job.facts.collapseKey)
        guard let last = newest[identity], last.job > number else {
            if newest[identity]?.job != number { newest[identity] = (number, assignment, world.now) }
            if newest[identity]?.job == number { newest[identity]!.assignment = assignment }
            return
        }
        let newer = world.jobs[last.job]
        guard newer.incarnation == job.incarnation else { return }
        // Without transactions, an older push can be read once more, although the store has had a newer push.
        let isPast =
            newer.committedAt > 0 && !newer.isExempt && !newer.isRefused
            && (!world.scenario.mode.hasStore || world.scenario.mode == .transactions)
        // The newer push was read before anything was sent, unless there was no room or no time. With a store it may
        // still wait for its device to be loaded.
        let assigned = process.assigned(job.partition)
        let isRead =
            !world.scenario.mode.hasStore && last.time < assigned
            && (newer.committedAt == 0 || newer.committedAt > assigned)
            && !newer.isExempt && !process.cutCatchUps.contains(job.partition)
        if last.assignment == assignment || isPast || isRead {
            world.broken(.newestWins, "job \(number) is sent after \(last.job)")
        }
    }

    // MARK: What becomes visible

    func follow(_ world: FleetWorld, _ jobs: inout [FleetJob]) {
        if !unsettled.isEmpty { settle(world) }
        while feedRead < world.kafka.feed.count, !isBroken {
            let record = world.kafka.feed[feedRead]
            feedRead += 1
            if record.topic == .changelog {
                sawChange(record.partition, world.changes[record.payload], at: world.now)
            }
            guard record.topic == .outcomes || record.topic == .deadLetters else { continue }
            saw(world.outputs[record.payload], world, &jobs)
        }
        while commitsRead < world.kafka.commits.count, !isBroken {
            saw(world.kafka.commits[commitsRead], world, &jobs)
            commitsRead += 1
        }
        guard !owed.isEmpty else { return }
        let kept = kept
        owed.removeAll { jobs[$0.job].outcomes > 0 || jobs[$0.job].isExempt || kept[$0.job] != nil }
        if let first = owed.first, world.isHealthy,
            world.now > max(first.since, world.healthySince) + 120_000_000_000
        {
            world.broken(.nothingLost, "job \(first.job) is committed, and has no outcome")
        }
    }

    private func saw(_ output: FleetOutput, _ world: FleetWorld, _ jobs: inout [FleetJob]) {
        jobs[output.job].outcomes += 1
        jobs[output.job].isRefused = output.isRefused
        noteSeen(output, world)
        world.note("the outcome of job # is seen", output.job)
        world.counts.outcomes += 1
        let job = jobs[output.job]
        if job.outcomeOf < 0 {
            (jobs[output.job].outcomeOf, jobs[output.job].outcomeAt) = (output.process, output.producedAt)
        }
        guard job.outcomes > 1, !job.isExempt, !world.scenario.sharesNothing else { return }
        world.counts.repeatedOutcomes += 1
        if world.scenario.mode == .transactions {
            world.broken(.oneOutcome, "job \(output.job) has \(job.outcomes) outcomes")
        } else if world.scenario.mode == .none, output.isOfZombie {
            // The group has moved on without the process, which couldn't know. Nothing fences the process's records.
        } else if world.scenario.mode == .none, job.committedAt > 0, job.committedAt < output.producedAt {
            world.broken(.oneOutcome, "job \(output.job) gets an outcome again though it is committed")
        } else if world.scenario.mode == .changelog,
            lastPut[output.job] ?? 0 > world.processes[job.outcomeOf].assigned(job.partition)
        {
            // Nothing fences records on their way when their process loses the partition. The item arrived after the
            // next owner, or the same process in its next assignment, had restored the partition.
        } else if world.processes[job.outcomeOf].endedClean(
            above: job.offset, job.partition, since: job.outcomeAt, before: output.producedAt)
        {
            world.broken(
                .oneOutcome,
                "job \(output.job) gets an outcome again though process \(job.outcomeOf) ended clean")
        }
    }

    private func saw(
        _ change: KafkaModel.CommittedChange, _ world: FleetWorld, _ jobs: inout [FleetJob]
    ) {
        let partition = change.partition
        while committed.count <= partition {
            committed.append(-1)
            jobsAt.append([])
        }
        world.counts.commits += 1
        world.note("partition # is committed up to #", partition, Int(change.offset))
        let before = committed[partition]
        committed[partition] = change.offset
        noteCommit(of: partition, world, jobs)
        if let state = unsettled[partition] {
            if change.origin != .outside, state.since < .max, change.time > state.since + 20_000_000_000 {
                unsettled[partition] = nil
            }
            skipped[partition] = change.offset
            if !change.metadata.isEmpty {
                let decoded = CommitMetadata.decode(change.metadata, committedOffset: change.offset)
                skippedAbove[partition, default: []] += decoded.completed.ranges
            }
            for number in jobsAt[partition] where number >= 0 { jobs[Int(number)].isExempt = true }
            return
        }
        if change.origin == .outside {
            for offset in max(0, Int(change.offset))..<max(0, Int(change.offset), jobsAt[partition].count) {
                if jobsAt[partition][offset] >= 0 { jobs[Int(jobsAt[partition][offset])].isExempt = true }
            }
            return
        }
        if change.offset < min(before, shortest[partition] ?? .max), !unnoticed.contains(partition) {
            return world.broken(
                .watermark,
                "the offset of partition \(partition) goes back from \(before) to \(change.offset)")
        }
        for offset in max(0, Int(before))..<max(0, Int(before), Int(change.offset)) {
            cover(partition, offset, change, world, &jobs)
        }
        for offset in max(0, Int(before))..<max(0, Int(before), Int(change.offset))
        where offset < jobsAt[partition].count {
            checkMoved(partition, offset, world, jobs)
        }
        guard !change.metadata.isEmpty else { return }
        let decoded = CommitMetadata.decode(change.metadata, committedOffset: change.offset)
        if decoded.problem != nil { world.broken(.watermark, "the metadata of a commit can't be read") }
        for range in decoded.completed.ranges {
            for offset in range { cover(partition, Int(offset), change, world, &jobs) }
        }
    }

    /// Checks a token change that nobody will read again: none of its pushes is under the old token any more.
    private func checkMoved(_ partition: Int, _ offset: Int, _ world: FleetWorld, _ jobs: [FleetJob]) {
        guard jobsAt[partition][offset] >= 0 else { return }
        let change = jobs[Int(jobsAt[partition][offset])]
        guard change.kind == .tokenChanged, !change.isExempt, world.scenario.mode != .transactions,
            logsBefore.isEmpty, shortest.isEmpty,
            let left = world.stranded(partition, change.token, before: Int64(offset), jobs)
        else { return }
        world.broken(
            .rightOutcome,
            "job \(left) stays with token \(change.token), though it has become \(change.subject) and nobody reads that again"
        )
    }

    /// Notes that a commit reports a record finished.
    private func cover(
        _ partition: Int, _ offset: Int, _ change: KafkaModel.CommittedChange, _ world: FleetWorld,
        _ jobs: inout [FleetJob]
    ) {
        guard offset < jobsAt[partition].count, jobsAt[partition][offset] >= 0 else { return }
        let number = Int(jobsAt[partition][offset])
        guard jobs[number].committedAt == 0 else { return }
        jobs[number].committedAt = change.time
        guard jobs[number].outcomes == 0, !jobs[number].isExempt else { return }
        switch world.scenario.mode {
        case .none: world.broken(.nothingLost, "job \(number) is committed before its outcome is in Kafka")
        case .local, .changelog:
            if !world.isKept(number, of: jobs[number].partition) {
                world.broken(.nothingLost, "job \(number) is committed, and neither ended nor kept")
            }
        case .transactions: owed.append((number, change.time))
        }
    }
}
