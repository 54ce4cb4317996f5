/// An order of ``WorkerMachine`` to its shell, in the order in which they come.
public enum WorkerAction: Sendable, Equatable {
    // Records.

    /// Hands a record to a shard that was held back before.
    case hand(handle: UInt, shard: Int, slot: UInt16, bytes: Int, isReplay: Bool)
    /// Destroys a record that was held back.
    case discard(handle: UInt)
    /// Polls soon.
    case poll

    // The consumer.

    case pause([Int32])
    case resume([Int32])
    /// Asks for what the group has committed, away from this thread;
    /// ``WorkerMachine/fetched(_:_:at:)`` follows. A transaction of a former owner that is open makes the answer wait.
    /// - Parameter wantsLogEnds: ends of the partitions' logs are asked for, too.
    case fetchCommitted([Int32], ticket: UInt64, patienceMilliseconds: Int32, wantsLogEnds: Bool)
    /// Reads these of the assigned partitions from now on, too. Answers the assignment, if it isn't answered yet.
    case assign([PartitionBegin])
    /// Answers a revocation.
    case unassign([Int32])
    /// ``WorkerMachine/committed(_:fault:at:)`` follows.
    case commit(Committer.CommitSet, ticket: UInt64)
    /// Leaves the group and closes the clients; ``WorkerMachine/closed()`` follows.
    case close(timeoutMilliseconds: Int32)

    // The transactional producer.

    /// ``WorkerMachine/stepFinished(_:at:)`` follows.
    case step(TransactionCycle.Step)
    /// The same, with these offsets; without any, the group isn't fenced.
    case sendOffsets([Committer.CommitSet.Part])

    // Shards.

    case request(shard: Int, ShardRequest)
    case requestAll(ShardRequest)

    // The store.

    case restore(PartitionRestore.Action)
    /// Gives the changelog as many partitions as the jobs topic has, away from this thread. Nothing follows.
    case extendChangelog
    /// Offsets below this one are committed.
    case advanceCommitted(slot: UInt16, Int64)
    /// Has all shards hear which devices the store has items of; ``WorkerMachine/scanFailed(slot:)`` may follow.
    case scanItems(slot: UInt16, partition: Int32)
    /// ``WorkerMachine/found(_:_:isEnd:)`` follows.
    case scanDue(DueSchedule.Look, partition: Int32)
    /// ``WorkerMachine/foundParked(_:_:cursor:isEnd:at:)`` follows.
    case scanParked(ParkedSchedule.Look, partition: Int32)
    /// ``WorkerMachine/foundExpired(_:_:last:isEnd:at:)`` follows.
    case scanExpired(ExpirySchedule.Look, partition: Int32)
    /// ``WorkerMachine/synced(isDone:at:)`` follows.
    case sync
    /// The partition's copy is complete up to this offset of the changelog.
    case checkpoint(partition: Int32, position: Int64)
    /// Lets go of the partition's part of the store.
    case forgetStore(Int32)
    /// Drops copies of other partitions; ``WorkerMachine/droppedCopies(areMore:)`` follows.
    case dropCopies(except: Set<Int32>)

    // The rest.

    /// Pushes, and without transactions records, may leave until then.
    case extendPermit(until: UInt64)
    case note(WorkerNote)
    /// The worker has ended.
    case ended(WorkerEnd)
}

/// Where a partition is read from.
public struct PartitionBegin: Sendable, Equatable {
    public var partition: Int32
    /// Nil: nothing is committed; the client's `auto.offset.reset` decides.
    public var offset: Int64?

    public init(partition: Int32, offset: Int64?) {
        self.partition = partition
        self.offset = offset
    }
}

/// What the group has committed for a partition.
public struct FetchedOffset: Sendable, Equatable {
    public var partition: Int32
    /// Nil: nothing.
    public var offset: Int64?
    public var metadata: String
    /// End of the partition's log, one above its last offset; nil: it isn't known, or wasn't asked for.
    public var logEnd: Int64?

    /// The topic was made anew since the commit.
    var isOfEarlierLog: Bool {
        guard let offset, let logEnd else { return false }
        return offset > logEnd
    }

    public init(partition: Int32, offset: Int64?, metadata: String = "", logEnd: Int64? = nil) {
        self.partition = partition
        self.offset = offset
        self.metadata = metadata
        self.logEnd = logEnd
    }
}

/// How a worker has ended.
public struct WorkerEnd: Sendable, Equatable {
    /// Nil: a stop was asked for.
    public var failure: WorkerFault?
    /// All jobs have ended and all is committed.
    public var isClean: Bool
}

/// Why a worker can't go on.
public struct WorkerFault: Sendable, Equatable {
    public enum Cause: Sendable, Equatable {
        /// Text for people.
        case other(String)
        case consumer
        /// Another member of the group has this one's `group.instance.id`.
        case instanceTaken
        case producer
        case transactions
        /// Another producer has this one's transactional identifier.
        case fenced
        /// Kafka refuses a record for this topic.
        case refusedRecord(topic: String)
        case commitMetadata
        case changelog
        case offsetTooHigh(partition: Int32, offset: Int64)
        case logWentBack(partition: Int32)
    }

    public var cause: Cause
    /// Nil: the cause says all.
    public var fault: KafkaFault?
    /// New clients, which begin with what is committed, may succeed.
    public var startsOver: Bool
}

/// Something that has happened, for the log.
public enum WorkerNote: Sendable, Equatable {
    case partitionsAssigned([Int32])
    case partitionsRevoked([Int32], isLost: Bool)
    case takeOverFailed([Int32], KafkaFault)
    case restoring([Int32])
    case copyTooOld(Int32)
    case restoreInterrupted(Int32, KafkaFault)
    case metadataNotOurs(Int32, CommitMetadata.Problem)
    case logWentBack(Int32, from: Int64, to: Int64)
    case pausedForWindow(Int32, watermark: Int64, finishedAbove: Int64)
    case pausedForShare(Int32, jobs: Int, bytes: Int)
    case pausedForLimit(jobs: Int, bytes: Int)
    case secondOutcome(Int32, offset: Int64)
    case commitFailed(KafkaFault)
    case lastCommitFailed
    case lastOffsetsUnsafe
    case transactionStepFailed(TransactionCycle.StepResult)
    case transactionAborted(KafkaFault)
    case lastTransactionOpen
    case storeFailed
    case storeWorks
    case storeIsBehind
    case storeHasCaughtUp
    case membershipInDoubt(partitions: Int)
    case draining(jobs: Int)
    case drainDeadline(jobs: Int)
    /// The machine is in a state that can't be.
    case invariantBroken(String)
    case failed(WorkerFault)
    case stopsAtOnce(WorkerFault)
}
