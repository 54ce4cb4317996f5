import CPrefetch
import SluiceModel

/// Decides which waiting notification goes next, and on which connection (design §7).
///
/// - Order between classes: strict by `apns-priority` (10, 5, 1), with a floor: a configured share of the assignments
///   goes to lower classes while they wait, so that they age but never starve.
/// - Order inside a class: deficit round robin between apps by weight; each app's notifications first come first
///   served. An app that begins to wait goes behind the others.
/// - Limits by app (``AppLimits``): pace and number in flight, and a switch to pause it. An app that may not send is
///   taken out of its classes and costs no decision anything; nobody waits for it.
/// - Placement: the connection with the fewest notifications in flight among those that are ready and have a free
///   stream and send window; equals take turns. A chosen connection keeps up to `placementRun` consecutive assignments
///   (a *run*), so that the requests of a loop turn fill whole TLS records. A run ends early when the connection has no
///   more room, isn't ready, or has more than twice `placementRun` in flight above the least loaded one. Connections in
///   reserve are used when no ready one has room.
///
/// Notifications are known by their slot in a ``NotificationTable``. A slot is idle, waits, or is assigned:
///
///     idle -- enqueue --> waiting -- nextAssignment --> assigned -- ended, withdrawn --> idle
///                         waiting -- remove --> idle
///
/// Every call is O(1), but for those that say otherwise; a paced app's pause costs a logarithm. Memory grows with the
/// highest app number that was used; nothing is allocated otherwise.
///
/// Pure: the owner reports connections and capacity, asks for assignments and sends them. HTTP/2 never queues: a
/// stream that isn't free is never used. Times are nanoseconds of the monotonic clock.
public struct StreamScheduler: ~Copyable {
    /// Limits and shares, fixed for the scheduler's life.
    public struct Configuration: Sendable, Equatable {
        /// Connections are numbered `0..<connections`.
        public var connections: Int
        /// Apps are numbered `0..<apps`, 65,535 at most.
        public var apps: Int
        /// Per mille of the assignments that go to lower classes while they wait, 0 to 500.
        public var floorPerMille: Int
        /// The largest body, in bytes. Connections with at least this much send window are preferred, those with
        /// less only take what fits.
        public var largestBody: Int
        /// Consecutive assignments that one connection gets at most, 1 to 1024.
        public var placementRun: Int
        /// Per mille of each connection's streams that are kept free for priority 10, 0 to 500, while the connection
        /// has window for any body. Without them an urgent notification waits behind a campaign that fills all
        /// streams, for up to a round trip. While priority 10 waits, the floor's turns of lower classes use them too.
        public var urgentPerMille: Int

        public init(
            connections: Int, apps: Int = 1, floorPerMille: Int = 50, largestBody: Int = 5120,
            placementRun: Int = 16, urgentPerMille: Int = 0
        ) {
            self.connections = max(0, min(connections, Int(UInt32.max) - 1))
            self.apps = max(0, min(apps, AppQueues.mostApps))
            self.floorPerMille = max(0, min(floorPerMille, 500))
            self.largestBody = max(1, min(largestBody, Int(Int32.max)))
            self.placementRun = max(1, min(placementRun, 1024))
            self.urgentPerMille = max(0, min(urgentPerMille, 500))
        }
    }

    /// One notification placed on one connection.
    public struct Assignment: Sendable, Equatable {
        public var slot: UInt32
        public var connection: UInt32

        public init(slot: UInt32, connection: UInt32) {
            self.slot = slot
            self.connection = connection
        }
    }

    public let configuration: Configuration
    var queues: AppQueues
    var connections: ConnectionTable
    private var first = UInt32.max

    /// All apps begin with the limits of ``AppLimits/init(weight:ratePerSecond:burst:maximumInFlight:)``.
    public init(_ configuration: Configuration, notifications: NotificationTable) {
        // Once more, as the values may have been set after they were brought into their ranges.
        let configuration = Configuration(
            connections: configuration.connections, apps: configuration.apps,
            floorPerMille: configuration.floorPerMille, largestBody: configuration.largestBody,
            placementRun: configuration.placementRun, urgentPerMille: configuration.urgentPerMille)
        self.configuration = configuration
        queues = AppQueues(
            table: notifications, apps: configuration.apps, floorPerMille: configuration.floorPerMille)
        connections = ConnectionTable(
            capacity: configuration.connections, largestBody: configuration.largestBody,
            runLength: configuration.placementRun, urgentPerMille: configuration.urgentPerMille)
    }

