import CPrefetch
import SluiceModel

/// Decides which waiting notification is sent next, and on which connection.
///
/// - Order between classes: strict by `apns-priority` (10, 5, 1), with a floor. A configured share of the assignments
///   goes to lower classes while they wait, so that they age but never starve.
/// - Order inside a class: deficit round robin between apps by weight. Each app's notifications are served first come,
///   first served. An app that begins to wait is queued behind the others.
/// - Limits by app (``AppLimits``): pace and number in flight, and a switch to pause the app. An app that may not send
///   is removed from its classes and costs no decision anything. No app waits for a removed app.
/// - Placement: the connection with the fewest notifications in flight among the ready ones with a free stream and send
///   window. Equals take turns. A chosen connection keeps up to `placementRun` consecutive assignments (a *run*), so
///   that the requests of a loop turn fill whole TLS records. A run ends early when the connection has no more room or
///   isn't ready. A run also ends when the connection has over twice `placementRun` more in flight than the least
///   loaded one. Reserve connections are used when no ready connection has room.
///
/// Notifications are identified by their slot in a ``NotificationTable``. A slot is idle, waits, or is assigned:
///
///     idle -- enqueue --> waiting -- nextAssignment --> assigned -- ended, withdrawn --> idle
///                         waiting -- remove --> idle
///
/// Every call is O(1) unless its comment states otherwise; a paced app's pause costs a logarithm. Memory grows with the
/// highest app number used; nothing else allocates.
///
/// Pure: the owner reports connections and capacity, requests assignments and sends them. HTTP/2 never queues, because
/// an assignment uses only free streams. Times are nanoseconds of the monotonic clock.
public struct StreamScheduler: ~Copyable {
    /// Limits and shares, fixed for the scheduler's life.
    public struct Configuration: Sendable, Equatable {
        /// Connections are numbered `0..<connections`.
        public var connections: Int
        /// Apps are numbered `0..<apps`, 65,535 at most.
        public var apps: Int
        /// Per mille of the assignments that go to lower classes while they wait, 0 to 500.
        public var floorPerMille: Int
        /// The largest body, in bytes. Connections with at least this much send window are preferred. Connections with
        /// less window only take bodies that fit.
        public var largestBody: Int
        /// Consecutive assignments to one connection at most, 1 to 1024.
        public var placementRun: Int
        /// Per mille of each connection's streams reserved for priority 10, 0 to 500, while the connection has window
        /// for any body. Without reserved streams an urgent notification waits up to a round trip behind a campaign
        /// that fills all streams. While priority 10 waits, the floor's turns of lower classes use the reserved streams
        /// too.
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

    /// A notification placed on a connection.
    public struct Assignment: Sendable, Equatable {
        /// Slot of the notification.
        public var slot: UInt32
        /// Number of the connection.
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

