import DeliveryCore
import Testing

@Suite struct ProduceOrderTransactionTests {
    /// A harness in whose first transaction no record was produced yet.
    private func open() -> ProduceHarness {
        let harness = ProduceHarness(isTransactional: true)
        harness.thaw(1)
        _ = harness.takeTold()
        return harness
    }

    @Test func nothingIsProducedBeforeTheFirstThaw() {
        let harness = ProduceHarness(isTransactional: true)
        harness.write(0)
        harness.flush()
        harness.timerDue()
        #expect(harness.numbers.isEmpty && harness.isFrozen && !harness.isBlocked)
        harness.thaw(1)
        #expect(harness.numbers == [0])
        #expect(harness.retained == 1 && harness.waiting == 0)
    }

    @Test func producedRecordsAreKeptUntilTheCommit() {
        let harness = open()
        harness.write(0)
        harness.write(1)
        #expect(harness.kept.map(\.number) == [0, 1])
        harness.freeze(1)
        #expect(harness.takeTold() == [.frozen(number: 1, produced: 2)])
        harness.write(2)
        #expect(harness.retained == 2 && harness.waiting == 1)
        harness.thaw(2)
        #expect(harness.numbers == [0, 1, 2])
        #expect(harness.kept.map(\.number) == [2])
        harness.freeze(2)
        harness.thaw(3)
        #expect(harness.kept.isEmpty && harness.recordsHeld == 0 && harness.retained == 0)
        #expect(harness.produced == 3)
    }

    @Test func abortedTransactionIsRepeatedInOrderBeforeNewerRecords() {
        let harness = open()
        harness.write(0)
        harness.write(1, .deadLetter)
        harness.write(2, .change)
        harness.freeze(1, atOnce: true)
        harness.write(3)
        #expect(harness.takeNumbers() == [0, 1, 2])
        harness.answers = [.queued, .queueFull]
        harness.thaw(2, repeating: [0])
        #expect(harness.takeNumbers() == [0])
        harness.write(4)
        harness.timerDue()
        #expect(harness.takeNumbers() == [1, 2, 3, 4])
        harness.freeze(2, atOnce: true)
        harness.thaw(3, repeating: [0])
        #expect(harness.takeNumbers() == [0, 1, 2, 3, 4], "all are repeated once more")
    }

