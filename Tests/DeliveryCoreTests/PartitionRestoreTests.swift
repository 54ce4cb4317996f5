import Testing

@testable import DeliveryCore

@Suite struct PartitionRestoreTests {
    private typealias Attempt = PartitionRestore.Attempt

    /// A partition that was revoked during its restore, and was assigned again.
    @Test func answersOfAnEarlierRestoreAttemptAreIgnored() {
        var restore = PartitionRestore(hasChangelog: true)
        let attempts = (UInt32(1)...2).map { Attempt(partition: 4, ticket: $0) }
        for attempt in attempts {
            restore.cancel([4])
            _ = restore.takeActions()
            restore.prepare([4])
            #expect(restore.takeActions() == [.openCopies([attempt])])
            restore.openedCopies([attempt], isOpen: true)
            #expect(restore.takeActions() == [.restore([attempt])])
        }
        restore.restored(attempts[0], position: 7)
        restore.interrupted(attempts[0])
        restore.copyTooOld(attempts[0])
        #expect(restore.takeActions().isEmpty)
        #expect(restore.stage(4) == .restoring)
        restore.restored(attempts[1], position: 7)
        #expect(restore.takeActions() == [.loadMarks(attempts[1])])
    }

    @Test func restoreAnswerOfAReplacedCopyIsIgnored() {
        var restore = PartitionRestore(hasChangelog: true)
        let attempt = Attempt(partition: 4, ticket: 1)
        restore.prepare([4])
        restore.openedCopies([attempt], isOpen: true)
        restore.copyTooOld(attempt)
        _ = restore.takeActions()
        restore.restored(attempt, position: 7)
        #expect(restore.takeActions().isEmpty)
        #expect(restore.stage(4) == .opening)
    }
}
