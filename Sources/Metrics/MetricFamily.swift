/// Samples of one metric, as all formats show them.
public struct MetricFamily: Sendable, Equatable {
    public enum Kind: Sendable, Equatable {
        /// Grows only while the process lives. Its samples have the suffix `_total`.
        case counter
        case gauge
        /// Durations, with classic buckets at 2^n seconds for the exponents of the range.
        case histogram(ClosedRange<Int>)
    }

    public enum Value: Sendable, Equatable {
        case integer(Int)
        case number(Double)
        case histogram(HistogramSnapshot)
    }

    public struct Label: Sendable, Equatable {
        public var name: String
        public var value: String

        public init(_ name: String, _ value: String) {
            self.name = name
            self.value = value
        }
    }

    public struct Sample: Sendable, Equatable {
        public var labels: [Label]
        public var value: Value

        public init(_ labels: [Label] = [], _ value: Value) {
            self.labels = labels
            self.value = value
        }
    }

    /// Name without the suffix of a counter.
    public var name: String
    public var kind: Kind
    /// Meaning, in one sentence or two.
    public var help: String
    public var samples: [Sample]

    public init(_ name: String, _ kind: Kind, _ help: String, _ samples: [Sample]) {
        self.name = name
        self.kind = kind
        self.help = help
        self.samples = samples
    }

    /// Name as samples have it.
    public var sampleName: String { kind == .counter ? name + "_total" : name }

    /// Base unit that the name ends with; nil when it has none.
    var unit: String? { ["seconds", "bytes", "ratio"].first { name.hasSuffix("_" + $0) } }

    /// Type's name in both text formats.
    var typeName: String {
        switch kind {
        case .counter: "counter"
        case .gauge: "gauge"
        case .histogram: "histogram"
        }
    }
}
