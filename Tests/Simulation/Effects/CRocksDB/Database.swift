import EventLoop
import Glibc

/// An open database: its memtables over the files of a disk. Flushes are events of the scheduler.
final class Database {
    /// Reason for which nothing is written.
    enum Stop {
        /// The disk was full. RocksDB looks for room every few seconds, flushes everything, and resumes.
        case full(until: UInt64)
        case broken(String)
    }

    let disk: SimulatedDisk
    let files: DatabaseFiles
    let process: SimulatedProcess?
    let isReadOnly: Bool
    var stop: Stop?
    /// Whether manual compactions are disabled.
    var endsRewrites = false
    private(set) var families: [OpenFamily] = []
    /// Column families by ``FamilyFiles/id``.
    private var byID: [OpenFamily?] = []
    private unowned let scheduler = Scheduler.current
    /// Size of all memtables from which on RocksDB flushes.
    private let mostMemtableBytes: Int
    private var memtableBytes = 0
    /// Number of the last write.
    private var number: UInt64 = 0
    private var hasUnlogged = false
    private var isClosed = false

    /// Failure of a call whose database can't be used any more.
    private var ended: String {
        files.isLost ? text(EIO, "While appending to file", "the log") : "IO error: the process has ended"
    }

    private init(_ disk: SimulatedDisk, memtableBytes: Int, isReadOnly: Bool) {
        self.disk = disk
        mostMemtableBytes = memtableBytes / 8 * 7
        self.isReadOnly = isReadOnly
        files = disk.files
        process = scheduler.process
    }

    /// Whether the database can still change its files.
    var isUsable: Bool {
        !isClosed && !files.isLost && process?.isAlive != false && files.user === self
    }

    // MARK: Opening and closing

    /// Opens a database with all its column families. Reading alone takes no time, and meets no fault but
    /// damage.
    static func open(
        _ disk: SimulatedDisk, _ names: [String], _ options: [Options], database: Options, isReadOnly: Bool
    ) -> (database: Database?, failure: String?) {
        let opened = Database(disk, memtableBytes: database.memtableBytes, isReadOnly: isReadOnly)
        if disk.faults.isDamaged { return (nil, "Corruption: block checksum mismatch in \(disk.path)") }
        if isReadOnly {
            let failure = opened.recover(names, options)
            return (failure == nil ? opened : nil, failure)
        }
        if disk.faults.failsOpenings { return (nil, opened.text(EIO, "While opening", "CURRENT")) }
        if disk.isInUse {
            let lock = "\(disk.path)/LOCK"
            return (nil, "IO error: While lock file: \(lock): Resource temporarily unavailable")
        }
        opened.files.user = opened
        let failure = opened.during(disk.durations.opening) { opened.recover(names, options) }
        guard failure != nil else { return (opened, nil) }
        opened.close()
        return (nil, failure)
    }

    /// Reads the logs again. What they have is then flushed.
    private func recover(_ names: [String], _ options: [Options]) -> String? {
        if !files.hasDatabase {
            if let code = disk.writeError { return text(code, "While appending to file", "MANIFEST-000001") }
            files.hasDatabase = true
            _ = files.addFamily("default")
        }
        for (name, options) in zip(names, options) {
            guard let family = files.families.first(where: { $0.name == name }) else {
                return "Invalid argument: Column family not found: \(name)"
            }
            add(OpenFamily(family, options))
        }
        guard families.count == files.families.count else {
            return "Invalid argument: Column families not opened"
        }
        number = files.families.reduce(0) { max($0, $1.flushed) }
        for record in files.logs.flatMap(\.records) {
            number = max(number, record.number)
            for change in record.changes where record.number > change.family.flushed {
                apply(change, number: record.number)
            }
        }
        guard !isReadOnly else { return nil }
        if families.contains(where: \.isDirty) {
            if let code = disk.writeError {
                return text(code, "While appending to file", files.newName("sst"))
            }
            for family in families { install(family, family.entries, number) }
        }
        files.logs = []
        files.addLog()
        return nil
    }

    /// Closes the database. Unlogged writes are flushed, if that is possible.
    func close() {
        if isUsable, hasUnlogged, stop == nil, disk.writeError == nil {
            for family in families { install(family, family.entries, number) }
        }
        isClosed = true
        if files.user === self { files.user = nil }
    }

    // MARK: Writing

