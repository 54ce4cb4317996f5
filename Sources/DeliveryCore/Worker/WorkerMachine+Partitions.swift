/// Partitions that the group revokes. Jobs in flight end first, then the partitions are given up.
struct Revocation: Sendable {
    enum Stage: UInt8, CaseIterable { case settling, committing }

    var partitions: [Int32]
    var stage = Stage.settling
    /// True once the last commit of the partitions has begun.
    var isIssued = false
    /// End of the stage, in nanoseconds of the monotonic clock.
    var deadline: UInt64
}

extension WorkerMachine {
    // MARK: Assignment

    /// Takes the group's assignment. The assignment is answered at once, so that the other partitions continue. Each
    /// assigned partition is read as soon as it has arrived.
    public mutating func assigned(_ partitions: [Int32], at now: UInt64) {
        self.now = max(self.now, now)
        counters.rebalances += 1
        committer.rebalanceEnded()
        act(.assign([]))
        arrive(partitions)
    }

    private mutating func arrive(_ partitions: [Int32]) {
        // A part of the store that was restored for an earlier assignment may have changed since.
        restore.cancel(partitions)
        arrivals.add(partitions, at: now)
        followRestore()
        guard partitions.isEmpty else { return advanceArrivals() }
        if arrivals.isEmpty { isAssigned = true }
        note(.partitionsAssigned([]))
    }

    /// Continues the arrivals, after each event of an arrival and with each tick.
    mutating func advanceArrivals() {
        guard !arrivals.isEmpty, drain.phase == .running, revocation == nil else { return }
        let restores = arrivals.restores(at: now) { restore.isUnderWay($0) }
        if settings.mode.hasChangelog, !restores.first.isEmpty { note(.restoring(restores.first)) }
        restore.prepare(restores.first + restores.again)
        followRestore()
        guard let question = arrivals.nextQuestion(at: now) else { return }
        act(
            .fetchCommitted(
                question.partitions, ticket: question.ticket,
                patienceMilliseconds: question.patienceMilliseconds, wantsLogEnds: question.wantsLogEnds))
    }

    /// Takes Kafka's answer to the question for the group's committed offsets, or the question's failure.
    public mutating func fetched(
        _ ticket: UInt64, _ result: Result<[FetchedOffset], KafkaFault>, at now: UInt64
    ) {
        self.now = max(self.now, now)
        let offsets: [FetchedOffset]? = if case .success(let offsets) = result { offsets } else { nil }
        // Nothing is read anew while a revocation waits for its answer.
        guard revocation == nil, drain.phase == .running else { return arrivals.forget(ticket) }
        switch arrivals.answered(ticket, offsets, at: now) {
        case .stale: return
        case .failed(let partitions):
            switch result {
            case .failure(let fault): takeOverFailed(partitions, fault)
            case .success: takeOverFailed(partitions, .noLogEnds)
            }
        case .settled: break
        case .offsets(let offsets):
            for offset in arrivals.takeUnexplained() {
                note(
                    .offsetUnexplained(
                        offset.partition, committed: offset.offset ?? 0, logEnd: offset.logEnd ?? 0))
            }
            read(offsets)
        }
        advanceArrivals()
    }

    private mutating func takeOverFailed(_ partitions: [Int32], _ fault: KafkaFault) {
        counters.kafkaErrors += 1
        if !partitions.isEmpty { note(.takeOverFailed(partitions, fault)) }
    }

    private mutating func read(_ offsets: [FetchedOffset]) {
        guard !offsets.isEmpty else { return }
        act(
            .assign(
                offsets.map {
                    PartitionBegin(partition: $0.partition, offset: $0.beginning)
                }))
        // Noted before the shards begin, so that no outcome of the partitions is older than the log's line.
        note(.partitionsAssigned(offsets.map(\.partition)))
        for offset in offsets {
            if let position = restore.handOver(offset.partition) {
                changelogEnds[offset.partition] = position
            }
            beginReading(offset)
        }
        if arrivals.isEmpty { isAssigned = true }
        if lease.isDoubtful { commitAllAgain() }
        followGate()
    }

