import CRocksDB
import CRocksDBExtras
import EventLoop
import SluiceModel

extension RetryStore {
    /// State of the purges. Any thread.
    public var purges: PurgeStatus { purger.status }

    /// Purges partitions without delay, one after another: afterwards no file of the directory has the bytes of entries
    /// that were removed before this call.
    /// - Parameter completion: called on a thread of the store's when all purges have ended, with the first failure. A
    ///   purge that failed is repeated later.
    /// - Returns: the partitions that are purged.
    @discardableResult
    public func purge(
        _ scope: PurgeScope = .pending, completion: @escaping @Sendable (RetryStoreError?) -> Void = { _ in }
    ) -> [Int32] {
        let all = scope == .all ? partitions.map(\.number) : []
        return purger.request(all: all, at: wallClockMilliseconds(), completion: completion).sorted()
    }

    /// Calls `observer` on a thread of the store's with each end of a purge.
    public func observePurges(_ observer: @escaping @Sendable (PurgeStatus.End) -> Void) {
        purger.observe(observer)
    }

    /// Reads the needs that an earlier process left, and starts the thread of purges.
    func startPurges(_ opened: OpenedDatabase) throws(RetryStoreError) {
        for number in opened.partitions.keys {
            guard let since = try PurgeKey(number).since(in: opened.metaFamily) else { continue }
            purger.removed(from: number, at: since)
        }
        purger.start { [weak self] in self?.beginPurge(of: $0) }
    }

    // MARK: Needs

    /// Adds the needs of a batch's removals to its writes. Returns the partitions, for ``removed(from:)`` after the
    /// write. Store's thread.
    func addPurgeNeeds(
        _ notes: [PurgeNote], to writes: OpaquePointer
    ) throws(RetryStoreError) -> Set<Int32> {
        var numbers: Set<Int32> = []
        for note in notes where !numbers.contains(note.partition.number) {
            if let device = note.device {
                let isThere = try note.partition.devices.withValue(of: DeviceKeyBytes(device)) { _ in true }
                guard isThere == true else { continue }
            }
            numbers.insert(note.partition.number)
        }
        guard !numbers.isEmpty else { return [] }
        let (meta, now) = (try metaFamily(), wallClockMilliseconds())
        for number in numbers { PurgeKey(number).put(purger.since(number, at: now), meta, in: writes) }
        return numbers
    }

    /// Records that the removals are written. A purge that began before the write isn't counted as theirs.
    func removed(from partitions: Set<Int32>) {
        let now = wallClockMilliseconds()
        for number in partitions { purger.removed(from: number, at: now) }
    }

    /// Records needs of removals that are written. Store's thread.
    func notePurges(_ notes: [PurgeNote]) throws(RetryStoreError) {
        let batch: OpaquePointer = rocksdb_writebatch_create()
        defer { rocksdb_writebatch_destroy(batch) }
        let numbers = try addPurgeNeeds(notes, to: batch)
        guard let database = opened.withLock({ $0?.database }) else { throw .closed }
        if isChangelogBacked { try database.writeUnlogged(batch) } else { try database.write(batch) }
        removed(from: numbers)
    }

    // MARK: A purge

    /// Begins a purge on the purger's thread.
    private func beginPurge(of number: Int32) {
        let began = wallClockMilliseconds()
        guard let partition = partition(thatIsOpen: number) else {
            // The partition was dropped, and its files with it.
            return endPurge(number, began: began) { _ in .dropped }
        }
        // A snapshot that a scan took before the removals keeps the values; scans before this one have ended then.
        scanLoop.execute { [weak self] in
            self?.purger.loop.execute { [weak self] in self?.purge(partition, began: began) }
        }
    }

    private func purge(_ partition: StorePartition, began: Int64) {
        do throws(RetryStoreError) {
            guard let opened = opened.withLock({ $0 }), !isClosing.load(ordering: .relaxed) else {
                throw .closed
            }
            try checkRoom(for: partition)
            let directory = StoreDirectory(path: self.directory)
            let logs = try isChangelogBacked ? [] : directory.names().filter { $0.hasSuffix(".log") }
            // The log has the writes of all partitions. RocksDB deletes a log when all its writes are flushed, and when
            // a write has begun the next log. With a changelog no log has an entry of a partition.
            if !isChangelogBacked { try opened.metaFamily.probe(isLogged: true) }
            try (isChangelogBacked ? partition.families : opened.families).writeOut()
            // Flushes on two threads each count the other's log as needed. A last flush sees that nothing needs it.
            if !isChangelogBacked {
                try opened.metaFamily.probe(isLogged: true)
                try opened.metaFamily.flush()
            }
            let files = try directory.names().filter { $0.hasSuffix(".sst") || $0.hasSuffix(".blob") }
            let others = opened.partitions.values.filter { $0 !== partition }.flatMap(\.families)
            let old = OldFiles(
                partition: partition, names: Set(logs + files), others: others + [opened.metaFamily],
                began: began)
            for family in partition.families {
                if isClosing.load(ordering: .relaxed) { throw .closed }
                try family.rewrite()
            }
            // Reads that began before still hold the old files.
            storeLoop.execute { [weak self] in
                self?.scanLoop.execute { [weak self] in
                    self?.purger.loop.execute { [weak self] in self?.awaitDeletion(of: old, rest: 0) }
                }
            }
        } catch {
            endPurge(partition, error, began: began)
        }
    }

