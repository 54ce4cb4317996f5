import Foundation

/// Plots of one run.
struct RunPlots {
    private let result: RunResult
    private let series: RunSeries
    private let bands: [Plot.Band]
    private let marks: [Plot.Mark]
    private let time: Scale
    /// Sentence for plots of runs whose points have several seconds; empty otherwise.
    let resolution: String

    init(_ result: RunResult) {
        self.result = result
        series = RunSeries(result)
        bands = Self.bands(result)
        marks = Self.events(result).map { Plot.Mark(label: $0.label, at: $0.event.at, until: $0.event.until) }
        time = .time(from: 0, to: max(series.end, 1))
        resolution =
            series.width == 1
            ? ""
            : "Each point has \(series.width) seconds: rates are their mean, levels their greatest value."
    }

    static func bands(_ result: RunResult) -> [Plot.Band] {
        result.phases.map { Plot.Band(name: $0.name, from: $0.from, to: $0.to, isMain: $0.kind == .main) }
    }

    /// Events with their labels: F for faults, A for actions, N for notes, and a number.
    static func events(_ result: RunResult) -> [(label: String, event: RunResult.Annotation)] {
        var numbers: [RunResult.AnnotationKind: Int] = [:]
        return result.annotations.bounded().map { event in
            numbers[event.kind, default: 0] += 1
            let letter =
                switch event.kind {
                case .fault: "F"
                case .action: "A"
                case .note: "N"
                }
            return ("\(letter)\(numbers[event.kind] ?? 0)", event)
        }
    }

    private func plot(
        _ identifier: String, _ title: String, unit: String, _ lines: [Plot.Series], note: String = "",
        missing: String = "Not measured: no worker was asked, or none answered.", isLogarithmic: Bool = false,
        atLeast: Double = 0
    ) -> Plot {
        let values = lines.flatMap { $0.values.compactMap(\.self) }
        return Plot(
            identifier: identifier, title: title, note: note, missing: missing, xName: "second", yName: unit,
            xs: series.xs, xLabels: series.labels, x: time,
            y: isLogarithmic ? .logarithmic(values) : .linear(to: max(atLeast, values.max() ?? 0)),
            series: lines, bands: bands, marks: marks, rows: Array(series.points.indices), group: "time")
    }

    private func level(
        _ identifier: String, _ title: String, unit: String,
        _ lines: [(String, (RunResult.Second) -> Double?)],
        note: String = ""
    ) -> Plot {
        plot(
            identifier, title, unit: unit,
            lines.map { line in Plot.Series(line.0, series.values { line.1($0.sum) }) }, note: note)
    }

    /// Plot of bytes in the unit that suits the greatest value.
    private func bytes(
        _ identifier: String, _ title: String, _ lines: [(name: String, values: [Double?])], missing: String
    ) -> Plot {
        let unit = ByteUnit(for: lines.flatMap { $0.values.compactMap(\.self) }.max() ?? 0)
        return plot(
            identifier, title, unit: unit.name,
            lines.map { line in Plot.Series(line.name, line.values.map { $0.map { $0 / unit.size } }) },
            missing: missing)
    }

    // MARK: Load

    var rate: Plot {
        plot(
            "rate", "Rate", unit: "jobs a second",
            [
                Plot.Series("intended", series.rates(\.intended)),
                Plot.Series("produced", series.rates(\.produced)),
                Plot.Series("outcomes", series.rates(\.allOutcomes)),
            ], missing: "The run has no seconds.")
    }

    var failures: Plot {
        let kinds = Set(series.points.flatMap(\.sum.outcomes.keys)).subtracting(["accepted"]).sorted()
        var lines = kinds.map { kind in Plot.Series(kind, series.rates { $0.outcomes[kind] ?? 0 }) }
        if series.points.contains(where: { $0.sum.deadLetters > 0 }) {
            lines.append(Plot.Series("dead letters", series.rates(\.deadLetters)))
        }
        return plot(
            "failures", "Outcomes other than accepted, by kind", unit: "outcomes a second", lines,
            missing: "There was no such outcome.")
    }

