import CRocksDB
import EventLoop
import SluiceModel

/// The store as a copy of the changelog topic.
extension RetryStore {
    /// Does what records of the changelog say, in their order. Tried again like ``submit(_:completion:)``.
    public func restore(
        _ partition: StorePartition, _ chunk: consuming ChangelogChunk,
        completion: @escaping @Sendable (RetryStoreError?) -> Void
    ) {
        var sorted = chunk
        sorted.sort()
        let chunk = sorted
        let step = StoreStep {
            () throws(RetryStoreError) in
            try chunk.apply(to: partition)
            completion(nil)
        } fail: {
            completion($0)
        }
        if !line.take(step) { completion(.closed) }
    }

    /// Gives a partition with the position up to which it has everything that is in the changelog. Without one, or with one
    /// that was reached too long ago, it is given empty: all of it has to be restored.
    ///
    /// Once given, the position isn't known any more until ``checkpoint(_:position:completion:)``: what is written from here
    /// on outlives an orderly end only. So whoever has the partition must not ask for it once more.
    /// - Parameter reachedAfter: in milliseconds since the epoch; an earlier position doesn't count.
    public func openCopy(
        partition number: Int32, reachedAfter: Int64,
        completion: @escaping @Sendable (Result<PartitionCopy, RetryStoreError>) -> Void
    ) {
        run(on: storeLoop, completion) { [self] () throws(RetryStoreError) in
            let (key, meta) = (PositionKey(number), try metaFamily())
            let found = try key.value(in: meta)
            if found != nil { try key.write(nil, to: meta) }
            if let existing = partition(thatIsOpen: number) {
                if let position = found.flatMap({ ChangelogPosition($0) }),
                    position.reachedMilliseconds > reachedAfter
                {
                    return PartitionCopy(handle: existing, position: position)
                }
                try remove(existing)
            }
            return PartitionCopy(handle: try partition(number), position: nil)
        }
    }

    /// Brings a partition to the disk, and remembers that it has everything up to an offset of the changelog.
    public func checkpoint(
        _ partition: StorePartition, position: ChangelogPosition,
        completion: @escaping @Sendable (Result<Void, RetryStoreError>) -> Void
    ) {
        run(on: storeLoop, completion) { [self] () throws(RetryStoreError) in
            // What waits to be written is a part of what the position stands for.
            if let failure = line.failure { throw failure }
            for family in partition.families { try family.flush() }
            try PositionKey(partition.number).write(position.bytes, to: metaFamily())
        }
    }

    private func metaFamily() throws(RetryStoreError) -> ColumnFamily {
        guard let family = opened.withLock({ $0?.metaFamily }) else { throw .closed }
        return family
    }
}

/// A partition that is a copy of the changelog's.
public struct PartitionCopy: Sendable {
    public var handle: StorePartition
    /// Nil: it is empty.
    public var position: ChangelogPosition?
}

/// A place in the changelog, and when it was reached: tombstones are kept for a time only, and who was away for longer
/// has to begin anew.
public struct ChangelogPosition: Equatable, Sendable {
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
    }

    var bytes: [UInt8] {
        [offset.bigEndian, reachedMilliseconds.bigEndian].withUnsafeBytes { Array($0) }
    }
}

/// Where the default column family has a partition's position.
private struct PositionKey {
    private let bytes: [UInt8]

    init(_ partition: Int32) { bytes = Array("position-\(partition)".utf8) }

    func value(in family: ColumnFamily) throws(RetryStoreError) -> [UInt8]? {
        try bytes.withUnsafeBytes { key in
            Result { () throws(RetryStoreError) in try family.withValue(of: key) { Array($0) } }
        }.get()
    }

    /// Nil removes it. It is on the disk when this returns.
    func write(_ value: [UInt8]?, to family: ColumnFamily) throws(RetryStoreError) {
        let batch: OpaquePointer = rocksdb_writebatch_create()
        defer { rocksdb_writebatch_destroy(batch) }
        bytes.withUnsafeBytes { key in
            let start = key.baseAddress!.assumingMemoryBound(to: CChar.self)
            guard let value else {
                return rocksdb_writebatch_delete_cf(batch, family.handle, start, key.count)
            }
            value.withUnsafeBytes {
                rocksdb_writebatch_put_cf(
                    batch, family.handle, start, key.count,
                    $0.baseAddress!.assumingMemoryBound(to: CChar.self), $0.count)
            }
        }
        try family.database.writeSynced(batch)
    }
}
