import EventLoop
import SluiceModel
import TestSupport
import Testing

@testable import APNSSimulator

private let second: UInt64 = 1_000_000_000

@Suite struct FaultClockTests {
    private func clock(
        repeats: Duration? = nil, _ entries: FaultTimeline.Entry...
    ) -> FaultClock { FaultClock(FaultTimeline(repeats: repeats, entries: entries)) }

    @Test func faultIsInForceFromItsBeginningToItsEnd() {
        var clock = clock(
            .init(at: .seconds(2), lasts: .seconds(3), .unanswered(share: 0.5)), .init(.blackHole(share: 1)))
        var step = clock.advance(to: 0)
        #expect(step.entries == [1])
        #expect(step.next == 2 * second)
        step = clock.advance(to: 2 * second)
        #expect(step.entries == [0, 1])
        #expect(step.active.unanswered == 0.5)
        #expect(step.active.concernsRequests)
        #expect(step.next == 5 * second)
        step = clock.advance(to: 5 * second)
        #expect(step.entries == [1])
        #expect(!step.active.concernsRequests)
        #expect(step.next == nil)
    }

    @Test func laterEntryOfAKindCountsAndAnswersAddUp() {
        var clock = clock(
            .init(.latency(.constant(.seconds(1)))), .init(.latency(.constant(.seconds(2)))),
            .init(.answers([.init(reason: .shutdown, share: 0.1)])),
            .init(.answers([.init(reason: .badTopic, share: 0.2)])))
        let active = clock.advance(to: 0).active
        #expect(active.latency == .constant(.seconds(2)))
        #expect(active.answers.map(\.reason) == [.shutdown, .badTopic])
    }

    @Test func eventHappensOnceForEachOfItsTimesThatHasPassed() {
        var goAway = FaultTimeline.GoAway()
        goAway.every = .seconds(2)
        var clock = clock(
            .init(at: .seconds(1), .disconnect(share: 1, every: nil)),
            .init(at: .seconds(1), lasts: .seconds(5), .goAway(goAway)))
        #expect(clock.advance(to: 0).events.isEmpty)
        var step = clock.advance(to: second)
        #expect(step.events.count == 2)
        #expect(step.next == 3 * second)
        #expect(clock.advance(to: 2 * second).events.isEmpty)
        // Two missed times are one event.
        step = clock.advance(to: 5 * second)
        #expect(step.events == [.goAway(goAway)])
        #expect(step.next == 6 * second)
        step = clock.advance(to: 60 * second)
        #expect(step.events.isEmpty)
        #expect(step.next == nil)
    }

    @Test func streamLimitFlapsWithItsPeriod() {
        let limit = FaultTimeline.StreamLimit(low: 1, high: 50, period: .seconds(2))
        var clock = clock(.init(at: .seconds(1), lasts: .seconds(4), .streamLimit(limit)))
        var limits: [UInt32] = []
        var next: UInt64? = 0
        while let time = next {
            let step = clock.advance(to: time)
            limits.append(step.active.streamLimit)
            next = step.next
        }
        #expect(limits == [.max, 1, 50, 1, 50, .max])
    }

    @Test func timelineBeginsAgain() {
        var clock = clock(
            repeats: .seconds(10), .init(at: .seconds(4), lasts: .seconds(2), .blackHole(share: 1)),
            .init(at: .seconds(8), .disconnect(share: 1, every: nil)))
        var entries: [[Int]] = []
        var events = 0
        var times: [UInt64] = []
        var next: UInt64? = 0
        while let time = next, time <= 21 * second {
            let step = clock.advance(to: time)
            times.append(time / second)
            entries.append(step.entries)
            events += step.events.count
            next = step.next
        }
        #expect(times == [0, 4, 6, 8, 10, 14, 16, 18, 20])
        #expect(entries == [[], [0], [], [], [], [0], [], [], []])
        #expect(events == 2)
    }

    /// Steps at the announced times miss nothing that steps at all times see.
    @Test(arguments: 0..<200) func announcedTimesAreTheOnlyChanges(seed: Int) {
        var random = SeededGenerator(seed: UInt64(seed))
        let timeline = FaultTimeline.random(&random, unit: .milliseconds(100))
        var fine = FaultClock(timeline)
        var coarse = FaultClock(timeline)
        var step = coarse.advance(to: 0)
        var pending = step.events.count
        for tick in UInt64(0)..<600 {
            let now = tick * 50_000_000
            if let next = step.next, next <= now {
                #expect(next == now)
                step = coarse.advance(to: now)
                pending = step.events.count
            }
            let expected = fine.advance(to: now)
            #expect(step.active == expected.active)
            #expect(step.entries == expected.entries)
            #expect(expected.events.count == pending)
            pending = 0
        }
    }
}

@Suite struct LatencyDistributionTests {
    private func samples(_ distribution: LatencyDistribution) -> [Double] {
        var random = SeededGenerator(seed: 3)
        return (0..<10_000).map { _ in Double(distribution.sample(&random)) / 1_000_000 }.sorted()
    }

