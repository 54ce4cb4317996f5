import Foundation
import SluiceModel
import TestSupport
import Testing

/// A week in which devices are away, by the clocks of worker and simulator.
@Suite("Store: a week offline")
struct StoreWeekTests {
    private static let day: Int64 = 86_400
    private static let devices = 2_000
    private static let names = ["score", "weather", "stocks", "mail"]
    private static let returnRate = 1_000

    @Test(
        "after a week offline each device gets the newest of each identity, nothing expired, and not all at once",
        .enabled(if: FakeClock.compiler != nil, "needs a C compiler"))
    func week() throws {
        let seed: UInt64 = 77
        var random = SeededRandom(seed: seed)
        let tokens = (0..<Self.devices).map { _ in random.hexadecimal(bytes: 32) }
        let bed = try StoreBed(
            delivery: """
                {commit-interval: 200ms, shards: 2, return-rate: \(Self.returnRate), max-in-flight: 1000}
                """, clockOffset: Self.day)
        // What each device is to get in the end.
        var newest: [AuditedIdentity: AuditedPush] = [:]
        for day in 1...7 as ClosedRange<Int64> {
            if day > 1 {
                bed.setClock(offset: day * Self.day)
                try bed.restartSimulator()
            }
            try bed.start()
            if day == 1 { try bed.produce(tokens.map { JobDraft($0, .offline) }) }
            let drafts = (0..<Self.devices / 2).map { _ in
                Self.update(for: tokens.randomElement(using: &random)!, &random, at: bed.now)
            }
            for draft in drafts {
                guard case .push(let push) = draft.kind else { continue }
                let job = AuditedJob(
                    place: JobPlace(0, 0), deviceToken: draft.deviceToken, kind: draft.kind, produced: 0)
                newest[AuditedIdentity(job, push)] = push
            }
            try bed.produce(drafts)
            try bed.waitUntilCommitted()
            try bed.stop()
        }
        #expect(bed.history.arrivals.isEmpty, "nothing is pushed to a device that is away")

        bed.setClock(offset: 8 * Self.day)
        try bed.restartSimulator()
        try bed.start()
        let back = bed.now
        try bed.produce(tokens.map { JobDraft($0, .online) })
        try bed.finish()
        try bed.stop()
        #expect(bed.refusals == [])
        let auditor = try bed.audit()
        StoreCrashTests.judge(auditor, seed: seed, "a week")
        let alive = newest.values.filter { $0.expiration ?? .max > back }
        #expect(alive.count > Self.devices / 2 && alive.count < newest.count, "a part expires on the way")
        #expect(Set(bed.history.arrivals.map(\.apnsID)) == Set(alive.map(\.apnsID)))
        #expect(bed.history.arrivals.count == alive.count)
        #expect(bed.history.outcomes.count == bed.history.jobs.count)
        // What is late makes this time longer, not shorter.
        let times = bed.history.arrivals.map(\.time)
        let least = Int64(alive.count - 200) * 1_000 / Int64(Self.returnRate)
        #expect((times.max() ?? 0) - (times.min() ?? 0) > least * 3 / 4, "\(alive.count) pushes in a burst")
    }

    /// Of which one in three lives for some days only, and ends at no time at which the test looks.
    private static func update(for token: String, _ random: inout SeededRandom, at now: Int64) -> JobDraft {
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
