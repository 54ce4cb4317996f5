import DeliveryCore

/// States, transitions and milestones that the runs of a mode have to enter: all that a long search has found.
///
/// A transition is seen between two calls of a machine, so one call can pass several states.
///
/// These are not in the list.
/// - `cycle: committing > aborting`: all reports are in before the offsets are sent, so no commit loses a record.
/// - `cycle: open > failed`: the worker stops at once when its producer fails outside of a step, and ends no
///   transaction.
/// - `step: begin > retriable, abortable, fatal`: to begin asks nothing of Kafka, in librdkafka as in the model.
/// - `order: failed`: the model's producer refuses a record for its size alone, and without its value it fits.
/// - `milestone takeIn`: the simulated shard learns of a partition's begin before it gets the partition's first record.
/// - `milestone discarded`: the model of Kafka returns no record of a revoked partition.
/// - `milestone failed`: no failure of the model is lasting. Only lasting failures, and logs that lose their ends, end a
///   worker in order.
/// - `milestone secondOutcome`: a producer without faults of its own reports an outcome once.
/// The check is for other producers.
public struct FleetExpectation: Sendable {
    /// Bounds of the listed seeds: nothing is paused, erased or held by the window of pushes, because that leads a world elsewhere and enters nothing
    /// of the list by itself.
    public static let limits: FleetLimits = {
        var limits = FleetLimits()
        limits.faults.subtract([.pause, .erase, .window])
        return limits
    }()

    /// Transitions from one state of a machine: `from > to, to`.
    struct Row {
        var machine: FleetMachine
        var modes: [StoreMode]
        var text: String

        init(_ machine: FleetMachine, _ modes: [StoreMode], _ text: String) {
            self.machine = machine
            self.modes = modes
            self.text = text
        }

        var transitions: [FleetCoverage.Transition] {
            let parts = text.split(separator: " > ")
            return parts[1].split(separator: ", ").map { name in
                FleetCoverage.Transition(
                    machine: machine, from: Self.number(parts[0], machine), to: Self.number(name, machine))
            }
        }

        private static func number(_ name: Substring, _ machine: FleetMachine) -> UInt8 {
            guard let number = machine.states.firstIndex(of: String(name)) else {
                preconditionFailure("\(machine) has no state \(name)")
            }
            return UInt8(number)
        }
    }

    public let mode: StoreMode
    public let transitions: [FleetCoverage.Transition]
    public let milestones: [FleetMilestone]

    /// Steps of each seed of the list.
    public static let steps = 3000

    static let all = StoreMode.allCases
    static let stores: [StoreMode] = [.local, .changelog, .transactions]
    static let plain: [StoreMode] = [.none, .local, .changelog]
    static let logs: [StoreMode] = [.changelog, .transactions]

    public init(_ mode: StoreMode) {
        self.mode = mode
        transitions = Self.list.filter { $0.modes.contains(mode) }.flatMap(\.transitions)
        milestones = Self.milestoneList.filter { $0.modes.contains(mode) }.flatMap(\.milestones)
    }
}
