import DeliveryCore
import EventLoop
import SluiceModel

/// Bytes of records that wait to be produced, or would be produced again after an abort. Consecutive handles identify
/// the records, which leave from the front. Their memory is reused.
struct KeptRecords: ~Copyable {
    struct Entry: BitwiseCopyable {
        /// Position among all bytes ever kept.
        fileprivate var start: UInt64 = 0
        /// Bytes of the key; negative without a key.
        fileprivate var keyCount: Int32 = -1
        /// Bytes of the value; negative without a value.
        fileprivate var valueCount: Int32 = -1
        /// Bytes of the headers. The lengths of its name and value precede each header.
        fileprivate var headersCount: Int32 = 0
        /// Partition of the topic; -1 leaves the choice to the partitioner.
        var partition: Int32 = -1
        var opaque: UInt = 0
        var kind = ProduceOrder.Kind.outcome
    }

    /// A ring; its capacity is a power of two.
    private var entries: UnsafeMutablePointer<Entry>
    private var capacity = 1024
    private var head = 0
    private(set) var count = 0
    /// Handle of the first entry.
    private var front: UInt32 = 0
    private var bytes = ByteQueue(capacity: Self.usualBytes)
    /// Highest count of bytes since there were none.
    private var mostBytes = 0

    private static let usualBytes = 1 << 16
    /// Bytes in use above which the storage is freed once it is empty.
    private static let mostBytesKept = 64 << 20

    init() { entries = .allocate(capacity: capacity) }

    deinit { entries.deallocate() }

    /// Bytes of keys, values and headers.
    var byteCount: Int { bytes.count }

    mutating func keep(
        _ handle: UInt32, _ kind: ProduceOrder.Kind, partition: Int32, key: UnsafeRawBufferPointer?,
        value: UnsafeRawBufferPointer?, headers: UnsafeRawBufferPointer? = nil, opaque: UInt
    ) {
        if count == 0 { front = handle }
        // A record produced without being kept has an entry without bytes.
        while front &+ UInt32(truncatingIfNeeded: count) != handle {
            append(Entry(start: bytes.endPosition))
        }
        append(
            Entry(
                start: bytes.endPosition, keyCount: Self.count(key), valueCount: Self.count(value),
                headersCount: max(Self.count(headers), 0), partition: partition, opaque: opaque, kind: kind))
        if let key { bytes.append(key) }
        if let value { bytes.append(value) }
        if let headers { bytes.append(headers) }
        mostBytes = max(mostBytes, bytes.count)
    }

    private static func count(_ part: UnsafeRawBufferPointer?) -> Int32 { part.map { Int32($0.count) } ?? -1 }

    private mutating func append(_ entry: Entry) {
        if count == capacity {
            let larger = UnsafeMutablePointer<Entry>.allocate(capacity: 2 * capacity)
            for index in 0..<count {
                (larger + index).initialize(to: entries[(head + index) & (capacity - 1)])
            }
            entries.deallocate()
            entries = larger
            capacity *= 2
            head = 0
        }
        (entries + ((head + count) & (capacity - 1))).initialize(to: entry)
        count += 1
    }

    /// Drops all records before this handle.
    mutating func forget(before handle: UInt32) {
        let distance = Int(Int32(bitPattern: handle &- front))
        guard distance > 0, count > 0 else { return }
        let removed = min(distance, count)
        head = (head + removed) & (capacity - 1)
        count -= removed
        front = front &+ UInt32(removed)
        guard count == 0 else {
            return bytes.consume(Int(entries[head].start &- bytes.frontPosition))
        }
        bytes.removeAll()
        if mostBytes > Self.mostBytesKept { bytes = ByteQueue(capacity: Self.usualBytes) }
        mostBytes = 0
    }

    /// Nil when nothing is kept under this handle.
    subscript(handle: UInt32) -> Entry? {
        let index = handle &- front
        return index < UInt32(count) ? entries[(head + Int(index)) & (capacity - 1)] : nil
    }

    /// Passes all records, in their order. A record that was produced without being kept is among them, without bytes.
    func forEachRecord(_ body: (UInt32, Entry) -> Void) {
        for index in 0..<count {
            body(front &+ UInt32(index), entries[(head + index) & (capacity - 1)])
        }
    }

    /// The parts of a record's bytes. Valid until the next change.
    func parts(
        of entry: Entry
    ) -> (key: UnsafeRawBufferPointer?, value: UnsafeRawBufferPointer?, headers: UnsafeRawBufferPointer) {
        let all = bytes.readable
        var next = Int(entry.start &- bytes.frontPosition)
        func part(_ count: Int32) -> UnsafeRawBufferPointer? {
            guard count >= 0 else { return nil }
            defer { next += Int(count) }
            return UnsafeRawBufferPointer(rebasing: all[next..<(next + Int(count))])
        }
        let key = part(entry.keyCount)
        let value = part(entry.valueCount)
        return (key, value, part(entry.headersCount) ?? UnsafeRawBufferPointer(start: nil, count: 0))
    }
}

/// Headers of a record as bytes of one row.
enum HeaderBytes {
    static func append(
        _ name: UnsafeRawBufferPointer, _ value: UnsafeRawBufferPointer?, to row: inout ByteWriter
    ) {
        row.append(littleEndian: Int32(name.count))
        row.append(littleEndian: value.map { Int32($0.count) } ?? -1)
        row.append(name)
        if let value { row.append(value) }
    }

    static func decode(_ row: UnsafeRawBufferPointer) -> [(name: String, value: [UInt8]?)] {
        var headers: [(name: String, value: [UInt8]?)] = []
        var next = 0
        while next < row.count {
            let name = Int(row.loadUnaligned(fromByteOffset: next, as: Int32.self))
            let value = Int(row.loadUnaligned(fromByteOffset: next + 4, as: Int32.self))
            next += 8
            let text = String(decoding: row[next..<(next + name)], as: UTF8.self)
            next += name
            headers.append((text, value < 0 ? nil : Array(row[next..<(next + value)])))
            next += max(value, 0)
        }
        return headers
    }
}