    var open: Plot {
        level(
            "open", "Jobs without an outcome", unit: "jobs", [("open", { Double($0.open) })],
            note: "Jobs whose intended time is over.")
    }

    var generatorDelay: Plot {
        level(
            "delay", "Delay of the generator", unit: "ms",
            [("longest delay behind the intended time", { $0.generatorDelayMilliseconds })])
    }

    /// Without values in a result without the reader's delay.
    var readerDelay: Plot {
        level(
            "reading", "Delay of the reader of outcomes", unit: "ms",
            [("longest wait of an outcome for the reader", { $0.readerDelayMilliseconds })],
            note: "Each latency has this delay in it.")
    }

    // MARK: Latency

    var latencyOverTime: Plot {
        let values = series.points.map { $0.sum.latency.milliseconds(atPercentiles: [50, 99, 100]) }
        return plot(
            "latency", "Latency over time", unit: "ms, logarithmic",
            ["p50", "p99", "greatest"].enumerated().map { index, name in
                Plot.Series(name, values.map { $0[index] })
            }, note: "From the intended time to the outcome, by the second of the outcome.",
            missing: "No job has an outcome.", isLogarithmic: true)
    }

    var latencyDistribution: Plot {
        let phases = result.phases.filter { $0.latency.count > 0 }
        // Main phases come first, so that they have the most visible lines.
        let ordered = phases.filter { $0.kind == .main } + phases.filter { $0.kind != .main }
        return Self.distribution(
            "distribution", "Distribution of latency", ordered.prefix(6).map { ($0.name, $0.latency) },
            note: "By the phase of the intended time. Distances on the axis grow with the number of nines.")
    }

    /// Latency of each load in the main phases; nil with fewer than two loads.
    var loadDistribution: Plot? {
        guard let loads = result.loads, loads.count > 1 else { return nil }
        return Self.distribution(
            "distribution-loads", "Distribution of latency by load",
            loads.prefix(6).map { ($0.name, $0.latency) },
            note: loads.count > 6 ? "Main phases; the first six loads." : "Main phases.")
    }

    /// Latency by percentile.
    static func distribution(
        _ identifier: String, _ title: String, _ histograms: [(name: String, latency: HDRHistogram)],
        note: String
    ) -> Plot {
        let most = histograms.map(\.latency.count).max() ?? 0
        // Twenty points for each nine; the table has the percentiles that readers know.
        let wellKnown = [0, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.95, 99.99, 99.999, 100]
        let fine = (0...120).map { 100 * (1 - pow10(-Double($0) / 20)) }
        let limit = 100 * (1 - 1 / Double(max(1_000, most)))
        let xs = Array(Set(fine.filter { $0 < limit } + wellKnown.filter { $0 <= limit || $0 == 100 }))
            .sorted()
        let lines = histograms.map { name, latency in
            // A percentile beyond 1 − 1 ÷ count is the greatest value again.
            let measured = 100 * (1 - 1 / Double(max(2, latency.count)))
            let values = latency.milliseconds(atPercentiles: xs)
            return Plot.Series(
                name, zip(xs, values).map { $0.0 <= measured || $0.0 == 100 ? $0.1 : nil })
        }
        return Plot(
            identifier: identifier, title: title, note: note, missing: "No job has an outcome.",
            xName: "percentile", yName: "ms, logarithmic", xs: xs,
            xLabels: xs.map { $0 == 100 ? "100 (greatest)" : Scale.percentile($0) }, x: .tail(count: most),
            y: .logarithmic(lines.flatMap { $0.values.compactMap(\.self) }), series: lines,
            hidden: [xs.count - 1], rows: xs.indices.filter { wellKnown.contains(xs[$0]) }, group: identifier)
    }

    // MARK: Gateway

    var connections: Plot {
        level(
            "connections", "Connections, workers and open circuits", unit: "number",
            [
                ("connections", { $0.connections.map(Double.init) }),
                ("workers", { $0.workers.map(Double.init) }),
                ("open circuits", { $0.circuitsOpen.map(Double.init) }),
            ])
    }

