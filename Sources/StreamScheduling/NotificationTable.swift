/// Where the notifications of one event loop stand: a preallocated node for each slot `0..<capacity`, through which
/// the schedulers of that loop link their queues.
///
/// Shared by the schedulers of one loop, so that the memory is there once however many they are; a slot belongs to
/// one of them at a time. 32 bytes a slot. Not Sendable: it belongs to its loop's thread.
public final class NotificationTable {
    /// Slots are numbered `0..<capacity`.
    public let capacity: Int
    let nodes: UnsafeMutablePointer<NotificationNode>
    private var owners: UInt32 = 0

    public static var bytesPerSlot: Int { MemoryLayout<NotificationNode>.stride }

    public init(capacity: Int) {
        self.capacity = max(0, min(capacity, Int(UInt32.max) - 1))
        nodes = allocateLines(capacity: self.capacity)
        nodes.initialize(repeating: NotificationNode(), count: max(1, self.capacity))
    }

    deinit { nodes.deallocate() }

    /// A mark for one more scheduler, by which it knows its slots.
    func newOwner() -> UInt32 {
        owners += 1
        return owners
    }
}

@available(*, unavailable) extension NotificationTable: Sendable {}

/// One slot. `next` of a queue's last and `previous` of its first are stale: the queue knows its ends.
struct NotificationNode: BitwiseCopyable {
    enum State: UInt8 {
        case idle
        case waiting
        case assigned
    }

    /// When it was enqueued, in nanoseconds.
    var since: UInt64 = 0
    var next: UInt32 = 0
    var previous: UInt32 = 0
    var bytes: UInt32 = 0
    /// The scheduler that it waits or is assigned in.
    var owner: UInt32 = 0
    var app: UInt16 = 0
    var level: UInt8 = 0
    var state = State.idle
}
