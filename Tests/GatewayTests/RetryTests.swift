import APNS
import APNSSimulator
import KafkaTestSupport
import SluiceModel
import TestSupport
import Testing

@testable import Gateway

/// The next steps for a job after its first attempt, and for its connection.
@Suite struct RetryTests {
    // MARK: Limits in time

    @Test func retryWaitingInTheQueueExpires() throws {
        try withBed(simulator: { $0.faults = [.init(reason: .serviceUnavailable, share: 1)] }) { bed in
            let worker = try bed.worker {
                $0.delivery.maxExpiration = .seconds(5)
                // Allows a push now, and the next after a quarter of an hour.
                $0.apps[0].ratePerSecond = 0.001
                $0.apps[0].burst = 1
            }
            try bed.produce(1, seed: 201)
            try eventually("the push is tried once") { bed.simulator.summary.requests == 1 }
            // Expiration 0 asks for a single attempt, at any time.
            try bed.produce(3, seed: 202) { push, _ in push.expiration = 0 }
            let outcomes = try bed.waitForOutcomes(1)
            #expect(outcomes.map(\.kind) == [.expired])
            #expect(outcomes.map(\.attempts) == [1])
            #expect(outcomes.map(\.offset) == [0])
            try eventually("the other pushes wait") { worker.snapshot().totals.waiting == 3 }
            bed.stop(worker)
            #expect(bed.readOutcomes().count == 1)
        }
    }

