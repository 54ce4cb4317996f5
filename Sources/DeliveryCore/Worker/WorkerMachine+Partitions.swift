/// An assignment that isn't answered yet. It has to be, also when it is empty: until then the client hands out no record.
struct PendingAssignment: Sendable {
    enum Stage: UInt8, CaseIterable {
        /// Kafka answers when the transactions of the former owners have ended: what they changed counts.
        case awaitingFormerOwners
        case restoring
        /// The offsets to begin with are asked for.
        case fetching
    }

    var partitions: [Int32]
    var stage: Stage
    /// Of the question to Kafka that is open; nil: none is.
    var ticket: UInt64?
    /// When the next attempt is made, in nanoseconds.
    var nextAttempt: UInt64
    /// When the group has assigned the partitions, in nanoseconds.
    var since: UInt64
}

/// Partitions that the group takes away: what is in flight ends first, then they are given up.
struct Revocation: Sendable {
    enum Stage: UInt8, CaseIterable { case settling, committing }

    var partitions: [Int32]
    var stage = Stage.settling
    /// The last commit of the partitions was begun.
    var isIssued = false
    /// In nanoseconds of the monotonic clock.
    var deadline: UInt64
}

extension WorkerMachine {
    // MARK: Assignment

    public mutating func assigned(_ partitions: [Int32], at now: UInt64) {
        self.now = max(self.now, now)
        counters.rebalances += 1
        nextTicket += 1
        let mode = settings.mode
        assignment = PendingAssignment(
            partitions: partitions,
            stage: mode.hasChangelog ? .awaitingFormerOwners : mode.hasStore ? .restoring : .fetching,
            nextAttempt: now + Self.attemptInterval, since: now)
        goOnWithAssignment()
    }

    /// Nanoseconds between two attempts to take partitions over.
    static var attemptInterval: UInt64 { 1_000_000_000 }

    /// Each second, as long as an assignment waits.
    mutating func retryAssignment() {
        guard assignment != nil, now >= assignment!.nextAttempt else { return }
        assignment!.nextAttempt = now + Self.attemptInterval
        goOnWithAssignment()
    }

    private mutating func goOnWithAssignment() {
        guard let pending = assignment, pending.ticket == nil, drain.phase == .running else { return }
        switch pending.stage {
        case .awaitingFormerOwners, .fetching:
            nextTicket += 1
            assignment!.ticket = nextTicket
            act(
                .fetchCommitted(
                    pending.partitions, ticket: nextTicket, patienceMilliseconds: fetchPatience))
        case .restoring:
            let new = restore.prepare(pending.partitions)
            if settings.mode.hasChangelog, !new.isEmpty { note(.restoring(new)) }
            followRestore()
        }
    }

    /// Milliseconds that Kafka has for an answer. Closing the clients waits for a question that is open.
    private var fetchPatience: Int32 { takeOverFailures < 4 ? 1_500 : 4_000 }

    /// Kafka has answered what the group has committed, or hasn't.
    public mutating func fetched(
        _ ticket: UInt64, _ result: Result<[FetchedOffset], KafkaFault>, at now: UInt64
    ) {
        self.now = max(self.now, now)
        guard assignment?.ticket == ticket else { return }
        assignment!.ticket = nil
        switch result {
        case .failure(let fault): takeOverFailed(fault)
        case .success(let offsets):
            takeOverFailures = 0
            guard assignment!.stage == .fetching else {
                assignment!.stage = .restoring
                return goOnWithAssignment()
            }
            guard drain.phase == .running else { return }
            answer(offsets)
        }
    }

    private mutating func takeOverFailed(_ fault: KafkaFault) {
        counters.kafkaErrors += 1
        takeOverFailures += 1
        // From now on: Kafka may have taken its time.
        assignment?.nextAttempt = now + Self.attemptInterval
        note(.takeOverFailed(assignment?.partitions ?? [], fault))
    }

