import APNS
import DeliveryCore
import EventLoop
import HTTP2
import Kafka
import Logging
import SluiceModel
import Synchronization

/// A record on its way from the intake to a shard.
struct IncomingRecord: BitwiseCopyable {
    /// Of a ``ConsumedRecord``, which the receiver owns.
    var pointer: UnsafeMutableRawPointer
    var partitionSlot: UInt16
}

/// What a shard is made from.
struct ShardPlan: Sendable {
    var index: Int
    var shards: Int
    var capacity: Int
    var retry: RetryBackoff
    var maximumExpirationMilliseconds: Int64
    var lanes: [LanePlan]
    var routes: [String: AppRoute]
    /// By an app's number; what one shard's share is.
    var appLimits: [AppLimits]
    /// By an app's number.
    var appNames: [String]
}

/// One event-loop thread of a worker: it owns the jobs of its devices from decoding to outcome, and the
/// connections that carry them. It shares nothing with the other shards but the producer.
// Sendable: everything but the ring, the wakeup, the loop and the producer, which are made for several threads,
// is only touched on the loop's thread.
final class Shard: ConnectionPoolDelegate, TurnEndHandler, TimerHandler, @unchecked Sendable {
    let loop: EventLoop
    /// Records from the intake.
    let ring: SingleProducerRing<IncomingRecord>
    /// Signalled by the intake after it has filled the ring.
    private(set) var wakeup: Wakeup!

    let plan: ShardPlan
    let outcomes: OutcomeWriter
    let logger: Logger
    /// Bytes of records held by the worker; the shard takes off what it frees.
    private let bytesInFlight: InFlightBytes

    var items: ItemTable
    var decoder = JobDecoder()
    var headers: UnsafeMutableBufferPointer<RecordHeader>
    var lanes: [Lane] = []
    var routes: RouteTable
    var due: DueQueue
    /// Devices that APNs takes nothing for at the moment (429).
    var deviceBackoff = DeviceBackoff(.init(capacity: 4096))
    var generator: SeededGenerator
    var counters = ShardCounters()
    /// Wall clock, read once per batch of work.
    var wallMilliseconds: Int64 = 0
    var lastConfigurationWarning = MonotonicTime(nanoseconds: 0)
    private var freedBytes = 0
    private var turnEndAsked = false
    private var dueTimer: TimerID?
    private var dueTimerAt = UInt64.max
    /// Runs while jobs wait, so that those that expire get their outcome although nothing can be sent.
    private var expiryTimer: TimerID?
    /// Set while the worker ends: nothing new is sent.
    private(set) var isDraining = false
    /// Partitions that the group has taken away: what fails is not tried again.
    private(set) var endingPartitions: Set<UInt16> = []
    /// Tells the intake of a job that was in flight and is given back after all.
    var gaveBack: @Sendable (_ partitionSlot: UInt16) -> Void = { _ in }
    /// Answers that still come are nobody's.
    private(set) var hasEnded = false

    /// Records taken from the ring in one turn, so that answers are not held up.
    static let recordsPerTurn = 2048

    init(
        plan: ShardPlan, outcomes: OutcomeWriter, bytesInFlight: InFlightBytes, logger: Logger
    ) throws(SystemError) {
        self.plan = plan
        self.outcomes = outcomes
        self.bytesInFlight = bytesInFlight
        self.logger = logger
        loop = try EventLoop(name: "shard-\(plan.index)")
        ring = SingleProducerRing(capacity: plan.capacity)
        items = ItemTable(capacity: plan.capacity)
        headers = .allocate(capacity: 64)
        routes = RouteTable(apps: plan.routes)
        due = DueQueue(capacity: plan.capacity)
        generator = SeededGenerator(seed: MonotonicTime.read().nanoseconds &+ UInt64(plan.index))
        wakeup = try loop.makeWakeup { [unowned self] in takeRecords() }
        outcomes.resume = { [unowned self] in askForTurnEnd() }
        outcomes.attach(to: loop)
    }