    @Test func pushWithExpirationZeroEndsAtItsFirstAnswer() throws {
        try withBed(simulator: { options in
            options.deviceRules = [
                .init(prefix: "0429", reason: .tooManyRequests),
                .init(prefix: "0500", reason: .internalServerError),
                .init(prefix: "0503", reason: .serviceUnavailable),
                .init(prefix: "0403", reason: .expiredProviderToken),
            ]
        }) { bed in
            let worker = try bed.worker()
            let prefixes = ["0429", "0500", "0503", "0403"]
            try bed.produce(8, seed: 231) { push, number in
                push.deviceToken = prefixes[number % 4] + push.deviceToken.dropFirst(4)
                if number < 4 { push.expiration = 0 } else { push.ttl = 0 }
            }
            let outcomes = try bed.waitForOutcomes(8)
            #expect(outcomes.allSatisfy { $0.kind == .undeliverable && $0.cause == "attempts-exhausted" })
            #expect(outcomes.allSatisfy { $0.attempts == 1 })
            #expect(
                Set(outcomes.compactMap(\.reason)) == [
                    "TooManyRequests", "InternalServerError", "ServiceUnavailable", "ExpiredProviderToken",
                ])
            bed.stop(worker)
            #expect(bed.simulator.summary.requests == 8)
        }
    }

    @Test func jobsOfPausedDeviceExpireOnTime() throws {
        try withBed { bed in
            let worker = try bed.worker()
            // The worker has its partitions once it has an outcome.
            try bed.produce(1, seed: 219)
            try bed.waitForOutcomes(1)
            let device = SeededGenerator.hexadecimal(seed: 203)
            hold(device, on: worker)
            try bed.produce(5, seed: 204) { push, _ in
                push.deviceToken = device
                push.ttl = 3
            }
            try eventually("the pushes wait for a retry") { worker.snapshot().totals.retrying == 5 }
            let outcomes = try bed.waitForOutcomes(6)
            #expect(outcomes.count { $0.kind == .expired && $0.attempts == 0 } == 5)
            bed.stop(worker)
            #expect(bed.simulator.summary.requests == 1)
        }
    }

    // MARK: Paused devices

    @Test func waitingPushesOfPausedDeviceAreNotSent() throws {
        try withBed(simulator: { options in
            options.maximumStreams = 1
            options.latency = .seconds(2)
        }) { bed in
            let worker = try bed.worker { $0.apns.connections = 1 }
            let device = SeededGenerator.hexadecimal(seed: 205)
            // Occupies the only stream.
            try bed.produce(1, seed: 206)
            try eventually("the push is in flight") { worker.snapshot().totals.inFlight == 1 }
            try bed.produce(10, seed: 207) { push, _ in push.deviceToken = device }
            try eventually("the pushes wait") { worker.snapshot().totals.waiting == 10 }
            hold(device, on: worker)
            try eventually("the pushes wait for a retry") { worker.snapshot().totals.retrying == 10 }
            try bed.produce(1, seed: 208)
            try bed.waitForOutcomes(2)
            #expect(bed.simulator.summary.requests == 2)
        }
    }

    @Test func immediateRetryWaitsForItsPausedDevice() throws {
        try withBed(simulator: { options in
            options.latency = .seconds(2)
            options.faults = [.init(reason: .idleTimeout, share: 1)]
        }) { bed in
            let worker = try bed.worker()
            try eventually("two connections are open") { worker.snapshot().totals.openConnections == 2 }
            let device = SeededGenerator.hexadecimal(seed: 209)
            try bed.produce(1, seed: 210) { push, _ in push.deviceToken = device }
            try eventually("the push is in flight") { worker.snapshot().totals.inFlight == 1 }
            hold(device, on: worker)
            try eventually("the push waits") { worker.snapshot().totals.retrying == 1 }
            #expect(worker.snapshot().totals.sent == 1)
        }
    }

    /// Pauses a device, as an answer 429 with `Retry-After: 3600` would.
    private func hold(_ device: String, on worker: Worker) {
        for shard in worker.shards {
            shard.loop.execute {
                var device = device
                let key = device.withUTF8 { shard.plan.hasher.device(UnsafeRawBufferPointer($0)) }
                shard.machine.pause(key, retryAfterMilliseconds: 3_600_000, at: shard.now)
            }
        }
    }

    // MARK: Connections

    @Test func connectionThatShutsDownIsReplacedAtOnce() throws {
        try withBed(simulator: { $0.deviceRules = [.init(prefix: "dead", reason: .shutdown)] }) { bed in
            let worker = try bed.worker { $0.delivery.retry.maxAttempts = 1 }
            try eventually("two connections are open") { worker.snapshot().totals.openConnections == 2 }
            let connections = bed.simulator.summary.connections
            try bed.produce(1, seed: 211) { push, _ in
                push.deviceToken = "dead" + push.deviceToken.dropFirst(4)
            }
            let outcomes = try bed.waitForOutcomes(1)
            #expect(outcomes.map(\.cause) == ["attempts-exhausted"])
            // The connection that shut down was only seconds old.
            try eventually("a connection opens") { bed.simulator.summary.connections > connections }
            try eventually("two connections are open") { bed.simulator.summary.openConnections == 2 }
        }
    }

    /// APNs repeats such a refusal on the same connection, so even the last connection is replaced.
    @Test func connectionWithTooManyTokensIsReplaced() throws {
        try withBed(simulator: {
            $0.deviceRules = [.init(prefix: "dead", reason: .tooManyProviderTokenUpdates)]
        }) { bed in
            var tokens = ProviderTokenPolicy.Settings()
            tokens.firstRest = 1
            try bed.worker(tokens: tokens) {
                $0.apns.connections = 1
                $0.delivery.retry.maxAttempts = 2
            }
            try bed.produce(1, seed: 215)
            try bed.waitForOutcomes(1)
            try bed.produce(3, seed: 216) { push, number in
                if number == 0 { push.deviceToken = "dead" + push.deviceToken.dropFirst(4) }
            }
            let outcomes = try bed.waitForOutcomes(4)
            #expect(outcomes.count { $0.kind == .accepted } == 3)
            #expect(bed.simulator.summary.connections >= 2)
        }
    }

    @Test func connectionServesOnAfterARefusedToken() throws {
        try withBed(simulator: {
            $0.deviceRules = [.init(prefix: "dead", reason: .expiredProviderToken)]
        }) { bed in
            try bed.worker {
                $0.apns.connections = 1
                $0.apns.maxConnections = 1
                $0.delivery.retry.maxAttempts = 2
            }
            try bed.produce(1, seed: 221)
            try bed.waitForOutcomes(1)
            try bed.produce(3, seed: 222) { push, number in
                if number == 0 { push.deviceToken = "dead" + push.deviceToken.dropFirst(4) }
            }
            let outcomes = try bed.waitForOutcomes(4)
            #expect(outcomes.count { $0.kind == .accepted } == 3)
            #expect(outcomes.count { $0.reason == "ExpiredProviderToken" && $0.attempts == 2 } == 1)
            #expect(bed.simulator.summary.connections == 1)
        }
    }

    /// Two attempts of ten pushes are refused: eight requests on each of two connections, and four on the third.
    @Test func connectionWhoseTokenIsRefusedAgainAndAgainIsReplaced() throws {
        try withBed(simulator: { $0.maximumTokenAge = .seconds(-1) }) { bed in
            try bed.worker {
                $0.apns.connections = 1
                $0.apns.maxConnections = 1
                $0.delivery.retry.maxAttempts = 2
            }
            try bed.produce(10, seed: 223)
            let outcomes = try bed.waitForOutcomes(10)
            #expect(outcomes.allSatisfy { $0.reason == "ExpiredProviderToken" && $0.attempts == 2 })
            #expect(bed.simulator.summary.rejected[.expiredProviderToken] == 20)
            #expect(bed.simulator.summary.connections == 3)
        }
    }

    @Test(arguments: [Reason.shutdown, .unrelatedKeyIdInToken])
    func pushesContinueAfterAnErrorOnTheLastConnection(reason: Reason) throws {
        try withBed(simulator: { $0.deviceRules = [.init(prefix: "dead", reason: reason)] }) { bed in
            try bed.worker {
                $0.apns.connections = 1
                $0.delivery.retry.maxAttempts = 2
            }
            try bed.produce(3, seed: 212) { push, number in
                if number < 2 { push.deviceToken = "dead" + push.deviceToken.dropFirst(4) }
            }
            let outcomes = try bed.waitForOutcomes(3)
            #expect(outcomes.count { $0.kind == .accepted } == 1)
            #expect(outcomes.count { $0.cause == "attempts-exhausted" && $0.attempts == 2 } == 2)
            try bed.produce(1, seed: 213)
            try bed.waitForOutcomes(4)
            // After a shutdown the next connection opens before the old one closes.
            #expect(bed.simulator.summary.connections <= (reason == .shutdown ? 2 : 1))
        }
    }

    @Test func serverErrorsOnYoungConnectionsReplaceNone() throws {
        try withBed(simulator: {
            $0.deviceRules = [.init(prefix: "dead", reason: .internalServerError)]
        }) { bed in
            let worker = try bed.worker { $0.delivery.retry.maxAttempts = 3 }
            try eventually("two connections are open") { worker.snapshot().totals.openConnections == 2 }
            try bed.produce(20, seed: 214) { push, _ in
                push.deviceToken = "dead" + push.deviceToken.dropFirst(4)
            }
            try bed.waitForOutcomes(20)
            try bed.produce(20, seed: 215)
            try bed.waitForOutcomes(40)
            #expect(bed.simulator.summary.connections == 2)
        }
    }

    @Test func wrongClockIsLoggedSeldom() throws {
        try withBed(simulator: { $0.maximumTokenAge = .seconds(-1) }) { bed in
            let log = LogRecorder()
            let begin = ContinuousClock.now
            try bed.worker(log: log) {
                $0.apns.connections = 1
                $0.delivery.retry.maxAttempts = 2
            }
            try bed.produce(2, seed: 216)
            let outcomes = try bed.waitForOutcomes(2)
            #expect(outcomes.allSatisfy { $0.reason == "ExpiredProviderToken" && $0.attempts == 2 })
            #expect(bed.simulator.summary.rejected[.expiredProviderToken] == 4)
            let lines = log.messages.count(containing: "check this machine's clock")
            let most = 1 + Int((ContinuousClock.now - begin) / .seconds(10))
            #expect((1...most).contains(lines))
        }
    }

    // MARK: Headers

    @Test func jobsWithOversizedHeadersEndAsUndeliverable() throws {
        try withBed { bed in
            let worker = try bed.worker()
            try bed.produce(1, seed: 217)
            try bed.waitForOutcomes(1)
            // A valid job's headers always fit, so the provider token is made too long. No renewal follows for 21
            // minutes.
            for shard in worker.shards {
                shard.loop.execute {
                    for pool in shard.pools {
                        pool.newestEncoder.setAuthorization(
                            Array(repeating: UInt8(ascii: "a"), count: 20_000))
                    }
                }
            }
            try bed.produce(3, seed: 218)
            let outcomes = try bed.waitForOutcomes(4)
            #expect(outcomes.count { $0.kind == .undeliverable && $0.cause == "not-supported" } == 3)
            bed.stop(worker)
            #expect(bed.simulator.summary.requests == 1)
        }
    }
}

extension SeededGenerator {
    static func hexadecimal(seed: UInt64) -> String {
        var random = SeededGenerator(seed: seed)
        return random.hexadecimal(bytes: 32)
    }
}
