import DeliveryCore

/// Observation of a worker's machine, between its calls.
extension WorkerProcess {
    struct Watch {
        var states: WorkerStates
        var partitions: [PartitionStates]
        var mark: UInt64 = 0
    }

    /// To be called after each call of the machine.
    @inline(__always)
    func observe() {
        let mark = machine.stateMark
        guard mark != watch.mark else { return }
        watch.mark = mark
        compare()
    }

    private func compare() {
        let states = machine.states
        if states != watch.states { moved(to: states) }
        for number in watch.partitions.indices {
            let states = machine.states(ofPartition: Int32(number))
            if states != watch.partitions[number] { moved(number, to: states) }
        }
    }

    private func moved(to new: WorkerStates) {
        let old = watch.states
        watch.states = new
        moved(.drain, old.phase.rawValue, new.phase.rawValue)
        moved(.cycle, Self.cycle(old), Self.cycle(new))
        moved(.freeze, old.transactions.rawValue, new.transactions.rawValue)
        moved(.commit, old.commit.rawValue, new.commit.rawValue)
        moved(.question, old.isAsking, new.isAsking)
        moved(.lease, old.lease.rawValue, new.lease.rawValue)
        moved(.takeOver, old.takeOver.rawValue, new.takeOver.rawValue)
        moved(.revocation, old.givingUp.rawValue, new.givingUp.rawValue)
        moved(.intake, old.intake.rawValue, new.intake.rawValue)
        moved(.store, old.storeFails, new.storeFails)
        moved(.copies, old.dropsCopies, new.dropsCopies)
    }

    private func moved(_ number: Int, to new: PartitionStates) {
        let old = watch.partitions[number]
        watch.partitions[number] = new
        moved(.partition, old.stage.rawValue, new.stage.rawValue)
        moved(.restore, old.restore.rawValue, new.restore.rawValue)
        moved(.due, old.due.rawValue, new.due.rawValue)
        moved(.ahead, old.hasAhead, new.hasAhead)
        moved(.scan, old.awaitsScan, new.awaitsScan)
        moved(.limitPause, old.reasons.contains(.limit), new.reasons.contains(.limit))
        moved(.windowPause, old.reasons.contains(.window), new.reasons.contains(.window))
        moved(.sharePause, old.reasons.contains(.share), new.reasons.contains(.share))
        moved(.storePause, old.reasons.contains(.store), new.reasons.contains(.store))
    }

    private func moved(_ machine: FleetMachine, _ old: UInt8, _ new: UInt8) {
        if old != new { world.coverage.moved(machine, from: old, to: new) }
    }

    private func moved(_ machine: FleetMachine, _ old: Bool, _ new: Bool) {
        if old != new { world.coverage.moved(machine, from: old ? 1 : 0, to: new ? 1 : 0) }
    }

    /// The number of a state of the cycle, in which a pause counts as another one.
    private static func cycle(_ states: WorkerStates) -> UInt8 {
        guard states.isPausing else { return states.cycle.rawValue }
        let count = UInt8(TransactionCycle.State.allCases.count)
        return switch states.cycle {
        case .beginning: count
        case .sendingOffsets: count + 1
        case .committing: count + 2
        case .aborting: count + 3
        default: count + 4
        }
    }

    /// A step of the transactional producer has ended.
    func stepEnded(_ result: TransactionCycle.StepResult) {
        let count = UInt8(TransactionCycle.Step.allCases.count)
        let to: UInt8 =
            switch result.failure {
            case nil: 0
            case .retriable?: 1
            case .abortable?: 2
            case .fatal?: 3
            }
        world.coverage.moved(.step, from: result.step.rawValue, to: count + to)
    }

    func count(_ note: WorkerNote) {
        let milestone: FleetMilestone
        switch note {
        case .takeOverFailed: milestone = .takeOverFailed
        case .restoreInterrupted: milestone = .restoreInterrupted
        case .pausedForWindow: milestone = .pausedForWindow
        case .pausedForShare: milestone = .pausedForShare
        case .pausedForLimit: milestone = .pausedForLimit
        case .commitFailed: milestone = .commitFailed
        case .lastCommitFailed: milestone = .lastCommitFailed
        case .lastOffsetsUnsafe: milestone = .lastOffsetsUnsafe
        case .transactionAborted: milestone = .transactionAborted
        case .lastTransactionOpen: milestone = .lastTransactionOpen
        case .storeFailed: milestone = .storeFailed
        case .storeWorks: milestone = .storeWorks
        case .membershipInDoubt: milestone = .membershipInDoubt
        case .drainDeadline: milestone = .drainDeadline
        case .failed: milestone = .failed
        case .stopsAtOnce: milestone = .stopsAtOnce
        case .secondOutcome: milestone = .secondOutcome
        case .catchUpCut: milestone = .catchUpCut
        case .tailLost: milestone = .tailLost
        case .offsetUnexplained: milestone = .offsetUnexplained
        case .partitionsRevoked(_, let isLost):
            guard isLost else { return }
            milestone = .partitionLost
        case .partitionsAssigned, .partitionStopped, .restoring, .copyTooOld, .metadataNotOurs, .logWentBack,
            .transactionStepFailed, .storeIsBehind, .storeHasCaughtUp, .draining, .invariantBroken,
            .pushesHeld, .pushesResumed:
            return
        }
        world.coverage.reached(milestone)
    }

    func count(_ action: WorkerAction) {
        switch action {
        case .checkpoint: world.coverage.reached(.checkpoint)
        case .requestAll(.relieve): world.coverage.reached(.relieved)
        case .request(_, .due): world.coverage.reached(.dueHanded)
        case .request(_, .suspended): world.coverage.reached(.suspendedHanded)
        case .request(_, .remove): world.coverage.reached(.removedFromStore)
        case .commit(let set, _) where set.kind == .membership: world.coverage.reached(.membershipAsked)
        case .note(let note): count(note)
        default: break
        }
    }
}
