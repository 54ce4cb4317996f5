/// Decides which partition is purged when. A *purge* rewrites a partition's files, so that none of them has the bytes of
/// removed entries any more.
///
/// A partition that needs a purge is purged once the delay has passed since the first removal that no purge covers.
/// Removals until the purge's begin share it. One purge runs at a time. A rest follows each purge that nobody requested,
/// as long as the purge itself took, a minute at most. Pure: all times are milliseconds since the epoch.
public struct PurgeSchedule: Sendable {
    /// Next step of the owner.
    public enum Step: Equatable, Sendable {
        /// Purge the partition; ``ended(_:isDone:at:)`` follows.
        case purge(Int32)
        /// Nothing is to be done before this time.
        case wait(until: Int64)
        /// Nothing is to be done before the next event.
        case idle
    }

    fileprivate struct Need: Sendable {
        /// Time of the first removal that no purge covers.
        var since: Int64
        var isRequested = false
        /// Purges that failed in succession.
        var failures = 0
        /// Time of the first of these failures; nil: the last purge hasn't failed.
        var failingSince: Int64?
        /// Time before which a failed purge isn't repeated; nil: none has failed.
        var retryAt: Int64?
    }

    private struct Running: Sendable {
        var partition: Int32
        var began: Int64
        var need: Need
    }

    private let delay: Int64
    private var needs: [Int32: Need] = [:]
    private var running: Running?
    /// Time before which no unrequested purge begins.
    private var restUntil = Int64.min

    /// Longest rest after a purge.
    static let longestRest: Int64 = 60_000
    /// Wait after the first failure; it doubles with each further failure.
    static let firstPause: Int64 = 10_000
    static let longestPause: Int64 = 3_600_000

    /// - Parameter delay: longest time between a removal and the begin of its purge, in milliseconds.
    public init(delay: Int64) { self.delay = max(0, delay) }

    /// Partitions that need a purge, the one under way included.
    public var pending: [Int32: PurgeStatus.Pending] {
        var pending = needs.mapValues { PurgeStatus.Pending($0) }
        if let running {
            var need = running.need
            if needs[running.partition]?.isRequested == true { need.isRequested = true }
            pending[running.partition] = PurgeStatus.Pending(need)
        }
        return pending
    }

    /// Time since which purges of a partition fail again and again, the earliest of all partitions, in milliseconds since
    /// the epoch. Nil: no partition's last two purges have failed. A single failure doesn't count, because its repetition
    /// can wait for hours behind other partitions.
    public var failingSince: Int64? {
        pending.values.compactMap { $0.failures > 1 ? $0.failingSince : nil }.min()
    }

    /// Returns whether the partition needs a purge, or one is under way.
    public func needsPurge(_ partition: Int32) -> Bool {
        needs[partition] != nil || running?.partition == partition
    }

    /// Partition that is being purged; nil: none is.
    public var current: Int32? { running?.partition }

    /// Returns the time to record with a removal at `now`: that of the first removal whose purge hasn't ended. A purge
    /// under way may be interrupted.
    public func since(_ partition: Int32, at now: Int64) -> Int64 {
        if let running, running.partition == partition { return running.need.since }
        return needs[partition]?.since ?? now
    }

    /// Records that something was removed from a partition whose bytes must leave the disk. The removal is written by
    /// now: a purge that begins later covers it.
    public mutating func removed(from partition: Int32, at now: Int64) {
        if needs[partition] == nil { needs[partition] = Need(since: now) }
    }

    /// Requests purges without delay. A purge that is under way counts, unless something was removed since its begin.
    /// - Parameter all: partitions that are purged even if they need no purge.
    /// - Returns: the partitions, each with the number of its purges that have to end. The number is 2 where something
    ///   was removed since the begin of the purge under way.
    public mutating func request(all: [Int32] = [], at now: Int64) -> [Int32: Int] {
        // A purge under way doesn't cover what was removed since its begin without a note.
        for partition in all where needs[partition] == nil {
            needs[partition] = Need(since: now)
        }
        for partition in needs.keys {
            needs[partition]?.isRequested = true
            needs[partition]?.retryAt = nil
        }
        running?.need.isRequested = true
        var ends = needs.mapValues { _ in 1 }
        if let running { ends[running.partition, default: 0] += 1 }
        return ends
    }

    /// Returns the next step.
    public mutating func next(at now: Int64) -> Step {
        guard running == nil else { return .idle }
        limit(to: now)
        var first: (partition: Int32, at: Int64)?
        for (partition, need) in needs {
            let time = begin(of: need)
            guard let best = first else {
                first = (partition, time)
                continue
            }
            if (time, partition) < (best.at, best.partition) { first = (partition, time) }
        }
        guard let first, let need = needs[first.partition] else { return .idle }
        guard first.at <= now else { return .wait(until: first.at) }
        needs[first.partition] = nil
        running = Running(partition: first.partition, began: now, need: need)
        return .purge(first.partition)
    }

    /// Returns the time at which a purge may begin.
    private func begin(of need: Need) -> Int64 {
        let retry = need.retryAt ?? .min
        if need.isRequested { return max(need.since, retry) }
        let (due, overflow) = need.since.addingReportingOverflow(delay)
        return max(overflow ? .max : due, retry, restUntil)
    }

    /// Moves times that a clock ahead has left. After the clock was set back, they would put purges off for longer than
    /// a delay or a pause.
    private mutating func limit(to now: Int64) {
        for (partition, need) in needs {
            if need.since > now { needs[partition]?.since = now }
            if let since = need.failingSince { needs[partition]?.failingSince = min(since, now) }
            if let retry = need.retryAt { needs[partition]?.retryAt = min(retry, now + Self.longestPause) }
        }
        restUntil = min(restUntil, now + Self.longestRest)
    }

    /// Records the end of the purge.
    /// - Returns: true when the partition needs no further purge by now.
    public mutating func ended(_ partition: Int32, isDone: Bool, at now: Int64) -> Bool {
        guard let ended = running, ended.partition == partition else { return needs[partition] == nil }
        running = nil
        if !ended.need.isRequested {
            restUntil = now + min(max(0, now - ended.began), Self.longestRest)
        }
        guard !isDone else { return needs[partition] == nil }
        var need = ended.need
        need.isRequested = needs[partition]?.isRequested ?? false
        need.failures = min(need.failures + 1, 30)
        need.failingSince = min(need.failingSince ?? now, now)
        need.retryAt = now + min(Self.firstPause << (need.failures - 1), Self.longestPause)
        needs[partition] = need
        return false
    }
}

extension PurgeStatus.Pending {
    fileprivate init(_ need: PurgeSchedule.Need) {
        self.init(
            since: need.since, isRequested: need.isRequested, failures: need.failures,
            failingSince: need.failingSince)
    }
}
