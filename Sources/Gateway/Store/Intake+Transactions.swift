import DeliveryCore
import EventLoop
import Kafka
import Logging

/// The worker's transactions: changes of the store, outcomes, dead letters and offsets become visible together.
///
/// A transaction ends like this: the shards stop to produce (`freeze`), all reports are awaited, and so all offsets are
/// known that the records stand for; these are sent, all is committed, and the next one begins (`thaw`). Jobs go on
/// meanwhile; what they have to say waits in the shards.
final class WorkerTransactions: TimerHandler {
    let client: TransactionalProducer
    var cycle: TransactionCycle
    /// Shards that haven't stopped to produce yet.
    var awaitedShards = 0
    var isFreezing = false
    var isFrozen = true
    /// Number of the transaction that the shards were thawed for last; 0: for none.
    var thawed: UInt64 = 0
    /// A shard has ended with a part of what belongs into the open transaction: it must not be committed.
    var isTorn = false
    /// The open transaction is to be aborted when the shards are frozen. What a shard produces after the abort, and before it
    /// hears of it, would be in the next transaction, and be repeated there.
    var abortWaits = false
    /// Records that the shards have produced, as they told when they stopped, and that reports have come for.
    var produced = 0
    var reported = 0
    /// The one that the shards were thawed for last was aborted.
    var repeats = false
    /// Why dead letters go without their values, and the transaction that had them last, until one is committed; nil: they
    /// keep them.
    var omission: (reason: String, transaction: UInt64)?
    /// What the store may forget when the open transaction is committed.
    var removals: [(device: UInt64, place: ShardStore.Place)] = []
    var aborted = 0
    /// Offsets of the open transaction, by the slots of their partitions.
    var sent: [(slot: UInt16, offset: Int64)] = []
    /// When these were handed over, on the monotonic clock. Nil: there were none, and Kafka checks no membership.
    var sentAt: UInt64?
    private var timer: TimerID?
    private let woken: () -> Void

    init(_ client: TransactionalProducer, interval: Duration, woken: @escaping () -> Void) {
        self.client = client
        self.woken = woken
        cycle = TransactionCycle(.init(interval: UInt64(interval / .nanoseconds(1))))
    }

    func arm(_ loop: EventLoop) {
        if let timer { loop.cancel(timer) }
        timer = cycle.wakeAt.map { loop.schedule(at: MonotonicTime(nanoseconds: $0), handler: self) }
    }

    func timerFired(_ timer: TimerID) {
        self.timer = nil
        woken()
    }
}

extension Intake {
    /// Begins the first transaction.
    func startTransactions() {
        guard let transactions else { return }
        follow(transactions.cycle.start())
    }

    func wakeTransactions() {
        guard let transactions, phase != .ended else { return }
        follow(transactions.cycle.wake(at: loop.now.nanoseconds))
    }

    /// After reports were polled: what has become of the step, and whether the next one may follow.
    func pollTransactions() {
        guard let transactions, phase != .ended else { return }
        while let result = transactions.client.takeResult() {
            if let failure = result.failure {
                counters.kafkaErrors += 1
                logger.warning(
                    "transaction", metadata: ["step": "\(result.step)", "error": "\(failure)"])
            }
            let before = transactions.cycle.state
            follow(transactions.cycle.finished(result, at: loop.now.nanoseconds))
            if before == .beginning, transactions.cycle.acceptsRecords { thawShards() }
        }
        if transactions.cycle.acceptsRecords {
            // An assignment's first offsets count as well.
            if partitions.places.contains(where: { partitions[$0].isDirty }) {
                transactions.cycle.offsetsChanged(at: loop.now.nanoseconds)
            }
            if hastensCommits { follow(transactions.cycle.commitNow()) }
        }
        sendOffsetsIfFrozen()
        transactions.arm(loop)
    }

    private func follow(_ turn: TransactionCycle.Turn) {
        guard let transactions else { return }
        if let ended = turn.ended { take(ended) }
        if let failure = turn.failure {
            return failAtOnce(
                failure.isFenced
                    ? "another worker has this one's transactional identifier (the group and the identity of the "
                        + "store: each worker needs a store directory of its own), or Kafka has aborted a "
                        + "transaction that was open for longer than transaction.timeout.ms: \(failure)"
                    : "transactions have failed; where Kafka refuses them, the worker needs the rights to write and "
                        + "describe its transactional identifiers, which begin with the group's name: \(failure)",
                failure)
        }
        guard let step = turn.step else { return transactions.arm(loop) }
        start(step)
        transactions.arm(loop)
    }

    private func start(_ step: TransactionStep) {
        guard let transactions else { return }
        do throws(KafkaError) {
            switch step {
            case .initialize: try transactions.client.initialize()
            case .begin: try transactions.client.begin()
            case .sendOffsets: if transactions.isFrozen { sendOffsets() } else { freezeShards() }
            case .commit: try transactions.client.commit()
            case .abort:
                if transactions.isFrozen {
                    try transactions.client.abort()
                } else {
                    transactions.abortWaits = true
                    freezeShards(atOnce: true)
                }
            }
        } catch {
            failAtOnce("transactions have failed: \(error)", error)
        }
    }

