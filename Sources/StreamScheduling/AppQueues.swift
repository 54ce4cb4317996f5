/// The waiting notifications of a ``StreamScheduler`` by app and class, and the rule for the next notification.
///
/// Each app has a first-in-first-out list per class. The apps that wait in a class and may send form its *ring*, served
/// by deficit round robin. Each notification costs the same, so the current app sends as many as its weight. Then the
/// next app has its turn. Only the current app has a deficit, so the ring keeps the deficit, and an app that leaves has
/// none. An app that may not send is *blocked*: in no ring, so that no decision checks the app.
struct AppQueues: ~Copyable {
    static let levels = 3
    static let none = UInt16.max
    /// Apps at most, so that links fit into 16 bits.
    static let mostApps = Int(UInt16.max)

    /// Reasons why an app is blocked.
    struct Block {
        static let capped: UInt8 = 1
        static let paced: UInt8 = 2
        static let paused: UInt8 = 4
    }

    /// An app's notifications of one class, and its neighbours in the ring.
    struct Queue {
        var head: UInt32 = 0
        var tail: UInt32 = 0
        var count: UInt32 = 0
        var next = AppQueues.none
        var previous = AppQueues.none
    }

    /// 64 bytes: a cache line.
    struct App {
        /// Queues by class; first, so that ``AppQueues/queue(_:_:)`` finds them at the record's beginning.
        var queues = (Queue(), Queue(), Queue())
        var inFlight: UInt32 = 0
        var maximumInFlight = UInt32.max
        var weight: UInt16 = 1
        /// Classes with waiting notifications, a bit each.
        var waiting: UInt8 = 0
        /// Reasons why the app may not send, a bit each; 0 when the app may send.
        var blocked: UInt8 = 0
        var hasRate = false
        /// Whether the app has an entry in the heap.
        var isToWake = false
    }

    struct Ring {
        /// The app whose turn it is; `none` when the ring is empty.
        var current = AppQueues.none
        /// Number of apps in the ring.
        var active: UInt16 = 0
        /// Notifications that the current app may still send in its turn; 0 when its turn begins.
        var deficit: UInt32 = 0
        /// Notifications of the class, those of blocked apps included.
        var waiting = 0
    }

    /// The next notification and its app; ``commit(_:now:)`` books the turn once a connection was found.
    struct Turn {
        var slot: UInt32
        var app: UInt16
        var level: UInt8
        /// Whether the floor assigns this turn to a lower class although priority 10 waits.
        var isFloor: Bool
        /// The credits after this turn.
        var credits: (Int32, Int32)
    }

    /// The most that the classes below 10 are owed, in per mille of a turn, when their turns find no room.
    static let mostCredit: Int32 = 16_000

    /// Table, kept alive for its nodes.
    private let table: NotificationTable
    let slots: Int
    let nodes: UnsafeMutablePointer<NotificationNode>
    let owner: UInt32
    /// Number of apps at most.
    let limit: Int
    /// Number of apps with a record: the lowest numbers.
    var capacity = 0
    var apps: UnsafeMutablePointer<App>
    let rings: UnsafeMutablePointer<Ring>
    /// Classes whose ring isn't empty, a bit each.
    var active: UInt8 = 0
    /// Turns, in per mille, owed to the classes below 10 (first) and to the class 1 (second).
    var credits: (Int32, Int32) = (0, 0)
    let floor: Int32
    var waiting = 0
    var assigned = 0
    var blocked = BlockedApps()
    /// Buckets by app; nil until the first app has a rate.
    var buckets: UnsafeMutablePointer<TokenBucket>?
    var wakes = WakeHeap()

    init(table: NotificationTable, apps limit: Int, floorPerMille: Int) {
        self.table = table
        slots = table.capacity
        nodes = table.nodes
        owner = table.newOwner()
        self.limit = limit
        floor = Int32(floorPerMille)
        apps = Self.allocate(0)
        rings = .allocate(capacity: Self.levels)
        rings.initialize(repeating: Ring(), count: Self.levels)
    }

    /// Frees the slots for other schedulers.
    deinit {
        if waiting + assigned > 0 {
            for slot in 0..<slots where nodes[slot].owner == owner { nodes[slot].state = .idle }
        }
        apps.deallocate()
        rings.deallocate()
        buckets?.deallocate()
    }

    @inline(__always)
    func state(of slot: UInt32) -> NotificationNode.State {
        let node = nodes + Int(slot)
        guard Int(slot) < slots, node.pointee.owner == owner else { return .idle }
        return node.pointee.state
    }

