import Foundation
import KafkaTestSupport
import SluiceModel
import TestSupport
import Testing

/// Records that Kafka took as jobs, and whose dead letters or outcomes it refuses for their size.
@Suite("Oversized records, as a process")
struct OversizedRecordTests {
    enum Mode: String, CaseIterable {
        case none, local, changelog, transactions
    }

    /// Kafka's error MESSAGE_TOO_LARGE.
    private static let messageTooLarge: Int32 = 10
    private static let partitions = 3
    /// Jobs before and after each of the four records: 4,800 in all.
    private static let jobsBetween = 600

    private func withWorker(_ mode: Mode, _ body: (Bed, WorkerProcess) throws -> Void) throws {
        // A failure can be injected only into the embedded cluster.
        try withBed(BedOptions(partitions: Self.partitions, embedsKafka: true)) { bed in
            var options = WorkerOptions()
            // A suspended worker stays in its group.
            options.consumerProperties =
                "{fetch.wait.max.ms: 10, session.timeout.ms: 20000, heartbeat.interval.ms: 500}"
            if mode != .none {
                options.environment = bed.storeEnvironment(
                    hasChangelog: mode != .local, hasTransactions: mode == .transactions)
            }
            try body(bed, try bed.start(options))
        }
    }

    private struct Oversized {
        var kind: String
        var record: NewRecord
        /// Headers that say what the dead letter lacks.
        var omissions: [DeadLetter.Omission]
    }

    /// Bytes of a record's parts with which librdkafka's producer just takes it (`message.max.bytes`).
    private static let most = 999_900

    /// A record of each kind, none of which is a job.
    private func oversized() -> [Oversized] {
        let headers = (0..<24_000).map { (name: "h\(10_000 + $0)", value: String(repeating: "x", count: 32)) }
        let fill = Self.most - headers.reduce(0) { $0 + 2 + $1.name.utf8.count + $1.value.utf8.count } - 20
        return [
            Oversized(
                kind: "key", record: NewRecord(key: String(repeating: "k", count: Self.most), value: nil),
                omissions: [.key]),
            Oversized(
                kind: "header",
                record: NewRecord(
                    key: "short", value: "v",
                    headers: [("x-large", String(repeating: "h", count: Self.most - 20))]),
                omissions: [.value, .headers]),
            Oversized(
                kind: "headers",
                record: NewRecord(
                    key: "short", value: "v",
                    headers: headers.map { ($0.name, $0.value) }
                        + [("x-fill", String(repeating: "f", count: fill - 20))]),
                omissions: [.value, .headers]),
            Oversized(
                kind: "value",
                record: NewRecord(key: "short", value: String(repeating: "v", count: Self.most - 10)),
                omissions: [.value]),
        ]
    }

    private func jobs(_ count: Int, _ random: inout SeededGenerator) -> [EncodedJob] {
        (0..<count).map { Bed.job(&random, number: $0) }
    }

    /// Checks that each device has exactly one push.
    private func checkPushes(_ bed: Bed, _ jobs: [EncodedJob]) {
        let tokens = bed.pushes().map(\.deviceToken)
        #expect(tokens.count == jobs.count, "\(tokens.count) pushes of \(jobs.count) jobs")
        #expect(Set(tokens).count == tokens.count, "a push was sent twice")
    }

