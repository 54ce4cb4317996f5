import Foundation
import KafkaTestSupport
import TestSupport
import Testing

/// `sluice redrive` as a process, while Kafka stands still or is gone.
@Suite("Redrive, while Kafka is away")
struct RedriveOutageTests {
    /// Dead letters of a test that runs to their end; more than a run redrives until Kafka is away.
    private static let total = 2_000
    /// Dead letters of a test that ends while Kafka is away.
    private static let many = 6_000
    /// Jobs per second, and so of a batch.
    private static let batch = 250

    private func bed(_ total: Int = Self.many) throws -> RedriveBed {
        let bed = try RedriveBed(isOwn: true)
        try bed.produce(0..<total, rule: "json")
        return bed
    }

    /// Starts a redrive, suspends Kafka when a batch is redriven, and waits until Kafka owes an answer.
    private func suspendInTheMiddle(
        _ bed: RedriveBed, _ options: [String] = []
    ) throws -> ChildProcess {
        // A long transaction, so that none is aborted: the embedded cluster shows aborted records.
        let run = try bed.start(
            options + ["--rate", "\(Self.batch)", "-X", "transaction.timeout.ms=120000"])
        try run.waits(for: "a batch is redriven") { try bed.count("jobs") > Self.batch }
        bed.kafka.suspend()
        try #require(run.isRunning, "the run has ended before Kafka was away")
        // A run with a short limit may have ended meanwhile, and its connections with it.
        try eventually("Kafka owes an answer") { bed.kafka.unreadBytes > 0 || !run.isRunning }
        return run
    }

    private func report(_ run: ChildProcess) throws -> RedriveReport {
        let exit = try run.wait()
        return RedriveReport((exit, run.standardOutput, run.standardError))
    }

    /// Numbers of the jobs that were produced, in any order.
    private func numbers(_ bed: RedriveBed) throws -> [String] {
        try bed.jobs().compactMap { $0.header("x-number") }
    }

    @Test func aRunGoesOnWhenKafkaIsBack() throws {
        let bed = try bed(Self.total)
        let run = try suspendInTheMiddle(bed)
        bed.kafka.resume()
        let first = try report(run)
        #expect(first.exit == .status(0), "\(first.error)")
        #expect(first["redriven"] == Self.total && first["unanswered"] == 0 && first["failed"] == 0)
        let second = try bed.redrive()
        #expect(second.exit == .status(0), "\(second.error)")
        #expect(second["redriven"] == 0 && second["redriven-before"] == Self.total)
        let numbers = try numbers(bed)
        #expect(numbers.count == Self.total && Set(numbers).count == Self.total)
    }

    /// Kafka is away for longer than the command waits. The second run has all that the first one lacks. The embedded
    /// cluster shows parts of a transaction that was never committed: jobs of one batch may be there twice, or their
    /// entries without them.
    @Test func aSecondRunCompletesWhatASilentKafkaLeft() throws {
        let bed = try bed()
        let first = try report(try suspendInTheMiddle(bed, ["--timeout", "5"]))
        try expectUnfinished(first, bed)
        bed.kafka.resume()
        let second = try bed.redrive()
        #expect(second.exit == .status(0), "\(second.error)")
        let before = try #require(second["redriven-before"])
        #expect(before >= first["redriven"] ?? .max && before + (second["redriven"] ?? 0) == Self.many)
        let numbers = try numbers(bed)
        let missing = Self.many - Set(numbers).count
        #expect(
            missing >= 0 && missing + numbers.count - Set(numbers).count <= Self.batch,
            "\(missing) are missing")
    }

    @Test func aRunEndsWithItsCountsWhenKafkaIsGone() throws {
        let bed = try bed()
        let run = try suspendInTheMiddle(bed, ["--timeout", "5"])
        try bed.kafka.kill()
        try expectUnfinished(try report(run), bed)
    }

    /// Checks that the counts of a run that was broken off name each selected dead letter once.
    private func expectCounts(_ report: RedriveReport) throws {
        let names = ["redriven", "unanswered", "failed", "not-reached"]
        let counts = try names.map { try #require(report[$0]) }
        #expect(counts.reduce(0, +) == report["selected"], "\(report.error)")
        // Each job of a batch has an end. Without a batch on its way, nothing is open.
        #expect(counts[0] > 0 && counts[1] + counts[2] <= Self.batch, "\(counts)")
        #expect((counts[0] + counts[1] + counts[2]).isMultiple(of: Self.batch), "\(counts)")
        for name in [
            "redriven-before", "same-job", "in-doubt", "later-outcome", "superseded", "uncommitted",
            "invalid",
            "gone", "differs", "expired",
        ] {
            #expect(report[name] == 0)
        }
    }

    private func expectUnfinished(
        _ report: RedriveReport, _ bed: RedriveBed, status: Int32 = 69
    ) throws {
        #expect(report.exit == .status(status), "\(report.error)")
        try expectCounts(report)
        #expect(report.error.contains("at \(bed.kafka.bootstrapServers)"), "\(report.error)")
        #expect(report.error.contains("check the brokers, and run the command again"), "\(report.error)")
    }

    /// Ctrl-C doesn't wait for the whole time.
    @Test func aStopWhileKafkaIsAwayIsObeyed() throws {
        let bed = try bed()
        let run = try suspendInTheMiddle(bed, ["--timeout", "3600"])
        run.signal(SIGINT)
        let report = try report(run)
        #expect(report.error.contains("stopped before the end"), "\(report.error)")
        // Kafka may owe an answer to the reader alone. Nothing is open then.
        if report["unanswered"] == 0, report["failed"] == 0 {
            #expect(report.exit == .status(75), "\(report.error)")
            return try expectCounts(report)
        }
        try expectUnfinished(report, bed, status: 75)
        #expect(report.error.contains("before the stop"), "\(report.error)")
    }

    /// A run that hasn't begun has nothing to report, but names the topic and the brokers.
    @Test(arguments: [["--dry-run"], []])
    func aSilentKafkaIsReportedAtTheStart(options: [String]) throws {
        let bed = try RedriveBed(isOwn: true)
        bed.kafka.suspend()
        let report = RedriveReport(try bed.run(options + ["--timeout", "1"]))
        #expect(report.exit == .status(69))
        #expect(
            report.error.contains(
                "can't look up topic \(bed.kafka.topic("dead-letters")) at \(bed.kafka.bootstrapServers)"),
            "\(report.error)")
        #expect(report["redriven"] == 0)
    }

    /// Records of the ledger that this version doesn't know are reported, and keep jobs from being sent.
    @Test func foreignRecordsOfTheLedgerAreReported() throws {
        let bed = try RedriveBed()
        try bed.produce(0..<3, rule: "json")
        let letters = bed.kafka.topic("dead-letters")
        try bed.kafka.produce(
            to: "dead-letters-ledger",
            [NewRecord(key: "no place", value: "x"), NewRecord(key: "none either", value: "x")]
                + (0..<Int32(RedriveBed.partitions)).map {
                    NewRecord(key: "\(letters)/\($0)/0", value: "\u{0}not JSON")
                })
        let report = try bed.redrive()
        #expect(report.exit == .status(0), "\(report.error)")
        #expect(report.error.contains("has 2 records without a ledger's key"), "\(report.error)")
        #expect((report["in-doubt"] ?? 0) >= 1)
        #expect((report["in-doubt"] ?? 0) + (report["redriven"] ?? 0) == 3)
    }
}
