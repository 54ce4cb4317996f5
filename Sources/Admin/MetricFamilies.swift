import Metrics

/// Families of a scrape in their order. All names begin with `sluice_`, except `process_`.
struct MetricFamilies {
    private(set) var list: [MetricFamily] = []

    typealias Label = MetricFamily.Label
    typealias Sample = MetricFamily.Sample

    mutating func counter(_ name: String, _ help: String, _ value: Int) {
        counter(name, help, [Sample([], .integer(value))])
    }

    mutating func counter(_ name: String, _ help: String, _ samples: [Sample]) {
        list.append(MetricFamily("sluice_\(name)", .counter, help, samples))
    }

    mutating func gauge(_ name: String, _ help: String, _ value: Int) {
        gauge(name, help, [Sample([], .integer(value))])
    }

    mutating func gauge(_ name: String, _ help: String, _ value: Double) {
        gauge(name, help, [Sample([], .number(value))])
    }

    mutating func gauge(_ name: String, _ help: String, _ samples: [Sample]) {
        list.append(MetricFamily("sluice_\(name)", .gauge, help, samples))
    }

    /// - Parameter exponents: exponents of two of the classic buckets' bounds, in seconds.
    mutating func histogram(
        _ name: String, _ help: String, _ exponents: ClosedRange<Int>, _ samples: [Sample]
    ) {
        list.append(MetricFamily("sluice_\(name)", .histogram(exponents), help, samples))
    }

    /// Appends a family under its own name.
    mutating func append(_ family: MetricFamily) { list.append(family) }
}

extension MetricFamily.Sample {
    init(_ labels: KeyValuePairs<String, String>, _ value: MetricFamily.Value) {
        self.init(labels.map { MetricFamily.Label($0.key, $0.value) }, value)
    }
}
