import Foundation

/// Page of one run: `report.html`. The page has no other file, sends no request, and is complete without a script.
public struct RunReport {
    private let result: RunResult

    public init(_ result: RunResult) { self.result = result }

    /// Returns the document in HTML.
    public func page() -> String {
        let plots = RunPlots(result)
        let sections: [(id: String, title: String, body: String)] = [
            ("verdict", "Verdict", verdict()),
            ("audit", "Audit", audit()),
            ("environment", "Environment and noise", environment(plots)),
            ("rate", "Rate and outcomes", rate(plots)),
            ("latency", "Latency", latency(plots)),
            ("gateway", "Gateway", gateway(plots)),
            ("processes", "Processes", processes(plots)),
            ("events", "Phases and events", events()),
            ("scenario", "Scenario", scenario()),
        ]
        let name = result.scenario.name
        var body = Self.header(
            title: "Load test: \(name)", description: result.scenario.description,
            line:
                "\(Self.moment(result.environment.startedMilliseconds)) · sluice \(result.environment.version)"
                + " · target \(result.scenario.target)",
            sections: sections.map { ($0.id, $0.title) })
        for section in sections {
            body +=
                #"<section aria-labelledby="\#(section.id)"><h2 id="\#(section.id)">\#(section.title)</h2>"#
            body += "\n\(section.body)</section>\n"
        }
        return ReportStyle.page(title: "\(name): load test of Sluice", body: body + Self.footer)
    }

    static let footer = """
        </main>
        <footer><p>Made by <code>sluice bench</code>. Latency counts from the intended time of each job, so that a delay of \
        the generator is part of it. Main phases alone count for verdicts.</p></footer>

        """

