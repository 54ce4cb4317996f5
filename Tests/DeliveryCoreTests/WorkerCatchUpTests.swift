import Testing

@testable import DeliveryCore

/// Reading up to the log's end before anything of a partition is sent.
@Suite struct WorkerCatchUpTests {
    private static let caughtUp = ShardRequest.caughtUp(slot: 0)

    /// A worker with a partition that has records 997…999 ahead.
    private func script(_ offset: Int64? = 997, jobs: Int = 100) -> (WorkerScript, [ShardRequest]) {
        let script = WorkerScript(jobs: jobs)
        return (script, script.assign([0], offset: offset).compactMap(\.request))
    }

    private func polled(_ script: WorkerScript) -> [ShardRequest] {
        script.apply { machine, _ in machine.polled(1, bytes: 100) }.compactMap(\.request)
    }

    @Test func catchUpEndsWithTheLastRecordOfTheLog() {
        let (script, begun) = script()
        #expect(
            begun == [
                .catchUp(slot: 0),
                .begin(slot: 0, partition: 0, readThrough: 996, earlierFrom: .max, committed: 997),
            ])
        _ = script.take(997)
        _ = script.take(998)
        #expect(polled(script) == [])
        _ = script.take(999)
        #expect(polled(script) == [Self.caughtUp])
        #expect(polled(script) == [])
    }

    /// An ordinary restart after a clean stop waits for nothing.
    @Test func partitionThatIsReadHasNoCatchUp() {
        let (script, begun) = script(1_000)
        #expect(begun.count == 1)
        #expect(polled(script) == [])
    }

    /// The last offsets of the log have no records.
    @Test func endOfTheLogEndsTheCatchUpAfterTheBatch() {
        let (script, _) = script()
        let early = script.apply { machine, _ in machine.reachedEnd(partition: 0, offset: 998) }
        #expect(early == [] && polled(script) == [])
        let noted = script.apply { machine, _ in machine.reachedEnd(partition: 0, offset: 1_000) }
        #expect(noted == [], "records before the end may be in the batch")
        #expect(polled(script) == [Self.caughtUp])
    }

    @Test func patienceEndsTheCatchUp() {
        let (script, _) = script()
        #expect(!script.passTicks(49).compactMap(\.request).contains(Self.caughtUp))
        let emitted = script.passTicks(2)
        #expect(emitted.contains(.note(.catchUpCut(0, readTo: 997, logEnd: 1_000))))
        #expect(emitted.compactMap(\.request).contains(Self.caughtUp))
    }

    @Test func limitOfJobsEndsTheCatchUp() {
        let (script, _) = script(jobs: 2)
        _ = script.take(997)
        #expect(polled(script) == [])
        _ = script.take(998)
        #expect(polled(script) == [Self.caughtUp])
    }

    /// Nothing is sent meanwhile, and reading begins after the pause.
    @Test func pauseOfAllSendingDoesNotUseUpThePatience() {
        let (script, _) = script()
        script.apply { machine, _ in machine.setAllPaused(true) }
        #expect(!script.passTicks(100).compactMap(\.request).contains(Self.caughtUp))
        script.apply { machine, _ in machine.setAllPaused(false) }
        #expect(!script.passTicks(45).compactMap(\.request).contains(Self.caughtUp))
        #expect(script.passTicks(10).compactMap(\.request).contains(Self.caughtUp))
    }

    @Test func lostPartitionAwaitsNothing() {
        let (script, _) = script()
        script.apply { $0.revoked([0], isLost: true, at: $1) }
        #expect(!script.passTicks(60).compactMap(\.request).contains(Self.caughtUp))
        #expect(script.read { $0.catchUps.isEmpty })
    }
}
