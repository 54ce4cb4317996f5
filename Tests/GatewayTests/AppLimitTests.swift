import APNSSimulator
import Configuration
import Gateway
import SluiceModel
import TestSupport
import Testing

/// Limits of one app, which must not delay other apps.
@Suite struct AppLimitTests {
    private func addSlowApp(_ configuration: inout Configuration, _ change: (inout Configuration.App) -> Void)
    {
        var app = Configuration.App(name: "slow", topics: ["com.example.slow"], credentials: ["team"])
        change(&app)
        configuration.apps.append(app)
    }

    @Test func appRateLimitDelaysOnlyThatApp() throws {
        try withBed { bed in
            let worker = try bed.worker { configuration in
                addSlowApp(&configuration) {
                    // Allows a push now, and the next after a quarter of an hour.
                    $0.ratePerSecond = 0.001
                    $0.burst = 1
                }
            }
            try bed.produce(10, seed: 101) { push, _ in push.topic = "com.example.slow" }
            try eventually("one slow push is sent and the others wait") {
                worker.snapshot().totals.waiting == 9
            }
            try bed.produce(200, seed: 102)
            let outcomes = try bed.waitForOutcomes(201)
            #expect(outcomes.count { $0.kind == .accepted } == 201)
            #expect(worker.snapshot().totals.waiting == 9)
            bed.stop(worker)
            #expect(bed.readOutcomes().count == 201)
        }
    }

    @Test func appNeverExceedsItsInFlightLimit() throws {
        try withBed(simulator: { $0.latency = .milliseconds(300) }) { bed in
            let worker = try bed.worker { configuration in
                addSlowApp(&configuration) { $0.maxInFlight = 3 }
            }
            // The first request of a connection is alone on it.
            try bed.produce(1, seed: 103)
            try bed.waitForOutcomes(1)
            try bed.produce(12, seed: 104) { push, _ in push.topic = "com.example.slow" }
            var most = 0
            try eventually("all jobs have outcomes") {
                most = max(most, worker.snapshot().totals.inFlight)
                bed.outcomes.poll()
                return bed.outcomes.records.count >= 13
            }
            #expect(most == 3)
            // With another app's pushes on the same connections.
            try bed.produce(12, seed: 105) { push, _ in push.topic = "com.example.slow" }
            try bed.produce(50, seed: 110)
            var mostInAll = 0
            most = 0
            try eventually("all jobs have outcomes") {
                mostInAll = max(mostInAll, worker.snapshot().totals.inFlight)
                for app in worker.poolReports().flatMap(\.apps) where app.name == "slow" {
                    most = max(most, app.inFlight)
                }
                bed.outcomes.poll()
                return bed.outcomes.records.count >= 75
            }
            #expect(most == 3)
            #expect(mostInAll > 3)
            #expect(bed.readOutcomes().count { $0.kind == .accepted } == 75)
        }
    }

    @Test func jobsExpireWhileAPNsIsUnreachable() throws {
        try withBed { bed in
            let worker = try bed.worker { $0.apns.port = 1 }
            try bed.produce(20, seed: 106) { push, number in push.ttl = number < 15 ? 1 : 3600 }
            let outcomes = try bed.waitForOutcomes(15)
            #expect(outcomes.allSatisfy { $0.kind == .expired })
            try eventually("the other pushes wait") { worker.snapshot().totals.waiting == 5 }
        }
    }

    @Test func deviceOverItsRateReceivesAllPushesEventually() throws {
        try withBed(simulator: { $0.requestsPerDeviceSecond = 2 }) { bed in
            let worker = try bed.worker()
            var random = SeededGenerator(seed: 107)
            let device = random.hexadecimal(bytes: 32)
            try bed.produce(8, seed: 108) { push, _ in push.deviceToken = device }
            try bed.produce(40, seed: 109)
            let outcomes = try bed.waitForOutcomes(48)
            #expect(outcomes.allSatisfy { $0.kind == .accepted })
            #expect(WorkerBed.places(outcomes).count == 48)
            let credentials = worker.snapshot().totals.credentials.values
            #expect(credentials.contains { $0.pools.reasons[Int(Reason.tooManyRequests.rawValue)] > 0 })
        }
    }
}
