/// Seconds of a run as points of a plot. A run of many seconds has points of several seconds each.
struct RunSeries {
    struct Point {
        /// Middle of the point's seconds.
        var at: Double
        var label: String
        /// Figures added over the point's seconds; levels are the greatest ones.
        var sum: RunResult.Second
        /// Number of seconds.
        var width: Double
    }

    static let mostPoints = 300
    let points: [Point]
    /// Seconds of a point.
    let width: Int
    let end: Double

    init(_ result: RunResult) {
        let seconds = result.seconds
        let width = max(1, (seconds.count + Self.mostPoints - 1) / Self.mostPoints)
        self.width = width
        end = max(result.phases.map(\.to).max() ?? 0, Double(seconds.count))
        points = stride(from: 0, to: seconds.count, by: width).map { start in
            let part = seconds[start..<min(start + width, seconds.count)]
            var sum = part[start]
            for second in part.dropFirst() { sum.add(second) }
            let label = part.count == 1 ? "\(start)" : "\(start) to \(start + part.count - 1)"
            return Point(
                at: Double(start) + Double(part.count) / 2, label: label, sum: sum, width: Double(part.count))
        }
    }

    var xs: [Double] { points.map(\.at) }
    var labels: [String] { points.map(\.label) }

    func values(_ value: (Point) -> Double?) -> [Double?] { points.map(value) }

    func rates(_ count: (RunResult.Second) -> Int) -> [Double?] {
        points.map { Double(count($0.sum)) / $0.width }
    }
}

extension HDRHistogram {
    /// Returns the values of ascending percentiles in one pass; nil without durations.
    func milliseconds(atPercentiles percentiles: [Double]) -> [Double?] {
        guard count > 0 else { return percentiles.map { _ in nil } }
        var found: [Double?] = []
        var seen = 0
        for (value, number) in buckets {
            seen += number
            while found.count < percentiles.count,
                Double(seen) >= rank(ofPercentile: percentiles[found.count])
            {
                found.append(Double(min(value, greatest)) / 1_000)
            }
        }
        while found.count < percentiles.count { found.append(Double(greatest) / 1_000) }
        return found
    }
}

extension RunResult.Second {
    var allOutcomes: Int { outcomes.values.reduce(0, +) }

    /// Adds counts and times of a second; levels become the greater ones.
    mutating func add(_ other: RunResult.Second) {
        intended += other.intended
        produced += other.produced
        outcomes.merge(other.outcomes, uniquingKeysWith: +)
        deadLetters += other.deadLetters
        latency.add(other.latency)
        open = max(open, other.open)
        generatorDelayMilliseconds = max(generatorDelayMilliseconds, other.generatorDelayMilliseconds)
        readerDelayMilliseconds =
            [readerDelayMilliseconds, other.readerDelayMilliseconds].compactMap(\.self).max()
        cpuSeconds.merge(other.cpuSeconds, uniquingKeysWith: +)
        residentBytes.merge(other.residentBytes, uniquingKeysWith: max)
        takeGreaterLevels(of: other)
    }

    /// Takes the greater of both figures for each figure of the workers and the machine.
    mutating func takeGreaterLevels(of other: RunResult.Second) {
        func greater<Value: Comparable>(_ one: Value?, _ two: Value?) -> Value? {
            guard let one, let two else { return one ?? two }
            return max(one, two)
        }
        slowdown = greater(slowdown, other.slowdown)
        workers = greater(workers, other.workers)
        connections = greater(connections, other.connections)
        streamsInUse = greater(streamsInUse, other.streamsInUse)
        streamsFree = greater(streamsFree, other.streamsFree)
        circuitsOpen = greater(circuitsOpen, other.circuitsOpen)
        queued = greater(queued, other.queued)
        queueAgeSeconds = greater(queueAgeSeconds, other.queueAgeSeconds)
        stored = greater(stored, other.stored)
        storeBytes = greater(storeBytes, other.storeBytes)
        lagRecords = greater(lagRecords, other.lagRecords)
        lagSeconds = greater(lagSeconds, other.lagSeconds)
        loopBusy = greater(loopBusy, other.loopBusy)
    }
}
