/// Partitions on their way to this worker. Each partition's part of the store is opened, and restored from the
/// changelog where there is one. Then the partition's marks (relocation markers) are read.
///
/// A partition can be revoked and assigned again at any time. Each attempt has a ticket, and answers to another ticket
/// are ignored. A step that fails leaves the partition without a stage, or at ``Stage/opened`` when Kafka doesn't
/// answer. ``prepare(_:)`` starts the partition again.
public struct PartitionRestore: Sendable {
    /// Stage of a partition's restore.
    public enum Stage: Sendable, Equatable {
        /// The store opens the partition, or the partition waits for its turn.
        case opening
        /// The copy is open, and nothing counts as read, because Kafka hasn't reported where the changelog's partition
        /// ends.
        case opened
        /// The changelog is being read.
        case restoring
        /// `position`: offset of the changelog up to which the copy is complete.
        case loadingMarks(position: Int64)
        /// The worker can take the partition over. `position`: as for `loadingMarks`; 0 without a changelog.
        case ready(position: Int64)
    }

    /// Attempt to restore a partition on this worker.
    public struct Attempt: Hashable, Sendable {
        /// Kafka's number of the partition.
        public var partition: Int32
        /// Number of the attempt, which no other attempt of this worker has.
        public var ticket: UInt32

        public init(partition: Int32, ticket: UInt32) {
            self.partition = partition
            self.ticket = ticket
        }
    }

    /// Orders to the owner.
    public enum Action: Sendable, Equatable {
        /// Opens the partition's part of the store; ``opened(_:isOpen:)`` follows.
        case open(Attempt)
        /// Opens copies of partitions, all at once; ``openedCopies(_:isOpen:)`` follows.
        case openCopies([Attempt])
        /// Reads the changelog from the copy's position on; ``restored(_:position:)`` or a failure follows.
        case restore([Attempt])
        /// Cancels the restores of revoked partitions. Only with a changelog.
        case cancel([Int32])
        /// ``loadedMarks(_:isLoaded:)`` follows.
        case loadMarks(Attempt)
    }

    private struct Entry: Sendable {
        var ticket: UInt32
        var stage: Stage
    }

    private let hasChangelog: Bool
    private var entries: [Int32: Entry] = [:]
    /// Partitions whose copies are to be opened.
    private var line: [Int32] = []
    /// True while the store opens copies, even after the take-over was given up.
    private var isOpening = false
    private var nextTicket: UInt32 = 0
    private var actions: [Action] = []

    /// Copies that are opened together, at most. Opening them occupies the store's thread for a tenth of a second.
    static let mostAtOnce = 32

    public init(hasChangelog: Bool) { self.hasChangelog = hasChangelog }

    /// Partitions that have a stage, in order.
    public var partitions: [Int32] { entries.keys.sorted() }

    /// Returns the stage of a partition; nil when no restore has begun, or it has failed.
    public func stage(_ partition: Int32) -> Stage? { entries[partition]?.stage }

    /// Returns whether the partition can be taken over.
    public func isReady(_ partition: Int32) -> Bool {
        if case .ready? = entries[partition]?.stage { true } else { false }
    }

    /// Returns orders to the owner; to be drained after every call that isn't a question.
    mutating func takeActions() -> [Action] {
        guard !actions.isEmpty else { return [] }
        let taken = actions
        actions.removeAll(keepingCapacity: true)
        return taken
    }

    // MARK: Events

    /// Starts restores of these partitions as well. Restores that are under way continue.
    mutating func prepare(_ partitions: [Int32]) {
        var starts: [Attempt] = []
        for partition in partitions {
            switch entries[partition]?.stage {
            case nil:
                let attempt = beginAttempt(partition)
                if hasChangelog { line.append(partition) } else { actions.append(.open(attempt)) }
            case .opened?:
                // The copy's position still counts.
                entries[partition]!.stage = .restoring
                starts.append(Attempt(partition: partition, ticket: entries[partition]!.ticket))
            default: break
            }
        }
        if !starts.isEmpty { actions.append(.restore(starts)) }
        openNext()
    }

