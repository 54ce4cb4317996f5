import APNSSimulator
import Foundation
import LoadTest

/// Carries out the actions of a plan, step by step, without waiting for a process.
///
/// Actions that concern different processes proceed at once. Actions of the same process follow each other.
struct StageActions {
    private enum Step {
        case signal(StageSlot, Int32)
        case awaitEnd(StageSlot)
        /// Like `awaitEnd`, for a process that was asked to stop in order: another ending fails the run.
        case awaitOrderlyEnd(StageSlot)
        case pause(Double)
        case start(StageSlot)
        case awaitReady(StageSlot)
        case remove(StageSlot)
    }

    private struct Operation {
        var slots: Set<StageSlot>
        /// Steps that remain.
        var steps: ArraySlice<Step>
        /// Beginning of the first step that remains.
        var since: Double
        /// Index of the annotation.
        var annotation: Int
        /// Whether the process that the first step waits for was killed, because it did not end in time.
        var isKilled = false
    }

    /// Seconds for an orderly end, after which a process is killed.
    private static let endLimit = 40.0
    private static let readyLimit = Duration.seconds(60)

    /// Actions that have not begun, in order of time.
    private var waiting: [StagePlan.Action]
    private var operations: [Operation] = []
    /// Timeline of the simulator's faults, from the beginning of the first phase.
    private let faults: FaultTimeline
    private var nextWorker: Int
    private(set) var annotations: [RunResult.Annotation] = []
    /// Processes that were asked to stop and did not end in order, in words.
    private(set) var badEndings: [String] = []

    init(_ plan: StagePlan) {
        // A stable sort: actions of the same time keep their order.
        waiting = plan.actions.enumerated().sorted { ($0.element.at, $0.offset) < ($1.element.at, $1.offset) }
            .map(\.element)
        faults = if case .simulator(let options) = plan.apns { options.faults } else { FaultTimeline() }
        nextWorker = plan.workers.count + 1
    }

    /// Whether all actions have been carried out to their end.
    var isSettled: Bool { waiting.isEmpty && operations.isEmpty }

    /// Carries out what is due.
    /// - Parameter now: seconds since the beginning of the first phase.
    /// - Throws: when a process ends before it is ready, or is not ready in time.
    mutating func tick(now: Double, _ processes: StageProcesses) throws(CommandFailure) {
        begin(now: now, processes)
        for index in operations.indices {
            while let step = operations[index].steps.first,
                try carryOut(step, of: index, now: now, processes)
            {
                operations[index].steps.removeFirst()
                operations[index].isKilled = false
                operations[index].since = now
            }
            if operations[index].steps.isEmpty { annotations[operations[index].annotation].until = now }
        }
        operations.removeAll { $0.steps.isEmpty }
    }

    // MARK: Beginning

    private mutating func begin(now: Double, _ processes: StageProcesses) {
        var busy = operations.reduce(into: Set<StageSlot>()) { $0.formUnion($1.slots) }
        var later: [StagePlan.Action] = []
        for action in waiting {
            guard action.at <= now else {
                later.append(action)
                continue
            }
            let concerned = concerned(by: action.kind, processes)
            if busy.isDisjoint(with: concerned) {
                begin(action.kind, concerned, now: now, processes)
            } else {
                later.append(action)
            }
            busy.formUnion(concerned)
        }
        waiting = later
    }

    /// Numbers of the workers, with those that an action is about to start, in rising order.
    private func present(_ processes: StageProcesses) -> [Int] {
        let starting = operations.flatMap(\.slots).compactMap {
            if case .worker(let number) = $0 { number } else { nil }
        }
        return Set(processes.workers + starting).sorted()
    }

    private func concerned(by kind: StagePlan.ActionKind, _ processes: StageProcesses) -> Set<StageSlot> {
        switch kind {
        case .restartWorker(let number), .killWorker(let number, _), .pauseWorker(let number, _):
            [.worker(number)]
        case .addWorker: []
        case .removeWorker: Set(present(processes).last.map { [.worker($0)] } ?? [])
        case .rollingRestart: Set(present(processes).map { .worker($0) })
        case .outage: [.simulator]
        case .pauseKafka: [.kafka]
        }
    }

