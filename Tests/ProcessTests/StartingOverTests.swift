import Foundation
import HTTP2
import KafkaTestSupport
import TestSupport
import Testing

/// A worker process that Kafka fences, again and again.
@Suite("Starting over")
struct StartingOverTests {
    private static let invalidProducerEpoch: Int32 = 47

    /// Threads and descriptors of a process.
    private struct Resources: CustomStringConvertible {
        var threads: Int
        var descriptors: Int

        init(_ process: pid_t) throws {
            func count(_ name: String) throws -> Int {
                try FileManager.default.contentsOfDirectory(atPath: "/proc/\(process)/\(name)").count
            }
            (threads, descriptors) = (try count("task"), try count("fd"))
        }

        var description: String { "\(threads) threads, \(descriptors) descriptors" }
    }

    /// The successor of a fenced worker has as many threads and descriptors as the worker had.
    @Test func aFencedWorkerLeavesNoThreadAndNoDescriptor() throws {
        let kafka = try TestKafka(embedding: [
            ("jobs", 3), ("outcomes", 3), ("dead-letters", 1), ("changelog", 3), ("switches", 1),
        ])
        let directory = try TemporaryDirectory("starting-over")
        try directory.write(CertificateAuthority(commonName: "test").privateKeyPEM, to: "team.p8")
        let configuration = try directory.write(
            """
            kafka:
              bootstrap-servers: "\(kafka.bootstrapServers)"
              group-id: \(kafka.group)
              topics: {jobs: \(kafka.topic("jobs")), outcomes: \(kafka.topic("outcomes")), \
            dead-letters: \(kafka.topic("dead-letters")), changelog: \(kafka.topic("changelog")), \
            switches: \(kafka.topic("switches"))}
            store: {directory: \(directory.file("store")), changelog: on, transactions: on}
            apps:
              - name: news
                topics: [com.example.news]
                credential: {type: token, key-file: team.p8, key-id: \(Bed.keyID), team-id: \(Bed.teamID)}
            apns: {environment: custom, host: 127.0.0.1, port: 9}
            """, to: "sluice.yaml")
        let worker = try ChildProcess(Executables.sluice, ["run", "-c", configuration, "--stop-with-input"])
        let letters = try TopicReader(kafka, "dead-letters", partitions: 1)
        func roundEnds(_ round: Int) throws {
            try kafka.produce(to: "jobs", [NewRecord(key: "round \(round)", value: "no job")])
            try worker.waits(for: "round \(round) has its dead letter") {
                letters.poll()
                return letters.records.contains { $0.key == Array("round \(round)".utf8) }
            }
        }
        try roundEnds(0)
        let before = try Resources(worker.identifier)
        for round in 1...4 {
            try #require(kafka.embedded).fail(.endTransaction, with: [Self.invalidProducerEpoch])
            try roundEnds(round)
            try worker.waits(for: "the worker has started over") {
                worker.standardError.components(separatedBy: "the worker restarts").count > round
            }
            try eventually("what the fenced worker had is free") {
                let now = try Resources(worker.identifier)
                // Connections come and go. A client has six threads and thirty descriptors.
                return now.threads <= before.threads + 3 && now.descriptors <= before.descriptors + 12
            }
        }
        worker.signal(SIGTERM)
        #expect(try worker.wait() == .status(0))
    }
}
