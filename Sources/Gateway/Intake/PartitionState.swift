import DeliveryCore
import Kafka
import RetryStore

/// One assigned partition: what of it is finished, and what is known of its end.
struct PartitionState {
    let topicPartition: TopicPartition
    /// The number that its records and outcomes carry; given by ``PartitionSlots/insert(_:)``.
    fileprivate(set) var slot: UInt16 = 0
    var tracker: OffsetTracker
    /// When the records were polled that are not finished.
    var pollTimes = PollTimes()
    /// Records that the tracker's window could not hold yet, in order. Owned. No more than a batch: the partition is
    /// paused.
    var held: [ConsumedRecord] = []
    /// No new record is taken: the group takes the partition away.
    var isEnding = false
    /// Something was finished since the last commit.
    var isDirty = false
    /// What was committed last.
    var committed: OffsetCommit?
    /// The commit that the group has for sure. Nil: nothing is known to be committed.
    var taken: OffsetCommit?
    /// Nil without a store.
    var store: PartitionStore?
    /// Of items that are to leave the store.
    var removals = RemovalOrder()

    init(topicPartition: TopicPartition, tracker: OffsetTracker) {
        self.topicPartition = topicPartition
        self.tracker = tracker
    }

    /// Takes a record of so many bytes.
    mutating func begin(_ offset: Int64, bytes: Int, at now: UInt64) -> OffsetTracker.Begin {
        let begin = tracker.begin(offset, bytes: bytes)
        if begin == .begun { pollTimes.polled(offset, at: now, watermark: tracker.watermark) }
        return begin
    }

    /// Finishes a record. The bytes are its part of what was outstanding.
    mutating func complete(_ offset: Int64) -> (OffsetTracker.Completion, bytes: Int) {
        let before = tracker.outstandingBytes
        let completion = tracker.complete(offset)
        return (completion, before - tracker.outstandingBytes)
    }
}

/// The assigned partitions, each at a *place*, a small number that is used again. Records and outcomes carry a *slot*
/// instead, which is used again only after all others, so that an outcome that comes late for a partition that went
/// away meets nobody.
struct PartitionSlots: ~Copyable {
    /// By place; initialised where `isUsed`. Not an array of optionals: that copies a state out and back for each use.
    private var states: UnsafeMutablePointer<PartitionState>
    private var capacity = 8
    private var isUsed: [Bool] = []
    /// By slot and by partition: the place, or `none`. They grow as far as slots and partitions are used.
    private var placeBySlot: [UInt16] = []
    private var placeByPartition: [UInt16] = []
    private var freePlaces: [Int] = []
    private var nextSlot: UInt16 = 0

    private static let none = UInt16.max

    init() { states = .allocate(capacity: capacity) }

    deinit {
        for place in isUsed.indices where isUsed[place] { (states + place).deinitialize(count: 1) }
        states.deallocate()
    }

    var count: Int { isUsed.count - freePlaces.count }

    /// The places in use.
    var places: [Int] { isUsed.indices.filter { isUsed[$0] } }

    var topicPartitions: [TopicPartition] { places.map { self[$0].topicPartition } }

    /// The partition at a place, which must be in use. Accessed by its address, so that no copy is made. With `_read`, debug
    /// builds crashed on a part of the state whose memory was in use again before the call on that part had returned.
    subscript(place: Int) -> PartitionState {
        @inline(__always) unsafeAddress {
            precondition(isUsed[place])
            return UnsafePointer(states + place)
        }
        @inline(__always) unsafeMutableAddress {
            precondition(isUsed[place])
            return states + place
        }
    }

    /// Whether something at a place waits for removals. Asked of each outcome: the subscript would copy all of the state.
    func awaitsRemovals(_ place: Int) -> Bool {
        precondition(isUsed[place])
        return !states[place].removals.isEmpty
    }

    func place(ofSlot slot: UInt16) -> Int? { Self.place(placeBySlot, Int(slot)) }

    func place(ofPartition partition: Int32) -> Int? { Self.place(placeByPartition, Int(partition)) }

    func place(of topicPartition: TopicPartition) -> Int? { place(ofPartition: topicPartition.partition) }

    @inline(__always)
    private static func place(_ places: [UInt16], _ index: Int) -> Int? {
        guard places.indices.contains(index), places[index] != none else { return nil }
        return Int(places[index])
    }

    /// - Returns: its place.
    @discardableResult
    mutating func insert(_ state: PartitionState) -> Int {
        precondition(count < Int(Self.none), "more than \(Self.none) partitions")
        while nextSlot == ChangeSource.slot || place(ofSlot: nextSlot) != nil { nextSlot &+= 1 }
        let slot = nextSlot
        nextSlot &+= 1
        let place = freePlaces.popLast() ?? isUsed.count
        if place == isUsed.count { makeRoom() }
        isUsed[place] = true
        (states + place).initialize(to: state)
        states[place].slot = slot
        Self.set(&placeBySlot, Int(slot), UInt16(place))
        Self.set(&placeByPartition, Int(state.topicPartition.partition), UInt16(place))
        return place
    }

    private mutating func makeRoom() {
        isUsed.append(false)
        guard isUsed.count > capacity else { return }
        let larger = UnsafeMutablePointer<PartitionState>.allocate(capacity: capacity * 2)
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
    mutating func remove(_ place: Int) -> PartitionState? {
        guard isUsed.indices.contains(place), isUsed[place] else { return nil }
        let state = (states + place).move()
        isUsed[place] = false
        freePlaces.append(place)
        placeBySlot[Int(state.slot)] = Self.none
        let partition = Int(state.topicPartition.partition)
        if placeByPartition[partition] == UInt16(place) { placeByPartition[partition] = Self.none }
        return state
    }
}
