/// Result of ``RetryStore/dropCopies(except:at:longestAbsence:atMost:completion:)``.
public struct DroppedCopies: Equatable, Sendable {
    /// Partitions whose copies were dropped.
    public var partitions: [Int32]
    /// True when other copies are to be dropped as well: call again.
    public var areMore: Bool
}

extension RetryStore {
    /// Drops obsolete copies. RocksDB deletes a copy's files with the last handle of its partition.
    ///
    /// Openings that are requested after this call run after the drop.
    /// - Parameters:
    ///   - kept: partitions that the worker has, or that are on their way to it.
    ///   - now: milliseconds since the epoch.
    ///   - longestAbsence: see ``LocalCopy/isObsolete(at:longestAbsence:)``.
    ///   - count: most partitions to drop at once, as the store's thread does nothing else meanwhile.
    public func dropCopies(
        except kept: Set<Int32>, at now: Int64, longestAbsence: Int64, atMost count: Int,
        completion: @escaping @Sendable (Result<DroppedCopies, RetryStoreError>) -> Void
    ) {
        precondition(isChangelogBacked, "a store without changelog can't drop copies")
        run(on: storeLoop, completion) { [self] () throws(RetryStoreError) in
            let meta = try metaFamily()
            var copies: [LocalCopy] = []
            for partition in partitions where !kept.contains(partition.number) {
                copies.append(try meta.copy(of: partition.number))
            }
            let obsolete = LocalCopy.obsolete(
                among: copies, kept: kept, at: now, longestAbsence: longestAbsence)
            let dropped = Array(obsolete.prefix(count))
            // Positions are removed first: an empty partition must never be found with a position.
            try PositionKey.remove(
                copies.filter { dropped.contains($0.partition) && $0.position != nil }.map(\.partition),
                from: meta)
            // Column families that earlier drops left are dropped as well.
            if !dropped.isEmpty || hasRemains {
                try remove(dropped.compactMap { partition(thatIsOpen: $0) })
            }
            return DroppedCopies(partitions: dropped, areMore: obsolete.count > dropped.count)
        }
    }

    /// True while column families exist that could not be dropped.
    var hasRemains: Bool { opened.withLock { $0?.remains.isEmpty == false } }
}

extension ColumnFamily {
    /// Reads from the default column family how a partition's copy was left.
    func copy(of partition: Int32) throws(RetryStoreError) -> LocalCopy {
        LocalCopy(
            partition: partition,
            position: try PositionKey(partition).value(in: self).flatMap { ChangelogCheckpoint($0) })
    }
}
