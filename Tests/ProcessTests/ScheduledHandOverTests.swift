import Foundation
import SluiceModel
import TestSupport
import Testing

/// An orderly stop in the middle of a long window: many jobs are done, above others that still wait.
@Suite("Worker: a stop with scheduled jobs among many")
struct ScheduledHandOverTests {
    enum Store: String, CaseIterable, CustomTestStringConvertible {
        case none, local, changelog

        var testDescription: String { rawValue }

        func environment(_ installation: Installation) -> [String: String] {
            guard self != .none else { return [:] }
            // The embedded cluster answers transactions and forgets their offsets.
            let hasTransactions = self == .changelog && ReplicaBed.hasTransactions
            return [
                "SLUICE_STORE__DIRECTORY": installation.directory.file("store"),
                "SLUICE_STORE__CHANGELOG": self == .changelog ? "on" : "off",
                "SLUICE_STORE__TRANSACTIONS": hasTransactions ? "on" : "off",
                "SLUICE_KAFKA__TOPICS__CHANGELOG": installation.kafka.topic("changelog"),
            ]
        }
    }

    /// Without room in the commit's metadata for what is done, 14,000 of them were pushed twice. A tenth is scheduled, for
    /// sooner than `store.after`.
    @Test(
        "thousands of jobs of one partition, of which a tenth is scheduled: one SIGTERM, one push and one outcome each",
        arguments: Store.allCases)
    func oneOutcomeEach(_ store: Store) throws {
        // The embedded cluster keeps five megabytes of a partition: a window that closes shows on real brokers alone.
        let count = ReplicaBed.hasTransactions ? 40_000 : 10_000
        let installation = try Installation(partitions: 1)
        let path = try installation.directory.write(installation.configuration(), to: "worker.yaml")
        let start = {
            try ChildProcess(
                Executables.sluice, ["run", "-c", path, "--stop-with-input"],
                environment: store.environment(installation))
        }
        var random = SeededRandom(seed: 23)
        let due = (Int64(Date().timeIntervalSince1970) + 25) * 1_000
        let jobs = (0..<count).map { number -> EncodedJob in
            var push = PushDescription(
                deviceToken: random.hexadecimal(bytes: 32), topic: "com.example.news",
                payload: Array(#"{"aps":{"alert":"number \#(number)"}}"#.utf8))
            if number % 10 == 0 { push.deliverAtMilliseconds = due }
            return JobEncoder.binary(push)
        }
        try installation.produce(jobs)
        let tail = try OutcomeTail(installation)
        let first = try start()
        try first.waits(for: "half of them is done") {
            tail.poll()
            return tail.outcomes.count >= count / 2
        }
        #expect(try first.stop() == .status(0))
        let second = try start()
        try tail.wait(for: count, of: second)
        #expect(try second.stop() == .status(0))
        tail.poll()
        #expect(tail.outcomes.count == count, "each job has one outcome")
        #expect(tail.jobs.count == count)
        let pushes = installation.pushes()
        #expect(pushes.count == count && Set(pushes.map(\.apnsID)).count == count, "each job was pushed once")
    }
}
