/// Page that compares groups of runs.
public struct ComparisonReport {
    private let comparison: Comparison

    public init(_ comparison: Comparison) { self.comparison = comparison }

    private var groups: [Comparison.Group] { comparison.groups }
    private var results: [RunResult] { groups.flatMap(\.results) }

    /// Returns the document in HTML.
    public func page() -> String {
        let sections: [(id: String, title: String, body: String)] = [
            ("verdict", "Differences", differences()),
            ("plots", "Plots", plots()),
            ("runs", "Runs", runs()),
            ("conditions", "Conditions", conditions()),
        ]
        let names = groups.map(\.name).joined(separator: ", ")
        var body = RunReport.header(
            title: "Comparison of load tests", description: "Groups: \(names).",
            line: groups.map { "\($0.name): \($0.results.count) \($0.results.count == 1 ? "run" : "runs")" }
                .joined(separator: " · "), sections: sections.map { ($0.id, $0.title) })
        for section in sections {
            body +=
                #"<section aria-labelledby="\#(section.id)"><h2 id="\#(section.id)">\#(section.title)</h2>"#
            body += "\n\(section.body)</section>\n"
        }
        return ReportStyle.page(title: "Comparison: \(names)", body: body + RunReport.footer)
    }

    // MARK: Differences

    private func differences() -> String {
        var text = RunReport.warnings(warnings)
        guard !comparison.pairs.isEmpty else {
            return text + "<p>There is a single group, so that there is nothing to compare.</p>\n"
        }
        for (index, pair) in comparison.pairs.enumerated() {
            let title = "\(pair.name) against \(groups[0].name)"
            text += #"<h3 class="part">\#(Markup.escaped(title))</h3>"# + "\n"
            text += "<p><strong>\(Markup.escaped(sentence(pair)))</strong></p>\n"
            text += "<p>\(Markup.escaped(Self.explanation(pair.method)))</p>\n"
            text += Markup.table(
                title,
                head: [
                    "Figure", "Unit", groups[0].name, pair.name, "Difference", "In %", "95 % interval",
                    "Verdict",
                ],
                rows: pair.lines.map(Self.row), numeric: [2, 3, 4, 5, 6])
            text += IntervalPlot(
                identifier: "interval-\(index)", title: "Differences of \(title), with intervals",
                lines: pair.lines
            ).figure()
        }
        return text
    }

    /// Differences that the intervals show, in a sentence.
    private func sentence(_ pair: Comparison.Pair) -> String {
        let judged = pair.lines.filter { $0.low != nil && $0.isLowerBetter != nil }
        guard !judged.isEmpty else { return "There is no interval, so that no difference can be shown." }
        let (better, worse) = (
            judged.filter { $0.verdict.hasSuffix("better") }, judged.filter { $0.verdict.hasSuffix("worse") }
        )
        if better.isEmpty, worse.isEmpty { return "No difference shown." }
        var parts: [String] = []
        if !better.isEmpty { parts.append("Better: \(better.map(\.name).joined(separator: "; "))") }
        if !worse.isEmpty { parts.append("Worse: \(worse.map(\.name).joined(separator: "; "))") }
        return parts.joined(separator: ". ") + "."
    }

    private static func row(_ line: Comparison.Line) -> [String] {
        let share = line.base.flatMap { base in base != 0 ? line.difference.map { 100 * $0 / base } : nil }
        let verdict = Markup.escaped(line.verdict)
        let kind = line.verdict.hasSuffix("better") ? "met" : line.verdict.hasSuffix("worse") ? "missed" : ""
        let interval: String? = line.low.flatMap { low in
            line.high.map { "\(signed(low)) to \(signed($0))" }
        }
        return [
            Markup.escaped(line.name), Markup.escaped(line.unit), FigureText.number(line.base),
            FigureText.number(line.other), signed(line.difference), signed(share),
            interval ?? FigureText.absent,
            kind.isEmpty ? verdict : #"<span class="\#(kind)">\#(verdict)</span>"#,
        ]
    }

    static func signed(_ value: Double?) -> String {
        guard let value, value > 0 else { return FigureText.number(value) }
        return "+" + FigureText.number(value)
    }

