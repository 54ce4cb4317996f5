import DeliveryCore
import Glibc
import SluiceModel
import StreamScheduling

/// The scheduler by itself in its steady state: every app has notifications waiting in every class, each connection
/// has streams free, and for each notification that ends one is enqueued and one assigned.
///
/// As in a real loop, answers come in batches of one connection, which is reported once a batch. Measured in CPU time
/// of the thread, and the fastest of ten rounds, so that what else runs on the machine counts less.
struct SchedulerLoad: ~Copyable {
    private static let rounds = 10
    /// Answers that one read brings.
    private static let batch = 32
    private static let inFlightEach = 500
    /// Notifications that wait in all, however many apps they are of, so that memory weighs the same.
    private static let backlog = 60_000

    private struct Notification {
        var app: UInt32
        var priority: Priority
    }

    private let connections: Int
    private var scheduler: StreamScheduler
    private let notifications: UnsafeMutablePointer<Notification>
    /// What each connection has in flight: rings, and the oldest of each.
    private let flying: UnsafeMutablePointer<UInt32>
    private let oldest: UnsafeMutablePointer<Int>
    private var now: UInt64 = 0

    init(apps: Int, connections: Int) {
        self.connections = connections
        let slots = max(2, Self.backlog / (3 * apps)) * 3 * apps + connections * Self.inFlightEach
        scheduler = StreamScheduler(
            .init(connections: connections, apps: apps), notifications: NotificationTable(capacity: slots))
        notifications = .allocate(capacity: slots)
        flying = .allocate(capacity: connections * Self.inFlightEach)
        oldest = .allocate(capacity: connections)
        oldest.initialize(repeating: 0, count: connections)

        // Slots are handed out at random, as they are after hours of work.
        var generator = SeededGenerator(seed: 7)
        for (index, slot) in (0..<slots).shuffled(using: &generator).enumerated() {
            (notifications + slot).initialize(
                to: Notification(app: UInt32(index % apps), priority: Priority.allCases[index / apps % 3]))
            enqueue(UInt32(slot))
        }
        for connection in 0..<connections {
            report(connection, inFlight: 0)
            for index in 0..<Self.inFlightEach {
                (flying + connection * Self.inFlightEach + index).initialize(to: assign(to: connection))
            }
        }
    }

    deinit {
        notifications.deallocate()
        flying.deallocate()
        oldest.deallocate()
    }

    /// Nanoseconds per decision: the end of a notification, the enqueueing of another, an assignment, and a share of
    /// a connection's report.
    mutating func run(decisions: Int) -> Double {
        let batches = max(1, decisions / Self.rounds / Self.batch)
        var fastest = Double.infinity
        var connection = 0
        // The first round warms up.
        for round in 0...Self.rounds {
            let from = threadNanoseconds()
            for _ in 0..<batches {
                turn(connection)
                connection = connection + 1 == connections ? 0 : connection + 1
            }
            let each = Double(threadNanoseconds() - from) / Double(batches * Self.batch)
            if round > 0 { fastest = min(fastest, each) }
        }
        return fastest
    }

    /// One connection's answers, and as many notifications more.
    private mutating func turn(_ connection: Int) {
        now += 10_000
        let ring = flying + connection * Self.inFlightEach
        let first = oldest[connection]
        for index in first..<first + Self.batch {
            scheduler.ended(slot: ring[index % Self.inFlightEach], now: now)
        }
        report(connection, inFlight: Self.inFlightEach - Self.batch)
        for index in first..<first + Self.batch { enqueue(ring[index % Self.inFlightEach]) }
        for index in first..<first + Self.batch { ring[index % Self.inFlightEach] = assign(to: connection) }
        oldest[connection] = (first + Self.batch) % Self.inFlightEach
    }

    private mutating func enqueue(_ slot: UInt32) {
        let notification = notifications[Int(slot)]
        scheduler.enqueue(
            slot: slot, app: notification.app, priority: notification.priority, bytes: 250, now: now)
    }

    private mutating func assign(to connection: Int) -> UInt32 {
        guard let next = scheduler.nextAssignment(now: now), Int(next.connection) == connection else {
            preconditionFailure("connection \(connection) has room and the fewest in flight")
        }
        return next.slot
    }

    private mutating func report(_ connection: Int, inFlight: Int) {
        scheduler.connectionChanged(
            UInt32(connection), inFlight: inFlight, streamsFree: Self.inFlightEach - inFlight,
            windowFree: 1 << 24, state: .ready)
    }
}
