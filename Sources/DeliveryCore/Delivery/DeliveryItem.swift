import SluiceModel

/// State of an item between its arrival and its end.
public enum ItemState: UInt8, CaseIterable, BitwiseCopyable, Sendable {
    /// The slot has no item.
    case free
    /// Being moved from one state to the next: never seen between two calls.
    case undispatched
    /// In its pool's stream scheduler.
    case waiting
    /// On a stream.
    case inFlight
    /// Behind an older push of its identity that is in flight and isn't retried. An expired item also stays here: it
    /// ends after the older push.
    case blocked
    /// Waits because its device has as many items in flight as it may.
    case deviceLimited
    /// Waits for a successor, during the app's coalesce window.
    case coalescing
    /// Between two attempts, or its device is held (429).
    case retrying
    /// Its `deliver-at` is still to come.
    case scheduled
    /// Its device is offline.
    case held
    /// Waits for its turn because its device is back.
    case returning
    /// Accepted by APNs; the device's receipt is awaited.
    case confirming
    /// Waits because its topic is stopped: APNs refuses the credential, the topic or most device tokens. Or waits because
    /// pushes of its tenant are parked.
    case topicCircuitOpen
    /// Waits because its credential's pool has had no connection for a while, and other pools have one.
    case poolUnavailable
    /// Ended; the owner hasn't released the slot yet.
    case finished

    /// True when the item counts as pending: neither free nor ended.
    public var isLive: Bool { self != .free && self != .finished }
}

/// Slot of the machine. Links are slots, ``DeliveryMachine/noSlot`` where there is none.
///
/// 128 bytes, two cache lines. The first line has all fields that a push needs at its turn and at its end.
struct DeliveryItem: BitwiseCopyable {
    struct Flags: OptionSet, BitwiseCopyable {
        let rawValue: UInt16

        /// `apns-expiration: 0`.
        static let isOnce = Flags(rawValue: 1)
        /// A cancel came while the item was in flight: it has no further attempt.
        static let withdrawn = Flags(rawValue: 2)
        /// The item's receipt came while it was in flight or blocked.
        static let receiptSeen = Flags(rawValue: 4)
        /// The token of the item's device changed while the item was in flight, blocked or had to wait: the item moves
        /// before it is sent or retried.
        static let moves = Flags(rawValue: 8)
        /// The item is sent once although its device counts as offline.
        static let ignoresPresence = Flags(rawValue: 16)
        /// The store has the item, or was asked to keep it.
        static let stored = Flags(rawValue: 32)
        /// The item's offset counts as complete.
        static let offsetDone = Flags(rawValue: 64)
        /// The store could not keep the item: the store is asked again.
        static let storeAgain = Flags(rawValue: 128)
        /// APNs has accepted the item, and its receipt is awaited.
        static let accepted = Flags(rawValue: 256)
        /// Flags for ``Priority``, ``DeliveryMode`` and ``DuplicatePolicy``.
        static let isUrgent = Flags(rawValue: 512)
        static let isLowPower = Flags(rawValue: 1024)
        static let holds = Flags(rawValue: 2048)
        static let confirms = Flags(rawValue: 4096)
        static let avoidsDuplicates = Flags(rawValue: 8192)
        /// The store's copy of the item differs from its present state.
        static let changed = Flags(rawValue: 16384)
        /// The store was asked to keep the item, and hasn't answered yet.
        static let asked = Flags(rawValue: 32768)

        init(rawValue: UInt16) { self.rawValue = rawValue }

        init(_ facts: PushFacts) {
            self = facts.isOnce ? .isOnce : []
            switch facts.priority {
            case .immediate: insert(.isUrgent)
            case .powerAware: break
            case .lowPower: insert(.isLowPower)
            }
            switch facts.delivery {
            case .accept: break
            case .holdWhileOffline: insert(.holds)
            case .confirm: insert(.confirms)
            }
            if facts.duplicates == .avoid { insert(.avoidsDuplicates) }
        }
    }