    // MARK: Notifications

    /// Adds a notification to the queue of its app and class.
    ///
    /// - Parameters:
    ///   - bytes: the body's length, which takes send window.
    ///   - now: when it begins to wait; its age is counted from then.
    ///   - atFront: before all others of its app and class: it was assigned before and not processed.
    /// - Returns: false when the slot or the app doesn't exist, the slot waits or is assigned already (here or in
    ///   another scheduler of the table), or the body is larger than the largest body that was configured.
    @discardableResult
    public mutating func enqueue(
        slot: UInt32, app: UInt32, priority: Priority, bytes: Int, now: UInt64, atFront: Bool = false
    ) -> Bool {
        guard bytes >= 0, bytes <= configuration.largestBody else { return false }
        return queues.insert(
            slot: slot, app: app, level: Self.level(priority), bytes: UInt32(truncatingIfNeeded: bytes),
            now: now,
            atFront: atFront)
    }

    /// Takes a waiting notification out (cancelled, superseded, expired). False when it doesn't wait.
    @discardableResult
    public mutating func remove(slot: UInt32) -> Bool {
        queues.remove(slot: slot)
    }

    /// A waiting notification was replaced by another: it keeps its place in the queue, with another length, unless its
    /// priority is another now: then it goes to the end of that class. False when it doesn't wait.
    @discardableResult
    public mutating func replaced(slot: UInt32, priority: Priority, bytes: Int, now: UInt64) -> Bool {
        guard queues.state(of: slot) == .waiting, bytes >= 0, bytes <= configuration.largestBody else {
            return false
        }
        let node = queues.nodes[Int(slot)]
        queues.nodes[Int(slot)].bytes = UInt32(truncatingIfNeeded: bytes)
        guard Self.level(priority) != Int(node.level) else { return true }
        return queues.remove(slot: slot)
            && queues.insert(
                slot: slot, app: UInt32(node.app), level: Self.level(priority),
                bytes: UInt32(truncatingIfNeeded: bytes), now: now, atFront: false)
    }

    /// The next notification to send and its connection; nil when nothing that may go waits, or nothing has room.
    ///
    /// The assignment takes one stream and the body's bytes from what is known of the connection, until the owner
    /// reports again; of its app a token and a place in flight. When the notification that is next doesn't fit
    /// anywhere, nothing overtakes it. After nil, ``nextWake`` says when to ask again though nothing has happened.
    ///
    /// - Parameter urgentOnly: nothing below priority 10 is to go now.
    public mutating func nextAssignment(now: UInt64, urgentOnly: Bool = false) -> Assignment? {
        if queues.wakes.nextDue <= now { queues.wake(now: now) }
        guard queues.active != 0 else { return nil }
        if urgentOnly { return nextUrgent(now: now) }
        let turn = queues.nextTurn()
        if let connection = connections.take(
            bytes: Int64(queues.nodes[Int(turn.slot)].bytes), mayUseKept: turn.level == 0 || turn.isFloor)
        {
            commit(turn, now: now)
            return Assignment(slot: turn.slot, connection: connection)
        }
        // A large body of a lower class, whose turn it is, does not keep what is urgent and smaller from a small window.
        return turn.isFloor ? nextUrgent(now: now) : nil
    }

    /// The next of priority 10, out of turn.
    private mutating func nextUrgent(now: UInt64) -> Assignment? {
        guard let urgent = queues.urgentTurn(),
            let connection = connections.take(
                bytes: Int64(queues.nodes[Int(urgent.slot)].bytes), mayUseKept: true)
        else { return nil }
        commit(urgent, now: now)
        return Assignment(slot: urgent.slot, connection: connection)
    }

    /// What is now first of the app and class that the last assignment was of; nil when there is nothing. Its turn comes
    /// soon: for the owner to fetch the memory of what belongs to it, none of which is in the cache when many wait.
    @inline(__always)
    public var upcoming: UInt32? { first == UInt32.max ? nil : first }