    /// Origin of the intervals, and their limits, in sentences.
    public static func explanation(_ method: Comparison.Method) -> String {
        let chance = " About one interval in twenty excludes 0 by chance."
        return switch method {
        case .paired(let count):
            "The runs alternated. Intervals are those of \(count) pairs of neighbouring runs, by Student's distribution."
                + chance
        case .welch(let one, let two):
            "Intervals are those of \(one) and \(two) runs as independent samples, by Welch's method. Runs that alternate"
                + " would exclude slow changes of the machine." + chance
        case .seconds:
            "A group has a single run. Intervals come from seconds of the main phases, drawn again in blocks, because"
                + " neighbouring seconds resemble each other. They leave out the difference between one run and the next."
                + " Repeat the runs in turn (--repeat) before a conclusion." + chance
        case .none:
            "A run has fewer than \(SecondsSample.leastSeconds) whole seconds of main phases, and a group has a single"
                + " run. There is no interval."
        }
    }

    /// Warnings of a group's runs. Warnings that differ in their numbers alone become one.
    private static func joined(_ group: Comparison.Group) -> [String] {
        var kinds: [(text: String, runs: [Int])] = []
        func kind(_ text: String) -> Substring { text.prefix { !$0.isNumber } }
        for (index, result) in group.results.enumerated() {
            for text in result.warnings {
                if let place = kinds.firstIndex(where: { kind($0.text) == kind(text) }) {
                    kinds[place].runs.append(index + 1)
                } else {
                    kinds.append((text, [index + 1]))
                }
            }
        }
        return kinds.map { text, runs in
            switch (group.results.count, runs.count) {
            case (1, _): "\(group.name): \(text)"
            case (_, 1): "\(group.name), run \(runs[0]): \(text)"
            case (let all, let count):
                "\(group.name), \(count) of \(all) runs, the first being run \(runs[0]): \(text)"
            }
        }
    }

    /// Reasons to doubt the comparison.
    private var warnings: [String] {
        var found: [String] = []
        func differs<Value: Hashable>(_ value: (RunResult) -> Value) -> Bool {
            Set(results.map(value)).count > 1
        }
        if differs(\.scenario.name) { found.append("The runs have different scenarios.") }
        if differs(\.scenario.target) { found.append("The runs have different targets.") }
        if differs({ "\($0.environment.processor) \($0.environment.cores)" }) {
            found.append("The runs were made on different machines.")
        }
        for group in groups {
            found += Self.joined(group)
            var missed: [String: Int] = [:]
            for name in group.results.flatMap({ $0.thresholds.filter { !$0.isMet }.map(\.name) }) {
                missed[name, default: 0] += 1
            }
            for (name, count) in missed.sorted(by: { $0.key < $1.key }) {
                found.append("\(group.name): \(count) of \(group.results.count) runs missed \(name).")
            }
        }
        return found
    }

    // MARK: Plots

    private func plots() -> String {
        guard let first = results.first else { return "" }
        let shown = groups.prefix(6)
        var plots = [
            RunPlots.distribution(
                "distribution", "Distribution of latency in the main phases",
                shown.map { group in
                    (group.name, group.results.reduce(into: HDRHistogram()) { $0.add($1.mainLatency) })
                }, note: "All runs of a group together. Distances on the axis grow with the number of nines.")
        ]
        let series = shown.map { group in (group.name, group.results.map(RunSeries.init)) }
        let end = max(1, series.flatMap { $0.1.map(\.end) }.max() ?? 1)
        // Results of one length have points at the same seconds; others are put at the nearest point.
        let xs =
            series.flatMap(\.1).max { $0.points.count < $1.points.count }.map { ($0.xs, $0.labels) } ?? (
                [], []
            )
        func over(
            _ identifier: String, _ title: String, _ unit: String, isLogarithmic: Bool, note: String,
            _ value: (RunSeries.Point) -> Double?
        ) -> Plot {
            let lines = series.map { name, runs in
                Plot.Series(
                    name,
                    xs.0.map { at in
                        Statistics.mean(
                            runs.compactMap { run in
                                run.points.first { abs($0.at - at) <= $0.width / 2 }.flatMap(value)
                            })
                    })
            }
            let values = lines.flatMap { $0.values.compactMap(\.self) }
            return Plot(
                identifier: identifier, title: title, note: note, missing: "Not measured.", xName: "second",
                yName: unit, xs: xs.0, xLabels: xs.1, x: .time(from: 0, to: end),
                y: isLogarithmic ? .logarithmic(values) : .linear(to: values.max() ?? 0), series: lines,
                bands: RunPlots.bands(first), rows: Array(xs.0.indices), group: "time")
        }
        let note = "Mean over the runs of a group."
        plots.append(
            over("rate", "Outcomes", "outcomes a second", isLogarithmic: false, note: note) {
                Double($0.sum.allOutcomes) / $0.width
            })
        plots.append(
            over("p99", "Latency, p99", "ms, logarithmic", isLogarithmic: true, note: note) {
                $0.sum.latency.milliseconds(atPercentile: 99)
            })
        plots.append(
            over("cpu", "Processor time of all processes", "cores", isLogarithmic: false, note: note) {
                point in
                point.sum.cpuSeconds.isEmpty ? nil : point.sum.cpuSeconds.values.reduce(0, +) / point.width
            })
        var text = RunReport.grid(plots)
        if groups.count > 6 { text = "<p>Plots have the first six groups.</p>\n" + text }
        return text
    }

