/// A worker's transactions. Changes of the store, outcomes, dead letters and offsets become visible together.
///
/// At the end of a transaction the shards stop producing (`freeze`). All delivery reports are awaited, and show which
/// offsets the records stand for. These offsets are sent, the transaction is committed, and the next one begins
/// (`thaw`). Jobs continue meanwhile; their records wait in the shards. Freezes and thaws carry the transaction's
/// number, and answers to another number are ignored. Each shard answers once for each number.
public struct TransactionalCommits: Sendable {
    enum Action: Equatable {
        /// Starts a step; ``TransactionalCommits/finished(_:at:)`` follows. Never `sendOffsets`.
        case step(TransactionCycle.Step)
        /// Starts the step with the offsets of all partitions as they are now.
        case sendOffsets
        case freeze(number: UInt64, atOnce: Bool)
        case thaw(number: UInt64, repeats: Bool)
        case committed
        case aborted(KafkaFault)
        /// A new producer is needed.
        case failed(KafkaFault)
    }

    private var cycle: TransactionCycle
    private let shards: Int
    /// True while a step was started and its result hasn't arrived.
    private var isStepUnderWay = false
    /// Shards that haven't stopped producing.
    private var awaitedShards = 0
    private var isFreezing = false
    private var isFrozen = true
    /// True when the open transaction is to be aborted as soon as the shards are frozen. A shard that isn't frozen
    /// produces records between the abort and the shard's notice of it. These records would be in the next transaction,
    /// and be repeated there.
    private var abortWaits = false
    /// Records that the shards have produced, as they reported when they stopped.
    private var produced = 0
    /// Records whose delivery reports have arrived.
    private var reported = 0
    /// Number of the transaction for which the shards were thawed last; 0: none.
    private var thawed: UInt64 = 0
    /// True when the transaction for which the shards were thawed last was aborted.
    private var repeats = false
    /// Items whose removal from the store waits for a commit.
    private var deletes: [EndedItem] = []
    /// Offsets of the open transaction.
    private var sent: [Committer.CommitSet.Part] = []
    /// Time at which these offsets were handed over, in nanoseconds. Nil: there were no offsets, and Kafka checks no
    /// membership.
    private var sentAt: UInt64?
    /// True when the last transaction that held something was committed.
    private var lastWasCommitted = true
    /// True when all shards have ended, and the last transaction is to end.
    private var isEnding = false
    private var hasStopped = false
    private var isTorn = false
    /// Transactions aborted so far.
    public private(set) var aborted = 0
    private var actions: [Action] = []

    init(interval: UInt64, shards: Int) {
        cycle = TransactionCycle(.init(interval: interval))
        self.shards = shards
    }

    // MARK: Questions

    /// State of the producer and its transaction.
    public var state: TransactionCycle.State { cycle.state }
    /// Transactions begun so far, including the open one.
    public var begun: UInt64 { cycle.transaction.number }
    /// Time of the next ``wake(at:)``, in nanoseconds; nil: an event has to happen first.
    public var wakeAt: UInt64? { cycle.wakeAt }
    /// True when a transaction is open, and no transaction holds a record or an offset whose fate is open.
    var isClean: Bool { cycle.isClean && cycle.acceptsRecords }
    /// Nothing more can happen.
    var hasEnded: Bool { cycle.state == .stopped || cycle.state == .failed }
    /// The worker's last transaction is committed, or there was nothing to commit.
    var hasEndedWell: Bool { cycle.state == .stopped && lastWasCommitted }

    mutating func nextAction() -> Action? { actions.isEmpty ? nil : actions.removeFirst() }

    // MARK: Events

    mutating func start() { follow(cycle.start()) }

    mutating func wake(at now: UInt64) { follow(cycle.wake(at: now)) }

    /// Counts a delivery report, of whatever record.
    mutating func reportCame() { reported += 1 }

    /// Notes that the last report's record is in the log.
    mutating func recordProduced(at now: UInt64) { cycle.recordProduced(at: now) }

    /// Notes that the last report's record is lost.
    mutating func recordLost(_ fault: KafkaFault) {
        follow(cycle.recordLost(fault, isStepUnderWay: isStepUnderWay))
    }

    /// Aborts the open transaction, because the producer takes none of its records.
    mutating func refused(_ number: UInt64) {
        guard number == thawed, cycle.transaction.number == number else { return }
        recordLost(.transactionRefused)
    }

    mutating func delete(_ delete: EndedItem) { deletes.append(delete) }

    mutating func takeDeletes() -> [EndedItem] {
        let taken = deletes
        deletes = []
        return taken
    }

    /// Continues the transaction after reports were polled.
    /// - Parameters:
    ///   - hasOffsets: offsets have changed.
    ///   - isUrgent: something ends that waits for the commit.
    mutating func reportsPolled(hasOffsets: Bool, isUrgent: Bool, at now: UInt64) {
        if cycle.acceptsRecords {
            if hasOffsets { cycle.offsetsChanged(at: now) }
            if isUrgent { follow(cycle.commitNow()) }
        }
        sendOffsetsIfFrozen()
    }

    /// Takes the result of a step.
    mutating func finished(_ result: TransactionCycle.StepResult, at now: UInt64) {
        assert(isStepUnderWay, "a step ends that wasn't begun")
        isStepUnderWay = false
        let before = cycle.state
        follow(cycle.finished(result, at: now))
        if before == .beginning, cycle.acceptsRecords { thaw() }
    }