    /// The notification in this slot will soon have ended: its memory is fetched meanwhile. Of no other effect.
    @inline(__always)
    public func prefetch(slot: UInt32) { sluice_prefetch(queues.nodes + Int(slot)) }

    /// Books a turn, and fetches the node of what comes after it.
    @inline(__always)
    private mutating func commit(_ turn: AppQueues.Turn, now: UInt64) {
        queues.commit(turn, now: now)
        let queue = queues.queue(turn.app, Int(turn.level))
        first = queue.pointee.count > 0 ? queue.pointee.head : .max
        if queue.pointee.count > 0 { prefetch(slot: first) }
    }

    /// An assigned notification was answered or has failed: its app may have another in flight, and the slot is idle.
    ///
    /// - Returns: nanoseconds since it was enqueued; 0 when it isn't assigned.
    @discardableResult
    public mutating func ended(slot: UInt32, now: UInt64) -> UInt64 {
        guard let since = queues.end(slot: slot) else { return 0 }
        return now > since ? now - since : 0
    }

    /// An assigned notification was not sent: its app gets the token and the place in flight back, and the slot is
    /// idle. The owner reports the connection, whose stream is free again. False when it isn't assigned.
    @discardableResult
    public mutating func withdrawn(slot: UInt32, now: UInt64) -> Bool {
        queues.withdraw(slot: slot, now: now)
    }

    /// When a paced app may go on, at the earliest: the owner asks for assignments again then. Can be a moment at
    /// which nothing turns out to be there, or one that has passed since the last assignment was asked for; nil when
    /// no app waits for its pace.
    public var nextWake: UInt64? { queues.wakes.count == 0 ? nil : queues.wakes.nextDue }

    // MARK: Apps

    /// Changes what an app may do, from the next decision on. A changed rate keeps what was spent of the burst; the
    /// first one begins with a whole burst. Costs a search through the paced apps at most.
    ///
    /// - Returns: false when the app doesn't exist or a limit is out of its range; nothing is changed then.
    @discardableResult
    public mutating func setLimits(app: UInt32, _ limits: AppLimits, now: UInt64) -> Bool {
        queues.setLimits(app: app, limits, now: now)
    }

    /// An operator's switch: nothing of a paused app is assigned; what is in flight isn't touched. False when the app
    /// doesn't exist.
    @discardableResult
    public mutating func setPaused(app: UInt32, _ isPaused: Bool) -> Bool {
        queues.setPaused(app: app, isPaused)
    }

    // MARK: Connections

    /// Reports all there is to know of one connection; a number not seen before adds it. Absolute values that
    /// include every assignment made so far, sent or not.
    ///
    /// - Parameters:
    ///   - inFlight: streams open.
    ///   - streamsFree: the server's limit less the open streams; for a token connection 1 until the first
    ///     accepted request; 0 when the limit was lowered below what is open.
    ///   - windowFree: bytes of the connection's send window; can be negative.
    /// - Returns: false when the number is beyond the configured connections.
    @discardableResult
    public mutating func connectionChanged(
        _ connection: UInt32, inFlight: Int, streamsFree: Int, windowFree: Int, state: ConnectionState
    ) -> Bool {
        connections.update(
            connection, inFlight: inFlight, streamsFree: streamsFree, windowFree: windowFree, state: state)
    }

    /// Forgets a connection. What was in flight on it is the owner's to end (``ended(slot:now:)``) and enqueue again.
    public mutating func connectionRemoved(_ connection: UInt32) {
        connections.remove(connection)
    }

    /// Ends the run of the connection that has one, so that the next assignment goes to the least loaded: at the end
    /// of a loop's turn, when the requests placed so far leave.
    public mutating func endRun() {
        connections.endRun()
    }

    /// Whether a connection may take notifications.
    public enum ConnectionState: UInt8, Sendable, Equatable {
        /// Takes notifications.
        case ready
        /// Takes what no ready one has room for: surplus that is to fall idle and close. Filled one after another.
        case reserve
        /// Not now: connecting, or suspected of being dead until it answers a PING.
        case suspended
        /// Not again: GOAWAY, rotation or shutdown; what is in flight runs to its end.
        case draining
    }

    static func level(_ priority: Priority) -> Int {
        switch priority {
        case .immediate: 0
        case .powerAware: 1
        case .lowPower: 2
        }
    }
}