    // MARK: Runs and conditions

    private func runs() -> String {
        let rows = groups.flatMap { group in
            group.results.enumerated().map { index, result in
                let latency = result.mainLatency
                let verdict =
                    result.thresholds.isEmpty ? "no threshold" : result.isPassed ? "✓ passed" : "✗ failed"
                return [
                    Markup.escaped(group.name), "\(index + 1)",
                    RunReport.moment(result.environment.startedMilliseconds),
                    FigureText.number(result.mainRate),
                    FigureText.milliseconds(latency.milliseconds(atPercentile: 50)),
                    FigureText.milliseconds(latency.milliseconds(atPercentile: 99)),
                    FigureText.milliseconds(latency.milliseconds(atPercentile: 99.9)),
                    FigureText.microseconds(result.mainCPUMicrosecondsPerOutcome),
                    FigureText.count(result.audit.missing), FigureText.count(result.audit.doubled),
                    "\(FigureText.number(result.environment.noise.medianSlowdown)) ×", verdict,
                ]
            }
        }
        return Markup.table(
            "Runs of all groups",
            head: [
                "Group", "Run", "Start", "Outcomes a second", "p50", "p99", "p99.9",
                "Gateway's CPU an outcome", "Lost",
                "Doubled", "Slowdown", "Verdict",
            ], rows: rows, numeric: [1, 3, 4, 5, 6, 7, 8, 9, 10])
    }

    private func conditions() -> String {
        let properties: [(String, (RunResult) -> String)] = [
            ("Scenario", \.scenario.name), ("Overrides", { $0.scenario.overrides.joined(separator: ", ") }),
            ("Seed", { String($0.scenario.seed) }), ("Target", \.scenario.target),
            ("Sluice", { "\($0.environment.version) \($0.environment.commit)" }),
            ("System", \.environment.system),
            ("Processor", \.environment.processor), ("Cores", { FigureText.count($0.environment.cores) }),
            ("Memory", { FigureText.bytes(Double($0.environment.memoryBytes)) }),
        ]
        let rows = properties.map { name, value in
            let texts = groups.map { group in
                var seen: [String] = []
                for text in group.results.map(value) where !seen.contains(text) { seen.append(text) }
                return seen.map { $0.isEmpty ? "none" : $0 }.joined(separator: "; ")
            }
            return [name] + texts.map(Markup.escaped) + [Set(texts).count > 1 ? "differs" : "equal"]
        }
        var text = Markup.table(
            "Conditions of the groups", head: ["Property"] + groups.map(\.name) + ["Verdict"], rows: rows,
            numeric: [])
        for group in groups.dropFirst() {
            let (one, two) = (groups[0].results[0].scenario.text, group.results[0].scenario.text)
            let (before, after) = Self.differingLines(one, two)
            guard !before.isEmpty || !after.isEmpty else { continue }
            text += "<h3>Lines of the scenario that differ: \(Markup.escaped(group.name))</h3>\n"
            text +=
                #"<pre tabindex="0" role="group" aria-label="Differing lines, \#(Markup.escaped(group.name))">"#
            text += Markup.escaped(
                (before.map { "- \($0)" } + after.map { "+ \($0)" }).joined(separator: "\n"))
            text += "</pre>\n"
        }
        return text
    }

    /// Lines that only the first text has, and lines that only the second has, at most fifty each.
    static func differingLines(_ one: String, _ two: String) -> ([String], [String]) {
        let (before, after) = (one.split(separator: "\n"), two.split(separator: "\n"))
        let changes = after.difference(from: before)
        func text(_ change: CollectionDifference<Substring>.Change) -> String {
            switch change {
            case .insert(_, let line, _), .remove(_, let line, _): String(line)
            }
        }
        return (changes.removals.prefix(50).map(text), changes.insertions.prefix(50).map(text))
    }
}