    func write(_ changes: [Change], _ options: WriteOptions) -> String? {
        if let failure = refusal() { return failure }
        let failure = during(disk.durations.write) { self.append(changes, isLogged: options.isLogged) }
        guard failure == nil, options.isSynced else { return failure }
        return during(disk.durations.sync) {
            if self.disk.faults.failsSyncs { return self.failed(EIO, "While fdatasync", "the log") }
            self.files.syncLogs()
            return nil
        }
    }

    private func append(_ changes: [Change], isLogged: Bool) -> String? {
        number += 1
        if isLogged, let log = files.logs.last {
            if let code = disk.writeError { return failed(code, "While appending to file", log.name) }
            log.append(LogFile.Record(number: number, changes: changes))
        } else {
            hasUnlogged = true
        }
        for change in changes { apply(change, number: number) }
        flushSome()
        return nil
    }

    /// A change of a column family that was dropped has no effect.
    private func apply(_ change: Change, number: UInt64) {
        guard change.family.id < byID.count, let family = byID[change.family.id] else { return }
        if change.isRemoval {
            family.entries.remove(change.entry.key)
        } else {
            family.entries.put(change.entry)
        }
        if !family.isDirty { family.oldest = number }
        family.last = number
        let bytes = change.entry.count + 64
        family.memtableBytes += bytes
        memtableBytes += bytes
        family.memtableCount += 1
    }

    /// Returns why nothing can be written; nil: writing works, maybe again.
    private func refusal() -> String? {
        guard isUsable else { return ended }
        switch stop {
        case nil: return nil
        case .broken(let failure): return failure
        case .full(let until):
            guard disk.writeError == nil, scheduler.now >= until else {
                return text(ENOSPC, "While appending to file", "the log")
            }
            stop = nil
            for family in families { beginFlush(family) }
            return nil
        }
    }

    /// Notes a failure, which stops writing.
    private func failed(_ code: Int32, _ call: String, _ name: String) -> String {
        let failure = text(code, call, name)
        if case .broken = stop { return failure }
        stop =
            code == ENOSPC
            ? .full(until: scheduler.now + scheduler.below(5_000_000_000)) : .broken(failure)
        return failure
    }

    func text(_ code: Int32, _ call: String, _ name: String) -> String {
        "IO error: \(call): \(disk.path)/\(name): \(String(cString: strerror(code)))"
    }

    /// Runs `body` at a random moment of a call of this duration, if the process lives then. Returns the
    /// failure of `body`, or that the process has ended.
    private func during(_ durations: ClosedRange<UInt64>, _ body: @escaping () -> String?) -> String? {
        let duration = disk.draw(durations)
        guard duration > 0 else { return isUsable ? body() : ended }
        var failure: String?
        scheduler.schedule(after: scheduler.below(duration)) { if self.isUsable { failure = body() } }
        scheduler.sleep(duration)
        return isUsable ? failure : ended
    }

    // MARK: Flushes

    /// Flushes a column family, and waits for the end if wanted.
    func flush(_ family: OpenFamily, waits: Bool) -> String? {
        let wanted = family.last
        while family.files.flushed < wanted, !family.files.isDropped {
            if let failure = refusal() { return failure }
            beginFlush(family)
            guard waits else { return nil }
            scheduler.block { family.frozen == nil || !isUsable }
            guard isUsable else { return ended }
        }
        return nil
    }

    /// Flushes the oldest data where RocksDB would, and one or all column families now and then.
    private func flushSome() {
        let isFull = memtableBytes > mostMemtableBytes
        guard isFull || disk.writesPerFlush > 0 && scheduler.below(disk.writesPerFlush) == 0 else { return }
        let dirty = families.filter { $0.isDirty && $0.frozen == nil }
        if isFull {
            if let oldest = dirty.min(by: { $0.oldest < $1.oldest }) { beginFlush(oldest) }
        } else if scheduler.below(2) == 0 {
            for family in dirty { beginFlush(family) }
        } else if !dirty.isEmpty {
            beginFlush(dirty[Int(scheduler.below(UInt64(dirty.count)))])
        }
    }

    private func beginFlush(_ family: OpenFamily) {
        guard family.isDirty, family.frozen == nil else { return }
        family.frozen = (family.entries, number)
        memtableBytes -= family.memtableBytes
        (family.memtableBytes, family.memtableCount) = (0, 0)
        if files.logs.last?.records.isEmpty == false { files.addLog() }
        scheduler.schedule(after: disk.draw(disk.durations.sync)) { self.syncClosedLogs(for: family) }
    }

