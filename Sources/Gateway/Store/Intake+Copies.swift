import EventLoop
import Logging
import RetryStore

/// Copies in the store of partitions that this worker doesn't have. A partition that comes back soon is restored from its
/// copy on. Older copies take room, and keep payloads that may have been sent long ago.
struct OldCopies {
    /// Milliseconds after which a copy is of no use.
    var longestAbsence = HandOff.longestAbsence
    var nextLook = MonotonicTime(nanoseconds: 0)
    /// Set while the store drops some.
    var isDropping = false
    /// Says that the last look left something to drop.
    var mustLook = false

    static let interval: Duration = .seconds(1)
    /// Most partitions to drop at once, as the store's thread does nothing else meanwhile.
    static let mostAtOnce = 8
}

extension Intake {
    /// Partitions whose part of the store has to stay: this worker's, and those on their way here.
    var keptPartitions: Set<Int32> {
        var kept = Set(handOff.stages.keys)
        for place in partitions.places { kept.insert(partitions[place].topicPartition.partition) }
        for assigned in pendingAssignment ?? [] { kept.insert(assigned.partition) }
        return kept
    }

    /// Has the store drop copies that no partition will be restored from. Called with each tick.
    func dropOldCopies() {
        guard let store, store.isCopy, !oldCopies.isDropping, loop.now >= oldCopies.nextLook
        else { return }
        oldCopies.nextLook = loop.now + OldCopies.interval
        let kept = keptPartitions
        // Files of a copy go with its last handle.
        for partition in openedStores.keys where !kept.contains(partition) { openedStores[partition] = nil }
        guard oldCopies.mustLook || store.partitions.contains(where: { !kept.contains($0.number) }) else {
            return
        }
        oldCopies.isDropping = true
        // Partitions that are assigned from here on are opened after the drop.
        store.dropCopies(
            except: kept, at: wallClockMilliseconds(), longestAbsence: oldCopies.longestAbsence,
            atMost: OldCopies.mostAtOnce
        ) { [self] result in
            loop.execute { [self] in droppedCopies(result) }
        }
    }

    private func droppedCopies(_ result: Result<DroppedCopies, RetryStoreError>) {
        oldCopies.isDropping = false
        switch result {
        case .success(let dropped):
            oldCopies.mustLook = dropped.areMore
            if dropped.areMore { oldCopies.nextLook = loop.now }
            guard !dropped.partitions.isEmpty else { return }
            logger.info(
                "old local copies dropped",
                metadata: ["partitions": "\(dropped.partitions.map { "\($0)" }.joined(separator: ","))"])
        case .failure(let error):
            oldCopies.mustLook = true
            logger.warning(
                "old local copies can't be dropped; they are tried again", metadata: ["error": "\(error)"])
        }
    }
}