    var streams: Plot {
        level(
            "streams", "Streams", unit: "streams",
            [
                ("in use", { $0.streamsInUse.map(Double.init) }),
                ("free", { $0.streamsFree.map(Double.init) }),
            ])
    }

    var queued: Plot {
        level("queued", "Jobs in memory", unit: "jobs", [("queued", { $0.queued.map(Double.init) })])
    }

    var queueAge: Plot {
        level(
            "queue-age", "Age of the oldest job in memory", unit: "seconds", [("age", { $0.queueAgeSeconds })]
        )
    }

    var stored: Plot {
        level(
            "stored", "Items of the retry stores", unit: "items", [("stored", { $0.stored.map(Double.init) })]
        )
    }

    var storeBytes: Plot {
        bytes(
            "store-bytes", "Size of the retry stores",
            [("size", series.values { $0.sum.storeBytes.map(Double.init) })],
            missing: "Not measured: no worker has a store, or none answered.")
    }

    var lagRecords: Plot {
        level(
            "lag", "Lag", unit: "records",
            [("behind the end of the jobs topic", { $0.lagRecords.map(Double.init) })])
    }

    var lagSeconds: Plot {
        level(
            "lag-time", "Lag in time", unit: "seconds",
            [("behind the end of the jobs topic", { $0.lagSeconds })])
    }

    // MARK: Processes

    var loopBusy: Plot {
        plot(
            "loop", "Busiest loop", unit: "% of the time",
            [Plot.Series("working", series.values { $0.sum.loopBusy.map { $0 * 100 } })], atLeast: 100)
    }

    var slowdown: Plot {
        plot(
            "slowdown", "Slowdown of the machine", unit: "times the quiet time",
            [Plot.Series("fixed calculation", series.values(\.sum.slowdown))],
            note:
                "Processor time of a fixed calculation beside the load. Above 1 the machine was slower than before the load.",
            missing: "The calculation did not run.", atLeast: 2)
    }

    /// Processes as lines. More than six processes are added by role.
    private var processes: [(name: String, members: [String])] {
        let names = Set(series.points.flatMap { $0.sum.cpuSeconds.keys })
            .union(series.points.flatMap { $0.sum.residentBytes.keys }).sorted()
        guard names.count > 6 else { return names.map { ($0, [$0]) } }
        let roles = Dictionary(result.processes.map { ($0.name, $0.role.rawValue) }) { first, _ in first }
        return Dictionary(grouping: names) { roles[$0] ?? "others" }.sorted { $0.key < $1.key }
            .map { ("\($0.key) (\($0.value.count))", $0.value) }
    }

    private func sum(_ members: [String], _ values: [String: Double]) -> Double? {
        let found = members.compactMap { values[$0] }
        return found.isEmpty ? nil : found.reduce(0, +)
    }

    var cpu: Plot {
        plot(
            "cpu", "Processor time", unit: "cores",
            processes.map { process in
                Plot.Series(
                    process.name,
                    series.values { point in
                        sum(process.members, point.sum.cpuSeconds).map { $0 / point.width }
                    })
            }, missing: "No process was measured.")
    }

    var cpuPerOutcome: Plot {
        plot(
            "cpu-outcome", "Processor time of an outcome", unit: "µs an outcome",
            processes.map { process in
                Plot.Series(
                    process.name,
                    series.values { point in
                        let outcomes = Double(point.sum.allOutcomes)
                        // A second with few outcomes has no cost of an outcome.
                        guard outcomes >= 10 else { return nil }
                        return sum(process.members, point.sum.cpuSeconds).map { $0 * 1e6 / outcomes }
                    })
            }, note: "Seconds with fewer than ten outcomes are left out.",
            missing: "No process was measured, or no second has ten outcomes.")
    }

    var memory: Plot {
        bytes(
            "memory", "Resident memory",
            processes.map { process in
                (
                    process.name,
                    series.values { sum(process.members, $0.sum.residentBytes.mapValues(Double.init)) }
                )
            }, missing: "No process was measured.")
    }
}

private func pow10(_ exponent: Double) -> Double { pow(10, exponent) }