    private mutating func begin(
        _ kind: StagePlan.ActionKind, _ concerned: Set<StageSlot>, now: Double, _ processes: StageProcesses
    ) {
        func restart(_ slot: StageSlot) -> [Step] {
            [.signal(slot, SIGTERM), .awaitOrderlyEnd(slot), .start(slot), .awaitReady(slot)]
        }
        func freeze(_ slot: StageSlot, _ seconds: Double) -> [Step] {
            [.signal(slot, SIGSTOP), .pause(seconds), .signal(slot, SIGCONT)]
        }
        var slots = concerned
        let text: String
        let steps: [Step]
        switch kind {
        case .restartWorker(let number):
            text = "worker-\(number) is restarted"
            steps = restart(.worker(number))
        case .killWorker(let number, let down):
            let slot = StageSlot.worker(number)
            text = "worker-\(number) is killed"
            steps =
                [.signal(slot, SIGKILL), .awaitEnd(slot)]
                + (down.map { [.pause($0), .start(slot), .awaitReady(slot)] } ?? [.remove(slot)])
        case .pauseWorker(let number, let seconds):
            text = "worker-\(number) is paused"
            steps = freeze(.worker(number), seconds)
        case .addWorker:
            let slot = StageSlot.worker(nextWorker)
            nextWorker += 1
            slots = [slot]
            text = "\(slot) is added"
            steps = [.start(slot), .awaitReady(slot)]
        case .removeWorker:
            text = "\(concerned.map(\.description).joined()) is removed"
            steps = concerned.flatMap { [.signal($0, SIGTERM), .awaitOrderlyEnd($0), .remove($0)] }
        case .rollingRestart:
            text = "all workers are restarted in turn"
            steps = present(processes).flatMap { restart(.worker($0)) }
        case .outage(let seconds):
            text = "the simulator is away"
            steps = [
                .signal(.simulator, SIGTERM), .awaitOrderlyEnd(.simulator), .pause(seconds),
                .start(.simulator), .awaitReady(.simulator),
            ]
        case .pauseKafka(let seconds):
            text = "Kafka is paused"
            steps = freeze(.kafka, seconds)
        }
        annotations.append(RunResult.Annotation(at: now, kind: .action, text: text))
        operations.append(
            Operation(slots: slots, steps: steps[...], since: now, annotation: annotations.count - 1))
    }

    // MARK: Steps

    /// - Returns: whether the step is complete.
    private mutating func carryOut(
        _ step: Step, of operation: Int, now: Double, _ processes: StageProcesses
    ) throws(CommandFailure) -> Bool {
        let since = operations[operation].since
        switch step {
        case .signal(let slot, let signal):
            processes.signal(slot, signal)
            return true
        case .awaitEnd(let slot):
            if processes.hasEnded(slot) { return true }
            kill(slot, of: operation, now: now, processes)
            return false
        case .awaitOrderlyEnd(let slot):
            guard processes.hasEnded(slot) else {
                kill(slot, of: operation, now: now, processes)
                return false
            }
            if let ending = processes.badEnding(slot) {
                let text =
                    operations[operation].isKilled ? "\(slot) did not end in time and was killed" : ending
                badEndings.append(text)
                annotations.append(RunResult.Annotation(at: now, kind: .note, text: text))
            }
            return true
        case .pause(let seconds): return now - since >= seconds
        case .start(let slot):
            if slot == .simulator { processes.faults = faults.remaining(after: .seconds(now)) }
            try processes.start(slot)
            return true
        case .awaitReady(let slot):
            if try processes.isReady(slot) { return true }
            guard now - since < Self.readyLimit / .seconds(1) else {
                throw processes.notReady(slot, within: Self.readyLimit)
            }
            return false
        case .remove(let slot):
            processes.remove(slot)
            return true
        }
    }

    /// Kills a process that exceeds the limit of its end, once.
    private mutating func kill(
        _ slot: StageSlot, of operation: Int, now: Double, _ processes: StageProcesses
    ) {
        guard !operations[operation].isKilled, now - operations[operation].since > Self.endLimit else {
            return
        }
        operations[operation].isKilled = true
        processes.signal(slot, SIGKILL)
    }
}
