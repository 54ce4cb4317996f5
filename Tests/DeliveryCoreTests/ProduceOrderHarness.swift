import DeliveryCore

/// An owner of a ``ProduceOrder`` whose producer gives scripted answers, and whose bytes are numbers.
final class ProduceHarness {
    var order: ProduceOrder
    /// Numbers of the records whose bytes are kept, in the order of their handles.
    var kept: [(handle: UInt32, number: Int)] {
        bytes.sorted { $0.key < $1.key }.map { (handle: $0.key, number: $0.value) }
    }
    private var bytes: [UInt32: Int] = [:]
    /// Numbers of the records that the producer took, with their cuts.
    private(set) var taken: [(number: Int, cuts: UInt8)] = []
    /// Actions other than `produce` and `forget`.
    private(set) var told: [ProduceAction] = []
    /// Answers to the next records. All later records are queued.
    var answers: [ProduceAnswer] = []
    var isPermitted = true

    init(isTransactional: Bool) { order = ProduceOrder(isTransactional: isTransactional) }

    var isFrozen: Bool { order.isFrozen }
    var writesForNext: Bool { order.writesForNext }
    var isBlocked: Bool { order.isBlocked }
    var retained: Int { order.retained }
    var waiting: Int { order.waiting }
    var recordsHeld: Int { order.recordsHeld }
    var produced: Int { order.produced }
    var numbers: [Int] { taken.map(\.number) }

    func takeTold() -> [ProduceAction] {
        defer { told = [] }
        return told
    }

    func takeNumbers() -> [Int] {
        defer { taken = [] }
        return numbers
    }

    func write(
        _ number: Int, _ kind: ProduceOrder.Kind = .outcome, partition: UInt16 = 0, isJob: Bool? = nil
    ) {
        let isJob = isJob ?? (kind != .change)
        switch order.write(kind, partition: partition, isJob: isJob, isPermitted: isPermitted) {
        case .produce(let handle):
            if order.answered(handle, answer(number, cuts: 0)) { bytes[handle] = number }
        case .wait(let handle): bytes[handle] = number
        case .drop: break
        }
        carryOut()
    }

    private func answer(_ number: Int, cuts: UInt8) -> ProduceAnswer {
        let answer = answers.isEmpty ? .queued : answers.removeFirst()
        if answer == .queued { taken.append((number, cuts)) }
        return answer
    }

    func carryOut() {
        while let action = order.nextAction() {
            switch action {
            case .produce(let handle, let cuts):
                guard let number = bytes[handle] else {
                    preconditionFailure("the bytes of \(handle) are gone")
                }
                _ = order.answered(handle, answer(number, cuts: cuts))
            case .forget(let before):
                bytes = bytes.filter { Int32(bitPattern: $0.key &- before) >= 0 }
            default: told.append(action)
            }
        }
    }

    func freeze(_ number: UInt64, atOnce: Bool = false) {
        order.freeze(number, atOnce: atOnce)
        carryOut()
    }

    func thaw(
        _ number: UInt64, repeating: Set<UInt16>? = nil, refused: [ProduceOrder.Refusal] = []
    ) {
        order.thaw(number, repeating: repeating, refused: refused)
        carryOut()
    }

    func timerDue() {
        order.timerDue(isPermitted: isPermitted)
        carryOut()
    }

    func flush() {
        order.flush(isPermitted: isPermitted)
        carryOut()
    }

    func endPartition(_ slot: UInt16) {
        order.endPartition(slot)
        carryOut()
    }

    func afterThis(_ ticket: UInt64) {
        order.afterThis(ticket: ticket)
        carryOut()
    }

    func abandon(_ slot: UInt16) -> Int {
        defer { carryOut() }
        return order.abandon(slot)
    }

    func end() -> ProduceOrder.Ending { order.stop() }
}