    /// Creates a scheduler. All apps begin with the limits of
    /// ``AppLimits/init(weight:ratePerSecond:burst:maximumInFlight:)``.
    public init(_ configuration: Configuration, notifications: NotificationTable) {
        // Clamps again, because the values may have been set after `Configuration.init` clamped them.
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
    ///   - bytes: The body's length, which takes send window.
    ///   - now: When the wait begins; the notification's age is counted from this time.
    ///   - atFront: Queues it before all others of its app and class: assigned before, not processed.
    /// - Returns: false when the slot or the app doesn't exist, or the body exceeds `largestBody`. Also false when the
    ///   slot already waits or is assigned, here or in another scheduler of the table.
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

    /// Removes a waiting notification (cancelled, superseded, expired). Returns false when the slot doesn't wait.
    @discardableResult
    public mutating func remove(slot: UInt32) -> Bool {
        queues.remove(slot: slot)
    }

    /// Records that a waiting notification was replaced by another, which may have another length. The slot keeps its
    /// place in the queue. With another priority the slot moves to the end of the new class. Returns false when the
    /// slot doesn't wait, or the body exceeds `largestBody`.
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

    /// Returns the next notification to send and its connection. Returns nil when no notification that may be sent
    /// waits, or no connection has room.
    ///
    /// The assignment deducts one stream and the body's bytes from the connection until the owner's next report. The
    /// assignment also uses a token and a place in flight of the app. When the next notification fits no connection,
    /// nothing overtakes it. After nil, ``nextWake`` is the time to ask again even if nothing has happened.
    ///
    /// - Parameter urgentOnly: Whether only priority 10 may be assigned now.
    public mutating func nextAssignment(now: UInt64, urgentOnly: Bool = false) -> Assignment? {
        if queues.wakes.nextDue <= now { queues.wake(now: now) }
        guard queues.active != 0 else { return nil }
        if urgentOnly { return nextUrgent(now: now) }
        let turn = queues.nextTurn()
        if let connection = connections.assign(
            bytes: Int64(queues.nodes[Int(turn.slot)].bytes), mayUseKept: turn.level == 0 || turn.isFloor)
        {
            commit(turn, now: now)
            return Assignment(slot: turn.slot, connection: connection)
        }
        // A large body of a lower class doesn't keep urgent smaller bodies from a small window, even on its turn.
        return turn.isFloor ? nextUrgent(now: now) : nil
    }

    /// Assigns the next notification of an app that may send, out of turn. Returns nil when no connection has room.
    public mutating func nextAssignment(ofApp app: UInt32, now: UInt64) -> Assignment? {
        if queues.wakes.nextDue <= now { queues.wake(now: now) }
        guard let turn = queues.turn(of: UInt16(truncatingIfNeeded: app)),
            let connection = connections.assign(
                bytes: Int64(queues.nodes[Int(turn.slot)].bytes), mayUseKept: true)
        else { return nil }
        commit(turn, now: now)
        return Assignment(slot: turn.slot, connection: connection)
    }

    /// Assigns the next notification of priority 10, out of turn.
    private mutating func nextUrgent(now: UInt64) -> Assignment? {
        guard let urgent = queues.urgentTurn(),
            let connection = connections.assign(
                bytes: Int64(queues.nodes[Int(urgent.slot)].bytes), mayUseKept: true)
        else { return nil }
        commit(urgent, now: now)
        return Assignment(slot: urgent.slot, connection: connection)
    }

    /// Slot that is now first in the app and class of the last assignment; nil when that queue is empty. Its turn comes
    /// soon: the owner can prefetch its memory, which is not in the cache when many wait.
    @inline(__always)
    public var upcoming: UInt32? { first == UInt32.max ? nil : first }

    /// Prefetches the memory of a slot whose notification will soon have ended. Has no other effect.
    @inline(__always)
    public func prefetch(slot: UInt32) { sluice_prefetch(queues.nodes + Int(slot)) }

    /// Books a turn, and prefetches the node of the notification after it.
    @inline(__always)
    private mutating func commit(_ turn: AppQueues.Turn, now: UInt64) {
        queues.commit(turn, now: now)
        let queue = queues.queue(turn.app, Int(turn.level))
        first = queue.pointee.count > 0 ? queue.pointee.head : .max
        if queue.pointee.count > 0 { prefetch(slot: first) }
    }

    /// Records that an assigned notification was answered or has failed. Its app may have another in flight, and the
    /// slot is idle.
    ///
    /// - Returns: nanoseconds since the notification was enqueued; 0 when the slot isn't assigned.
    @discardableResult
    public mutating func ended(slot: UInt32, now: UInt64) -> UInt64 {
        guard let since = queues.finish(slot: slot) else { return 0 }
        return now > since ? now - since : 0
    }

    /// Records that an assigned notification was not sent. Its app gets back the token and the place in flight, and the
    /// slot is idle. The owner reports the connection, whose stream is free again. Returns false when the slot isn't
    /// assigned.
    @discardableResult
    public mutating func withdrawn(slot: UInt32, now: UInt64) -> Bool {
        queues.withdraw(slot: slot, now: now)
    }

    /// The earliest time at which a paced app may continue; nil when no app waits for its pace. The owner requests
    /// assignments again at this time. There may be nothing to send by then. The time may have passed since the last
    /// request.
    public var nextWake: UInt64? { queues.wakes.count == 0 ? nil : queues.wakes.nextDue }

    // MARK: Apps

    /// Changes the limits of an app, from the next decision on. A changed rate keeps the spent part of the burst; a
    /// first rate begins with a whole burst. Costs at most a search through the paced apps.
    ///
    /// - Returns: false when the app doesn't exist or a limit is out of its range; nothing changes then.
    @discardableResult
    public mutating func setLimits(app: UInt32, _ limits: AppLimits, now: UInt64) -> Bool {
        queues.setLimits(app: app, limits, now: now)
    }

    /// Changes the notifications that an app may have in flight at most, from 1. Its other limits stay. Returns false when
    /// the app doesn't exist, or the maximum is below 1.
    @discardableResult
    public mutating func setMaximumInFlight(app: UInt32, _ maximum: Int) -> Bool {
        guard maximum > 0, queues.hasRecord(app) else { return false }
        queues.setMaximumInFlight(UInt16(truncatingIfNeeded: app), maximum)
        return true
    }

    /// Pauses or resumes an app for an operator. Nothing of a paused app is assigned; notifications in flight are not
    /// touched. Returns false when the app doesn't exist.
    @discardableResult
    public mutating func setPaused(app: UInt32, _ isPaused: Bool) -> Bool {
        queues.setPaused(app: app, isPaused)
    }

    // MARK: Connections

    /// Records the full state of one connection; a number not seen before adds a connection. The values are absolute
    /// and include every assignment made so far, sent or not.
    ///
    /// - Parameters:
    ///   - inFlight: Open streams.
    ///   - streamsFree: The server's limit less the open streams. For a token connection 1 until the first accepted
    ///     request. 0 when the server lowered the limit below the open streams.
    ///   - windowFree: Bytes of the connection's send window; can be negative.
    /// - Returns: false when the number is beyond the configured connections.
    @discardableResult
    public mutating func connectionChanged(
        _ connection: UInt32, inFlight: Int, streamsFree: Int, windowFree: Int, state: ConnectionState
    ) -> Bool {
        connections.update(
            connection, inFlight: inFlight, streamsFree: streamsFree, windowFree: windowFree, state: state)
    }

    /// Removes a connection. The owner ends its notifications in flight (``ended(slot:now:)``) and enqueues them again.
    public mutating func connectionRemoved(_ connection: UInt32) {
        connections.remove(connection)
    }

    /// Ends the current run, so that the next assignment uses the least loaded connection. The owner calls it at the
    /// end of a loop's turn, when the requests placed so far are sent.
    public mutating func endRun() {
        connections.endRun()
    }

    /// Whether a connection may take notifications.
    public enum ConnectionState: UInt8, Sendable, Equatable {
        /// Takes notifications.
        case ready
        /// Takes notifications that no ready connection has room for. Surplus that is to fall idle and close. Reserve
        /// connections are filled one after another.
        case reserve
        /// Takes no notifications now: connecting, or suspected of being dead until a PING is answered.
        case suspended
        /// Takes no notifications again: GOAWAY, rotation or shutdown; notifications in flight run to their end.
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
