import SluiceModel

/// Comparison of runs in groups. The first group is the base of all differences.
public struct Comparison {
    public struct Group: Sendable {
        public var name: String
        public var results: [RunResult]

        public init(name: String, results: [RunResult]) {
            self.name = name
            self.results = results
        }
    }

    /// Origin of the intervals.
    public enum Method: Equatable, Sendable {
        /// Differences of pairs of runs that alternated.
        case paired(Int)
        /// Runs of both groups as independent samples.
        case welch(Int, Int)
        /// Seconds of single runs, drawn in blocks.
        case seconds
        /// Too few seconds for an interval.
        case none
    }

    /// Difference of a figure.
    public struct Line: Sendable {
        public var name: String
        public var unit: String
        public var base: Double?
        public var other: Double?
        /// `other` − `base`; nil when either is absent.
        public var difference: Double?
        /// Interval of 95 % of the difference; nil when none can be given.
        public var low: Double?
        public var high: Double?
        /// nil: neither direction is better.
        public var isLowerBetter: Bool?

        /// Difference in words.
        public var verdict: String {
            guard let difference else { return "not measured in both" }
            guard let low, let high else {
                return difference == 0 ? "equal; no interval" : "no interval"
            }
            guard low > 0 || high < 0 else { return "no difference shown" }
            let direction = difference < 0 ? "lower" : "higher"
            guard let isLowerBetter else { return direction }
            return "\(direction): \((difference < 0) == isLowerBetter ? "better" : "worse")"
        }
    }

    /// Comparison of a group with the first.
    public struct Pair: Sendable {
        public var name: String
        public var method: Method
        public var lines: [Line]
    }

    public let groups: [Group]
    public let pairs: [Pair]

    /// Compares groups. Groups without results are left out.
    /// - Parameters:
    ///   - seed: of the samples that are drawn; equal seeds give equal intervals.
    ///   - draws: samples that are drawn for an interval from seconds.
    public init(_ groups: [Group], seed: UInt64 = 1, draws: Int = 1_000) {
        let groups = groups.filter { !$0.results.isEmpty }
        self.groups = groups
        guard let base = groups.first else {
            pairs = []
            return
        }
        pairs = groups.dropFirst().map { Self.pair(base, $0, seed: seed, draws: draws) }
    }

    // MARK: Figures

    private struct Figure {
        var name: String
        var unit: String
        var isLowerBetter: Bool?
        var sampled: SecondsSample.Figure?
        var value: (RunResult) -> Double?
    }

    private static func latency(_ percentile: Double) -> (RunResult) -> Double? {
        { $0.mainLatency.milliseconds(atPercentile: percentile) }
    }

    private static func cost(_ role: RunResult.Role) -> (RunResult) -> Double? {
        { result in
            let costs = result.processes.filter { $0.role == role }.map(\.cpuMicrosecondsPerOutcome)
            guard !costs.isEmpty, !costs.contains(nil) else { return nil }
            return costs.reduce(0) { $0 + ($1 ?? 0) }
        }
    }

    private static var figures: [Figure] {
        [
            Figure(
                name: "Outcomes a second", unit: "1/s", isLowerBetter: false, sampled: .rate,
                value: \.mainRate),
            Figure(
                name: "Latency, mean", unit: "ms", isLowerBetter: true, sampled: .meanLatency,
                value: \.mainLatency.meanMilliseconds),
            Figure(name: "Latency, p50", unit: "ms", isLowerBetter: true, sampled: .p50, value: latency(50)),
            Figure(name: "Latency, p90", unit: "ms", isLowerBetter: true, sampled: .p90, value: latency(90)),
            Figure(name: "Latency, p99", unit: "ms", isLowerBetter: true, sampled: .p99, value: latency(99)),
            Figure(
                name: "Latency, p99.9", unit: "ms", isLowerBetter: true, sampled: .p999, value: latency(99.9)),
            Figure(name: "Latency, greatest", unit: "ms", isLowerBetter: true, value: latency(100)),
            Figure(
                name: "CPU of workers an outcome", unit: "µs", isLowerBetter: true, sampled: .cpuPerOutcome,
                value: cost(.worker)),
            Figure(name: "CPU of Kafka an outcome", unit: "µs", isLowerBetter: true, value: cost(.kafka)),
            Figure(name: "CPU of the simulator an outcome", unit: "µs", value: cost(.simulator)),
            Figure(name: "CPU of the generator an outcome", unit: "µs", value: cost(.generator)),
            Figure(
                name: "Resident memory of workers", unit: "MiB", isLowerBetter: true,
                value: { result in
                    let sizes = result.processes.filter { $0.role == .worker }.map {
                        Double($0.maximumResidentBytes)
                    }
                    return sizes.isEmpty ? nil : sizes.reduce(0, +) / 1_048_576
                }),
            Figure(
                name: "Jobs not accepted", unit: "%", isLowerBetter: true,
                value: { result in
                    let kinds = result.mainPushes.byKind
                    let all = kinds.values.reduce(0, +)
                    guard all > 0 else { return nil }
                    return 100 * Double(all - (kinds["accepted"] ?? 0)) / Double(all)
                }),
            Figure(name: "Jobs lost", unit: "jobs", isLowerBetter: true, value: { Double($0.audit.missing) }),
            Figure(
                name: "Jobs doubled", unit: "jobs", isLowerBetter: true, value: { Double($0.audit.doubled) }),
            Figure(
                name: "Attempts a job", unit: "", isLowerBetter: true,
                value: { $0.attemptsPerJob }),
            Figure(
                name: "Delay of the generator, p99", unit: "ms",
                value: { $0.generator.delay.milliseconds(atPercentile: 99) }),
            Figure(
                name: "Slowdown of the machine, median", unit: "times",
                value: { $0.environment.noise.medianSlowdown }),
        ]
    }

