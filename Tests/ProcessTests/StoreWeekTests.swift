import Foundation
import SluiceModel
import TestSupport
import Testing

/// A week with all devices offline, by the clocks of worker and simulator.
@Suite("Store: a week offline")
struct StoreWeekTests {
    private static let day: Int64 = 86_400
    private static let devices = 2_000
    private static let names = ["score", "weather", "stocks", "mail"]
    private static let returnRate = 1_000

    @Test(.enabled(if: FakeClock.compiler != nil, "needs a C compiler"))
    func devicesBackAfterAWeekReceiveOnlyNewestPushes() throws {
        let seed: UInt64 = 77
        var random = SeededGenerator(seed: seed)
        let tokens = (0..<Self.devices).map { _ in random.hexadecimal(bytes: 32) }
        try withBed(BedOptions(partitions: 4, clockOffset: Self.day)) { bed in
            let lives = try StoreLives(
                bed,
                delivery: """
                    {commit-interval: 200ms, shards: 2, return-rate: \(Self.returnRate), max-in-flight: 1000}
                    """)
            // The pushes that devices must get in the end, unless they expire.
            var newest: [AuditedIdentity: AuditedPush] = [:]
            for day in 1...7 as ClosedRange<Int64> {
                if day > 1 {
                    bed.clockOffset = day * Self.day
                    try bed.restartSimulator(with: SIGTERM)
                }
                try lives.start()
                if day == 1 { try lives.produce(tokens.map { JobDraft($0, .offline) }) }
                let drafts = (0..<Self.devices / 2).map { _ in
                    Self.update(for: tokens.randomElement(using: &random)!, &random, at: lives.now)
                }
                for draft in drafts {
                    guard case .push(let push) = draft.kind else { continue }
                    let job = AuditedJob(
                        place: JobPlace(0, 0), deviceToken: draft.deviceToken, kind: draft.kind, produced: 0)
                    newest[AuditedIdentity(job, push)] = push
                }
                try lives.produce(drafts)
                try lives.waitUntilCommitted()
                try lives.stop()
            }
            #expect(lives.history.arrivals.isEmpty, "no push may reach an offline device")

            bed.clockOffset = 8 * Self.day
            try bed.restartSimulator(with: SIGTERM)
            try lives.start()
            let back = lives.now
            try lives.produce(tokens.map { JobDraft($0, .online) })
            try lives.finish()
            #expect(lives.refusals == [])
            try lives.judge("a week", seed: seed)
            let alive = newest.values.filter { $0.expiration ?? .max > back }
            #expect(
                alive.count > Self.devices / 2 && alive.count < newest.count,
                "some pushes expire during the week")
            #expect(Set(lives.history.arrivals.map(\.apnsID)) == Set(alive.map(\.apnsID)))
            #expect(lives.history.arrivals.count == alive.count)
            #expect(lives.history.outcomes.count == lives.history.jobs.count)
            // A slow machine makes this time longer. The first commits, for which pushes wait, make it shorter.
            let times = lives.history.arrivals.map(\.time)
            let least = Int64(alive.count - 200) * 1_000 / Int64(Self.returnRate)
            #expect(
                (times.max() ?? 0) - (times.min() ?? 0) > least / 2, "\(alive.count) pushes in a burst")
        }
    }

    /// A push to be held, which expires in one of three cases: after some days, and half a day from any restart.
    private static func update(for token: String, _ random: inout SeededGenerator, at now: Int64) -> JobDraft
    {
        var push = AuditedPush(apnsID: random.identifier(), topic: StoreLoad.topic)
        push.collapseID = names.randomElement(using: &random)
        push.delivery = .holdWhileOffline
        if random.chance(33) {
            let days = Int64.random(in: 0...5, using: &random)
            push.expiration = (now / 1_000 + days * day + day / 2) * 1_000
        }
        return JobDraft(token, .push(push))
    }
}
