import SluiceModel

/// What the owner of a ``DeliveryMachine`` has to do, in the order in which the actions come.
public enum DeliveryAction: Equatable, Sendable {
    /// Put the item into its lane's stream scheduler.
    case enqueue(UInt32, atFront: Bool)
    /// Take it out again; it waits there.
    case dequeue(UInt32)
    /// Its job was replaced while it waits in the scheduler: it keeps its place there, its length is another, and its
    /// priority may be more urgent.
    case requeue(UInt32)
    /// The item has ended: write its outcome, free the job, release the slot. `successor` is the slot of the push that
    /// superseded it, ``DeliveryMachine/noSlot`` otherwise. When its progress says that it is stored, remove it from the
    /// store after Kafka has acknowledged the outcome, unless the store has a newer version by then.
    case finish(UInt32, OutcomeKind, OutcomeCause?, successor: UInt32)
    /// Free the job and release the slot without an outcome: Kafka (or the store) has it for whoever takes the
    /// partition over.
    case drop(UInt32)
    /// Make the item durable, with what ``DeliveryMachine/progressToStore(_:at:)`` says.
    /// ``DeliveryMachine/stored(_:version:at:)`` or ``DeliveryMachine/storeFailed(_:version:)`` has to follow where the
    /// store is durable.
    case store(UInt32, version: UInt64)
    /// The record is durable in the store: its offset counts as complete, and its outcome completes none.
    case offsetDone(partition: UInt16, offset: Int64)
    /// The store has the item as it is, and will bring it back when it is due: free the job, release the slot. All
    /// items of its device leave together.
    case evict(UInt32)
    /// Make what is known of a device durable: ``DeliveryMachine/presence(_:)`` of this number. Only where the store is.
    case keepPresence(UInt32)
    /// Its device has a new token while it is in flight or right behind: remember the token for a later `readdress`.
    case noteMove(UInt32)
    /// The job is for the new token of its device from here on, which is this device: the token of the event, or the one that
    /// was noted.
    case readdress(UInt32, DeviceKey)
    /// The new token of its device belongs to another shard: ``DeliveryMachine/export(_:)`` it, release the slot, and
    /// adopt it there.
    case depart(UInt32)
    /// The answers to a topic's pushes have stopped the topic. For a person to mend.
    case alert(topic: UInt16, slot: UInt32, TopicFault)
    /// The topic's pushes go on.
    case recovered(topic: UInt16)
    /// Pushes of the topic wait for what no clock ends: those that the store has need not come back before
    /// ``resumed(topic:)``. Only where the store is durable.
    case parked(topic: UInt16)
    /// The item's device is online, and the item leaves memory by the next action: it comes back when it is its turn.
    case awaitsTurn(UInt32)
    /// All pushes of the topic come back that the store has as parked.
    case resumed(topic: UInt16)
    /// A few pushes of a stopped topic come back that the store has as parked: to find out whether APNs takes them.
    case probeWanted(topic: UInt16)
}

/// A queue of actions over a ring that grows when it must: in steady state nothing is allocated.
struct ActionQueue: ~Copyable {
    private var ring: UnsafeMutablePointer<DeliveryAction>
    private var capacity: Int
    private var head = 0
    private(set) var count = 0

    init(capacity: Int = 256) {
        self.capacity = capacity
        ring = .allocate(capacity: capacity)
    }

    deinit { ring.deallocate() }

    mutating func append(_ action: DeliveryAction) {
        if count == capacity { grow() }
        (ring + ((head + count) & (capacity - 1))).initialize(to: action)
        count += 1
    }

    mutating func popFirst() -> DeliveryAction? {
        guard count > 0 else { return nil }
        let action = (ring + head).move()
        head = (head + 1) & (capacity - 1)
        count -= 1
        return action
    }

    private mutating func grow() {
        let larger = UnsafeMutablePointer<DeliveryAction>.allocate(capacity: 2 * capacity)
        for index in 0..<count {
            (larger + index).initialize(to: (ring + ((head + index) & (capacity - 1))).move())
        }
        ring.deallocate()
        ring = larger
        capacity *= 2
        head = 0
    }
}
