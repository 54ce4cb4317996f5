/// Format of a scrape's answer.
public enum MetricsFormat: Sendable, CaseIterable {
    /// Prometheus' text format: https://prometheus.io/docs/instrumenting/exposition_formats/
    case text
    /// OpenMetrics 1.0.0, with exemplars: https://prometheus.io/docs/specs/om/open_metrics_spec/
    case openMetrics
    /// Prometheus' protocol buffers, the only format with native histograms.
    case protobuf

    public var contentType: String {
        switch self {
        case .text: "text/plain; version=0.0.4; charset=utf-8"
        case .openMetrics: "application/openmetrics-text; version=1.0.0; charset=utf-8"
        case .protobuf:
            "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
        }
    }

    /// Returns the format that a field `Accept` prefers; the text format when it names none of the formats.
    public static func accepted(by field: String?) -> MetricsFormat {
        var best = (format: MetricsFormat.text, quality: 0.0)
        for range in (field ?? "").split(separator: ",") {
            let parts = range.split(separator: ";").map { part in
                String(part.filter { $0 != " " && $0 != "\t" }).lowercased()
            }
            guard let type = parts.first else { continue }
            var quality = 1.0
            if let text = parts.first(where: { $0.hasPrefix("q=") })?.dropFirst(2) {
                quality = Double(text) ?? 0
            }
            guard let format = format(type, parts.dropFirst()), quality > best.quality else { continue }
            best = (format, quality)
        }
        return best.format
    }

    private static func format(_ type: String, _ parameters: ArraySlice<String>) -> MetricsFormat? {
        func has(_ name: String, _ values: [String]) -> Bool {
            guard let found = parameters.first(where: { $0.hasPrefix(name + "=") }) else { return true }
            return values.contains(String(found.dropFirst(name.count + 1)).filter { $0 != "\"" })
        }
        switch type {
        case "application/vnd.google.protobuf"
        where has("proto", ["io.prometheus.client.metricfamily"]) && has("encoding", ["delimited"]):
            return .protobuf
        case "application/openmetrics-text" where has("version", ["1.0.0", "0.0.1"]): return .openMetrics
        case "text/plain" where has("version", ["0.0.4"]), "text/*", "*/*": return .text
        default: return nil
        }
    }

    /// Returns a scrape's answer.
    public func encode(_ families: [MetricFamily]) -> [UInt8] {
        switch self {
        case .text: return Array(MetricsText.encode(families, isOpen: false).utf8)
        case .openMetrics: return Array(MetricsText.encode(families, isOpen: true).utf8)
        case .protobuf:
            var writer = ProtobufWriter()
            for family in families { writer.message(family) }
            return writer.bytes
        }
    }
}