    var expiry: Int64
    var firstSent: Int64 = 0
    /// Earliest time of the next attempt, in nanoseconds of the monotonic clock.
    var notBefore: UInt64 = 0
    var offset: Int64
    var device: UInt32
    /// Links of the list of one device's items.
    var next = DeliveryMachine.noSlot
    var previous = DeliveryMachine.noSlot
    /// Peer of the item. An item in flight has the newer item that is blocked behind it; a blocked item has the item
    /// in flight.
    var peer = DeliveryMachine.noSlot
    var topic: UInt16
    var pool: UInt16
    var partition: UInt16
    var attempts: UInt16 = 0
    var failures: UInt16 = 0
    var flags: Flags
    /// Highest bits of the order; the four highest bits are ``round``.
    private var orderHigh: UInt16
    /// ``refusals``, and in the three highest bits ``losses``.
    private var counts: UInt8 = 0
    var state = ItemState.undispatched

    // Second cache line.
    var collapseKey: UInt64
    var notificationKey: UInt64
    var deliverAt: Int64
    var created: Int64
    var registeredAt: Int64
    /// Version of the store's last request for this item.
    var storeVersion: UInt32 = 0
    /// Latest time at which the store brings the item back, in seconds since the epoch.
    var storedDue: UInt32 = 0
    /// Links of the list of items that wait for a circuit, for a pool, or to return.
    var queueNext = DeliveryMachine.noSlot
    var queuePrevious = DeliveryMachine.noSlot
    /// Receipt timeout in seconds; the highest bits are ``isStoredSuspended``, ``isOrdered`` and ``isFinal``.
    private var receiptTimeout: UInt32
    private var orderLow: UInt32

    private static let suspendedBit: UInt32 = 1 << 31
    private static let orderedBit: UInt32 = 1 << 30
    private static let finalBit: UInt32 = 1 << 29
    /// Bits of ``orderHigh`` that belong to the order.
    private static let orderHighBits: UInt16 = 12
    private static let orderHighMask: UInt16 = 1 << orderHighBits - 1

    /// Attempts in a row that APNs didn't process, 31 at most.
    var refusals: UInt8 {
        get { counts & Self.mostRefusals }
        set { counts = counts & ~Self.mostRefusals | min(newValue, Self.mostRefusals) }
    }

    private static let mostRefusals: UInt8 = 31

    /// Connections that have ended with the item in flight and without an answer, 7 at most. Those that carried other
    /// items, too, count until the item is isolated.
    var losses: UInt8 {
        get { counts &>> 5 }
        set { counts = counts & Self.mostRefusals | min(newValue, 7) &<< 5 }
    }

    /// True when the item is sent on a connection for isolated pushes.
    var isIsolated: Bool { losses >= Isolation.losses }

    var receiptTimeoutSeconds: UInt32 { receiptTimeout & (Self.finalBit - 1) }

    /// True for ``PushFacts/isOrdered``.
    var isOrdered: Bool { receiptTimeout & Self.orderedBit != 0 }
    /// True for ``PushFacts/isFinal``.
    var isFinal: Bool { receiptTimeout & Self.finalBit != 0 }

    /// True when the store has the item as suspended, and loads it when the topic's pushes continue.
    var isStoredSuspended: Bool {
        get { receiptTimeout & Self.suspendedBit != 0 }
        set {
            receiptTimeout =
                newValue ? receiptTimeout | Self.suspendedBit : receiptTimeout & ~Self.suspendedBit
        }
    }

    /// Order of arrival, 44 bits. A successor keeps its predecessor's order.
    var order: UInt64 { UInt64(orderHigh & Self.orderHighMask) &<< 32 | UInt64(orderLow) }

    /// Round of the topic's ``TokenRounds`` in which an item in flight counts, 1 to 15; 0: in none.
    var round: UInt8 {
        get { UInt8(truncatingIfNeeded: orderHigh &>> Self.orderHighBits) }
        set { orderHigh = orderHigh & Self.orderHighMask | UInt16(newValue) &<< Self.orderHighBits }
    }

