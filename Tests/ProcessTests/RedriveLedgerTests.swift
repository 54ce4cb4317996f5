import SluiceModel
import TestSupport
import Testing

@testable import sluice

private func apply(_ ledger: inout RedriveLedger, _ key: String, _ value: String?) {
    apply(&ledger, key, value.map { Array($0.utf8) }, 0)
}

private func apply(_ ledger: inout RedriveLedger, _ key: String, _ value: [UInt8]?, _ partition: Int32) {
    Array(key.utf8).withUnsafeBytes { key in
        guard let value else { return ledger.apply(key: key, value: nil, partition: partition) }
        value.withUnsafeBytes { ledger.apply(key: key, value: $0, partition: partition) }
    }
}

@Suite("Redrive: ledger")
struct RedriveLedgerTests {
    private static func entry(_ state: RedriveState, _ source: String) throws -> String {
        let entry = RedriveEntry(
            state: state, source: try place(source), destination: "jobs", atMilliseconds: 1, run: "r\"1")
        return String(decoding: entry.json, as: UTF8.self)
    }

    @Test func aFreshPlaceIsSentOnceARun() throws {
        var ledger = RedriveLedger()
        #expect(ledger.decide(place: try place("dl/0/1"), source: try place("jobs/0/7")) == .send)
        #expect(ledger.decide(place: try place("dl/0/2"), source: try place("jobs/0/7")) == .sameJob)
        #expect(ledger.decide(place: try place("dl/0/3"), source: try place("jobs/0/8")) == .send)
    }

    @Test func entriesOfEarlierRunsDecide() throws {
        var ledger = RedriveLedger()
        apply(&ledger, "dl/0/1", try Self.entry(.done, "jobs/0/1"))
        apply(&ledger, "dl/0/2", try Self.entry(.intent, "jobs/0/2"))
        apply(&ledger, "dl/0/3", try Self.entry(.intent, "jobs/0/3"))
        apply(&ledger, "dl/0/3", try Self.entry(.done, "jobs/0/3"))
        apply(&ledger, "dl/0/4", try Self.entry(.intent, "jobs/0/4"))
        apply(&ledger, "dl/0/4", try Self.entry(.failed, "jobs/0/4"))
        apply(&ledger, "dl/0/5", try Self.entry(.done, "jobs/0/5"))
        apply(&ledger, "dl/0/5", nil)
        #expect(ledger.count == 4)
        #expect(ledger.decide(place: try place("dl/0/1"), source: try place("jobs/0/1")) == .redriven)
        #expect(ledger.decide(place: try place("dl/0/2"), source: try place("jobs/0/2")) == .inDoubt)
        #expect(ledger.decide(place: try place("dl/0/3"), source: try place("jobs/0/3")) == .redriven)
        #expect(ledger.decide(place: try place("dl/0/4"), source: try place("jobs/0/4")) == .send)
        #expect(ledger.decide(place: try place("dl/0/5"), source: try place("jobs/0/5")) == .send)
        // Other dead letters of the same records.
        #expect(ledger.decide(place: try place("dl/1/1"), source: try place("jobs/0/1")) == .sameJob)
        #expect(ledger.decide(place: try place("dl/1/2"), source: try place("jobs/0/2")) == .inDoubt)
        #expect(ledger.decide(place: try place("dl/1/4"), source: try place("jobs/0/4")) == .sameJob)
    }

    @Test func exceptionsSendOnPurposeButOnceARun() throws {
        var ledger = RedriveLedger([.again, .inDoubt])
        apply(&ledger, "dl/0/1", try Self.entry(.done, "jobs/0/1"))
        apply(&ledger, "dl/0/2", try Self.entry(.intent, "jobs/0/2"))
        #expect(ledger.decide(place: try place("dl/0/1"), source: try place("jobs/0/1")) == .send)
        #expect(ledger.decide(place: try place("dl/1/1"), source: try place("jobs/0/1")) == .sameJob)
        #expect(ledger.decide(place: try place("dl/1/2"), source: try place("jobs/0/2")) == .send)
        #expect(ledger.decide(place: try place("dl/0/2"), source: try place("jobs/0/2")) == .sameJob)
        var again = RedriveLedger(.again)
        apply(&again, "dl/0/2", try Self.entry(.intent, "jobs/0/2"))
        #expect(again.decide(place: try place("dl/0/2"), source: try place("jobs/0/2")) == .inDoubt)
    }

