@testable import HTTP2

/// What the scripts of a pool's life share.
protocol PoolStateMachineScript {}

extension PoolStateMachineScript {
    typealias Machine = PoolStateMachine

    func machine(_ change: (inout PoolLimits) -> Void = { _ in }) -> Machine {
        var limits = PoolLimits()
        limits.minimum = 1
        limits.maximum = 4
        change(&limits)
        return Machine(limits, seed: 1)
    }

    func view(_ number: UInt32, _ inFlight: Int, limit: Int = 100) -> Machine.View {
        Machine.View(number: number, inFlight: inFlight, limit: limit)
    }

    /// Opens what the machine asks for until it is content.
    func openAll(_ machine: inout Machine, at now: UInt64) {
        machine.maintain(now: now)
        while let number = machine.takeOpening() { machine.opened(number, now: now) }
        _ = machine.take()
    }
}
