import APNSSimulator
import Configuration
import EventLoop
import SluiceModel
import TestSupport
import Testing

@testable import Gateway

/// A worker with credentials of several environments.
@Suite struct EnvironmentTests {
    /// Runs a test with a simulator for each environment. The app's first credential is of production.
    private func withEnvironments(
        sandbox change: (inout SimulatorOptions) -> Void = { _ in },
        _ body: (WorkerBed, Simulator, (inout Configuration) -> Void) throws -> Void
    ) throws {
        try withBed { bed in
            let (sandbox, caFile) = try bed.anotherSimulator(change)
            try body(bed, sandbox) { configuration in
                configuration.credentials[0].endpoint = .init(
                    environment: .production, host: "localhost", port: Int(bed.simulator.port),
                    caFile: bed.directory.file("ca.pem"))
                var other = configuration.credentials[0]
                other.name = "sandbox"
                other.endpoint = .init(
                    environment: .development, host: "localhost", port: Int(sandbox.port), caFile: caFile)
                configuration.credentials.append(other)
                configuration.apps[0].credentials = ["team", "sandbox"]
            }
        }
    }

    @Test func jobsAreSentToTheEnvironmentThatTheyNameOrToThatOfTheFirstCredential() throws {
        try withEnvironments { bed, sandbox, change in
            let worker = try bed.worker(change)
            try bed.produce(30, seed: 1901) { push, number in
                push.environment = [nil, "production", "development"][number % 3]
            }
            let outcomes = try bed.waitForOutcomes(30)
            #expect(outcomes.allSatisfy { $0.kind == .accepted })
            let credentials = worker.snapshot().totals.credentials
            #expect(credentials["team"]?.report.environment == .production)
            #expect(credentials["sandbox"]?.report.environment == .development)
            #expect(credentials.values.allSatisfy { $0.pools.counters.opened > 0 })
            let reports = worker.poolReports()
            #expect(reports.map(\.environment) == [.production, .development])
            #expect(reports.allSatisfy { $0.apps.map(\.name) == ["news"] })
            bed.stop(worker)
            #expect(bed.simulator.summary.accepted == 20)
            #expect(sandbox.summary.accepted == 10)
        }
    }

    @Test func jobOfAnEnvironmentWithoutCredentialIsUndeliverable() throws {
        try withBed { bed in
            let worker = try bed.worker()
            try bed.produce(2, seed: 1902) { push, number in
                push.environment = number == 0 ? "development" : nil
            }
            let outcomes = try bed.waitForOutcomes(2)
            #expect(outcomes.count { $0.kind == .undeliverable && $0.cause == "no-credential" } == 1)
            #expect(outcomes.count { $0.kind == .accepted } == 1)
            bed.stop(worker)
        }
    }

    /// APNs answers BadDeviceToken to every token of the other environment.
    @Test func tokenRefusedInOneEnvironmentIsNeverTriedInTheOther() throws {
        try withEnvironments(sandbox: {
            $0.deviceRules = [.init(prefix: "bad", reason: .badDeviceToken)]
        }) { bed, sandbox, change in
            let worker = try bed.worker(change)
            try bed.produce(5, seed: 1903) { push, _ in
                push.environment = "development"
                push.deviceToken = "bad0" + push.deviceToken.dropFirst(4)
            }
            let outcomes = try bed.waitForOutcomes(5)
            #expect(outcomes.allSatisfy { $0.kind == .rejected && $0.reason == "BadDeviceToken" })
            bed.stop(worker)
            #expect(sandbox.summary.requests == 5)
            #expect(bed.simulator.summary.requests == 0)
        }
    }

    /// A topic has a circuit for each environment.
    @Test func stoppedTopicOfOneEnvironmentLeavesTheOtherAlone() throws {
        try withEnvironments(sandbox: {
            $0.deviceRules = [.init(prefix: "", reason: .topicDisallowed)]
        }) { bed, _, change in
            let worker = try bed.worker(change)
            try bed.produce(10, seed: 1904) { push, _ in push.environment = "development" }
            try eventually("the topic stops") { worker.snapshot().totals.stops == 1 }
            try bed.produce(10, seed: 1905)
            let outcomes = try bed.waitForOutcomes(10)
            #expect(outcomes.allSatisfy { $0.kind == .accepted })
            #expect(worker.snapshot().totals.count(in: .topicCircuitOpen) == 10)
            bed.stop(worker)
        }
    }

    @Test func cancelWithdrawsThePushesOfBothEnvironments() throws {
        try withEnvironments { bed, _, change in
            let worker = try bed.worker(change)
            let device = SeededGenerator.hexadecimal(seed: 1906)
            let later = wallClockMilliseconds() + 3_600_000
            try bed.produce(
                ["production", "development"].map { environment in
                    push("later", to: device) {
                        $0.environment = environment
                        $0.collapseIdentifier = "score"
                        $0.deliverAtMilliseconds = later
                    }
                })
            try eventually("both wait") { worker.snapshot().totals.count(in: .scheduled) == 2 }
            try bed.produce([
                try job(
                    #"{"kind":"cancel","device-token":"\#(device)","topic":"\#(newsTopic)","collapse-id":"score"}"#
                )
            ])
            let outcomes = try bed.waitForOutcomes(3)
            #expect(outcomes.count { $0.kind == .cancelled && $0.count == 2 } == 1)
            bed.stop(worker)
        }
    }
}
