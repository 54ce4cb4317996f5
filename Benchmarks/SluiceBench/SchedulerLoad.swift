import DeliveryCore
import Glibc
import SluiceModel

/// The scheduler by itself in its steady state: every app has notifications waiting in every class, each connection
/// has streams free, and for each notification that ends one is enqueued and one assigned.
///
/// As in a real loop, answers come in batches of one connection, which is reported once a batch. Measured in CPU time
/// of the thread, so that what else runs on the machine counts less.
struct SchedulerLoad {
    var apps = 1000
    var connections = 64
    var decisions = 5_000_000

    /// Answers that one read brings.
    private static let batch = 32
    private static let inFlightEach = 500
    /// Notifications that wait in all, however many apps they are of, so that memory weighs the same.
    private static let backlog = 120_000

    /// Nanoseconds per decision: the end of a notification, the enqueueing of another, an assignment, and a share of
    /// a connection's report.
    func run() -> Double {
        let perQueue = max(2, Self.backlog / (3 * apps))
        let waiting = perQueue * 3 * apps
        let total = waiting + connections * Self.inFlightEach
        let table = NotificationTable(capacity: total)
        var scheduler = StreamScheduler(.init(connections: connections, apps: apps), notifications: table)
        for connection in 0..<connections { Self.report(connection, Self.inFlightEach, to: &scheduler) }
        let appOf = UnsafeMutablePointer<UInt32>.allocate(capacity: total)
        let priorityOf = UnsafeMutablePointer<Priority>.allocate(capacity: total)
        defer {
            appOf.deallocate()
            priorityOf.deallocate()
        }
        // Slots are handed out at random, as they are after hours of work.
        var generator = SeededGenerator(seed: 7)
        for (index, slot) in (0..<total).shuffled(using: &generator).enumerated() {
            (appOf + slot).initialize(to: UInt32(index % apps))
            (priorityOf + slot).initialize(to: Priority.allCases[index / apps % 3])
            scheduler.enqueue(
                slot: UInt32(slot), app: appOf[slot], priority: priorityOf[slot], bytes: 250, now: 0)
        }
        // What each connection has in flight, oldest first.
        let rounds = Self.inFlightEach
        let flying = UnsafeMutablePointer<UInt32>.allocate(capacity: connections * rounds)
        defer { flying.deallocate() }
        for index in 0..<connections * rounds {
            let connection = index / rounds
            if index % Self.batch == 0 { Self.report(connection, 0, to: &scheduler) }
            guard let next = scheduler.nextAssignment(now: 0) else { preconditionFailure("nothing to send") }
            (flying + index).initialize(to: next.slot)
        }
        for connection in 0..<connections { Self.report(connection, Self.inFlightEach, to: &scheduler) }
        let oldest = UnsafeMutablePointer<Int>.allocate(capacity: connections)
        oldest.initialize(repeating: 0, count: connections)
        defer { oldest.deallocate() }

        var now: UInt64 = 0
        var from: UInt64 = 0
        var done = -decisions / 4
        var connection = 0
        while done < decisions {
            if done <= 0 { from = Self.cpuNanoseconds() }
            now += 10_000
            let base = connection * rounds
            let first = oldest[connection]
            for index in 0..<Self.batch {
                scheduler.ended(slot: flying[base + (first + index) % rounds], now: now)
            }
            Self.report(connection, Self.inFlightEach - Self.batch, to: &scheduler)
            for index in 0..<Self.batch {
                let slot = flying[base + (first + index) % rounds]
                scheduler.enqueue(
                    slot: slot, app: appOf[Int(slot)], priority: priorityOf[Int(slot)], bytes: 250, now: now)
            }
            for index in 0..<Self.batch {
                guard let next = scheduler.nextAssignment(now: now), Int(next.connection) == connection else {
                    preconditionFailure("connection \(connection) has room and the fewest in flight")
                }
                flying[base + (first + index) % rounds] = next.slot
            }
            oldest[connection] = (first + Self.batch) % rounds
            done += Self.batch
            connection = (connection + 1) % connections
        }
        return Double(Self.cpuNanoseconds() - from) / Double(done)
    }

    private static func cpuNanoseconds() -> UInt64 {
        var time = timespec()
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
    }

    private static func report(_ connection: Int, _ inFlight: Int, to scheduler: inout StreamScheduler) {
        scheduler.connectionChanged(
            UInt32(connection), inFlight: inFlight, streamsFree: 1000 - inFlight, windowFree: 1 << 24,
            state: .ready)
    }
}
