/// Assigned partitions, each at a *place*, a small number that is reused. Records and outcomes carry a *slot* instead.
/// A slot is reused only after all other slots. A late outcome of a removed partition therefore meets no other
/// partition.
public struct PartitionSlots: ~Copyable {
    /// States by place, initialised where `isUsed`. An array of optionals would copy a state out and back for each use.
    private var states: UnsafeMutablePointer<PartitionLifecycle>
    private var capacity = 8
    private var isUsed: [Bool] = []
    /// Places by slot and by partition, or `none`. The arrays grow as far as slots and partitions are used.
    private var placeBySlot: [UInt16] = []
    private var placeByPartition: [UInt16] = []
    private var freePlaces: [Int] = []
    private var nextSlot: UInt16 = 0

    private static let none = UInt16.max

    public init() { states = .allocate(capacity: capacity) }

    deinit {
        for place in isUsed.indices where isUsed[place] { (states + place).deinitialize(count: 1) }
        states.deallocate()
    }

    public var count: Int { isUsed.count - freePlaces.count }

    /// Places in use.
    public var places: [Int] { isUsed.indices.filter { isUsed[$0] } }

    /// Calls `body` with each place in use.
    @inline(__always)
    func forEachPlace(_ body: (Int) -> Void) {
        for place in isUsed.indices where isUsed[place] { body(place) }
    }

    public var numbers: [Int32] { places.map { self[$0].partition } }

    /// Partition at a place, which must be in use. The state is accessed by its address, so that no copy is made. With
    /// `_read`, debug builds crashed on a part of the state. The part's memory was in use again before the call on that
    /// part had returned.
    public internal(set) subscript(place: Int) -> PartitionLifecycle {
        @inline(__always) unsafeAddress {
            precondition(isUsed[place])
            return UnsafePointer(states + place)
        }
        @inline(__always) unsafeMutableAddress {
            precondition(isUsed[place])
            return states + place
        }
    }

    public func place(ofSlot slot: UInt16) -> Int? { Self.place(placeBySlot, Int(slot)) }

    public func place(ofPartition partition: Int32) -> Int? { Self.place(placeByPartition, Int(partition)) }

    @inline(__always)
    private static func place(_ places: [UInt16], _ index: Int) -> Int? {
        guard places.indices.contains(index), places[index] != none else { return nil }
        return Int(places[index])
    }

    /// - Returns: the partition's place; nil when all slots are in use.
    @discardableResult
    mutating func insert(_ state: PartitionLifecycle) -> Int? {
        guard count < Int(Self.none) - 1 else { return nil }
        // The last slot marks records of the changelog.
        while nextSlot == Self.none || place(ofSlot: nextSlot) != nil { nextSlot &+= 1 }
        let slot = nextSlot
        nextSlot &+= 1
        let place = freePlaces.popLast() ?? isUsed.count
        if place == isUsed.count { makeRoom() }
        isUsed[place] = true
        (states + place).initialize(to: state)
        states[place].slot = slot
        Self.set(&placeBySlot, Int(slot), UInt16(place))
        Self.set(&placeByPartition, Int(state.partition), UInt16(place))
        return place
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

    private static func set(_ places: inout [UInt16], _ index: Int, _ place: UInt16) {
        while places.count <= index { places.append(none) }
        places[index] = place
    }

    @discardableResult
    mutating func remove(_ place: Int) -> PartitionLifecycle? {
        guard isUsed.indices.contains(place), isUsed[place] else { return nil }
        let state = (states + place).move()
        isUsed[place] = false
        freePlaces.append(place)
        placeBySlot[Int(state.slot)] = Self.none
        let partition = Int(state.partition)
        if placeByPartition[partition] == UInt16(place) { placeByPartition[partition] = Self.none }
        return state
    }
}
