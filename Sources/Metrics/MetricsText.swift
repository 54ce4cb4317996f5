/// Both text formats.
enum MetricsText {
    static func encode(_ families: [MetricFamily], isOpen: Bool) -> String {
        var text = ""
        for family in families where !family.samples.isEmpty {
            let name = isOpen ? family.name : family.sampleName
            text +=
                "# HELP \(name) \(escaped(family.help, quotes: isOpen))\n# TYPE \(name) \(family.typeName)\n"
            if isOpen, let unit = family.unit { text += "# UNIT \(name) \(unit)\n" }
            for sample in family.samples { append(sample, of: family, to: &text, isOpen: isOpen) }
        }
        if isOpen { text += "# EOF\n" }
        return text
    }

    private static func append(
        _ sample: MetricFamily.Sample, of family: MetricFamily, to text: inout String, isOpen: Bool
    ) {
        let labels = sample.labels.map { "\($0.name)=\"\(escaped($0.value, quotes: true))\"" }
            .joined(separator: ",")
        switch sample.value {
        case .integer(let value): text += line(family.sampleName, labels, "\(value)")
        case .number(let value): text += line(family.sampleName, labels, number(value))
        case .histogram(let histogram):
            guard case .histogram(let exponents) = family.kind else { return }
            let count = histogram.count
            let separator = labels.isEmpty ? "" : ","
            var exemplar = isOpen ? histogram.exemplar : nil
            for (bound, below) in histogram.classicBuckets(exponents) + [(.infinity, count)] {
                let value = "\(labels)\(separator)le=\"\(number(bound))\""
                var suffix = ""
                if let found = exemplar, found.seconds <= bound {
                    suffix =
                        " # {trace_id=\"\(found.traceIdentifier)\"} \(number(found.seconds)) \(time(found))"
                    exemplar = nil
                }
                text += line(family.name + "_bucket", value, "\(below)\(suffix)")
            }
            text += line(family.name + "_sum", labels, number(histogram.sum))
            text += line(family.name + "_count", labels, "\(count)")
        }
    }

    private static func line(_ name: String, _ labels: String, _ value: String) -> String {
        labels.isEmpty ? "\(name) \(value)\n" : "\(name){\(labels)} \(value)\n"
    }

    private static func time(_ exemplar: Exemplar) -> String { number(Double(exemplar.milliseconds) / 1e3) }

    private static func number(_ value: Double) -> String {
        if value == .infinity { return "+Inf" }
        if value == -.infinity { return "-Inf" }
        if value.isNaN { return "NaN" }
        return "\(value)"
    }

    private static func escaped(_ text: String, quotes: Bool) -> String {
        guard text.utf8.contains(where: { $0 == 0x5C || $0 == 0x0A || $0 == 0x22 }) else { return text }
        var escaped = ""
        for character in text.unicodeScalars {
            switch character {
            case "\\": escaped += "\\\\"
            case "\n": escaped += "\\n"
            case "\"" where quotes: escaped += "\\\""
            default: escaped.unicodeScalars.append(character)
            }
        }
        return escaped
    }
}
