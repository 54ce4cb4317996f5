// swift-format-ignore-file: AlwaysUseLowerCamelCase

/// Changes that are written together.
private final class Batch {
    var changes: [Change] = []
}

package func rocksdb_writebatch_create() -> OpaquePointer { handle(Batch()) }
package func rocksdb_writebatch_destroy(_ batch: OpaquePointer) { release(batch) }
package func rocksdb_writebatch_count(_ batch: OpaquePointer) -> Int32 {
    Int32(object(batch, Batch.self).changes.count)
}
package func rocksdb_writebatch_clear(_ batch: OpaquePointer) {
    object(batch, Batch.self).changes.removeAll(keepingCapacity: true)
}

private func add(
    _ batch: OpaquePointer, _ family: OpaquePointer, _ entry: Entry, isRemoval: Bool = false
) {
    object(batch, Batch.self).changes.append(
        Change(family: object(family, OpenFamily.self).files, entry: entry, isRemoval: isRemoval))
}

package func rocksdb_writebatch_put_cf(
    _ batch: OpaquePointer, _ family: OpaquePointer, _ key: UnsafePointer<CChar>?, _ keyCount: Int,
    _ value: UnsafePointer<CChar>?, _ valueCount: Int
) {
    add(batch, family, Entry(key: bytes(key, keyCount), value: [bytes(value, valueCount)]))
}

package func rocksdb_writebatch_putv_cf(
    _ batch: OpaquePointer, _ family: OpaquePointer, _: Int32, _ key: UnsafePointer<UnsafePointer<CChar>?>,
    _ keyCount: UnsafePointer<Int>, _ pieces: Int32, _ values: UnsafePointer<UnsafePointer<CChar>?>,
    _ counts: UnsafePointer<Int>
) {
    let value = (0..<Int(pieces)).map { bytes(values[$0], counts[$0]) }
    add(batch, family, Entry(key: bytes(key.pointee, keyCount.pointee), value: value))
}

package func rocksdb_writebatch_delete_cf(
    _ batch: OpaquePointer, _ family: OpaquePointer, _ key: UnsafePointer<CChar>?, _ count: Int
) {
    add(batch, family, Entry(key: bytes(key, count)), isRemoval: true)
}

package func rocksdb_write(
    _ database: OpaquePointer, _ options: OpaquePointer, _ batch: OpaquePointer,
    _ failure: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>
) {
    let changes = object(batch, Batch.self).changes
    report(object(database, Database.self).write(changes, object(options)), failure)
}
