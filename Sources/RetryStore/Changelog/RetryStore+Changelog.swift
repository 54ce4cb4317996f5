import CRocksDB
import EventLoop
import SluiceModel

/// The store as a copy of the changelog topic.
extension RetryStore {
    /// Writes the changes of changelog records in their order. Retries like ``submit(_:completion:)``. The store owns
    /// the chunk until the completion is called.
    public func restore(
        _ chunk: ChangelogChunk, completion: @escaping @Sendable (RetryStoreError?) -> Void
    ) {
        chunk.sort()
        let step = IdempotentWrite {
            [self] () throws(RetryStoreError) in
            try chunk.apply()
            if !chunk.purges.isEmpty { try notePurges(chunk.purges) }
            memory.written(chunk.bytes, opened)
            completion(nil)
        } fail: {
            completion($0)
        }
        if !line.enqueue(step) { completion(.closed) }
    }

    /// Opens partitions, in the order of `numbers`. Each has a position up to which it has all records of the
    /// changelog. A partition without a position, or with an invalid one, is opened empty: all of it has to be
    /// restored.
    ///
    /// Opening deletes a position until ``checkpoint(_:position:completion:)``, because writes from here on outlive an
    /// orderly end only. The partition's holder therefore must not open the partition again.
    /// - Parameters:
    ///   - numbers: each once. The store's other work waits until all of them are opened.
    ///   - reachedAfter: lower bound of a valid position's time, exclusive, in milliseconds since the epoch.
    ///   - notAfter: upper bound of that time, inclusive. A later time is invalid, because the clock was ahead when the
    ///     copy was left.
    public func openCopies(
        partitions numbers: [Int32], reachedAfter: Int64, notAfter: Int64 = .max,
        completion: @escaping @Sendable (Result<[RestorablePartition], RetryStoreError>) -> Void
    ) {
        run(on: storeLoop, completion) { [self] () throws(RetryStoreError) in
            let meta = try metaFamily()
            var (kept, useless): ([Int32: RestorablePartition], [Int32]) = ([:], [])
            for number in numbers {
                guard let found = try PositionKey(number).value(in: meta) else { continue }
                if let existing = partition(thatIsOpen: number), let position = ChangelogCheckpoint(found),
                    position.reachedMilliseconds > reachedAfter, position.reachedMilliseconds <= notAfter
                {
                    kept[number] = RestorablePartition(handle: existing, position: position)
                } else {
                    useless.append(number)
                }
            }
            // Positions are removed before their partitions are made anew: an empty one must never be found with a
            // position.
            try PositionKey.remove(useless, from: meta)
            let anew = numbers.filter { kept[$0] == nil }
            try remove(anew.compactMap { partition(thatIsOpen: $0) })
            let empty = try make(anew).map { RestorablePartition(handle: $0, position: nil) }
            try PositionKey.remove(Array(kept.keys), from: meta)
            let copies = Dictionary(uniqueKeysWithValues: empty.map { ($0.handle.number, $0) })
            return numbers.compactMap { kept[$0] ?? copies[$0] }
        }
    }

    /// Flushes a partition to the disk, and records that it has everything up to an offset of the changelog.
    public func checkpoint(
        _ partition: StorePartition, position: ChangelogCheckpoint,
        completion: @escaping @Sendable (Result<Void, RetryStoreError>) -> Void
    ) {
        run(on: storeLoop, completion) { [self] () throws(RetryStoreError) in
            // Writes that still wait are a part of what the position covers.
            if let failure = line.failure { throw failure }
            for family in partition.families { try family.flush() }
            // The need of a purge isn't logged. A position without it would let a crash forget the need.
            if purger.needsPurge(partition.number) { try metaFamily().flush() }
            try PositionKey(partition.number).write(position.bytes, to: metaFamily())
        }
    }

    func metaFamily() throws(RetryStoreError) -> ColumnFamily {
        guard let family = opened.withLock({ $0?.metaFamily }) else { throw .closed }
        return family
    }
}

/// A partition that is a copy of the changelog's.
public struct RestorablePartition: Sendable {
    /// Handle of the opened partition.
    public var handle: StorePartition
    /// Changelog position of the partition; nil: the partition is empty.
    public var position: ChangelogCheckpoint?
}

/// A position in the changelog, and when it was reached. Tombstones are kept for a time only, so a longer absence
/// requires a restore from the beginning.
public struct ChangelogCheckpoint: Equatable, Sendable {
    /// Offset of the changelog up to which the copy is complete.
    public var offset: Int64
    /// Time of reaching the offset, in milliseconds since the epoch.
    public var reachedMilliseconds: Int64

    public init(offset: Int64, reachedMilliseconds: Int64) {
        self.offset = offset
        self.reachedMilliseconds = reachedMilliseconds
    }

    init?(_ bytes: [UInt8]) {
        guard bytes.count == 16 else { return nil }
        (offset, reachedMilliseconds) = bytes.withUnsafeBytes {
            (
                Int64(bigEndian: $0.loadUnaligned(as: Int64.self)),
                Int64(bigEndian: $0.loadUnaligned(fromByteOffset: 8, as: Int64.self))
            )
        }
        // Workers write no such position, so the copy is restored from the beginning.
        guard offset >= 0, StoredPush.instants.contains(reachedMilliseconds) else { return nil }
    }

    var bytes: [UInt8] {
        [offset.bigEndian, reachedMilliseconds.bigEndian].withUnsafeBytes { Array($0) }
    }
}

/// Key of a partition's position in the default column family.
struct PositionKey {
    private let bytes: [UInt8]

    init(_ partition: Int32) { bytes = Array("position-\(partition)".utf8) }

    func value(in family: ColumnFamily) throws(RetryStoreError) -> [UInt8]? {
        try bytes.withUnsafeBytes { key in
            Result { () throws(RetryStoreError) in try family.withValue(of: key) { Array($0) } }
        }.get()
    }

    /// Writes the position; it is on the disk when this returns.
    func write(_ value: [UInt8], to family: ColumnFamily) throws(RetryStoreError) {
        let batch: OpaquePointer = rocksdb_writebatch_create()
        defer { rocksdb_writebatch_destroy(batch) }
        bytes.withUnsafeBytes { key in
            value.withUnsafeBytes {
                rocksdb_writebatch_put_cf(
                    batch, family.handle, key.baseAddress!.assumingMemoryBound(to: CChar.self), key.count,
                    $0.baseAddress!.assumingMemoryBound(to: CChar.self), $0.count)
            }
        }
        try family.database.writeSynced(batch)
    }

    /// Removes positions; they are gone from the disk when this returns.
    static func remove(_ partitions: [Int32], from family: ColumnFamily) throws(RetryStoreError) {
        guard !partitions.isEmpty else { return }
        let batch: OpaquePointer = rocksdb_writebatch_create()
        defer { rocksdb_writebatch_destroy(batch) }
        for partition in partitions {
            Self(partition).bytes.withUnsafeBytes { key in
                rocksdb_writebatch_delete_cf(
                    batch, family.handle, key.baseAddress!.assumingMemoryBound(to: CChar.self), key.count)
            }
        }
        try family.database.writeSynced(batch)
    }
}
