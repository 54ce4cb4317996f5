/// Counts durations in exponential buckets, eight for each power of two: schema 3 of Prometheus' native histograms. Classic
/// buckets at powers of two in seconds are exact sums of them.
///
/// Durations from 1 µs to 2^22 s are told apart; shorter and longer ones count in the first and last bucket. Recording costs
/// a few nanoseconds and allocates nothing. A class, because owners keep histograms in arrays: the memory is allocated once
/// and never copied by a change. Used by one thread at a time.
public final class ExponentialHistogram {
    /// Binary logarithm of the number of buckets for each power of two.
    public static let schema = 3
    static let perOctave = 1 << schema
    /// Exponents of two, in seconds, of the lowest and highest bound.
    static let lowest = -20
    static let highest = 22
    static let bucketCount = (highest - lowest) * perOctave + 1

    private let counts = UnsafeMutablePointer<UInt64>.allocate(capacity: bucketCount)
    /// Sum of all durations in seconds.
    private var sum = 0.0
    private var exemplar: Exemplar?

    public init() { counts.initialize(repeating: 0, count: Self.bucketCount) }

    deinit { counts.deallocate() }

    /// Counts one duration.
    @inline(__always)
    public func record(nanoseconds duration: UInt64) {
        counts[Self.bucket(of: duration)] &+= 1
        sum += Double(duration) * 1e-9
    }

    /// Counts one duration. A negative duration counts as zero, a duration above 2^22 s (48 days) as that.
    @inline(__always)
    public func record(milliseconds duration: Int64) {
        record(nanoseconds: UInt64(min(max(0, duration), 1000 << Int64(Self.highest))) &* 1_000_000)
    }

    /// Time of the last exemplar, in milliseconds since the epoch; 0 without one.
    public var lastExemplar: Int64 { exemplar?.milliseconds ?? 0 }

    /// Replaces the exemplar.
    public func note(_ exemplar: Exemplar) { self.exemplar = exemplar }

    /// Returns a copy of the present counts.
    public func snapshot() -> HistogramSnapshot {
        HistogramSnapshot(
            counts: Array(UnsafeBufferPointer(start: counts, count: Self.bucketCount)),
            sum: sum, exemplar: exemplar)
    }

    /// Returns the bucket whose bounds hold a duration: more than the bound below, at most the bound above.
    @inline(__always)
    static func bucket(of duration: UInt64) -> Int {
        let seconds = Double(duration) * 1e-9
        let bits = seconds.bitPattern
        let exponent = Int(bits >> 52) - 1023
        guard exponent >= lowest else { return 0 }
        // The significand's fraction in 52 bits orders as the significand does.
        let fraction = bits & (1 << 52 - 1)
        var below = fraction > bounds[3] ? 4 : 0
        below &+= fraction > bounds[below &+ 1] ? 2 : 0
        below &+= fraction > bounds[below] ? 1 : 0
        below &+= fraction > bounds[below] ? 1 : 0
        return min((exponent &- lowest) &* perOctave &+ below, bucketCount - 1)
    }

    /// Fractions of 2^(n/8) for n from 0 to 7, in 52 bits.
    private static let bounds: InlineArray<8, UInt64> = [
        0, 0x172b8_3c7d_517b, 0x306fe_0a31_b715, 0x4bfda_d536_2a27, 0x6a09e_667f_3bcd, 0x8ace5_422a_a0db,
        0xae89f_995a_d3ad, 0xd5818_dcfb_a487,
    ]
}

/// Counts of an ``ExponentialHistogram`` at one moment.
public struct HistogramSnapshot: Sendable, Equatable {
    /// Counts by bucket.
    private(set) var counts: [UInt64]
    /// Sum of all durations in seconds.
    public private(set) var sum: Double
    /// A recent duration with its trace; nil when there is none.
    public private(set) var exemplar: Exemplar?

    init(counts: [UInt64], sum: Double, exemplar: Exemplar?) {
        self.counts = counts
        self.sum = sum
        self.exemplar = exemplar
    }

    /// A histogram without durations.
    public init() {
        self.init(
            counts: [UInt64](repeating: 0, count: ExponentialHistogram.bucketCount), sum: 0, exemplar: nil)
    }

    /// Number of durations.
    public var count: UInt64 { counts.reduce(0, &+) }

    public static func + (left: HistogramSnapshot, right: HistogramSnapshot) -> HistogramSnapshot {
        var sum = left
        for index in sum.counts.indices { sum.counts[index] &+= right.counts[index] }
        sum.sum += right.sum
        if let other = right.exemplar, other.milliseconds > left.exemplar?.milliseconds ?? .min {
            sum.exemplar = other
        }
        return sum
    }

    /// Returns cumulative counts by upper bound in seconds. The bounds are the powers of two of a range of exponents.
    func classicBuckets(_ exponents: ClosedRange<Int>) -> [(bound: Double, count: UInt64)] {
        var buckets: [(bound: Double, count: UInt64)] = []
        var (index, total) = (0, UInt64(0))
        for exponent in exponents {
            let last = (exponent - ExponentialHistogram.lowest) * ExponentialHistogram.perOctave
            while index <= last, index < counts.count {
                total &+= counts[index]
                index += 1
            }
            buckets.append((Self.powerOfTwo(exponent), total))
        }
        return buckets
    }

    /// Buckets that have durations, as the native format numbers them: bucket n ends at 2^(n/8) seconds.
    var nativeBuckets: [(index: Int, count: UInt64)] {
        counts.enumerated().filter { $0.element > 0 }.map {
            ($0.offset + ExponentialHistogram.lowest * ExponentialHistogram.perOctave, $0.element)
        }
    }

    private static func powerOfTwo(_ exponent: Int) -> Double {
        Double(sign: .plus, exponent: exponent, significand: 1)
    }
}

/// A duration with the trace that it belongs to.
public struct Exemplar: Sendable, Equatable {
    /// Both halves of the trace's identifier.
    public var trace: (UInt64, UInt64)
    /// Duration in seconds.
    public var seconds: Double
    /// Time of the observation, in milliseconds since the epoch.
    public var milliseconds: Int64

    public init(trace: (UInt64, UInt64), seconds: Double, milliseconds: Int64) {
        self.trace = trace
        self.seconds = seconds
        self.milliseconds = milliseconds
    }

    /// Identifier as W3C Trace Context writes it: 32 hexadecimal digits.
    var traceIdentifier: String {
        func digits(_ half: UInt64) -> String {
            let text = String(half, radix: 16)
            return String(repeating: "0", count: 16 - text.count) + text
        }
        return digits(trace.0) + digits(trace.1)
    }

    public static func == (left: Exemplar, right: Exemplar) -> Bool {
        left.trace == right.trace && left.seconds == right.seconds && left.milliseconds == right.milliseconds
    }
}
