import SluiceModel
import Testing

@testable import DeliveryCore

/// Records that wait for room, and records of a transaction whose partition is lost.
@Suite struct HeldRecordTests {
    @Test func recordBehindOneThatIsHeldAgainIsHandedOverAfterIt() {
        // Each offset but the last is beyond the window of the one before.
        let (first, second): (Int64, Int64) = (1 << 30, 1 << 31)
        let third = second + 1
        let script = WorkerScript()
        script.assign([0])
        _ = script.take(0)
        for offset in [first, second, third] { #expect(script.take(offset) == .deferred) }
        #expect(handed(script.deliver(0)) == [UInt(first) + 1])
        #expect(handed(script.deliver(first)) == [UInt(second) + 1, UInt(third) + 1])
    }

    @Test func transactionWithRecordsOfALostPartitionIsAborted() {
        let script = WorkerScript(.transactions)
        script.step(.initialize)
        script.step(.begin)
        script.assign([0])
        _ = script.take(0)
        script.deliver(0)
        let lost = script.apply { $0.revoked([0], isLost: true, at: $1) }
        #expect(lost.compactMap(\.request).contains(.freeze(number: 1, atOnce: true)))
        #expect(script.freezeAll(1, produced: 1).contains(.step(.abort)))
    }

    private func handed(_ emitted: [WorkerAction]) -> [UInt] {
        emitted.compactMap { if case .hand(let handle, _, _, _, _) = $0 { handle } else { nil } }
    }
}