    @inline(__always)
    func queue(_ app: UInt16, _ level: Int) -> UnsafeMutablePointer<Queue> {
        UnsafeMutableRawPointer(apps + Int(app)).assumingMemoryBound(to: Queue.self) + level
    }

    // MARK: In and out

    mutating func insert(
        slot: UInt32, app number: UInt32, level: Int, bytes: UInt32, now: UInt64, atFront: Bool
    ) -> Bool {
        guard Int(slot) < slots, hasRecord(number) else { return false }
        let node = nodes + Int(slot)
        guard node.pointee.state == .idle else { return false }
        let app = UInt16(truncatingIfNeeded: number)
        node.pointee.since = now
        node.pointee.bytes = bytes
        node.pointee.owner = owner
        node.pointee.app = app
        node.pointee.level = UInt8(truncatingIfNeeded: level)
        node.pointee.state = .waiting

        let queue = queue(app, level)
        queue.pointee.count += 1
        rings[level].waiting += 1
        waiting += 1
        guard queue.pointee.count == 1 else {
            if atFront {
                node.pointee.next = queue.pointee.head
                nodes[Int(queue.pointee.head)].previous = slot
                queue.pointee.head = slot
            } else {
                node.pointee.previous = queue.pointee.tail
                nodes[Int(queue.pointee.tail)].next = slot
                queue.pointee.tail = slot
            }
            return true
        }
        queue.pointee.head = slot
        queue.pointee.tail = slot
        becameNonEmpty(app, level, now: now)
        return true
    }

    mutating func remove(slot: UInt32) -> Bool {
        guard state(of: slot) == .waiting else { return false }
        let node = nodes[Int(slot)]
        let level = Int(node.level)
        let queue = queue(node.app, level)
        nodes[Int(slot)].state = .idle
        let isHead = queue.pointee.head == slot
        let isTail = queue.pointee.tail == slot
        if isHead { queue.pointee.head = node.next } else { nodes[Int(node.previous)].next = node.next }
        if isTail {
            queue.pointee.tail = node.previous
        } else {
            nodes[Int(node.next)].previous = node.previous
        }
        queue.pointee.count -= 1
        rings[level].waiting -= 1
        waiting -= 1
        if queue.pointee.count == 0 { becameEmpty(node.app, level) }
        return true
    }

    // MARK: Turns

    /// Returns the first notification of the app and class whose turn it is; a class must be active. Changes nothing,
    /// so that a turn without a connection isn't lost.
    @inline(__always)
    func nextTurn() -> Turn {
        var credits = credits
        var level = 0
        var isFloor = false
        if active & 1 == 0 || (active > 1 && Self.owed(&credits.0, floor)) {
            level = 1
            isFloor = active & 1 != 0
            if active & 2 == 0 || (active & 4 != 0 && Self.owed(&credits.1, floor)) { level = 2 }
        }
        let app = rings[level].current
        return Turn(
            slot: queue(app, level).pointee.head, app: app, level: UInt8(level), isFloor: isFloor,
            credits: credits)
    }

    /// Returns the first notification of priority 10, out of turn; nil when none may be sent. The lower classes keep
    /// earning their share, so that their owed turn isn't lost.
    func urgentTurn() -> Turn? {
        guard active & 1 != 0 else { return nil }
        let app = rings[0].current
        return Turn(
            slot: queue(app, 0).pointee.head, app: app, level: 0, isFloor: false,
            credits: (min(credits.0 + floor, Self.mostCredit), credits.1))
    }

    /// Returns an app of a ring for which `isWanted` returns true; nil when there is none.
    func eligibleApp(where isWanted: (UInt32) -> Bool) -> UInt32? {
        for level in 0..<Self.levels {
            var app = rings[level].current
            for _ in 0..<rings[level].active {
                if isWanted(UInt32(app)) { return UInt32(app) }
                app = queue(app, level).pointee.next
            }
        }
        return nil
    }

    /// Makes it an app's turn in its most urgent class, and returns the turn; nil when the app is in no ring.
    mutating func turn(of app: UInt16) -> Turn? {
        guard Int(app) < capacity, apps[Int(app)].blocked == 0 else { return nil }
        for level in 0..<Self.levels where apps[Int(app)].waiting & 1 << UInt8(level) != 0 {
            if rings[level].current != app { (rings[level].current, rings[level].deficit) = (app, 0) }
            return Turn(
                slot: queue(app, level).pointee.head, app: app, level: UInt8(level), isFloor: false,
                credits: credits)
        }
        return nil
    }