    private mutating func answer(_ offsets: [FetchedOffset]) {
        guard let pending = assignment else { return }
        assignment = nil
        isAssigned = true
        committer.rebalanceEnded()
        act(
            .assign(offsets.map { PartitionBegin(partition: $0.partition, offset: $0.offset) }))
        for (partition, position) in restore.handOver() { changelogEnds[partition] = position }
        for offset in offsets { begin(offset) }
        // The client tells of a loss only after the answer. A group doesn't wait for an answer for ever.
        if now > pending.since + settings.sessionTimeout / 2 { follow(lease.doubt(at: now)) }
        if lease.isDoubtful { commitAllAgain() }
        followGate()
        note(.partitionsAssigned(pending.partitions))
    }

    private mutating func begin(_ offset: FetchedOffset) {
        let decoded = CommitMetadata.decode(offset.metadata, committedOffset: offset.offset ?? 0)
        if let problem = decoded.problem, !offset.metadata.isEmpty {
            note(.metadataNotOurs(offset.partition, problem))
        }
        // It may be here still, after an assignment that was lost without a word.
        if let place = partitions.place(ofPartition: offset.partition) {
            act(.requestAll(.abandon(slots: [partitions[place].slot], isLost: true)))
            remove(place)
        }
        begin(
            PartitionLifecycle(
                partition: offset.partition,
                begin: offset.offset.map { .init(offset: $0, metadata: offset.metadata) },
                completed: decoded.completed, spanLimit: settings.spanLimit,
                metadataBytes: settings.metadataBytes))
    }

    /// Takes records of a partition from now on.
    /// - Returns: its place; nil: there are too many, and the worker ends.
    @discardableResult
    mutating func begin(_ state: PartitionLifecycle) -> Int? {
        guard let place = partitions.insert(state) else {
            fail(.other("more than 65,000 partitions are assigned to this worker"), nil)
            return nil
        }
        gate.add(place)
        act(.requestAll(partitions[place].beginRequest))
        guard settings.mode.hasStore else { return place }
        let slot = partitions[place].slot
        due.begin(slot)
        parked.begin(slot)
        act(.scanItems(slot: slot, partition: partitions[place].partition))
        return place
    }

    /// The client has refused the answer to an assignment.
    public mutating func assignFailed(_ numbers: [Int32], _ fault: KafkaFault, at now: UInt64) {
        self.now = max(self.now, now)
        for number in numbers {
            if let place = partitions.place(ofPartition: number) { remove(place) }
        }
        guard revocation == nil, assignment == nil else { return }
        assigned(numbers, at: now)
        takeOverFailed(fault)
    }

    // MARK: Restoring

    public mutating func opened(_ attempt: PartitionRestore.Attempt, isOpen: Bool, at now: UInt64) {
        self.now = max(self.now, now)
        restore.opened(attempt, isOpen: isOpen)
        followRestore()
    }

    public mutating func openedCopies(
        _ attempts: [PartitionRestore.Attempt], isOpen: Bool, at now: UInt64
    ) {
        self.now = max(self.now, now)
        restore.openedCopies(attempts, isOpen: isOpen)
        followRestore()
    }

    public mutating func restored(_ attempt: PartitionRestore.Attempt, position: Int64, at now: UInt64) {
        self.now = max(self.now, now)
        restore.restored(attempt, position: position)
        followRestore()
    }

    public mutating func copyTooOld(_ attempt: PartitionRestore.Attempt, at now: UInt64) {
        self.now = max(self.now, now)
        note(.copyTooOld(attempt.partition))
        restore.copyTooOld(attempt)
        followRestore()
    }

    public mutating func restoreInterrupted(
        _ attempt: PartitionRestore.Attempt, _ fault: KafkaFault, at now: UInt64
    ) {
        self.now = max(self.now, now)
        counters.kafkaErrors += 1
        note(.restoreInterrupted(attempt.partition, fault))
        restore.interrupted(attempt)
        followRestore()
    }

    public mutating func loadedMarkers(
        _ attempt: PartitionRestore.Attempt, isLoaded: Bool, at now: UInt64
    ) {
        self.now = max(self.now, now)
        restore.loadedMarkers(attempt, isLoaded: isLoaded)
        followRestore()
    }

