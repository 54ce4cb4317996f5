import DeliveryCore
import Glibc
import SluiceModel
import StreamScheduling

/// Drives the delivery machine and the stream scheduler as a shard does, without connections. Answers are read
/// from rings, and time is a counter.
///
/// In its steady state `waiting` pushes wait, each for another device, and 1,000 are in flight on 4
/// connections. A turn takes a batch of jobs, places as many pushes on a connection, and takes as many answers.
/// Slots are used in random order, as after hours of work, so that neighbouring memory isn't used in sequence.
struct CoreLoad: ~Copyable {
    static let batch = 32
    static let connections = 4
    static let inFlightEach = 250
    /// Nanoseconds by which each push advances the clocks; about a whole push's cost on a core.
    private static let nanosecondsPerPush = 5_000
    private static let bodyBytes = 250

    let waiting: Int
    private(set) var machine: DeliveryMachine
    private var scheduler: StreamScheduler
    private var now = DeliveryTime(wallMilliseconds: 1_750_000_000_000, monotonicNanoseconds: 1_000_000_000)
    private var nanoseconds = 0
    private var offset: Int64 = 0
    /// Rings of the slots in flight, by connection. `oldest` has the position of each ring's oldest slot.
    private let flying: UnsafeMutablePointer<UInt32>
    private let oldest: UnsafeMutablePointer<Int>
    /// Facts of the jobs of a turn.
    private let facts: UnsafeMutablePointer<PushFacts>
    private var connection = 0
    private(set) var finished = 0
    private(set) var requeued = 0
    private(set) var told: Int64 = 0

    /// Makes room for `waiting` waiting pushes, without any push.
    init(waiting: Int, inFlight: Bool = true) {
        self.waiting = waiting
        let flight = inFlight ? Self.connections * Self.inFlightEach : 0
        let capacity = waiting + flight + Self.batch
        machine = DeliveryMachine(limits: DeliveryLimits(capacity: capacity), seed: 1)
        scheduler = StreamScheduler(
            .init(connections: Self.connections, apps: CoreJobs.apps),
            notifications: NotificationTable(capacity: capacity))
        flying = .allocate(capacity: Self.connections * Self.inFlightEach)
        flying.initialize(repeating: 0, count: Self.connections * Self.inFlightEach)
        oldest = .allocate(capacity: Self.connections)
        oldest.initialize(repeating: 0, count: Self.connections)
        facts = .allocate(capacity: Self.batch)
        facts.initialize(
            repeating: PushFacts(
                device: DeviceKey(high: 0, low: 0), notificationKey: 0, topic: 0, partition: 0, offset: 0,
                createdMilliseconds: 0), count: Self.batch)
    }

    deinit {
        flying.deallocate()
        oldest.deallocate()
        facts.deallocate()
    }

    var time: DeliveryTime { now }

    // MARK: Setting up

    /// Takes all slots and returns them in random order.
    mutating func shuffleSlots() {
        var generator = SeededGenerator(seed: 11)
        let device = { (number: UInt64) in
            DeviceKey(high: number, low: number &* 0x9e37_79b9_7f4a_7c15)
        }
        let count = machine.limits.capacity
        for number in 0..<UInt64(count) {
            let facts = PushFacts(
                device: device(number), notificationKey: number + 1, topic: 0, partition: 0, offset: next(),
                createdMilliseconds: 0)
            guard case .placed = machine.admit(facts, at: now) else { preconditionFailure("no slot") }
            drain()
        }
        for number in (0..<UInt64(count)).shuffled(using: &generator) {
            _ = machine.cancel(device(number), .notificationKey(number + 1), at: now)
            drain()
        }
        precondition(machine.count == 0)
    }

    /// Fills the load with its waiting pushes and pushes in flight.
    mutating func fill(_ jobs: inout CoreJobs) {
        let flight = Self.connections * Self.inFlightEach
        var job = jobs.count
        for _ in 0..<waiting + flight {
            if job == jobs.count {
                jobs.renew()
                job = 0
            }
            admit(jobs.facts(job, offset: next(), createdMilliseconds: now.wallMilliseconds))
            job += 1
        }
        for connection in 0..<Self.connections {
            report(connection, inFlight: 0)
            for index in 0..<Self.inFlightEach { send(connection, index) }
        }
        precondition(machine.milestones[.waiting] == waiting && machine.milestones[.inFlight] == flight)
    }

    // MARK: Steady state

    /// Takes all jobs of a round, and as many outcomes.
    mutating func run(_ jobs: borrowing CoreJobs) {
        var job = 0
        while job < jobs.count {
            turn(jobs, from: job)
            job += Self.batch
        }
    }

