import CRocksDB
import Glibc

/// An opened database with its column families.
struct OpenedDatabase {
    var database: Database
    var meta: StoreMeta
    var metaFamily: ColumnFamily
    var partitions: [Int32: StorePartition]
    /// Column families of incomplete partitions, left by a crash or a failure while a partition was made or dropped.
    var remains: [ColumnFamily]

    /// Column families of the database itself and of all complete partitions.
    var families: [ColumnFamily] {
        [metaFamily] + partitions.values.sorted { $0.number < $1.number }.flatMap(\.families)
    }
}

extension [ColumnFamily] {
    /// Flushes the memtables of all column families; throws the first error after all of them were attempted.
    func writeOut() throws(RetryStoreError) {
        // Starts all flushes at once, then waits for each column family in turn.
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

    /// Opens the database with all its column families, for reading alone or, locked against other stores, for writing.
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
    /// Sorts the opened column families into partitions, and checks the database's own metadata.
    /// - Parameter making: metadata for a new database that has none yet; nil: a database without metadata is damage.
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
            throw .corrupt(directory: directory, text: "its format is not recorded")
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
        for (number, parts) in parts.sorted(by: { $0.key < $1.key }) {
            if let items = parts[.items], let due = parts[.due], let devices = parts[.devices] {
                partitions[number] = StorePartition(number: number, items: items, due: due, devices: devices)
            } else {
                remains += StorePartition.Kind.allCases.compactMap { parts[$0] }
            }
        }
    }
}