    private mutating func beginReading(_ offset: FetchedOffset) {
        let decoded = CommitMetadata.decode(offset.metadata, committedOffset: offset.offset ?? 0)
        if let problem = decoded.problem, !offset.metadata.isEmpty {
            note(.metadataNotOurs(offset.partition, problem))
        }
        // The partition may still be here, after an assignment that was lost without notice.
        if let index = partitions.index(ofPartition: offset.partition) {
            act(.requestAll(.abandon(slots: [partitions[index].slot], isLost: true)))
            remove(index)
        }
        switch offset.log {
        case .new(let from):
            // Records are read from the beginning, wherever the new log ends by then.
            note(.logWentBack(offset.partition, from: offset.offset ?? 0, to: from))
            beginPartition(
                PartitionLifecycle(
                    partition: offset.partition, restartingAt: from, spanLimit: settings.spanLimit,
                    metadataBytes: settings.metadataBytes), catchUpEnd: catchUpEnd(offset))
            return
        case .shorter(let from):
            counters.lostTails += 1
            note(.tailLost(offset.partition, committed: offset.offset ?? 0, from: from))
            beginPartition(
                PartitionLifecycle(
                    partition: offset.partition, shortenedTo: from,
                    newestMilliseconds: decoded.newestMilliseconds, spanLimit: settings.spanLimit,
                    metadataBytes: settings.metadataBytes), catchUpEnd: catchUpEnd(offset))
            return
        case .same, .unknown: break
        }
        beginPartition(
            PartitionLifecycle(
                partition: offset.partition,
                begin: offset.offset.map { .init(offset: $0, metadata: offset.metadata) },
                completed: decoded.completed, newestMilliseconds: decoded.newestMilliseconds,
                logEnd: settings.mode.hasStore ? offset.logEnd : nil, spanLimit: settings.spanLimit,
                metadataBytes: settings.metadataBytes), catchUpEnd: catchUpEnd(offset))
    }

    /// Begins to take records of a partition.
    /// - Parameter catchUpEnd: offset up to which records are read before anything is sent; nil: nothing lies ahead.
    /// - Returns: the partition's index; nil: too many partitions are assigned, and the worker ends.
    @discardableResult
    mutating func beginPartition(
        _ state: consuming PartitionLifecycle, catchUpEnd: Int64? = nil
    ) -> Int? {
        guard let index = partitions.insert(state) else {
            fail(.other("more than 65,000 partitions are assigned to this worker; start more workers"), nil)
            return nil
        }
        stopped[partitions[index].partition] = nil
        gate.add(index)
        if let catchUpEnd {
            catchUps[partitions[index].partition] = CatchUp(
                end: catchUpEnd, deadline: now + CatchUp.patience)
            act(.requestAll(.catchUp(slot: partitions[index].slot)))
        }
        act(.requestAll(partitions[index].beginRequest))
        guard settings.mode.hasStore else { return index }
        let slot = partitions[index].slot
        due.addPartition(slot)
        suspended.addPartition(slot)
        expiry.addPartition(slot, at: now)
        act(.scanItems(slot: slot, partition: partitions[index].partition))
        return index
    }

    /// Has partitions arrive anew, because the client has refused the answer to their assignment.
    public mutating func assignFailed(_ numbers: [Int32], _ fault: KafkaFault, at now: UInt64) {
        self.now = max(self.now, now)
        for number in numbers {
            if let index = partitions.index(ofPartition: number) { remove(index) }
        }
        // Revoked partitions don't return by themselves.
        let left = numbers.filter { revocation?.partitions.contains($0) != true }
        restore.cancel(left)
        arrivals.refused(left, at: now)
        followRestore()
        takeOverFailed(left, fault)
    }

