import DeliveryCore
import SluiceModel
import StreamScheduling

/// The choices of a run, all from its seed.
struct Draw {
    var generator: SeededGenerator

    init(seed: UInt64) { generator = SeededGenerator(seed: seed) }

    /// 0..<n
    @inline(__always)
    mutating func below(_ n: Int) -> Int {
        Int(((generator.next() >> 32) &* UInt64(n)) >> 32)
    }

    @inline(__always)
    mutating func among(_ range: ClosedRange<Int>) -> Int {
        range.lowerBound + below(range.upperBound - range.lowerBound + 1)
    }

    @inline(__always)
    mutating func chance(_ perMille: Int) -> Bool { below(1000) < perMille }

    /// Draws a number between the bounds, each order of magnitude as likely as the others.
    mutating func spread(_ range: ClosedRange<Int>) -> Int {
        var high = range.lowerBound
        while high < range.upperBound, chance(650) { high = min(range.upperBound, max(high * 2, high + 1)) }
        return among(range.lowerBound...high)
    }
}
