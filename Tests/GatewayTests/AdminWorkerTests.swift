import APNSSimulator
import Configuration
import EventLoop
import Foundation
import Kafka
import KafkaTestSupport
import SluiceModel
import Synchronization
import TestSupport
import Testing

@testable import Admin
@testable import Gateway

/// The admin endpoint of a running worker.
struct AdminWorkerTests {
    private final class Endpoint: Sendable {
        let endpoints: AdminEndpoints
        let server: AdminTestServer

        init(_ worker: Worker, patience: Duration = .seconds(60)) throws {
            endpoints = AdminEndpoints(patience: patience, freshness: .zero)
            let commands = endpoints.commands.map { ("/commands\($0.key)", $0.value) }
            server = try AdminTestServer(endpoints.routes.merging(commands) { route, _ in route })
            endpoints.attach(AdminSource(worker))
        }

        func get(_ target: String) throws -> AdminClient.Answer { try server.get(target) }

        func waitUntilReady() throws {
            try eventually("the worker is ready") { try get("/readyz").status == 200 }
        }
    }

    /// Returns the output of `sluice inspect store --json` for a closed store.
    private func inspect(_ bed: WorkerBed, _ more: String...) throws -> String {
        let result = try ChildProcess.run(
            Executables.sluice, ["inspect", "store", bed.directory.file("store"), "--json"] + more)
        #expect(result.exit == .status(0))
        return result.standardOutput
    }

    @Test func runningStoreReportsTheSameAsWhenClosed() throws {
        try withBed { bed in
            let worker = try bed.worker {
                $0.store = .init(
                    directory: bed.directory.file("store"), after: .seconds(1), changelog: .off)
                $0.delivery.shards = 2
            }
            let endpoint = try Endpoint(worker)
            #expect(try endpoint.get("/livez").status == 200)
            try endpoint.waitUntilReady()
            var random = SeededGenerator(seed: 4711)
            let devices = (0..<20).map { _ in random.hexadecimal(bytes: 32) }
            try bed.produce(
                try devices.map { try event("offline", of: $0) }
                    + devices.flatMap { device in
                        ["a", "b"].map { identifier in
                            held("later", to: device) { $0.collapseIdentifier = identifier }
                        }
                    })
            try worker.waitUntilEvicted(devices: 20)

            let counts = try endpoint.get("/store")
            #expect(counts.status == 200)
            #expect(counts.json["estimated-items"] as? Int == 40)
            #expect(counts.json["devices-in-store"] as? Int == 20)

            // Nothing was erased; all partitions are purged on request, and keep their items.
            let unneeded = try endpoint.get("/commands/store/purge?wait=1")
            #expect(unneeded.status == 200 && unneeded.json["partitions"] as? [Int] == [])
            let purge = try endpoint.get("/commands/store/purge?all=1&wait=1")
            #expect(purge.status == 200 && purge.json["state"] as? String == "purged")
            let purged = try #require(purge.json["partitions"] as? [Int])
            #expect(!purged.isEmpty)
            let purges = try endpoint.get("/store").json["purges"] as? [String: Any]
            #expect(purges?["completed"] as? Int == purged.count && purges?["failed"] as? Int == 0)
            #expect((purges?["pending"] as? [Any])?.isEmpty == true && purges?["last"] is [String: Any])
            #expect((purges?["opening"] as? String)?.count == 16)
            for wrong in ["all=2", "wait=yes", "partition=1"] {
                #expect(try endpoint.get("/commands/store/purge?\(wrong)").status == 400)
            }
            #expect(counts.json["resident-items"] as? Int == 0)
            #expect(counts.json["devices-awaiting-turn"] as? Int == 0)
            #expect(counts.json["failing"] as? Bool == false)
            #expect((counts.json["counters"] as? [String: Int])?["puts"] == 40)
            #expect((counts.json["partitions"] as? [[String: Int]])?.count == WorkerBed.partitions)
            let metrics = try endpoint.get("/metrics").body
            #expect(metrics.contains("\nsluice_store_puts_total 40\n"))
            #expect(metrics.contains("\nsluice_partitions_assigned 3\n"))
            #expect(metrics.contains("\nsluice_outcomes_total{app=\"\",kind=\"applied\"} 20\n"))

            let summary = try endpoint.get("/store/summary")
            let items = try (0..<WorkerBed.partitions).map {
                try #require(try endpoint.get("/store/summary?partition=\($0)").json["items"] as? Int)
            }
            #expect(items.reduce(0, +) == 40)
            let device = try endpoint.get("/store/device?token=\(devices[0].uppercased())")
            #expect((device.json["items"] as? [Any])?.count == 2)
            for answer in [counts, summary, device] {
                for device in devices { #expect(!answer.body.lowercased().contains(device)) }
            }
            #expect(
                try endpoint.get("/store/device?token=\(String(repeating: "ab", count: 16))").json["items"]
                    as? [String] == [])
            #expect(try endpoint.get("/readyz").status == 200)

            bed.stop(worker)
            // The loops have ended in order.
            #expect(try endpoint.get("/livez").status == 200)
            #expect(try endpoint.get("/readyz").status == 503)
            #expect(try endpoint.get("/store").status == 503)
            #expect(try endpoint.get("/store/summary").status == 503)
            #expect(try inspect(bed) == summary.body)
            #expect(try inspect(bed, "--device", devices[0]) == device.body)
        }
    }