    var priority: Priority {
        flags.contains(.isUrgent) ? .immediate : flags.contains(.isLowPower) ? .lowPower : .powerAware
    }

    var delivery: DeliveryMode {
        flags.contains(.confirms) ? .confirm : flags.contains(.holds) ? .holdWhileOffline : .accept
    }

    var duplicates: DuplicatePolicy { flags.contains(.avoidsDuplicates) ? .avoid : .allow }

    init(_ facts: PushFacts, device: UInt32, order: UInt64, expiry: Int64) {
        collapseKey = facts.collapseKey
        notificationKey = facts.notificationKey
        offset = facts.offset
        self.expiry = expiry
        deliverAt = facts.deliverAtMilliseconds
        created = facts.createdMilliseconds
        registeredAt = facts.registeredAtMilliseconds
        orderHigh = UInt16(truncatingIfNeeded: order &>> 32) & Self.orderHighMask
        orderLow = UInt32(truncatingIfNeeded: order)
        self.device = device
        receiptTimeout =
            min(facts.receiptTimeoutSeconds, Self.finalBit - 1) | (facts.isOrdered ? Self.orderedBit : 0)
            | (facts.isFinal ? Self.finalBit : 0)
        topic = facts.topic
        pool = facts.pool
        partition = facts.partition
        flags = Flags(facts)
    }

    var identity: PushIdentity {
        PushIdentity(collapseKey: collapseKey, notificationKey: notificationKey, topic: topic)
    }

    var progress: ItemProgress {
        var progress = ItemProgress()
        progress.attempts = attempts
        progress.failures = failures
        progress.firstSentMilliseconds = firstSent
        progress.expiryMilliseconds = expiry
        progress.isAccepted = flags.contains(.accepted)
        progress.isOffsetDone = flags.contains(.offsetDone)
        progress.isStored = flags.contains(.stored)
        progress.notBeforeNanoseconds = notBefore
        // The version is in the second cache line, which most pushes don't read.
        if progress.isStored { progress.storeVersion = UInt64(storeVersion) }
        return progress
    }
}

/// Identity of a push of one device: topic and collapse identifier, or the `apns-id` without a collapse identifier.
struct PushIdentity: Equatable {
    var collapseKey: UInt64
    var notificationKey: UInt64
    var topic: UInt16

    static func == (one: PushIdentity, other: PushIdentity) -> Bool {
        one.collapseKey == other.collapseKey
            && (one.collapseKey == 0
                ? one.notificationKey == other.notificationKey : one.topic == other.topic)
    }
}

extension PushFacts {
    var identity: PushIdentity {
        PushIdentity(collapseKey: collapseKey, notificationKey: notificationKey, topic: topic)
    }
}

/// List of items through their `queueNext` and `queuePrevious`, first come first served.
struct ItemList: BitwiseCopyable {
    private(set) var first = DeliveryMachine.noSlot
    private(set) var last = DeliveryMachine.noSlot
    private(set) var count = 0

    mutating func append(_ slot: UInt32, _ items: UnsafeMutablePointer<DeliveryItem>) {
        items[Int(slot)].queueNext = DeliveryMachine.noSlot
        items[Int(slot)].queuePrevious = last
        if last == DeliveryMachine.noSlot { first = slot } else { items[Int(last)].queueNext = slot }
        last = slot
        count += 1
    }

    mutating func remove(_ slot: UInt32, _ items: UnsafeMutablePointer<DeliveryItem>) {
        let (next, previous) = (items[Int(slot)].queueNext, items[Int(slot)].queuePrevious)
        if previous == DeliveryMachine.noSlot { first = next } else { items[Int(previous)].queueNext = next }
        if next == DeliveryMachine.noSlot {
            last = previous
        } else {
            items[Int(next)].queuePrevious = previous
        }
        count -= 1
    }
}
