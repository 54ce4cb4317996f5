/// Orders of ``WorkerMachine`` to its shell, in the order in which they were made.
public enum WorkerAction: Sendable, Equatable {
    // Records.

    /// Hands a record that was held back to a shard.
    case hand(handle: UInt, shard: Int, slot: UInt16, bytes: Int, isReplay: Bool)
    /// Destroys a record that was held back.
    case discard(handle: UInt, bytes: Int)
    /// Copy the records that are held back into memory of their own, by
    /// ``WorkerMachine/replaceDeferredHandles(_:)``.
    case copyDeferred
    /// Polls soon.
    case poll

    // The consumer.

    /// Pauses these assigned partitions.
    case pause([Int32])
    /// Resumes these paused partitions.
    case resume([Int32])
    /// Asks for the group's committed offsets, away from this thread; ``WorkerMachine/fetched(_:_:at:)`` follows. An
    /// open transaction of a former owner delays the answer.
    /// - Parameter wantsLogEnds: ends of the partitions' logs are asked for, too, and answers to
    ///   ``FetchedOffset/evidence``.
    case fetchCommitted([Int32], ticket: UInt64, patienceMilliseconds: Int32, wantsLogEnds: Bool)
    /// Reads these assigned partitions as well from now on. Answers the assignment, unless it is answered already.
    case assign([PartitionBegin])
    /// Answers a revocation.
    case unassign([Int32])
    /// ``WorkerMachine/committed(_:fault:at:)`` follows.
    case commit(Committer.CommitSet, ticket: UInt64)
    /// Leaves the group and closes the clients; ``WorkerMachine/closed()`` follows.
    case close(timeoutMilliseconds: Int32)

    // Refused records. Only without transactions.

    /// Produces a record again that ``WorkerMachine/LostFate/keep`` kept.
    case produceAgain(RefusedRecord)
    /// Forgets a record that ``WorkerMachine/LostFate/keep`` kept.
    case forgetRefused(OutcomePlace)

    // The transactional producer.

    /// ``WorkerMachine/stepFinished(_:at:)`` follows.
    case step(TransactionCycle.Step)
    /// Sends these offsets; ``WorkerMachine/stepFinished(_:at:)`` follows. Without any offsets, the group isn't fenced.
    case sendOffsets([Committer.CommitSet.Part])

    // Shards.

    /// Sends a request to a shard.
    case request(shard: Int, ShardRequest)
    /// Sends a request to every shard.
    case requestAll(ShardRequest)

    // The store.

    /// Carries out a step of a partition's restore.
    case restore(PartitionRestore.Action)
    /// Extends the changelog to as many partitions as the jobs topic has, away from this thread. Nothing follows.
    case extendChangelog
    /// Offsets below this offset are committed.
    case advanceCommitted(slot: UInt16, Int64)
    /// Reports to all shards which devices the store has items of; ``WorkerMachine/scanFailed(slot:)`` may follow.
    case scanItems(slot: UInt16, partition: Int32)
    /// ``WorkerMachine/found(_:_:isEnd:at:)`` follows.
    case scanDue(DueSchedule.Look, partition: Int32)
    /// ``WorkerMachine/foundSuspended(_:_:cursor:isEnd:at:)`` follows.
    case scanSuspended(SuspendedSchedule.Look, partition: Int32)
    /// ``WorkerMachine/foundExpired(_:_:last:isEnd:at:)`` follows.
    case scanExpired(ExpirySchedule.Look, partition: Int32)
    /// ``WorkerMachine/synced(isDone:at:)`` follows.
    case sync
    /// The partition's copy is complete up to this offset of the changelog.
    case checkpoint(partition: Int32, position: Int64)
    /// Releases the partition's part of the store.
    case forgetStore(Int32)
    /// Drops copies of other partitions; ``WorkerMachine/droppedCopies(areMore:at:)`` follows.
    case dropCopies(except: Set<Int32>)

    // The rest.

    /// Pushes may leave until then, and without transactions records as well.
    case extendPermit(until: UInt64)
    /// The shards may have begun this many pushes since the worker's start, together.
    case allowPushes(Int)
    /// Logs an event.
    case note(WorkerNote)
    /// The worker has ended.
    case ended(WorkerEnd)
}