    // MARK: Restoring

    /// Nanoseconds between two attempts to extend the changelog.
    static var extensionInterval: UInt64 { 30_000_000_000 }

    /// Takes the result of ``PartitionRestore/Action/open(_:)``. `isOpen`: the store has opened the partition.
    public mutating func opened(_ attempt: PartitionRestore.Attempt, isOpen: Bool, at now: UInt64) {
        self.now = max(self.now, now)
        restore.opened(attempt, isOpen: isOpen)
        followRestore()
    }

    /// Takes the result of ``PartitionRestore/Action/openCopies(_:)``. `isOpen`: the store has opened all of the
    /// copies.
    public mutating func openedCopies(
        _ attempts: [PartitionRestore.Attempt], isOpen: Bool, at now: UInt64
    ) {
        self.now = max(self.now, now)
        restore.openedCopies(attempts, isOpen: isOpen)
        followRestore()
    }

    /// Notes that the changelog was read to its end. `position`: offset up to which the copy is complete.
    public mutating func restored(_ attempt: PartitionRestore.Attempt, position: Int64, at now: UInt64) {
        self.now = max(self.now, now)
        restore.restored(attempt, position: position)
        followRestore()
    }

    /// Restores from an empty copy, because the copy is older than the changelog's first record.
    public mutating func copyTooOld(_ attempt: PartitionRestore.Attempt, at now: UInt64) {
        self.now = max(self.now, now)
        note(.copyTooOld(attempt.partition))
        restore.copyTooOld(attempt)
        followRestore()
    }

    /// Notes that Kafka doesn't answer for the partition. The restore is repeated from the copy's position.
    public mutating func restoreInterrupted(
        _ attempt: PartitionRestore.Attempt, _ fault: KafkaFault, at now: UInt64
    ) {
        self.now = max(self.now, now)
        counters.kafkaErrors += 1
        note(.restoreInterrupted(attempt.partition, fault))
        restore.interrupted(attempt)
        followRestore()
        // The jobs topic has grown.
        guard fault.traits.contains(.unknownPartition), self.now >= nextExtension else { return }
        nextExtension = self.now + Self.extensionInterval
        act(.extendChangelog)
    }

    /// Takes the result of ``PartitionRestore/Action/loadMarks(_:)``. `isLoaded`: all marks are in memory.
    public mutating func loadedMarks(
        _ attempt: PartitionRestore.Attempt, isLoaded: Bool, at now: UInt64
    ) {
        self.now = max(self.now, now)
        restore.loadedMarks(attempt, isLoaded: isLoaded)
        followRestore()
        guard restore.isReady(attempt.partition) else { return }
        arrivals.restored(attempt.partition, at: self.now)
        advanceArrivals()
    }

    private mutating func followRestore() {
        for action in restore.takeActions() { act(.restore(action)) }
    }

    // MARK: Revocation

    /// Begins the end of revoked partitions. `isLost`: other workers may own the partitions already.
    public mutating func revoked(_ numbers: [Int32], isLost: Bool, at now: UInt64) {
        self.now = max(self.now, now)
        counters.rebalances += 1
        if isLost { isAssigned = false }
        committer.rebalanceEnded()
        let gone = isLost ? arrivals.partitions : numbers
        arrivals.remove(gone)
        restore.cancel(gone)
        followRestore()
        note(.partitionsRevoked(numbers, isLost: isLost))
        for number in numbers { stopped[number] = nil }
        followGate()
        let indices = numbers.compactMap { partitions.index(ofPartition: $0) }
        guard !indices.isEmpty || drain.phase >= .endingShards else {
            // No record of the partitions was read, so that nothing is awaited.
            act(.unassign(numbers))
            copies.mustLook = true
            act(.poll)
            return advanceArrivals()
        }
        for index in indices {
            partitions[index].revoke(shards: settings.shards, hasStore: settings.mode.hasStore)
            discardDeferred(index)
            gate.revoke(index)
            due.revoke(partitions[index].slot)
            suspended.revoke(partitions[index].slot)
            expiry.revoke(partitions[index].slot)
        }
        followGate()
        revocation = Revocation(partitions: numbers, deadline: now + settings.revokeDeadline)
        // The shards have ended, or are about to end. The rest of the worker's end goes first.
        guard drain.phase < .endingShards else {
            if isLost { finishRevocation(isCommitted: false) }
            return
        }
        // Nothing more of a lost partition is sent either, unless it is on its way.
        if !indices.isEmpty {
            act(.requestAll(.abandon(slots: indices.map { partitions[$0].slot }, isLost: isLost)))
            if settings.mode.hasStore {
                for index in indices { act(.requestAll(.settle(slot: partitions[index].slot))) }
            }
        }
        if isLost { finishRevocation(isCommitted: false) } else { checkRevocation() }
    }