    private mutating func turn(_ jobs: borrowing CoreJobs, from job: Int) {
        nanoseconds += Self.batch * Self.nanosecondsPerPush
        now.monotonicNanoseconds += UInt64(Self.batch * Self.nanosecondsPerPush)
        if nanoseconds >= 1_000_000 {
            now.wallMilliseconds += Int64(nanoseconds / 1_000_000)
            nanoseconds %= 1_000_000
        }
        machine.advance(to: now)
        drain()
        let ring = flying + connection * Self.inFlightEach
        let first = oldest[connection]
        for index in 0..<Self.batch {
            facts[index] = jobs.facts(job + index, offset: next(), createdMilliseconds: now.wallMilliseconds)
            machine.prefetch(facts[index].device)
        }
        for index in first..<first + Self.batch {
            let slot = ring[index % Self.inFlightEach]
            scheduler.prefetch(slot: slot)
            machine.prefetch(slot)
        }
        for index in 0..<Self.batch { admit(facts[index]) }
        for index in first..<first + Self.batch {
            let slot = ring[index % Self.inFlightEach]
            scheduler.ended(slot: slot, now: now.monotonicNanoseconds)
            machine.accepted(slot, at: now)
            drain()
        }
        report(connection, inFlight: Self.inFlightEach - Self.batch)
        for index in first..<first + Self.batch { send(connection, index % Self.inFlightEach) }
        oldest[connection] = (first + Self.batch) % Self.inFlightEach
        connection = connection + 1 == Self.connections ? 0 : connection + 1
    }

    @inline(__always)
    private mutating func admit(_ facts: PushFacts) {
        guard case .placed = machine.admit(facts, at: now) else { preconditionFailure("it isn't placed") }
        drain()
    }

    @inline(__always)
    private mutating func send(_ connection: Int, _ index: Int) {
        let next = scheduler.nextAssignment(now: now.monotonicNanoseconds)
        if let upcoming = scheduler.upcoming { machine.prefetch(upcoming) }
        guard let next, Int(next.connection) == connection, machine.beginAttempt(next.slot, at: now) else {
            preconditionFailure("connection \(connection) has room, and nothing forbids the push")
        }
        flying[connection * Self.inFlightEach + index] = next.slot
    }

    private mutating func report(_ connection: Int, inFlight: Int) {
        scheduler.connectionChanged(
            UInt32(connection), inFlight: inFlight, streamsFree: Self.inFlightEach - inFlight,
            windowFree: 1 << 24, state: .ready)
    }

    private mutating func next() -> Int64 {
        offset += 1
        return offset
    }

    /// Carries out the machine's actions; there are no jobs to keep.
    @inline(__always)
    private mutating func drain() {
        while let action = machine.nextAction() {
            switch action {
            case .enqueue(let slot, let atFront):
                let isTaken = scheduler.enqueue(
                    slot: slot, app: UInt32(machine.info(slot).topic), priority: .immediate,
                    bytes: Self.bodyBytes, now: now.monotonicNanoseconds, atFront: atFront)
                precondition(isTaken)
            case .dequeue(let slot): scheduler.remove(slot: slot)
            case .requeue(let slot):
                let isThere = scheduler.replaced(
                    slot: slot, priority: .immediate, bytes: Self.bodyBytes, now: now.monotonicNanoseconds)
                precondition(isThere)
                requeued += 1
            case .finish(let slot, _, _, _):
                finished += 1
                // Reads the outcome's fields and completes the offset.
                let info = machine.info(slot)
                told &+= info.offset &+ info.progress.firstSentMilliseconds
                machine.release(slot)
            case .drop(let slot): machine.release(slot)
            default: preconditionFailure("nothing else is to be expected")
            }
        }
    }

    // MARK: Updates

    /// Prefetches a device whose pushes follow in the same batch.
    @inline(__always)
    mutating func prefetch(_ device: DeviceKey) { machine.prefetch(device) }

    /// Admits a push of a collapse identifier, and returns the machine's decision.
    @inline(__always)
    mutating func update(_ device: DeviceKey, collapseKey: UInt64, notificationKey: UInt64) -> Admission {
        let facts = PushFacts(
            device: device, collapseKey: collapseKey, notificationKey: notificationKey, topic: 0,
            partition: 0,
            offset: next(), createdMilliseconds: now.wallMilliseconds)
        let admission = machine.admit(facts, at: now)
        drain()
        return admission
    }

    /// Sends the next push on the first connection, which takes any number.
    mutating func sendNext() -> UInt32? {
        report(0, inFlight: 0)
        guard let next = scheduler.nextAssignment(now: now.monotonicNanoseconds),
            machine.beginAttempt(next.slot, at: now)
        else { return nil }
        return next.slot
    }

    mutating func accept(_ slot: UInt32) {
        scheduler.ended(slot: slot, now: now.monotonicNanoseconds)
        machine.accepted(slot, at: now)
        drain()
    }
}

/// CPU time of this thread, in nanoseconds.
func threadNanoseconds() -> UInt64 {
    var time = timespec()
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
    return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
}
