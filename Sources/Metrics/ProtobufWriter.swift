/// Writes messages of io.prometheus.client: https://github.com/prometheus/client_model
struct ProtobufWriter {
    private(set) var bytes: [UInt8] = []

    private enum Wire: UInt64 {
        case varint = 0
        case fixed64 = 1
        case length = 2
    }

    /// Appends a family behind its length.
    mutating func message(_ family: MetricFamily) {
        guard !family.samples.isEmpty else { return }
        var part = ProtobufWriter()
        part.field(1, family.sampleName)
        part.field(2, family.help)
        switch family.kind {
        case .counter: part.integer(3, 0)
        case .gauge: part.integer(3, 1)
        case .histogram: part.integer(3, 4)
        }
        for sample in family.samples { part.field(4) { $0.metric(sample, family.kind) } }
        varint(UInt64(part.bytes.count))
        bytes += part.bytes
    }

    private mutating func metric(_ sample: MetricFamily.Sample, _ kind: MetricFamily.Kind) {
        for label in sample.labels {
            field(1) {
                $0.field(1, label.name)
                $0.field(2, label.value)
            }
        }
        switch sample.value {
        case .integer(let value): field(kind == .counter ? 3 : 2) { $0.double(1, Double(value)) }
        case .number(let value): field(kind == .counter ? 3 : 2) { $0.double(1, value) }
        case .histogram(let histogram):
            guard case .histogram(let exponents) = kind else { return }
            field(7) { $0.histogram(histogram, exponents) }
        }
    }

    private mutating func histogram(_ histogram: HistogramSnapshot, _ exponents: ClosedRange<Int>) {
        integer(1, histogram.count)
        double(2, histogram.sum)
        var exemplar = histogram.exemplar
        for (bound, below) in histogram.classicBuckets(exponents) + [(.infinity, histogram.count)] {
            field(3) { bucket in
                bucket.integer(1, below)
                bucket.double(2, bound)
                guard let found = exemplar, found.seconds <= bound else { return }
                bucket.field(3) { $0.exemplar(found) }
                exemplar = nil
            }
        }
        signed(5, Int64(ExponentialHistogram.schema))
        // A threshold tells a histogram without durations from a classic one.
        double(6, 0x1p-128)
        integer(7, 0)
        let native = histogram.nativeBuckets
        var next = 0
        var start = native.startIndex
        // A span is a run of buckets; its offset counts from the end of the span before.
        while start < native.endIndex {
            var end = start + 1
            while end < native.endIndex, native[end].index == native[end - 1].index + 1 { end += 1 }
            let (offset, length) = (native[start].index - next, end - start)
            field(12) {
                $0.signed(1, Int64(offset))
                $0.integer(2, UInt64(length))
            }
            next = native[end - 1].index + 1
            start = end
        }
        var deltas = ProtobufWriter()
        var before: Int64 = 0
        for bucket in native {
            let count = Int64(clamping: bucket.count)
            deltas.varint(Self.zigZag(count - before))
            before = count
        }
        if !native.isEmpty { field(13) { $0.bytes += deltas.bytes } }
    }

    private mutating func exemplar(_ exemplar: Exemplar) {
        field(1) {
            $0.field(1, "trace_id")
            $0.field(2, exemplar.traceIdentifier)
        }
        double(2, exemplar.seconds)
        field(3) {
            $0.integer(1, UInt64(max(0, exemplar.milliseconds / 1000)))
            $0.integer(2, UInt64(max(0, exemplar.milliseconds % 1000)) * 1_000_000)
        }
    }

    // MARK: Fields

    private mutating func field(_ number: UInt64, _ text: String) {
        field(number) { $0.bytes += Array(text.utf8) }
    }

    private mutating func integer(_ number: UInt64, _ value: UInt64) {
        tag(number, .varint)
        varint(value)
    }

    private mutating func double(_ number: UInt64, _ value: Double) {
        tag(number, .fixed64)
        withUnsafeBytes(of: value.bitPattern.littleEndian) { bytes += $0 }
    }

    private mutating func signed(_ number: UInt64, _ value: Int64) { integer(number, Self.zigZag(value)) }

    private mutating func field(_ number: UInt64, _ write: (inout ProtobufWriter) -> Void) {
        var part = ProtobufWriter()
        write(&part)
        tag(number, .length)
        varint(UInt64(part.bytes.count))
        bytes += part.bytes
    }

    private mutating func tag(_ number: UInt64, _ wire: Wire) { varint(number << 3 | wire.rawValue) }

    private mutating func varint(_ value: UInt64) {
        var value = value
        while value >= 0x80 {
            bytes.append(UInt8(truncatingIfNeeded: value) | 0x80)
            value >>= 7
        }
        bytes.append(UInt8(value))
    }

    private static func zigZag(_ value: Int64) -> UInt64 { UInt64(bitPattern: value << 1 ^ value >> 63) }
}
