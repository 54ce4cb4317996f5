import DeliveryCore

/// Counts of the transitions that the machines of whole workers have made, and of rare paths.
///
/// All are observed from outside, between two calls.
public struct FleetCoverage: Sendable {
    /// A transition of a machine, from one state to another.
    public struct Transition: Hashable, Sendable, CustomStringConvertible {
        public var machine: FleetMachine
        public var from: UInt8
        public var to: UInt8

        public var description: String {
            "\(machine): \(machine.states[Int(from)]) > \(machine.states[Int(to)])"
        }
    }

    private static let width = 16
    private var transitions = [UInt32](
        repeating: 0, count: FleetMachine.allCases.count * width * width)
    private var milestones = [UInt32](repeating: 0, count: FleetMilestone.allCases.count)

    public init() {}

    private static func index(_ machine: FleetMachine, _ from: UInt8, _ to: UInt8) -> Int {
        (Int(machine.rawValue) * width + Int(from)) * width + Int(to)
    }

    mutating func moved(_ machine: FleetMachine, from: UInt8, to: UInt8) {
        transitions[Self.index(machine, from, to)] &+= 1
    }

    mutating func reached(_ milestone: FleetMilestone, times: Int = 1) {
        milestones[milestone.rawValue] &+= UInt32(truncatingIfNeeded: times)
    }

    public mutating func add(_ other: FleetCoverage) {
        for index in transitions.indices where other.transitions[index] > 0 {
            transitions[index] &+= other.transitions[index]
        }
        for index in milestones.indices { milestones[index] &+= other.milestones[index] }
    }

    public subscript(transition: Transition) -> Int {
        Int(transitions[Self.index(transition.machine, transition.from, transition.to)])
    }

    public subscript(milestone: FleetMilestone) -> Int { Int(milestones[milestone.rawValue]) }

    /// All transitions that were seen.
    public var seen: [Transition] {
        var seen: [Transition] = []
        for machine in FleetMachine.allCases {
            for from in machine.states.indices {
                for to in machine.states.indices {
                    let transition = Transition(machine: machine, from: UInt8(from), to: UInt8(to))
                    if self[transition] > 0 { seen.append(transition) }
                }
            }
        }
        return seen
    }

    /// Numbers of all entries that were seen, each the same in every coverage.
    public var seenNumbers: [Int] {
        transitions.indices.filter { transitions[$0] > 0 }
            + milestones.indices.filter { milestones[$0] > 0 }.map { transitions.count + $0 }
    }

    // MARK: The list

    /// Returns the names of expected entries that were never seen: states, then transitions between other states, then
    /// milestones.
    public func missing(_ expected: FleetExpectation) -> [String] {
        let missing = expected.transitions.filter { self[$0] == 0 }
        var entered: [FleetMachine: Set<UInt8>] = [:]
        for transition in expected.transitions where self[transition] > 0 {
            entered[transition.machine, default: []].formUnion([transition.from, transition.to])
        }
        var states: [String] = []
        var others: [String] = []
        for transition in missing {
            if entered[transition.machine]?.contains(transition.to) == true {
                others.append(transition.description)
                continue
            }
            let name = "\(transition.machine): \(transition.machine.states[Int(transition.to)])"
            if states.last != name { states.append(name) }
        }
        return states + others
            + expected.milestones.filter { self[$0] == 0 }.map { "milestone \($0)" }
    }

    /// Transitions that were seen and aren't in the list.
    public func unexpected(_ expected: FleetExpectation) -> [Transition] {
        let known = Set(expected.transitions)
        return seen.filter { !known.contains($0) }
    }

    /// Lines with each transition and milestone, and its count.
    public var lines: [String] {
        seen.map { "\($0): \(self[$0])" }
            + FleetMilestone.allCases.map { "milestone \($0): \(self[$0])" }
    }
}

/// A machine, or a part of one, with discrete states.
public enum FleetMachine: UInt8, CaseIterable, Sendable {
    // Parts of a worker.
    case drain, cycle, step, freeze, commit, question, lease, takeOver, revocation, intake, store, copies
    // Parts of a partition.
    case partition, restore, limitPause, windowPause, sharePause, storePause, due, ahead, scan
    // Parts of a shard.
    case order, load, item, admission, circuit

