import SluiceModel
import Testing

@testable import StreamScheduling

/// Tests the lower classes' shares beside an endless backlog of priority 10, with production settings.
@Suite struct StreamSchedulerFloorTests {
    struct Load: CustomTestStringConvertible {
        var connections: Int
        var limit: Int
        /// Number of streams of a connection that are freed at a time.
        var freed: Int

        var testDescription: String {
            "\(connections) connections of \(limit) streams, \(freed) freed at a time"
        }
    }

    static let loads =
        [1, 2, 7, 64].flatMap { connections in
            [(1, 1), (10, 1), (10, 10), (100, 3), (100, 50), (1000, 1), (1000, 25)].map {
                Load(connections: connections, limit: $0.0, freed: $0.1)
            }
        }
        + [10, 24, 26, 40, 400, 1000].flatMap { freed in
            [1, 2].map { Load(connections: $0, limit: 1000, freed: freed) }
        }

    @Test(arguments: loads) func lowerClassesGetTheFloor(load: Load) {
        var endless = Endless(load)
        let shares = endless.shares(of: 100_000)
        #expect(abs(shares[1] + shares[2] - 0.05) <= 0.005, "\(shares)")
        #expect(abs(shares[2] - 0.05 * 0.05) <= 0.001, "\(shares)")
    }

    /// Either priority 5 or priority 1 has nothing waiting.
    @Test func singleLowerClassGetsTheWholeFloor() {
        for absent in [1, 2] {
            var endless = Endless(Load(connections: 2, limit: 1000, freed: 20), absent: absent)
            let shares = endless.shares(of: 100_000)
            #expect(abs(shares[3 - absent] - 0.05) <= 0.005, "\(shares)")
        }
    }

    @Test func lowerClassesLeaveKeptStreamsFreeWithoutUrgentLoad() {
        var endless = Endless(Load(connections: 2, limit: 1000, freed: 20), absent: 0)
        let shares = endless.shares(of: 10_000)
        #expect(abs(shares[1] - 0.95) <= 0.005, "\(shares)")
        #expect(endless.inFlight == [975, 975])
    }

    /// A load in which all classes always wait; notifications in flight are answered in order.
    private struct Endless: ~Copyable {
        private static let perClass: UInt32 = 4
        private let load: Load
        private var scheduler: StreamScheduler
        private var flying: [[UInt32]]
        private var answered: [Int]
        private var counts = [0, 0, 0]
        private let slots: UInt32
        private var free: [UInt32] = []
        private let absent: Int?

        init(_ load: Load, absent: Int? = nil) {
            self.load = load
            self.absent = absent
            slots = UInt32(load.connections * load.limit + 2000)
            scheduler = StreamScheduler(
                .init(connections: load.connections, urgentPerMille: 25),
                notifications: NotificationTable(capacity: Int(slots)))
            flying = Array(repeating: [], count: load.connections)
            answered = Array(repeating: 0, count: load.connections)
            free = Array(0..<slots)
            for connection in 0..<load.connections { report(connection) }
            for level in 0..<3 where level != absent { for _ in 0..<400 { wait(level) } }
        }

        var inFlight: [Int] { flying.indices.map { flying[$0].count - answered[$0] } }

        /// The classes' shares of `total` assignments, counted once all streams are in use.
        mutating func shares(of total: Int) -> [Double] {
            turn()
            counts = [0, 0, 0]
            var connection = 0
            while counts.reduce(0, +) < total {
                let first = answered[connection]
                let last = min(first + load.freed, flying[connection].count)
                for place in first..<last {
                    scheduler.ended(slot: flying[connection][place] >> 2, now: 0)
                    free.append(flying[connection][place] >> 2)
                }
                answered[connection] = last
                if last > 10_000 {
                    flying[connection].removeFirst(last)
                    answered[connection] = 0
                }
                report(connection)
                turn()
                connection = (connection + 1) % load.connections
            }
            return counts.map { Double($0) / Double(counts.reduce(0, +)) }
        }

        private mutating func turn() {
            while let next = scheduler.nextAssignment(now: 0) {
                let level = levels[next.slot] ?? 0
                counts[level] += 1
                flying[Int(next.connection)].append(next.slot << 2)
                wait(level)
            }
            scheduler.endRun()
        }

        private var levels: [UInt32: Int] = [:]

        private mutating func wait(_ level: Int) {
            let slot = free.removeLast()
            levels[slot] = level
            let priority: Priority = [.immediate, .powerAware, .lowPower][level]
            scheduler.enqueue(slot: slot, app: 0, priority: priority, bytes: 200, now: 0)
        }

        private mutating func report(_ connection: Int) {
            let open = flying[connection].count - answered[connection]
            scheduler.connectionChanged(
                UInt32(connection), inFlight: open, streamsFree: load.limit - open, windowFree: 1 << 30,
                state: .ready)
        }
    }
}
