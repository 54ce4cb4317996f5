import SluiceModel

/// Decides which waiting notification goes next, and on which connection (design §7).
///
/// - Order: strict by `apns-priority` (10, 5, 1), first come first served inside a class, with a floor: a
///   configured share of the assignments goes to lower classes while they wait, so that they age but never
///   starve.
/// - Placement: the connection with the fewest notifications in flight among those that are ready and have a free
///   stream and send window; equals take turns.
///
/// Notifications are known by their slot, an index into the owner's table; the queues are linked through a
/// table of the same size. Every call is O(1), nothing is allocated after `init`.
///
/// Pure: the owner reports connections and capacity, asks for assignments and sends them. HTTP/2 never
/// queues: a stream that isn't free is never used.
public struct StreamScheduler: ~Copyable, Sendable {
    /// Limits and shares, fixed for the scheduler's life.
    public struct Configuration: Sendable, Equatable {
        /// Notifications are numbered `0..<slots`.
        public var slots: Int
        /// Connections are numbered `0..<connections`.
        public var connections: Int
        /// Per mille of the assignments that go to lower classes while they wait, 0 to 500.
        public var floorPerMille: Int
        /// The largest body, in bytes. Connections with at least this much send window are preferred, those with
        /// less only take what fits.
        public var largestBody: Int

        public init(slots: Int, connections: Int, floorPerMille: Int = 50, largestBody: Int = 5120) {
            self.slots = max(0, min(slots, Int(UInt32.max) - 1))
            self.connections = max(0, min(connections, Int(UInt32.max) - 1))
            self.floorPerMille = max(0, min(floorPerMille, 500))
            self.largestBody = max(1, largestBody)
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
    var queues: PriorityQueues
    var connections: ConnectionTable

    public init(_ configuration: Configuration) {
        self.configuration = configuration
        queues = PriorityQueues(slots: configuration.slots, floorPerMille: configuration.floorPerMille)
        connections = ConnectionTable(
            capacity: configuration.connections, largestBody: configuration.largestBody)
    }

    // MARK: Notifications

    /// Adds a notification to the queue of its class.
    ///
    /// - Parameters:
    ///   - bytes: the body's length, which takes send window.
    ///   - now: when it began to wait, in nanoseconds of the monotonic clock; for the age of the queue.
    ///   - atFront: before all others of its class: it was assigned before and not processed.
    /// - Returns: false when the slot doesn't exist or waits already, or the body is larger than the largest
    ///   body that was configured.
    @discardableResult
    public mutating func enqueue(
        slot: UInt32, priority: Priority, bytes: Int, now: UInt64, atFront: Bool = false
    ) -> Bool {
        guard bytes >= 0, bytes <= configuration.largestBody else { return false }
        return queues.insert(
            slot: slot, level: Self.level(priority), bytes: UInt32(bytes), since: now, atFront: atFront)
    }

    /// Takes a waiting notification out (cancelled, superseded, expired). False when it isn't waiting.
    @discardableResult
    public mutating func remove(slot: UInt32) -> Bool {
        queues.remove(slot: slot)
    }

    /// The next notification to send and its connection; nil when nothing waits or nothing has room.
    ///
    /// The assignment takes one stream and the body's bytes from what is known of the connection, until the
    /// owner reports again. When the notification that is next doesn't fit anywhere, nothing overtakes it.
    public mutating func nextAssignment() -> Assignment? {
        guard let turn = queues.nextTurn(),
            let connection = connections.choose(bytes: Int(queues.bytes(at: turn.slot)))
        else { return nil }
        connections.take(connection, bytes: Int(queues.bytes(at: turn.slot)))
        queues.commit(turn)
        return Assignment(slot: turn.slot, connection: connection)
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

    /// Forgets a connection. What was in flight on it is the owner's to classify and enqueue again.
    public mutating func connectionRemoved(_ connection: UInt32) {
        connections.remove(connection)
    }

    /// Whether a connection may take notifications.
    public enum ConnectionState: UInt8, Sendable, Equatable {
        /// Takes notifications.
        case ready
        /// Not now: connecting, or suspected of being dead until it answers a PING.
        case suspended
        /// Not again: GOAWAY, rotation or shutdown; what is in flight runs to its end.
        case draining
    }

    // MARK: What an operator sees, and what the pool grows by

    /// Notifications waiting, all classes.
    public var waiting: Int { queues.total }

    /// Notifications waiting in one class.
    public func depth(_ priority: Priority) -> Int { queues.count(level: Self.level(priority)) }

    /// How long the first of a class has waited, in nanoseconds; nil when none waits.
    public func oldestAge(_ priority: Priority, now: UInt64) -> UInt64? {
        queues.firstSince(level: Self.level(priority)).map { now > $0 ? now - $0 : 0 }
    }

    /// Whether `slot` waits.
    public func isWaiting(slot: UInt32) -> Bool { queues.contains(slot) }

    /// Connections that could take a notification now.
    public var placeableConnections: Int { connections.placeable }

    /// Notifications in flight on one connection, as far as reported and assigned.
    public func inFlight(_ connection: UInt32) -> Int { connections.inFlight(connection) }

    private static func level(_ priority: Priority) -> Int {
        switch priority {
        case .immediate: 0
        case .powerAware: 1
        case .lowPower: 2
        }
    }
}
