import Glibc

/// A growable queue of bytes: appended at the back, consumed from the front. The queue keeps its storage, so that in
/// steady state nothing is allocated. Freed with the value.
public struct ByteQueue: ~Copyable {
    @usableFromInline var base: UnsafeMutableRawPointer
    @usableFromInline var capacity: Int
    @usableFromInline var head = 0
    @usableFromInline var tail = 0
    /// Position of the storage's first byte among all bytes that were ever appended.
    @usableFromInline var origin: UInt64 = 0

    /// - Parameter capacity: Bytes to allocate at first; at least 64 are allocated.
    public init(capacity: Int) {
        self.capacity = max(capacity, 64)
        base = .allocate(byteCount: self.capacity, alignment: 16)
    }

    deinit {
        base.deallocate()
    }

    /// Number of bytes waiting to be consumed.
    @inlinable public var count: Int { tail - head }

    @inlinable public var isEmpty: Bool { head == tail }

    /// Number of bytes consumed since the beginning.
    @inlinable public var frontPosition: UInt64 { origin &+ UInt64(head) }

    /// Number of bytes appended since the beginning.
    @inlinable public var endPosition: UInt64 { origin &+ UInt64(tail) }

    /// The waiting bytes. Valid until the queue is changed.
    @inlinable public var readable: UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(start: base + head, count: tail - head)
    }

    /// Returns room for at least `count` bytes behind the waiting bytes. Valid until the queue is changed.
    /// ``commit(_:)`` appends the written bytes.
    @inlinable public mutating func prepare(_ count: Int) -> UnsafeMutableRawBufferPointer {
        if capacity - tail < count { makeRoom(count) }
        return UnsafeMutableRawBufferPointer(start: base + tail, count: capacity - tail)
    }

    /// Appends the first `count` bytes of the room that ``prepare(_:)`` returned.
    @inlinable public mutating func commit(_ count: Int) {
        tail += count
    }

    /// Appends a copy of the bytes.
    @inlinable public mutating func append(_ bytes: UnsafeRawBufferPointer) {
        guard let source = bytes.baseAddress, bytes.count > 0 else { return }
        let room = prepare(bytes.count)
        memcpy(room.baseAddress!, source, bytes.count)
        tail += bytes.count
    }

    /// Drops `count` bytes from the front.
    @inlinable public mutating func consume(_ count: Int) {
        head += count
        if head == tail {
            origin &+= UInt64(head)
            head = 0
            tail = 0
        }
    }

    /// Drops all waiting bytes and keeps the storage.
    public mutating func removeAll() {
        origin &+= UInt64(tail)
        head = 0
        tail = 0
    }

    @usableFromInline mutating func makeRoom(_ room: Int) {
        let used = tail - head
        origin &+= UInt64(head)
        if used + room <= capacity, head >= used {
            memcpy(base, base + head, used)
        } else {
            while capacity < used + room { capacity *= 2 }
            let grown = UnsafeMutableRawPointer.allocate(byteCount: capacity, alignment: 16)
            memcpy(grown, base + head, used)
            base.deallocate()
            base = grown
        }
        head = 0
        tail = used
    }
}
