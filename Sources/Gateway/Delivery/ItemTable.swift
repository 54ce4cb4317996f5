import APNS
import Kafka
import SluiceModel

/// One job between Kafka and its outcome, in a shard's table. Its slices point into the record, which lives in
/// librdkafka's memory until the item is released.
struct Item {
    enum State: UInt8 {
        case free
        /// In the scheduler's queue.
        case waiting
        /// On a stream.
        case inFlight
        /// Between two attempts.
        case retrying
    }

    var push: PushJob
    var record: ConsumedRecord
    var topic: PushRequestEncoder.Topic
    var polledMilliseconds: Int64
    /// 0 until it is sent.
    var firstSentMilliseconds: Int64 = 0
    var attempts: UInt32 = 0
    /// Attempts in a row that the server did not look at.
    var refusals: UInt32 = 0
    /// Of the provider token it was last sent with.
    var tokenGeneration: UInt64 = 0
    var lane: UInt16
    var app: UInt16
    var partitionSlot: UInt16
}

/// Preallocated items, known by their slot.
struct ItemTable: ~Copyable {
    let capacity: Int
    private let items: UnsafeMutablePointer<Item>
    private let states: UnsafeMutablePointer<Item.State>
    private let freeSlots: UnsafeMutablePointer<UInt32>
    private var freeCount: Int

    init(capacity: Int) {
        self.capacity = capacity
        items = .allocate(capacity: capacity)
        states = .allocate(capacity: capacity)
        states.initialize(repeating: .free, count: capacity)
        freeSlots = .allocate(capacity: capacity)
        freeCount = capacity
        for index in 0..<capacity { freeSlots[index] = UInt32(capacity - 1 - index) }
    }

    deinit {
        for slot in 0..<capacity where states[slot] != .free {
            items[slot].push.release()
            items[slot].record.destroy()
        }
        items.deallocate()
        states.deallocate()
        freeSlots.deallocate()
    }

    var count: Int { capacity - freeCount }

    /// Takes the item in; nil when the table is full.
    mutating func insert(_ item: consuming Item) -> UInt32? {
        guard freeCount > 0 else { return nil }
        freeCount -= 1
        let slot = freeSlots[freeCount]
        states[Int(slot)] = .waiting
        (items + Int(slot)).initialize(to: item)
        return slot
    }

    /// The item in a slot that is taken. Valid until it is released.
    func item(_ slot: UInt32) -> UnsafeMutablePointer<Item> { items + Int(slot) }

    func state(_ slot: UInt32) -> Item.State { states[Int(slot)] }

    func setState(_ slot: UInt32, _ state: Item.State) { states[Int(slot)] = state }

    /// Frees the slot and what it holds.
    mutating func release(_ slot: UInt32) {
        items[Int(slot)].push.release()
        items[Int(slot)].record.destroy()
        (items + Int(slot)).deinitialize(count: 1)
        states[Int(slot)] = .free
        freeSlots[freeCount] = slot
        freeCount += 1
    }
}
