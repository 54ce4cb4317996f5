/// Assigned partitions that aren't read yet. Each partition arrives by itself: a partition that is held up delays no
/// other.
///
/// ```
///     assigned ─▶ awaitingFormerOwners ─▶ restoring ─▶ fetching ─▶ read
/// ```
///
/// Without a changelog the first stage is omitted, without a store the second as well. A partition stays in the last stage
/// while nothing explains that the group's offset lies beyond its log's end (``LogEvidence``). Times are nanoseconds of a
/// monotonic clock.
struct PartitionArrivals: Sendable {
    enum Stage: UInt8, CaseIterable, Sendable {
        /// Kafka answers when the former owner's transactions have ended, because their changes count.
        case awaitingFormerOwners
        case restoring
        /// The offset to begin with is asked for.
        case fetching
    }

    /// Question to Kafka for committed offsets, of which at most one is open.
    struct Question: Sendable, Equatable {
        var ticket: UInt64
        var partitions: [Int32]
        /// True: the ends of the logs are needed, too. An offset beyond a log's end, and items that the store has there,
        /// are of an earlier or a longer log.
        var wantsLogEnds: Bool
        /// Milliseconds that Kafka has for the answer. Closing the clients waits for an open question.
        var patienceMilliseconds: Int32
    }

    enum Answer: Sendable, Equatable {
        /// The question is forgotten.
        case stale
        /// These partitions are asked for again.
        case failed([Int32])
        /// Partitions continue with their restore.
        case settled
        /// These partitions can be read.
        case offsets([FetchedOffset])
    }

    private struct Entry: Sendable {
        var stage: Stage
        /// Number of the assignment. An answer for an earlier assignment is void.
        var number: UInt64
        /// Earliest time of the next attempt, in nanoseconds.
        var nextAttempt: UInt64
        /// Failed attempts in a row, in this stage.
        var failures = 0
    }

    private struct Open: Sendable {
        var ticket: UInt64
        var stage: Stage
        var asked: [(partition: Int32, number: UInt64)]
    }

    private let mode: StoreMode
    private var entries: [Int32: Entry] = [:]
    private var open: Open?
    private var nextNumber: UInt64 = 0
    private var nextTicket: UInt64 = 0
    /// Partitions of one question, at most. A question that failed is asked in parts, because Kafka answers for none
    /// while it can't answer for one.
    private var mostAsked = Int.max
    /// Failed questions in a row.
    private var failures = 0
    /// Group's offsets that nothing explains, by partition. A log that grows beyond such an offset explains nothing.
    private var unexplained: [Int32: Int64] = [:]
    /// Partitions that an answer has left in the last stage for this reason.
    private var unexplainedNews: [FetchedOffset] = []

    /// Nanoseconds between two looks at an offset that nothing explains.
    static let unexplainedDelay: UInt64 = 10_000_000_000

    init(mode: StoreMode) { self.mode = mode }

    var isEmpty: Bool { entries.isEmpty }
    var count: Int { entries.count }
    var partitions: [Int32] { entries.keys.sorted() }

    // MARK: Coming and going

    /// Adds partitions that the group has assigned. Partitions that are arriving already begin anew.
    mutating func add(_ partitions: [Int32], at now: UInt64) {
        let stage: Stage =
            mode.hasChangelog ? .awaitingFormerOwners : mode.hasStore ? .restoring : .fetching
        for partition in partitions {
            nextNumber += 1
            entries[partition] = Entry(stage: stage, number: nextNumber, nextAttempt: now)
        }
    }

    /// Adds partitions anew, a little later, because the client has refused to read them.
    mutating func refused(_ partitions: [Int32], at now: UInt64) {
        add(partitions, at: now + Self.delay(0))
    }

    /// Removes partitions that the group revokes.
    mutating func remove(_ partitions: [Int32]) {
        for partition in partitions { entries[partition] = nil }
    }

    // MARK: Questions

    /// Returns the question to ask now; nil: a question is open, or none is due.
    mutating func nextQuestion(at now: UInt64) -> Question? {
        guard open == nil, !entries.isEmpty else { return nil }
        var due = entries.filter { $0.value.stage != .restoring && $0.value.nextAttempt <= now }
        guard !due.isEmpty else { return nil }
        // Partitions that have failed by themselves delay no other.
        let others = due.filter { $0.value.failures == 0 }
        if !others.isEmpty { due = others }
        // Partitions in the last stage go first.
        let stage: Stage =
            due.values.contains { $0.stage == .fetching } ? .fetching : .awaitingFormerOwners
        let asked = due.filter { $0.value.stage == stage }
            .sorted { ($0.value.nextAttempt, $0.key) < ($1.value.nextAttempt, $1.key) }
            .prefix(mostAsked)
            .map { (partition: $0.key, number: $0.value.number) }
            .sorted { $0.partition < $1.partition }
        nextTicket += 1
        open = Open(ticket: nextTicket, stage: stage, asked: asked)
        return Question(
            ticket: nextTicket, partitions: asked.map(\.partition),
            wantsLogEnds: stage == .fetching,
            patienceMilliseconds: failures < 4 ? 1_500 : 4_000)
    }