/// Start of a partition's reading.
public struct PartitionBegin: Sendable, Equatable {
    public var partition: Int32
    /// Offset to read from; nil: nothing is committed, and the client's `auto.offset.reset` decides.
    public var offset: Int64?

    public init(partition: Int32, offset: Int64?) {
        self.partition = partition
        self.offset = offset
    }
}

/// Offset and metadata that the group has committed for a partition.
public struct FetchedOffset: Sendable, Equatable {
    public var partition: Int32
    /// Committed offset; nil: nothing is committed.
    public var offset: Int64?
    /// Metadata that was committed with the offset; may be empty.
    public var metadata: String
    /// First offset of the partition's log; 0 when ``logEnd`` is nil.
    public var logStart: Int64
    /// End of the partition's log, its last offset plus one; nil: the end isn't known, or wasn't asked for.
    public var logEnd: Int64?
    /// Answers to ``evidence``; nil: nothing was asked, or the leader hasn't answered.
    public var answers: LogEvidence.Answers?

    /// Time to ask the partition's leader about, because the offset lies beyond the log's end. In milliseconds since
    /// the epoch; nil: there is nothing to ask, or no evidence.
    public var evidence: Int64? {
        guard let offset, let logEnd, offset > logEnd, logEnd > logStart else { return nil }
        let newest = CommitMetadata.decode(metadata, committedOffset: offset).newestMilliseconds
        return newest > 0 ? newest : nil
    }

    var log: LogEvidence.Log {
        LogEvidence.log(committed: offset, start: logStart, end: logEnd, answers)
    }

    /// Offset to read from; nil: nothing is committed.
    var beginning: Int64? {
        switch log {
        case .same, .unknown: offset
        case .shorter(let from), .new(let from): from
        }
    }

    public init(
        partition: Int32, offset: Int64?, metadata: String = "", logStart: Int64 = 0, logEnd: Int64? = nil,
        answers: LogEvidence.Answers? = nil
    ) {
        self.partition = partition
        self.offset = offset
        self.metadata = metadata
        self.logStart = logStart
        self.logEnd = logEnd
        self.answers = answers
    }
}

/// End of a worker.
public struct WorkerEnd: Sendable, Equatable {
    /// Failure of the worker; nil: a stop was asked for.
    public var failure: WorkerFault?
    /// True when all jobs have ended and all is committed.
    public var isClean: Bool
}

/// Reason why a worker can't continue.
public struct WorkerFault: Sendable, Equatable {
    /// Cause of a failure.
    public enum Cause: Sendable, Equatable {
        /// Text for people.
        case other(String)
        /// The consumer's client is unusable.
        case consumer
        /// Another member of the group has this member's `group.instance.id`.
        case instanceTaken
        /// The producer's client is unusable.
        case producer
        /// A step of a transaction failed for good.
        case transactions
        /// Another producer has this producer's transactional identifier.
        case fenced
        /// Kafka refuses a record for this topic.
        case refusedRecord(topic: String)
        /// The brokers refuse the metadata of commits, because it is longer than they accept.
        case commitMetadata
        /// A change of the store didn't reach the changelog.
        case changelog
        /// The store goes on failing until it is opened anew.
        case store
        /// A record's offset is higher than outcomes can name.
        case offsetTooHigh(partition: Int32, offset: Int64)
        /// The partition's offsets went back, because its topic was recreated or the group's offsets were reset.
        case logWentBack(partition: Int32)
        /// The partition's log has lost its end.
        case tailLost(partition: Int32)
    }

    public var cause: Cause
    /// Kafka's error; nil: the cause is complete without an error.
    public var fault: KafkaFault?
    /// True when new clients, which begin with what is committed, may succeed.
    public var startsOver: Bool
}

