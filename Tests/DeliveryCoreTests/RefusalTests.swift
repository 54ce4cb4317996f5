import SluiceModel
import Testing

@testable import DeliveryCore

/// Outcomes and dead letters that Kafka refuses for their size.
@Suite struct RefusalTests {
    private static let tooLarge = KafkaFault("MSG_SIZE_TOO_LARGE", [.ofRecord, .lasting])

    private func refusal(
        _ offset: Int64, bytes: Int, cuts: UInt8 = 0, largest: Int = .max, topic: String = "letters",
        isOffsetDone: Bool = false
    ) -> Refusals.Refusal {
        .init(
            outcome: OutcomePlace(
                RecordPlace(partitionSlot: 0, offset: offset), isOffsetDone: isOffsetDone), topic: topic,
            form: ProducedForm(kind: .deadLetter, cuts: cuts, bytes: bytes, largestBatch: largest),
            fault: Self.tooLarge)
    }

    private func judged(_ refusals: inout Refusals, _ list: [Refusals.Refusal]) -> [Int64: UInt8] {
        for refusal in list { refusals.add(refusal) }
        let judgement = refusals.judge()
        #expect(
            judgement.hopeless.isEmpty && judgement.again.allSatisfy { $0.reason == "MSG_SIZE_TOO_LARGE" })
        return Dictionary(uniqueKeysWithValues: judgement.again.map { ($0.outcome.place.offset, $0.cuts) })
    }

    // MARK: Judgement

    @Test func onlyTheLargestOfARefusedBatchAreCut() {
        var refusals = Refusals()
        let first = judged(
            &refusals,
            [
                refusal(0, bytes: 900_000), refusal(1, bytes: 400), refusal(2, bytes: 800_000, cuts: 1),
                refusal(3, bytes: 700, topic: "outcomes"), refusal(4, bytes: 100, topic: "outcomes"),
            ])
        #expect(first == [0: 1, 1: 0, 2: 2, 3: 1, 4: 0])
        #expect(judged(&refusals, []) == [:], "each is judged once")
        #expect(judged(&refusals, [refusal(1, bytes: 400)]) == [1: 1], "alone it is the cause")
    }

    @Test func recordThatIsKnownToFitGoesOutOnceMoreAsItWas() {
        var refusals = Refusals()
        let batch = [
            refusal(0, bytes: 900, largest: 1_000), refusal(1, bytes: 2_000, largest: 1_000),
            refusal(2, bytes: 1_001, cuts: 1, largest: 1_000),
        ]
        #expect(judged(&refusals, batch) == [0: 0, 1: 1, 2: 2])
        #expect(judged(&refusals, [batch[0]]) == [0: 0], "it was innocent before")
        #expect(judged(&refusals, [batch[0]]) == [0: 1])
        refusals.forget(0)
        #expect(judged(&refusals, [batch[0]]) == [0: 0])
    }

    @Test func deliveryForgetsHowOftenARecordWentOutAsItWas() {
        var refusals = Refusals()
        let record = refusal(0, bytes: 900, largest: 1_000)
        #expect(judged(&refusals, [record]) == [0: 0])
        refusals.delivered(record.outcome)
        #expect(judged(&refusals, [record]) == [0: 0])
    }

    /// A stored push of an earlier log, and a record of the new log.
    @Test func twoOutcomesOfOnePlaceAreKeptApart() {
        var refusals = Refusals()
        for _ in 0..<3 { _ = judged(&refusals, [refusal(7, bytes: 600, cuts: 3)]) }
        refusals.add(refusal(7, bytes: 600, cuts: 3))
        refusals.add(refusal(7, bytes: 600, cuts: 3, isOffsetDone: true))
        let judgement = refusals.judge()
        #expect(judgement.again.map(\.outcome.isOffsetDone) == [true])
        #expect(judgement.hopeless.map(\.outcome.isOffsetDone) == [false])
    }

    @Test func recordWithAllCutsIsHopelessAfterSomeTimes() {
        var refusals = Refusals()
        for _ in 0..<3 { #expect(judged(&refusals, [refusal(7, bytes: 600, cuts: 3)]) == [7: 3]) }
        refusals.add(refusal(7, bytes: 600, cuts: 3))
        let judgement = refusals.judge()
        #expect(judgement.again.isEmpty && judgement.hopeless.map(\.outcome.place.offset) == [7])
    }

    // MARK: The worker

    private func lose(
        _ script: WorkerScript, _ offset: Int64, slot: UInt16 = 0, cuts: UInt8 = 0
    ) -> WorkerMachine.LostFate {
        var fate = WorkerMachine.LostFate.done
        script.apply { machine, now in
            fate = machine.lost(
                OutcomePlace(RecordPlace(partitionSlot: slot, offset: offset), isOffsetDone: false),
                Self.tooLarge,
                topic: "letters", form: ProducedForm(kind: .deadLetter, cuts: cuts, bytes: 5_000), at: now)
        }
        return fate
    }

    private func stops(_ actions: [WorkerAction]) -> [Int32] {
        actions.compactMap {
            if case .note(.partitionStopped(let partition, _, _, _)) = $0 { partition } else { nil }
        }
    }

    @Test func refusedRecordIsProducedAgainWithACut() {
        let script = WorkerScript()
        script.assign([0], offset: 3)
        _ = script.take(3)
        #expect(lose(script, 3) == .keep)
        let place = RecordPlace(partitionSlot: 0, offset: 3)
        let emitted = script.polled()
        #expect(
            emitted == [
                .produceAgain(
                    .init(
                        outcome: OutcomePlace(place, isOffsetDone: false), cuts: 1,
                        reason: "MSG_SIZE_TOO_LARGE"))
            ])
        script.apply { $0.revoked([0], isLost: true, at: $1) }
        #expect(lose(script, 3, cuts: 1) == .done, "another worker owns the partition")
        #expect(script.polled() == [])
    }

    @Test func partitionOfARecordThatNeverFitsStopsAlone() throws {
        let script = WorkerScript()
        script.assign([0, 1], offset: 3)
        for offset in Int64(3)...4 { _ = script.take(offset) }
        _ = script.take(3, partition: 1)
        for _ in 0..<3 {
            #expect(lose(script, 3, cuts: 3) == .keep)
            #expect(stops(script.polled()) == [])
        }
        #expect(lose(script, 3, cuts: 3) == .keep)
        let emitted = script.polled()
        #expect(stops(emitted) == [0] && emitted.contains(.pause([0])))
        let place = RecordPlace(partitionSlot: 0, offset: 3)
        #expect(emitted.contains(.forgetRefused(OutcomePlace(place, isOffsetDone: false))))
        // What was read ends, and the other partition goes on.
        script.deliver(4)
        script.deliver(3, slot: 1)
        #expect(script.read { $0.outstanding } == 0, "nothing waits for the refused job")
        script.pass(WorkerScript.second)
        let commit = try #require(script.tick().compactMap(\.commit).first)
        let points = commit.set.parts.sorted { $0.partition < $1.partition }.map(\.point)
        #expect(points.map(\.offset) == [3, 4] && !points[0].metadata.isEmpty)
        #expect(script.read { $0.checkInvariants() } == nil)
        let reports = script.read { $0.partitionReports(topic: "jobs", at: 0) }
        #expect(reports.map(\.pauseReasons) == [.refused, []])
        // Neither operators nor room resume it.
        script.apply { machine, _ in machine.setAllPaused(true) }
        script.apply { machine, _ in machine.setAllPaused(false) }
        let resumed = script.actions.compactMap { if case .resume(let numbers) = $0 { numbers } else { nil } }
        #expect(resumed == [[1]])
        script.apply { $0.committed(commit.ticket, fault: nil, at: $1) }
        script.apply { $0.stop(at: $1) }
        #expect(script.read { $0.phase } == .draining)
    }

    @Test func stoppedPartitionIsReadAgainOnceItIsAssigned() {
        for mode in [StoreMode.none, .transactions] {
            let script = WorkerScript(mode)
            script.step(.initialize)
            script.step(.begin)
            script.assign([0], offset: 3)
            _ = script.take(3)
            script.report(
                0,
                .neverFits(
                    OutcomePlace(RecordPlace(partitionSlot: 0, offset: 3), isOffsetDone: false),
                    topic: "letters", Self.tooLarge))
            #expect(stops(script.actions) == [0])
            #expect(
                script.read { $0.partitionReports(topic: "jobs", at: 0).map(\.pauseReasons) } == [.refused])
            #expect(
                script.read { $0.stage(ofPartition: 0, offset: 9) }
                    == .unread(next: mode == .none ? 4 : 3, .refused))
            script.apply { $0.revoked([0], isLost: true, at: $1) }
            #expect(script.read { $0.partitionReports(topic: "jobs", at: 0).isEmpty })
            script.assign([0], offset: 3)
            #expect(script.read { $0.partitionReports(topic: "jobs", at: 0).map(\.pauseReasons) } == [[]])
            #expect(script.read { $0.failure == nil })
        }
    }

    // MARK: Transactions

    private func open() -> WorkerScript {
        let script = WorkerScript(.transactions)
        script.step(.initialize)
        script.step(.begin)
        script.assign([0, 1])
        return script
    }

    private func abort(_ script: WorkerScript, _ number: UInt64, produced: Int) -> [ShardRequest] {
        #expect(script.freezeAll(number, produced: produced).contains(.step(.abort)))
        script.step(.abort)
        if script.read({ $0.wakeAt }) != nil {
            script.pass(WorkerScript.second)
            script.apply { $0.wake(at: $1) }
        }
        return script.step(.begin).compactMap(\.request)
    }

    @Test func refusedRecordOfATransactionIsCutInTheNext() {
        let script = open()
        _ = script.take(0)
        #expect(lose(script, 0) == .done)
        let place = RecordPlace(partitionSlot: 0, offset: 0)
        #expect(
            abort(script, 1, produced: 1) == [
                .thaw(
                    number: 2, repeating: [0, 1],
                    refused: [
                        .init(
                            outcome: OutcomePlace(place, isOffsetDone: false), cuts: 1,
                            reason: "MSG_SIZE_TOO_LARGE")
                    ])
            ])
        #expect(lose(script, 0, cuts: 1) == .done)
        #expect(
            abort(script, 2, produced: 2) == [
                .thaw(
                    number: 3, repeating: [0, 1],
                    refused: [
                        .init(
                            outcome: OutcomePlace(place, isOffsetDone: false), cuts: 2,
                            reason: "MSG_SIZE_TOO_LARGE")
                    ])
            ])
        #expect(script.read { $0.failure == nil })
    }

    /// A shard reports a refusal by the producer after the transaction has ended.
    @Test func refusalOfAnEarlierTransactionAbortsNothing() {
        let script = open()
        _ = script.take(0)
        #expect(lose(script, 0) == .done)
        _ = abort(script, 1, produced: 1)
        script.report(0, .refused(number: 1))
        script.deliver(0)
        script.pass(WorkerScript.second)
        script.apply { $0.wake(at: $1) }
        #expect(script.freezeAll(2, produced: 2).last?.offsets != nil)
    }

    /// Changes of the store belong to the outcome, and so nothing of the partition is in a transaction any more.
    @Test func partitionOfARecordThatNeverFitsLeavesTheTransactions() {
        let script = open()
        _ = script.take(0)
        _ = script.take(1)
        _ = script.take(0, partition: 1)
        script.deliver(0, slot: 1)
        for number in UInt64(1)...3 {
            _ = lose(script, 0, cuts: 3)
            _ = abort(script, number, produced: Int(number) + 1)
        }
        _ = lose(script, 0, cuts: 3)
        // Another record of the partition could be cut.
        _ = lose(script, 1)
        let requests = abort(script, 4, produced: 6)
        #expect(stops(script.actions) == [0] && script.actions.contains(.pause([0])))
        #expect(requests.contains(.end(slots: [0])))
        #expect(requests.last == .thaw(number: 5, repeating: [1], refused: []))
        // The other partition is committed.
        script.deliver(0, slot: 1)
        script.pass(WorkerScript.second)
        script.apply { $0.wake(at: $1) }
        let parts = script.freezeAll(5, produced: 7).last?.offsets
        #expect(parts?.map(\.partition) == [1] && parts?.map(\.point.offset) == [1])
        #expect(script.read { $0.failure == nil && $0.checkInvariants() == nil })
    }
}