    @Test func freezeWaitsForWrittenRecords() {
        let harness = open()
        harness.answers = [.queueFull, .queueFull]
        harness.write(0)
        harness.write(1)
        _ = harness.takeTold()
        harness.freeze(1)
        harness.freeze(1)
        #expect(harness.takeTold().isEmpty && !harness.isFrozen)
        #expect(!harness.writesForNext)
        harness.write(2)
        #expect(harness.writesForNext)
        harness.timerDue()
        #expect(
            harness.numbers == [0, 1], "later records don't delay the end of the transaction")
        #expect(harness.takeTold() == [.frozen(number: 1, produced: 2)])
        harness.freeze(1)
        harness.freeze(1, atOnce: true)
        #expect(harness.takeTold().isEmpty, "reported once")
        harness.thaw(2)
        #expect(harness.numbers == [0, 1, 2])
    }

    @Test func freezeIgnoresRecordsOfAnEndedPartition() {
        let harness = open()
        harness.answers = [.queueFull, .queueFull]
        harness.write(0, partition: 3)
        harness.freeze(1)
        harness.write(1, partition: 4)
        _ = harness.takeTold()
        harness.endPartition(3)
        #expect(harness.takeTold().contains(.frozen(number: 1, produced: 0)))
        harness.timerDue()
        #expect(harness.numbers.isEmpty)
        harness.thaw(2)
        #expect(harness.numbers == [1])
    }

    @Test func abortOvertakesAWaitingFreeze() {
        let harness = open()
        harness.answers = [.queueFull, .queueFull]
        harness.write(0)
        harness.freeze(1)
        _ = harness.takeTold()
        harness.freeze(1, atOnce: true)
        #expect(harness.takeTold() == [.frozen(number: 1, produced: 0)])
        harness.timerDue()
        #expect(harness.numbers.isEmpty, "nothing is produced after that")
        harness.thaw(2, repeating: [0])
        #expect(harness.numbers == [0])
    }

    @Test func lateFreezeDoesNotEndALaterTransaction() {
        let harness = open()
        harness.freeze(1)
        harness.thaw(2)
        _ = harness.takeTold()
        harness.freeze(1)
        harness.freeze(1, atOnce: true)
        #expect(harness.takeTold().isEmpty && !harness.isFrozen)
    }

    @Test func lateThawDiscardsNothingAndOpensNothing() {
        let harness = open()
        harness.write(0)
        harness.thaw(1)
        #expect(harness.retained == 1)
        harness.freeze(1, atOnce: true)
        harness.thaw(1)
        harness.thaw(1, repeating: [0])
        #expect(harness.isFrozen && harness.retained == 1)
        harness.write(1)
        #expect(harness.numbers == [0])
        harness.thaw(2, repeating: [0])
        #expect(harness.numbers == [0, 0, 1])
    }

    @Test func thawAfterItsOwnFreezeStaysFrozen() {
        let harness = open()
        harness.write(0)
        harness.freeze(1, atOnce: true)
        harness.write(1)
        harness.freeze(2)
        #expect(
            harness.takeTold() == [.frozen(number: 1, produced: 1), .frozen(number: 2, produced: 1)])
        harness.thaw(2, repeating: [0])
        #expect(harness.isFrozen && harness.waiting == 2 && harness.retained == 0)
        harness.thaw(3, repeating: nil)
        #expect(harness.numbers == [0, 0, 1], "the second transaction was committed without them")
    }

    @Test func thawOfALaterTransactionClosesTheOpenOne() {
        let harness = open()
        harness.write(0)
        harness.answers = [.queueFull, .queueFull]
        harness.write(1)
        harness.freeze(1)
        _ = harness.takeTold()
        harness.thaw(2, repeating: [0])
        #expect(harness.numbers == [0, 0, 1])
        #expect(!harness.told.contains { if case .frozen = $0 { true } else { false } })
    }

    @Test func transactionTakesNoRecordAfterARefusal() {
        let harness = open()
        harness.write(0)
        harness.answers = [.noTransaction]
        harness.write(1)
        #expect(harness.takeTold() == [.refused(number: 1)])
        harness.write(2)
        harness.flush()
        harness.timerDue()
        #expect(harness.numbers == [0] && harness.told.isEmpty)
        harness.freeze(1)
        #expect(harness.takeTold() == [.frozen(number: 1, produced: 1)])
        harness.thaw(2, repeating: [0])
        #expect(harness.numbers == [0, 0, 1, 2])
    }

    @Test func refusalCompletesAWaitingFreeze() {
        let harness = open()
        harness.answers = [.queueFull, .queueFull, .noTransaction]
        harness.write(0)
        harness.freeze(1)
        _ = harness.takeTold()
        harness.timerDue()
        #expect(harness.takeTold() == [.refused(number: 1), .frozen(number: 1, produced: 0)])
    }

    @Test func failedRecordPreventsTheFreeze() {
        let harness = open()
        harness.write(0, .change)
        harness.answers = [.failed]
        harness.write(1)
        #expect(harness.takeTold() == [.failed(1)])
        harness.write(2)
        harness.freeze(1)
        harness.timerDue()
        #expect(harness.numbers == [0] && harness.told.isEmpty, "the transaction would be torn")
        let ending = harness.end()
        #expect(ending == ProduceOrder.Ending(produced: 1, changesLeft: 0, isTorn: true))
    }

    @Test func waitingLimitCountsRecordsForTheNextTransaction() {
        let harness = ProduceHarness(isTransactional: true)
        for number in 0..<ProduceOrder.mostWaiting { harness.write(number) }
        #expect(!harness.isBlocked)
        harness.write(-1)
        #expect(harness.isBlocked)
        harness.thaw(1)
        #expect(!harness.isBlocked && harness.takeTold() == [.resumed])
    }

    // MARK: Refused records

    @Test func recordThatIsTooLargeIsProducedWithMoreAndMoreCuts() {
        let harness = open()
        harness.answers = [.tooLarge, .tooLarge, .tooLarge, .queued, .queued, .tooLarge]
        harness.write(0, .deadLetter)
        harness.write(1, .deadLetter)
        harness.write(2)
        #expect(harness.taken.map(\.cuts) == [3, 0, 1])
        harness.freeze(1, atOnce: true)
        harness.thaw(2, repeating: [0])
        #expect(
            harness.taken.map(\.cuts) == [3, 0, 1, 3, 0, 1], "forms that were refused aren't tried again")
        #expect(!harness.told.contains { if case .neverFits = $0 { true } else { false } })
    }

    @Test func refusedRecordsAloneAreRepeatedWithCuts() {
        let harness = open()
        for number in 0..<3 { harness.write(number, .deadLetter) }
        harness.write(3)
        harness.freeze(1, atOnce: true)
        harness.thaw(
            2, repeating: [0],
            refused: [
                .init(handle: 1, cuts: 2), .init(handle: 3, cuts: 9), .init(handle: 77, cuts: 1),
            ])
        harness.write(4, .deadLetter)
        #expect(harness.taken.dropFirst(4).map(\.cuts) == [0, 2, 0, 1, 0])
        harness.freeze(2, atOnce: true)
        harness.thaw(3, repeating: [0], refused: [.init(handle: 1, cuts: 1)])
        #expect(harness.taken.dropFirst(9).map(\.cuts) == [0, 2, 0, 1, 0], "cuts are never taken back")
    }

    @Test func recordThatNeverFitsWaitsForTheEndOfItsPartitionAlone() {
        let harness = open()
        harness.write(0, partition: 1)
        harness.answers = [.tooLarge, .tooLarge]
        harness.write(1, partition: 2)
        #expect(harness.takeTold() == [.neverFits(1)])
        harness.write(2, partition: 1)
        harness.flush()
        harness.freeze(1)
        #expect(harness.numbers == [0] && harness.told.isEmpty, "the transaction would be torn")
        harness.freeze(1, atOnce: true)
        harness.endPartition(2)
        harness.thaw(2, repeating: [1])
        #expect(harness.numbers == [0, 0, 2])
        harness.freeze(2)
        #expect(harness.takeTold().contains(.frozen(number: 2, produced: 3)))
    }

    @Test func endOfItsPartitionLetsTheOthersPassARecordThatNeverFits() {
        let harness = open()
        harness.answers = [.tooLarge, .tooLarge]
        harness.write(0, partition: 2)
        harness.write(1, partition: 1)
        harness.endPartition(2)
        #expect(harness.numbers == [1])
    }

    @Test func changeThatIsTooLargeFails() {
        let harness = open()
        harness.answers = [.tooLarge]
        harness.write(0, .change)
        #expect(harness.told == [.failed(0)])
    }

    // MARK: Partitions

    @Test func endedPartitionsRecordsAreDropped() {
        let harness = open()
        harness.write(0, partition: 5)
        harness.write(1, partition: 6)
        harness.freeze(1, atOnce: true)
        harness.write(2, partition: 5)
        harness.write(3, .change, partition: 5)
        harness.write(4, partition: 6)
        _ = harness.takeTold()
        harness.endPartition(5)
        harness.write(5, partition: 5)
        harness.write(6, partition: 5, isJob: false)
        let gaveBack = ProduceAction.gaveBack(partition: 5, wasProduced: false)
        #expect(harness.takeTold() == [gaveBack, gaveBack])
        harness.order.beginPartition(5)
        harness.write(7, partition: 5)
        harness.thaw(2, repeating: [5, 6])
        #expect(harness.numbers == [0, 1, 1, 4, 7])
        harness.freeze(2)
        harness.thaw(3)
        #expect(harness.kept.isEmpty && harness.recordsHeld == 0)
    }

    @Test func droppedRepeatedRecordIsReportedAsProduced() {
        let harness = open()
        harness.write(0)
        harness.freeze(1, atOnce: true)
        harness.answers = [.queueFull]
        harness.thaw(2, repeating: [0])
        _ = harness.takeTold()
        harness.endPartition(0)
        #expect(harness.takeTold() == [.gaveBack(partition: 0, wasProduced: true), .resumed])
        #expect(harness.kept.isEmpty)
    }

    @Test func endOfTheOnlyPartitionCompletesAFreeze() {
        let harness = open()
        harness.answers = [.queueFull, .queueFull]
        harness.write(0, .change, partition: 9)
        harness.freeze(1)
        _ = harness.takeTold()
        harness.endPartition(9)
        #expect(harness.takeTold() == [.frozen(number: 1, produced: 0)])
    }

    @Test func recordsOfPartitionsNoLongerLiveAreDroppedAfterAbort() {
        let harness = open()
        harness.write(0, partition: 1)
        harness.freeze(1, atOnce: true)
        harness.write(1, partition: 1)
        harness.write(2, partition: 2)
        _ = harness.takeTold()
        harness.thaw(2, repeating: [2])
        #expect(harness.numbers == [0, 2])
        #expect(harness.takeTold() == [.gaveBack(partition: 1, wasProduced: false), .resumed])
    }

    @Test(arguments: [0, 63, 64, 65_535] as [UInt16])
    func everyPartitionSlotCanEnd(_ slot: UInt16) {
        let harness = open()
        harness.endPartition(slot)
        harness.write(0, partition: slot)
        harness.write(1, partition: slot ^ 1)
        #expect(harness.numbers == [1])
    }
}