    /// Notes that a shard has stopped producing.
    mutating func frozen(_ number: UInt64, produced count: Int) {
        guard isFreezing, number == thawed else { return }
        awaitedShards -= 1
        produced += count
        guard awaitedShards == 0 else { return }
        isFreezing = false
        isFrozen = true
        if abortWaits {
            abortWaits = false
            return start(.abort)
        }
        sendOffsetsIfFrozen()
    }

    /// Notes that offsets were handed to the producer.
    mutating func offsetsSent(_ offsets: [Committer.CommitSet.Part], at now: UInt64) {
        sent = offsets
        sentAt = offsets.isEmpty ? nil : now
    }

    /// Returns the offsets of the committed transaction, and when they were handed over.
    mutating func takeSent() -> (offsets: [Committer.CommitSet.Part], at: UInt64?) {
        let taken = (sent, sentAt)
        sent = []
        return taken
    }

    /// Notes that offsets could not be handed to the producer, because the group has moved on without this member.
    mutating func offsetsRefused(_ fault: KafkaFault) {
        isStepUnderWay = false
        partitionsLost(fault)
    }

    /// Aborts the open transaction, which must not be seen because partitions and their offsets are gone.
    mutating func partitionsLost(_ fault: KafkaFault) {
        follow(cycle.partitionsLost(fault, isStepUnderWay: isStepUnderWay))
    }

    /// Fails the producer, because the client has failed outside of a step.
    mutating func clientFailed(_ fault: KafkaFault) { follow(cycle.clientFailed(fault)) }

    // MARK: The end

    /// Begins the end, because all shards have ended and produce nothing more.
    /// - Parameters:
    ///   - produced: records in all transactions.
    ///   - isTorn: a shard has ended with a part of what belongs into the open transaction.
    mutating func shardsEnded(produced: Int, isTorn: Bool) {
        isEnding = true
        // A freeze that is under way counts no more.
        isFreezing = false
        isFrozen = true
        self.produced = produced
        self.isTorn = isTorn
        guard abortWaits else { return }
        abortWaits = false
        start(.abort)
    }

    /// Ends the last transaction as far as it can be now.
    /// - Parameter isOver: nothing more is awaited.
    mutating func advanceEnding(hasOffsets: Bool, isOver: Bool, at now: UInt64) {
        guard isEnding, !isStepUnderWay else { return }
        if isTorn {
            isTorn = false
            partitionsLost(.changesLeft)
        } else if reported < produced {
            // An outcome whose report hasn't arrived has no offset. Outcome and offset count together, or not at all.
            if isOver { partitionsLost(.reportsMissing) }
        } else if isOver, cycle.state == .sendingOffsets {
            // An open transaction would delay the workers that take the partitions over.
            partitionsLost(.reportsMissing)
        }
        guard isOver || reported >= produced || cycle.state == .aborting else { return }
        if !hasStopped {
            hasStopped = true
            // Offsets also stand for records of an aborted transaction. No shard is left to repeat those records.
            if hasOffsets, !repeats { cycle.offsetsChanged(at: now) }
            follow(cycle.stop())
        }
        if cycle.awaitsOffsets, !isStepUnderWay { start(.sendOffsets) }
    }

    // MARK: Steps

    private mutating func follow(_ turn: TransactionCycle.Turn) {
        switch turn.ended {
        case .committed:
            lastWasCommitted = true
            actions.append(.committed)
        case .aborted(let transaction, let fault):
            lastWasCommitted = false
            aborted += 1
            // Shards have nothing of a transaction that could not even begin, because what they keep was committed.
            if transaction.number == thawed { repeats = true }
            deletes = []
            sent = []
            actions.append(.aborted(fault))
        case nil: break
        }
        if let failure = turn.failure { return actions.append(.failed(failure)) }
        if let step = turn.step { start(step) }
    }

    private mutating func start(_ step: TransactionCycle.Step) {
        switch step {
        case .initialize, .begin, .commit: beginStep(step)
        case .sendOffsets: if isFrozen { sendOffsets() } else { freeze() }
        case .abort:
            if isFrozen {
                beginStep(step)
            } else {
                abortWaits = true
                freeze(atOnce: true)
            }
        }
    }

    private mutating func beginStep(_ step: TransactionCycle.Step) {
        isStepUnderWay = true
        actions.append(.step(step))
    }

    /// - Parameter atOnce: the shards don't wait for records that the producer takes no more.
    private mutating func freeze(atOnce: Bool = false) {
        guard !isFrozen, atOnce || !isFreezing else { return }
        if !isFreezing {
            isFreezing = true
            awaitedShards = shards
            produced = 0
        }
        actions.append(.freeze(number: cycle.transaction.number, atOnce: atOnce))
    }

    private mutating func sendOffsetsIfFrozen() {
        guard isFrozen, cycle.state == .sendingOffsets, !isStepUnderWay, cycle.wakeAt == nil else { return }
        sendOffsets()
    }

    private mutating func sendOffsets() {
        guard reported >= produced, !isStepUnderWay else { return }
        isStepUnderWay = true
        actions.append(.sendOffsets)
    }

    private mutating func thaw() {
        guard !isEnding else { return }
        thawed = cycle.transaction.number
        actions.append(.thaw(number: thawed, repeats: repeats))
        repeats = false
        isFrozen = false
    }
}
