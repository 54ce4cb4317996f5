/// Queue over a ring that grows when it is full; in steady state it allocates nothing. An index is the distance from
/// the front.
struct RingQueue<Element: BitwiseCopyable>: ~Copyable {
    private var ring: UnsafeMutablePointer<Element>
    private var capacity: Int
    private var head = 0
    private(set) var count = 0

    /// - Parameter capacity: a power of two.
    init(capacity: Int) {
        precondition(capacity > 0 && capacity & (capacity - 1) == 0)
        self.capacity = capacity
        ring = .allocate(capacity: capacity)
    }

    deinit { ring.deallocate() }

    var isEmpty: Bool { count == 0 }

    var first: Element? { count == 0 ? nil : ring[head] }

    subscript(index: Int) -> Element {
        @inline(__always) get {
            assert(index >= 0 && index < count)
            return ring[(head &+ index) & (capacity &- 1)]
        }
        @inline(__always) set {
            assert(index >= 0 && index < count)
            ring[(head &+ index) & (capacity &- 1)] = newValue
        }
    }

    @inline(__always)
    mutating func append(_ element: Element) {
        if count == capacity { grow() }
        (ring + ((head &+ count) & (capacity &- 1))).initialize(to: element)
        count &+= 1
    }

    mutating func popFirst() -> Element? {
        guard let element = first else { return nil }
        removeFirst(1)
        return element
    }

    @inline(__always)
    mutating func removeFirst(_ removed: Int) {
        assert(removed >= 0 && removed <= count)
        head = (head &+ removed) & (capacity &- 1)
        count &-= removed
    }

    @inline(never)
    private mutating func grow() {
        let larger = UnsafeMutablePointer<Element>.allocate(capacity: 2 * capacity)
        let straight = min(count, capacity - head)
        larger.initialize(from: ring + head, count: straight)
        (larger + straight).initialize(from: ring, count: count - straight)
        ring.deallocate()
        ring = larger
        capacity *= 2
        head = 0
    }
}
