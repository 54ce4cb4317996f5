import Foundation
import TestSupport
import Testing

@testable import Metrics

@Suite("Metrics: formats")
struct MetricsFormatTests {
    private static let families: [MetricFamily] = {
        let histogram = ExponentialHistogram()
        histogram.record(milliseconds: 300)
        histogram.record(milliseconds: 1500)
        histogram.record(milliseconds: 90_000)
        histogram.note(Exemplar(trace: (0xAB, 1), seconds: 1.5, milliseconds: 1_700_000_000_250))
        return [
            MetricFamily(
                "sluice_x", .counter, "Back\\slash,\nline, \"quote\".",
                [.init([.init("l", "q\"u\\o\nte")], .integer(1)), .init([], .integer(7))]),
            MetricFamily("sluice_y_seconds", .gauge, "A gauge.", [.init([], .number(0.5))]),
            MetricFamily("sluice_none", .gauge, "No sample.", []),
            MetricFamily(
                "sluice_z_seconds", .histogram(-1...2), "A histogram.",
                [.init([.init("app", "news")], .histogram(histogram.snapshot()))]),
        ]
    }()

    private func text(_ format: MetricsFormat) -> String {
        String(decoding: format.encode(Self.families), as: UTF8.self)
    }

    @Test("the text format has escapes, counters with their suffix, and classic buckets; no empty family")
    func textFormat() {
        #expect(
            text(.text) == #"""
                # HELP sluice_x_total Back\\slash,\nline, "quote".
                # TYPE sluice_x_total counter
                sluice_x_total{l="q\"u\\o\nte"} 1
                sluice_x_total 7
                # HELP sluice_y_seconds A gauge.
                # TYPE sluice_y_seconds gauge
                sluice_y_seconds 0.5
                # HELP sluice_z_seconds A histogram.
                # TYPE sluice_z_seconds histogram
                sluice_z_seconds_bucket{app="news",le="0.5"} 1
                sluice_z_seconds_bucket{app="news",le="1.0"} 1
                sluice_z_seconds_bucket{app="news",le="2.0"} 2
                sluice_z_seconds_bucket{app="news",le="4.0"} 2
                sluice_z_seconds_bucket{app="news",le="+Inf"} 3
                sluice_z_seconds_sum{app="news"} 91.8
                sluice_z_seconds_count{app="news"} 3

                """#)
    }

    @Test("OpenMetrics has units, the exemplar in its bucket, and the end mark")
    func openMetrics() {
        let text = text(.openMetrics)
        #expect(text.contains("# TYPE sluice_x counter\nsluice_x_total{"))
        #expect(text.contains("# UNIT sluice_y_seconds seconds\n"))
        #expect(
            text.contains(
                #"le="2.0"} 2 # {trace_id="00000000000000ab0000000000000001"} 1.5 1700000000.25"#))
        #expect(text.components(separatedBy: "trace_id").count == 2)
        #expect(text.hasSuffix("\n# EOF\n"))
    }

    /// Clients of other authors judge the formats: prometheus_client's parsers, and a decoder of protocol buffers without
    /// our code.
    @Test(
        "Prometheus' Python library reads both text formats, and a foreign decoder the native buckets",
        .enabled(
            if: PythonPackages.interpreter != nil, "the packages of Tests/requirements.txt are not installed")
    )
    func foreignReaders() throws {
        let directory = try TemporaryDirectory("metrics")
        for (name, format) in [("text", MetricsFormat.text), ("open", .openMetrics), ("binary", .protobuf)] {
            try Data(format.encode(Self.families)).write(to: URL(filePath: directory.file(name)))
        }
        let script = URL(filePath: #filePath).deletingLastPathComponent().appending(
            path: "Clients/read_metrics.py")
        let result = try ChildProcess.run(
            PythonPackages.interpreter ?? "", [script.path(percentEncoded: false), directory.path])
        #expect(result.exit == .status(0), "\(result.standardError)")
    }

    @Test(
        "the format is the one that the request prefers; without a known one it is the text format",
        arguments: [
            (nil, MetricsFormat.text), ("*/*", .text), ("text/html", .text),
            ("application/openmetrics-text; version=1.0.0; charset=utf-8", .openMetrics),
            ("application/openmetrics-text; version=9.0.0, text/plain;version=0.0.4;q=0.1", .text),
            (
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited;q=0.7,application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.2",
                .protobuf
            ),
            ("application/vnd.google.protobuf; encoding=text", .text),
            ("text/plain;q=0.4, application/openmetrics-text;q=0.3", .text),
            ("application/openmetrics-text;q=0", .text), (";;,;q=x,", .text),
        ])
    func negotiation(_ field: String?, _ format: MetricsFormat) {
        #expect(MetricsFormat.accepted(by: field) == format)
    }
}
