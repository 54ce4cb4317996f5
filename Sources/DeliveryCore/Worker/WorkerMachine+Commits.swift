extension WorkerMachine {
    // MARK: Plain commits

    /// Commits what has changed since the last commit.
    mutating func commitDirty() {
        guard transactions == nil else { return }
        beginWaitingCommit()
        guard drain.phase <= .draining,
            committer.mayBegin(isDraining: drain.phase == .draining, at: now)
        else { return }
        lastCommit = now
        finishedSinceCommit = 0
        beginCommit(.periodic)
    }

    /// Begins the commit for which a revocation or the worker's end waits.
    mutating func beginWaitingCommit() {
        guard committer.isIdle, !committer.waits(at: now) else { return }
        if let revocation, revocation.stage == .committing {
            for partition in revocation.partitions {
                if let index = partitions.index(ofPartition: partition) { partitions[index].commitAgain() }
            }
            self.revocation!.isIssued = true
            if !beginCommit(.revocation) { finishRevocation(isCommitted: true) }
        } else if drain.phase == .lastCommit {
            commitAllAgain()
            if !beginCommit(.last) { lastCommitEnded(isAccepted: true) }
        }
    }

    /// With a store each commit is of all partitions, because removals from the store follow a commit of all.
    /// - Returns: whether there was something to commit.
    @discardableResult
    private mutating func beginCommit(_ kind: Committer.Kind) -> Bool {
        var set = Committer.CommitSet(kind)
        let needsCommit = deletes.needsCommit
        for index in partitions.indices
        where settings.mode.hasStore || kind == .last || partitions[index].isEnding == (kind == .revocation) {
            let point = partitions[index].pendingCommit()
            guard point != nil || partitions[index].isChanged || needsCommit else {
                if partitions[index].uncommitted > 0 { window.settled() }
                partitions[index].noneIsUncommitted()
                continue
            }
            partitions[index].commitIssued(point)
            guard let point else { continue }
            set.parts.append(
                .init(slot: partitions[index].slot, partition: partitions[index].partition, point: point))
        }
        if settings.mode.hasStore, needsCommit || !set.parts.isEmpty { set.deletes = deletes.commitIssued() }
        guard !set.isEmpty else { return false }
        committer.beginCommit(set, at: now)
        followCommitter()
        return true
    }

    mutating func followCommitter() {
        while let action = committer.nextAction() {
            switch action {
            case .flush: act(.requestAll(.flush))
            case .sync: act(.sync)
            case .commit(let set, let ticket):
                for part in set.parts where set.kind != .membership {
                    guard let index = partitions.index(ofSlot: part.slot) else { continue }
                    partitions[index].commitSent(part.point)
                }
                act(.commit(set, ticket: ticket))
            case .ended(let set, let isAccepted): commitEnded(set, isAccepted: isAccepted)
            case .held(let set): commitHeld(set)
            }
        }
    }

    /// Takes Kafka's answer to a commit. A fault: the commit wasn't taken, or its fate is unknown.
    public mutating func committed(_ ticket: UInt64, fault: KafkaFault?, at now: UInt64) {
        self.now = max(self.now, now)
        if !committer.isMembership(ticket) {
            counters.commits += 1
            if let fault {
                counters.commitErrors += 1
                note(.commitFailed(fault))
            }
        }
        // Each commit is refused until the rebalance has ended.
        if fault?.traits.contains(.rebalance) == true { committer.rebalanceBegan(at: now) }
        committer.answered(ticket, isAccepted: fault == nil, at: self.now)
        followCommitter()
        if let fault { checkMetadata(fault) }
        afterProgress()
    }

    /// Takes the report that the client has sent no commit, because it joins the group anew. The commit is repeated
    /// until the client sends it: no commit may reach the group in a generation that has passed.
    public mutating func commitHeld(_ ticket: UInt64, at now: UInt64) {
        self.now = max(self.now, now)
        committer.held(ticket, at: self.now)
        followCommitter()
        afterProgress()
    }

    /// Prepares the repetition of a commit that wasn't sent.
    private mutating func commitHeld(_ set: Committer.CommitSet) {
        returnDeletes(set, isAccepted: false)
        if set.kind != .membership {
            commitAllAgain()
            coverOutcomes(isAccepted: false)
        }
        switch set.kind {
        // The next tick tries again.
        case .periodic: lastCommit = now - min(now, settings.commitInterval)
        case .revocation: revocation?.isIssued = false
        case .membership, .last: break
        }
    }

    private mutating func returnDeletes(_ set: Committer.CommitSet, isAccepted: Bool) {
        guard let number = set.deletes else { return }
        if isAccepted { deletes.commitTaken(number) } else { deletes.commitFailed(number) }
        followDeletes()
    }

    /// Follows up on a commit that has ended.
    private mutating func commitEnded(_ set: Committer.CommitSet, isAccepted: Bool) {
        for part in set.parts where isAccepted {
            guard partitions.index(ofSlot: part.slot) != nil else { continue }
            act(.advanceCommitted(slot: part.slot, part.point.offset))
        }
        returnDeletes(set, isAccepted: isAccepted)
        if set.kind != .membership {
            coverOutcomes(isAccepted: isAccepted)
            if isAccepted { windowCommitted(hasOffsets: !set.parts.isEmpty) }
        }
        if isAccepted, !set.parts.isEmpty { confirmMembership(requestedAt: set.requestedAt) }
        if !isAccepted, set.kind != .membership { commitAllAgain() }
        switch set.kind {
        case .periodic, .membership: beginWaitingCommit()
        case .revocation:
            // The revocation may have passed its deadline, and another one may wait.
            guard revocation?.isIssued == true else { return beginWaitingCommit() }
            if !isAccepted { note(.lastCommitFailed) }
            finishRevocation(isCommitted: isAccepted)
        case .last:
            // A commit that meets a rebalance is repeated after the rebalance, while time is left.
            if isAccepted || !committer.waits(at: now) { lastCommitEnded(isAccepted: isAccepted) }
        }
    }

    private mutating func coverOutcomes(isAccepted: Bool) {
        for index in partitions.indices { partitions[index].commitEnded(isAccepted: isAccepted) }
    }

    /// Carries out the deletions that are due.
    mutating func followDeletes() {
        var items: [EndedItem] = []
        while let action = deletes.nextAction() {
            switch action {
            case .complete(let place):
                if let index = partitions.index(ofSlot: place.partitionSlot) { complete(index, place.offset) }
            case .remove(let item): items.append(item)
            }
        }
        delete(items)
    }

    /// Has the store forget items whose outcomes are safe.
    mutating func delete(_ deletes: [EndedItem]) {
        guard !deletes.isEmpty else { return }
        var parts = [[EndedItem]](repeating: [], count: settings.shards)
        for delete in deletes {
            parts[shardIndex(ofHash: delete.device, shards: settings.shards)].append(delete)
        }
        for (shard, items) in parts.enumerated() where !items.isEmpty {
            act(.request(shard: shard, .remove(items)))
        }
    }

    mutating func commitAllAgain() {
        for index in partitions.indices { partitions[index].commitAgain() }
    }

    /// Fails the worker when the commit's metadata is too large. No commit omits the metadata, because a successor
    /// would repeat what is finished above the offsets.
    private mutating func checkMetadata(_ fault: KafkaFault) {
        if fault.traits.contains(.metadataTooLarge) { fail(.commitMetadata, fault) }
    }

    /// True when something ends that waits for deletions, and the deletions wait for commits.
    var hastensCommits: Bool {
        guard settings.mode.hasStore, drain.phase == .draining || revocation != nil else { return false }
        return deletes.needsCommit || partitions.indices.contains { partitions[$0].isChanged }
    }

    // MARK: Transactions

    /// Takes the result of a step of the transactional producer.
    public mutating func stepFinished(_ result: TransactionCycle.StepResult, at now: UInt64) {
        self.now = max(self.now, now)
        guard transactions != nil else { return }
        if result.failure != nil {
            counters.kafkaErrors += 1
            note(.transactionStepFailed(result))
        }
        transactions!.finished(result, at: now)
        producerStepEnded(result)
        followTransactions()
        checkDrain()
    }

    /// Takes the report that the offsets could not be handed to the producer.
    public mutating func offsetsRefused(_ fault: KafkaFault, at now: UInt64) {
        self.now = max(self.now, now)
        guard transactions != nil else { return }
        // The group has moved on without this worker. The group's report of that is still to arrive.
        guard fault.traits.contains(.membershipLost) else { return failAtOnce(.transactions, fault) }
        transactions!.offsetsRefused(fault)
        followTransactions()
    }

    mutating func followTransactions() {
        while let action = transactions?.nextAction() {
            // Nothing more is committed.
            if drain.isAtOnce {
                switch action {
                case .step, .sendOffsets, .freeze, .thaw: continue
                case .committed, .aborted, .failed: break
                }
            }
            switch action {
            case .step(let step): act(.step(step))
            case .sendOffsets: sendOffsets()
            case .freeze(let number, let atOnce):
                act(.requestAll(.freeze(number: number, atOnce: atOnce)))
            case .thaw(let number, let repeats):
                if !repeats { refusals = Refusals() }
                let refused = judgeRefusals()
                let slots = repeats ? Set(partitions.indices.map { partitions[$0].slot }) : nil
                act(.requestAll(.thaw(number: number, repeating: slots, refused: refused)))
            case .committed: transactionCommitted()
            case .aborted(let fault):
                counters.commitErrors += 1
                for index in partitions.indices { partitions[index].commitAgain() }
                note(.transactionAborted(fault))
                checkMetadata(fault)
            case .failed(let fault):
                failAtOnce(fault.traits.contains(.fenced) ? .fenced : .transactions, fault)
            }
        }
    }

    /// Sends the offsets that the transaction's records stand for, because all reports of the transaction have arrived.
    /// Every partition is named, even where nothing has changed. By the names, Kafka notices that a worker has lost a
    /// partition.
    private mutating func sendOffsets() {
        var parts: [Committer.CommitSet.Part] = []
        for index in partitions.indices {
            let slot = partitions[index].slot
            guard partitions[index].hasPoint else { continue }
            parts.append(
                .init(
                    slot: slot, partition: partitions[index].partition,
                    point: partitions[index].commitPoint()))
            partitions[index].sentWithTransaction()
        }
        lastCommit = now
        finishedSinceCommit = 0
        transactions!.offsetsSent(parts, at: now)
        // Kafka checks the membership only of a transaction with offsets. The store can have items of a partition of
        // which the group has no offset and no record was read.
        act(.sendOffsets(parts.isEmpty ? membershipParts() : parts))
    }

    private mutating func transactionCommitted() {
        counters.commits += 1
        let (offsets, sentAt) = transactions!.takeSent()
        if let sentAt { confirmMembership(requestedAt: sentAt) }
        for part in offsets {
            guard let index = partitions.index(ofSlot: part.slot) else { continue }
            partitions[index].commitSent(part.point)
            act(.advanceCommitted(slot: part.slot, part.point.offset))
        }
        delete(transactions!.takeDeletes())
        windowCommitted(hasOffsets: true)
        checkRevocation()
    }

    // MARK: The lease

    /// Renews the lease, with each tick.
    mutating func renewLease() {
        follow(lease.tick(at: now))
        inquire()
    }

    /// Notes that the group has taken a commit that was requested at this time. Only a member can commit.
    private mutating func confirmMembership(requestedAt: UInt64) {
        follow(lease.confirmed(requestedAt: requestedAt))
        // The commit was on its way before the process was stopped. The next one asks the group once more.
        if lease.isDoubtful, !lease.awaitsShards, transactions != nil { commitAllAgain() }
    }

    mutating func follow(_ action: MembershipLease.Action?) {
        switch action {
        case nil: break
        case .extend(let until):
            // Shards that found the permit at its end wait for this request.
            if isInDoubt || now >= permitEnd { act(.requestAll(.wake)) }
            isInDoubt = false
            permitEnd = until
            act(.extendPermit(until: until))
        case .doubt:
            isInDoubt = true
            permitEnd = lease.until
            act(.extendPermit(until: permitEnd))
            note(.membershipInDoubt(partitions: partitions.count))
            // The next transaction asks the group.
            if transactions != nil { commitAllAgain() }
            inquire()
        case .askShards(let number):
            passes = (number, settings.shards)
            act(.requestAll(.pass(number)))
        }
    }

    /// Asks the group by a commit, where there are no transactions. The commit repeats what was sent to the group last.
    /// Newer points may wait for changes of the store, and these changes for the group's answer. Older points could set
    /// the group's offsets back.
    private mutating func inquire() {
        guard lease.isDoubtful, !lease.awaitsShards, transactions == nil, committer.mayAsk(at: now),
            drain.phase <= .draining
        else { return }
        var set = Committer.CommitSet(.membership)
        set.parts = membershipParts()
        committer.ask(set, at: now)
        followCommitter()
    }

    /// Returns points that say nothing new, so that the group checks the membership. Where nothing is committed yet,
    /// the point is where reading began: offset 0, or the end of the log.
    private func membershipParts() -> [Committer.CommitSet.Part] {
        partitions.indices.compactMap { index in
            partitions[index].pointSoFar(readsFromBeginning: settings.readsFromBeginning).map {
                .init(slot: partitions[index].slot, partition: partitions[index].partition, point: $0)
            }
        }
    }

    /// Notes that a shard has done everything that it was asked for before.
    mutating func passed(_ number: UInt64) {
        guard passes.number == number, passes.awaited > 0 else { return }
        passes.awaited -= 1
        if passes.awaited == 0 { follow(lease.shardsPassed(number, at: now)) }
    }
}