    private mutating func followRestore() {
        for action in restore.takeActions() { act(.restore(action)) }
        guard let pending = assignment, pending.stage == .restoring, restore.isReady(pending.partitions)
        else { return }
        assignment!.stage = .fetching
        goOnWithAssignment()
    }

    // MARK: Revocation

    public mutating func revoked(_ numbers: [Int32], isLost: Bool, at now: UInt64) {
        self.now = max(self.now, now)
        counters.rebalances += 1
        assignment = nil
        if isLost { isAssigned = false }
        committer.rebalanceEnded()
        restore.cancel()
        for action in restore.takeActions() { act(.restore(action)) }
        note(.partitionsRevoked(numbers, isLost: isLost))
        followGate()
        let places = numbers.compactMap { partitions.place(ofPartition: $0) }
        for place in places {
            partitions[place].revoke(shards: settings.shards, hasStore: settings.mode.hasStore)
            discardHeld(place)
            gate.end(place)
            due.revoke(partitions[place].slot)
            parked.revoke(partitions[place].slot)
        }
        followGate()
        revocation = Revocation(partitions: numbers, deadline: now + settings.revokeDeadline)
        // The shards have ended, or are about to: what is left of the worker's end goes before.
        guard drain.phase < .endingShards else {
            if isLost { finishRevocation(isCommitted: false) }
            return
        }
        // Also of a lost partition nothing more is sent that isn't on its way.
        if !places.isEmpty {
            act(.requestAll(.abandon(slots: places.map { partitions[$0].slot }, isLost: isLost)))
            if settings.mode.hasStore {
                for place in places { act(.requestAll(.settle(slot: partitions[place].slot))) }
            }
        }
        if isLost { finishRevocation(isCommitted: false) } else { checkRevocation() }
    }

    mutating func checkRevocation() {
        guard let revocation, drain.phase < .endingShards else { return }
        let places = revocation.partitions.compactMap { partitions.place(ofPartition: $0) }
        switch revocation.stage {
        case .settling:
            let isSettled = places.allSatisfy { gate.load($0).jobs == 0 && partitions[$0].isSettled }
            guard isSettled && hasNoDeletes(places) || now >= revocation.deadline else { return }
            guard transactions == nil else { return finishRevocation(isCommitted: true) }
            self.revocation!.stage = .committing
            self.revocation!.deadline = now + Drain.commitPatience
            beginWaitingCommit()
        case .committing: if now >= revocation.deadline { finishRevocation(isCommitted: false) }
        }
    }

    /// - Parameter isCommitted: the last commit was taken, or with transactions may have been.
    mutating func finishRevocation(isCommitted: Bool) {
        guard let revocation else { return }
        self.revocation = nil
        let places = revocation.partitions.compactMap { partitions.place(ofPartition: $0) }
        // An outcome without a report yet isn't known to the transaction; its job is still counted.
        let isOpen = places.contains { gate.load($0).jobs > 0 || !partitions[$0].isSettled }
        if transactions != nil, !isCommitted || isOpen || !hasNoDeletes(places) {
            // Records of these partitions in the open transaction are another worker's to write.
            transactions!.partitionsLost(.partitionsLost)
            followTransactions()
        }
        followGate()
        if isCommitted, !isOpen, hasNoDeletes(places) { checkpoint(places) }
        for place in places { remove(place) }
        act(.unassign(revocation.partitions))
        copies.mustLook = true
        act(.poll)
    }

    /// Nothing of these partitions awaits its removal from the store; with transactions, all of theirs is committed.
    func hasNoDeletes(_ places: [Int]) -> Bool {
        if let transactions { return transactions.isClean && !places.contains { partitions[$0].isChanged } }
        return !places.contains { partitions[$0].awaitsDeletes }
    }

    /// Copies of these partitions are complete up to the changelog's end: a later take-over needs only what follows.
    mutating func checkpoint(_ places: [Int]) {
        guard settings.mode.hasChangelog else { return }
        for place in places {
            let partition = partitions[place].partition
            guard let end = changelogEnds[partition] else { continue }
            act(.checkpoint(partition: partition, position: end))
        }
    }
}
