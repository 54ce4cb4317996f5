import SluiceModel
import Testing

@testable import DeliveryCore

/// Plays the shell of a machine, and records its actions.
final class WorkerScript {
    static let second: UInt64 = 1_000_000_000

    private(set) var machine: WorkerMachine
    private(set) var now = WorkerScript.second
    private(set) var actions: [WorkerAction] = []
    private var recordTime: Int64 = 1_000

    init(_ mode: StoreMode = .none, shards: Int = 2, jobs: Int = 100) {
        machine = WorkerMachine(
            .init(
                mode: mode, shards: shards, gate: .init(jobs: jobs, bytes: 1 << 30),
                commitInterval: Self.second / 5, transactionInterval: Self.second / 5,
                drainDeadline: 20 * Self.second,
                revokeDeadline: 10 * Self.second, sessionTimeout: 10 * Self.second, readsFromBeginning: true,
                highestOffset: 1 << 40), now: now)
        apply { $0.start(at: $1) }
    }

    /// Passes an event to the machine. Returns the actions that follow.
    @discardableResult
    func apply(_ fact: (inout WorkerMachine, UInt64) -> Void) -> [WorkerAction] {
        fact(&machine, now)
        var emitted: [WorkerAction] = []
        while let action = machine.nextAction() { emitted.append(action) }
        actions += emitted
        return emitted
    }

    func pass(_ nanoseconds: UInt64) { now += nanoseconds }

    /// Reads a property, because an expectation would copy the machine, which can't be copied.
    func read<Value>(_ body: (borrowing WorkerMachine) -> Value) -> Value { body(machine) }

    @discardableResult
    func tick() -> [WorkerAction] {
        apply { machine, now in
            machine.tick(
                at: DeliveryTime(
                    wallMilliseconds: 1_700_000_000_000 + Int64(now / 1_000_000), monotonicNanoseconds: now))
        }
    }

    /// Lets time pass in ticks of a tenth of a second.
    @discardableResult
    func passTicks(_ count: Int = 10) -> [WorkerAction] {
        (0..<count).flatMap { _ in
            pass(Self.second / 10)
            return tick()
        }
    }

    /// The group assigns partitions, and Kafka answers every request at once.
    @discardableResult
    func assign(_ partitions: [Int32], offset: Int64? = nil) -> [WorkerAction] {
        var emitted = followed(apply { $0.assigned(partitions, at: $1) })
        while true {
            guard case .fetchCommitted(let asked, let ticket, _, _)? = emitted.last(where: \.isFetch) else {
                break
            }
            emitted = apply { machine, now in
                machine.fetched(
                    ticket,
                    .success(asked.map { FetchedOffset(partition: $0, offset: offset, logEnd: 1_000) }),
                    at: now)
            }
            emitted = followed(emitted)
        }
        return emitted
    }

    /// The group assigns a partition whose log ends at 1,000, below the group's offset of 1,001. The newest record that
    /// was read is of 5,000 ms.
    func assign(log answers: LogEvidence.Answers?) throws -> [WorkerAction] {
        let emitted = followed(apply { $0.assigned([0], at: $1) })
        let offset = FetchedOffset(
            partition: 0, offset: 1_001,
            metadata: CommitMetadata.encode(watermark: 1_001, completed: [], newestMilliseconds: 5_000),
            logEnd: 1_000, answers: answers)
        var all: [WorkerAction] = []
        var last = emitted
        while case .fetchCommitted(_, let ticket, _, _)? = last.last(where: \.isFetch) {
            last = followed(apply { $0.fetched(ticket, .success([offset]), at: $1) })
            all += last
        }
        return all
    }

    /// Kafka answers a request for offsets.
    func answerOffsets(_ emitted: [WorkerAction], offset: Int64 = 3) throws -> [WorkerAction] {
        guard case .fetchCommitted(let asked, let ticket, _, _)? = emitted.last(where: \.isFetch) else {
            throw KafkaFault("no offsets are fetched")
        }
        return apply { machine, now in
            machine.fetched(
                ticket, .success(asked.map { FetchedOffset(partition: $0, offset: offset, logEnd: 1_000) }),
                at: now)
        }
    }

