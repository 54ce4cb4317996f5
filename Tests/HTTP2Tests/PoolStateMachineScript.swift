@testable import HTTP2

/// Helpers that scripts of the pool's machine share.
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

    /// Opens connections until the machine asks for no more.
    func openAll(_ machine: inout Machine, at now: UInt64) {
        machine.maintain(now: now)
        while let number = machine.takeOpening() { machine.opened(number, now: now) }
        _ = machine.take()
    }
}

extension PoolStateMachine {
    /// A tick after answers on all open connections.
    mutating func tickAnswering(now: UInt64, demand: Demand, views: [View]) {
        for view in views where members[Int(view.number)].phase != .free {
            members[Int(view.number)].hasAnswered = true
            heard(view.number)
        }
        tick(now: now, demand: demand, views: views)
    }
}
