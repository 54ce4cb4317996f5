import APNSSimulator
import KafkaTestSupport
import SluiceModel
import TestSupport
import Testing

@testable import Gateway

/// What becomes of a job after its first attempt, and of the connection that it was on.
@Suite struct RetryTests {
    // MARK: Limits in time

    @Test func aRetryThatWaitsInTheQueueExpires() throws {
        let bed = try WorkerBed { $0.faults = [.init(reason: .serviceUnavailable, share: 1)] }
        let worker = try bed.worker {
            $0.delivery.maxExpiration = .seconds(1)
            // One now, the next in a quarter of an hour.
            $0.apps[0].ratePerSecond = 0.001
            $0.apps[0].burst = 1
        }
        try bed.produce(1, seed: 201)
        try eventually("it is tried once") { worker.snapshot().shards.sent == 1 }
        // These ask for one attempt, whenever it is their turn.
        try bed.produce(3, seed: 202) { push, _ in push.expiration = 0 }
        let outcomes = try bed.waitForOutcomes(1)
        #expect(outcomes.map(\.kind) == [.expired])
        #expect(outcomes.map(\.attempts) == [1])
        #expect(outcomes.map(\.offset) == [0])
        try eventually("the others wait") { worker.snapshot().shards.waiting == 3 }
        #expect(bed.stop(worker).failure == nil)
        #expect(bed.readOutcomes().count == 1)
        bed.simulator.stop()
    }

    @Test func anAnswerEndsAPushWithExpirationZero() throws {
        let bed = try WorkerBed { options in
            options.deviceRules = [
                .init(prefix: "0429", reason: .tooManyRequests),
                .init(prefix: "0500", reason: .internalServerError),
                .init(prefix: "0503", reason: .serviceUnavailable),
                .init(prefix: "0403", reason: .expiredProviderToken),
            ]
        }
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
        #expect(bed.stop(worker).failure == nil)
        #expect(bed.simulator.summary.requests == 8)
        bed.simulator.stop()
    }

    @Test func aJobOfAHeldDeviceExpiresInTime() throws {
        let bed = try WorkerBed()
        let worker = try bed.worker()
        // The worker has its partitions.
        try bed.produce(1, seed: 219)
        try bed.waitForOutcomes(1)
        let device = SeededRandom.hexadecimal(seed: 203)
        hold(device, on: worker)
        try bed.produce(5, seed: 204) { push, _ in
            push.deviceToken = device
            push.ttl = 3
        }
        try eventually("they are put aside") { worker.snapshot().shards.retrying == 5 }
        let outcomes = try bed.waitForOutcomes(6)
        #expect(outcomes.count { $0.kind == .expired && $0.attempts == 0 } == 5)
        #expect(bed.stop(worker).failure == nil)
        #expect(bed.simulator.summary.requests == 1)
        bed.simulator.stop()
    }

    // MARK: Held devices

    @Test func whatWaitsForAHeldDeviceIsNotSent() throws {
        let bed = try WorkerBed { options in
            options.maximumStreams = 1
            options.latency = .seconds(2)
        }
        let worker = try bed.worker { $0.apns.connections = 1 }
        let device = SeededRandom.hexadecimal(seed: 205)
        // Takes the one stream that there is.
        try bed.produce(1, seed: 206)
        try eventually("it is in flight") { worker.snapshot().shards.inFlight == 1 }
        try bed.produce(10, seed: 207) { push, _ in push.deviceToken = device }
        try eventually("they wait") { worker.snapshot().shards.waiting == 10 }
        hold(device, on: worker)
        try eventually("they are put aside") { worker.snapshot().shards.retrying == 10 }
        try bed.produce(1, seed: 208)
        try bed.waitForOutcomes(2)
        #expect(bed.simulator.summary.requests == 2)
        #expect(bed.stop(worker).failure == nil)
        bed.simulator.stop()
    }

    @Test func aRetryAtOnceWaitsForItsDevice() throws {
        let bed = try WorkerBed { options in
            options.latency = .seconds(2)
            options.faults = [.init(reason: .idleTimeout, share: 1)]
        }
        let worker = try bed.worker()
        try eventually("two connections") { worker.snapshot().shards.openConnections == 2 }
        let device = SeededRandom.hexadecimal(seed: 209)
        try bed.produce(1, seed: 210) { push, _ in push.deviceToken = device }
        try eventually("it is in flight") { worker.snapshot().shards.inFlight == 1 }
        hold(device, on: worker)
        try eventually("it waits") { worker.snapshot().shards.retrying == 1 }
        #expect(worker.snapshot().shards.sent == 1)
        #expect(bed.stop(worker).failure == nil)
        bed.simulator.stop()
    }

