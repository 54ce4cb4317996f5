/// States of the parts of a worker between two calls.
package struct WorkerStates: Equatable, Sendable {
    package enum Lease: UInt8, CaseIterable, Sendable {
        case certain, doubtful
        /// The group has confirmed the membership, and the shards are awaited.
        case confirmed
    }

    package enum TakeOver: UInt8, CaseIterable, Sendable {
        case none
        case awaitingFormerOwners
        /// Kafka has not answered for the former owners, and is asked again later.
        case awaitingFormerOwnersLater
        case restoring
        case fetching
        /// Kafka has not answered, and is asked again later.
        case fetchingLater
    }

    package enum GivingUp: UInt8, CaseIterable, Sendable {
        case none, settling
        /// Another commit is under way.
        case awaitingCommit
        case committing
    }

    package enum Intake: UInt8, CaseIterable, Sendable {
        case flowing, stalled, paused
    }

    package var phase: Drain.Phase
    package var cycle = TransactionCycle.State.unstarted
    package var isPausing = false
    package var transactions = TransactionalCommits.Stage.frozen
    package var commit: Committer.Stage
    package var isAsking: Bool
    package var lease: Lease
    package var takeOver = TakeOver.none
    package var givingUp = GivingUp.none
    package var intake: Intake
    package var storeFails: Bool
    package var dropsCopies: Bool
}

/// States of one partition, whether or not it is the worker's.
package struct PartitionStates: Equatable, Sendable {
    package enum Stage: UInt8, CaseIterable, Sendable {
        case none, taking
        /// The window of offsets is full, and records wait for it.
        case holding
        case settling
    }

    package enum Restore: UInt8, CaseIterable, Sendable {
        case none, opening, restoring, loadingMarks, ready
    }

    package var stage = Stage.none
    package var restore = Restore.none
    package var reasons = IntakeGate.Reason()
    package var due = DueSchedule.State.none
    package var hasAhead = false
    package var awaitsScan = false

    package init() {}
}

extension WorkerMachine {
    package var states: WorkerStates {
        var states = WorkerStates(
            phase: drain.phase, commit: committer.stage, isAsking: committer.isAsking,
            lease: !lease.isDoubtful ? .certain : lease.awaitsShards ? .confirmed : .doubtful,
            intake: gate.isPausedForLimit ? .paused : gate.isStalled ? .stalled : .flowing,
            storeFails: isStoreFailing, dropsCopies: copies.isUnderWay)
        if transactions != nil {
            states.cycle = transactions!.state
            states.isPausing = transactions!.isPausing
            states.transactions = transactions!.stage
        }
        states.takeOver = takeOver
        if revocation != nil {
            let isIssued = revocation!.isIssued
            states.givingUp =
                revocation!.stage == .settling ? .settling : isIssued ? .committing : .awaitingCommit
        }
        return states
    }

    /// Value that changes with the state of any part of the worker, and of any of its partitions.
    package var stateMark: UInt64 {
        var mark = UInt64(drain.phase.rawValue) &<< 8 | UInt64(committer.stage.rawValue)
        add(&mark, committer.isAsking, lease.isDoubtful, lease.awaitsShards)
        add(&mark, gate.isPausedForLimit, gate.isStalled, isStoreFailing)
        add(&mark, copies.isUnderWay, !arrivals.isEmpty, revocation != nil)
        if transactions != nil {
            mark = mark &* 31 &+ UInt64(transactions!.state.rawValue)
            mark = mark &* 31 &+ UInt64(transactions!.stage.rawValue) &* 2
            if transactions!.isPausing { mark &+= 1 }
        }
        mark = mark &* 31 &+ arrivals.stateMark
        if revocation != nil {
            mark = mark &* 31 &+ UInt64(revocation!.stage.rawValue)
            if revocation!.isIssued { mark &+= 8 }
        }
        partitions.forEachIndex { index in
            mark =
                mark &* 31 &+ UInt64(partitions[index].slot) &* 64 &+ UInt64(gate.reasons(index).rawValue)
                &* 4
            if partitions[index].isEnding { mark &+= 1 }
            if partitions[index].hasDeferredRecords { mark &+= 2 }
        }
        if settings.mode.hasStore { mark = mark &* 31 &+ due.stateMark &* 31 &+ restore.stateMark }
        return mark
    }

    /// State of the arriving partition that is nearest to being read.
    private var takeOver: WorkerStates.TakeOver {
        guard !arrivals.isEmpty else { return .none }
        let asked = arrivals.askedStage
        if arrivals.contains(.fetching) { return asked == .fetching ? .fetching : .fetchingLater }
        if arrivals.contains(.restoring) { return .restoring }
        return asked == .awaitingFormerOwners ? .awaitingFormerOwners : .awaitingFormerOwnersLater
    }

    @inline(__always)
    private func add(_ mark: inout UInt64, _ one: Bool, _ two: Bool, _ three: Bool) {
        mark = mark &* 31 &+ (one ? 1 : 0) &+ (two ? 2 : 0) &+ (three ? 4 : 0)
    }

    /// Returns the offset that may be committed of a partition; nil: the partition isn't this worker's. Records that
    /// are read once more hold the offset below the watermark.
    package func committable(ofPartition partition: Int32) -> Int64? {
        partitions.index(ofPartition: partition).map { partitions[$0].commitPoint().offset }
    }

    package func states(ofPartition partition: Int32) -> PartitionStates {
        var states = PartitionStates()
        if !restore.isEmpty {
            switch restore.stage(partition) {
            case nil: break
            case .opening?, .opened?: states.restore = .opening
            case .restoring?: states.restore = .restoring
            case .loadingMarks?: states.restore = .loadingMarks
            case .ready?: states.restore = .ready
            }
        }
        guard let index = partitions.index(ofPartition: partition) else { return states }
        states.stage =
            partitions[index].isEnding ? .settling : partitions[index].hasDeferredRecords ? .holding : .taking
        states.reasons = gate.reasons(index)
        guard settings.mode.hasStore else { return states }
        let slot = partitions[index].slot
        states.due = due.state(slot)
        states.hasAhead = due.hasAhead(slot)
        states.awaitsScan = due.awaitsScan(slot)
        return states
    }
}
