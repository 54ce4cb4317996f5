extension WorkerMachine {
    // MARK: Failures

    /// Stops the worker in an orderly way and reports the cause, because the worker can't continue. After an error of
    /// Kafka that a fresh start mends, the worker stops at once. Nothing that it could still do in order would get
    /// through.
    public mutating func fail(_ cause: WorkerFault.Cause, _ fault: KafkaFault?, at now: UInt64) {
        self.now = max(self.now, now)
        fail(cause, fault)
    }

    mutating func fail(_ cause: WorkerFault.Cause, _ fault: KafkaFault?) {
        guard failure == nil else { return }
        if let fault, !fault.traits.contains(.lasting) { return failAtOnce(cause, fault) }
        failure = WorkerFault(cause: cause, fault: fault, startsOver: false)
        note(.failed(failure!))
        beginDrain()
    }

    /// Stops the worker in an orderly way, so that all is committed. New clients then begin with what is committed.
    mutating func startOverInOrder(_ cause: WorkerFault.Cause) {
        guard failure == nil else { return }
        failure = WorkerFault(cause: cause, fault: nil, startsOver: true)
        note(.failed(failure!))
        beginDrain()
    }

    /// Drops state that isn't known to be committed, and commits nothing more. The worker that starts next begins with
    /// what is committed.
    mutating func failAtOnce(_ cause: WorkerFault.Cause, _ fault: KafkaFault?) {
        guard drain.phase < .leaving, !drain.isAtOnce else { return }
        let reason = WorkerFault(
            cause: cause, fault: fault, startsOver: fault.map { !$0.traits.contains(.lasting) } ?? false)
        failure = failure ?? reason
        note(.stopsAtOnce(reason))
        drain.endAtOnce(at: now)
        for index in partitions.indices { discardDeferred(index) }
        if drain.phase < .endingShards {
            endShards(isComplete: false)
        } else if drain.phase > .endingShards {
            leave()
        }
    }

    // MARK: The stop

    /// Takes no more records, lets jobs in flight end, then commits and leaves the group.
    public mutating func stop(at now: UInt64) {
        self.now = max(self.now, now)
        beginDrain()
    }

    private mutating func beginDrain() {
        guard drain.phase == .running else { return }
        drain.start(deadline: settings.drainDeadline, at: now)
        note(.draining(jobs: outstanding))
        if partitions.count > 0 { act(.pause(partitions.numbers)) }
        for index in partitions.indices { discardDeferred(index) }
        act(.requestAll(.drain))
    }

    mutating func checkDrain() {
        switch drain.phase {
        case .running, .endingShards, .leaving, .ended: break
        case .draining:
            let isComplete =
                drain.shardsHaveSettled && unfinished <= 0 && hasNoDeletes(partitions.indices)
            guard isComplete || drain.isOver(at: now) else { return }
            if !isComplete { note(.drainDeadline(jobs: outstanding)) }
            endShards(isComplete: isComplete)
        case .lastTransaction: advanceLastTransaction()
        case .lastReports:
            if drain.unreported == 0 || drain.isOver(at: now) { beginLastCommit() }
        case .lastCommit:
            beginWaitingCommit()
            guard drain.phase == .lastCommit else { return }
            if committer.meetsRebalance, drain.hasTime(at: now) { return waitForLastCommit() }
            if drain.isOver(at: now) { lastCommitEnded(isAccepted: false) }
        case .lastDeletes: if drain.isOver(at: now) { leave() }
        }
    }

    private mutating func endShards(isComplete: Bool) {
        drain.endShards(isComplete: isComplete)
        act(.requestAll(.finish))
    }

    mutating func shardFinished(_ ending: ShardEnding) {
        committer.count(ending.flush)
        guard drain.phase == .endingShards, drain.shardEnded(ending) else { return }
        guard !drain.isAtOnce else { return leave() }
        if transactions != nil {
            drain.enter(.lastTransaction, patience: Drain.longestEnd, at: now)
            transactions!.shardsEnded(
                produced: drain.produced, isTorn: drain.isTorn || drain.changesLeft > 0)
            followTransactions()
            checkDrain()
        } else {
            drain.enter(.lastReports, patience: Drain.reportPatience, at: now)
            // Records that were produced just now are not counted yet.
            drain.unreported = max(1, drain.unreported)
        }
    }

    private mutating func advanceLastTransaction() {
        let isOver = drain.isOver(at: now)
        if isOver, drain.isExtended || transactions!.state == .beginning {
            note(.lastTransactionOpen)
            return leave()
        }
        if isOver { drain.extend(Drain.commitPatience, at: now) }
        transactions!.advanceEnding(
            hasOffsets: partitions.indices.contains { partitions[$0].isChanged }, isOver: isOver, at: now)
        followTransactions()
        guard drain.phase == .lastTransaction, transactions!.hasEnded else { return }
        if transactions!.hasEndedWell { drain.committed() }
        beginLastDeletes()
    }

    private mutating func beginLastCommit() {
        if settings.mode == .changelog, drain.changesLeft > 0 {
            note(.lastOffsetsUnsafe)
            return leave()
        }
        waitForLastCommit()
        beginWaitingCommit()
    }

    /// Gives the last commit its time. The time begins anew while the commit meets a rebalance.
    private mutating func waitForLastCommit() {
        drain.enter(.lastCommit, patience: Drain.commitPatience, at: now)
    }

    mutating func lastCommitEnded(isAccepted: Bool) {
        guard drain.phase == .lastCommit else { return }
        if isAccepted {
            drain.committed()
        } else {
            note(settings.mode == .changelog && !committer.isIdle ? .lastOffsetsUnsafe : .lastCommitFailed)
        }
        beginLastDeletes()
    }

    /// Begins the last deletions, or leaves the group. A copy counts as complete only when the store has forgotten what
    /// has ended according to the changelog.
    private mutating func beginLastDeletes() {
        guard endsWell, settings.mode.hasChangelog, hasNoDeletesAtEnd else { return leave() }
        drain.enter(.lastDeletes, patience: Drain.deletePatience, at: now)
        act(.requestAll(.flush))
    }

    /// True when all jobs have ended, and all is committed.
    private var endsWell: Bool { failure == nil && drain.isComplete && drain.isCommitted }

    private var hasNoDeletesAtEnd: Bool {
        transactions != nil || deletes.isEmpty
    }

    /// Notes that a shard has handed its deletions to the store.
    mutating func shardFlushedAtEnd() {
        guard drain.phase == .lastDeletes, drain.shardAnswered() else { return }
        checkpoint(partitions.indices)
        leave()
    }

    private mutating func leave() {
        guard drain.phase < .leaving else { return }
        drain.leave()
        if let revocation { act(.unassign(revocation.partitions)) }
        revocation = nil
        act(.close(timeoutMilliseconds: drain.timeToLeave(at: now)))
    }

    /// Ends the worker, because the clients are closed.
    public mutating func closed() {
        guard drain.phase == .leaving else { return }
        let isClean = endsWell
        drain.end()
        act(.ended(WorkerEnd(failure: failure, isClean: isClean)))
    }
}
