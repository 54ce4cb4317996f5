import SluiceModel
import TestSupport
import Testing

@testable import sluice

private let firstID = "123e4567-e89b-12d3-a456-426614174000"
private let secondID = "123e4567-e89b-12d3-a456-426614174001"

/// Returns the facts of an outcome at a place, of a job at a source.
private func facts(
    _ at: String, _ source: String, id: String? = nil, created: Int64? = nil, pushed: String = "",
    kind: String = "undeliverable"
) throws -> RedriveFacts {
    var made = RedriveFacts(
        try outcome(source, id: id ?? firstID, created: created ?? 1_000, more: pushed, kind: kind),
        place: try place(at), timestampMilliseconds: 5, apps: redriveApps)
    if id == nil { made.apnsID = nil }
    if created == nil { made.createdMilliseconds = nil }
    return made
}

private func outcome(
    _ source: String, id: String = firstID, created: Int64 = 1_000, more: String = "",
    kind: String = "accepted"
) throws -> OutcomeSummary {
    let address = try place(source)
    let json = """
        {"outcome":"\(kind)","device-token":"0A0a","topic":"a.b","apns-id":"\(id)","attempts":0,\
        "source":{"topic":"\(address.topic)","partition":\(address.partition),"offset":\(address.offset)}\(more),\
        "created-at":\(created),"polled-at":1,"finished-at":1}
        """
    return try #require(OutcomeSummary(json: Array(json.utf8)))
}

@Suite("Redrive: ledger")
struct RedriveLedgerTests {
    private func apply(_ ledger: inout RedriveLedger, _ key: String, _ value: [UInt8]?) {
        Array(key.utf8).withUnsafeBytes { key in
            guard let value else { return ledger.apply(key: key, value: nil) }
            value.withUnsafeBytes { ledger.apply(key: key, value: $0) }
        }
    }

    private func entry(_ source: String, id: String? = nil, created: Int64? = nil) throws -> [UInt8] {
        RedriveEntry(
            source: try place(source),
            identity: RedriveIdentity(
                apnsID: id.flatMap { APNSID(text: $0) }, createdMilliseconds: created),
            destination: "jobs", atMilliseconds: 1, run: "r\"1"
        ).json
    }

    @Test func aJobIsTakenOnceARun() throws {
        var ledger = RedriveLedger()
        #expect(ledger.take(try facts("dl/0/1", "jobs/0/7")))
        #expect(!ledger.take(try facts("dl/0/2", "jobs/0/7", id: firstID)))
        #expect(ledger.take(try facts("dl/0/3", "jobs/0/8")))
        // Identifiers that follow from the place are the same for two jobs of a topic that was created anew.
        #expect(ledger.take(try facts("o/0/1", "jobs/0/9", id: firstID, created: 1_000)))
        #expect(ledger.take(try facts("o/0/2", "jobs/0/9", id: firstID, created: 2_000)))
        #expect(ledger.take(try facts("o/0/3", "jobs/0/9", id: secondID, created: 1_000)))
        #expect(!ledger.take(try facts("o/0/4", "jobs/0/9", id: secondID, created: 1_000)))
    }

    @Test func entriesOfEarlierRunsDecide() throws {
        var ledger = RedriveLedger()
        apply(&ledger, "dl/0/1", try entry("jobs/0/1"))
        apply(&ledger, "dl/0/5", try entry("jobs/0/5"))
        apply(&ledger, "dl/0/5", nil)
        #expect(ledger.count == 1)
        #expect(ledger.verdict(try facts("dl/0/1", "jobs/0/1")) == .before)
        #expect(ledger.verdict(try facts("dl/0/5", "jobs/0/5")) == nil)
        // Another dead letter of the same record.
        #expect(ledger.verdict(try facts("dl/1/1", "jobs/0/1")) == .sameJob)
        #expect(ledger.verdict(try facts("dl/1/2", "jobs/0/2")) == nil)
    }

