import Foundation
import SluiceModel

/// Intended times of an open loop's jobs, in order. The times depend on nothing but the seed: no answer delays them.
///
/// Arrivals at unit rate are mapped through the inverse of the integrated rate. So one mechanism serves constant rates,
/// Poisson processes, bursts, traces and phases with different rates.
public struct Arrivals: Sendable {
    /// Span with a rate.
    public struct Segment: Sendable, Equatable {
        /// Beginning and end in seconds since the beginning of the run.
        public var from: Double
        public var to: Double
        /// Jobs per second.
        public var rate: Double

        public init(from: Double, to: Double, rate: Double) {
            self.from = from
            self.to = to
            self.rate = rate
        }

        /// Expected number of jobs.
        var jobs: Double { max(0, to - from) * rate }
    }

    private let segments: [Segment]
    /// Fixed times in place of segments; ascending.
    private let times: [Double]
    private let isRandom: Bool
    private var random: SeededGenerator
    /// Segment of the next arrival, and the expected jobs before the segment.
    private var index = 0
    private var before = 0.0
    /// Expected jobs up to the last arrival.
    private var area = 0.0
    private var count = 0

    /// Arrivals in segments, which ascend and don't overlap.
    /// - Parameter isRandom: a Poisson process; otherwise evenly spaced.
    public init(_ segments: [Segment], isRandom: Bool, seed: UInt64) {
        self.segments = segments.filter { $0.jobs > 0 }
        self.isRandom = isRandom
        times = []
        random = SeededGenerator(seed: seed)
    }

    /// Arrivals at fixed times, in seconds since the beginning of the run.
    public init(at times: [Double]) {
        segments = []
        isRandom = false
        self.times = times.sorted()
        random = SeededGenerator(seed: 0)
    }

    /// Expected number of all arrivals.
    public var expected: Double { Double(times.count) + segments.reduce(0) { $0 + $1.jobs } }

    /// Returns the next intended time in seconds since the beginning of the run; nil after the last arrival.
    public mutating func next() -> Double? {
        defer { count += 1 }
        if !times.isEmpty { return count < times.count ? times[count] : nil }
        // Evenly spaced arrivals lie in the middles of their intervals.
        area = isRandom ? area - log1p(-Self.unit(&random)) : Double(count) + 0.5
        while index < segments.count {
            let segment = segments[index]
            let inside = area - before
            if inside < segment.jobs { return segment.from + inside / segment.rate }
            before += segment.jobs
            index += 1
        }
        return nil
    }

    /// Returns a number of 0..<1.
    static func unit(_ random: inout SeededGenerator) -> Double { Double(random.next() >> 11) * 0x1p-53 }
}

extension Arrivals {
    /// Returns the segments of bursts: all jobs of each interval come within the burst at its beginning.
    /// - Parameters:
    ///   - every: interval in seconds.
    ///   - length: length of a burst in seconds, at most `every`.
    static func bursts(_ phase: Segment, every: Double, length: Double) -> [Segment] {
        var bursts: [Segment] = []
        var start = phase.from
        while start < phase.to {
            bursts.append(
                Segment(from: start, to: min(start + length, phase.to), rate: phase.rate * every / length))
            start += every
        }
        return bursts
    }
}

/// Recorded arrivals, a line each: seconds since the beginning of the recording, and perhaps a comma and the number of
/// jobs from this moment to the next line. Blank lines and lines that begin with `#` are skipped.
public struct ArrivalTrace: Sendable, Equatable {
    /// Mistake in a trace.
    public struct Fault: Error, Equatable, CustomStringConvertible {
        public var description: String
    }

    private var times: [Double] = []
    /// Jobs from each time to the next one; empty: one job at each time.
    private var counts: [Double] = []

    /// Reads a trace.
    /// - Parameter name: the trace's name in messages.
    /// - Throws: the first mistake, with its line.
    public init(_ text: String, name: String) throws(Fault) {
        var hasCounts: Bool?
        for (index, line) in text.split(separator: "\n", omittingEmptySubsequences: false).enumerated() {
            let line = line.filter { !$0.isWhitespace }
            if line.isEmpty || line.first == "#" { continue }
            let place = "\(name):\(index + 1)"
            let fields = line.split(separator: ",", omittingEmptySubsequences: false)
            guard fields.count <= 2, let time = Double(fields[0]), (0...31_622_400).contains(time) else {
                throw Fault(description: "\(place): `\(line)` is not `seconds` or `seconds,jobs`")
            }
            if let last = times.last, time < last {
                throw Fault(description: "\(place): the times of a trace ascend; \(time) follows \(last)")
            }
            if let hasCounts, hasCounts != (fields.count == 2) {
                throw Fault(description: "\(place): either all lines have a number of jobs, or none")
            }
            hasCounts = fields.count == 2
            times.append(time)
            guard fields.count == 2 else { continue }
            guard let jobs = Double(fields[1]), (0...1e9).contains(jobs) else {
                throw Fault(description: "\(place): `\(fields[1])` is no number of jobs, 0 to 1000000000")
            }
            counts.append(jobs)
        }
        if times.isEmpty { throw Fault(description: "\(name): has no arrivals") }
    }

    /// Returns the arrivals between two times of the run.
    ///
    /// A time scale shortens the recording and keeps its rates: of single jobs only a share remains.
    func arrivals(from: Double, to: Double, scale: Double, seed: UInt64) -> Arrivals {
        guard !counts.isEmpty else {
            let kept = times.indices.filter {
                Int(Double($0 + 1) * scale) > Int(Double($0) * scale) || scale >= 1
            }
            return Arrivals(at: kept.map { from + times[$0] * scale }.filter { $0 < to })
        }
        var segments: [Arrivals.Segment] = []
        for index in times.indices {
            // The last line lasts as long as the line before.
            let width =
                index + 1 < times.count
                ? times[index + 1] - times[index] : index > 0 ? times[index] - times[index - 1] : 1
            guard width > 0 else { continue }
            let start = from + times[index] * scale
            let end = min(start + width * scale, to)
            if start < end { segments.append(.init(from: start, to: end, rate: counts[index] / width)) }
        }
        return Arrivals(segments, isRandom: false, seed: seed)
    }
}
