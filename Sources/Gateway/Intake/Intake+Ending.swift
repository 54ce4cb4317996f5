import DeliveryCore
import EventLoop
import Kafka
import Logging

/// Partitions that the group takes away: what is in flight ends first, then they are given up.
struct Revocation {
    var partitions: [TopicPartition]
    var deadline: MonotonicTime
    /// Answers of shards, one for each partition, about what they have not sent and give back.
    var awaited: Int
    /// The same of what came from the store, which isn't counted here: it has ended, and has left the store.
    var unsettled: Int
    /// All has ended; the last commit is under way.
    var isFinishing = false
}

/// The end of the worker: what is in flight ends first.
struct Drain {
    var deadline: MonotonicTime
    /// Shards that have yet to say what they give back, and those that hold something that has to end.
    var awaitedShards: Int
    var unsettledShards: Int
}

extension Intake {
    // MARK: Assignment

    func take(_ assigned: [TopicPartition]) {
        counters.rebalances += 1
        pendingAssignment = assigned
        prepareAssignment()
    }

    /// Reads what the group has committed and begins there. Tried again a second later when Kafka does not answer.
    func answerAssignment() {
        guard let assigned = pendingAssignment else { return }
        do throws(KafkaError) {
            let committed = try consumer.committed(assigned, timeoutMilliseconds: takeOverPatience)
            takeOverFailures = 0
            var begins: [TopicPartitionOffset] = []
            var states: [PartitionState] = []
            for offset in committed {
                let decoded = CommitMetadata.decode(offset.metadata, committedOffset: offset.offset ?? 0)
                if let problem = decoded.problem, !offset.metadata.isEmpty {
                    logger.warning(
                        "the commit's metadata is not ours; what was finished above it is done again",
                        metadata: ["partition": "\(offset.topicPartition)", "problem": "\(problem)"])
                }
                var state = PartitionState(
                    topicPartition: offset.topicPartition,
                    tracker: OffsetTracker(nextOffset: offset.offset ?? 0, completedAbove: decoded.completed))
                state.taken = offset.offset.map {
                    OffsetCommit(
                        topic: offset.topicPartition.topic, partition: offset.topicPartition.partition,
                        offset: $0,
                        metadata: offset.metadata)
                }
                state.store = openedStores[offset.topicPartition.partition].map { handle in
                    PartitionStore(
                        handle: handle, committed: CommittedOffset(offset.offset ?? 0),
                        marks: handOff.marks[handle.number] ?? [])
                }
                states.append(state)
                begins.append(
                    TopicPartitionOffset(
                        offset.topicPartition, offset.offset.map { .offset($0) } ?? .committed))
            }
            try consumer.assign(begins)
            pendingAssignment = nil
            isAssigned = true
            commitsWaitUntil = loop.now
            for state in states { begin(state) }
            handedOff()
            if lease.isDoubtful { commitAllAgain() }
            followGate()
            logger.info(
                "partitions assigned",
                metadata: [
                    "partitions": "\(assigned.sorted().map { "\($0.partition)" }.joined(separator: ","))"
                ])
        } catch {
            takeOverFailed(error)
        }
    }

    /// Kafka doesn't answer, or waits for the transactions of those who had the partitions.
    func takeOverFailed(_ error: KafkaError) {
        takeOverFailures += 1
        counters.kafkaErrors += 1
        logger.warning(
            "partitions can't be taken over yet: Kafka doesn't answer, or a transaction of their former owner is open; tried again",
            metadata: [
                "partitions":
                    "\((pendingAssignment ?? []).sorted().map { "\($0.partition)" }.joined(separator: ","))",
                "error": "\(error)",
            ])
    }

    /// For a request to Kafka that holds the loop up, in milliseconds: to the lease a longer one looks as if the process had
    /// been stopped. A transaction of a former owner ends within half a minute; brokers that still haven't answered then are
    /// slow.
    var takeOverPatience: Int32 { takeOverFailures < 20 ? 500 : 4_000 }

    func begin(_ state: PartitionState) {
        let place = partitions.insert(state)
        let slot = partitions[place].slot
        gate.add(place)
        beginInShards(place, slot)
    }

    // MARK: Revocation

