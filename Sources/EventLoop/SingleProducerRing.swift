import Synchronization

/// A bounded queue from one thread to another, without locks: a ring of trivial elements with separate indexes for both
/// sides.
// Sendable: `storage` is allocated once, and each index has one writer. The producer writes an element before
// publishing it by `tail` (release). The consumer reads an element only after reading `tail` (acquire). The reverse
// holds for `head`.
public final class SingleProducerRing<Element: BitwiseCopyable>: @unchecked Sendable {
    private let storage: UnsafeMutablePointer<Element>
    private let mask: Int
    private let head = Atomic<Int>(0)
    private let tail = Atomic<Int>(0)

    /// Creates a ring with room for `capacity` elements, rounded up to a power of two.
    public init(capacity: Int) {
        var size = 2
        while size < capacity { size *= 2 }
        mask = size - 1
        storage = .allocate(capacity: size)
    }

    deinit {
        storage.deallocate()
    }

    /// Number of elements that the ring holds at most, a power of two.
    public var capacity: Int { mask + 1 }

    /// Number of elements in the ring at a moment within the call.
    public var count: Int { tail.load(ordering: .acquiring) - head.load(ordering: .acquiring) }

    /// Appends an element. Producer only. Returns false when the ring is full.
    public func push(_ element: Element) -> Bool {
        let position = tail.load(ordering: .relaxed)
        guard position - head.load(ordering: .acquiring) <= mask else { return false }
        storage[position & mask] = element
        tail.store(position + 1, ordering: .releasing)
        return true
    }

    /// Removes and returns the first element. Consumer only. Nil when the ring is empty.
    public func pop() -> Element? {
        let position = head.load(ordering: .relaxed)
        guard position < tail.load(ordering: .acquiring) else { return nil }
        let element = storage[position & mask]
        head.store(position + 1, ordering: .releasing)
        return element
    }
}