    @Test func theLatestEntryOfAPlaceCounts() throws {
        var ledger = RedriveLedger()
        apply(&ledger, "o/0/1", try entry("jobs/0/1", id: firstID))
        apply(&ledger, "o/0/1", try entry("jobs/0/2", id: secondID))
        #expect(ledger.count == 1)
        #expect(ledger.verdict(try facts("o/0/1", "jobs/0/2", id: secondID)) == .before)
        #expect(ledger.verdict(try facts("o/0/1", "jobs/0/1", id: firstID)) == nil)
    }

    /// Topics that were created anew have other records at the same places.
    @Test func anotherJobAtThePlaceIsSent() throws {
        var ledger = RedriveLedger()
        apply(&ledger, "o/0/1", try entry("jobs/0/1", id: firstID, created: 1_000))
        #expect(ledger.verdict(try facts("o/0/1", "jobs/0/7", id: secondID)) == nil)
        #expect(ledger.verdict(try facts("o/0/1", "jobs/0/1", id: firstID, created: 2_000)) == nil)
        #expect(ledger.verdict(try facts("o/0/9", "jobs/0/1", id: firstID, created: 1_000)) == .sameJob)
        // What isn't known fits.
        #expect(ledger.verdict(try facts("o/0/9", "jobs/0/1")) == .sameJob)
    }