    /// Checks that the disk has room for a second copy of the partition. A full disk would stop the worker's reading.
    private func checkRoom(for partition: StorePartition) throws(RetryStoreError) {
        let size = partition.families.reduce(0) {
            $0 + $1.number("rocksdb.total-sst-files-size") + $1.number("rocksdb.total-blob-file-size")
        }
        guard let free = freeBytes, free < size + Self.roomLeft else { return }
        throw .noSpace(directory: directory)
    }

    /// Bytes that a purge leaves free.
    private static let roomLeft = 256 << 20

    /// Waits until none of the old files is left; a thread of RocksDB's deletes them.
    private func awaitDeletion(of old: OldFiles, rest: Int) {
        do throws(RetryStoreError) {
            guard let database = opened.withLock({ $0?.database }), !isClosing.load(ordering: .relaxed) else {
                throw .closed
            }
            if rest == 0 { try database.deleteObsoleteFiles() }
            let left = try old.left(in: StoreDirectory(path: directory))
            if left.isEmpty { return endPurge(old.partition, nil, began: old.began) }
            guard rest < OldFiles.mostLooks else {
                throw .io(
                    directory: directory,
                    text:
                        "RocksDB still has \(left.count) files from before a purge, such as \(left.min() ?? "")"
                )
            }
            let next = OldFilesLook { [weak self] in self?.awaitDeletion(of: old, rest: rest + 1) }
            purger.loop.schedule(after: .milliseconds(min(5_000, 10 << min(rest, 9))), handler: next)
        } catch {
            endPurge(old.partition, error, began: old.began)
        }
    }

    private func endPurge(_ partition: StorePartition, _ failure: RetryStoreError?, began: Int64) {
        endPurge(partition.number, began: began) { store in
            // A partition that was dropped meanwhile has no files.
            guard store.partition(thatIsOpen: partition.number) === partition else { return .dropped }
            return failure.map { .failed($0) } ?? .purged
        }
    }

    /// Ends a purge on the store's thread, so that no removal is written and no partition is dropped between the decision
    /// and its record.
    private func endPurge(
        _ number: Int32, began: Int64, _ outcome: @escaping @Sendable (RetryStore) -> PurgeStatus.Outcome
    ) {
        if isClosing.load(ordering: .relaxed) { return }
        storeLoop.execute { [weak self] in
            guard let self,
                purger.ended(number, outcome(self), began: began, at: wallClockMilliseconds())
            else { return }
            // A need that stays costs a further purge after the next start.
            try? PurgeKey(number).remove(from: metaFamily(), isLogged: !isChangelogBacked)
        }
    }
}

/// Note in a batch that bytes of its removals must leave the disk.
struct PurgeNote: Sendable {
    var partition: StorePartition
    /// Device whose state is removed, if the partition has it; nil: something is removed in any case.
    var device: DeviceKey?
}

/// Files that may have removed values when a purge begins to rewrite a partition.
private struct OldFiles: Sendable {
    var partition: StorePartition
    var names: Set<String>
    /// Column families whose files stay.
    var others: [ColumnFamily]
    /// Begin of the purge, in milliseconds since the epoch.
    var began: Int64

    /// Looks for the files' deletion before a purge counts as failed; the looks take about ten minutes.
    static let mostLooks = 130

    /// Returns the old files that the directory has and no other column family uses.
    func left(in directory: StoreDirectory) throws(RetryStoreError) -> Set<String> {
        var left = names.intersection(try directory.names())
        guard !left.isEmpty else { return [] }
        for family in others { left.subtract(family.files()) }
        return left
    }
}

/// A look after some time.
// Sendable: constant.
private final class OldFilesLook: TimerHandler, Sendable {
    private let look: @Sendable () -> Void

    init(_ look: @escaping @Sendable () -> Void) { self.look = look }

    func timerFired(_ timer: TimerID) { look() }
}

extension ColumnFamily {
    /// Rewrites all tables and moves all values in use to new blob files. Blocks until that is done, or until
    /// ``Database/endRewrites()``.
    func rewrite() throws(RetryStoreError) {
        try database.call { sluice_rewrite_column_family(database.handle, handle, $0) }
    }

    /// Returns the names of the current tables and blob files.
    func files() -> Set<String> {
        var names: Set<String> = []
        withUnsafeMutablePointer(to: &names) { names in
            sluice_visit_files(
                database.handle, handle,
                { context, name in
                    guard let context, let name else { return }
                    context.assumingMemoryBound(to: Set<String>.self).pointee.insert(String(cString: name))
                }, names)
        }
        return names
    }
}

extension Database {
    /// Deletes files that are no longer needed.
    func deleteObsoleteFiles() throws(RetryStoreError) {
        try call { sluice_delete_obsolete_files(handle, $0) }
    }

    /// Ends a rewrite under way and all later ones. Blocks until it has ended, which is soon.
    func endRewrites() { rocksdb_disable_manual_compaction(handle) }
}
