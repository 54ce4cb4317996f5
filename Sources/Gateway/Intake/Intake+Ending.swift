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
            let committed = try consumer.committed(assigned)
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
                state.store = openedStores[offset.topicPartition.partition].map { PartitionStore(handle: $0) }
                states.append(state)
                begins.append(
                    TopicPartitionOffset(
                        offset.topicPartition, offset.offset.map { .offset($0) } ?? .committed))
            }
            try consumer.assign(begins)
            pendingAssignment = nil
            commitsWaitUntil = loop.now
            for state in states { begin(state) }
            handedOff()
            confirmMembership()
            followGate()
            logger.info(
                "partitions assigned",
                metadata: [
                    "partitions": "\(assigned.sorted().map { "\($0.partition)" }.joined(separator: ","))"
                ])
        } catch {
            counters.kafkaErrors += 1
            logger.error("taking partitions over", metadata: ["error": "\(error)"])
        }
    }

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
            awaited: shards.count * places.count)
        if isLost { finishRevocation(commits: false) }
    }

    private func destroyHeld(_ place: Int) {
        for record in partitions[place].held { record.destroy() }
        partitions[place].held = []
    }

    /// Has the shards give back what they have not sent of these partitions.
    func giveBack(_ slots: [UInt16], isLost: Bool = false) {
        for shard in shards {
            shard.loop.execute { [self] in
                let abandoned = slots.map {
                    (slot: $0, count: shard.abandon(partitionSlot: $0, isLost: isLost))
                }
                loop.execute { [self] in shardGaveBack(abandoned) }
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
            (remaining == 0 && revocation.awaited <= 0 && isSettled(places))
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
        if transactions != nil, !commits || !isCommitted(places) { lost(.partitionsLost) }
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
        gate.finishOrphans(gone?.store?.removals.completions ?? 0)
    }

    // MARK: Commits

    /// Without news of a rebalance for so long, commits go on.
    private static let longestRebalance: Duration = .seconds(5)

    private func pendingCommit(_ place: Int) -> OffsetCommit? {
        guard partitions[place].isDirty else { return nil }
        let commit = commitPoint(place)
        return commit == partitions[place].committed ? nil : commit
    }

    /// The offset of a partition that is to be committed now.
    func commitPoint(_ place: Int) -> OffsetCommit {
        let topicPartition = partitions[place].topicPartition
        let (offset, metadata) = partitions[place].tracker.commitPoint()
        return OffsetCommit(
            topic: topicPartition.topic, partition: topicPartition.partition, offset: offset,
            metadata: partitions[place].tracker.completedInWindow > 0 ? metadata : "")
    }

    /// Commits what has moved since the last time; the result comes as an event.
    func commitDirty() {
        guard transactions == nil, commitUnderWay == nil, barrier == nil else { return }
        guard loop.now >= commitsWaitUntil || phase == .draining else { return }
        lastCommit = loop.now
        finishedSinceCommit = 0
        var issued = IssuedCommit()
        // What ends commits as well where removals from the store wait for it.
        for place in partitions.places where !partitions[place].isEnding || partitions[place].store != nil {
            // Without news of it, all that is complete was committed before.
            let commit = pendingCommit(place)
            guard commit != nil || partitions[place].store?.removals.needsCommit == true else { continue }
            if let serial = partitions[place].store?.removals.commitIssued() {
                issued.serials.append((partitions[place].slot, serial))
            }
            guard let commit else { continue }
            issued.commits.append(commit)
            partitions[place].committed = commit
            partitions[place].isDirty = false
        }
        guard !issued.isEmpty else { return }
        guard !issued.commits.isEmpty else { return ended(issued, isTaken: true) }
        // What the commit covers has to outlive this machine, where the store has it.
        bringToDisk { [self] isDone in
            guard isDone else {
                ended(issued, isTaken: false)
                return commitAllAgain()
            }
            commit(issued)
        }
    }

    private func commit(_ issued: IssuedCommit) {
        var issued = issued
        issued.commits.removeAll { commit in
            partitions.place(of: commit.topicPartition) == nil
        }
        guard !issued.commits.isEmpty else { return }
        attempt("commit") { () throws(KafkaError) in
            issued.reference = try consumer.commit(issued.commits)
            commitUnderWay = issued
        }
        if commitUnderWay == nil {
            ended(issued, isTaken: false)
            commitAllAgain()
        }
    }

    func committed(_ result: CommitResult) {
        if let issued = commitUnderWay, result.reference == issued.reference {
            commitUnderWay = nil
            ended(issued, isTaken: result.error == nil)
        }
        counters.commits += 1
        guard let error = result.error else { return confirmMembership() }
        counters.commitErrors += 1
        logger.warning("offsets were not committed; tried again", metadata: ["error": "\(error)"])
        // librdkafka 2.0 takes all partitions for lost when it learns of a new generation by a commit (its issue 4059):
        // the next one waits for what the rebalance brings.
        if error.isOfRebalance { commitsWaitUntil = loop.now + Self.longestRebalance }
        commitAllAgain()
    }

    private func commitAllAgain() {
        for place in partitions.places {
            partitions[place].committed = nil
            partitions[place].isDirty = true
        }
    }

    /// Commits and waits for it: the last chance.
    private func commitNow(_ places: [Int]) {
        // Transactions have done so.
        guard transactions == nil else { return }
        let commits = places.compactMap { place -> OffsetCommit? in
            // An asynchronous commit may still fail, and one that waits for the disk is not issued any more: what they
            // cover is committed again.
            partitions[place].committed = nil
            if commitUnderWay != nil || barrier != nil { partitions[place].isDirty = true }
            return pendingCommit(place)
        }
        guard !commits.isEmpty else { return }
        do throws(KafkaError) {
            try consumer.commit(commits, synchronous: true, timeoutMilliseconds: 2_000)
            counters.commits += 1
        } catch {
            counters.commitErrors += 1
            logger.error(
                "the last commit failed; the jobs finished since the one before will be done again",
                metadata: ["error": "\(error)"])
        }
    }

    // MARK: The end

    /// Stops taking records, lets what is in flight end, then commits and leaves the group.
    func beginDrain() {
        guard phase == .running else { return }
        phase = .draining
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
                let abandoned = shard.drain { [self] in
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
        let count = shards.count
        var awaited = count
        let finished = LoopCallback { [self] in
            awaited -= 1
            if awaited == 0 { endKafka() }
        }
        for shard in shards {
            shard.loop.execute { [self] in
                shard.end()
                _ = shard.flushToStore()
                loop.execute { finished.call() }
            }
        }
    }

    /// All jobs have ended, and all is committed.
    private var hasEndedWell: Bool {
        guard unfinished <= 0, failure == nil else { return false }
        return transactions.map { $0.cycle.state == .stopped } ?? isSettled(partitions.places)
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
        if syncStore() { commitNow(partitions.places) }
        if hasEndedWell { checkpoint(partitions.places) }
        if !consumer.close(timeoutMilliseconds: 3_000) {
            logger.warning("the group could not be left in time; it notices by the session timeout")
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