    /// A record did not reach Kafka.
    func lost(_ error: KafkaError, to topic: String) {
        guard let transactions, !hasFailedAtOnce else { return }
        if error.isFatal { return failAtOnce("the producer has failed: \(error)", error) }
        guard error.isMendedByStartingOver || maySucceedWithoutValue(error, topic, transactions) else {
            return failAtOnce(Self.refusal(error, topic), error)
        }
        follow(transactions.cycle.recordLost(error, isStepUnderWay: transactions.client.isBusy))
    }

    /// Larger with its headers than Kafka takes, a dead letter goes without its value in the next transaction.
    private func maySucceedWithoutValue(
        _ error: KafkaError, _ topic: String, _ transactions: WorkerTransactions
    ) -> Bool {
        guard error.isTooLarge, topic == deadLettersTopic else { return false }
        let number = transactions.cycle.transaction.number
        let omission = transactions.omission ?? (error.name, number)
        transactions.omission = omission
        return omission.transaction == number
    }

    static func refusal(_ error: KafkaError, _ topic: String) -> String {
        """
        Kafka refuses a record for \(topic): \(error); give the worker the right to write there, or raise \
        max.message.bytes of the topic
        """
    }

    // MARK: Shards

    /// - Parameter atOnce: without waiting for what the producer takes no more.
    private func freezeShards(atOnce: Bool = false) {
        guard let transactions, !transactions.isFrozen, atOnce || !transactions.isFreezing else { return }
        let number = transactions.cycle.transaction.number
        if !transactions.isFreezing {
            // A shard answers once for each transaction, also when an abort overtakes the first call.
            transactions.isFreezing = true
            transactions.awaitedShards = shards.count
            transactions.produced = 0
        }
        for shard in shards {
            shard.loop.execute { [self] in
                shard.submitToStore()
                shard.outcomes.freeze(number, atOnce: atOnce) { [self] number, produced in
                    loop.execute { [self] in frozen(number, produced) }
                }
            }
        }
    }

    private func frozen(_ number: UInt64, _ produced: Int) {
        guard let transactions, number == transactions.thawed, transactions.isFreezing, phase != .ended
        else { return }
        transactions.awaitedShards -= 1
        transactions.produced += produced
        guard transactions.awaitedShards == 0 else { return }
        transactions.isFreezing = false
        transactions.isFrozen = true
        if transactions.abortWaits {
            transactions.abortWaits = false
            return start(.abort)
        }
        sendOffsetsIfFrozen()
    }

    private func sendOffsetsIfFrozen() {
        guard let transactions, transactions.isFrozen, transactions.cycle.state == .sendingOffsets,
            !transactions.client.isBusy, transactions.cycle.wakeAt == nil,
            transactions.reported >= transactions.produced
        else { return }
        sendOffsets()
    }

    private func thawShards() {
        guard let transactions else { return }
        let repeating = transactions.repeats ? Set(partitions.places.map { partitions[$0].slot }) : nil
        if repeating == nil { transactions.omission = nil }
        let omitsValues = transactions.omission?.reason
        let number = transactions.cycle.transaction.number
        transactions.thawed = number
        transactions.repeats = false
        transactions.isFrozen = false
        for shard in shards {
            shard.loop.execute { [self] in
                let dropped = shard.outcomes.thaw(
                    number, repeating: repeating, omitsValues: omitsValues)
                if dropped > 0 { loop.execute { [self] in gate.finishOrphans(dropped) } }
            }
        }
    }

    // MARK: Offsets

    /// All reports of the transaction are in: the offsets are those that its records stand for. Of every partition, also
    /// where nothing has changed: it is by them that Kafka notices who has lost a partition.
    private func sendOffsets() {
        guard let transactions, transactions.reported >= transactions.produced else { return }
        do throws(KafkaError) {
            let places = partitions.places
            let group =
                try places.isEmpty
                ? ConsumerGroupMetadata(unfencedGroup: consumer.group) : consumer.groupMetadata()
            var commits: [OffsetCommit] = []
            transactions.sent = []
            for place in places {
                let commit = commitPoint(place)
                commits.append(commit)
                transactions.sent.append((partitions[place].slot, commit.offset))
                partitions[place].isDirty = false
            }
            lastCommit = loop.now
            finishedSinceCommit = 0
            transactions.sentAt = places.isEmpty ? nil : MonotonicTime.read().nanoseconds
            try transactions.client.sendOffsets(commits, group: group)
        } catch {
            // The group has gone on without this worker, which will hear of it.
            if error.isGroupMembershipLost { return lostPartitions(error) }
            failAtOnce("transactions have failed: \(error)", error)
        }
    }

    /// Partitions have gone, and with them their offsets: what the open transaction says for them is another's to say.
    func lostPartitions(_ error: KafkaError) {
        guard let transactions, !hasFailedAtOnce else { return }
        follow(transactions.cycle.partitionsLost(error, isStepUnderWay: transactions.client.isBusy))
    }

