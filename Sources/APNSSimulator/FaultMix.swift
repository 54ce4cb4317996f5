import SluiceModel

/// Chooses the good pushes that fail, by shares.
struct FaultMix {
    private let limits: [(upTo: Double, reason: Reason)]

    init(_ faults: [SimulatorOptions.Fault]) {
        var sum = 0.0
        limits = faults.map { fault in
            sum += fault.share
            return (sum, fault.reason)
        }
    }

    func choose(_ random: inout SeededGenerator) -> Reason {
        guard !limits.isEmpty else { return .absent }
        let number = random.fraction()
        for limit in limits where number < limit.upTo { return limit.reason }
        return .absent
    }
}