/// Event of a worker, for the log.
public enum WorkerNote: Sendable, Equatable {
    /// The group has assigned these partitions.
    case partitionsAssigned([Int32])
    /// The group has revoked these partitions. `isLost`: other workers may own them already.
    case partitionsRevoked([Int32], isLost: Bool)
    /// Kafka doesn't report the offsets of these partitions yet. The worker retries.
    case takeOverFailed([Int32], KafkaFault)
    /// The restore of these partitions from the changelog has begun.
    case restoring([Int32])
    /// The partition's copy is older than the changelog's first record. The restore starts from the beginning.
    case copyTooOld(Int32)
    /// The restore of the partition was interrupted. The worker retries.
    case restoreInterrupted(Int32, KafkaFault)
    /// The committed metadata can't be used. Jobs finished above the committed offset are processed again.
    case metadataNotOurs(Int32, CommitMetadata.Problem)
    /// The partition's offsets went back.
    case logWentBack(Int32, from: Int64, to: Int64)
    /// The partition's log has lost its end, and the group's offset `committed` lay beyond. Reading goes on at `from`.
    case tailLost(Int32, committed: Int64, from: Int64)
    /// The group's offset lies beyond the end of the partition's log, and nothing shows why. The partition isn't read
    /// before the group has another offset.
    case offsetUnexplained(Int32, committed: Int64, logEnd: Int64)
    /// Pushes of the partition are sent before all uncommitted records of it were taken in, because there is no room for
    /// more, or taking them in has lasted too long.
    case catchUpCut(Int32, readTo: Int64, logEnd: Int64)
    /// The partition is paused because its window of offsets is full. The job at `watermark` holds it back.
    /// `finishedAbove`: finished offsets between the watermark and the end.
    case pausedForWindow(Int32, watermark: Int64, finishedAbove: Int64)
    /// The partition is paused because its long-held jobs take more than its share. `jobs` and `bytes`: its unfinished
    /// jobs.
    case pausedForShare(Int32, jobs: Int, bytes: Int)
    /// All partitions are paused at the limit of jobs or bytes in flight.
    case pausedForLimit(jobs: Int, bytes: Int)
    /// Kafka takes the outcome or dead letter of the record at this offset in no form. The partition is read no more.
    case partitionStopped(Int32, offset: Int64, topic: String, KafkaFault)
    /// The record at this offset has a second outcome, which is an error of the worker.
    case secondOutcome(Int32, offset: Int64)
    /// A commit failed, or its fate is unknown. The worker retries.
    case commitFailed(KafkaFault)
    /// The last commit failed. Jobs finished since the previous commit are processed again.
    case lastCommitFailed
    /// The last offsets aren't committed, because changes of the store didn't reach the changelog.
    case lastOffsetsUnsafe
    /// A step of the transaction failed.
    case transactionStepFailed(TransactionCycle.StepResult)
    /// A transaction was aborted. Its records are produced again.
    case transactionAborted(KafkaFault)
    /// The last transaction isn't committed. Its jobs are processed again.
    case lastTransactionOpen
    /// The store failed. Nothing is read until it works again.
    case storeFailed
    /// The store works again, and reading resumes.
    case storeWorks
    /// Too many bytes are on their way to the store. Nothing is read until it has caught up.
    case storeIsBehind
    /// The store has caught up, and reading resumes.
    case storeHasCaughtUp
    /// The process was stopped for long. Nothing is sent until the group confirms its partitions, `partitions` in
    /// number.
    case membershipInDoubt(partitions: Int)
    /// No push is begun, because no commit succeeds, or the producer has no identifier. `uncommitted`: outcomes and dead
    /// letters that wait for a commit, about.
    case pushesHeld(uncommitted: Int, awaitsProducer: Bool)
    /// Commits succeed again, and pushes are begun again.
    case pushesResumed
    /// The worker takes no new jobs. `jobs`: unfinished jobs.
    case draining(jobs: Int)
    /// The drain's deadline has passed. `jobs`: unfinished jobs, which are processed again.
    case drainDeadline(jobs: Int)
    /// The machine is in an impossible state.
    case invariantBroken(String)
    /// The worker stops in an orderly way because of a failure.
    case failed(WorkerFault)
    /// The worker stops at once because of a failure. Jobs in flight are processed again.
    case stopsAtOnce(WorkerFault)
}
