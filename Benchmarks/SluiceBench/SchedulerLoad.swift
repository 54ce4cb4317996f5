import DeliveryCore
import Glibc
import SluiceModel
import StreamScheduling

/// Measures the scheduler in its steady state. Each app has notifications waiting in each class, and each
/// connection has free streams. For each notification that ends, another is enqueued and another is assigned.
///
/// As in a real loop, answers arrive in batches of a connection, which is reported once a batch. The result is
/// CPU time of the thread. The fastest of ten rounds counts, to exclude other load on the machine.
struct SchedulerLoad: ~Copyable {
    private static let rounds = 10
    /// Number of answers in a read.
    private static let batch = 32
    private static let inFlightEach = 500
    /// Number of waiting notifications of all apps together, so that memory use doesn't depend on the number of
    /// apps.
    private static let backlog = 60_000

    private struct Notification {
        var app: UInt32
        var priority: Priority
    }

    private let connections: Int
    private var scheduler: StreamScheduler
    private let notifications: UnsafeMutablePointer<Notification>
    /// Rings of the slots in flight, by connection, with the position of each ring's oldest slot.
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

        // Slots are assigned in random order, as after hours of work.
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

    /// Returns nanoseconds per decision: an end, an enqueue, an assignment and a share of a connection's
    /// report.
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

    /// Takes a connection's answers, and enqueues and assigns as many notifications.
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
