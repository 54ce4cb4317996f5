import SluiceModel
import TestSupport
import Testing

@testable import HTTP2

@Suite struct ConnectionHealthTests {
    private let ms: UInt64 = 1_000_000
    private let second: UInt64 = 1_000_000_000

    private func make() -> ConnectionHealth {
        ConnectionHealth(
            configuration: .init(
                pingInterval: 60 * second, pingTimeout: 10 * second, suspicionInterval: 2 * second), now: 0)
    }

    /// The health of an open connection whose first round trip took 20 ms.
    private func opened() -> ConnectionHealth {
        var health = make()
        #expect(health.tick(now: 0, openStreams: 0) == .ping(1))
        health.bytesRead(now: 20 * ms)
        health.pingAnswered(number: 1, now: 20 * ms)
        return health
    }

    @Test func firstPingsAnswerIsTheFirstSample() {
        var health = make()
        #expect(health.nextTick(openStreams: 0) == 0)
        #expect(health.grace == second)
        #expect(health.tick(now: 0, openStreams: 0) == .ping(1))
        #expect(health.tick(now: 1, openStreams: 0) == .none)
        health.bytesRead(now: 80 * ms)
        health.pingAnswered(number: 1, now: 80 * ms)
        #expect(health.roundTrip.smoothed == 80 * ms)
        #expect(health.roundTrip.samples == 1)
        #expect(health.grace == 320 * ms)
        // A repeated answer adds no sample.
        health.pingAnswered(number: 1, now: 90 * ms)
        #expect(health.roundTrip.samples == 1)
    }

    @Test func idleConnectionSendsAPingEachInterval() {
        var health = opened()
        for number in UInt32(2)...5 {
            let due = health.nextTick(openStreams: 0)
            #expect(due == UInt64(number - 1) * 60 * second)
            #expect(health.tick(now: due - 1, openStreams: 0) == .none)
            #expect(health.tick(now: due, openStreams: 0) == .ping(number))
            health.bytesRead(now: due + 10 * ms)
            health.pingAnswered(number: number, now: due + 10 * ms)
        }
        #expect(health.roundTrip.samples == 5)
        #expect(health.roundTrip.minimum == 10 * ms)
    }

    @Test func silenceWithOpenRequestsPingsSuspendsAndCloses() {
        var health = opened()
        health.streamsOpened(now: 5 * second)
        // Silence counts from the first request, not from the last byte.
        #expect(health.nextTick(openStreams: 1) == 7 * second)
        #expect(health.tick(now: 7 * second - 1, openStreams: 1) == .none)
        #expect(health.tick(now: 7 * second, openStreams: 1) == .ping(2))
        #expect(!health.isSuspended)
        #expect(health.nextTick(openStreams: 1) == 7 * second + 250 * ms)
        #expect(health.tick(now: 7 * second + 249 * ms, openStreams: 1) == .none)
        #expect(health.tick(now: 7 * second + 250 * ms, openStreams: 1) == .suspend)
        #expect(health.isSuspended)
        #expect(health.tick(now: 7 * second + 251 * ms, openStreams: 1) == .none)
        // Closes as soon as suspicion interval and PING timeout are over.
        #expect(health.nextTick(openStreams: 1) == 17 * second)
        #expect(health.tick(now: 17 * second - 1, openStreams: 1) == .none)
        guard case .close(.silent(let nanoseconds)) = health.tick(now: 17 * second, openStreams: 1) else {
            Issue.record("a silent connection was kept")
            return
        }
        #expect(nanoseconds == 17 * second - 20 * ms)
    }

    /// Half a second of silence has no effect. Three seconds suspend the connection until the next byte.
    @Test func suspendedConnectionResumesWithTheNextByte() {
        var health = opened()
        health.streamsOpened(now: second)
        #expect(health.tick(now: second + 500 * ms, openStreams: 9) == .none)
        health.bytesRead(now: second + 500 * ms)
        #expect(!health.isSuspended)
        #expect(health.tick(now: 3 * second + 500 * ms, openStreams: 9) == .ping(2))
        #expect(health.tick(now: 4 * second, openStreams: 9) == .suspend)
        health.bytesRead(now: 4 * second + 500 * ms)
        #expect(!health.isSuspended)
        health.pingAnswered(number: 2, now: 4 * second + 500 * ms)
        #expect(health.roundTrip.last == second)
        #expect(health.tick(now: 4 * second + 500 * ms, openStreams: 9) == .none)
        #expect(health.nextTick(openStreams: 9) == 6 * second + 500 * ms)
    }

    @Test func bytesEndSilenceAndOnlyLatestPingIsSampled() {
        var health = opened()
        health.streamsOpened(now: 0)
        #expect(health.tick(now: 3 * second, openStreams: 1) == .ping(2))
        health.bytesRead(now: 4 * second)
        #expect(health.tick(now: 6 * second, openStreams: 1) == .ping(3))
        health.bytesRead(now: 7 * second)
        health.pingAnswered(number: 2, now: 7 * second)
        #expect(health.roundTrip.samples == 1)
        health.pingAnswered(number: 3, now: 7 * second)
        #expect(health.roundTrip.last == second)
    }