    /// Removes the notification from its queue and books it for its app.
    @inline(__always)
    mutating func commit(_ turn: Turn, now: UInt64) {
        credits = turn.credits
        let level = Int(turn.level)
        let ring = rings + level
        let queue = queue(turn.app, level)
        let record = apps + Int(turn.app)
        let node = nodes + Int(turn.slot)
        node.pointee.state = .assigned
        ring.pointee.waiting -= 1
        waiting -= 1
        assigned += 1
        queue.pointee.count -= 1
        if queue.pointee.count == 0 {
            becameEmpty(turn.app, level)
        } else {
            queue.pointee.head = node.pointee.next
            if ring.pointee.deficit == 0 { ring.pointee.deficit = UInt32(record.pointee.weight) }
            ring.pointee.deficit -= 1
            if ring.pointee.deficit == 0 { ring.pointee.current = queue.pointee.next }
        }
        record.pointee.inFlight += 1
        var reasons: UInt8 = 0
        if record.pointee.inFlight >= record.pointee.maximumInFlight { reasons = Block.capped }
        if record.pointee.hasRate, spendToken(turn.app, now: now) > now { reasons |= Block.paced }
        if reasons != 0 { block(turn.app, reasons) }
    }

    /// Counts one contended turn: the lower side earns its share, and has the turn once a whole turn is owed.
    @inline(__always)
    private static func owed(_ credit: inout Int32, _ share: Int32) -> Bool {
        credit += share
        guard credit >= 1000 else { return false }
        credit -= 1000
        return true
    }

    /// Ends an assigned notification. Returns when it was enqueued, in nanoseconds; nil when the slot isn't assigned
    /// here.
    @inline(__always)
    mutating func finish(slot: UInt32) -> UInt64? {
        guard state(of: slot) == .assigned else { return nil }
        let node = nodes + Int(slot)
        node.pointee.state = .idle
        assigned -= 1
        let record = apps + Int(node.pointee.app)
        record.pointee.inFlight -= 1
        if record.pointee.blocked & Block.capped != 0,
            record.pointee.inFlight < record.pointee.maximumInFlight
        {
            unblock(node.pointee.app, Block.capped)
        }
        return node.pointee.since
    }

    /// Ends an assigned notification that was not sent. Returns false when the slot isn't assigned here.
    mutating func withdraw(slot: UInt32, now: UInt64) -> Bool {
        guard finish(slot: slot) != nil else { return false }
        let app = nodes[Int(slot)].app
        if apps[Int(app)].hasRate { refundToken(app, now: now) }
        return true
    }

    // MARK: Rings

    /// Handles that the app's queue of a class is no longer empty.
    private mutating func becameNonEmpty(_ app: UInt16, _ level: Int, now: UInt64) {
        let record = apps + Int(app)
        let isFirst = record.pointee.waiting == 0
        record.pointee.waiting |= 1 << UInt8(level)
        guard record.pointee.blocked != 0 else { return link(app, level) }
        guard isFirst else { return }
        count(record.pointee.blocked, 1)
        if record.pointee.blocked & Block.paced != 0 { recheckPace(app, now: now) }
    }

    /// Handles that the app's queue of a class is empty now.
    @inline(__always)
    private mutating func becameEmpty(_ app: UInt16, _ level: Int) {
        let record = apps + Int(app)
        record.pointee.waiting &= ~(1 << UInt8(level))
        if record.pointee.blocked == 0 {
            unlink(app, level)
        } else if record.pointee.waiting == 0 {
            count(record.pointee.blocked, -1)
        }
    }

    /// Adds the app behind all others of the class.
    mutating func link(_ app: UInt16, _ level: Int) {
        let ring = rings + level
        let queue = queue(app, level)
        let current = ring.pointee.current
        if current == Self.none {
            queue.pointee.next = app
            queue.pointee.previous = app
            ring.pointee.current = app
            active |= 1 << UInt8(level)
        } else {
            let last = self.queue(current, level).pointee.previous
            queue.pointee.next = current
            queue.pointee.previous = last
            self.queue(last, level).pointee.next = app
            self.queue(current, level).pointee.previous = app
        }
        ring.pointee.active += 1
    }

    mutating func unlink(_ app: UInt16, _ level: Int) {
        let ring = rings + level
        let (next, previous) = (queue(app, level).pointee.next, queue(app, level).pointee.previous)
        ring.pointee.active -= 1
        if ring.pointee.current == app {
            ring.pointee.current = next
            ring.pointee.deficit = 0
        }
        guard next != app else {
            ring.pointee.current = Self.none
            active &= ~(1 << UInt8(level))
            return
        }
        queue(previous, level).pointee.next = next
        queue(next, level).pointee.previous = previous
    }
}
