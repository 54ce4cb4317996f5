import EventLoop
import Glibc

/// The disk of a store's directory: its files, their faults and their times. The world finds it by ``at(_:)``.
///
/// Code of a killed process changes nothing any more.
public final class SimulatedDisk {
    /// Faults from now on; none at first.
    public struct Faults: Sendable {
        /// No room is left.
        public var isFull = false
        /// Writes to files fail. RocksDB then writes nothing more until the database is opened again.
        public var failsWrites = false
        /// Syncs fail.
        public var failsSyncs = false
        /// A failed sync of a log drops the data from the system's memory, so that no later sync makes it safe.
        public var dropsUnsynced = false
        /// Reads of entries fail.
        public var failsReads = false
        /// The directory can't be used, and the database not opened.
        public var failsOpenings = false
        /// An opening finds damage.
        public var isDamaged = false

        public init() {}
    }

    /// Durations in nanoseconds, from which each call draws its own.
    public struct Durations: Sendable {
        public var opening: ClosedRange<UInt64> = 1_000_000...50_000_000
        public var write: ClosedRange<UInt64> = 2_000...50_000
        public var sync: ClosedRange<UInt64> = 100_000...5_000_000
        /// A flush, a rewrite, and a change of the list of column families.
        public var flush: ClosedRange<UInt64> = 500_000...20_000_000
        public var read: ClosedRange<UInt64> = 0...0

        public init() {}
    }

    public let path: String
    public var faults = Faults()
    public var durations = Durations()
    /// RocksDB flushes one or all column families by itself after one in so many writes; 0: only when memtables
    /// are full.
    public var writesPerFlush: UInt64 = 128
    /// Whether the directory exists.
    package var exists = false
    package private(set) var files = DatabaseFiles()

    private init(_ path: String) { self.path = path }

    /// The disk of a directory in the current simulation.
    public static func at(_ path: String) -> SimulatedDisk {
        if let disk = DiskTable.current.disks[path] { return disk }
        let disk = SimulatedDisk(path)
        DiskTable.current.disks[path] = disk
        return disk
    }

    /// The disk with an existing directory; nil: there is no such directory.
    package static func existing(_ path: String) -> SimulatedDisk? {
        DiskTable.current.disks[path].flatMap { $0.exists ? $0 : nil }
    }

    // MARK: The world

    /// Whether a living process has the database open.
    public var isInUse: Bool { files.user?.isUsable == true }

    /// Whether the open database accepts no write until it is opened again.
    public var isStopped: Bool {
        guard isInUse, case .broken = files.user?.stop else { return false }
        return true
    }

    /// Kills the process that has the database open. Each log loses what wasn't synced from a random place on.
    /// - Parameter inOrder: whether later logs are lost with the end of an earlier log. RocksDB doesn't ensure
    ///   that: there are several unsynced logs while a flush begins.
    /// - Returns: number of batches that are lost.
    @discardableResult
    public func cutPower(inOrder: Bool = false) -> Int {
        files.user?.process?.kill()
        files.user = nil
        let scheduler = Scheduler.current
        var lost = 0
        files.logs.removeAll { log in
            let isGone =
                log.synced == 0 && (inOrder && lost > 0 || !log.isNamed && scheduler.below(2) == 0)
            lost += isGone ? log.records.count : log.cut(scheduler.below)
            return isGone
        }
        return lost
    }

    /// Loses the directory with all its files. An open database fails from now on.
    public func lose() {
        files.isLost = true
        files = DatabaseFiles()
        exists = false
    }

    // MARK: Calls

    /// Free bytes of the disk.
    package var freeBytes: UInt64 { faults.isFull ? 0 : 1 << 40 }

    /// Code of the system's error for a use of the directory; nil: the directory can be used.
    package var directoryError: Int32? { faults.failsOpenings && !isInUse ? EIO : nil }

    /// Code of the system's error for a write; nil: the write succeeds.
    var writeError: Int32? {
        if faults.isFull { return ENOSPC }
        return faults.failsWrites ? EIO : nil
    }

    package func draw(_ range: ClosedRange<UInt64>) -> UInt64 {
        range.lowerBound == range.upperBound
            ? range.lowerBound : UInt64.random(in: range, using: &Scheduler.current.random)
    }
}

/// Disks of a simulation by path.
private final class DiskTable {
    var disks: [String: SimulatedDisk] = [:]

    static var current: DiskTable {
        let scheduler = Scheduler.current
        if let table = scheduler.parts[ObjectIdentifier(DiskTable.self)] as? DiskTable { return table }
        let table = DiskTable()
        scheduler.parts[ObjectIdentifier(DiskTable.self)] = table
        return table
    }
}
