import CRocksDB
import Glibc

/// A database that was opened, with all that is in it.
struct OpenedDatabase {
    var database: Database
    var meta: StoreMeta
    var metaFamily: ColumnFamily
    var partitions: [Int32: StorePartition]
    /// Column families of partitions that lack others: what a crash or a failure has left of making or dropping one.
    var remains: [ColumnFamily]

    /// Of all that is known and complete.
    var families: [ColumnFamily] { [metaFamily] + partitions.values.flatMap(\.families) }
}

extension [ColumnFamily] {
    /// Writes their memtables out; with the first error when some can't be, after all others.
    func writeOut() throws(RetryStoreError) {
        // All at once, then one after another until each is done.
        for family in self { try? family.flush(waits: false) }
        var failure: RetryStoreError?
        for family in self {
            do throws(RetryStoreError) { try family.flush() } catch { failure = failure ?? error }
        }
        if let failure { throw failure }
    }
}

extension Database {
    static let metaName = "default"

    /// Opens the database with all column families that it has, for reading alone or, locked against others, for writing.
    static func open(
        _ directory: String, options: StoreOptions, readOnly: Bool
    ) throws(RetryStoreError) -> (Database, [ColumnFamily]) {
        let names: [String]
        switch try StoreDirectory(path: directory).contents() {
        case .none:
            if readOnly { throw .missing(directory: directory) }
            names = [metaName]
        case .database: names = try families(of: directory, options)
        }
        var handles = [OpaquePointer?](repeating: nil, count: names.count)
        let familyOptions: [OpaquePointer?] = names.map { name in
            StorePartition.Family(name).map { options.options(of: $0.kind) } ?? options.database
        }
        let copies = names.map { strdup($0) }
        defer { for copy in copies { free(copy) } }
        let constant = copies.map { UnsafePointer($0) }
        BackgroundThreads.start()
        let opened: OpaquePointer?
        do throws(RocksFailure) {
            opened = try rocks { failure in
                readOnly
                    ? rocksdb_open_for_read_only_column_families(
                        options.database, directory, Int32(names.count), constant, familyOptions, &handles, 0,
                        failure)
                    : rocksdb_open_column_families(
                        options.database, directory, Int32(names.count), constant, familyOptions, &handles,
                        failure)
            }
        } catch {
            throw error.error(in: directory)
        }
        let database = Database(handle: opened!, directory: directory, options: options)
        return (
            database,
            zip(names, handles).map { ColumnFamily(handle: $1!, name: $0, database: database) }
        )
    }

    private static func families(
        of directory: String, _ options: StoreOptions
    ) throws(RetryStoreError) -> [String] {
        var count = 0
        do throws(RocksFailure) {
            let list = try rocks { rocksdb_list_column_families(options.database, directory, &count, $0) }
            defer { rocksdb_list_column_families_destroy(list, count) }
            return (0..<count).map { String(cString: list![$0]!) }
        } catch {
            throw error.error(in: directory)
        }
    }
}

extension OpenedDatabase {
    /// Sorts what was opened, and checks what the database says of itself.
    /// - Parameter making: what a database is given that says nothing yet, as it has just been made; nil: none is.
    init(
        _ database: Database, _ families: [ColumnFamily], making: StoreMeta?
    ) throws(RetryStoreError) {
        self.database = database
        let directory = database.directory
        guard let metaFamily = families.first(where: { $0.name == Database.metaName }) else {
            throw .corrupt(directory: directory, text: "its default column family is missing")
        }
        self.metaFamily = metaFamily
        if let found = try StoreMeta.read(from: metaFamily) {
            meta = found
        } else if let making, families.count == 1 {
            try making.write(to: metaFamily)
            meta = making
        } else {
            throw .corrupt(directory: directory, text: "it doesn't say which format it has")
        }

        var parts: [Int32: [StorePartition.Kind: ColumnFamily]] = [:]
        for family in families where family.name != Database.metaName {
            guard let name = StorePartition.Family(family.name) else {
                throw .corrupt(directory: directory, text: "it has a column family of another program")
            }
            parts[name.partition, default: [:]][name.kind] = family
        }
        partitions = [:]
        remains = []
        for (number, parts) in parts {
            if let items = parts[.items], let due = parts[.due], let devices = parts[.devices] {
                partitions[number] = StorePartition(number: number, items: items, due: due, devices: devices)
            } else {
                remains += parts.values
            }
        }
    }
}
