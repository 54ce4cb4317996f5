import SluiceModel
import Testing

@testable import DeliveryCore

/// Stores that fail for a while.
@Suite struct WorkerStoreFailureTests {
    private func failure(_ emitted: [WorkerAction]) -> WorkerFault? {
        for case .note(.failed(let fault)) in emitted { return fault }
        return nil
    }

    private func script() -> WorkerScript {
        let script = WorkerScript(.local)
        script.assign([0])
        return script
    }

    @Test func aStoreThatNeedsReopeningIsReopenedAfterAWhile() {
        let script = script()
        script.apply { $0.storeFails(true, needsReopening: true, at: $1) }
        #expect(failure(script.passTicks(99)) == nil)
        // Further failures don't prolong the wait.
        script.apply { $0.storeFails(true, needsReopening: true, at: $1) }
        #expect(failure(script.passTicks(2)) == WorkerFault(cause: .store, fault: nil, startsOver: true))
    }

    /// Purges and scans meet errors of their own.
    @Test func anotherErrorChangesNothing() {
        let script = script()
        script.apply { $0.storeFails(true, needsReopening: true, at: $1) }
        script.passTicks(50)
        script.apply { $0.storeFails(true, at: $1) }
        #expect(failure(script.passTicks(49)) == nil)
        #expect(failure(script.passTicks(2))?.cause == .store)
    }

    @Test func aStoreThatWorksAgainStaysOpen() {
        let script = script()
        script.apply { $0.storeFails(true, needsReopening: true, at: $1) }
        script.passTicks(50)
        script.apply { $0.storeFails(false, at: $1) }
        #expect(failure(script.passTicks(300)) == nil)
    }

    /// The consumer's descriptor stays silent for records that arrived meanwhile.
    @Test func aStoreThatWorksAgainHasKafkaPolledAtOnce() {
        let script = script()
        script.apply { $0.storeFails(true, at: $1) }
        #expect(script.apply { $0.storeFails(false, at: $1) }.contains(.poll))
    }

    /// RocksDB resumes by itself when there is room again.
    @Test func aFullDiskIsWaitedFor() {
        let script = script()
        script.apply { $0.storeFails(true, at: $1) }
        #expect(failure(script.passTicks(600)) == nil)
        #expect(script.read { $0.hasStoreFailed })
    }
}
