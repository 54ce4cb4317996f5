import Testing

@testable import sluice

/// When `sluice ctl purge --wait` ends: scripts of looks.
@Suite("sluice ctl purge --wait: decisions") struct PurgeWaitTests {
    private static func progress(
        opening: String = "a", assigned: Set<Int> = [0, 1, 2], requested: Set<Int> = [], failed: Int = 0,
        failure: String? = nil
    ) -> PurgeProgress {
        PurgeProgress(
            opening: opening, assigned: assigned, requested: requested, failed: failed, failure: failure)
    }

    /// Returns the step after the last of the looks, a second apart. All steps before are waits.
    private func step(
        of partitions: Set<Int> = [0, 1], before: PurgeProgress = progress(), after looks: PurgeWait.Look...,
        sourceLocation: SourceLocation = #_sourceLocation
    ) -> PurgeWait.Step {
        var wait = PurgeWait(before, partitions)
        var step = PurgeWait.Step.wait
        for (second, look) in looks.enumerated() {
            #expect(step == .wait, sourceLocation: sourceLocation)
            step = wait.next(look, at: .seconds(second))
        }
        return step
    }

    private func look(
        opening: String = "a", assigned: Set<Int> = [0, 1, 2], requested: Set<Int> = [], failed: Int = 0,
        failure: String? = nil
    ) -> PurgeWait.Look {
        .progress(
            Self.progress(
                opening: opening, assigned: assigned, requested: requested, failed: failed, failure: failure))
    }

    /// Returns the words of an end with the status, or nil for other steps.
    private func words(_ step: PurgeWait.Step, _ status: Int32) -> String? {
        guard case .end(let ending, let words) = step, ending.rawValue == status else { return nil }
        return words
    }

    @Test func purgesOfOthersAreNotAwaited() {
        #expect(step(after: look(requested: [0, 1, 2])) == .wait)
        #expect(
            step(after: look(requested: [0, 1]), look(requested: [1, 2]), look(requested: [2])) == .purged)
    }

    @Test func anOpeningAfterTheRequestKnowsNothingOfIt() throws {
        let restarted = step(after: look(requested: [0]), look(opening: "b"))
        #expect(try #require(words(restarted, 75)).contains("has started anew"))
        // Purges of the new opening are those of another request.
        let busy = step(after: look(requested: [0]), look(opening: "b", requested: [0, 1]))
        #expect(words(busy, 75) != nil)
        let failing = step(
            before: Self.progress(failed: 4), after: look(requested: [0], failed: 4),
            look(opening: "b", failed: 1))
        #expect(words(failing, 75) != nil)
    }

    @Test func aFailureAfterTheRequestCounts() throws {
        let earlier = Self.progress(failed: 4, failure: "an earlier fault")
        #expect(step(before: earlier, after: look(failed: 4, failure: "an earlier fault")) == .purged)
        let failed = step(
            before: earlier, after: look(requested: [0], failed: 4), look(failed: 5, failure: "no space"))
        #expect(words(failed, 1) == "no space; the worker tries again later")
        let covered = step(after: look(failed: 1))
        #expect(words(covered, 1) == "a purge failed; the worker tries again later")
    }

    @Test func aPartitionThatTheWorkerLostIsNamed() throws {
        let lost = step(
            after: look(assigned: [0], requested: [0, 1]), look(assigned: [0], requested: [1]),
            look(assigned: [0]))
        #expect(try #require(words(lost, 75)).hasPrefix("partition 1 has left this worker"))
        // A partition that was lost and returned has other files.
        let returned = step(after: look(assigned: [2], requested: [0]), look())
        #expect(try #require(words(returned, 75)).hasPrefix("partitions 0, 1 have left this worker"))
        // Partitions beyond the request, and copies of earlier partitions, have no part in it.
        #expect(step(after: look(assigned: [0, 1])) == .purged)
        #expect(step(of: [0, 7], after: look(requested: [7]), look()) == .purged)
    }

    @Test func silenceIsBornForATime() throws {
        var wait = PurgeWait(Self.progress(), [0])
        #expect(wait.next(.silence("starting"), at: .seconds(5)) == .wait)
        #expect(wait.next(.silence("starting"), at: .seconds(34)) == .wait)
        // An answer ends the silence.
        #expect(wait.next(look(requested: [0]), at: .seconds(34)) == .wait)
        #expect(wait.next(.silence("refused"), at: .seconds(40)) == .wait)
        #expect(wait.next(.silence("refused"), at: .milliseconds(69_999)) == .wait)
        let end = wait.next(.silence("refused"), at: .seconds(70))
        let reason = try #require(words(end, 1))
        #expect(reason.contains("no answer for 30 seconds") && reason.contains("(refused)"))
    }
}
