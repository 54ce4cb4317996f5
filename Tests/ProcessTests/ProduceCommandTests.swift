import Foundation
import Kafka
import KafkaTestSupport
import TestSupport
import Testing

/// Inputs of `sluice produce` that are no plain list of valid jobs.
@Suite("Command line: produce")
struct ProduceCommandTests {
    private let kafka: TestKafka
    private let target: [String]

    init() throws {
        kafka = try TestKafka([("jobs", 1)])
        target = ["produce", "-b", kafka.bootstrapServers, "--jobs-topic", kafka.topic("jobs")]
    }

    private func job(alert: String = "a") -> String {
        """
        {"kind":"push","device-token":"\(deviceToken)","topic":"a.b","push-type":"alert",\
        "payload":{"aps":{"alert":"\(alert)"}}}\n
        """
    }

    private func produce(
        _ arguments: String..., input: String = ""
    ) throws -> (exit: ChildProcess.Exit, standardOutput: String, standardError: String) {
        try ChildProcess.run(Executables.sluice, target + arguments, input: input)
    }

    private func records(_ count: Int) throws -> [ReadRecord] {
        let reader = try TopicReader(kafka, "jobs", partitions: 1)
        try eventually("\(count) records are there") {
            reader.poll()
            return reader.records.count >= count
        }
        return reader.records
    }

    @Test func signalBeforeTheEndOfTheInputEndsWith75() throws {
        let child = try ChildProcess(Executables.sluice, target + ["--file", "-"])
        child.write(job())
        _ = try records(1)
        child.signal(SIGTERM)
        #expect(try child.wait() == .status(75))
        #expect(child.standardOutput.hasPrefix("1 job to "), "\(child.standardOutput)")
        #expect(
            child.standardError.contains("stopped on request after line 1 of -"), "\(child.standardError)")
    }

    @Test func recordThatIsTooLargeIsAnErrorOfItsLineAlone() throws {
        let large = job(alert: String(repeating: "x", count: 3_000))
        let result = try produce(
            "--file", "-", "--no-check", "-X", "message.max.bytes=2000", input: job() + large + job())
        #expect(result.exit == .status(1))
        #expect(result.standardError.contains("-:2: was not acknowledged: "), "\(result.standardError)")
        #expect(
            result.standardError.contains("1 of 3 records were not acknowledged"), "\(result.standardError)")
        #expect(result.standardOutput.hasPrefix("2 jobs to "), "\(result.standardOutput)")
        #expect(try records(2).count == 2)
    }

    @Test func lineThatIsTooLongIsLeftOut() throws {
        let long = job(alert: String(repeating: "x", count: 5 << 20))
        let result = try produce("--file", "-", input: job() + long + job())
        #expect(result.exit == .status(65))
        #expect(
            result.standardError.contains("-:2: is longer than 4 MiB; left out"), "\(result.standardError)")
        #expect(result.standardOutput.hasPrefix("2 jobs to "), "\(result.standardOutput)")
    }

    @Test func lineWithoutAnEndIsAnError() throws {
        let result = try produce("--file", "/dev/zero")
        #expect(result.exit == .status(65))
        #expect(
            result.standardError.contains("/dev/zero:1: the line has no end within 64 MiB"),
            "\(result.standardError)")
    }

    /// The limit counts from the job's creation, which is now.
    @Test(arguments: ["binary", "packed", "structured"])
    func broadcastMayWaitForAMoment(_ mode: String) throws {
        let due = Int64(Date.now.timeIntervalSince1970 * 1_000) + 2_000
        let result = try produce(
            "--kind", "broadcast", "--channel-id", "AAAAAAAAAAAAAAAAAAAAAA==", "--topic", "a.b", "--ttl",
            "60",
            "--deliver-at", "\(due)", "--mode", mode, "--payload",
            #"{"aps":{"event":"update","timestamp":1893450000,"content-state":{}}}"#)
        #expect(result.exit == .status(0), "\(result.standardError)")
    }

    @Test func jobWithoutAFormInItsModeIsRefused() throws {
        let single = try produce(
            "--no-check", "--mode", "packed", "--device-token", deviceToken, "--topic", "a.b", "--alert", "x",
            "--collapse-id", "a\nb")
        #expect(single.exit == .status(65))
        #expect(single.standardError.contains("apns-collapse-id: has a line feed"), "\(single.standardError)")
        let bare = #"{"device-token":"\#(deviceToken)","payload":{}}"# + "\n"
        let file = try produce("--file", "-", "--no-check", "--mode", "packed", input: bare + job())
        #expect(file.exit == .status(65))
        #expect(
            file.standardError.contains("-:1: fields: packed mode needs a field"), "\(file.standardError)")
        #expect(try records(1).count == 1)
    }

    @Test func byteOrderMarkIsSkippedOrNamed() throws {
        let result = try produce("--file", "-", input: "\u{FEFF}" + job())
        #expect(result.exit == .status(0), "\(result.standardError)")
        let directory = try TemporaryDirectory("jobs")
        let path = directory.file("utf16.jsonl")
        try Data([0xFF, 0xFE] + job().utf8.flatMap { [$0, 0] }).write(to: URL(filePath: path))
        let other = try produce("--file", path)
        #expect(other.exit == .status(65))
        #expect(other.standardError.contains("byte order mark of UTF-16"), "\(other.standardError)")
    }
}
