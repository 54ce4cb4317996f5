// swift-format-ignore-file: AlwaysUseLowerCamelCase

import Glibc

package func rocksdb_list_column_families(
    _: OpaquePointer, _ path: String, _ count: UnsafeMutablePointer<Int>,
    _ failure: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>
) -> UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>? {
    guard let disk = SimulatedDisk.existing(path) else {
        report("IO error: No such file or directory: \(path)/CURRENT", failure)
        return nil
    }
    let families = disk.files.families
    let list = UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>.allocate(capacity: families.count)
    for (index, family) in families.enumerated() { list[index] = strdup(family.name) }
    count.pointee = families.count
    return list
}

package func rocksdb_list_column_families_destroy(
    _ list: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>?, _ count: Int
) {
    guard let list else { return }
    for index in 0..<count { free(list[index]) }
    list.deallocate()
}

package func rocksdb_open_column_families(
    _ options: OpaquePointer, _ path: String, _ count: Int32, _ names: [UnsafePointer<CChar>?],
    _ familyOptions: [OpaquePointer?], _ handles: UnsafeMutablePointer<OpaquePointer?>,
    _ failure: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>
) -> OpaquePointer? {
    open(options, path, names, familyOptions, handles, failure, isReadOnly: false)
}

package func rocksdb_open_for_read_only_column_families(
    _ options: OpaquePointer, _ path: String, _ count: Int32, _ names: [UnsafePointer<CChar>?],
    _ familyOptions: [OpaquePointer?], _ handles: UnsafeMutablePointer<OpaquePointer?>,
    _ failsWithLog: UInt8, _ failure: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>
) -> OpaquePointer? {
    open(options, path, names, familyOptions, handles, failure, isReadOnly: true)
}

private func open(
    _ options: OpaquePointer, _ path: String, _ names: [UnsafePointer<CChar>?],
    _ familyOptions: [OpaquePointer?], _ handles: UnsafeMutablePointer<OpaquePointer?>, _ failure: Failure,
    isReadOnly: Bool
) -> OpaquePointer? {
    guard let disk = SimulatedDisk.existing(path) else {
        report("IO error: No such file or directory: \(path)", failure)
        return nil
    }
    let (database, text) = Database.open(
        disk, names.map { String(cString: $0!) }, familyOptions.map { object($0!) },
        database: object(options), isReadOnly: isReadOnly)
    report(text, failure)
    guard let database else { return nil }
    for (index, family) in database.families.enumerated() { handles[index] = handle(family) }
    return handle(database)
}

package func rocksdb_close(_ database: OpaquePointer) {
    object(database, Database.self).close()
    release(database)
}

package func rocksdb_column_family_handle_destroy(_ family: OpaquePointer) { release(family) }

package func rocksdb_flush_cf(
    _ database: OpaquePointer, _ options: OpaquePointer, _ family: OpaquePointer,
    _ failure: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>
) {
    let waits = object(options, FlushOptions.self).waits
    report(object(database, Database.self).flush(object(family), waits: waits), failure)
}

package func rocksdb_disable_manual_compaction(_ database: OpaquePointer) {
    object(database, Database.self).endsRewrites = true
}

package func rocksdb_property_int_cf(
    _ database: OpaquePointer, _ family: OpaquePointer, _ property: String,
    _ value: UnsafeMutablePointer<UInt64>
) -> Int32 {
    let family: OpenFamily = object(family)
    let number: Int
    switch property {
    case "rocksdb.cur-size-all-mem-tables": number = family.memtableBytes
    case "rocksdb.num-entries-active-mem-table": number = family.memtableCount
    case "rocksdb.estimate-num-keys": number = family.entries.all.count
    case "rocksdb.live-sst-files-size", "rocksdb.total-sst-files-size":
        number = family.files.entries.all.reduce(0) { $0 + $1.count }
    default: return 1
    }
    value.pointee = UInt64(number)
    return 0
}

// MARK: What the C interface lacks

package enum Extras {
    package static func make(
        _ database: OpaquePointer, _ options: [OpaquePointer?], _ names: [UnsafePointer<CChar>?],
        _ handles: UnsafeMutablePointer<OpaquePointer?>,
        _ failure: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>
    ) {
        for (index, name) in names.enumerated() {
            let (family, text) = object(database, Database.self).make(
                String(cString: name!), object(options[index]!))
            handles[index] = family.map { handle($0) }
            if let text { return report(text, failure) }
        }
    }

    package static func drop(
        _ database: OpaquePointer, _ families: [OpaquePointer?], _ left: UnsafeMutablePointer<Bool>,
        _ failure: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>
    ) {
        var first: String?
        for (index, family) in families.enumerated() {
            let text = object(database, Database.self).drop(object(family!))
            left[index] = text != nil
            first = first ?? text
        }
        report(first, failure)
    }

    package static func rewrite(
        _ database: OpaquePointer, _ family: OpaquePointer,
        _ failure: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>
    ) {
        report(object(database, Database.self).rewrite(object(family)), failure)
    }

    package static func deleteOldFiles(_ database: OpaquePointer) {
        object(database, Database.self).files.deleteOldLogs()
    }

    package static func names(_ family: OpaquePointer) -> [String] {
        object(family, OpenFamily.self).files.names
    }
}