    mutating func checkRevocation() {
        guard let revocation, drain.phase < .endingShards else { return }
        let indices = revocation.partitions.compactMap { partitions.index(ofPartition: $0) }
        switch revocation.stage {
        case .settling:
            let isSettled = indices.allSatisfy { gate.load($0).jobs == 0 && partitions[$0].isSettled }
            guard isSettled && hasNoDeletes(indices) || now >= revocation.deadline else { return }
            guard transactions == nil else { return finishRevocation(isCommitted: true) }
            self.revocation!.stage = .committing
            self.revocation!.deadline = now + Drain.commitPatience
            beginWaitingCommit()
        case .committing:
            if now >= revocation.deadline {
                note(.lastCommitFailed)
                finishRevocation(isCommitted: false)
            } else if !revocation.isIssued {
                beginWaitingCommit()
            }
        }
    }

    /// - Parameter isCommitted: the last commit was taken, or with transactions may have been taken.
    mutating func finishRevocation(isCommitted: Bool) {
        guard let revocation else { return }
        self.revocation = nil
        let indices = revocation.partitions.compactMap { partitions.index(ofPartition: $0) }
        // An outcome without a report isn't known to the transaction yet. The outcome's job is still counted.
        let isOpen = indices.contains { gate.load($0).jobs > 0 || !partitions[$0].isSettled }
        if transactions != nil, !isCommitted || isOpen || !hasNoDeletes(indices) {
            // Another worker has to write the records of these partitions that are in the open transaction.
            transactions!.partitionsLost(.partitionsLost)
            followTransactions()
        }
        followGate()
        if isCommitted, !isOpen, hasNoDeletes(indices) { checkpoint(indices) }
        // Changes that wait for a permit are abandoned. They would wait for ever once no partition is left to ask the
        // group with. Nothing that was committed depends on them.
        if !isCommitted, transactions == nil, settings.mode.hasChangelog, lease.isDoubtful {
            act(.requestAll(.abandon(slots: indices.map { partitions[$0].slot }, isLost: true)))
        }
        for index in indices { remove(index) }
        act(.unassign(revocation.partitions))
        copies.mustLook = true
        act(.poll)
        advanceArrivals()
    }

    /// Returns whether nothing of these partitions awaits its removal from the store. With transactions: whether all of
    /// theirs is committed.
    func hasNoDeletes(_ indices: [Int]) -> Bool {
        if let transactions { return transactions.isClean && !indices.contains { partitions[$0].isChanged } }
        return !indices.contains { deletes.has(partitions[$0].slot) }
    }

    /// Marks copies of these partitions as complete up to the changelog's end. A later take-over needs only what
    /// follows.
    mutating func checkpoint(_ indices: [Int]) {
        guard settings.mode.hasChangelog else { return }
        for index in indices {
            let partition = partitions[index].partition
            guard let end = changelogEnds[partition] else { continue }
            act(.checkpoint(partition: partition, position: end))
        }
    }
}
