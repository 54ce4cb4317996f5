import Foundation

/// Statistics of repeated measurements.
enum Statistics {
    struct Interval: Equatable {
        var low: Double
        var high: Double

        /// Whether the interval shows that the difference isn't 0.
        var excludesZero: Bool { low > 0 || high < 0 }
    }

    static func mean(_ values: [Double]) -> Double? {
        values.isEmpty ? nil : values.reduce(0) { $0 + $1 / Double(values.count) }
    }

    /// Variance of a sample; nil for fewer than two values.
    static func variance(_ values: [Double]) -> Double? {
        guard values.count > 1, let mean = mean(values) else { return nil }
        return values.reduce(0) { $0 + ($1 - mean) * ($1 - mean) } / Double(values.count - 1)
    }

    /// Interval of 95 % for the mean difference of independent samples, by Welch's method; nil for fewer than two
    /// values in a sample, or without any variation.
    static func welch(_ one: [Double], _ two: [Double]) -> Interval? {
        guard let meanOne = mean(one), let meanTwo = mean(two), let varianceOne = variance(one),
            let varianceTwo = variance(two)
        else { return nil }
        let (partOne, partTwo) = (varianceOne / Double(one.count), varianceTwo / Double(two.count))
        let square = partOne + partTwo
        guard square > 0, square.isFinite else { return nil }
        let freedom =
            square * square
            / (partOne * partOne / Double(one.count - 1) + partTwo * partTwo / Double(two.count - 1))
        let reach = studentQuantile(freedom: freedom) * square.squareRoot()
        return Interval(low: meanTwo - meanOne - reach, high: meanTwo - meanOne + reach)
    }

    /// Interval of 95 % for the mean difference of pairs; nil for fewer than two pairs, or without any variation.
    static func paired(_ one: [Double], _ two: [Double]) -> Interval? {
        guard one.count == two.count else { return nil }
        let differences = zip(one, two).map { $1 - $0 }
        guard let mean = mean(differences), let variance = variance(differences), variance > 0,
            variance.isFinite
        else { return nil }
        let reach =
            studentQuantile(freedom: Double(differences.count - 1))
            * (variance / Double(differences.count)).squareRoot()
        return Interval(low: mean - reach, high: mean + reach)
    }

    /// Quantile 0.975 of Student's distribution.
    ///
    /// With t = √ν · tan θ the density is cos^(ν−1) θ, which is summed by Simpson's rule from 0 to π/2.
    static func studentQuantile(freedom: Double) -> Double {
        guard freedom.isFinite, freedom < 2_000 else { return 1.959_964 }
        let freedom = max(1, freedom)
        let steps = 2_000
        let width = Double.pi / 2 / Double(steps)
        let heights = (0...(2 * steps)).map { pow(max(0, cos(Double($0) * width / 2)), freedom - 1) }
        var sums = [0.0]
        for step in 0..<steps {
            sums.append(
                sums[step] + (heights[2 * step] + 4 * heights[2 * step + 1] + heights[2 * step + 2]) * width
                    / 6)
        }
        let wanted = 0.95 * sums[steps]
        let after = sums.firstIndex { $0 >= wanted } ?? steps
        let before = max(0, after - 1)
        let share = (wanted - sums[before]) / max(sums[after] - sums[before], .leastNormalMagnitude)
        return freedom.squareRoot() * tan((Double(before) + share) * width)
    }

    /// Value below which a share of the sorted values lies, between neighbours in proportion.
    static func quantile(_ sorted: [Double], _ share: Double) -> Double? {
        guard let last = sorted.last else { return nil }
        let place = share * Double(sorted.count - 1)
        let index = Int(place)
        guard index + 1 < sorted.count else { return last }
        return sorted[index] + (sorted[index + 1] - sorted[index]) * (place - Double(index))
    }
}