    @Test func unreadableEntriesKeepTheJobFromBeingSentTwice() throws {
        var ledger = RedriveLedger()
        apply(&ledger, "dl/0/1", Array("not JSON".utf8))
        apply(&ledger, "dl/0/2", Array(#"{"state":"of a later version","source":"jobs/0/2"}"#.utf8))
        apply(&ledger, "no place", Array("{}".utf8))
        ledger.apply(key: nil, value: nil)
        #expect(ledger.unreadable == 2)
        #expect(ledger.verdict(try facts("dl/0/1", "jobs/0/1")) == .inDoubt)
        #expect(ledger.verdict(try facts("dl/0/2", "jobs/0/2")) == .inDoubt)
    }

    @Test func theLedgerIsIgnoredOnPurpose() throws {
        var ledger = RedriveLedger(sendsAgain: true)
        apply(&ledger, "dl/0/1", try entry("jobs/0/1"))
        apply(&ledger, "dl/0/2", Array("not JSON".utf8))
        #expect(ledger.verdict(try facts("dl/0/1", "jobs/0/1")) == nil)
        #expect(ledger.verdict(try facts("dl/0/2", "jobs/0/2")) == nil)
        #expect(ledger.take(try facts("dl/0/1", "jobs/0/1")))
        #expect(!ledger.take(try facts("dl/1/1", "jobs/0/1")))
    }

    /// Random entries and tombstones against a naive model: no job with an entry is sent, and none twice in a run.
    @Test func noJobIsSentTwice() throws {
        var random = SeededGenerator(seed: 7)
        for _ in 0..<200 {
            var ledger = RedriveLedger()
            var entries: [String: String] = [:]
            let sources = (0..<20).map { _ in "jobs/0/\(Int.random(in: 0..<12, using: &random))" }
            for _ in 0..<30 {
                let index = Int.random(in: 0..<20, using: &random)
                let isForgotten = Bool.random(using: &random)
                apply(&ledger, "dl/0/\(index)", isForgotten ? nil : try entry(sources[index]))
                entries["dl/0/\(index)"] = isForgotten ? nil : sources[index]
            }
            #expect(ledger.count == entries.count)
            var sent: Set<String> = []
            for index in (0..<20).shuffled(using: &random) {
                let job = try facts("dl/0/\(index)", sources[index])
                let isKnown = entries.values.contains(sources[index])
                #expect((ledger.verdict(job) == nil) == !isKnown)
                if !isKnown { #expect(ledger.take(job) == sent.insert(sources[index]).inserted) }
            }
        }
    }
}

@Suite("Redrive: later outcomes")
struct LaterOutcomeTests {
    private static let collapse = #","collapse-id":"c""#

    /// Returns the end of a job after outcomes at `outcomes/0/2` and on.
    private func end(
        _ job: RedriveFacts, _ outcomes: OutcomeSummary..., at: String = "outcomes/0/2"
    ) throws -> RedriveEnd? {
        var later = LaterOutcomes([job])
        for outcome in outcomes { later.take(outcome, at: try place(at), timestampMilliseconds: 5) }
        return later.ends[0]
    }

    @Test func aLaterOutcomeOfTheRecordEndsTheJob() throws {
        let job = try facts("outcomes/0/1", "jobs/0/7", id: firstID)
        #expect(try end(job, outcome("jobs/0/7")) == .laterOutcome)
        #expect(try end(job, outcome("jobs/0/7", kind: "expired")) == .laterOutcome)
        // The same outcome, an earlier one, another job, and another record.
        #expect(try end(job, outcome("jobs/0/7"), at: "outcomes/0/1") == nil)
        #expect(try end(job, outcome("jobs/0/7"), at: "outcomes/0/0") == nil)
        #expect(try end(job, outcome("jobs/0/7", id: secondID)) == nil)
        #expect(try end(job, outcome("jobs/0/8")) == nil)
        // Times decide between logs.
        var letter = try facts("dl/0/1", "jobs/0/7")
        #expect(try end(letter, outcome("jobs/0/7")) == nil)
        letter.timestampMilliseconds = 4
        #expect(try end(letter, outcome("jobs/0/7")) == .laterOutcome)
    }

    @Test func aNewerPushOfTheIdentityEndsTheJob() throws {
        let job = try facts("outcomes/0/1", "jobs/0/7", id: firstID, created: 1_000, pushed: Self.collapse)
        func newer(
            _ kind: String, _ source: String = "jobs/0/8", created: Int64 = 2_000, more: String = ""
        ) throws -> RedriveEnd? {
            try end(
                job, outcome(source, id: secondID, created: created, more: Self.collapse + more, kind: kind))
        }
        for kind in ["accepted", "confirmed", "cancelled"] { #expect(try newer(kind) == .superseded) }
        for kind in ["rejected", "expired", "superseded"] { #expect(try newer(kind) == nil) }
        #expect(try newer("undeliverable", more: #","cause":"device-erased""#) == .superseded)
        #expect(try newer("not-found", more: #","job":"cancel""#) == .superseded)
        // An older one, and a copy of the job that was redriven.
        #expect(try newer("accepted", "jobs/0/6") == nil)
        #expect(try newer("accepted", "jobs/0/9", created: 1_000) == nil)
        // Creations decide between logs.
        #expect(try newer("accepted", "jobs/1/1") == .superseded)
        #expect(try newer("accepted", "jobs/1/9", created: 999) == nil)
        let other = try outcome("jobs/0/8", id: secondID, created: 2_000, more: #","collapse-id":"d""#)
        #expect(try end(job, other) == nil)
    }

    @Test func statesOfATopicHaveOneIdentity() throws {
        let type = #","push-type":"widgets""#
        let job = try facts("outcomes/0/1", "jobs/0/7", id: firstID, created: 1_000, pushed: type)
        let newer = try outcome("jobs/0/8", id: secondID, created: 2_000, more: type)
        #expect(try end(job, newer) == .superseded)
        let plain = try facts("outcomes/0/1", "jobs/0/7", id: firstID, created: 1_000)
        #expect(plain.push == nil && !plain.isPushHidden)
        #expect(try end(plain, newer) == nil)
        // The payload tells an update of a Live Activity from its start.
        let activity = try facts("outcomes/0/1", "jobs/0/7", pushed: #","push-type":"liveactivity""#)
        #expect(activity.push == nil && activity.isPushHidden)
    }
}
