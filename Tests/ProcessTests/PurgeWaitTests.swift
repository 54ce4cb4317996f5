import Testing

@testable import sluice

/// When `sluice ctl purge --wait` ends: scripts of looks.
@Suite("sluice ctl purge --wait: decisions") struct PurgeWaitTests {
    private static func progress(
        opening: String = "a", assigned: Set<Int> = [0, 1, 2], requested: Set<Int> = [],
        failing: Set<Int> = [], dropped: [Int: Int] = [:], failure: PurgeProgress.Failure? = nil
    ) -> PurgeProgress {
        PurgeProgress(
            opening: opening, assigned: assigned, requested: requested, failing: failing, dropped: dropped,
            failure: failure)
    }

    private func look(
        opening: String = "a", assigned: Set<Int> = [0, 1, 2], requested: Set<Int> = [],
        failing: Set<Int> = [], dropped: [Int: Int] = [:], failure: PurgeProgress.Failure? = nil
    ) -> PurgeWait.Look {
        .progress(
            Self.progress(
                opening: opening, assigned: assigned, requested: requested, failing: failing,
                dropped: dropped, failure: failure))
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
            step = wait.next(look, during: .seconds(second) ... .seconds(second))
        }
        return step
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
        let failing = step(after: look(requested: [0]), look(opening: "b", failing: [1]))
        #expect(words(failing, 75) != nil)
    }

    @Test func aFailureAfterTheRequestCounts() {
        let noSpace = PurgeProgress.Failure(partition: 0, text: "no space")
        // A request renews a purge that had failed before.
        #expect(
            step(
                before: Self.progress(failing: [0], failure: noSpace),
                after: look(requested: [0, 1], failure: noSpace), look()) == .purged)
        let failed = step(after: look(requested: [0, 1]), look(failing: [0], failure: noSpace))
        #expect(words(failed, 1) == "no space; the worker tries again later")
        // Another purge has ended since, so its end is the last one.
        let covered = step(
            after: look(requested: [0, 1]), look(requested: [0], failing: [1], failure: noSpace))
        #expect(
            words(covered, 1)
                == "the purge of partition 1 failed, with the cause in the worker's log; the worker tries again later"
        )
        // The repetition of a failed purge was requested by another command, or has succeeded.
        #expect(step(after: look(requested: [0]), look(requested: [0], failure: noSpace)) == .wait)
        #expect(step(after: look(requested: [0]), .silence("busy"), look()) == .purged)
    }

    @Test func aFailureOfAnotherPartitionHasNoPartInIt() {
        let failure = PurgeProgress.Failure(partition: 2, text: "no space")
        #expect(
            step(
                after: look(requested: [0, 1]), look(requested: [1], failing: [2], failure: failure),
                look(failing: [2], failure: failure)) == .purged)
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

    @Test func aPartitionThatCameBeforeTheRequestIsMissedToo() throws {
        let lost = step(
            before: Self.progress(assigned: [0]), after: look(assigned: [0, 1], requested: [0, 1]),
            look(assigned: [0], requested: [0]), look(assigned: [0]))
        #expect(try #require(words(lost, 75)).hasPrefix("partition 1 has left this worker"))
    }

    /// The partitions of an answer can be older than its purges.
    @Test func aPartitionThatWasDroppedIsLostThoughItStillSeemsAssigned() throws {
        let lost = step(after: look(requested: [0, 1]), look(dropped: [1: 1]))
        #expect(try #require(words(lost, 75)).hasPrefix("partition 1 has left this worker"))
        let again = step(
            before: Self.progress(dropped: [1: 3]), after: look(requested: [1], dropped: [1: 3]),
            look(dropped: [1: 4]))
        #expect(words(again, 75) != nil)
        // Earlier drops, and those of partitions beyond the request, don't count. A copy may go: its files go too.
        #expect(step(before: Self.progress(dropped: [1: 3]), after: look(dropped: [1: 3, 2: 1])) == .purged)
        #expect(step(of: [0, 7], after: look(requested: [7]), look(dropped: [7: 1])) == .purged)
    }

    @Test func silenceIsBornForATime() throws {
        var wait = PurgeWait(Self.progress(), [0])
        #expect(wait.next(.silence("starting"), during: .seconds(5) ... .seconds(5)) == .wait)
        #expect(wait.next(.silence("starting"), during: .seconds(34) ... .seconds(34)) == .wait)
        // An answer ends the silence.
        #expect(wait.next(look(requested: [0]), during: .seconds(34) ... .seconds(34)) == .wait)
        // Looks without an answer last until their limit, and count from their begin.
        #expect(wait.next(.silence("refused"), during: .seconds(40) ... .seconds(55)) == .wait)
        #expect(wait.next(.silence("refused"), during: .seconds(55) ... .milliseconds(69_999)) == .wait)
        let end = wait.next(.silence("refused"), during: .seconds(70) ... .seconds(72))
        let reason = try #require(words(end, 75))
        #expect(reason.contains("no answer for 32 seconds") && reason.contains("(refused)"))
        // A look of --timeout 60 is longer than the patience.
        var slow = PurgeWait(Self.progress(), [0])
        #expect(words(slow.next(.silence("busy"), during: .zero ... .seconds(60)), 75) != nil)
    }

    // MARK: Reading the worker's answer

    private func read(_ purges: String, partitions: String = #"[{"partition":0}]"#) throws -> PurgeProgress {
        try PurgeProgress(
            ControlAnswer(status: 200, text: #"{"partitions":\#(partitions),"purges":{\#(purges)}}"#))
    }

    @Test func anAnswerIsReadAsAWhole() throws {
        let progress = try read(
            #""opening":"a","pending":[{"partition":0,"requested":true,"failures":0},"#
                + #"{"partition":1,"requested":false,"failures":2},{"partition":2,"requested":false,"failures":0}],"#
                + #""dropped":[{"partition":4,"purges":3}],"last":{"partition":1,"error":"no space"}"#)
        #expect(
            progress
                == Self.progress(
                    assigned: [0], requested: [0], failing: [1], dropped: [4: 3],
                    failure: PurgeProgress.Failure(partition: 1, text: "no space")))
    }

    @Test(arguments: [
        // A worker without names of openings, without drops, without failures; an element that can't be read.
        #""pending":[],"completed":0,"failed":0"#, #""opening":"a","pending":[]"#,
        #""opening":"a","dropped":[],"pending":[{"partition":0,"requested":true}]"#,
        #""opening":"a","dropped":[{"partition":0}],"pending":[]"#,
    ])
    func anAnswerOfAnEarlierVersionNamesTheRemedy(purges: String) throws {
        let failure = try #require(#expect(throws: CommandFailure.self) { try read(purges) })
        #expect(failure.status == .failure && failure.message.contains("update the worker"))
    }

    @Test func aForeignAnswerIsRefused() throws {
        for partitions in [#"{}"#, #"[{"number":0}]"#] {
            let failure = try #require(
                #expect(throws: CommandFailure.self) {
                    try read(#""opening":"a","dropped":[],"pending":[]"#, partitions: partitions)
                })
            #expect(failure.message.contains("not a worker's"))
        }
    }
}
