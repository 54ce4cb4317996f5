import DeviceModel

/// The demo's summary.
struct DemoReport {
    let jobs: Int
    let duration: Duration
    var audit = DemoAudit(partitions: 0)
    /// Counts of the simulator's end; nil when it runs on, or has written none.
    var simulator: SimulatorCounts?
    /// Numbers of the devices; nil when the simulator did not answer.
    var devices: WorldStatus?
    /// Whether the processes run on.
    var isKept = false
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
        // The model has each push that passed APNs' other checks.
        let modelled = devices.map { Int($0.pushes) - Int($0.fates["rejected"] ?? 0) }
        if let accepted = simulator.map({ Int($0.accepted) }) ?? modelled {
            checks.append(
                (
                    accepted == audit.accepted && (modelled ?? accepted) == accepted,
                    "the simulator accepted \(Numbers.counted(accepted, "push", plural: "pushes")), and the number of outcomes "
                        + "`accepted` is \(Numbers.grouped(audit.accepted))"
                ))
        } else {
            checks.append((false, "the simulator reported no counts"))
        }
        if devices == nil {
            checks.append((false, "the simulator's API did not report what the devices have shown"))
        }
        checks.append(
            (
                badEndings.isEmpty,
                badEndings.isEmpty
                    ? (isKept
                        ? "the worker has ended cleanly" : "Kafka, simulator and worker have ended cleanly")
                    : badEndings.joined(separator: ", ")
            ))
        return checks
    }

    var isRight: Bool { checks.allSatisfy(\.holds) }

    var lines: [String] {
        let pushes = Int(simulator?.requests ?? devices?.pushes ?? 0)
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
        if let devices {
            lines += counts("what became of the accepted pushes on the devices", fates(devices))
        }
        for check in checks { lines.append("  \(check.holds ? "✓" : "✗") \(check.text)") }
        return lines
    }

    /// Pushes by what became of them, in words.
    private func fates(_ devices: WorldStatus) -> [String: Int] {
        let words = [
            "shown": "shown as a banner or on the lock screen",
            "silent": "in the list, without light and sound",
            "replaced": "replaced by a newer push", "woken": "handed to the app: calls, background updates",
            "updated": "Live Activities started and updated", "stored": "stored by APNs for absent phones",
            "held": "held by the phone", "dropped": "dropped, as the page explains for each push",
            "expired": "expired before the phone was back",
        ]
        var counts: [String: Int] = [:]
        for (fate, count) in devices.fates where fate != "rejected" {
            counts[words[fate] ?? fate, default: 0] += Int(count)
        }
        return counts
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
