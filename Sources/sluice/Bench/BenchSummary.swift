import LoadTest

/// A run's result for a terminal.
enum BenchSummary {
    /// Rate, median, 99th percentile, lost, duplicated, and processor time per job, as texts.
    static func row(_ result: RunResult) -> [String] {
        let main = result.phases.filter { $0.kind == .main }
        let length = main.reduce(0) { $0 + $1.to - $1.from }
        var latency = HDRHistogram()
        main.forEach { latency.add($0.latency) }
        let outcomes = main.reduce(0) { $0 + $1.outcomes }
        func milliseconds(_ percentile: Double) -> String {
            latency.milliseconds(atPercentile: percentile).map { Numbers.fixed($0, $0 < 10 ? 1 : 0) } ?? "–"
        }
        let cpu = main.reduce(0) { $0 + ($1.cpuMicrosecondsPerOutcome ?? 0) * Double($1.outcomes) }
        return [
            length > 0 ? Numbers.grouped(Int((Double(outcomes) / length).rounded())) : "–", milliseconds(50),
            milliseconds(99), Numbers.grouped(result.audit.missing), Numbers.grouped(result.audit.doubled),
            outcomes > 0 && cpu > 0 ? Numbers.fixed(cpu / Double(outcomes), 1) : "–",
        ]
    }

    static func lines(_ result: RunResult) -> [String] {
        var lines = ["\(result.scenario.name): \(result.isPassed ? "passed" : "missed")", ""]
        lines += phases(result)
        if let loads = result.loads, loads.count > 1 { lines += [""] + self.loads(loads) }
        lines.append("")
        lines += audit(result.audit)
        lines.append("")
        lines += processes(result)
        if result.generator.wasLimit {
            lines.append("  ! the generator was the limit: \(result.generator.reason)")
        }
        if let reader = result.reader, reader.wasLimit {
            lines.append("  ! the reader of outcomes was the limit: \(reader.reason)")
        }
        let noise = result.environment.noise
        if noise.medianSlowdown > 1.2 || noise.stolenShare > 0.05 {
            lines.append(
                "  ! the machine was not quiet: calibration \(Numbers.fixed(noise.medianSlowdown, 2)) × its quiet time, "
                    + "\(Numbers.fixed(noise.stolenShare * 100, 0)) % of processor time stolen")
        }
        if !result.thresholds.isEmpty { lines.append("") }
        for threshold in result.thresholds {
            let value = threshold.value.map { Self.number($0) } ?? "not measured"
            lines.append("  \(threshold.isMet ? "✓" : "✗") \(threshold.name) \(threshold.bound): \(value)")
        }
        return lines
    }

    private static func number(_ value: Double) -> String {
        if value == value.rounded(), abs(value) < 1e12 { return Numbers.grouped(Int(value)) }
        return Numbers.fixed(value, abs(value) < 1 ? 4 : 1)
    }

    private static func text(_ latency: HDRHistogram, _ percentile: Double) -> String {
        latency.milliseconds(atPercentile: percentile).map { Numbers.milliseconds($0) } ?? "–"
    }

    private static func phases(_ result: RunResult) -> [String] {
        var table = TextTable()
        table.rightAligned = [1, 2, 3, 4, 5, 6, 7]
        table.add("phase", "seconds", "jobs", "outcomes", "p50", "p99", "p99.9", "longest")
        for phase in result.phases {
            table.add(
                phase.name, Numbers.fixed(phase.to - phase.from, 1), Numbers.grouped(phase.intended),
                Numbers.grouped(phase.outcomes), text(phase.latency, 50), text(phase.latency, 99),
                text(phase.latency, 99.9), text(phase.latency, 100))
        }
        return table.lines(indent: 2)
    }

    private static func loads(_ loads: [RunResult.Load]) -> [String] {
        var table = TextTable()
        table.rightAligned = [1, 2, 3, 4]
        table.add("load", "jobs", "p50", "p99", "longest")
        for load in loads {
            table.add(
                load.name, Numbers.grouped(load.intended), text(load.latency, 50), text(load.latency, 99),
                text(load.latency, 100))
        }
        return table.lines(indent: 2)
    }

    private static func audit(_ audit: RunResult.Audit) -> [String] {
        var lines = [
            "  \(Numbers.counted(audit.produced - audit.refused, "job")): \(Numbers.grouped(audit.once)) with one outcome, "
                + "\(Numbers.grouped(audit.missing)) without, \(Numbers.grouped(audit.doubled)) with several"
        ]
        let kinds = audit.byKind.sorted { ($1.value, $0.key) < ($0.value, $1.key) }
        lines.append("  " + kinds.map { "\($0.key) \(Numbers.grouped($0.value))" }.joined(separator: ", "))
        let reasons = audit.byReason.sorted { ($1.value, $0.key) < ($0.value, $1.key) }.prefix(8)
        if !reasons.isEmpty {
            lines.append(
                "  " + reasons.map { "\($0.key) \(Numbers.grouped($0.value))" }.joined(separator: ", "))
        }
        if audit.refused > 0 { lines.append("  \(Numbers.counted(audit.refused, "job")) refused by Kafka") }
        if audit.unknown > 0 {
            lines.append("  \(Numbers.counted(audit.unknown, "outcome")) of unknown jobs")
        }
        if audit.unreadable > 0 {
            lines.append("  \(Numbers.counted(audit.unreadable, "unreadable outcome"))")
        }
        if audit.early > 0 {
            lines.append(
                "  \(Numbers.counted(audit.early, "job")) accepted over a second before the due time")
        }
        if audit.notProduced > 0 {
            lines.append("  \(Numbers.counted(audit.notProduced, "job")) due and never produced")
        }
        return lines
    }

    private static func processes(_ result: RunResult) -> [String] {
        var table = TextTable()
        table.rightAligned = [1, 2, 3]
        table.add("process", "CPU", "per outcome", "memory")
        for process in result.processes {
            table.add(
                process.name, "\(Numbers.fixed(process.cpuSeconds, 2)) s",
                process.cpuMicrosecondsPerOutcome.map { "\(Numbers.fixed($0, 1)) µs" } ?? "–",
                "\(process.maximumResidentBytes / 1_048_576) MiB")
        }
        return table.lines(indent: 2)
    }
}
