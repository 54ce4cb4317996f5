import DeliveryCore
import EventLoop
import Kafka
import Logging
import RetryStore
import SluiceModel

/// Partitions on their way to this worker: their part of the store is opened, and brought up to date from the changelog.
struct HandOff {
    /// Until their tombstones may be gone, in milliseconds: who was away for longer begins anew. Well below what the
    /// changelog topic must keep (``KafkaSetup``).
    static let longestAbsence: Int64 = 1_800_000

    enum Stage: Equatable {
        case opening
        case restoring
        /// Up to date with the changelog up to this offset, where there is one.
        case ready(Int64)
    }

    var stages: [Int32: Stage] = [:]
    /// Of those that are ready.
    var marks: [Int32: [StoreMark]] = [:]
    /// To be opened, some at once.
    var line: [Int32] = []
    /// The store is opening partitions. It outlives a hand-off that is given up.
    var isOpening = false

    /// Of partitions that are opened together: the store's thread does nothing else meanwhile, for a tenth of a second.
    static let mostAtOnce = 32

    init(isOpening: Bool = false) { self.isOpening = isOpening }

    var isReady: Bool {
        stages.values.allSatisfy { if case .ready = $0 { true } else { false } }
    }
}

extension Intake {
    // MARK: Taking over

    /// Prepares the store's part of the assigned partitions, then answers the assignment.
    func prepareAssignment() {
        guard let store else { return answerAssignment() }
        guard let pendingAssignment else { return }
        let assigned = Set(pendingAssignment.map(\.partition))
        let gone = handOff.stages.keys.filter { !assigned.contains($0) }
        for partition in gone { handOff.stages[partition] = nil }
        if !gone.isEmpty { restorer?.cancel(gone) }
        if restorer != nil, !handOff.isReady || handOff.stages.isEmpty {
            // Kafka waits there for the transactions of those who had the partitions: what they changed counts.
            do throws(KafkaError) {
                _ = try consumer.committed(pendingAssignment, timeoutMilliseconds: takeOverPatience)
            } catch {
                return takeOverFailed(error)
            }
        }
        let new = assigned.filter { handOff.stages[$0] == nil }.sorted()
        if restorer != nil, !new.isEmpty {
            logger.info(
                "partitions come; what is held is restored first",
                metadata: ["partitions": "\(new.map { "\($0)" }.joined(separator: ","))"])
        }
        for partition in new {
            handOff.stages[partition] = .opening
            if restorer == nil { open(partition, store) } else { handOff.line.append(partition) }
        }
        openCopies()
        answerWhenReady()
    }

    private func answerWhenReady() {
        guard phase == .running, let pendingAssignment, handOff.isReady,
            pendingAssignment.allSatisfy({ handOff.stages[$0.partition] != nil })
        else { return }
        answerAssignment()
    }

    /// The assignment is answered.
    func handedOff() {
        for (partition, stage) in handOff.stages {
            if case .ready(let position) = stage { changelogEnds[partition] = position }
        }
        handOff = HandOff(isOpening: handOff.isOpening)
    }

    private func open(_ partition: Int32, _ store: RetryStore) {
        store.open(partition: partition) { [self] result in
            loop.execute { [self] in opened(partition, result) }
        }
    }

    private func opened(_ partition: Int32, _ result: Result<StorePartition, RetryStoreError>) {
        guard handOff.stages[partition] == .opening else { return }
        switch result {
        case .failure:
            // The timer tries again.
            handOff.stages[partition] = nil
        case .success(let handle):
            openedStores[partition] = handle
            loadMarks(handle, position: 0)
        }
    }

    private func openCopies() {
        guard let store, !handOff.isOpening else { return }
        // A partition can be in line more than once.
        let wanted = Set(handOff.line.filter { handOff.stages[$0] == .opening }).sorted()
        let next = Array(wanted.prefix(HandOff.mostAtOnce))
        handOff.line = Array(wanted.dropFirst(HandOff.mostAtOnce))
        guard !next.isEmpty else { return }
        handOff.isOpening = true
        for partition in next { openedStores[partition] = nil }
        let oldest = wallClockMilliseconds() - HandOff.longestAbsence
        store.openCopies(partitions: next, reachedAfter: oldest) { [self] result in
            loop.execute { [self] in openedCopies(next, result) }
        }
    }