    func beginRevocation(_ revoked: [TopicPartition], isLost: Bool) {
        counters.rebalances += 1
        pendingAssignment = nil
        if isLost { isAssigned = false }
        commitsWaitUntil = loop.now
        cancelHandOff()
        logger.log(
            level: isLost ? .warning : .info, isLost ? "partitions lost" : "partitions revoked",
            metadata: ["partitions": "\(revoked.sorted().map { "\($0.partition)" }.joined(separator: ","))"])
        followGate()
        let places = revoked.compactMap { partitions.place(of: $0) }
        for place in places {
            partitions[place].isEnding = true
            destroyHeld(place)
            gate.end(place)
        }
        followGate()
        // Also of a lost partition nothing more is sent that isn't on its way.
        giveBack(places.map { partitions[$0].slot }, isLost: isLost)
        revocation = Revocation(
            partitions: revoked, deadline: loop.now + settings.revokeDeadline,
            awaited: shards.count * places.count,
            unsettled: store == nil ? 0 : shards.count * places.count)
        if isLost { finishRevocation(commits: false) }
    }

    func destroyHeld(_ place: Int) {
        for record in partitions[place].held { record.destroy() }
        partitions[place].held = []
    }

    /// Has the shards give back what they have not sent of these partitions.
    func giveBack(_ slots: [UInt16], isLost: Bool = false) {
        let hasStore = store != nil
        for shard in shards {
            shard.loop.execute { [self] in
                let abandoned = slots.map {
                    (slot: $0, count: shard.abandon(partitionSlot: $0, isLost: isLost))
                }
                loop.execute { [self] in shardGaveBack(abandoned) }
                guard hasStore else { return }
                for slot in slots {
                    shard.whenSettled(partitionSlot: slot) { [self] in
                        loop.execute { [self] in hasSettled(slot) }
                    }
                }
            }
        }
    }

    private func shardGaveBack(_ abandoned: [(slot: UInt16, count: Int)]) {
        for (slot, count) in abandoned {
            guard let place = partitions.place(ofSlot: slot) else {
                gate.finishOrphans(count)
                continue
            }
            gate.giveBack(place, jobs: count)
            if revocation?.partitions.contains(partitions[place].topicPartition) == true {
                revocation?.awaited -= 1
            }
        }
        checkRevocation()
    }

    private func hasSettled(_ slot: UInt16) {
        guard let place = partitions.place(ofSlot: slot),
            revocation?.partitions.contains(partitions[place].topicPartition) == true
        else { return }
        revocation?.unsettled -= 1
        checkRevocation()
    }

    /// A job that was in flight failed, and is not tried again here.
    func jobGaveBack(_ slot: UInt16) {
        if let place = partitions.place(ofSlot: slot) {
            gate.giveBack(place, jobs: 1)
        } else {
            gate.finishOrphans(1)
        }
        checkRevocation()
        checkDrain()
    }

    func checkRevocation() {
        guard let revocation, !revocation.isFinishing else { return }
        let remaining = revocation.partitions.reduce(0) { sum, partition in
            sum + (partitions.place(of: partition).map { gate.load($0).jobs } ?? 0)
        }
        let places = revocation.partitions.compactMap { partitions.place(of: $0) }
        guard
            (remaining == 0 && revocation.awaited <= 0 && revocation.unsettled <= 0 && isSettled(places))
                || loop.now >= revocation.deadline
        else { return }
        self.revocation?.isFinishing = true
        bringToDisk { [self] isDone in finishRevocation(commits: isDone) }
    }

    private func finishRevocation(commits: Bool) {
        guard let revocation else { return }
        self.revocation = nil
        let places = revocation.partitions.compactMap { partitions.place(of: $0) }
        // What was said for them in the open transaction is for whoever has them now to say.
        // An outcome without a report yet isn't known to the transaction; its job is still counted.
        let isOpen =
            places.contains { gate.load($0).jobs > 0 } || revocation.awaited > 0 || revocation.unsettled > 0
        if transactions != nil, !commits || isOpen || !isCommitted(places) { lostPartitions(.partitionsLost) }
        if commits { commitNow(places) }
        followGate()
        // Only what is complete: of a lost partition another may have gone on.
        if commits, isSettled(places) { checkpoint(places) }
        endInShards(places.map { partitions[$0].slot })
        for place in places {
            let gone = partitions.remove(place)
            gate.remove(place)
            finishUnremoved(gone)
        }
        attempt("give partitions back") { () throws(KafkaError) in
            try consumer.unassign(revocation.partitions)
        }
        pollSoon()
    }

    /// Jobs whose outcomes are in Kafka, and which only waited for removals from the store, take no room any more.
    func finishUnremoved(_ gone: PartitionState?) {
        gate.finishOrphans(gone?.removals.completions ?? 0)
    }

    // MARK: The end

