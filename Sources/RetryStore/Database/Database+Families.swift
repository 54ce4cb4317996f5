import CRocksDB
import CRocksDBExtras
import Glibc

/// Column families of an open database, many at once. Each call holds up all writers, because RocksDB writes and checks
/// a file with the options of all column families.
extension Database {
    /// Makes column families that don't exist yet, all of them or none.
    /// - Parameter left: after a failure, the made column families that could not be dropped again. They are to be
    ///   dropped before the next attempt.
    func make(
        _ families: [StorePartition.Family], left: inout [ColumnFamily]
    ) throws(RetryStoreError) -> [ColumnFamily] {
        guard !families.isEmpty else { return [] }
        let names = families.map { strdup($0.name) }
        defer { for name in names { free(name) } }
        let constant = names.map { UnsafePointer($0) }
        let familyOptions: [OpaquePointer?] = families.map { options.options(of: $0.kind) }
        var handles = [OpaquePointer?](repeating: nil, count: families.count)
        var failure: RetryStoreError?
        do throws(RetryStoreError) {
            try call {
                sluice_create_column_families(handle, families.count, familyOptions, constant, &handles, $0)
            }
        } catch {
            failure = error
        }
        let made = zip(families, handles).compactMap { family, handle in
            handle.map { ColumnFamily(handle: $0, name: family.name, database: self) }
        }
        guard let failure else { return made }
        do throws(RetryStoreError) { try drop(made, left: &left) } catch {}
        throw failure
    }

    /// Drops column families with their entries; the files are deleted with the last handle. Does nothing to a column
    /// family that was dropped before.
    /// - Parameter left: after a failure, the column families that still exist.
    func drop(_ families: [ColumnFamily], left: inout [ColumnFamily]) throws(RetryStoreError) {
        left = []
        guard !families.isEmpty else { return }
        let handles: [OpaquePointer?] = families.map(\.handle)
        var isLeft = [Bool](repeating: true, count: families.count)
        defer { left = zip(families, isLeft).filter(\.1).map(\.0) }
        try call { sluice_drop_column_families(handle, families.count, handles, &isLeft, $0) }
    }
}