    /// The group assigns partitions with a changelog, and their copies are opened.
    func openCopies(_ partitions: [Int32]) throws -> [PartitionRestore.Attempt] {
        let emitted = try answerOffsets(apply { $0.assigned(partitions, at: $1) })
        guard case .restore(.openCopies(let copies))? = emitted.first(where: \.isRestore) else {
            throw KafkaFault("no copies are opened")
        }
        apply { $0.openedCopies(copies, isOpen: true, at: $1) }
        return copies
    }

    private func answer(_ action: PartitionRestore.Action) -> [WorkerAction] {
        switch action {
        case .open(let attempt): followed(apply { $0.opened(attempt, isOpen: true, at: $1) })
        case .openCopies(let attempts): followed(apply { $0.openedCopies(attempts, isOpen: true, at: $1) })
        case .restore(let attempts):
            attempts.flatMap { attempt in
                followed(apply { $0.restored(attempt, position: 7, at: $1) })
            }
        case .loadMarks(let attempt): followed(apply { $0.loadedMarks(attempt, isLoaded: true, at: $1) })
        case .cancel: []
        }
    }

    private func followed(_ emitted: [WorkerAction]) -> [WorkerAction] {
        var all = emitted
        for case .restore(let action) in emitted { all += answer(action) }
        return all
    }

    /// Takes a record that is newer than all before, or has the given time.
    func take(
        _ offset: Int64, partition: Int32 = 0, milliseconds: Int64? = nil
    ) -> WorkerMachine.RecordFate {
        var fate = WorkerMachine.RecordFate.discard
        recordTime += 1
        let time = milliseconds ?? recordTime
        apply { machine, now in
            fate = machine.accept(
                partition: partition, offset: offset, bytes: 100, milliseconds: time, shard: 0,
                handle: UInt(offset) + 1, at: now)
        }
        return fate
    }

    @discardableResult
    func deliver(
        _ offset: Int64, slot: UInt16 = 0, isStored: Bool = false, isOffsetDone: Bool = false
    )
        -> [WorkerAction]
    {
        apply { machine, now in
            machine.delivered(
                OutcomePlace(RecordPlace(partitionSlot: slot, offset: offset), isOffsetDone: isOffsetDone),
                isStored: isStored, device: 5, at: now)
        }
    }

    @discardableResult
    func report(_ shard: Int, _ report: ShardReport) -> [WorkerAction] {
        apply { $0.shard(shard, report, at: $1) }
    }

    @discardableResult
    func reportAll(_ report: (Int) -> ShardReport) -> [WorkerAction] {
        (0..<2).flatMap { self.report($0, report($0)) }
    }

    @discardableResult
    func flushAll(produced: Int = 0, epoch: UInt32 = 0) -> [WorkerAction] {
        reportAll {
            .flushed(
                ShardFlush(
                    hasWritten: true, produced: $0 == 0 ? produced : 0,
                    epoch: ChangeEpoch(shard: UInt16($0), epoch: epoch)))
        }
    }

    @discardableResult
    func polled() -> [WorkerAction] {
        apply { $0.reportsPolled(unreported: 0, bytesHeld: 0, at: $1) }
    }

    @discardableResult
    func step(_ step: TransactionCycle.Step, _ failure: TransactionCycle.Failure? = nil) -> [WorkerAction] {
        apply { $0.stepFinished(.init(step, failure), at: $1) }
    }

    @discardableResult
    func freezeAll(_ number: UInt64, produced: Int) -> [WorkerAction] {
        reportAll { .frozen(number: number, produced: $0 == 0 ? produced : 0) }
    }
}

extension WorkerAction {
    var isFetch: Bool { if case .fetchCommitted = self { true } else { false } }
    var isRestore: Bool { if case .restore(.openCopies) = self { true } else { false } }
    var commit: (set: Committer.CommitSet, ticket: UInt64)? {
        if case .commit(let set, let ticket) = self { (set, ticket) } else { nil }
    }
    var offsets: [Committer.CommitSet.Part]? {
        if case .sendOffsets(let parts) = self { parts } else { nil }
    }
    var request: ShardRequest? {
        if case .requestAll(let request) = self { request } else { nil }
    }
}