    /// As an answer 429 with `Retry-After: 3600` would.
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

    @Test func aConnectionThatShutsDownIsReplacedAtOnce() throws {
        let bed = try WorkerBed { $0.deviceRules = [.init(prefix: "dead", reason: .shutdown)] }
        let worker = try bed.worker { $0.delivery.retry.maxAttempts = 1 }
        try eventually("two connections") { worker.snapshot().shards.openConnections == 2 }
        try bed.produce(1, seed: 211) { push, _ in
            push.deviceToken = "dead" + push.deviceToken.dropFirst(4)
        }
        let outcomes = try bed.waitForOutcomes(1)
        #expect(outcomes.map(\.cause) == ["attempts-exhausted"])
        // It was seconds old.
        try eventually("there is a third") { bed.simulator.summary.connections == 3 }
        try eventually("two are open") { bed.simulator.summary.openConnections == 2 }
        #expect(bed.stop(worker).failure == nil)
        bed.simulator.stop()
    }

    /// What the server holds against the credential, it holds against it on this connection: also the last one goes.
    @Test(arguments: [Reason.expiredProviderToken, .tooManyProviderTokenUpdates])
    func aSpoiltConnectionIsLeft(reason: Reason) throws {
        let bed = try WorkerBed { $0.deviceRules = [.init(prefix: "dead", reason: reason)] }
        let worker = try bed.worker {
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
        #expect(bed.stop(worker).failure == nil)
        bed.simulator.stop()
    }

    @Test(arguments: [Reason.shutdown, .unrelatedKeyIdInToken])
    func theLastConnectionServesOn(reason: Reason) throws {
        let bed = try WorkerBed { $0.deviceRules = [.init(prefix: "dead", reason: reason)] }
        let worker = try bed.worker {
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
        // A server that shuts down has a successor, which opens first.
        #expect(bed.simulator.summary.connections <= (reason == .shutdown ? 2 : 1))
        #expect(bed.stop(worker).failure == nil)
        bed.simulator.stop()
    }

    @Test func aServerErrorOnAYoungConnectionReplacesNothing() throws {
        let bed = try WorkerBed { $0.deviceRules = [.init(prefix: "dead", reason: .internalServerError)] }
        let worker = try bed.worker { $0.delivery.retry.maxAttempts = 3 }
        try eventually("two connections") { worker.snapshot().shards.openConnections == 2 }
        try bed.produce(20, seed: 214) { push, _ in
            push.deviceToken = "dead" + push.deviceToken.dropFirst(4)
        }
        try bed.waitForOutcomes(20)
        try bed.produce(20, seed: 215)
        try bed.waitForOutcomes(40)
        #expect(bed.simulator.summary.connections == 2)
        #expect(bed.stop(worker).failure == nil)
        bed.simulator.stop()
    }

    @Test func aWrongClockIsSaidOnce() throws {
        let bed = try WorkerBed { $0.maximumTokenAge = .seconds(-1) }
        let log = LogRecorder()
        let worker = try bed.worker(log: log) {
            $0.apns.connections = 1
            $0.delivery.retry.maxAttempts = 2
        }
        // Each refusal costs a connection, and the pauses before the next one double.
        try bed.produce(2, seed: 216)
        let outcomes = try bed.waitForOutcomes(2)
        #expect(outcomes.allSatisfy { $0.reason == "ExpiredProviderToken" && $0.attempts == 2 })
        #expect(bed.simulator.summary.rejected[.expiredProviderToken] == 4)
        #expect(log.messages.count(containing: "check this machine's clock") == 1)
        #expect(bed.stop(worker).failure == nil)
        bed.simulator.stop()
    }

    // MARK: Headers

    @Test func jobsWhoseHeadersDoNotFitEnd() throws {
        let bed = try WorkerBed()
        let worker = try bed.worker()
        try bed.produce(1, seed: 217)
        try bed.waitForOutcomes(1)
        // No valid job's headers are too long. The provider token is not made anew for the next 50 minutes.
        for shard in worker.shards {
            shard.loop.execute {
                for pool in shard.pools {
                    pool.encoder.setAuthorization(Array(repeating: UInt8(ascii: "a"), count: 20_000))
                }
            }
        }
        try bed.produce(3, seed: 218)
        let outcomes = try bed.waitForOutcomes(4)
        #expect(outcomes.count { $0.kind == .undeliverable && $0.cause == "not-supported" } == 3)
        #expect(bed.stop(worker).failure == nil)
        #expect(bed.simulator.summary.requests == 1)
        bed.simulator.stop()
    }
}

extension SeededRandom {
    static func hexadecimal(seed: UInt64) -> String {
        var random = SeededRandom(seed: seed)
        return random.hexadecimal(bytes: 32)
    }
}