    @Test func unreadableEntriesKeepTheJobFromBeingSentTwice() throws {
        var ledger = RedriveLedger()
        apply(&ledger, "dl/0/1", "not JSON")
        apply(&ledger, "dl/0/2", #"{"state":"of a later version","source":"jobs/0/2"}"#)
        apply(&ledger, "no place", "{}")
        ledger.apply(key: nil, value: nil)
        #expect(ledger.unreadable == 2)
        #expect(ledger.decide(place: try place("dl/0/1"), source: try place("jobs/0/1")) == .inDoubt)
        #expect(ledger.decide(place: try place("dl/0/9"), source: try place("jobs/0/2")) == .inDoubt)
    }

    /// A topic of dead letters that was created anew has other dead letters at the same places.
    @Test func anotherDeadLetterAtThePlaceIsSent() throws {
        var ledger = RedriveLedger()
        apply(&ledger, "dl/0/1", try Self.entry(.done, "jobs/0/1"))
        apply(&ledger, "dl/0/2", try Self.entry(.intent, "jobs/0/2"))
        #expect(ledger.state(of: try place("dl/0/1"), source: try place("jobs/0/7")) == nil)
        #expect(ledger.decide(place: try place("dl/0/1"), source: try place("jobs/0/7")) == .send)
        #expect(ledger.decide(place: try place("dl/0/2"), source: try place("jobs/0/8")) == .send)
        // The former jobs are known by their sources.
        #expect(ledger.decide(place: try place("dl/0/3"), source: try place("jobs/0/1")) == .sameJob)
        #expect(ledger.decide(place: try place("dl/0/4"), source: try place("jobs/0/2")) == .inDoubt)
        // The jobs topic may be new, too.
        let entry = RedriveEntry(
            state: .done, source: try place("jobs/0/5"), identity: Self.old, destination: "jobs",
            atMilliseconds: 1, run: "r")
        apply(&ledger, "dl/0/5", String(decoding: entry.json, as: UTF8.self))
        var new = Self.old
        new.createdMilliseconds = 2_000
        let place = try place("dl/0/5")
        #expect(ledger.decide(place: place, source: entry.source, identity: Self.old) == .redriven)
        #expect(ledger.decide(place: place, source: entry.source, identity: new) == .send)
    }

    /// A ledger that got more partitions has entries of a place in several. Their times are of several clocks, and decide
    /// nothing.
    @Test func theStrongestEntryOfAllPartitionsCounts() throws {
        func entry(_ state: RedriveState, _ at: Int64, _ source: String = "jobs/0/1") throws -> [UInt8] {
            RedriveEntry(
                state: state, source: try place(source), destination: "jobs", atMilliseconds: at, run: "r"
            ).json
        }
        func read(_ entries: [([UInt8]?, Int32)]) throws -> RedriveLedger.Verdict {
            var ledger = RedriveLedger()
            for (value, partition) in entries { apply(&ledger, "dl/0/1", value, partition) }
            return ledger.decide(place: try place("dl/0/1"), source: try place("jobs/0/1"))
        }
        let (failed, done) = (try entry(.failed, 10), try entry(.done, 20))
        #expect(try read([(done, 1), (failed, 0)]) == .redriven)
        #expect(try read([(failed, 0), (done, 1)]) == .redriven)
        #expect(try read([(done, 1), (nil, 0)]) == .redriven)
        // The clock of the run that failed was ahead.
        let (late, doubt) = (try entry(.failed, 30), try entry(.intent, 5))
        #expect(try read([(done, 1), (late, 0)]) == .redriven)
        #expect(try read([(late, 0), (done, 1)]) == .redriven)
        #expect(try read([(doubt, 1), (late, 0)]) == .inDoubt)
        #expect(try read([(late, 0), (doubt, 1), (done, 2)]) == .redriven)
        // Within a partition the order of the log counts, whatever the clocks were.
        #expect(try read([(done, 1), (failed, 1)]) == .send)
        #expect(try read([(done, 1), (nil, 1)]) == .send)
        // A weaker entry that was read before counts again when the stronger one is replaced.
        #expect(try read([(done, 1), (doubt, 0), (late, 1)]) == .inDoubt)
        #expect(try read([(done, 1), (done, 0), (nil, 1)]) == .redriven)
        // The entry of a former job at the place doesn't hide that of this job.
        let former = try entry(.done, 40, "jobs/0/9")
        #expect(try read([(former, 0), (doubt, 1)]) == .inDoubt)
        #expect(try read([(doubt, 1), (former, 0)]) == .inDoubt)
    }

    /// Random entries of several partitions against a naive model.
    @Test func partitionsOfTheLedgerHaveNoOrder() throws {
        var random = SeededGenerator(seed: 11)
        let other = try place("dl/0/2")
        let source = try place("jobs/0/1")
        for _ in 0..<500 {
            var ledger = RedriveLedger()
            var latest: [Int32: RedriveState] = [:]
            for _ in 0..<Int.random(in: 1...12, using: &random) {
                let partition = Int32.random(in: 0..<3, using: &random)
                let state = [RedriveState.done, .intent, .failed, nil].randomElement(using: &random) ?? nil
                let json = try state.map { Array(try Self.entry($0, "jobs/0/1").utf8) }
                apply(&ledger, "dl/0/1", json, partition)
                latest[partition] = state
            }
            let states = Set(latest.values)
            let expected: RedriveState? =
                states.contains(.done)
                ? .done : states.contains(.intent) ? .intent : states.contains(.failed) ? .failed : nil
            #expect(ledger.state(of: try place("dl/0/1"), source: source) == expected, "\(latest)")
            #expect(ledger.count == (latest.isEmpty ? 0 : 1))
            // Another dead letter of the same job.
            let verdict: RedriveLedger.Verdict =
                expected == .done ? .sameJob : expected == .intent ? .inDoubt : .send
            #expect(ledger.decide(place: other, source: source) == verdict, "\(latest)")
        }
    }

    private static let old = RedriveIdentity(
        apnsID: APNSID(text: "123e4567-e89b-12d3-a456-426614174000"), createdMilliseconds: 1_000)

    /// A topic that was created anew has other jobs at the same places.
    @Test func anotherJobAtThePlaceIsSent() throws {
        var new = Self.old
        new.apnsID = APNSID(text: "123e4567-e89b-12d3-a456-426614174001")
        // Identifiers that follow from the place are the same for both.
        var derived = Self.old
        derived.createdMilliseconds = 2_000
        let source = try place("jobs/0/5")
        var ledger = RedriveLedger()
        #expect(ledger.decide(place: try place("o/0/1"), source: source, identity: Self.old) == .send)
        #expect(ledger.decide(place: try place("o/0/2"), source: source, identity: new) == .send)
        #expect(ledger.decide(place: try place("o/0/3"), source: source, identity: derived) == .send)
        #expect(ledger.decide(place: try place("o/0/4"), source: source, identity: Self.old) == .sameJob)
        #expect(ledger.decide(place: try place("o/0/5"), source: source) == .sameJob)
        var adjusted = Self.old
        adjusted.createdMilliseconds = nil
        #expect(ledger.decide(place: try place("o/0/6"), source: source, identity: adjusted) == .sameJob)

        let entry = RedriveEntry(
            state: .done, source: source, identity: Self.old, destination: "jobs", atMilliseconds: 1,
            run: "r")
        var later = RedriveLedger()
        apply(&later, "o/0/1", String(decoding: entry.json, as: UTF8.self))
        #expect(later.decide(place: try place("o/0/4"), source: source, identity: Self.old) == .sameJob)
        #expect(later.decide(place: try place("o/0/5"), source: source) == .sameJob)
        #expect(later.decide(place: try place("o/0/2"), source: source, identity: new) == .send)
        #expect(later.decide(place: try place("o/0/3"), source: source, identity: derived) == .send)
        // Entries of earlier versions name no identity.
        var before = RedriveLedger()
        apply(&before, "o/0/1", try Self.entry(.done, "jobs/0/5"))
        #expect(before.decide(place: try place("o/0/2"), source: source, identity: new) == .sameJob)
    }

    @Test func aJobThatIsNotSentLeavesItsPlace() throws {
        let source = try place("jobs/0/5")
        var ledger = RedriveLedger()
        #expect(ledger.decide(place: try place("dl/0/1"), source: source) == .send)
        ledger.release(source: source)
        #expect(ledger.decide(place: try place("dl/0/2"), source: source) == .send)
        ledger.release(source: try place("jobs/0/6"))
        #expect(ledger.decide(place: try place("dl/0/3"), source: source) == .sameJob)
    }

    @Test func aFailureKeepsTheStateBefore() throws {
        var ledger = RedriveLedger()
        apply(&ledger, "dl/0/1", try Self.entry(.done, "jobs/0/1"))
        apply(&ledger, "dl/0/2", try Self.entry(.intent, "jobs/0/2"))
        func after(_ text: String) throws -> RedriveState {
            .afterFailure(
                before: ledger.state(
                    of: try place(text),
                    source: try place(text.replacingOccurrences(of: "dl", with: "jobs"))))
        }
        #expect(try after("dl/0/1") == .done && after("dl/0/2") == .intent && after("dl/0/3") == .failed)
    }

    /// Random entries against a naive model: nothing with an entry `done` is sent, and no job twice in a run.
    @Test func noJobIsSentTwice() throws {
        var random = SeededGenerator(seed: 7)
        for _ in 0..<200 {
            var ledger = RedriveLedger()
            var states: [String: RedriveState] = [:]
            let sources = (0..<20).map { _ in "jobs/0/\(Int.random(in: 0..<12, using: &random))" }
            for _ in 0..<30 {
                let index = Int.random(in: 0..<20, using: &random)
                let state = [RedriveState.done, .intent, .failed].randomElement(using: &random) ?? .done
                apply(&ledger, "dl/0/\(index)", try Self.entry(state, sources[index]))
                states["dl/0/\(index)"] = state
            }
            var sent: Set<String> = []
            for index in (0..<20).shuffled(using: &random) {
                let key = "dl/0/\(index)"
                let verdict = ledger.decide(place: try place(key), source: try place(sources[index]))
                guard verdict == .send else { continue }
                #expect(states[key] != .done && states[key] != .intent)
                #expect(sent.insert(sources[index]).inserted, "\(sources[index]) is sent twice")
                let others = (0..<20).filter { sources[$0] == sources[index] }.map { states["dl/0/\($0)"] }
                #expect(!others.contains(.done) && !others.contains(.intent), "\(key)")
            }
        }
    }
}