    @Test func samplesFollowTheirDistribution() {
        #expect(samples(.constant(.milliseconds(40))).allSatisfy { $0 == 40 })
        let uniform = samples(.uniform(from: .milliseconds(10), to: .milliseconds(30)))
        #expect(uniform.first! >= 10 && uniform.last! < 30)
        #expect(abs(uniform[5_000] - 20) < 0.5)
        let normal = samples(.lognormal(median: .milliseconds(100), sigma: 0.5, most: .seconds(1)))
        #expect(abs(normal[5_000] - 100) < 3)
        #expect(abs(normal[8_413] - 165) < 8)
        #expect(normal.last! <= 1_000)
        #expect(samples(.lognormal(median: .zero, sigma: 0.5, most: .zero)).last == 0)
        let points = samples(
            .percentiles([
                .init(percent: 50, latency: .milliseconds(20)),
                .init(percent: 99, latency: .milliseconds(100)),
            ]))
        #expect(points[0] == 20)
        #expect(points[4_900] == 20)
        #expect(abs(points[9_500] - (20 + 80 * 45 / 49.0)) < 2)
        #expect(points.last == 100)
    }

    @Test func faultyNumbersAreNamed() {
        #expect(LatencyDistribution.constant(.seconds(-1)).fault?.key == "constant")
        #expect(LatencyDistribution.uniform(from: .seconds(2), to: .seconds(1)).fault?.key == "uniform.to")
        #expect(
            LatencyDistribution.lognormal(median: .seconds(2), sigma: 1, most: .seconds(1)).fault?.key
                == "lognormal.most")
        #expect(
            LatencyDistribution.lognormal(median: .seconds(1), sigma: .nan, most: .seconds(1)).fault?.key
                == "lognormal.sigma")
        let falling = LatencyDistribution.percentiles([
            .init(percent: 50, latency: .seconds(2)), .init(percent: 90, latency: .seconds(1)),
        ])
        #expect(falling.fault?.key == "percentiles")
    }
}

extension FaultTimeline {
    /// A timeline of good entries of all kinds.
    /// - Parameter unit: all times are multiples of this.
    static func random(_ random: inout SeededGenerator, unit: Duration) -> FaultTimeline {
        func share(_ random: inout SeededGenerator) -> Double {
            Double(Int.random(in: 0...4, using: &random)) / 4
        }
        func time(_ random: inout SeededGenerator, _ range: ClosedRange<Int>) -> Duration {
            unit * Int.random(in: range, using: &random)
        }
        var timeline = FaultTimeline(seed: UInt64.random(in: 0...9, using: &random))
        if Bool.random(using: &random) { timeline.repeats = time(&random, 60...120) }
        for _ in 0..<Int.random(in: 0...8, using: &random) {
            let kind: Kind
            var lasts = Bool.random(using: &random) ? time(&random, 1...80) : nil
            switch Kind.keys.randomElement(using: &random) {
            case "answers":
                kind = .answers([
                    .init(reason: .badTopic, share: share(&random) / 2),
                    .init(reason: .shutdown, share: 0.25),
                ])
            case "latency":
                kind = .latency(
                    [
                        .constant(time(&random, 0...9)), .uniform(from: unit, to: unit * 2),
                        .lognormal(median: unit, sigma: 0.25, most: unit * 9),
                        .percentiles([
                            .init(percent: 50, latency: unit), .init(percent: 99.5, latency: unit * 3),
                        ]),
                    ].randomElement(using: &random)!)
            case "unanswered": kind = .unanswered(share: share(&random))
            case "goaway":
                var goAway = GoAway()
                goAway.end = GoAway.End.allCases.randomElement(using: &random)!
                goAway.connections = GoAway.Target.allCases.randomElement(using: &random)!
                goAway.share = share(&random)
                goAway.unprocessed = Int.random(in: 0...3, using: &random)
                goAway.code = UInt32.random(in: 0...13, using: &random)
                if Bool.random(using: &random) { goAway.every = time(&random, 1...9) }
                if Bool.random(using: &random) {
                    goAway.reason = ""
                    goAway.text = "plain text: * & \"quoted\""
                }
                kind = .goAway(goAway)
            case "disconnect":
                let every = Bool.random(using: &random) ? time(&random, 1...9) : nil
                if every == nil { lasts = nil }
                kind = .disconnect(share: share(&random), every: every)
            case "stream-limit":
                let isFlapping = Bool.random(using: &random)
                kind = .streamLimit(
                    .init(
                        low: 1, high: isFlapping ? 50 : nil, period: isFlapping ? time(&random, 1...9) : nil))
            case "black-hole": kind = .blackHole(share: share(&random))
            case "slow-reads": kind = .slowReads(bytesPerSecond: 1_000, share: share(&random))
            case "no-window-updates": kind = .noWindowUpdates(share: share(&random))
            case "throttle": kind = .throttle(perDevice: 2, perSecond: Bool.random(using: &random) ? 9 : nil)
            case "certificate": kind = .certificate(.allCases.randomElement(using: &random)!)
            default:
                kind = .environment(.allCases.randomElement(using: &random)!, share: share(&random))
            }
            timeline.entries.append(.init(at: time(&random, 0...50), lasts: lasts, kind))
        }
        return timeline
    }
}
