import DeliveryCore
import Testing

@Suite struct ProduceOrderTests {
    /// A harness in whose first transaction no record was produced yet.
    private func open() -> ProduceHarness {
        let harness = ProduceHarness(isTransactional: true)
        harness.thaw(1)
        _ = harness.takeTold()
        return harness
    }

    // MARK: Without transactions

    @Test func recordsAreProducedOnWriteAndNotKept() {
        let harness = ProduceHarness(isTransactional: false)
        for number in 0..<5_000 { harness.write(number) }
        #expect(harness.numbers == Array(0..<5_000))
        #expect(harness.told.isEmpty && harness.kept.isEmpty)
        #expect(harness.waiting == 0 && harness.recordsHeld == 0)
    }

    @Test func recordsWaitInOrderWhileTheProducerIsFull() {
        let harness = ProduceHarness(isTransactional: false)
        harness.answers = [.queueFull, .queueFull]
        for number in 0..<3 { harness.write(number) }
        #expect(harness.takeTold() == [.armTimer], "one timer for all")
        #expect(harness.isBlocked && harness.waiting == 3)
        harness.timerDue()
        #expect(harness.takeTold() == [.armTimer], "the queue is still full")
        harness.timerDue()
        #expect(harness.numbers == [0, 1, 2])
        #expect(harness.takeTold() == [.resumed])
        #expect(!harness.isBlocked && harness.kept.isEmpty)
    }

    @Test func nothingIsProducedWhileTheMembershipIsInDoubt() {
        let harness = ProduceHarness(isTransactional: false)
        harness.isPermitted = false
        harness.write(0)
        harness.flush()
        #expect(harness.numbers.isEmpty && harness.told.isEmpty)
        harness.isPermitted = true
        harness.write(1)
        #expect(harness.numbers.isEmpty, "not before the waiting record")
        harness.flush()
        #expect(harness.numbers == [0, 1])
        #expect(harness.kept.isEmpty)
    }

    @Test func lostPartitionsRecordsAreAbandoned() {
        let harness = ProduceHarness(isTransactional: false)
        harness.answers = [.queueFull]
        harness.write(0, partition: 3)
        harness.write(1, partition: 4)
        harness.write(2, .change, partition: 3)
        harness.write(3, partition: 3, isJob: false)
        harness.write(4, partition: 3)
        #expect(harness.abandon(3) == 2, "jobs alone are counted")
        #expect(!harness.takeTold().contains { if case .gaveBack = $0 { true } else { false } })
        harness.timerDue()
        #expect(harness.numbers == [1])
        #expect(harness.kept.isEmpty && harness.recordsHeld == 0)
    }

    @Test func failedRecordIsReportedAndSkipped() {
        let harness = ProduceHarness(isTransactional: false)
        harness.answers = [.failed, .queued, .queueFull, .failed]
        for number in 0..<4 { harness.write(number) }
        harness.timerDue()
        #expect(harness.numbers == [1, 3])
        #expect(harness.told == [.failed(0), .resumed, .armTimer, .failed(2), .resumed])
        #expect(harness.kept.isEmpty && harness.waiting == 0)
    }

