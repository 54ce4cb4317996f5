/// A label of a sample.
struct MetricLabel: Hashable, Comparable, Sendable {
    var name: String
    var value: String

    static func < (a: MetricLabel, b: MetricLabel) -> Bool { (a.name, a.value) < (b.name, b.value) }
}

/// A sample of one family.
struct MetricSample: Sendable, Equatable {
    /// Sorted by name.
    var labels: [MetricLabel]
    var value: Double

    /// Returns the value of a label; empty when the sample has no such label.
    subscript(_ name: String) -> String { labels.first { $0.name == name }?.value ?? "" }
}

/// Samples of one scrape, in Prometheus' text format 0.0.4:
/// https://prometheus.io/docs/instrumenting/exposition_formats/
///
/// Any bytes can be read. Lines that are no samples are left out and reported.
struct MetricsDocument: Sendable, Equatable {
    /// Samples by their full name, in the order of the text.
    private(set) var samples: [String: [MetricSample]] = [:]
    /// Number of lines that are no samples.
    private(set) var faultCount = 0
    /// First faults, with their line numbers.
    private(set) var faults: [String] = []
    /// Whether further samples were left out because there are too many.
    private(set) var isTruncated = false

    /// Most samples that are kept.
    static let mostSamples = 200_000
    /// Most labels of a sample.
    static let mostLabels = 32
    private static let mostFaults = 3

    init() {}

    init(_ text: [UInt8], mostSamples: Int = mostSamples) {
        var number = 0
        var count = 0
        for line in text.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false) {
            number += 1
            var reader = LineReader(line)
            reader.skipBlanks()
            if reader.isAtEnd || reader.peek == UInt8(ascii: "#") { continue }
            guard let (name, sample) = reader.sample() else {
                faultCount += 1
                if faults.count < Self.mostFaults { faults.append("line \(number): \(reader.fault)") }
                continue
            }
            guard count < mostSamples else {
                isTruncated = true
                return
            }
            count += 1
            samples[name, default: []].append(sample)
        }
    }

    subscript(_ name: String) -> [MetricSample] { samples[name] ?? [] }

    /// Whether the document has a sample of this name.
    func contains(_ name: String) -> Bool { samples[name] != nil }

    /// Faults for people: the first ones, the number of further ones, and samples that were left out.
    var faultTexts: [String] {
        var texts = faults
        if faultCount > faults.count {
            texts.append("\(faultCount - faults.count) further lines can't be read")
        }
        if isTruncated {
            texts.append("there are more samples than \(Self.mostSamples); the rest is left out")
        }
        return texts
    }

    /// Reads one line.
    private struct LineReader {
        private let bytes: ArraySlice<UInt8>
        private var index: Int
        private(set) var fault = "no sample"

        init(_ bytes: ArraySlice<UInt8>) {
            self.bytes = bytes.last == UInt8(ascii: "\r") ? bytes.dropLast() : bytes
            index = bytes.startIndex
        }

        var isAtEnd: Bool { index >= bytes.endIndex }
        var peek: UInt8? { isAtEnd ? nil : bytes[index] }

        mutating func skipBlanks() {
            while let byte = peek, byte == 0x20 || byte == 0x09 { index += 1 }
        }

        private mutating func take(_ character: Unicode.Scalar) -> Bool {
            guard peek == UInt8(ascii: character) else { return false }
            index += 1
            return true
        }

        private static func isNameByte(_ byte: UInt8, first: Bool) -> Bool {
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "_"),
                UInt8(ascii: ":"):
                true
            case UInt8(ascii: "0")...UInt8(ascii: "9"): !first
            default: false
            }
        }

        private mutating func name() -> String? {
            let start = index
            while let byte = peek, Self.isNameByte(byte, first: index == start) { index += 1 }
            return index > start ? String(decoding: bytes[start..<index], as: UTF8.self) : nil
        }

        mutating func sample() -> (String, MetricSample)? {
            guard let name = name() else { return refuse("no name") }
            skipBlanks()
            var labels: [MetricLabel] = []
            if take("{") {
                while true {
                    skipBlanks()
                    if take("}") { break }
                    guard labels.count < MetricsDocument.mostLabels else { return refuse("too many labels") }
                    guard let label = self.name() else { return refuse("a label without a name") }
                    skipBlanks()
                    guard take("=") else { return refuse("a label without `=`") }
                    skipBlanks()
                    guard let value = quoted() else { return refuse("a label without a quoted value") }
                    labels.append(MetricLabel(name: label, value: value))
                    skipBlanks()
                    if take(",") { continue }
                    guard peek == UInt8(ascii: "}") else { return refuse("labels without `}`") }
                }
            }
            skipBlanks()
            guard let value = number() else { return refuse("no number") }
            skipBlanks()
            if !isAtEnd {
                guard let time = word(), Int64(time) != nil else {
                    return refuse("more than a number and a time")
                }
                skipBlanks()
                guard isAtEnd else { return refuse("more than a number and a time") }
            }
            return (name, MetricSample(labels: labels.sorted(), value: value))
        }

        private mutating func refuse(_ text: String) -> (String, MetricSample)? {
            fault = text
            return nil
        }

        /// Reads a value with the escapes `\\`, `\"` and `\n`.
        private mutating func quoted() -> String? {
            guard take("\"") else { return nil }
            var value: [UInt8] = []
            while let byte = peek {
                index += 1
                switch byte {
                case UInt8(ascii: "\""): return String(decoding: value, as: UTF8.self)
                case UInt8(ascii: "\\"):
                    guard let next = peek else { return nil }
                    index += 1
                    value.append(next == UInt8(ascii: "n") ? 0x0A : next)
                default: value.append(byte)
                }
            }
            return nil
        }

        private mutating func word() -> String? {
            let start = index
            while let byte = peek, byte != 0x20, byte != 0x09 { index += 1 }
            return index > start ? String(decoding: bytes[start..<index], as: UTF8.self) : nil
        }

        private mutating func number() -> Double? {
            guard let word = word() else { return nil }
            switch word {
            case "+Inf", "Inf": return .infinity
            case "-Inf": return -.infinity
            case "NaN": return .nan
            default: return Double(word)
            }
        }
    }
}