    static func header(
        title: String, description: String, line: String, sections: [(id: String, title: String)]
    ) -> String {
        var text = ##"<a class="skip" href="#verdict">Skip to the verdict</a>"## + "\n<header>"
        text += "<h1>\(Markup.escaped(title))</h1>\n"
        if !description.isEmpty { text += "<p>\(Markup.escaped(description))</p>\n" }
        text += #"<p class="soft">\#(Markup.escaped(line))</p>"# + "\n"
        text += #"<nav aria-label="Sections"><ul>"#
        for section in sections { text += ##"<li><a href="#\##(section.id)">\##(section.title)</a></li>"## }
        return text + "</ul></nav></header>\n<main>\n"
    }

    /// A moment in UTC.
    static func moment(_ milliseconds: Int64) -> String {
        let date = Date(timeIntervalSince1970: Double(milliseconds) / 1_000)
        return date.formatted(.iso8601.dateTimeSeparator(.space)).replacing("Z", with: " UTC")
    }

    // MARK: Verdict

    private func verdict() -> String {
        let missed = result.thresholds.filter { !$0.isMet }.count
        let all = result.thresholds.count
        let (kind, word, sentence) =
            if all == 0 {
                ("open", "No verdict", "The scenario has no threshold.")
            } else if missed == 0 {
                ("passed", "✓ Passed", all == 1 ? "The threshold is met." : "All \(all) thresholds are met.")
            } else {
                ("failed", "✗ Failed", "\(missed) of \(all) \(all == 1 ? "threshold" : "thresholds") missed.")
            }
        var text =
            #"<p class="verdict \#(kind)"><strong>\#(word)</strong> <span>\#(sentence)</span></p>"# + "\n"
        text += Self.warnings(result.warnings)
        if all > 0 {
            text += Markup.table(
                "Thresholds", head: ["Threshold", "Bound", "Measured", "Verdict"],
                rows: result.thresholds.map { threshold in
                    [
                        Markup.escaped(threshold.name), Markup.escaped(threshold.bound),
                        Markup.escaped(Self.measured(threshold)),
                        threshold.isMet
                            ? #"<span class="met">✓ met</span>"#
                            : #"<span class="missed">✗ \#(threshold.value == nil ? "missed: not measured" : "missed")</span>"#,
                    ]
                }, numeric: [1, 2])
        }
        return text + cards()
    }

    static func warnings(_ warnings: [String]) -> String {
        guard !warnings.isEmpty else { return "" }
        return #"<div class="warnings"><h3>Read these figures with care</h3><ul>"#
            + warnings.map { "<li>\(Markup.escaped($0))</li>" }.joined() + "</ul></div>\n"
    }

    /// Measured value with the unit of the bound.
    static func measured(_ threshold: RunResult.Threshold) -> String {
        guard let value = threshold.value else { return FigureText.absent }
        let bound = threshold.bound
        let unit = bound.lastIndex { $0.isNumber }.map { bound[bound.index(after: $0)...] } ?? ""
        return FigureText.number(value) + unit
    }

    private func cards() -> String {
        let latency = result.mainLatency
        let cards: [(String, String)] = [
            ("Outcomes a second", FigureText.number(result.mainRate)),
            ("Latency p50", FigureText.milliseconds(latency.milliseconds(atPercentile: 50))),
            ("Latency p99", FigureText.milliseconds(latency.milliseconds(atPercentile: 99))),
            ("Latency p99.9", FigureText.milliseconds(latency.milliseconds(atPercentile: 99.9))),
            ("Greatest latency", FigureText.milliseconds(latency.milliseconds(atPercentile: 100))),
            ("Gateway's CPU an outcome", FigureText.microseconds(result.mainCPUMicrosecondsPerOutcome)),
        ]
        return #"<dl class="cards">"#
            + cards.map { "<div><dt>\($0.0)</dt><dd>\(Markup.escaped($0.1))</dd></div>" }.joined()
            + "</dl>\n" + #"<p class="soft">Figures of the main phases.</p>"# + "\n"
    }

    // MARK: Audit

    private func audit() -> String {
        let audit = result.audit
        let jobs = audit.produced - audit.refused
        let isSound =
            audit.missing == 0 && audit.doubled == 0 && audit.unknown == 0 && audit.unreadable == 0
            && audit.early == 0 && audit.notProduced == 0
        var text = "<p>"
        if isSound, audit.once == jobs {
            text +=
                "Each of the \(FigureText.count(audit.once)) jobs that Kafka took has exactly one outcome.</p>\n"
        } else {
            var faults: [String] = []
            if audit.missing > 0 { faults.append("\(FigureText.count(audit.missing)) without an outcome") }
            if audit.doubled > 0 { faults.append("\(FigureText.count(audit.doubled)) with more than one") }
            if audit.unknown > 0 {
                faults.append("\(FigureText.count(audit.unknown)) outcomes of unknown jobs")
            }
            if audit.unreadable > 0 {
                faults.append("\(FigureText.count(audit.unreadable)) unreadable outcomes")
            }
            if audit.early > 0 {
                faults.append("\(FigureText.count(audit.early)) accepted before their time")
            }
            if audit.notProduced > 0 {
                faults.append("\(FigureText.count(audit.notProduced)) were due and never produced")
            }
            text +=
                "Kafka took \(FigureText.count(jobs)) jobs; \(FigureText.count(audit.once)) of them have exactly one outcome"
            text += faults.isEmpty ? ".</p>\n" : "; \(faults.joined(separator: ", ")).</p>\n"
        }
        let optional = { (count: Int?) in count.map(FigureText.count) ?? "not counted" }
        let attempts = result.attemptsPerJob
        text += Markup.table(
            "Jobs and outcomes", head: ["Count", "Number", "Explanation"],
            rows: [
                ["produced", FigureText.count(audit.produced), "jobs handed to the producer"],
                ["refused", FigureText.count(audit.refused), "jobs that Kafka did not take"],
                [
                    "not produced", FigureText.count(audit.notProduced),
                    "jobs that were due and not produced when the run ended",
                ],
                [
                    "one outcome", FigureText.count(audit.once),
                    "jobs with exactly one outcome or dead letter",
                ],
                ["lost", FigureText.count(audit.missing), "jobs without an outcome"],
                ["doubled", FigureText.count(audit.doubled), "jobs with more than one outcome"],
                [
                    "unknown", FigureText.count(audit.unknown),
                    "outcomes of jobs that this run did not produce",
                ],
                ["unreadable", FigureText.count(audit.unreadable), "outcomes that could not be read"],
                [
                    "early", FigureText.count(audit.early),
                    "jobs accepted more than a second before they were due",
                ],
                [
                    "attempts", FigureText.count(audit.attempts),
                    "attempts at delivery; \(FigureText.number(attempts)) for each job of the main phases with an outcome",
                ],
                [
                    "simulator's requests", optional(audit.simulatorRequests),
                    "requests that the simulator counted",
                ],
            ], numeric: [1])
        return text
    }

    // MARK: Environment

    /// Rows of the reader of outcomes; empty in a result without its delay.
    private var readerRows: [[String]] {
        guard let reader = result.reader else { return [] }
        return [
            [
                "Delay of the reader of outcomes, p99",
                FigureText.milliseconds(reader.delay.milliseconds(atPercentile: 99)),
            ],
            [
                "Limit of the reading",
                reader.wasLimit ? "the reader of outcomes" : "not the reader of outcomes",
            ],
        ]
    }

    private func environment(_ plots: RunPlots) -> String {
        let environment = result.environment
        let noise = environment.noise
        let commit = environment.commit.isEmpty ? "" : ", commit \(environment.commit)"
        return Markup.table(
            "Machine and program", head: ["Property", "Value"],
            rows: [
                ["Start", Self.moment(environment.startedMilliseconds)],
                ["Sluice", Markup.escaped(environment.version + commit)],
                ["System", Markup.escaped(environment.system)],
                ["Processor", Markup.escaped(environment.processor)],
                ["Cores", FigureText.count(environment.cores)],
                ["Memory", FigureText.bytes(Double(environment.memoryBytes))],
                ["Load average before the start", FigureText.number(environment.loadBefore)],
                [
                    "Slowdown beside the load, median",
                    "\(FigureText.number(noise.medianSlowdown)) times the quiet time",
                ],
                [
                    "Slowdown beside the load, p99",
                    "\(FigureText.number(noise.worstSlowdown)) times the quiet time",
                ],
                [
                    "Time of the calculation, quiet",
                    "\(FigureText.number(noise.quietNanoseconds / 1_000)) µs",
                ],
                ["Processor time that the hypervisor withheld", FigureText.percent(noise.stolenShare)],
                [
                    "Processor time that processes outside of the run used",
                    FigureText.percent(noise.othersShare),
                ],
                ["Producers of the generator", FigureText.count(result.generator.producers)],
                [
                    "Delay of production, p99",
                    FigureText.milliseconds(result.generator.delay.milliseconds(atPercentile: 99)),
                ],
                ["Limit of the load", result.generator.wasLimit ? "the generator" : "not the generator"],
            ] + readerRows, numeric: [])
            + Self.grid(
                [plots.slowdown, plots.generatorDelay] + [plots.readerDelay].filter(\.hasValues))
    }

    static func grid(_ plots: [Plot]) -> String {
        #"<div class="plots">"# + "\n" + plots.map { $0.figure() }.joined() + "</div>\n"
    }

    // MARK: Load and latency

    private func rate(_ plots: RunPlots) -> String {
        var text = plots.resolution.isEmpty ? "" : "<p>\(plots.resolution)</p>\n"
        text += Self.grid([plots.rate, plots.open, plots.failures])
        let all = max(1, result.audit.byKind.values.reduce(0, +))
        func rows(_ counts: [String: Int]) -> [[String]] {
            counts.sorted { ($1.value, $0.key) < ($0.value, $1.key) }.map { entry in
                [
                    Markup.escaped(entry.key), FigureText.count(entry.value),
                    FigureText.percent(Double(entry.value) / Double(all)),
                ]
            }
        }
        if result.audit.byKind.isEmpty {
            text += "<p>No job has an outcome.</p>\n"
        } else {
            text += Markup.table(
                "Jobs by kind of outcome", head: ["Kind", "Jobs", "Share of all"],
                rows: rows(result.audit.byKind),
                numeric: [1, 2])
        }
        if !result.audit.byReason.isEmpty {
            text += Markup.table(
                "Rejected, expired and undeliverable jobs by reason",
                head: ["Reason", "Jobs", "Share of all"],
                rows: rows(result.audit.byReason), numeric: [1, 2])
        }
        return text
    }

    private func latency(_ plots: RunPlots) -> String {
        let percentiles = [50, 90, 99, 99.9, 99.99, 100.0]
        let drawn = [plots.latencyOverTime, plots.latencyDistribution, plots.loadDistribution]
        var text = Self.grid(drawn.compactMap(\.self))
        if let loads = result.loads, !loads.isEmpty {
            text += Markup.table(
                "Loads in the main phases",
                head: [
                    "Load", "Intended", "Produced", "Outcomes", "Outcomes a second", "p50", "p99", "p99.9",
                    "Greatest", "Accepted",
                ],
                rows: loads.map { load in
                    let accepted = Double(load.byKind["accepted"] ?? 0)
                    return [
                        Markup.escaped(load.name), FigureText.count(load.intended),
                        FigureText.count(load.produced),
                        FigureText.count(load.outcomes),
                        FigureText.number(load.seconds > 0 ? Double(load.outcomes) / load.seconds : nil),
                    ]
                        + load.latency.milliseconds(atPercentiles: [50, 99, 99.9, 100]).map(
                            FigureText.milliseconds)
                        + [FigureText.percent(load.produced > 0 ? accepted / Double(load.produced) : nil)]
                }, numeric: Set(1...9))
        }
        return text
            + Markup.table(
                "Latency of each phase",
                head: ["Phase", "Jobs", "Mean"]
                    + percentiles.map { $0 == 100 ? "Greatest" : "p\(Scale.percentile($0))" },
                rows: result.phases.map { phase in
                    [
                        Markup.escaped(phase.name), FigureText.count(phase.latency.count),
                        FigureText.milliseconds(phase.latency.meanMilliseconds),
                    ]
                        + percentiles.map {
                            FigureText.milliseconds(phase.latency.milliseconds(atPercentile: $0))
                        }
                }, numeric: Set(1...8))
    }

    // MARK: Gateway and processes

    private func gateway(_ plots: RunPlots) -> String {
        let all = [
            plots.connections, plots.streams, plots.queued, plots.queueAge, plots.stored, plots.storeBytes,
            plots.lagRecords, plots.lagSeconds, plots.loopBusy,
        ]
        let absent = all.filter { !$0.hasValues }.map(\.title)
        var text = Self.grid(all.filter(\.hasValues))
        if absent.count == all.count {
            text = "<p>Not measured: no worker was asked, or none answered.</p>\n"
        } else if !absent.isEmpty {
            text += #"<p class="soft">Not measured: \#(absent.joined(separator: "; ")).</p>"# + "\n"
        }
        return text
    }

    private func processes(_ plots: RunPlots) -> String {
        var text = Self.grid([plots.cpu, plots.cpuPerOutcome, plots.memory])
        if !result.processes.isEmpty {
            text += Markup.table(
                "Processes in the main phases",
                head: ["Process", "Role", "CPU", "CPU an outcome", "Greatest resident memory"],
                rows: result.processes.map { process in
                    [
                        Markup.escaped(process.name), process.role.rawValue,
                        "\(FigureText.number(process.cpuSeconds)) s",
                        FigureText.microseconds(process.cpuMicrosecondsPerOutcome),
                        FigureText.bytes(Double(process.maximumResidentBytes)),
                    ]
                }, numeric: [2, 3, 4])
        }
        return text
    }

    // MARK: Phases, events, scenario

    private func events() -> String {
        var text = Markup.table(
            "Phases",
            head: [
                "Phase", "Kind", "From", "To", "Intended", "Produced", "Outcomes", "Outcomes a second",
                "CPU an outcome",
            ],
            rows: result.phases.map { phase in
                let length = phase.to - phase.from
                return [
                    Markup.escaped(phase.name), phase.kind.rawValue, FigureText.seconds(phase.from),
                    FigureText.seconds(phase.to), FigureText.count(phase.intended),
                    FigureText.count(phase.produced),
                    FigureText.count(phase.outcomes),
                    FigureText.number(length > 0 ? Double(phase.outcomes) / length : nil),
                    FigureText.microseconds(phase.cpuMicrosecondsPerOutcome),
                ]
            }, numeric: Set(2...8))
        let events = RunPlots.events(result)
        guard !events.isEmpty else { return text + "<p>The run has no fault, action or note.</p>\n" }
        text +=
            "<p>Labels in the plots: F is a fault of the simulator, A an action on a worker, N a note.</p>\n"
        return text
            + Markup.table(
                "Events", head: ["Label", "From", "To", "Kind", "Event"],
                rows: events.map { label, event in
                    [
                        label, FigureText.seconds(event.at),
                        event.until.map(FigureText.seconds) ?? FigureText.absent,
                        event.kind.rawValue, Markup.escaped(event.text),
                    ]
                }, numeric: [1, 2])
    }

    private func scenario() -> String {
        let scenario = result.scenario
        var rows = [
            ["Target", Markup.escaped(scenario.target)], ["Seed", String(scenario.seed)],
        ]
        rows += scenario.overrides.map { ["Override", "<code>\(Markup.escaped($0))</code>"] }
        return Markup.table(
            "Settings of the run", head: ["Setting", "Value"], rows: rows, numeric: [], isCaptionHidden: true)
            + "<details><summary>Scenario as it was run</summary>"
            + #"<pre tabindex="0" role="group" aria-label="Scenario in YAML">\#(Markup.escaped(scenario.text))</pre></details>"#
            + "\n"
    }
}
