/// Two scrapes of one worker, and the time between them.
struct MetricsWindow: Sendable {
    /// Nil: there is one scrape only, so rates and latencies are unknown.
    let before: MetricsDocument?
    let now: MetricsDocument
    /// Seconds between the scrapes; 0 with one scrape.
    let seconds: Double

    init(before: MetricsDocument?, now: MetricsDocument, seconds: Double) {
        self.now = now
        self.before = seconds > 0 ? before : nil
        self.seconds = seconds > 0 ? seconds : 0
    }

    // MARK: Gauges

    /// Returns the sum of a gauge's samples; nil when the worker has no such gauge.
    func sum(_ name: String, where matches: (MetricSample) -> Bool = { _ in true }) -> Double? {
        values(name, matches)?.reduce(0, +)
    }

    /// Returns the greatest of a gauge's samples; nil when the worker has no such gauge.
    func greatest(_ name: String, where matches: (MetricSample) -> Bool = { _ in true }) -> Double? {
        values(name, matches)?.max()
    }

    /// Returns the least of a gauge's samples; nil when the worker has no such gauge.
    func least(_ name: String, where matches: (MetricSample) -> Bool = { _ in true }) -> Double? {
        values(name, matches)?.min()
    }

    private func values(_ name: String, _ matches: (MetricSample) -> Bool) -> [Double]? {
        guard now.contains(name) else { return nil }
        let values = now[name].filter(matches).map(\.value).filter(\.isFinite)
        return values.isEmpty ? nil : values
    }

    /// Returns sums of a gauge by one label.
    func sums(_ name: String, by label: String) -> [String: Double] {
        var sums: [String: Double] = [:]
        for sample in now[name] where sample.value.isFinite {
            sums[sample[label], default: 0] += sample.value
        }
        return sums
    }

    // MARK: Counters

    /// Returns the increase of each counter of a family since the scrape before. A counter that fell began anew, so it
    /// counts whole. A counter that wasn't there before began at zero.
    private func increases(_ name: String) -> [(sample: MetricSample, increase: Double)]? {
        guard let before, now.contains(name) else { return nil }
        let old = Dictionary(before[name].map { ($0.labels, $0.value) }) { first, _ in first }
        // A family that appears with a restart or an upgrade has no start.
        return now[name].compactMap { sample in
            guard sample.value.isFinite else { return nil }
            let start = old[sample.labels] ?? 0
            return (sample, sample.value >= start ? sample.value - start : sample.value)
        }
    }

    /// Returns a family's rate, per second; nil when it is unknown.
    func rate(_ name: String, where matches: (MetricSample) -> Bool = { _ in true }) -> Double? {
        increases(name).map {
            $0.filter { matches($0.sample) }.reduce(0) { $0 + $1.increase } / seconds
        }
    }

    /// Returns rates by one label, per second.
    func rates(
        _ name: String, by label: String, where matches: (MetricSample) -> Bool = { _ in true }
    ) -> [String: Double] {
        var rates: [String: Double] = [:]
        for (sample, increase) in increases(name) ?? [] where matches(sample) {
            rates[sample[label], default: 0] += increase / seconds
        }
        return rates
    }

    // MARK: Histograms

    /// Returns the observations between the scrapes; nil when they are unknown.
    func histogram(
        _ name: String, where matches: (MetricSample) -> Bool = { _ in true }
    )
        -> HistogramIncrease?
    {
        guard let before, now.contains(name + "_bucket") else { return nil }
        let start = Self.cumulative(before[name + "_bucket"].filter(matches))
        var increase = HistogramIncrease()
        for (labels, buckets) in Self.cumulative(now[name + "_bucket"].filter(matches)) {
            var old = start[labels] ?? [:]
            let total = buckets[.infinity] ?? buckets.values.max() ?? 0
            // A histogram that fell began anew.
            if total < old[.infinity] ?? old.values.max() ?? 0 { old = [:] }
            var below = 0.0
            for bound in buckets.keys.sorted() {
                let count = max(0, (buckets[bound] ?? 0) - (old[bound] ?? 0))
                increase.add(count - below, upTo: bound)
                below = max(below, count)
            }
        }
        return increase
    }

    /// Counts of buckets by their bound, by the histogram's other labels.
    private static func cumulative(_ samples: [MetricSample]) -> [[MetricLabel]: [Double: Double]] {
        var found: [[MetricLabel]: [Double: Double]] = [:]
        for sample in samples where sample.value.isFinite {
            let text = sample["le"]
            guard let bound = text == "+Inf" ? .infinity : Double(text), !bound.isNaN else { continue }
            found[sample.labels.filter { $0.name != "le" }, default: [:]][bound, default: 0] +=
                sample.value
        }
        return found
    }
}

/// Observations between two scrapes, by the bucket that they are in.
struct HistogramIncrease: Sendable, Equatable {
    /// Counts by the upper bound of the bucket.
    private(set) var counts: [Double: Double] = [:]

    mutating func add(_ count: Double, upTo bound: Double) {
        counts[bound, default: 0] += max(0, count)
    }

    mutating func add(_ other: HistogramIncrease) {
        for (bound, count) in other.counts { counts[bound, default: 0] += count }
    }

    var total: Double { counts.values.reduce(0, +) }

    /// Returns the value below which a share of the observations lies, interpolated within its bucket; nil without
    /// observations. The last bucket has no end, and gives its start.
    func quantile(_ share: Double) -> Double? {
        let total = total
        guard total > 0 else { return nil }
        let rank = share * total
        var below = 0.0
        var lower = 0.0
        for bound in counts.keys.sorted() {
            let count = counts[bound] ?? 0
            if below + count >= rank, count > 0 {
                guard bound.isFinite else { return lower }
                return lower + (bound - lower) * max(0, rank - below) / count
            }
            below += count
            if bound.isFinite { lower = max(0, bound) }
        }
        return lower
    }
}
