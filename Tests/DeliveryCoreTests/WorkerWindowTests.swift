import SluiceModel
import Testing

@testable import DeliveryCore

/// Records beyond the window of offsets, and the reports of a partition.
@Suite struct WorkerWindowTests {
    /// Offset far beyond the window.
    private static let far: Int64 = 1 << 30

    private func handed(_ emitted: [WorkerAction]) -> [UInt] {
        emitted.compactMap { if case .hand(let handle, _, _, _, _) = $0 { handle } else { nil } }
    }

    @Test func heldRecordIsHandedOverWhenTheWatermarkMoves() {
        let script = WorkerScript()
        script.assign([0])
        _ = script.take(0)
        #expect(script.take(Self.far) == .deferred)
        #expect(handed(script.deliver(0)) == [UInt(Self.far) + 1])
    }

    /// A record that is held back keeps its own bytes alone, and the owner has another handle of the copy.
    @Test func heldRecordIsHandedOverUnderTheHandleOfItsCopy() {
        let script = WorkerScript()
        script.assign([0])
        _ = script.take(0)
        #expect(script.take(Self.far) == .deferred)
        #expect(script.passTicks(11).contains(.copyDeferred))
        script.apply { machine, _ in machine.replaceDeferredHandles { $0 + 1_000_000 } }
        #expect(handed(script.deliver(0)) == [UInt(Self.far) + 1_000_001])
    }

    /// The job takes room until its item leaves memory, although the store has it.
    @Test func heldRecordIsHandedOverWhenAJobIsFreed() {
        let script = WorkerScript(.local, jobs: 1)
        script.assign([0])
        _ = script.take(0)
        #expect(script.take(Self.far) == .deferred)
        var stored = ShardProgress()
        stored.completed = [.init(place: RecordPlace(partitionSlot: 0, offset: 0), isRepeated: false)]
        #expect(handed(script.report(0, .progress(stored))).isEmpty, "the job takes all the room")
        var freed = ShardProgress()
        freed.freed = [0: 1]
        #expect(handed(script.report(0, .progress(freed))) == [UInt(Self.far) + 1])
    }

    /// The window has room again, and the limit has none.
    @Test func laterRecordDoesNotOvertakeAHeldOne() {
        let script = WorkerScript(.local, jobs: 1)
        script.assign([0])
        _ = script.take(0)
        #expect(script.take(Self.far) == .deferred)
        var stored = ShardProgress()
        stored.completed = [.init(place: RecordPlace(partitionSlot: 0, offset: 0), isRepeated: false)]
        script.report(0, .progress(stored))
        #expect(script.take(Self.far + 1) == .deferred)
        var freed = ShardProgress()
        freed.freed = [0: 1]
        #expect(handed(script.report(0, .progress(freed))) == [UInt(Self.far) + 1])
    }

    @Test func pauseForTheWindowIsCountedAndNoted() {
        let script = WorkerScript()
        script.assign([0])
        _ = script.take(0)
        _ = script.take(Self.far)
        let polled = script.apply { machine, _ in machine.polled(2, bytes: 200) }
        #expect(polled.contains(.note(.pausedForWindow(0, watermark: 0, finishedAbove: 0))))
        #expect(polled.contains(.pause([0])))
        #expect(script.read { $0.counters.partitionPauses } == 1)
    }

    /// Nothing can be committed until the producer has its identifier.
    @Test(arguments: [TransactionCycle.Failure.retriable(KafkaFault("away", .retriable)), nil])
    func pushesBeginOnceTheProducerHasItsIdentifier(failure: TransactionCycle.Failure?) {
        let script = WorkerScript(.transactions)
        script.assign([0])
        script.step(.initialize, failure)
        for _ in 0..<600 {
            script.apply { $0.countPushes(ended: 0, records: 0, unreported: 0, at: $1) }
            script.passTicks(1)
        }
        #expect(script.read { $0.arePushesHeld } == (failure != nil))
    }

    @Test func partitionWithoutOutstandingRecordsReportsNoAge() {
        let script = WorkerScript()
        script.assign([0])
        func age() -> [Duration] {
            script.machine.partitionReports(topic: "jobs", at: script.now).map(\.headOfLineAge)
        }
        #expect(age() == [.zero])
        _ = script.take(0)
        #expect(age() == [.zero])
        script.pass(3 * WorkerScript.second)
        #expect(age() == [.seconds(3)])
        script.deliver(0)
        #expect(age() == [.zero])
    }

    /// After a crash, the store would restore only the device's older push.
    @Test func laterOffsetWaitsForItsDevicesStoredRemoval() throws {
        let script = WorkerScript(.local)
        script.assign([0])
        _ = script.take(0)
        _ = script.take(1)
        func watermark() -> Int64? {
            script.machine.partitionReports(topic: "jobs", at: script.now).first?.watermark
        }
        let place = RecordPlace(partitionSlot: 0, offset: 0)
        var stored = ShardProgress()
        stored.completed = [.init(place: place, isRepeated: false)]
        script.report(0, .progress(stored))
        let ended = script.deliver(0, isStored: true, isOffsetDone: true)
        #expect(ended.isEmpty, "the offset was already complete")
        script.deliver(1)
        #expect(watermark() == 1)
        script.pass(WorkerScript.second)
        script.tick()
        script.flushAll()
        let synced = script.apply { $0.synced(isDone: true, at: $1) }
        let commit = try #require(synced.compactMap(\.commit).first)
        let committed = script.apply { $0.committed(commit.ticket, fault: nil, at: $1) }
        #expect(committed.contains(.request(shard: 0, .remove([EndedItem(device: 5, place: place)]))))
        var removed = ShardProgress()
        removed.removed = [.init(place: place, device: DeviceKey(high: 0, low: 5))]
        script.report(0, .progress(removed))
        #expect(watermark() == 2)
    }
}