    // MARK: Intervals

    private static func pair(_ base: Group, _ other: Group, seed: UInt64, draws: Int) -> Pair {
        let method = method(base, other)
        var sampled: [SecondsSample.Figure: Statistics.Interval] = [:]
        if method == .seconds, let one = SecondsSample(base.results), let two = SecondsSample(other.results) {
            sampled = intervals(one, two, seed: seed, draws: draws)
        }
        let lines = figures.map { figure -> Line in
            let bases = base.results.compactMap(figure.value).filter(\.isFinite)
            let others = other.results.compactMap(figure.value).filter(\.isFinite)
            var line = Line(name: figure.name, unit: figure.unit, isLowerBetter: figure.isLowerBetter)
            // A figure that some runs of a group lack is not that group's figure.
            line.base = bases.count == base.results.count ? Statistics.mean(bases) : nil
            line.other = others.count == other.results.count ? Statistics.mean(others) : nil
            guard let baseMean = line.base, let otherMean = line.other else { return line }
            let difference = otherMean - baseMean
            line.difference = difference
            let interval: Statistics.Interval? =
                switch method {
                case .paired:
                    Statistics.paired(
                        ordered(base).compactMap(figure.value), ordered(other).compactMap(figure.value))
                case .welch: Statistics.welch(bases, others)
                // The seconds give the uncertainty; the phases give the difference.
                case .seconds:
                    figure.sampled.flatMap { sampled[$0] }.map {
                        Statistics.Interval(low: difference + $0.low, high: difference + $0.high)
                    }
                case .none: nil
                }
            line.low = interval?.low
            line.high = interval?.high
            return line
        }
        return Pair(name: other.name, method: method, lines: lines)
    }

    private static func ordered(_ group: Group) -> [RunResult] {
        group.results.sorted { $0.environment.startedMilliseconds < $1.environment.startedMilliseconds }
    }

    static func method(_ base: Group, _ other: Group) -> Method {
        let counts = (base.results.count, other.results.count)
        if counts.0 >= 2, counts.1 >= 2 {
            return counts.0 == counts.1 && counts.0 >= 3 && isInterleaved(base, other)
                ? .paired(counts.0) : .welch(counts.0, counts.1)
        }
        let hasSeconds = (base.results + other.results).allSatisfy {
            $0.mainSecondIndices.count >= SecondsSample.leastSeconds
        }
        return hasSeconds ? .seconds : .none
    }

    /// Whether the n-th runs of both groups followed each other, for each n.
    static func isInterleaved(_ base: Group, _ other: Group) -> Bool {
        let starts =
            base.results.map { ($0.environment.startedMilliseconds, true) }
            + other.results.map { ($0.environment.startedMilliseconds, false) }
        let order = starts.sorted { $0.0 < $1.0 }
        return stride(from: 0, to: order.count - 1, by: 2).allSatisfy { order[$0].1 != order[$0 + 1].1 }
    }

    /// Distances of the interval's ends from the difference.
    static func intervals(
        _ one: SecondsSample, _ two: SecondsSample, seed: UInt64, draws: Int
    ) -> [SecondsSample.Figure: Statistics.Interval] {
        var random = SeededGenerator(seed: seed)
        let (figuresOne, figuresTwo) = (one.figures, two.figures)
        var differences: [SecondsSample.Figure: [Double]] = [:]
        for _ in 0..<draws {
            let (drawnOne, drawnTwo) = (one.drawn(&random), two.drawn(&random))
            for (figure, value) in drawnOne {
                guard let other = drawnTwo[figure] else { continue }
                differences[figure, default: []].append(other - value)
            }
        }
        var found: [SecondsSample.Figure: Statistics.Interval] = [:]
        for (figure, values) in differences where values.count == draws {
            let sorted = values.sorted()
            guard let low = Statistics.quantile(sorted, 0.025), let high = Statistics.quantile(sorted, 0.975),
                let base = figuresOne[figure], let other = figuresTwo[figure]
            else { continue }
            found[figure] = Statistics.Interval(low: low - (other - base), high: high - (other - base))
        }
        return found
    }
}