    @Test func surplusWorkerWithoutPartitionsIsReady() throws {
        try withBed { bed in
            let first = try bed.worker()
            let endpoint = try Endpoint(first)
            try endpoint.waitUntilReady()
            // There is one worker more than partitions.
            let others = try (0..<WorkerBed.partitions).map { _ in try bed.worker() }
            let endpoints = try others.map { try Endpoint($0) }
            for other in endpoints { try other.waitUntilReady() }
            try eventually("one worker has no partition and all are ready") {
                let answers = try ([endpoint] + endpoints).map { try $0.get("/readyz") }
                return answers.allSatisfy { $0.status == 200 }
                    && answers.compactMap { ($0.json["partitions"] as? [Int])?.count }.sorted() == [
                        0, 1, 1, 1,
                    ]
            }
        }
    }

    @Test func drainingWorkerIsAliveButNotReady() throws {
        try withBed(simulator: { $0.latency = .seconds(2) }) { bed in
            let worker = try bed.worker { $0.delivery.drainDeadline = .seconds(60) }
            let endpoint = try Endpoint(worker)
            try endpoint.waitUntilReady()
            try bed.produce(1, seed: 99)
            try eventually("the push is in flight") { worker.snapshot().totals.inFlight == 1 }
            worker.requestStop()
            let answer = try endpoint.get("/readyz")
            #expect(answer.status == 503)
            #expect(answer.reasons == ["the worker is stopping; it takes no new jobs"])
            #expect(try endpoint.get("/livez").status == 200)
            bed.waitUntilStopped(worker)
        }
    }

    @Test func stoppingWorkerIsAliveWhileItsKafkaThreadBlocks() throws {
        try withBed { bed in
            let worker = try bed.worker { $0.delivery.drainDeadline = .seconds(600) }
            let endpoint = try Endpoint(worker, patience: .milliseconds(50))
            // Simulates a call that blocks the Kafka thread during the stop.
            let release = BlockingFlag()
            defer { release.set() }
            worker.intake.loop.execute { release.wait() }
            #expect(try endpoint.get("/livez").reasons == ["the thread `kafka` does not answer"])
            worker.requestStop()
            #expect(try endpoint.get("/livez").status == 200)
            let ready = try endpoint.get("/readyz")
            #expect(ready.status == 503)
            #expect(ready.reasons == ["the worker is stopping; it takes no new jobs"])
            release.set()
            bed.waitUntilStopped(worker)
            #expect(try endpoint.get("/livez").status == 200)
            #expect(try endpoint.get("/readyz").status == 503)
        }
    }

    @Test(arguments: [false, true]) func failedWorkerIsAliveButNotReady(_ isAtOnce: Bool) throws {
        try withBed { bed in
            let worker = try bed.worker()
            let endpoint = try Endpoint(worker)
            worker.intake.loop.execute {
                if isAtOnce {
                    worker.intake.fail(.other("a test"), .partitionsLost)
                } else {
                    worker.intake.fail(.other("a test"))
                }
            }
            #expect(bed.waitUntilStopped(worker, mayFail: true).failure?.reason == "a test")
            #expect(try endpoint.get("/livez").status == 200)
            #expect(try endpoint.get("/readyz").status == 503)
        }
    }

    @Test func stopTimeCountsFromTheFirstRequest() {
        let note = StopNote()
        let begin = MonotonicTime(nanoseconds: 1_000_000_000)
        #expect(note.elapsed(at: begin) == nil)
        note.note(at: begin)
        note.note(at: begin + .seconds(5))
        #expect(note.elapsed(at: begin + .seconds(7)) == .seconds(7))
        #expect(WorkerStop(elapsed: .seconds(7), limit: .seconds(7)).isInTime)
        #expect(!WorkerStop(elapsed: .seconds(8), limit: .seconds(7)).isInTime)
    }
}
