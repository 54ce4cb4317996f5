import Foundation
import SluiceModel

/// Ranks 1 to n, where rank k has a probability in proportion to k^-s.
///
/// Rejection-inversion: W. Hörmann and G. Derflinger, "Rejection-inversion to generate variates from monotone discrete
/// distributions", ACM TOMACS 6 (1996). Needs no table, and fewer than two tries on average.
public struct ZipfDistribution: Sendable, Equatable {
    public let count: Int
    public let exponent: Double
    private let lowest: Double
    private let highest: Double
    private let shortcut: Double

    /// - Parameters:
    ///   - count: number of ranks, at least 1.
    ///   - exponent: greater than 0.
    public init(count: Int, exponent: Double) {
        self.count = max(1, count)
        self.exponent = exponent
        lowest = Self.integral(1.5, exponent) - 1
        highest = Self.integral(Double(self.count) + 0.5, exponent)
        shortcut =
            2 - Self.inverse(Self.integral(2.5, exponent) - pow(2, -exponent), exponent)
    }

    /// Draws a rank.
    public func draw(_ random: inout SeededGenerator) -> Int {
        while true {
            let area = highest + Arrivals.unit(&random) * (lowest - highest)
            let place = Self.inverse(area, exponent)
            let rank = min(max(place.rounded(), 1), Double(count))
            if rank - place <= shortcut
                || area >= Self.integral(rank + 0.5, exponent) - pow(rank, -exponent)
            {
                return Int(rank)
            }
        }
    }

    /// Integral of x^-s, with the constant at which the case s = 1 is continuous.
    private static func integral(_ x: Double, _ exponent: Double) -> Double {
        let logarithm = log(x)
        return ratio((1 - exponent) * logarithm) * logarithm
    }

    private static func inverse(_ area: Double, _ exponent: Double) -> Double {
        let t = max(-1, area * (1 - exponent))
        return exp((abs(t) > 1e-8 ? log1p(t) / t : 1 - t * (0.5 - t / 3)) * area)
    }

    /// (e^x - 1) ÷ x.
    private static func ratio(_ x: Double) -> Double {
        abs(x) > 1e-8 ? expm1(x) / x : 1 + x * 0.5 * (1 + x / 3)
    }
}