/// Relative differences with their intervals, a row each.
struct IntervalPlot {
    var identifier: String
    var title: String
    var lines: [Comparison.Line]

    func figure() -> String {
        let shown = lines.compactMap {
            line -> (name: String, at: Double, low: Double, high: Double, verdict: String)? in
            guard line.isLowerBetter != nil, let base = line.base, base != 0,
                let difference = line.difference, let low = line.low,
                let high = line.high
            else { return nil }
            let factor = 100 / base
            let values = [difference * factor, low * factor, high * factor]
            guard values.allSatisfy(\.isFinite) else { return nil }
            return (line.name, values[0], values[1], values[2], line.verdict)
        }
        guard !shown.isEmpty else { return "" }
        // An interval beyond 100 % on a side is cut, so that the others stay readable.
        let size = min(100, shown.map { max(abs($0.low), abs($0.high)) }.max() ?? 1)
        let scale = Scale.around(size)
        let c = Plot.coordinate
        let (left, right, row) = (30.0, 490.0, 36.0)
        let bottom = 6 + Double(shown.count) * row
        func px(_ value: Double) -> Double { left + scale.position(value) * (right - left) }
        let summary = shown.map { line in
            "\(line.name): \(ComparisonReport.signed(line.at)) %, from \(ComparisonReport.signed(line.low)) to"
                + " \(ComparisonReport.signed(line.high)) %, \(line.verdict)"
        }.joined(separator: "; ")
        var text = #"<figure class="intervals"><figcaption><h4>\#(Markup.escaped(title))</h4>"#
        text += "<p>Intervals of 95 % in percent of the base. A dashed interval holds 0: no difference shown."
        text += " The table above has the data.</p></figcaption>\n"
        text +=
            #"<svg class="plot" role="img" viewBox="0 0 520 \#(c(bottom + 40))" aria-labelledby="\#(identifier)-t""#
        text +=
            #" aria-describedby="\#(identifier)-d" focusable="false"><title id="\#(identifier)-t">\#(Markup.escaped(title))"#
        text += #"</title><desc id="\#(identifier)-d">\#(Markup.escaped(summary)).</desc>"# + "\n"
        for tick in scale.ticks {
            let at = c(px(tick.value))
            text += #"<path class="\#(tick.value == 0 ? "axis" : "grid")" d="M\#(at) 6V\#(c(bottom))"/>"#
            text +=
                #"<text class="tick" x="\#(at)" y="\#(c(bottom + 16))" text-anchor="middle">\#(tick.label)</text>"#
        }
        text +=
            #"<text class="name" x="\#(c((left + right) / 2))" y="\#(c(bottom + 34))" text-anchor="middle">difference in %"#
        text += "</text>\n"
        for (index, line) in shown.enumerated() {
            let y = 6 + Double(index) * row
            let isShown = line.low > 0 || line.high < 0
            text += #"<text x="2" y="\#(c(y + 14))">\#(Markup.escaped(line.name))</text>"#
            text += #"<path class="interval c0"\#(isShown ? "" : #" stroke-dasharray="3 3""#)"#
            text += #" d="M\#(c(px(line.low))) \#(c(y + 25))H\#(c(px(line.high)))"/>"#
            // An arrow marks an end beyond the axis, and a number a difference beyond it.
            let (x, middle) = ((low: px(line.low), high: px(line.high)), c(y + 25))
            if line.low < -scale.reach {
                text += #"<path class="arrow c0" d="M\#(c(x.low + 6)) \#(middle)m0 -5l-6 5l6 5"/>"#
            }
            if line.high > scale.reach {
                text += #"<path class="arrow c0" d="M\#(c(x.high - 6)) \#(middle)m0 -5l6 5l-6 5"/>"#
            }
            if abs(line.at) <= scale.reach {
                text += Plot.marker(isShown ? 3 : 0, px(line.at), y + 25).replacing("c3", with: "c0") + "\n"
            } else {
                let isRight = line.at > 0
                text += #"<text x="\#(c(isRight ? right : left))" y="\#(c(y + 14))""#
                text +=
                    #" text-anchor="\#(isRight ? "end" : "start")">\#(ComparisonReport.signed(line.at)) %</text>"#
            }
        }
        return text + "</svg></figure>\n"
    }
}
