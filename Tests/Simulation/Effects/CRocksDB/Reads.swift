// swift-format-ignore-file: AlwaysUseLowerCamelCase

/// Entries of all column families at a moment.
final class Snapshot {
    private var entries: [Int: SortedEntries] = [:]

    init(_ database: Database) {
        for family in database.families { entries[family.files.id] = family.entries }
    }

    func entries(of family: OpenFamily) -> SortedEntries { entries[family.files.id] ?? SortedEntries() }
}

package func rocksdb_create_snapshot(_ database: OpaquePointer) -> OpaquePointer {
    handle(Snapshot(object(database)))
}
package func rocksdb_release_snapshot(_: OpaquePointer, _ snapshot: OpaquePointer) { release(snapshot) }

package func rocksdb_get_pinned_cf(
    _ database: OpaquePointer, _: OpaquePointer, _ family: OpaquePointer, _ key: UnsafePointer<CChar>?,
    _ count: Int, _ failure: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>
) -> OpaquePointer? {
    if let text = object(database, Database.self).read() {
        report(text, failure)
        return nil
    }
    return object(family, OpenFamily.self).entries.entry(of: bytes(key, count)).map { handle($0) }
}
package func rocksdb_pinnableslice_destroy(_ slice: OpaquePointer) { release(slice) }
package func rocksdb_pinnableslice_value(
    _ slice: OpaquePointer, _ count: UnsafeMutablePointer<Int>
) -> UnsafePointer<CChar>? { start(object(slice, Entry.self).value, count) }

private func start(
    _ bytes: UnsafeRawBufferPointer, _ count: UnsafeMutablePointer<Int>
) -> UnsafePointer<CChar>? {
    count.pointee = bytes.count
    return bytes.baseAddress?.assumingMemoryBound(to: CChar.self)
}

/// A cursor over the entries of a column family.
private final class Cursor {
    let entries: SortedEntries
    let prefixCount: Int?
    let upperBound: UnsafeRawBufferPointer?
    let failure: String?
    private(set) var place = Int.max
    /// Entry with the prefix that all others must have; nil: there is none.
    private var prefix: [UInt8]?

    init(_ database: Database, _ options: ReadOptions, _ family: OpenFamily) {
        failure = database.read()
        entries = options.snapshot?.entries(of: family) ?? family.entries
        prefixCount = options.isPrefix ? family.prefixCount : nil
        upperBound = options.upperBound
    }

    var isValid: Bool {
        guard failure == nil, place < entries.all.count else { return false }
        let key = entries.all[place].key
        if let upperBound, SortedEntries.order(key, upperBound) >= 0 { return false }
        return prefix.map { key.starts(with: $0) } ?? true
    }

    var entry: Entry { entries.all[place] }

    func seek(_ key: UnsafeRawBufferPointer) {
        place = entries.place(of: key)
        prefix = prefixCount.flatMap { $0 <= key.count ? Array(key[..<$0]) : nil }
    }

    func seekToFirst() {
        place = 0
        prefix = nil
    }

    func next() { place += 1 }
}

package func rocksdb_create_iterator_cf(
    _ database: OpaquePointer, _ options: OpaquePointer, _ family: OpaquePointer
) -> OpaquePointer { handle(Cursor(object(database), object(options), object(family))) }
package func rocksdb_iter_destroy(_ iterator: OpaquePointer) { release(iterator) }
package func rocksdb_iter_valid(_ iterator: OpaquePointer) -> UInt8 {
    object(iterator, Cursor.self).isValid ? 1 : 0
}
package func rocksdb_iter_seek_to_first(_ iterator: OpaquePointer) {
    object(iterator, Cursor.self).seekToFirst()
}
package func rocksdb_iter_seek(_ iterator: OpaquePointer, _ key: UnsafePointer<CChar>?, _ count: Int) {
    object(iterator, Cursor.self).seek(bytes(key, count))
}
package func rocksdb_iter_next(_ iterator: OpaquePointer) { object(iterator, Cursor.self).next() }
package func rocksdb_iter_key(
    _ iterator: OpaquePointer, _ count: UnsafeMutablePointer<Int>
) -> UnsafePointer<CChar>? { start(object(iterator, Cursor.self).entry.key, count) }
package func rocksdb_iter_value(
    _ iterator: OpaquePointer, _ count: UnsafeMutablePointer<Int>
) -> UnsafePointer<CChar>? { start(object(iterator, Cursor.self).entry.value, count) }
package func rocksdb_iter_get_error(
    _ iterator: OpaquePointer, _ failure: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>
) { report(object(iterator, Cursor.self).failure, failure) }