    @Test func recordThatNeverFitsIsReportedAndSkipped() {
        let harness = ProduceHarness(isTransactional: false)
        harness.answers = [.tooLarge, .tooLarge, .queued, .tooLarge, .tooLarge, .tooLarge, .tooLarge]
        for number in 0..<2 { harness.write(number) }
        harness.write(2, .deadLetter)
        harness.write(3)
        #expect(harness.numbers == [1, 3] && harness.taken.allSatisfy { $0.cuts == 0 })
        #expect(
            harness.told.filter { $0 != .resumed } == [.neverFits(0), .neverFits(2)], "\(harness.told)")
        #expect(harness.kept.isEmpty && harness.waiting == 0)
    }

    @Test func outcomeThatIsTooLargeIsProducedInItsPlaceWithACut() {
        let harness = ProduceHarness(isTransactional: false)
        harness.answers = [.queued, .tooLarge]
        for number in 0..<3 { harness.write(number) }
        #expect(harness.numbers == [0, 1, 2] && harness.taken.map(\.cuts) == [0, 1, 0])
        #expect(harness.kept.isEmpty && harness.waiting == 0)
    }

    @Test func ticketIsReleasedWhenEarlierRecordsAreProduced() {
        let harness = ProduceHarness(isTransactional: false)
        harness.afterThis(1)
        #expect(harness.takeTold() == [.released(ticket: 1)])
        harness.answers = [.queueFull, .queued, .queueFull]
        harness.write(0)
        harness.afterThis(2)
        harness.write(1)
        harness.afterThis(3)
        _ = harness.takeTold()
        harness.timerDue()
        #expect(harness.takeTold() == [.released(ticket: 2), .armTimer])
        harness.timerDue()
        #expect(harness.takeTold() == [.resumed, .released(ticket: 3)])
    }

    @Test func freezeAndThawAreIgnoredWithoutTransactions() {
        let harness = ProduceHarness(isTransactional: false)
        harness.freeze(1)
        harness.thaw(1)
        harness.write(0)
        #expect(harness.numbers == [0] && harness.told.isEmpty)
    }

    @Test func endedPartitionsRecordsAreGivenBackWithoutTransactions() {
        let harness = ProduceHarness(isTransactional: false)
        harness.endPartition(0)
        harness.write(0)
        #expect(harness.numbers == [])
        #expect(harness.takeTold() == [.gaveBack(partition: 0, wasProduced: false)])
    }

    // MARK: Tickets and the end

    @Test func ticketIsReleasedWhenEarlierRecordsAreCommitted() {
        let harness = open()
        harness.write(0)
        harness.afterThis(1)
        harness.freeze(1, atOnce: true)
        harness.write(1)
        harness.afterThis(2)
        harness.thaw(2, repeating: [0])
        _ = harness.takeTold()
        harness.freeze(2)
        harness.write(2)
        harness.afterThis(3)
        harness.thaw(3)
        #expect(
            harness.takeTold() == [
                .frozen(number: 2, produced: 3), .released(ticket: 1), .released(ticket: 2), .resumed,
            ])
        harness.freeze(3)
        harness.thaw(4)
        #expect(harness.takeTold().contains(.released(ticket: 3)))
    }

    @Test func endReportsRemainingChangesAndTornTransaction() {
        let harness = open()
        harness.write(0)
        harness.answers = [.queueFull]
        harness.write(1)
        harness.write(2, .change)
        #expect(harness.end() == ProduceOrder.Ending(produced: 1, changesLeft: 1, isTorn: true))
        _ = harness.takeTold()
        harness.timerDue()
        harness.freeze(1)
        harness.thaw(2)
        harness.write(3)
        harness.endPartition(0)
        #expect(harness.numbers == [0] && harness.told.isEmpty)
    }

    @Test func recordsForTheNextTransactionDoNotTearTheCurrent() {
        let harness = open()
        harness.write(0)
        harness.freeze(1)
        harness.write(1, .change)
        #expect(harness.end() == ProduceOrder.Ending(produced: 1, changesLeft: 1, isTorn: false))
    }

    @Test func nothingIsProducedAfterTheEndWithoutTransactions() {
        let harness = ProduceHarness(isTransactional: false)
        harness.answers = [.queueFull]
        harness.write(0, .change)
        #expect(harness.end() == ProduceOrder.Ending(produced: 0, changesLeft: 1, isTorn: false))
        harness.timerDue()
        harness.write(1)
        #expect(harness.numbers.isEmpty)
    }

    @Test func unexpectedAnswersChangeNothing() {
        let harness = open()
        harness.write(0)
        let isKept = harness.order.answered(0, .queued)
        let isUnknown = harness.order.answered(7, .failed)
        #expect(isKept && !isUnknown)
        #expect(harness.retained == 1 && harness.waiting == 0)
    }
}