    /// Stops taking records, lets what is in flight end, then commits and leaves the group.
    func beginDrain() {
        guard phase == .running else { return }
        phase = .draining
        stopsAt = loop.now + settings.drainDeadline
        stopNote.note(at: .read())
        // A part of the time is for outcomes, offsets and leaving the group.
        let forTheEnd = min(settings.drainDeadline / 5, .seconds(5))
        drain = Drain(
            deadline: loop.now + (settings.drainDeadline - forTheEnd), awaitedShards: shards.count,
            unsettledShards: shards.count)
        logger.info("draining", metadata: ["jobs": "\(outstanding)"])
        attempt("pause") { () throws(KafkaError) in
            try consumer.pause(partitions.topicPartitions)
        }
        for place in partitions.places { destroyHeld(place) }
        for shard in shards {
            shard.loop.execute { [self] in
                let abandoned = shard.drain()
                shard.whenSettled(partitionSlot: nil) { [self] in
                    loop.execute { [self] in
                        drain?.unsettledShards -= 1
                        checkDrain()
                    }
                }
                loop.execute { [self] in
                    drained += abandoned
                    drain?.awaitedShards -= 1
                    checkDrain()
                }
            }
        }
    }

    func checkDrain() {
        guard phase == .draining, let drain else { return }
        let done =
            drain.awaitedShards <= 0 && unfinished <= 0 && drain.unsettledShards <= 0
            && isSettled(partitions.places)
        guard done || loop.now >= drain.deadline else { return }
        phase = .ended
        self.drain = nil
        if !done {
            logger.warning(
                "the drain deadline has come; jobs in flight will be done again",
                metadata: ["jobs": "\(outstanding)"])
        }
        endShards()
    }

    /// Ends the shards; when the last has ended, the outcomes of what was cut off are awaited, and all is committed.
    func endShards() {
        stopNote.note(at: .read())
        // Freezes that are under way count no more: each writer reports once again.
        transactions?.produced = 0
        let count = shards.count
        var awaited = count
        let finished = LoopCallback { [self] in
            awaited -= 1
            if awaited == 0 { endKafka() }
        }
        for shard in shards {
            shard.loop.execute { [self] in
                shard.end()
                let flush = shard.flushToStore()
                let last = shard.outcomes.end()
                loop.execute { [self] in
                    transactions?.produced += last.produced
                    if last.isTorn { transactions?.isTorn = true }
                    changesLeft += last.changesLeft
                    countChanges(flush)
                    finished.call()
                }
            }
        }
    }

    /// All jobs have ended, and all is committed.
    private var hasEndedWell: Bool {
        guard unfinished <= 0, failure == nil else { return false }
        return transactions.map { $0.cycle.state == .stopped } ?? isSettled(partitions.places)
    }

    /// Milliseconds left of the drain deadline, three seconds at least: a rebalance that is under way has to end first.
    private var timeToLeave: Int32 {
        let left = (stopsAt ?? loop.now).nanoseconds(since: MonotonicTime.read()) / 1_000_000
        return max(3_000, Int32(clamping: left))
    }

    /// Whether a successor finds everything that the offsets stand for: in the changelog, or in the store on this disk.
    private var lastOffsetsAreSafe: Bool {
        guard let store else { return true }
        guard store.isCopy else { return syncStore() }
        let isSafe = unacknowledged.isEmpty && changesLeft == 0
        if !isSafe {
            logger.error(
                "the last offsets are not committed, as changes of the store did not reach the changelog; what they stand for will be done again"
            )
        }
        return isSafe
    }

    private func endKafka() {
        endTransactions()
        do throws(KafkaError) {
            if transactions == nil {
                try producer.flush(timeoutMilliseconds: 2_000) { report in take(report) }
            }
        } catch {
            logger.error(
                "outcomes are not acknowledged; their jobs will be done again",
                metadata: ["error": "\(error)"])
        }
        if transactions == nil, lastOffsetsAreSafe { commitNow(partitions.places) }
        if hasEndedWell { checkpoint(partitions.places) }
        if !consumer.close(timeoutMilliseconds: timeToLeave) {
            logger.warning(
                "the group could not be left in time; it notices by the session timeout",
                metadata: [
                    "session-timeout-milliseconds": "\(settings.sessionTimeout.wholeNanoseconds / 1_000_000)"
                ])
        }
        if let transactions { transactions.client.close() } else { producer.close() }
        logger.info(
            "stopped", metadata: ["finished": "\(counters.finished)", "unfinished": "\(outstanding)"])
        ended(failure)
    }
}

/// A closure that belongs to one loop and is called there.
// Sendable: only called on the loop that made it.
final class LoopCallback: @unchecked Sendable {
    let call: () -> Void
    init(_ call: @escaping () -> Void) { self.call = call }
}