    private func take(_ ended: TransactionCycle.Ending) {
        guard let transactions else { return }
        let removals = transactions.removals
        transactions.removals = []
        switch ended {
        case .committed:
            counters.commits += 1
            if let sentAt = transactions.sentAt { confirmMembership(requestedAt: sentAt) }
            for (slot, offset) in transactions.sent {
                guard let place = partitions.place(ofSlot: slot) else { continue }
                partitions[place].store?.committed.advance(to: offset)
            }
            transactions.sent = []
            remove(removals)
            checkRevocation()
            checkDrain()
        case .aborted(let transaction, let error):
            counters.commitErrors += 1
            transactions.aborted += 1
            // Shards have nothing of one that could not even begin: what they keep may be committed.
            if transaction.number == transactions.thawed { transactions.repeats = true }
            for place in partitions.places { partitions[place].isDirty = true }
            logger.warning(
                "a transaction was aborted; what it held is produced again", metadata: ["error": "\(error)"])
            checkMetadata(error)
        }
    }

    // MARK: Ends

    /// Everything of these partitions is committed.
    func isCommitted(_ places: [Int]) -> Bool {
        guard let transactions else { return true }
        return transactions.cycle.isClean && transactions.cycle.acceptsRecords
            && !places.contains { partitions[$0].isDirty }
    }

    /// State that is not known to be committed is dropped, and nothing more is said: whoever starts next begins with what
    /// is committed.
    func failAtOnce(_ reason: String, _ error: KafkaError) {
        guard phase != .ended else { return }
        failure = failure ?? WorkerFailure(reason: reason, startsOver: error.isMendedByStartingOver)
        logger.critical("the worker stops at once", metadata: ["reason": "\(reason)"])
        stopsAt = min(stopsAt ?? .distantFuture, MonotonicTime.read() + Self.timeToFail)
        hasFailedAtOnce = true
        for place in partitions.places { destroyHeld(place) }
        phase = .ended
        drain = nil
        endShards()
    }

    /// For leaving the group, when Kafka may not answer.
    private static let timeToFail: Duration = .seconds(5)

    /// Commits the last records of the shards, which have ended, or aborts them, within a few seconds. Blocks.
    func endTransactions() {
        guard let transactions, !hasFailedAtOnce else { return }
        loop.refreshNow()
        let deadline = loop.now + .seconds(5)
        transactions.isFreezing = false
        transactions.isFrozen = true
        // An outcome whose report hasn't come has no offset: together they count, or not at all.
        while transactions.reported < transactions.produced, loop.now < deadline, !hasFailedAtOnce {
            producer.pollDeliveryReports(timeoutMilliseconds: 20) { take($0) }
            loop.refreshNow()
        }
        guard !hasFailedAtOnce else { return }
        var turn = transactions.cycle.stop()
        if transactions.abortWaits {
            transactions.abortWaits = false
            turn.step = .abort
        } else if transactions.reported < transactions.produced || transactions.isTorn {
            turn = transactions.cycle.partitionsLost(
                .reportsMissing, isStepUnderWay: transactions.client.isBusy)
        } else if transactions.cycle.awaitsOffsets, !transactions.client.isBusy {
            turn.step = .sendOffsets
        }
        drive(turn, until: deadline)
        if transactions.cycle.state == .sendingOffsets {
            // Left open, it would keep those who take the partitions over waiting.
            drive(
                transactions.cycle.partitionsLost(
                    .reportsMissing, isStepUnderWay: transactions.client.isBusy),
                until: loop.now + .seconds(2))
        }
        if transactions.cycle.state != .stopped {
            logger.error("the last transaction is not committed; its jobs will be done again")
        }
    }

    /// Lets the cycle go on, step by step. Blocks.
    private func drive(_ first: TransactionCycle.Turn, until deadline: MonotonicTime) {
        guard let transactions else { return }
        var turn = first
        while !hasFailedAtOnce {
            loop.refreshNow()
            if turn.failure != nil { return }
            if case .aborted? = turn.ended { return }
            if let step = turn.step { start(step) }
            guard loop.now < deadline else { return }
            if transactions.client.isBusy {
                guard let result = transactions.client.wait(timeoutMilliseconds: 2_000, { take($0) }) else {
                    return
                }
                loop.refreshNow()
                turn = transactions.cycle.finished(result, at: loop.now.nanoseconds)
            } else if let due = transactions.cycle.wakeAt, due < deadline.nanoseconds {
                if due > loop.now.nanoseconds {
                    producer.pollDeliveryReports(
                        timeoutMilliseconds: Int32(
                            clamping: (due - loop.now.nanoseconds) / 1_000_000 + 1)
                    ) { take($0) }
                    loop.refreshNow()
                }
                turn = transactions.cycle.wake(at: loop.now.nanoseconds)
            } else {
                return
            }
        }
    }
}