    private mutating func beginAttempt(_ partition: Int32) -> Attempt {
        nextTicket &+= 1
        entries[partition] = Entry(ticket: nextTicket, stage: .opening)
        return Attempt(partition: partition, ticket: nextTicket)
    }

    private func isCurrent(_ attempt: Attempt, _ stage: Stage) -> Bool {
        guard let entry = entries[attempt.partition] else { return false }
        return entry.ticket == attempt.ticket && entry.stage == stage
    }

    private mutating func openNext() {
        guard !isOpening else { return }
        // A partition can be in line more than once.
        let wanted = Set(line.filter { entries[$0]?.stage == .opening }).sorted()
        let next = wanted.prefix(Self.mostAtOnce)
        line = Array(wanted.dropFirst(Self.mostAtOnce))
        guard !next.isEmpty else { return }
        isOpening = true
        actions.append(.openCopies(next.map { Attempt(partition: $0, ticket: entries[$0]!.ticket) }))
    }

    mutating func opened(_ attempt: Attempt, isOpen: Bool) {
        guard isCurrent(attempt, .opening) else { return }
        guard isOpen else {
            entries[attempt.partition] = nil
            return
        }
        loadMarks(attempt, position: 0)
    }

    mutating func openedCopies(_ attempts: [Attempt], isOpen: Bool) {
        isOpening = false
        var starts: [Attempt] = []
        for attempt in attempts where isCurrent(attempt, .opening) {
            if isOpen {
                entries[attempt.partition]!.stage = .restoring
                starts.append(attempt)
            } else {
                entries[attempt.partition] = nil
            }
        }
        if !starts.isEmpty { actions.append(.restore(starts)) }
        openNext()
    }

    mutating func restored(_ attempt: Attempt, position: Int64) {
        guard isCurrent(attempt, .restoring) else { return }
        loadMarks(attempt, position: position)
    }

    /// Opens an empty copy, because the partition's copy is older than the changelog's first record. The store makes
    /// the copy empty, because opening the old copy has removed its position.
    mutating func copyTooOld(_ attempt: Attempt) {
        guard isCurrent(attempt, .restoring) else { return }
        entries[attempt.partition]!.stage = .opening
        line.append(attempt.partition)
        openNext()
    }

    /// Notes that Kafka doesn't answer for the partition. Records that were read are read again.
    mutating func interrupted(_ attempt: Attempt) {
        if isCurrent(attempt, .restoring) { entries[attempt.partition]!.stage = .opened }
    }

    /// Returns whether the partition's restore has begun and hasn't failed.
    func isUnderWay(_ partition: Int32) -> Bool {
        switch entries[partition]?.stage {
        case nil, .opened?: false
        default: true
        }
    }

    private mutating func loadMarks(_ attempt: Attempt, position: Int64) {
        entries[attempt.partition]!.stage = .loadingMarks(position: position)
        actions.append(.loadMarks(attempt))
    }

    mutating func loadedMarks(_ attempt: Attempt, isLoaded: Bool) {
        guard let entry = entries[attempt.partition], entry.ticket == attempt.ticket,
            case .loadingMarks(let position) = entry.stage
        else { return }
        if isLoaded {
            entries[attempt.partition]!.stage = .ready(position: position)
        } else {
            entries[attempt.partition] = nil
        }
    }

    /// Hands the partition over to the worker.
    /// - Returns: the partition's position in the changelog; nil: the partition wasn't ready.
    mutating func handOver(_ partition: Int32) -> Int64? {
        guard case .ready(let position)? = entries[partition]?.stage else { return nil }
        entries[partition] = nil
        return position
    }

    /// Cancels restores of partitions that the group revokes.
    mutating func cancel(_ partitions: [Int32]) {
        let gone = partitions.filter { entries[$0] != nil }.sorted()
        for partition in gone { entries[partition] = nil }
        if !gone.isEmpty, hasChangelog { actions.append(.cancel(gone)) }
    }
}
