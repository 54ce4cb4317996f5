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
}

/// The end of the worker: what is in flight ends first.
struct Drain {
    var deadline: MonotonicTime
    var awaitedShards: Int
}

extension Intake {
    // MARK: Assignment

    func take(_ assigned: [TopicPartition]) {
        counters.rebalances += 1
        pendingAssignment = assigned
        answerAssignment()
    }

    /// Reads what the group has committed and begins there. Tried again a second later when Kafka does not answer.
    func answerAssignment() {
        let assigned = pendingAssignment
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
                states.append(
                    PartitionState(
                        topicPartition: offset.topicPartition,
                        tracker: OffsetTracker(
                            nextOffset: offset.offset ?? 0, completedAbove: decoded.completed)))
                begins.append(
                    TopicPartitionOffset(
                        offset.topicPartition, offset.offset.map { .offset($0) } ?? .committed))
            }
            try consumer.assign(begins)
            pendingAssignment = []
            for state in states {
                let slot = partitions.insert(state)
                for shard in shards { shard.loop.execute { shard.begin(partitionSlot: slot) } }
            }
            if isPausedForLimit { try consumer.pause(assigned) }
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

    // MARK: Revocation

    func beginRevocation(_ revoked: [TopicPartition], isLost: Bool) {
        counters.rebalances += 1
        pendingAssignment = []
        logger.log(
            level: isLost ? .warning : .info, isLost ? "partitions lost" : "partitions revoked",
            metadata: ["partitions": "\(revoked.sorted().map { "\($0.partition)" }.joined(separator: ","))"])
        let slots = revoked.compactMap { partitions.slot(of: $0) }
        for slot in slots {
            partitions[slot]?.isEnding = true
            for record in partitions[slot]?.held ?? [] { record.destroy() }
            partitions[slot]?.held = []
        }
        // Also of a lost partition nothing more is sent that isn't on its way.
        giveBack(slots)
        revocation = Revocation(
            partitions: revoked, deadline: loop.now + settings.revokeDeadline,
            awaited: shards.count * slots.count)
        if isLost { finishRevocation(commits: false) }
    }

    /// Has the shards give back what they have not sent of these partitions.
    func giveBack(_ slots: [UInt16]) {
        for shard in shards {
            shard.loop.execute { [self] in
                let abandoned = slots.map { (slot: $0, count: shard.abandon(partitionSlot: $0)) }
                loop.execute { [self] in shardGaveBack(abandoned) }
            }
        }
    }

    private func shardGaveBack(_ abandoned: [(slot: UInt16, count: Int)]) {
        for (slot, count) in abandoned {
            if partitions[slot] != nil {
                partitions[slot]?.abandoned += count
                outstanding -= count
            } else {
                orphaned -= count
            }
            if let partition = partitions[slot]?.topicPartition,
                revocation?.partitions.contains(partition) == true
            {
                revocation?.awaited -= 1
            }
        }
        checkRevocation()
    }

    /// A partition is gone: its jobs in the shards are nobody's from here on.
    func letGo(_ state: PartitionState) {
        outstanding -= state.remaining
        orphaned += state.remaining
    }

    /// A job that was in flight failed, and is not tried again here.
    func jobGaveBack(_ slot: UInt16) {
        if partitions[slot] != nil {
            partitions[slot]?.abandoned += 1
            outstanding -= 1
        } else {
            orphaned -= 1
        }
        checkRevocation()
        checkDrain()
    }

    func checkRevocation() {
        guard let revocation else { return }
        let remaining = revocation.partitions.reduce(0) { sum, partition in
            sum + (partitions.slot(of: partition).flatMap { partitions[$0]?.remaining } ?? 0)
        }
        guard (remaining == 0 && revocation.awaited <= 0) || loop.now >= revocation.deadline else {
            return
        }
        finishRevocation(commits: true)
    }

    private func finishRevocation(commits: Bool) {
        guard let revocation else { return }
        self.revocation = nil
        let slots = revocation.partitions.compactMap { partitions.slot(of: $0) }
        if commits { commitNow(slots) }
        for slot in slots {
            if let state = partitions.remove(slot) { letGo(state) }
        }
        attempt("give partitions back") { () throws(KafkaError) in
            try consumer.unassign(revocation.partitions)
        }
        pollSoon()
    }

