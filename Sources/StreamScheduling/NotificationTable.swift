/// The notifications of one event loop: a preallocated node for each slot `0..<capacity`. The schedulers of that loop
/// link their queues through the nodes.
///
/// The loop's schedulers share the table, so that its memory doesn't grow with their number. A slot belongs to one
/// scheduler at a time. 32 bytes a slot. Not Sendable: the table belongs to its loop's thread.
public final class NotificationTable {
    /// Slots are numbered `0..<capacity`.
    public let capacity: Int
    let nodes: UnsafeMutablePointer<NotificationNode>
    private var owners: UInt32 = 0

    /// Bytes that each slot takes.
    public static var bytesPerSlot: Int { MemoryLayout<NotificationNode>.stride }

    public init(capacity: Int) {
        self.capacity = max(0, min(capacity, Int(UInt32.max) - 1))
        nodes = allocateLines(capacity: self.capacity)
        nodes.initialize(repeating: NotificationNode(), count: max(1, self.capacity))
    }

    deinit { nodes.deallocate() }

    /// Returns a mark by which a new scheduler recognises its slots.
    func newOwner() -> UInt32 {
        owners += 1
        return owners
    }
}

@available(*, unavailable) extension NotificationTable: Sendable {}

/// A slot. `next` of a queue's last node and `previous` of its first are stale: the queue knows its ends.
struct NotificationNode: BitwiseCopyable {
    enum State: UInt8 {
        case idle
        case waiting
        case assigned
    }

    /// When the notification was enqueued, in nanoseconds.
    var since: UInt64 = 0
    var next: UInt32 = 0
    var previous: UInt32 = 0
    var bytes: UInt32 = 0
    /// The scheduler in which the notification waits or is assigned.
    var owner: UInt32 = 0
    var app: UInt16 = 0
    var level: UInt8 = 0
    var state = State.idle
}