    deinit {
        while let record = ring.pop() { ConsumedRecord(rawPointer: record.pointer).destroy() }
        headers.deallocate()
    }

    /// Starts the thread and begins to open connections.
    func start() {
        loop.start()
        loop.execute { [self] in
            let notifications = NotificationTable(capacity: plan.capacity)
            for (index, lanePlan) in plan.lanes.enumerated() {
                let lane = Lane(
                    index: UInt16(index), plan: lanePlan, notifications: notifications,
                    apps: plan.appLimits.count, seed: UInt64(plan.index) << 32 | UInt64(index) + 1,
                    loop: loop,
                    delegate: self)
                lanes.append(lane)
            }
            for route in Set(plan.routes.values) {
                let limits = plan.appLimits[Int(route.app)]
                let isSet = lanes[Int(route.lane)].pool.scheduler.setLimits(
                    app: UInt32(route.app), limits, now: loop.now.nanoseconds)
                precondition(isSet, "the configuration's checks let wrong limits pass")
            }
            for lane in lanes { lane.pool.start() }
        }
    }

    // MARK: Ends

    func write(_ outcome: borrowing Outcome, source: OutcomeSource) {
        counters.outcomes[Int(outcome.kind.rawValue)] += 1
        outcomes.write(outcome, source: source)
    }

    /// Gives the outcome of an item and frees its slot.
    func finish(
        _ slot: UInt32, _ kind: OutcomeKind, verdict: ResponseVerdict? = nil, cause: OutcomeCause? = nil
    ) {
        let item = items.item(slot)
        let record = item.pointee.record
        var outcome = Outcome(
            kind, of: item.pointee.push, sourceTopic: record.topicName, partition: record.partition,
            offset: record.offset, polledMilliseconds: item.pointee.polledMilliseconds,
            finishedMilliseconds: wallMilliseconds)
        outcome.attempts = item.pointee.attempts
        if item.pointee.firstSentMilliseconds > 0 {
            outcome.firstSentMilliseconds = item.pointee.firstSentMilliseconds
        }
        if let verdict {
            outcome.apply(verdict, registeredAtMilliseconds: item.pointee.push.registeredAtMilliseconds)
        }
        outcome.cause = cause
        write(outcome, source: OutcomeSource(record: record, partitionSlot: item.pointee.partitionSlot))
        release(slot)
    }

    func release(_ slot: UInt32) {
        freedBytes += InFlightBytes.size(of: items.item(slot).pointee.record)
        items.release(slot)
    }

    func free(_ record: ConsumedRecord) {
        freedBytes += InFlightBytes.size(of: record)
        record.destroy()
    }

    // MARK: Turns

    func askForTurnEnd() {
        guard !turnEndAsked else { return }
        turnEndAsked = true
        loop.atTurnEnd(self)
    }

    func turnEnded() {
        turnEndAsked = false
        wallMilliseconds = wallClockMilliseconds()
        outcomes.flushPending()
        if !isDraining, !outcomes.isBlocked { sendAll() }
        armExpiryTimer()
        if freedBytes > 0 {
            bytesInFlight.subtract(freedBytes)
            freedBytes = 0
        }
        armDueTimer()
    }

    private func armDueTimer() {
        guard let next = due.nextDue else { return }
        if let dueTimer {
            guard next < dueTimerAt else { return }
            loop.cancel(dueTimer)
        }
        dueTimerAt = next
        dueTimer = loop.schedule(at: MonotonicTime(nanoseconds: next), handler: self)
    }

    func timerFired(_ timer: TimerID) {
        if timer == expiryTimer { return expireWaiting() }
        dueTimer = nil
        dueTimerAt = .max
        wallMilliseconds = wallClockMilliseconds()
        while let slot = due.popDue(now: loop.now.nanoseconds) {
            if expireIfDue(slot) { continue }
            enqueueUnlessHeld(slot)
        }
        askForTurnEnd()
    }

    private func armExpiryTimer() {
        guard expiryTimer == nil, lanes.contains(where: { $0.pool.scheduler.waiting > 0 }) else { return }
        expiryTimer = loop.schedule(after: .seconds(1), handler: self)
    }