    /// Each record is refused by the worker's producer, and one by a broker, whose limit is lower.
    @Test(arguments: Mode.allCases) func eachKindHasOneDeadLetterAndOthersGoOn(_ mode: Mode) throws {
        try withWorker(mode) { bed, worker in
            var random = SeededGenerator(seed: 40)
            let oversized = oversized()
            let letters = try TopicReader(bed.kafka, "dead-letters", partitions: 1)
            var all: [EncodedJob] = []
            for (number, each) in oversized.enumerated() {
                var record = each.record
                record.partition = Int32(number % Self.partitions)
                try bed.produce(jobs(Self.jobsBetween, &random).also { all += $0 })
                try bed.kafka.produce(to: "jobs", [record])
                try bed.produce(jobs(Self.jobsBetween, &random).also { all += $0 })
            }
            try bed.outcomes.wait(for: all.count, of: worker)
            try worker.waits(for: "each record has a dead letter") {
                letters.poll()
                return letters.records.count >= oversized.count
            }
            for (number, each) in oversized.enumerated() {
                let place = "\(number % Self.partitions)"
                let candidates = letters.records.filter { letter in
                    letter.header("sluice-source-partition") == place
                        && each.omissions
                            == DeadLetter.Omission.allCases.filter { omission in
                                letter.header(omission.rawValue) != nil
                            }
                }
                let letter = try #require(candidates.first, "\(each.kind)")
                #expect(letter.header("sluice-error-rule") != nil && (letter.key ?? []).count <= 512)
                #expect(letter.value == nil)
            }
            // The test's producer must not meet the failure.
            worker.suspend()
            try bed.kafka.produce(to: "jobs", [NewRecord(key: "short", value: "refused by the broker")])
            bed.kafka.embedded!.fail(.produce, with: [Self.messageTooLarge])
            worker.signal(SIGCONT)
            try worker.waits(for: "the refused dead letter is there without its value") {
                letters.poll()
                return letters.records.contains {
                    $0.value == nil && $0.header("sluice-omitted-value")?.hasPrefix("21 ") == true
                }
            }
            worker.suspend()
            try bed.produce(jobs(100, &random).also { all += $0 })
            bed.kafka.embedded!.fail(.produce, with: [Self.messageTooLarge])
            worker.signal(SIGCONT)
            try bed.outcomes.wait(for: all.count, of: worker)
            // The embedded cluster shows the records of aborted transactions too.
            if mode != .transactions {
                #expect(bed.outcomes.outcomes.count == all.count)
                #expect(letters.records.count == oversized.count + 1)
            }
            checkPushes(bed, all)
            #expect(worker.isRunning && worker.restarts == 0, "\(worker.log.suffix(2_000))")
        }
    }

    /// A broker takes a dead letter in no form. Its partition stops alone, with a line that names the place.
    @Test(arguments: Mode.allCases) func partitionOfARecordThatNeverFitsStopsAlone(_ mode: Mode) throws {
        try withWorker(mode) { bed, worker in
            var random = SeededGenerator(seed: 41)
            // Nothing else is in the worker's producer that the failures could meet.
            worker.suspend()
            var record = NewRecord(key: "short", value: "no job", headers: [("x-a", "b")])
            record.partition = 1
            try bed.kafka.produce(to: "jobs", [record])
            // Whole, without its value, and four times without its headers.
            bed.kafka.embedded!.fail(.produce, with: Array(repeating: Self.messageTooLarge, count: 6))
            worker.signal(SIGCONT)
            try worker.waits(for: "the partition stops") { worker.log.contains("a partition stopped") }
            let line = try #require(
                worker.log.split(separator: "\n").first { $0.contains("a partition stopped") })
            let offset = try #require(line.firstMatch(of: /offset=(\d+)/).flatMap { Int64($0.1) })
            #expect(
                line.contains("partition=1 ") && line.contains("topic=\(bed.kafka.topic("dead-letters"))"))
            #expect(line.contains("MSG_SIZE_TOO_LARGE"))
            let later = (0..<60).map { number in
                var record = NewRecord(Bed.job(&random, number: number))
                record.partition = Int32(number % Self.partitions)
                return record
            }
            try bed.kafka.produce(to: "jobs", later)
            try bed.outcomes.wait(for: 40, of: worker)
            #expect(!bed.outcomes.outcomes.contains { $0.partition == 1 && $0.offset > offset })
            #expect(worker.isRunning && worker.restarts == 0, "\(worker.log.suffix(2_000))")
        }
    }
}

extension Array {
    /// Passes the array to a body and returns it.
    fileprivate func also(_ body: (Self) -> Void) -> Self {
        body(self)
        return self
    }
}