    @Test func expiredRequestSuspendsAndPingsAtOnce() {
        var health = opened()
        health.answered(now: second)
        health.streamsOpened(now: second)
        health.bytesRead(now: 2 * second)
        health.requestsExpired(1)
        #expect(health.isSuspended)
        #expect(health.nextTick(openStreams: 0) == 0)
        #expect(health.tick(now: 2 * second, openStreams: 0) == .ping(2))
        health.bytesRead(now: 2 * second + 1)
        #expect(!health.isSuspended)
        #expect(health.nextTick(openStreams: 0) == 62 * second)
    }

    @Test func threeExpiredRequestsWithoutAnAnswerCloseTheConnection() {
        var health = opened()
        health.answered(now: second)
        for expired in 1...2 {
            health.requestsExpired(1)
            #expect(health.expiredSinceAnswer == expired)
            guard case .ping = health.tick(now: second, openStreams: 5) else {
                Issue.record("no PING after an expired request")
                return
            }
            health.bytesRead(now: second)
        }
        health.requestsExpired(1)
        #expect(health.tick(now: second, openStreams: 5) == .close(.requestsUnanswered(3)))

        var answering = opened()
        answering.answered(now: second)
        answering.requestsExpired(2)
        answering.answered(now: second)
        answering.requestsExpired(2)
        #expect(answering.tick(now: second, openStreams: 5) == .ping(2))
    }

    @Test func firstRequestThatExpiresClosesItsConnection() {
        var health = opened()
        health.streamsOpened(now: second)
        health.bytesRead(now: 2 * second)
        health.requestsExpired(1)
        #expect(health.tick(now: 21 * second, openStreams: 0) == .close(.requestsUnanswered(1)))
    }

    /// The connection's end is the only way to keep a request's bytes from arriving after its end.
    @Test func requestThatExpiresOnItsWayClosesTheConnection() {
        var health = opened()
        health.requestsExpired(0, underWay: 2)
        #expect(health.tick(now: 1, openStreams: 5) == .close(.requestsUnderWay(2)))
    }

    @Test func pingGraceStaysWithinItsBounds() {
        var health = make()
        #expect(health.tick(now: 0, openStreams: 0) == .ping(1))
        health.pingAnswered(number: 1, now: 1)
        #expect(health.grace == 250 * ms)
        health = make()
        #expect(health.tick(now: 0, openStreams: 0) == .ping(1))
        health.pingAnswered(number: 1, now: 9 * second)
        #expect(health.grace == 5 * second)
        let short = ConnectionHealth(
            configuration: .init(pingInterval: second, pingTimeout: 200 * ms, suspicionInterval: 100 * ms),
            now: 0)
        #expect(short.grace == 100 * ms)
    }

    /// Random histories of bytes, requests and ticks.
    @Test func silentConnectionsCloseInTimeAndAnsweringOnesNever() {
        let seed = UInt64.random(in: .min ... .max)
        var random = SeededGenerator(seed: seed)
        for _ in 0..<200 {
            var health = make()
            var now: UInt64 = 0
            var open = 0
            var silentFrom = UInt64.max
            let answers = Bool.random(using: &random)
            let deafFrom = UInt64.random(in: 0...200, using: &random) * second
            var closedAt: UInt64?
            while now < 400 * second, closedAt == nil {
                let due = health.nextTick(openStreams: open)
                let step = now + UInt64.random(in: 1...3000, using: &random) * ms
                if due <= step {
                    now = max(now, due)
                    switch health.tick(now: now, openStreams: open) {
                    case .ping(let number):
                        if answers || now < deafFrom {
                            let round = UInt64.random(in: 1...400, using: &random) * ms
                            now += round
                            health.bytesRead(now: now)
                            health.pingAnswered(number: number, now: now)
                        }
                    case .close: closedAt = now
                    case .suspend, .none: break
                    }
                    continue
                }
                now = step
                if open == 0 || Bool.random(using: &random) {
                    if open == 0 { health.streamsOpened(now: now) }
                    open += 1
                    if silentFrom == .max, now >= deafFrom { silentFrom = now }
                } else if answers || now < deafFrom {
                    open -= 1
                    health.bytesRead(now: now)
                    health.answered(now: now)
                }
            }
            if answers {
                #expect(closedAt == nil, "seed \(seed)")
            } else {
                #expect(closedAt != nil, "seed \(seed)")
                if let closedAt, silentFrom != .max {
                    #expect(closedAt <= silentFrom + 12 * second, "seed \(seed)")
                }
            }
        }
    }

    /// A series computed by hand from RFC 6298 §2.3.
    @Test func roundTripEstimateFollowsRFC6298() {
        var estimate = RoundTripEstimate()
        estimate.add(800)
        #expect(estimate.smoothed == 800 && estimate.variation == 400)
        estimate.add(1600)
        // 3/4 × 400 + 1/4 × 800; 7/8 × 800 + 1/8 × 1600.
        #expect(estimate.variation == 500)
        #expect(estimate.smoothed == 900)
        estimate.add(100)
        #expect(estimate.variation == 575)
        #expect(estimate.smoothed == 900 - 112 + 12)
        #expect(estimate.minimum == 100 && estimate.last == 100 && estimate.samples == 3)
    }
}
