import DeliveryCore
import Testing

struct DeferredDeletesTests {
    private typealias Action = DeferredDeletes.Action

    private func actions(_ order: inout DeferredDeletes) -> [Action] {
        var actions: [Action] = []
        while let action = order.nextAction() { actions.append(action) }
        return actions
    }

    private func stored(_ device: UInt64, _ offset: Int64, _ order: inout DeferredDeletes) -> Bool {
        order.acknowledged(device: device, offset: offset, isStored: true, completes: false)
    }

    private func plain(_ device: UInt64, _ offset: Int64, _ order: inout DeferredDeletes) -> Bool {
        order.acknowledged(device: device, offset: offset, isStored: false, completes: true)
    }

    private func commit(_ order: inout DeferredDeletes) { order.commitTaken(order.commitIssued()) }

    @Test func offsetsWithoutStoredPushesCompleteAtOnce() {
        var order = DeferredDeletes()
        for offset in Int64(0)..<5 {
            let isComplete = plain(1, offset, &order)
            #expect(isComplete)
        }
        let isCompleteAlready = order.acknowledged(device: 1, offset: 5, isStored: false, completes: false)
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
        let isAwaited = order.removed(device: 1, offset: 10)
        #expect(!isAwaited, "its removal wasn't requested")
        commit(&order)
        #expect(actions(&order) == [.remove(device: 1, offset: 10)])
        #expect(order.needsCommit == false)
        #expect(order.removals == 1)
        let isForeign = !order.removed(device: 1, offset: 9) && !order.removed(device: 2, offset: 10)
        #expect(isForeign)
        let isRemoved = order.removed(device: 1, offset: 10)
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
        #expect(actions(&order) == [.remove(device: 1, offset: 10)])
        #expect(order.needsCommit == false, "removals behind the offsets must wait")
        let early = order.commitIssued()
        order.removed(device: 1, offset: 10)
        #expect(actions(&order) == [.complete(11), .complete(12)])
        #expect(order.needsCommit == true)
        order.commitTaken(early)
        #expect(actions(&order).isEmpty, "the offsets weren't in that commit")
        commit(&order)
        #expect(actions(&order) == [.remove(device: 1, offset: 14)])
        order.removed(device: 1, offset: 14)
        #expect(actions(&order) == [.complete(15)])
        #expect(order.isEmpty == true)
    }

    @Test func oneCommitReleasesAllWaitingRemovals() {
        var order = DeferredDeletes()
        for offset in Int64(0)..<300 { _ = stored(UInt64(offset / 3), offset, &order) }
        commit(&order)
        #expect(
            actions(&order) == (0..<300).map { .remove(device: UInt64($0 / 3), offset: $0) })
        let isNext = order.removed(device: 0, offset: 1)
        #expect(!isNext, "a device's removals keep their order")
        for offset in Int64(0)..<300 {
            let isAwaited = order.removed(device: UInt64(offset / 3), offset: offset)
            #expect(isAwaited)
        }
        #expect(order.isEmpty == true)
    }

    /// The push ends while the store writes it. Its outcome completes the offset, and the store must still remove
    /// the item.
    @Test func pushEndedWhileBeingStoredCompletesOffsetBeforeRemoval() {
        var order = DeferredDeletes()
        let isComplete = order.acknowledged(device: 1, offset: 10, isStored: true, completes: true)
        #expect(isComplete)
        let waits = !order.acknowledged(device: 1, offset: 11, isStored: true, completes: true)
        #expect(waits)
        commit(&order)
        #expect(actions(&order) == [.remove(device: 1, offset: 10)])
        order.removed(device: 1, offset: 10)
        #expect(actions(&order) == [.complete(11)])
        commit(&order)
        #expect(actions(&order) == [.remove(device: 1, offset: 11)])
    }

    @Test func removeAllDiscardsPendingRemovalsAndCompletions() {
        var order = DeferredDeletes()
        _ = stored(1, 10, &order)
        _ = plain(1, 11, &order)
        _ = stored(2, 12, &order)
        let old = order.commitIssued()
        _ = stored(3, 13, &order)
        order.removeAll()
        #expect(order.isEmpty == true)
        #expect(order.needsCommit == false)
        #expect(order.removals + order.completions == 0)
        let isComplete = plain(1, 10, &order)
        #expect(isComplete)
        _ = stored(1, 11, &order)
        order.commitTaken(old)
        #expect(actions(&order).isEmpty)
        commit(&order)
        #expect(actions(&order) == [.remove(device: 1, offset: 11)])
    }
}
