/// Assigned partitions, each at an *index*, a small number that is reused. Records and outcomes carry a *slot* instead.
/// A slot is reused only after all other slots. A late outcome of a removed partition therefore meets no other
/// partition.
public struct PartitionSlots: ~Copyable {
    /// States by index, initialised where `isUsed`. An array of optionals would copy a state out and back for each use.
    private var states: UnsafeMutablePointer<PartitionLifecycle>
    private var capacity = 8
    private var isUsed: [Bool] = []
    /// Indices by slot and by partition, or `none`. The arrays grow as far as slots and partitions are used.
    private var indexBySlot: [UInt16] = []
    private var indexByPartition: [UInt16] = []
    private var freeIndices: [Int] = []
    private var nextSlot: UInt16 = 0

    private static let none = UInt16.max

    public init() { states = .allocate(capacity: capacity) }

    deinit {
        for index in isUsed.indices where isUsed[index] { (states + index).deinitialize(count: 1) }
        states.deallocate()
    }

    /// Number of assigned partitions.
    public var count: Int { isUsed.count - freeIndices.count }

    /// Indices in use.
    public var indices: [Int] { isUsed.indices.filter { isUsed[$0] } }

    /// Calls `body` with each index in use.
    @inline(__always)
    func forEachIndex(_ body: (Int) -> Void) {
        for index in isUsed.indices where isUsed[index] { body(index) }
    }

    /// Kafka's numbers of the assigned partitions, in the order of their indices.
    public var numbers: [Int32] { indices.map { self[$0].partition } }

    /// Partition at an index, which must be in use. The state is accessed by its address, so that no copy is made. With
    /// `_read`, debug builds crashed on a part of the state. The part's memory was in use again before the call on that
    /// part had returned.
    public internal(set) subscript(index: Int) -> PartitionLifecycle {
        @inline(__always) unsafeAddress {
            precondition(isUsed[index])
            return UnsafePointer(states + index)
        }
        @inline(__always) unsafeMutableAddress {
            precondition(isUsed[index])
            return states + index
        }
    }

    /// Returns the index of a slot; nil when no assigned partition has the slot.
    public func index(ofSlot slot: UInt16) -> Int? { Self.lookup(indexBySlot, Int(slot)) }

    /// Returns the index of a partition by Kafka's number; nil when the partition isn't assigned.
    public func index(ofPartition partition: Int32) -> Int? { Self.lookup(indexByPartition, Int(partition)) }

    @inline(__always)
    private static func lookup(_ table: [UInt16], _ number: Int) -> Int? {
        guard table.indices.contains(number), table[number] != none else { return nil }
        return Int(table[number])
    }

    /// - Returns: the partition's index; nil when all slots are in use.
    @discardableResult
    mutating func insert(_ state: consuming PartitionLifecycle) -> Int? {
        guard count < Int(Self.none) - 1 else { return nil }
        // The last slot marks records of the changelog.
        while nextSlot == Self.none || index(ofSlot: nextSlot) != nil { nextSlot &+= 1 }
        let slot = nextSlot
        nextSlot &+= 1
        let partition = Int(state.partition)
        state.slot = slot
        let index = freeIndices.popLast() ?? isUsed.count
        if index == isUsed.count { makeRoom() }
        isUsed[index] = true
        (states + index).initialize(to: state)
        Self.set(&indexBySlot, Int(slot), UInt16(index))
        Self.set(&indexByPartition, partition, UInt16(index))
        return index
    }

    private mutating func makeRoom() {
        isUsed.append(false)
        guard isUsed.count > capacity else { return }
        let larger = UnsafeMutablePointer<PartitionLifecycle>.allocate(capacity: capacity * 2)
        larger.moveInitialize(from: states, count: capacity)
        states.deallocate()
        states = larger
        capacity *= 2
    }

    private static func set(_ table: inout [UInt16], _ number: Int, _ index: UInt16) {
        while table.count <= number { table.append(none) }
        table[number] = index
    }

    @discardableResult
    mutating func remove(_ index: Int) -> PartitionLifecycle? {
        guard isUsed.indices.contains(index), isUsed[index] else { return nil }
        let state = (states + index).move()
        isUsed[index] = false
        freeIndices.append(index)
        indexBySlot[Int(state.slot)] = Self.none
        let partition = Int(state.partition)
        if indexByPartition[partition] == UInt16(index) { indexByPartition[partition] = Self.none }
        return state
    }
}
