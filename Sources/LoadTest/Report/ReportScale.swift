import Foundation

/// Maps values to positions of an axis, with marked values.
struct Scale {
    struct Tick {
        var value: Double
        var label: String
    }

    private enum Kind {
        case linear
        case logarithmic
        /// Percentiles: equal distances for 0, 90, 99, 99.9, ….
        case tail
    }

    private let kind: Kind
    private let low: Double
    private let high: Double
    let ticks: [Tick]

    /// Greatest value of the axis.
    var reach: Double { high }

    /// Position from 0 to 1; a value beyond the axis is put on its end.
    func position(_ value: Double) -> Double {
        let share =
            switch kind {
            case .linear: (value - low) / (high - low)
            case .logarithmic: value > 0 ? log10(value / low) / log10(high / low) : 0
            case .tail: Self.nines(value) / high
            }
        return share.isFinite ? min(max(share, 0), 1) : 0
    }

    /// An axis from 0, or from `low`, to at least the greatest value.
    static func linear(from low: Double = 0, to greatest: Double, ticks wanted: Int = 4) -> Scale {
        let span = greatest - low
        guard span.isFinite, span > 0 else { return linear(from: low.isFinite ? low : 0, step: 1, to: 1) }
        return linear(from: low, step: step(of: span / Double(wanted)), to: span)
    }

    private static func linear(from low: Double, step: Double, to span: Double) -> Scale {
        let count = max(1, Int((span / step - 1e-9).rounded(.up)))
        let ticks = (0...count).map { low + Double($0) * step }
        return Scale(
            kind: .linear, low: low, high: low + Double(count) * step,
            ticks: ticks.map { Tick(value: $0, label: compact($0)) })
    }

    /// An axis of a time that ends with the run, not with a tick.
    static func time(from low: Double, to high: Double) -> Scale {
        guard (high - low).isFinite, high > low else { return linear(from: 0, step: 1, to: 1) }
        let step = step(of: (high - low) / 6)
        let first = (low / step).rounded(.up)
        let ticks = (0...12).map { (first + Double($0)) * step }.filter { $0 <= high + step * 1e-9 }
        return Scale(
            kind: .linear, low: low, high: high, ticks: ticks.map { Tick(value: $0, label: compact($0)) })
    }

    /// An axis around 0 that holds a size on both sides.
    static func around(_ size: Double) -> Scale {
        let size = size.isFinite && size > 0 ? size : 1
        let step = step(of: size / 2.5)
        let count = max(1, (size / step - 1e-9).rounded(.up))
        let ticks = (-Int(count)...Int(count)).map { Double($0) * step }
        return Scale(
            kind: .linear, low: -count * step, high: count * step,
            ticks: ticks.map { Tick(value: $0, label: $0 > 0 ? "+\(compact($0))" : compact($0)) })
    }

    /// A logarithmic axis that holds all positive values.
    static func logarithmic(_ values: [Double]) -> Scale {
        let positive = values.filter { $0 > 1e-12 && $0 < 1e18 }
        guard let least = positive.min(), let greatest = positive.max() else {
            return logarithmic([1, 10])
        }
        let bounds = (floor(log10(least)) - 1, ceil(log10(greatest)) + 1)
        var candidates: [Double] = []
        for exponent in Int(bounds.0)...Int(bounds.1) {
            for factor in [1.0, 2, 5] { candidates.append(factor * pow(10, Double(exponent))) }
        }
        let low = candidates.last { $0 <= least } ?? least
        var high = candidates.first { $0 >= greatest } ?? greatest
        if high <= low { high = low * 10 }
        var ticks = candidates.filter { $0 >= low * 0.999 && $0 <= high * 1.001 }
        if ticks.count > 6 { ticks = ticks.filter { abs(log10($0) - log10($0).rounded()) < 1e-6 } }
        while ticks.count > 7 {
            ticks = ticks.enumerated().filter { $0.offset.isMultiple(of: 2) }.map(\.element)
        }
        return Scale(
            kind: .logarithmic, low: low, high: high, ticks: ticks.map { Tick(value: $0, label: compact($0)) }
        )
    }

    /// Percentiles up to 1 − 1 ÷ count, 99.9 at least and 99.9999 at most.
    static func tail(count: Int) -> Scale {
        let high = min(max(3, log10(Double(max(1, count)))), 6)
        let marks = [0, 50, 90, 99, 99.9, 99.99, 99.999]
        return Scale(
            kind: .tail, low: 0, high: high,
            ticks: marks.filter { nines($0) <= high + 0.01 }.map { Tick(value: $0, label: percentile($0)) })
    }

    /// Number of nines of a percentile: 1 for 90, 2 for 99.
    private static func nines(_ percentile: Double) -> Double {
        -log10(max(1e-9, 1 - min(max(percentile, 0), 100) / 100))
    }

    static func percentile(_ value: Double) -> String {
        var text = String(format: "%.3f", value)
        while text.last == "0" { text.removeLast() }
        if text.last == "." { text.removeLast() }
        return text
    }

    /// Step of 1, 2 or 5 times a power of ten, at least `size`.
    private static func step(of size: Double) -> Double {
        guard size.isFinite, size > 0 else { return 1 }
        let power = pow(10, floor(log10(size)))
        return [1, 2, 5].map { $0 * power }.first { $0 >= size * 0.999 } ?? 10 * power
    }

    /// A short label: 2,000, 20k, 3M.
    static func compact(_ value: Double) -> String {
        let size = abs(value)
        if size >= 1e15 || size < 1e-4 { return FigureText.number(value) }
        for (limit, unit, letter) in [(1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")] where size >= limit {
            return FigureText.number((value / unit * 100).rounded() / 100) + letter
        }
        return FigureText.number((value * 1e9).rounded() / 1e9)
    }
}