    /// Names of its states, at most 16.
    public var states: [String] { Self.names[Int(rawValue)] }

    private static let names: [[String]] = allCases.map { machine in
        switch machine {
        case .drain: names(of: Drain.Phase.self)
        case .cycle:
            names(of: TransactionCycle.State.self)
                + [
                    "beginningLater", "sendingOffsetsLater", "committingLater", "abortingLater",
                    "initializingLater",
                ]
        case .step: names(of: TransactionCycle.Step.self) + ["done", "retriable", "abortable", "fatal"]
        case .freeze: names(of: TransactionalCommits.Stage.self)
        case .commit: names(of: Committer.Stage.self)
        case .lease: names(of: WorkerStates.Lease.self)
        case .takeOver: names(of: WorkerStates.TakeOver.self)
        case .revocation: names(of: WorkerStates.GivingUp.self)
        case .intake: names(of: WorkerStates.Intake.self)
        case .partition: names(of: PartitionStates.Stage.self)
        case .restore: names(of: PartitionStates.Restore.self)
        case .due: names(of: DueSchedule.State.self)
        case .order: names(of: ProduceOrder.State.self)
        case .load: ["none"] + names(of: DeviceLoad.State.self)
        case .item: names(of: ItemState.self)
        case .admission:
            ["record", "restored", "adopted"]
                + ["placed", "replaced", "obsolete", "repeated", "deviceFull", "expired", "full"]
        case .circuit: names(of: TopicCircuit.State.self)
        case .question, .store, .copies, .limitPause, .windowPause, .sharePause, .storePause, .ahead, .scan:
            ["off", "on"]
        }
    }

    private static func names<State: CaseIterable>(of: State.Type) -> [String] {
        State.allCases.map { "\($0)" }
    }
}

/// A rare path, besides transitions.
public enum FleetMilestone: Int, CaseIterable, Sendable {
    // Records that the worker takes, and reports of records that it has produced.
    case handed, replayed, heldBack, discarded, producedAgain, producedWithoutValue
    // Notes of the worker.
    case takeOverFailed, restoreInterrupted, pausedForWindow, pausedForShare, pausedForLimit, commitFailed,
        lastCommitFailed, lastOffsetsUnsafe, transactionAborted, lastTransactionOpen, storeFailed, storeWorks,
        membershipInDoubt, drainDeadline, failed, stopsAtOnce, partitionLost, secondOutcome, logWentBack,
        tailLost, offsetUnexplained, catchUpCut
    // Orders of the worker.
    case relieved, checkpoint, membershipAsked, commitHeld, dueHanded, suspendedHanded, removedFromStore
    // The order of records.
    case gaveBack, released, armTimer, refused, droppedChange, recordFailed, resumed
    // Devices whose items are in the store.
    case takeIn, proceed, refuse, takeOver, leaveInStore, letGo, load, removeMark, removed
    case deferred, waitedForTwo, reloaded, shortOfRoom, partial, awaitedSlot, leftInStore, skipped, future,
        stale, putOff
    // The delivery machine.
    case retried, repeated, dropped, evicted, departed, stored, offsetDone, requeued, moveNoted, readdressed,
        alert, recovered, presenceKept, presenceExpired, presenceForgotten, topicSuspended, topicResumed,
        probeWanted, awaitsTurn
    case accepted, confirmed, rejected, expired, superseded, cancelled, undeliverable
}

extension SIMD8<Int32> {
    /// Comparison of all at once. That of the library takes them one by one.
    @inline(__always)
    static func != (one: Self, other: Self) -> Bool {
        let (one, other) = (
            unsafeBitCast(one, to: SIMD4<UInt64>.self), unsafeBitCast(other, to: SIMD4<UInt64>.self)
        )
        let different = one ^ other
        return different[0] | different[1] | different[2] | different[3] != 0
    }
}