    private func openedCopies(_ partitions: [Int32], _ result: Result<[PartitionCopy], RetryStoreError>) {
        handOff.isOpening = false
        switch result {
        case .failure:
            // The timer tries again.
            for partition in partitions where handOff.stages[partition] == .opening {
                handOff.stages[partition] = nil
            }
        case .success(let copies):
            let starts = copies.filter { handOff.stages[$0.handle.number] == .opening }.map(begin)
            if !starts.isEmpty { restorer?.restore(starts) }
        }
        openCopies()
    }

    private func begin(_ copy: PartitionCopy) -> ChangelogRestorer.Start {
        let partition = copy.handle.number
        openedStores[partition] = copy.handle
        handOff.stages[partition] = .restoring
        if let position = copy.position {
            logger.info(
                "restoring from the local copy on",
                metadata: ["partition": "\(partition)", "position": "\(position.offset)"])
        }
        return ChangelogRestorer.Start(handle: copy.handle, position: copy.position?.offset)
    }

    /// The local copy is of no use: an empty one takes its place, as its position is taken.
    private func beginAnew(_ partition: Int32) {
        handOff.stages[partition] = .opening
        handOff.line.append(partition)
        openCopies()
    }

    func take(_ news: ChangelogRestorer.News) {
        switch news {
        case .restored(let handle, let position):
            let partition = handle.number
            // It may have been taken away meanwhile, and come again.
            guard handOff.stages[partition] == .restoring, openedStores[partition] === handle else { return }
            logger.info("restored", metadata: ["partition": "\(partition)", "position": "\(position)"])
            loadMarks(handle, position: position)
        case .outOfRange(let partition):
            logger.warning(
                "the local copy is older than the changelog; it begins anew",
                metadata: ["partition": "\(partition)"])
            if handOff.stages[partition] == .restoring { beginAnew(partition) }
        case .interrupted(let partition, let error):
            counters.kafkaErrors += 1
            logger.warning(
                "Kafka doesn't answer for a partition of the changelog; it is restored again in a second",
                metadata: ["partition": "\(partition)", "error": "\(error)"])
            // The timer tries again.
            if handOff.stages[partition] == .restoring { handOff.stages[partition] = nil }
        case .troubled(let error, let place):
            counters.kafkaErrors += 1
            logger.warning(
                "restoring from the changelog; tried again",
                metadata: ["at": "\(place)", "error": "\(error)"])
        case .failed(let text, let error):
            counters.kafkaErrors += 1
            return fail(text, error)
        }
    }

    /// The last thing before the partition's records are taken: which of these have items under other tokens.
    private func loadMarks(_ handle: StorePartition, position: Int64) {
        store?.loadMarks(of: handle) { [self] result in
            loop.execute { [self] in tookMarks(handle, position: position, result) }
        }
    }

    private func tookMarks(
        _ handle: StorePartition, position: Int64, _ result: Result<[StoreMark], RetryStoreError>
    ) {
        // It may have been taken away meanwhile, and come again.
        guard handOff.stages[handle.number] == (restorer == nil ? .opening : .restoring),
            openedStores[handle.number] === handle
        else { return }
        switch result {
        case .failure: handOff.stages[handle.number] = nil
        case .success(let marks):
            handOff.marks[handle.number] = marks
            handOff.stages[handle.number] = .ready(position)
            answerWhenReady()
        }
    }

    // MARK: Giving up

    /// The group takes partitions away that were on their way here.
    func cancelHandOff() {
        guard !handOff.stages.isEmpty else { return }
        restorer?.cancel(Array(handOff.stages.keys))
        handOff = HandOff(isOpening: handOff.isOpening)
    }

    /// What is here of these partitions is up to date with the changelog: whoever gets them back here needs only what
    /// comes after. All is committed. Done when the store is closed at the latest.
    func checkpoint(_ places: [Int]) {
        guard let store, store.isCopy else { return }
        let now = wallClockMilliseconds()
        for place in places {
            guard let handle = partitions[place].store?.handle, let end = changelogEnds[handle.number] else {
                continue
            }
            let position = ChangelogPosition(offset: end, reachedMilliseconds: now)
            store.checkpoint(handle, position: position) { [logger] result in
                guard case .failure(let error) = result else { return }
                logger.warning(
                    "the local copy can't be kept; it is restored from the changelog next time",
                    metadata: ["partition": "\(handle.number)", "error": "\(error)"])
            }
        }
    }
}