    /// Ends what has expired in a queue that does not move: a server that is down, an app that is paused or paced.
    private func expireWaiting() {
        expiryTimer = nil
        wallMilliseconds = wallClockMilliseconds()
        for index in 0..<items.capacity {
            let slot = UInt32(index)
            guard items.state(slot) == .waiting, hasExpired(slot) else { continue }
            lanes[Int(items.item(slot).pointee.lane)].pool.scheduler.remove(slot: slot)
            finish(slot, .expired)
        }
        askForTurnEnd()
    }

    /// Nothing is sent after its expiration: ends the item as `expired` if that has come.
    func expireIfDue(_ slot: UInt32) -> Bool {
        guard hasExpired(slot) else { return false }
        finish(slot, .expired)
        return true
    }

    private func hasExpired(_ slot: UInt32) -> Bool {
        guard let expiry = expiryMilliseconds(of: items.item(slot)) else { return false }
        return expiry <= wallMilliseconds
    }

    // MARK: Giving back

    /// A partition begins under a slot that an earlier one may have had.
    func begin(partitionSlot: UInt16) {
        endingPartitions.remove(partitionSlot)
    }

    /// Gives the jobs of a partition back that are not in flight: Kafka has them still. Returns how many.
    func abandon(partitionSlot: UInt16?) -> Int {
        repeat { takeRecords() } while ring.count > 0
        if let partitionSlot { endingPartitions.insert(partitionSlot) }
        var abandoned = 0
        for index in 0..<items.capacity {
            let slot = UInt32(index)
            let state = items.state(slot)
            guard state == .waiting || state == .retrying else { continue }
            guard partitionSlot == nil || items.item(slot).pointee.partitionSlot == partitionSlot else {
                continue
            }
            if state == .waiting {
                lanes[Int(items.item(slot).pointee.lane)].pool.scheduler.remove(slot: slot)
            } else {
                due.remove(slot)
            }
            release(slot)
            abandoned += 1
        }
        counters.abandoned += abandoned
        askForTurnEnd()
        return abandoned
    }

    /// Ends sending: waits for what is in flight only. Returns how many jobs were given back.
    func drain() -> Int {
        isDraining = true
        return abandon(partitionSlot: nil)
    }

    /// Closes all connections at once and gives up what is still on them, without an outcome.
    func end() {
        hasEnded = true
        for lane in lanes { lane.pool.close() }
        while let record = ring.pop() { ConsumedRecord(rawPointer: record.pointer).destroy() }
        wallMilliseconds = wallClockMilliseconds()
        for index in 0..<items.capacity {
            let slot = UInt32(index)
            let state = items.state(slot)
            if state == .inFlight, items.item(slot).pointee.push.duplicates == .avoid {
                // Kafka would bring it again, and APNs may have it.
                finish(slot, .undeliverable, cause: .answerLost)
            } else if state != .free {
                counters.abandoned += 1
                release(slot)
            }
        }
        outcomes.flushPending()
    }

    /// Counters with the state of this moment.
    func snapshot() -> ShardCounters {
        var snapshot = counters
        snapshot.waiting = lanes.reduce(0) { $0 + $1.pool.scheduler.waiting }
        snapshot.inFlight = lanes.reduce(0) { $0 + $1.pool.inFlight }
        snapshot.retrying = due.count
        snapshot.openConnections = lanes.reduce(0) { $0 + $1.pool.openConnections }
        return snapshot
    }
}

/// Bytes of the records that a worker holds.
final class InFlightBytes: Sendable {
    private let value = Atomic<Int>(0)

    var count: Int { value.load(ordering: .relaxed) }
    func add(_ bytes: Int) { value.add(bytes, ordering: .relaxed) }
    func subtract(_ bytes: Int) { value.subtract(bytes, ordering: .relaxed) }

    /// What a record counts for: key, value, and a round sum for headers and bookkeeping.
    static func size(of record: ConsumedRecord) -> Int {
        (record.key?.count ?? 0) + (record.value?.count ?? 0) + 512
    }
}