    /// - Parameter offsets: the group's offsets; nil: Kafka hasn't answered. Where log ends are wanted, partitions
    ///   without them stay.
    mutating func answered(_ ticket: UInt64, _ offsets: [FetchedOffset]?, at now: UInt64) -> Answer {
        guard let question = open, question.ticket == ticket else { return .stale }
        open = nil
        let current = question.asked.filter { entries[$0.partition]?.number == $0.number }.map(\.partition)
        let wantsLogEnds = question.stage == .fetching
        let answers = offsets.map { wantsLogEnds ? $0.filter { $0.logEnd != nil } : $0 }
        // While a leader is away, the answer may have no log end at all, and then counts as a failure.
        guard let offsets = answers, !wantsLogEnds || !offsets.isEmpty || question.asked.isEmpty else {
            failures += 1
            let isAlone = question.asked.count == 1
            mostAsked = max(1, question.asked.count / 2)
            for partition in current {
                let failures = entries[partition]!.failures
                entries[partition]!.nextAttempt = isAlone ? now + Self.delay(failures) : now
                if isAlone { entries[partition]!.failures += 1 }
            }
            return .failed(current)
        }
        failures = 0
        mostAsked = mostAsked > Int.max / 2 ? Int.max : mostAsked * 2
        switch question.stage {
        case .awaitingFormerOwners:
            for partition in current { enter(.restoring, partition, at: now) }
            return .settled
        case .restoring, .fetching:
            let current = Set(current)
            var found = offsets.filter { current.contains($0.partition) }
            let stopped = found.filter { isUnexplained($0) }
            for offset in stopped {
                entries[offset.partition]!.nextAttempt = now + Self.unexplainedDelay
            }
            unexplainedNews = stopped
            let stops = Set(stopped.map(\.partition))
            found.removeAll { stops.contains($0.partition) }
            for offset in found { entries[offset.partition] = nil }
            for partition in current
            where entries[partition]?.stage == .fetching && !stops.contains(partition) {
                entries[partition]!.nextAttempt = now + Self.delay(entries[partition]!.failures)
                entries[partition]!.failures += 1
            }
            return .offsets(found)
        }
    }

    private mutating func isUnexplained(_ offset: FetchedOffset) -> Bool {
        let isKnown = offset.offset != nil && unexplained[offset.partition] == offset.offset
        switch offset.log {
        case .unknown: unexplained[offset.partition] = offset.offset
        case .same where isKnown: break
        case .same, .shorter, .new:
            unexplained[offset.partition] = nil
            return false
        }
        return true
    }

    /// Partitions that aren't read because nothing explains their offsets, in order.
    var unexplainedPartitions: [Int32] {
        unexplained.keys.filter { entries[$0]?.stage == .fetching }.sorted()
    }

    /// Returns the partitions that the last answer has left unexplained.
    mutating func takeUnexplained() -> [FetchedOffset] {
        defer { unexplainedNews = [] }
        return unexplainedNews
    }

    /// Forgets the open question, because its answer can't be used now. Its partitions are asked for once more.
    mutating func forget(_ ticket: UInt64) {
        if open?.ticket == ticket { open = nil }
    }

    private mutating func enter(_ stage: Stage, _ partition: Int32, at now: UInt64) {
        entries[partition]!.stage = stage
        entries[partition]!.nextAttempt = now
        entries[partition]!.failures = 0
    }

    /// Returns the nanoseconds until the next attempt, after `failures` failures before this attempt.
    private static func delay(_ failures: Int) -> UInt64 {
        min(5, 1 << UInt64(min(failures, 3))) * 1_000_000_000
    }

    // MARK: Restores

    /// Returns the partitions whose restore is to begin now, including partitions whose last attempt failed.
    /// - Parameter isUnderWay: whether a partition's restore has begun and hasn't failed.
    mutating func restores(
        at now: UInt64, isUnderWay: (Int32) -> Bool
    ) -> (first: [Int32], again: [Int32]) {
        var (first, again): ([Int32], [Int32]) = ([], [])
        for (partition, entry) in entries
        where entry.stage == .restoring && entry.nextAttempt <= now && !isUnderWay(partition) {
            if entry.failures == 0 { first.append(partition) } else { again.append(partition) }
            entries[partition]!.nextAttempt = now + Self.delay(entry.failures)
            entries[partition]!.failures += 1
        }
        return (first.sorted(), again.sorted())
    }

    /// Notes that the partition's part of the store is up to date.
    mutating func restored(_ partition: Int32, at now: UInt64) {
        guard entries[partition]?.stage == .restoring else { return }
        enter(.fetching, partition, at: now)
    }
}