    // MARK: Commits

    private func pendingCommit(_ slot: UInt16) -> OffsetCommit? {
        guard let state = partitions[slot], state.isDirty else { return nil }
        let (offset, metadata) = state.tracker.commitPoint()
        let commit = OffsetCommit(
            topic: state.topicPartition.topic, partition: state.topicPartition.partition, offset: offset,
            metadata: state.tracker.completedInWindow > 0 ? metadata : "")
        return commit == state.committed ? nil : commit
    }

    /// Commits what has moved since the last time; the result comes as an event.
    func commitDirty() {
        guard commitUnderWay == nil else { return }
        lastCommit = loop.now
        finishedSinceCommit = 0
        var commits: [OffsetCommit] = []
        for slot in Array(partitions.slots) {
            guard let commit = pendingCommit(slot), partitions[slot]?.isEnding == false else { continue }
            commits.append(commit)
            partitions[slot]?.committed = commit
            partitions[slot]?.isDirty = false
        }
        guard !commits.isEmpty else { return }
        attempt("commit") { () throws(KafkaError) in commitUnderWay = try consumer.commit(commits) }
        if commitUnderWay == nil { commitAllAgain() }
    }

    func committed(_ result: CommitResult) {
        if result.reference == commitUnderWay { commitUnderWay = nil }
        counters.commits += 1
        guard let error = result.error else { return }
        counters.commitErrors += 1
        logger.warning("offsets were not committed; tried again", metadata: ["error": "\(error)"])
        commitAllAgain()
    }

    private func commitAllAgain() {
        for slot in Array(partitions.slots) {
            partitions[slot]?.committed = nil
            partitions[slot]?.isDirty = true
        }
    }

    /// Commits and waits for it: the last chance.
    private func commitNow(_ slots: [UInt16]) {
        let commits = slots.compactMap { slot -> OffsetCommit? in
            // An asynchronous commit may still fail, so what it covers is committed again.
            partitions[slot]?.committed = nil
            if commitUnderWay != nil { partitions[slot]?.isDirty = true }
            return pendingCommit(slot)
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
        drain = Drain(deadline: loop.now + (settings.drainDeadline - forTheEnd), awaitedShards: shards.count)
        logger.info("draining", metadata: ["jobs": "\(outstanding)"])
        attempt("pause") { () throws(KafkaError) in
            try consumer.pause(partitions.states.values.map(\.topicPartition))
        }
        for slot in Array(partitions.slots) {
            for record in partitions[slot]?.held ?? [] { record.destroy() }
            partitions[slot]?.held = []
        }
        for shard in shards {
            shard.loop.execute { [self] in
                let abandoned = shard.drain()
                loop.execute { [self] in
                    outstanding -= abandoned
                    drain?.awaitedShards -= 1
                    checkDrain()
                }
            }
        }
    }

    func checkDrain() {
        guard phase == .draining, let drain else { return }
        let done = drain.awaitedShards <= 0 && outstanding + orphaned <= 0
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
    private func endShards() {
        let count = shards.count
        var awaited = count
        let finished = LoopCallback { [self] in
            awaited -= 1
            if awaited == 0 { endKafka() }
        }
        for shard in shards {
            shard.loop.execute { [self] in
                shard.end()
                loop.execute { finished.call() }
            }
        }
    }

    private func endKafka() {
        do throws(KafkaError) {
            try producer.flush(timeoutMilliseconds: 2_000) { report in take(report) }
        } catch {
            logger.error(
                "outcomes are not acknowledged; their jobs will be done again",
                metadata: ["error": "\(error)"])
        }
        commitNow(Array(partitions.slots))
        if !consumer.close(timeoutMilliseconds: 3_000) {
            logger.warning("the group could not be left in time; it notices by the session timeout")
        }
        producer.close()
        logger.info(
            "stopped", metadata: ["finished": "\(counters.finished)", "unfinished": "\(max(0, outstanding))"])
        ended(failure)
    }
}

/// A closure that belongs to one loop and is called there.
// Sendable: only called on the loop that made it.
private final class LoopCallback: @unchecked Sendable {
    let call: () -> Void
    init(_ call: @escaping () -> Void) { self.call = call }
}
