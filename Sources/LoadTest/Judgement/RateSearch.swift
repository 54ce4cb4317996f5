/// Search for the greatest rate at which a run passes: doubling, then bisection, then confirmation.
///
/// The answer of a probe is noisy near the limit. So a rate counts only once it has passed again as often as demanded. A
/// rate that fails its confirmation becomes the upper bound, and the next lower rate is tried.
public struct RateSearch: Sendable, Equatable {
    public struct Probe: Codable, Sendable, Equatable {
        /// Jobs per second.
        public var rate: Double
        public var isConfirmation: Bool
        public var isPassed: Bool
        /// Whether the generator or its reader of outcomes, not the gateway, was the limit.
        public var generatorWasLimit: Bool
    }

    /// Greatest confirmed rate; nil: none so far.
    public private(set) var confirmed: Double?
    /// Least rate that failed; nil: none so far.
    public private(set) var failed: Double?
    public private(set) var probes: [Probe] = []
    /// Whether the generator or its reader was the limit of a failed probe, so that the gateway may take more.
    public private(set) var isLimitedByGenerator = false

    private let start: Double
    private let precision: Double
    private let confirmations: Int
    private let mostProbes: Int
    /// Greatest rate that passed once; nil: none so far.
    private var passed: Double?
    private var passes = 0
    private var isConfirming = false

    /// - Parameters:
    ///   - start: first rate, greater than 0.
    ///   - precision: least factor minus 1 between a passed and a failed rate.
    ///   - confirmations: passes that confirm a rate.
    public init(start: Double, precision: Double = 0.05, confirmations: Int = 2, mostProbes: Int = 40) {
        self.start = start
        self.precision = precision
        self.confirmations = confirmations
        self.mostProbes = mostProbes
    }

    /// Rate of the next run; nil: the search has ended.
    public var next: (rate: Double, isConfirmation: Bool)? {
        guard confirmed == nil, probes.count < mostProbes else { return nil }
        switch (passed, failed) {
        case (nil, nil): return (start, false)
        case (let passed?, nil): return passed >= start * 1_024 ? (passed, true) : (passed * 2, false)
        case (nil, let failed?): return failed <= start / 1_024 ? nil : (failed / 2, false)
        case (let passed?, let failed?):
            if failed / passed > 1 + precision, !isConfirming {
                return ((passed * failed).squareRoot(), false)
            }
            return (passed, true)
        }
    }

    /// Records the result of the run at `next`.
    public mutating func record(isPassed: Bool, generatorWasLimit: Bool = false) {
        guard let next else { return }
        probes.append(
            Probe(
                rate: next.rate, isConfirmation: next.isConfirmation, isPassed: isPassed,
                generatorWasLimit: generatorWasLimit))
        if !isPassed, generatorWasLimit { isLimitedByGenerator = true }
        guard next.isConfirmation else {
            if isPassed { passed = next.rate } else { failed = next.rate }
            return
        }
        isConfirming = true
        guard isPassed else {
            failed = next.rate
            passed = next.rate / (1 + precision)
            passes = 0
            return
        }
        passes += 1
        if passes >= confirmations { confirmed = next.rate }
    }
}
