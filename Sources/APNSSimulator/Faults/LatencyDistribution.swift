import EventLoop
import Glibc
import SluiceModel

/// Distribution of the time between a request and its answer.
public enum LatencyDistribution: Sendable, Equatable {
    /// Point of a distribution: `percent` of the answers take at most `latency`.
    public struct Percentile: Sendable, Equatable {
        /// Above 0, at most 100.
        public var percent: Double
        /// Time of the slowest of these answers.
        public var latency: Duration

        public init(percent: Double, latency: Duration) {
            self.percent = percent
            self.latency = latency
        }
    }

    /// The same time for each answer.
    case constant(Duration)
    /// Times from `from` to `to`, evenly distributed.
    case uniform(from: Duration, to: Duration)
    /// Times whose logarithm is normally distributed: half of them are below `median`. `sigma` is the deviation of the
    /// natural logarithm, and no time exceeds `most`.
    case lognormal(median: Duration, sigma: Double, most: Duration)
    /// Straight lines between percentiles, which rise. The fastest answers take the time of the first percentile, the
    /// slowest that of the last.
    case percentiles([Percentile])

    /// Longest time of an answer.
    public static let longest: Duration = .seconds(3_600)

    /// Returns the time of an answer, in nanoseconds.
    func sample(_ random: inout SeededGenerator) -> UInt64 {
        switch self {
        case .constant(let time): time.wholeNanoseconds
        case .uniform(let from, let to):
            from.wholeNanoseconds
                + UInt64(random.fraction() * Double(max(to, from).wholeNanoseconds - from.wholeNanoseconds))
        case .lognormal(let median, let sigma, let most):
            Self.lognormal(
                Double(median.wholeNanoseconds), sigma, most: most.wholeNanoseconds, &random)
        case .percentiles(let points): Self.time(at: 100 * random.fraction(), of: points)
        }
    }

    private static func lognormal(
        _ median: Double, _ sigma: Double, most: UInt64, _ random: inout SeededGenerator
    ) -> UInt64 {
        // Box-Muller; 1 - fraction is never 0.
        let radius = sqrt(-2 * log(1 - random.fraction()))
        let normal = radius * cos(2 * .pi * random.fraction())
        let time = median * exp(sigma * normal)
        return time < Double(most) ? UInt64(max(time, 0)) : most
    }

    private static func time(at percent: Double, of points: [Percentile]) -> UInt64 {
        guard var lower = points.first else { return 0 }
        for upper in points {
            guard percent > upper.percent else {
                let width = upper.percent - lower.percent
                guard width > 0 else { return upper.latency.wholeNanoseconds }
                let start = Double(lower.latency.wholeNanoseconds)
                let rise = Double(upper.latency.wholeNanoseconds) - start
                return UInt64(max(start + rise * (percent - lower.percent) / width, 0))
            }
            lower = upper
        }
        return lower.latency.wholeNanoseconds
    }

    /// Fault of the numbers, with the key that has it; nil when they are good.
    var fault: (key: String, text: String)? {
        func fault(_ key: String, of time: Duration) -> (String, String)? {
            time >= .zero && time <= Self.longest ? nil : (key, "must be from 0 to 1h")
        }
        switch self {
        case .constant(let time): return fault("constant", of: time)
        case .uniform(let from, let to):
            if let fault = fault("uniform.from", of: from) ?? fault("uniform.to", of: to) { return fault }
            return from <= to ? nil : ("uniform.to", "must be at least `from`")
        case .lognormal(let median, let sigma, let most):
            if let fault = fault("lognormal.median", of: median) ?? fault("lognormal.most", of: most) {
                return fault
            }
            guard median <= most else { return ("lognormal.most", "must be at least `median`") }
            return (0...10).contains(sigma) ? nil : ("lognormal.sigma", "must be from 0 to 10")
        case .percentiles(let points):
            guard !points.isEmpty else { return ("percentiles", "must not be empty") }
            for (index, point) in points.enumerated() {
                guard point.percent > 0, point.percent <= 100 else {
                    return ("percentiles", "each percentile must be above 0 and at most 100")
                }
                if let fault = fault("percentiles", of: point.latency) { return fault }
                guard index > 0 else { continue }
                let previous = points[index - 1]
                guard previous.percent < point.percent, previous.latency <= point.latency else {
                    return (
                        "percentiles",
                        "the times must rise with their percentiles, each of which is there once"
                    )
                }
            }
            return nil
        }
    }
}
