import Foundation
import SluiceModel
import TestSupport
import Testing

@testable import LoadTest

@Suite("Load test: report")
struct ReportTests {
    private func text(_ page: String) -> String { page.replacing(#/<[^>]*>/#, with: " ") }

    @Test("a hostile text stays text, and the page has one script and one style")
    func hostileText() {
        for page in [
            RunReport(SampleResults.hostile).page(),
            ComparisonReport(
                Comparison(
                    [
                        .init(name: SampleResults.hostileText, results: [SampleResults.hostile]),
                        .init(name: "<b>", results: [SampleResults.run()]),
                    ], draws: 50)
            ).page(),
        ] {
            #expect(!page.contains("<img"))
            #expect(!page.contains("<b>"))
            #expect(!page.contains("\u{202E}") && !page.contains("\u{0}"))
            #expect(page.components(separatedBy: "<script").count == 2)
            #expect(page.components(separatedBy: "</script").count == 2)
            #expect(page.contains("&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;&quot;&#39;&amp;"))
        }
    }

    @Test("a page names nothing outside of itself")
    func nothingOutside() {
        for (name, page) in SampleResults.pages {
            let markup = page.replacing("http-equiv", with: "")
            #expect(!markup.contains("http"), "\(name)")
            #expect(!markup.contains("@import"), "\(name)")
            for start in ["url(", " src=\"", " href=\""] {
                for part in markup.components(separatedBy: start).dropFirst() {
                    #expect(part.hasPrefix("#") || part.hasPrefix("data:,\""), "\(name): \(part.prefix(40))")
                }
            }
            // The policy forbids styles and handlers of elements.
            for attribute in ["style", "onclick", "onload", "onerror", "oninput"] {
                #expect(!markup.contains(" \(attribute)=\""), "\(name)")
            }
        }
    }

    @Test("no coordinate and no text is nan, inf, nil or Optional")
    func noMissingNumbers() {
        let banned: Set<String> = ["nan", "NaN", "inf", "Inf", "infinity", "Infinity", "nil", "Optional"]
        for (name, page) in SampleResults.pages {
            let body = page.components(separatedBy: "<body>")[1].components(separatedBy: "<script>")[0]
            let words = body.utf8.split { !(65...90).contains($0) && !(97...122).contains($0) }
            #expect(banned.isDisjoint(with: Set(words.map { String($0) ?? "" })), "\(name)")
        }
    }

    @Test("the policy's hashes are those of style and script")
    func hashes() throws {
        for (text, hash) in [
            (ReportStyle.style, ReportStyle.styleHash), (ReportStyle.script, ReportStyle.scriptHash),
        ] {
            let directory = try TemporaryDirectory("hash")
            try directory.write(text, to: "text")
            let program =
                "import base64, hashlib, sys; print(base64.b64encode(hashlib.sha256(open(sys.argv[1], 'rb').read()).digest()).decode())"
            let result = try ChildProcess.run("python3", ["-c", program, directory.file("text")])
            let found = result.standardOutput.split(separator: "\n").first.map(String.init)
            #expect(found == hash, "the new hash is \(found ?? "")")
        }
    }

    @Test("a long word of a table's head can be broken, between its escaped characters")
    func breakableHead() {
        #expect(Markup.breakable("Outcomes a second") == "Outcomes a second")
        let long = Markup.breakable("a " + String(repeating: "<", count: 45))
        #expect(long.components(separatedBy: "<wbr>").map { $0.filter { $0 == ";" }.count } == [20, 20, 5])
        #expect(Markup.breakable("") == "")
    }

    @Test("equal results give equal pages")
    func isDeterministic() {
        #expect(RunReport(SampleResults.run()).page() == RunReport(SampleResults.run()).page())
    }

    @Test("the verdict is in words: passed, failed with numbers, none, not measured")
    func verdictInWords() {
        var result = SampleResults.run(hasOutage: false)
        #expect(text(RunReport(result).page()).contains("All 3 thresholds are met."))
        result.thresholds[1].isMet = false
        result.thresholds[1].value = nil
        let missed = text(RunReport(result).page())
        #expect(missed.contains("✗ Failed") && missed.contains("1 of 3 thresholds missed."))
        #expect(missed.contains("missed: not measured"))
        result.thresholds = []
        #expect(text(RunReport(result).page()).contains("No verdict"))
    }

    @Test("the reader of outcomes is named beside the generator, unless the result has no reader")
    func readerOfOutcomes() {
        var result = SampleResults.run(hasOutage: false)
        let quiet = RunReport(result).page()
        #expect(text(quiet).contains("not the reader of outcomes"))
        #expect(text(quiet).contains("Delay of the reader of outcomes, p99"))
        #expect(RunPlots(result).readerDelay.hasValues)
        result.reader?.wasLimit = true
        result.reader?.reason = "3.5 % were late"
        let slow = text(RunReport(result).page())
        #expect(slow.contains("was slow: 3.5 % were late.") && !slow.contains("not the reader of outcomes"))
        // A result of a program that measured no delay.
        result.reader = nil
        for index in result.seconds.indices { result.seconds[index].readerDelayMilliseconds = nil }
        #expect(!RunReport(result).page().contains("reader of outcomes"))
    }

    @Test("a lost job is in the audit's sentence")
    func auditInWords() {
        var result = SampleResults.run(hasOutage: false)
        #expect(text(RunReport(result).page()).contains("has exactly one outcome"))
        result.audit.missing = 3
        result.audit.once -= 3
        #expect(text(RunReport(result).page()).contains("; 3 without an outcome."))
    }

    @Test("a measured value has the unit of its bound")
    func unitOfTheBound() {
        func measured(_ bound: String, _ value: Double?) -> String {
            RunReport.measured(.init(name: "x", bound: bound, value: value, isMet: true))
        }
        #expect(measured("≤ 50 ms", 12.25) == "12.2 ms")
        #expect(measured("≥ 1900/s", 2_000) == "2,000/s")
        #expect(measured("0", 0) == "0")
        #expect(measured("≤ 50 ms", nil) == "–")
        #expect(measured("", 1) == "1")
    }

    // MARK: Warnings

    @Test("a quiet run has no warning, and each disturbance has its own")
    func warnings() {
        let quiet = SampleResults.run(hasOutage: false)
        #expect(quiet.warnings == [])
        func warnings(_ change: (inout RunResult) -> Void) -> [String] {
            var result = quiet
            change(&result)
            return result.warnings
        }
        let disturbed = [
            warnings { $0.environment.noise.medianSlowdown = 1.3 },
            warnings { $0.environment.noise.worstSlowdown = 4 },
            warnings { $0.environment.noise.stolenShare = 0.04 },
            warnings { $0.environment.noise.othersShare = 0.4 },
            warnings { $0.environment.loadBefore = 3.5 },
            warnings {
                $0.generator.wasLimit = true
                $0.generator.reason = "the queue was full"
            },
            warnings { $0.reader?.wasLimit = true },
            warnings { $0.phases[1].produced = $0.phases[1].intended / 2 },
            warnings { $0.phases[1].latency = HDRHistogram() },
        ]
        for found in disturbed { #expect(found.count == 1, "\(found)") }
        #expect(disturbed[2][0].contains("4 %"))
        #expect(disturbed[5][0].contains("the queue was full"))
        #expect(disturbed[6][0].contains("The reader of outcomes"))
        #expect(SampleResults.oneSecond.warnings.contains { $0.contains("fewer than ten") })
    }

    // MARK: Plots

    private func plot(_ values: [Double?]) -> Plot {
        Plot(
            identifier: "p", title: "T", xName: "second", yName: "n", xs: values.indices.map(Double.init),
            xLabels: values.indices.map(String.init), x: .time(from: 0, to: Double(max(1, values.count))),
            y: .linear(to: 10), series: [Plot.Series("a", values)], rows: Array(values.indices), group: "g")
    }

    @Test("a gap interrupts the line, and a point between gaps has a marker")
    func gaps() throws {
        let svg = plot([1, 2, nil, 5, nil, 3, .nan, 4, 6, 2, 1, 7, 8, 9, 1, 2, 3, 4, 5, 6]).svg()
        let line = try #require(svg.firstMatch(of: #/class="line c0" d="([^"]*)"/#)?.1)
        #expect(line.filter { $0 == "M" }.count == 4)
        // The points at 3 and 5 have neighbours without a value.
        for place in [3, 5] {
            let x = Plot.coordinate(72 + Double(place) / 20 * (508 - 72))
            #expect(svg.contains(#"class="marker c0" d="M\#(x) "#), "\(place)")
        }
    }

    @Test("a plot without a value is a sentence")
    func noValue() {
        let figure = plot([nil, nil]).figure()
        #expect(!figure.contains("<svg"))
        #expect(figure.contains("Not measured"))
    }

    @Test("the description has least, mean and greatest value, and the table has each value")
    func description() {
        let plot = plot([1, nil, 5])
        #expect(plot.summary.contains("a: least 1, mean 3, greatest 5"))
        let rows = plot.figure().matches(
            of: #/<tr data-x="[0-9.]+"><th scope="row">(\d+)<\/th><td class="n">([^<]*)<\/td>/#)
        #expect(rows.map { "\($0.1) \($0.2)" } == ["0 1", "1 –", "2 5"])
    }

    @Test("series differ by dashes and markers, not by colour alone")
    func linesDiffer() throws {
        var plot = plot([1, 2, 3])
        plot.series = (0..<6).map { Plot.Series("\($0)", [1, 2, 3]) }
        let figure = plot.figure()
        let swatches = figure.matches(of: #/<svg class="swatch".*?<\/svg>/#).map {
            String($0.0).replacing(#/c\d/#, with: "")
        }
        #expect(swatches.count == 6)
        #expect(Set(swatches).count == 6)
        #expect(Set((0..<6).map { Plot.marker($0, 0, 0).replacing(#/c\d/#, with: "") }).count == 6)
    }

    @Test("a long run has at most 300 points, and they have all outcomes")
    func longRun() {
        let result = SampleResults.long
        let series = RunSeries(result)
        #expect(series.points.count <= 300)
        #expect(series.width == 7)
        #expect(
            series.points.reduce(0) { $0 + $1.sum.allOutcomes }
                == result.seconds.reduce(0) { $0 + $1.allOutcomes })
        let greatest = result.seconds[0..<7].map(\.open).max()
        #expect(series.points[0].sum.open == greatest)
        #expect(RunPlots(result).resolution.contains("7 seconds"))
        #expect(RunPlots(result).cpu.series.count <= 6)
    }

    @Test("percentiles in one pass equal single ones")
    func percentilesInOnePass() {
        let latency = SampleResults.run().phases[1].latency
        let percentiles = [0, 10, 50, 90, 99, 99.9, 99.99, 100]
        #expect(
            latency.milliseconds(atPercentiles: percentiles)
                == percentiles.map { latency.milliseconds(atPercentile: $0) })
        #expect(HDRHistogram().milliseconds(atPercentiles: [50, 99]) == [nil, nil])
    }

    // MARK: Scales and numbers

    @Test("axes hold their values, and ticks ascend within the axis")
    func scales() {
        var random = SeededGenerator(seed: 3)
        for _ in 0..<500 {
            let size = pow(10, Double.random(in: -9...18, using: &random))
            let values = (0..<5).map { _ in size * Double.random(in: 0.01...1, using: &random) }
            let greatest = values.max() ?? 1
            for scale in [
                Scale.linear(to: greatest), .logarithmic(values), .time(from: 0, to: greatest),
                .around(greatest),
            ] {
                let ticks = scale.ticks.map(\.value)
                #expect((1...14).contains(ticks.count), "\(greatest): \(ticks)")
                #expect(ticks == ticks.sorted())
                for tick in ticks { #expect((0...1).contains(scale.position(tick))) }
                for (one, two) in zip(values.sorted(), values.sorted().dropFirst()) {
                    #expect(scale.position(one) <= scale.position(two))
                }
            }
            #expect(Scale.linear(to: greatest).ticks.last.map { $0.value >= greatest * 0.999_999 } == true)
        }
    }

    @Test(
        "axes without a usable value still have ticks",
        arguments: [0, -1, .nan, .infinity, .leastNonzeroMagnitude])
    func degenerateScales(value: Double) {
        for scale in [
            Scale.linear(to: value), .logarithmic([value]), .time(from: 0, to: value), .around(value),
            .tail(count: 0),
        ] {
            #expect(!scale.ticks.isEmpty)
            for tested in [value, 0, 1, .nan] { #expect((0...1).contains(scale.position(tested))) }
        }
        #expect(!Scale.logarithmic([]).ticks.isEmpty)
    }

    @Test("the axis of percentiles has equal distances for each nine")
    func tail() {
        let scale = Scale.tail(count: 1_000_000)
        let places = [90, 99, 99.9, 99.99].map(scale.position)
        for (one, two) in zip(places, places.dropFirst()) { #expect(abs(two - one - places[0]) < 1e-6) }
        #expect(scale.ticks.map(\.label) == ["0", "50", "90", "99", "99.9", "99.99", "99.999"])
        #expect(Scale.tail(count: 20).ticks.last?.label == "99.9")
    }

    @Test("numbers for readers")
    func numbers() {
        let texts: [(Double?, String)] = [
            (0, "0"), (1, "1"), (1.234, "1.23"), (12.34, "12.3"), (99.96, "100"), (1_234.4, "1,234"),
            (-2.5, "−2.5"),
            (0.05, "0.05"), (0.001, "0.001"), (1.5e-8, "1.5e−8"), (2e15, "2e15"), (nil, "–"), (.nan, "–"),
            (.infinity, "–"), (1_234_567, "1,234,567"),
        ]
        for (value, text) in texts { #expect(FigureText.number(value) == text) }
        #expect(FigureText.milliseconds(12_000) == "12 s")
        #expect(FigureText.bytes(1_572_864) == "1.5 MiB")
        #expect(FigureText.percent(0.123) == "12.3 %")
        #expect(Scale.compact(20_000) == "20k")
        #expect(Scale.compact(2_500_000) == "2.5M")
    }
}
