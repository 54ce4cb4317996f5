/// The demo's summary.
struct DemoReport {
    let jobs: Int
    let duration: Duration
    var audit = DemoAudit(partitions: 0)
    var simulator: SimulatorCounts?
    /// Jobs whose offsets no commit covers.
    var uncommitted = 0
    /// Outcomes and dead letters that the embedded cluster dropped before they were read.
    var recordsLost = 0
    /// Processes that did not end by themselves with status 0.
    var badEndings: [String] = []

    init(jobs: Int, duration: Duration) {
        self.jobs = jobs
        self.duration = duration
    }

    private var checks: [(holds: Bool, text: String)] {
        let verdict = audit.verdict()
        var wrong: [String] = []
        if verdict.missing > 0 { wrong.append("\(verdict.missing) have no outcome") }
        if verdict.doubled > 0 { wrong.append("\(verdict.doubled) have several outcomes") }
        if verdict.wrongKind > 0 { wrong.append("\(verdict.wrongKind) have an outcome of the wrong kind") }
        if verdict.unknown > 0 {
            wrong.append("\(Numbers.counted(verdict.unknown, "outcome")) of jobs that were not produced")
        }
        if audit.unreadable > 0 { wrong.append("\(Numbers.counted(audit.unreadable, "unreadable outcome"))") }
        if recordsLost > 0 {
            wrong.append("\(Numbers.counted(recordsLost, "record")) dropped by the embedded cluster")
        }
        let isComplete = verdict.right == jobs && wrong.isEmpty
        var checks = [
            (
                isComplete,
                "every job has exactly one outcome, or a dead letter if it is malformed: "
                    + "\(Numbers.grouped(verdict.right)) of \(Numbers.grouped(jobs))"
                    + (wrong.isEmpty ? "" : " (\(wrong.joined(separator: ", ")))")
            ),
            (
                uncommitted == 0,
                uncommitted == 0
                    ? "every offset is committed: a restart would repeat nothing"
                    : "\(Numbers.counted(uncommitted, "job")) not committed: a restart would repeat them"
            ),
        ]
        if let simulator {
            checks.append(
                (
                    Int(simulator.accepted) == audit.accepted,
                    "the simulator accepted \(Numbers.counted(Int(simulator.accepted), "push", plural: "pushes")), and the number of outcomes "
                        + "`accepted` is \(Numbers.grouped(audit.accepted))"
                ))
        } else {
            checks.append((false, "the simulator wrote no summary"))
        }
        checks.append(
            (
                badEndings.isEmpty,
                badEndings.isEmpty
                    ? "Kafka, simulator and worker have ended cleanly" : badEndings.joined(separator: ", ")
            ))
        return checks
    }

    var isRight: Bool { checks.allSatisfy(\.holds) }

    var lines: [String] {
        let pushes = Int(simulator?.requests ?? 0)
        var table = TextTable()
        table.rightAligned = [1]
        table.add("jobs", Numbers.grouped(jobs), "in \(Numbers.milliseconds(duration / .milliseconds(1)))")
        table.add("outcomes", Numbers.grouped(audit.outcomes), "")
        table.add("dead letters", Numbers.grouped(audit.deadLetters), "malformed jobs, with the reason")
        table.add(
            "pushes", Numbers.grouped(pushes),
            "\(Numbers.rate(pushes, over: duration)); \(Numbers.counted(audit.retried, "job")) needed more than one"
        )
        table.add(
            "coalesced", Numbers.grouped(audit.superseded),
            "jobs that a newer one replaced before they were sent")
        func latency(_ percent: Double) -> String {
            audit.latencies.count == 0
                ? "–" : Numbers.milliseconds(Double(audit.latencies.percentile(percent)) / 1e6)
        }
        var lines = [""]
        lines += table.lines(indent: 2)
        lines.append(
            "  latency       p50 \(latency(50)), p99 \(latency(99)), p99.9 \(latency(99.9))   from a job's creation to "
                + "its outcome")
        lines.append("")
        lines += counts("outcomes", audit.outcomesByHeadline)
        lines += counts("dead letters", audit.deadLettersByRule)
        if let rejected = simulator?.rejected {
            let names = rejected.mapValues { Int($0) }
            lines += counts("the simulator's answers other than 200", names)
        }
        for check in checks { lines.append("  \(check.holds ? "✓" : "✗") \(check.text)") }
        return lines
    }

    private func counts(_ title: String, _ counts: [String: Int]) -> [String] {
        guard !counts.isEmpty else { return [] }
        var table = TextTable()
        table.rightAligned = [0]
        for (name, count) in counts.sorted(by: { ($1.value, $0.key) < ($0.value, $1.key) }) {
            table.add(Numbers.grouped(count), name)
        }
        return ["  \(title)"] + table.lines(indent: 4) + [""]
    }
}
