import CRocksDB
import EventLoop
import SluiceModel

/// The store as a copy of the changelog topic.
extension RetryStore {
    /// Does what records of the changelog say, in their order. Tried again like ``submit(_:completion:)``. The chunk is the
    /// store's until the completion is called.
    public func restore(
        _ chunk: ChangelogChunk, completion: @escaping @Sendable (RetryStoreError?) -> Void
    ) {
        chunk.sort()
        let step = IdempotentWrite {
            [self] () throws(RetryStoreError) in
            try chunk.apply()
            memory.written(chunk.bytes, opened)
            completion(nil)
        } fail: {
            completion($0)
        }
        if !line.take(step) { completion(.closed) }
    }

    /// Gives partitions, in the order in which they are named, each with the position up to which it has everything that is in
    /// the changelog. Without one, or with one that was reached too long ago, it is given empty: all of it has to be restored.
    ///
    /// Once given, a position isn't known any more until ``checkpoint(_:position:completion:)``: what is written from here on
    /// outlives an orderly end only. So whoever has a partition must not ask for it once more.
    /// - Parameters:
    ///   - numbers: each once. What the store does else waits until all of them are opened.
    ///   - reachedAfter: in milliseconds since the epoch; an earlier position doesn't count.
    ///   - notAfter: a later position doesn't count either, because the clock was ahead when the copy was left.
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
            // Before their partitions are made anew: an empty one must never be found with a position.
            try PositionKey.remove(useless, from: meta)
            let anew = numbers.filter { kept[$0] == nil }
            try remove(anew.compactMap { partition(thatIsOpen: $0) })
            let empty = try make(anew).map { RestorablePartition(handle: $0, position: nil) }
            try PositionKey.remove(Array(kept.keys), from: meta)
            let copies = Dictionary(uniqueKeysWithValues: empty.map { ($0.handle.number, $0) })
            return numbers.compactMap { kept[$0] ?? copies[$0] }
        }
    }

    /// Brings a partition to the disk, and remembers that it has everything up to an offset of the changelog.
    public func checkpoint(
        _ partition: StorePartition, position: ChangelogCheckpoint,
        completion: @escaping @Sendable (Result<Void, RetryStoreError>) -> Void
    ) {
        run(on: storeLoop, completion) { [self] () throws(RetryStoreError) in
            // What waits to be written is a part of what the position stands for.
            if let failure = line.failure { throw failure }
            for family in partition.families { try family.flush() }
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
    public var handle: StorePartition
    /// Nil: it is empty.
    public var position: ChangelogCheckpoint?
}

/// A place in the changelog, and when it was reached: tombstones are kept for a time only, and who was away for longer
/// has to begin anew.
public struct ChangelogCheckpoint: Equatable, Sendable {
    public var offset: Int64
    /// In milliseconds since the epoch.
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
        // Workers write no such position: the copy begins anew.
        guard offset >= 0, StoredPush.instants.contains(reachedMilliseconds) else { return nil }
    }

    var bytes: [UInt8] {
        [offset.bigEndian, reachedMilliseconds.bigEndian].withUnsafeBytes { Array($0) }
    }
}

/// Where the default column family has a partition's position.
struct PositionKey {
    private let bytes: [UInt8]

    init(_ partition: Int32) { bytes = Array("position-\(partition)".utf8) }

    func value(in family: ColumnFamily) throws(RetryStoreError) -> [UInt8]? {
        try bytes.withUnsafeBytes { key in
            Result { () throws(RetryStoreError) in try family.withValue(of: key) { Array($0) } }
        }.get()
    }

    /// It is on the disk when this returns.
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

    /// They are gone from the disk when this returns.
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
