import DeliveryCore
import Testing

struct DeferredDeletesTests {
    private typealias Action = DeferredDeletes.Action

    private func actions(_ order: inout DeferredDeletes) -> [Action] {
        var actions: [Action] = []
        while let action = order.nextAction() { actions.append(action) }
        return actions
    }

    private func place(_ offset: Int64, slot: UInt16 = 0) -> RecordPlace {
        RecordPlace(partitionSlot: slot, offset: offset)
    }

    private func item(_ device: UInt64, _ offset: Int64, slot: UInt16 = 0) -> EndedItem {
        EndedItem(device: device, place: place(offset, slot: slot))
    }

    private func stored(_ device: UInt64, _ offset: Int64, _ order: inout DeferredDeletes) -> Bool {
        order.acknowledged(item(device, offset), isStored: true, completes: false)
    }

    private func plain(_ device: UInt64, _ offset: Int64, _ order: inout DeferredDeletes) -> Bool {
        order.acknowledged(item(device, offset), isStored: false, completes: true)
    }

    private func commit(_ order: inout DeferredDeletes) { order.commitTaken(order.commitIssued()) }

    @Test func offsetsWithoutStoredPushesCompleteAtOnce() {
        var order = DeferredDeletes()
        for offset in Int64(0)..<5 {
            let isComplete = plain(1, offset, &order)
            #expect(isComplete)
        }
        let isCompleteAlready = order.acknowledged(item(1, 5), isStored: false, completes: false)
        #expect(!isCompleteAlready)
        #expect(order.isEmpty == true)
        #expect(order.needsCommit == false)
        commit(&order)
        #expect(actions(&order).isEmpty)
    }

    @Test func removalWaitsForCommitIssuedAfterItsAcknowledgement() {
        var order = DeferredDeletes()
        let early = order.commitIssued()
        let isComplete = stored(1, 10, &order)
        #expect(!isComplete)
        #expect(order.needsCommit == true, "the commit under way was issued earlier")
        order.commitTaken(early)
        #expect(actions(&order).isEmpty)
        #expect(order.needsCommit == true)
        let lost = order.commitIssued()
        #expect(order.needsCommit == false)
        order.commitFailed(lost)
        #expect(order.needsCommit == true)
        let isAwaited = order.removed(item(1, 10))
        #expect(!isAwaited, "its removal wasn't requested")
        commit(&order)
        #expect(actions(&order) == [.remove(item(1, 10))])
        #expect(order.needsCommit == false)
        #expect(order.removals == 1)
        let isForeign = !order.removed(item(1, 9)) && !order.removed(item(2, 10))
        #expect(isForeign)
        let isRemoved = order.removed(item(1, 10))
        #expect(isRemoved)
        #expect(order.isEmpty == true)
        #expect(order.removals == 0)
    }

    /// Offsets behind a removal wait for it, but offsets of other devices don't. Later removals wait for a commit that
    /// covers these offsets.
    @Test func laterOffsetsOfDeviceWaitForEarlierRemovals() {
        var order = DeferredDeletes()
        _ = stored(1, 10, &order)
        let waits = !plain(1, 11, &order) && !plain(1, 12, &order)
        #expect(waits)
        let isIndependent = plain(2, 13, &order)
        #expect(isIndependent)
        _ = stored(1, 14, &order)
        _ = plain(1, 15, &order)
        #expect(order.completions == 3)
        commit(&order)
        #expect(actions(&order) == [.remove(item(1, 10))])
        #expect(order.needsCommit == false, "removals behind the offsets must wait")
        let early = order.commitIssued()
        order.removed(item(1, 10))
        #expect(actions(&order) == [.complete(place(11)), .complete(place(12))])
        #expect(order.needsCommit == true)
        order.commitTaken(early)
        #expect(actions(&order).isEmpty, "the offsets weren't in that commit")
        commit(&order)
        #expect(actions(&order) == [.remove(item(1, 14))])
        order.removed(item(1, 14))
        #expect(actions(&order) == [.complete(place(15))])
        #expect(order.isEmpty == true)
    }

    @Test func oneCommitReleasesAllWaitingRemovals() {
        var order = DeferredDeletes()
        for offset in Int64(0)..<300 { _ = stored(UInt64(offset / 3), offset, &order) }
        commit(&order)
        #expect(
            actions(&order) == (0..<300).map { .remove(item(UInt64($0 / 3), $0)) })
        let isNext = order.removed(item(0, 1))
        #expect(!isNext, "a device's removals keep their order")
        for offset in Int64(0)..<300 {
            let isAwaited = order.removed(item(UInt64(offset / 3), offset))
            #expect(isAwaited)
        }
        #expect(order.isEmpty == true)
    }

    /// The push ends while the store writes it. Its outcome completes the offset, and the store must still remove
    /// the item.
    @Test func pushEndedWhileBeingStoredCompletesOffsetBeforeRemoval() {
        var order = DeferredDeletes()
        let isComplete = order.acknowledged(item(1, 10), isStored: true, completes: true)
        #expect(isComplete)
        let waits = !order.acknowledged(item(1, 11), isStored: true, completes: true)
        #expect(waits)
        commit(&order)
        #expect(actions(&order) == [.remove(item(1, 10))])
        order.removed(item(1, 10))
        #expect(actions(&order) == [.complete(place(11))])
        commit(&order)
        #expect(actions(&order) == [.remove(item(1, 11))])
    }

    /// After a token change a device has pushes of several partitions. The newer push may not be done before the older
    /// push has left the store.
    @Test func chainSpansPartitions() {
        var order = DeferredDeletes()
        _ = stored(1, 10, &order)
        let isComplete = order.acknowledged(item(1, 3, slot: 1), isStored: false, completes: true)
        #expect(!isComplete)
        commit(&order)
        #expect(actions(&order) == [.remove(item(1, 10))])
        order.removed(item(1, 10))
        #expect(actions(&order) == [.complete(place(3, slot: 1))])
    }

    @Test func endOfPartitionReleasesTheOthers() {
        var order = DeferredDeletes()
        _ = stored(1, 10, &order)
        _ = order.acknowledged(item(1, 3, slot: 1), isStored: false, completes: true)
        _ = plain(1, 11, &order)
        _ = order.acknowledged(item(1, 4, slot: 1), isStored: true, completes: false)
        #expect(order.has(0) && order.has(1))
        #expect(order.removeAll(0) == 1)
        #expect(!order.has(0) && order.has(1))
        #expect(actions(&order) == [.complete(place(3, slot: 1))])
        commit(&order)
        #expect(actions(&order) == [.remove(item(1, 4, slot: 1))])
        order.removed(item(1, 4, slot: 1))
        #expect(order.isEmpty == true)
    }

    @Test func endOfPartitionDiscardsPendingRemovalsAndCompletions() {
        var order = DeferredDeletes()
        _ = stored(1, 10, &order)
        _ = plain(1, 11, &order)
        _ = stored(2, 12, &order)
        let old = order.commitIssued()
        _ = stored(3, 13, &order)
        #expect(order.removeAll(0) == 1)
        #expect(order.isEmpty == true)
        #expect(order.needsCommit == false)
        #expect(order.removals + order.completions == 0)
        let isComplete = plain(1, 10, &order)
        #expect(isComplete)
        _ = stored(1, 11, &order)
        order.commitTaken(old)
        #expect(actions(&order).isEmpty)
        commit(&order)
        #expect(actions(&order) == [.remove(item(1, 11))])
    }
}
