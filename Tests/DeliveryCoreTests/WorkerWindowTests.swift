import SluiceModel
import Testing

@testable import DeliveryCore

/// Records that the window of offsets can't hold, and what is told of a partition.
@Suite struct WorkerWindowTests {
    /// Offset far beyond what the window holds.
    private static let far: Int64 = 1 << 30

    private func handed(_ said: [WorkerAction]) -> [UInt] {
        said.compactMap { if case .hand(let handle, _, _, _, _) = $0 { handle } else { nil } }
    }

    @Test func aRecordIsHeldAndTheWatermarksJobEndsAndTheRecordIsHandedOver() {
        let script = WorkerScript()
        script.assign([0])
        _ = script.take(0)
        #expect(script.take(Self.far) == .deferred)
        #expect(handed(script.deliver(0)) == [UInt(Self.far) + 1])
    }

    /// The job takes room until its item leaves memory, although the store has it.
    @Test func aRecordIsHeldWithoutRoomForJobsAndAJobIsFreedAndTheRecordIsHandedOver() {
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

    @Test func aPartitionHasNoOldRecordAndItsReportHasNoAge() {
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

    /// The store has an older push of the device, which a crash would bring back alone.
    @Test func aStoredPushAwaitsItsRemovalAndALaterOffsetOfItsDeviceWaits() throws {
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
        #expect(ended.isEmpty, "the offset was complete before")
        script.deliver(1)
        #expect(watermark() == 1)
        script.pass(WorkerScript.second)
        script.tick()
        script.flushAll()
        let synced = script.tell { $0.synced(isDone: true, at: $1) }
        let commit = try #require(synced.compactMap(\.commit).first)
        let committed = script.tell { $0.committed(commit.ticket, fault: nil, at: $1) }
        #expect(committed.contains(.request(shard: 0, .remove([EndedItem(device: 5, place: place)]))))
        var removed = ShardProgress()
        removed.removed = [.init(place: place, device: DeviceKey(high: 0, low: 5))]
        script.report(0, .progress(removed))
        #expect(watermark() == 2)
    }
}
