import CColumnFamilies
import CRocksDB
import Glibc

/// Column families of an open database, many at once: each call holds up all writers for as long as RocksDB takes to write the
/// options of all of them to a file and to check it.
extension Database {
    /// Makes column families that aren't there, all of them or none.
    func make(_ families: [StorePartition.Family]) throws(RetryStoreError) -> [ColumnFamily] {
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
        // So that the next attempt can make them all.
        try? drop(made)
        throw failure
    }

    /// Removes column families with all that is in them; the files go when the last handle does.
    func drop(_ families: [ColumnFamily]) throws(RetryStoreError) {
        guard !families.isEmpty else { return }
        let handles: [OpaquePointer?] = families.map(\.handle)
        try call { sluice_drop_column_families(handle, families.count, handles, $0) }
    }
}