    /// Without this step a table could have a part of a batch whose rest is lost with a log.
    private func syncClosedLogs(for family: OpenFamily) {
        guard isUsable, !disk.faults.failsSyncs else {
            family.frozen = nil
            if isUsable { _ = failed(EIO, "While fsync", "the log") }
            return
        }
        let current = files.logs.removeLast()
        files.syncLogs()
        files.logs.append(current)
        scheduler.schedule(after: disk.draw(disk.durations.flush)) { self.endFlush(family) }
    }

    private func endFlush(_ family: OpenFamily) {
        guard let frozen = family.frozen.take(), isUsable, !family.files.isDropped else { return }
        let name = files.newName("sst")
        if let code = disk.writeError {
            _ = failed(code, "While appending to file", name)
        } else if disk.faults.failsSyncs {
            _ = failed(EIO, "While fsync", name)
        } else {
            install(family, frozen.entries, frozen.number)
        }
    }

    /// Makes a table of a column family's entries. The table is on the disk.
    private func install(_ family: OpenFamily, _ entries: SortedEntries, _ number: UInt64) {
        guard family.isDirty else { return }
        family.files.entries = entries
        family.files.flushed = number
        family.oldest = number + 1
        family.addTable(to: files)
        files.deleteOldLogs()
    }

    /// Rewrites a column family.
    func rewrite(_ family: OpenFamily) -> String? {
        if let failure = flush(family, waits: true) { return failure }
        return during(disk.durations.flush) {
            if let code = self.disk.writeError {
                return self.failed(code, "While appending to file", self.files.newName("sst"))
            }
            if self.endsRewrites { return "Incomplete: Manual compaction paused" }
            family.files.names = []
            if !family.files.entries.all.isEmpty { family.addTable(to: self.files) }
            return nil
        }
    }

    // MARK: Column families

    /// Makes a column family; the list of column families is on the disk then.
    func make(_ name: String, _ options: Options) -> (family: OpenFamily?, failure: String?) {
        var made: OpenFamily?
        let failure = changeList {
            let family = OpenFamily(self.files.addFamily(name), options)
            family.files.flushed = self.number
            family.last = self.number
            self.add(family)
            made = family
        }
        return (made, failure)
    }

    func drop(_ family: OpenFamily) -> String? {
        guard !family.files.isDropped else { return nil }
        return changeList {
            family.files.isDropped = true
            self.families.removeAll { $0 === family }
            self.byID[family.files.id] = nil
            self.memtableBytes -= family.memtableBytes
            self.files.families.removeAll { $0 === family.files }
            self.files.deleteOldLogs()
        }
    }

    private func add(_ family: OpenFamily) {
        families.append(family)
        while byID.count <= family.files.id { byID.append(nil) }
        byID[family.files.id] = family
    }

    private func changeList(_ change: @escaping () -> Void) -> String? {
        if let failure = refusal() { return failure }
        return during(disk.durations.flush) {
            if let code = self.disk.writeError {
                return self.failed(code, "While appending to file", "MANIFEST-000001")
            }
            if self.disk.faults.failsSyncs { return self.failed(EIO, "While fsync", "MANIFEST-000001") }
            change()
            return nil
        }
    }

    // MARK: Reading

    /// Takes the time of a read. Returns its failure; nil: the read succeeds.
    func read() -> String? {
        if !isReadOnly, disk.durations.read.upperBound > 0 { scheduler.sleep(disk.draw(disk.durations.read)) }
        guard files.isLost || disk.faults.failsReads && !isReadOnly else { return nil }
        return text(EIO, "While pread", "a table")
    }
}

/// A column family of an open database.
final class OpenFamily {
    let files: FamilyFiles
    let prefixCount: Int?
    private let hasBlobs: Bool
    /// Entries of memtables and tables.
    var entries: SortedEntries
    /// Number of the last write.
    var last: UInt64
    /// Number of the first write that no table has.
    var oldest: UInt64 = 0
    var memtableBytes = 0
    var memtableCount = 0
    /// Entries that are being flushed, with the number of the last write; nil: no flush is under way.
    var frozen: (entries: SortedEntries, number: UInt64)?

    init(_ files: FamilyFiles, _ options: Options) {
        self.files = files
        entries = files.entries
        last = files.flushed
        prefixCount = options.prefixCount
        hasBlobs = options.hasBlobs
    }

    /// Whether the memtable has writes.
    var isDirty: Bool { last > files.flushed }

    /// Adds a table. Many tables are compacted to one.
    func addTable(to database: DatabaseFiles) {
        if files.names.count >= 16 { files.names = [] }
        files.names.append(database.newName("sst"))
        if hasBlobs { files.names.append(database.newName("blob")) }
    }
}
