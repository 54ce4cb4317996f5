import APNS
import DeliveryCore
import EventLoop
import HTTP2
import Kafka
import Logging
import RetryStore
import SluiceModel
import StoreEncryption
import StreamScheduling
import Synchronization

/// A record on its way from the intake to a shard.
struct IncomingRecord: BitwiseCopyable {
    /// Pointer to a ``ConsumedRecord``, which the receiver owns.
    var pointer: UnsafeMutableRawPointer
    /// Hash of the record's key; meaningless when the record has no key.
    var device: DeviceKey
    var partitionSlot: UInt16
    /// Bytes that the record counts for among the bytes the worker holds.
    var bytes: Int32
    /// Whether a commit shows the record as complete. A cancel or device event then takes effect again, on earlier
    /// records that aren't complete. A push has ended.
    var isReplay = false

    var place: RecordPlace { RecordPlace(partitionSlot: partitionSlot, offset: record.offset) }

    var record: ConsumedRecord { ConsumedRecord(rawPointer: pointer) }

    /// Moves the record into memory of its own. Returns the bytes that become free.
    mutating func leaveResponse() -> Int {
        let own = record.inOwnMemory()
        let before = Int(bytes)
        pointer = own.rawPointer
        bytes = Int32(clamping: own.ownBytes)
        return before - Int(bytes)
    }
}

/// Parameters of a shard.
struct ShardPlan: Sendable {
    var index: Int
    var shards: Int
    var mode: StoreMode
    /// Records that are taken from the ring in one turn at most.
    var recordsPerTurn: Int
    var limits: DeliveryLimits
    /// Limits of items from the store.
    var residency: ResidencyLimits
    /// Hasher of device tokens and identifiers. Equal on all shards, because items move between shards.
    var hasher: IdentityHasher
    /// Name of the jobs' Kafka topic.
    var sourceTopic: String
    var decoding: JobDecoder.Settings
    var pools: [CredentialPoolPlan]
    var routes: [String: AppRoute]
    /// Limits of this shard alone, by an app's number.
    var appLimits: [AppLimits]
    /// Names by an app's number.
    var appNames: [String]
    /// Milliseconds by an app's number.
    var coalesceWindows: [UInt32]
    /// Push types whose states supersede each other, as bits by ``PushType/rawValue``, by an app's number.
    var supersededStates: [UInt16]
    /// Whether a push without collapse identifier gets its `apns-id` as its collapse identifier, by an app's number.
    var collapsesRepeats: [Bool]
    /// Pauses in force at the start.
    var switches = Switches()
}

/// Event-loop thread of a worker. Owns the jobs of its devices from decoding to outcome, and the connections that carry
/// them. Shares nothing with the other shards but the producer.
// Sendable: the ring, the wakeup, the loop and the producer are made for several threads. Only the loop's thread
// touches the rest.
final class Shard: ConnectionPoolDelegate, TurnEndHandler, TimerHandler, @unchecked Sendable {
    let loop: EventLoop
    /// Records from the intake.
    let ring: SingleProducerRing<IncomingRecord>
    /// Signalled by the intake after it has filled the ring.
    private(set) var wakeup: Wakeup!

    let plan: ShardPlan
    /// Identity of the pushes of a token and topic that carry its state. No collapse identifier has this hash, because
    /// such an identifier has no zero byte.
    let stateKey: UInt64
    private(set) var outcomes: ShardProducer!
    let logger: Logger
    /// Log of what can repeat.
    let notices: NoticeLog
    /// Bytes of records held by the worker. The shard subtracts the bytes that it frees.
    private let bytesInFlight: InFlightBytes

    /// Nil without a store: items that wait for long then wait in memory.
    private(set) var storage: ShardStore?
    var machine: ShardMachine
    var waiting = WaitingEvents()
    /// Whether ``follow()`` is handling events that waited.
    var isFollowing = false
    var jobs: JobTable
    /// Name of the jobs' Kafka topic.
    let sourceTopic: UnsafeRawBufferPointer
    var decoder: JobDecoder
    var headers: UnsafeMutableBufferPointer<RecordHeader>
    /// Bytes of names and values in `headers`.
    var headerBytes = 0
    /// Buffer for the records that are announced together.
    let announced = UnsafeMutableBufferPointer<IncomingRecord>.allocate(capacity: 32)
    private(set) var pools: [CredentialPool] = []
    var routes: RouteTable
    var counters = ShardCounters()
    let metrics: JobMetrics
    /// Pauses in force.
    var switches: Switches
    /// Wall clock, read once per batch of work.
    var wallMilliseconds: Int64 = 0
    var freedBytes = 0
    /// Round in which records are taken, see ``ResponseRounds``.
    var responseRound: UInt8 = 0
    /// Records that became much smaller since the last round.
    var shrunk: [ShrunkRecord] = []
    private var turnEndAsked = false
    private var machineTimer: TimerID?
    private var machineTimerAt = UInt64.max
    private var nextInvariantCheck = MonotonicTime(nanoseconds: 0)
    /// Slots below this one were checked.
    private var checkedSlots = 0
    let port: IntakePort
    let peers: ShardPeers
    /// The intake's permit; nothing is sent without it.
    private let permit: SendPermit
    let pushes: PushAllowance
    /// Counts of the shard that the allowance has.
    private var counted = (ended: 0, records: 0)
    /// Pool that is first in the next turn, because the allowance was used up before its own.
    var firstPool = 0

    /// Headers of a record for which there is room.
    static let usualHeaders = 64
    /// Pushes that a shard claims at once, so that none is claimed for long without need.
    static let claimedAtOnce = 64

    init(
        plan: ShardPlan, producer: ShardProducer.Parts, bytesInFlight: InFlightBytes, permit: SendPermit,
        pushes: PushAllowance, store: RetryStore?, port: IntakePort, peers: ShardPeers, logger: Logger
    ) throws(SystemError) {
        self.plan = plan
        switches = plan.switches
        metrics = JobMetrics(apps: plan.appNames)
        stateKey = Array("\u{0}state".utf8).withUnsafeBytes { plan.hasher.collapseIdentifier($0) }
        self.bytesInFlight = bytesInFlight
        self.permit = permit
        self.pushes = pushes
        self.port = port
        self.peers = peers
        self.logger = logger
        loop = try EventLoop(name: "shard-\(plan.index)")
        notices = NoticeLog(loop: loop, logger: logger)
        ring = SingleProducerRing(capacity: plan.limits.capacity)
        jobs = JobTable(capacity: plan.limits.capacity)
        machine = ShardMachine(
            .init(
                index: plan.index, shards: plan.shards, mode: plan.mode, delivery: plan.limits,
                residency: plan.residency, pools: plan.pools.count,
                seed: MonotonicTime.read().nanoseconds &+ UInt64(plan.index)),
            isAllPaused: plan.switches.pausesAll)
        let name = Array(plan.sourceTopic.utf8)
        let topic = UnsafeMutableRawBufferPointer.allocate(byteCount: name.count, alignment: 1)
        topic.copyBytes(from: name)
        sourceTopic = UnsafeRawBufferPointer(topic)
        headers = .allocate(capacity: Self.usualHeaders)
        decoder = JobDecoder(plan.decoding)
        routes = RouteTable(apps: plan.routes)
        wakeup = try loop.makeWakeup { [unowned self] in readRecords() }
        outcomes = ShardProducer(
            producer, loop: loop, notices: notices,
            report: { [port, index = plan.index] in port.report(index, $0) },
            resume: { [unowned self] in askForTurnEnd() })
        do throws(CipherFailure) {
            if let store { storage = try ShardStore(store) }
        } catch {
            throw SystemError(error)
        }
    }

    deinit {
        while let record = ring.pop() { ConsumedRecord(rawPointer: record.pointer).destroy() }
        headers.deallocate()
        announced.deallocate()
        sourceTopic.deallocate()
    }

    /// Starts the thread and begins to open connections.
    func start() {
        loop.start()
        loop.execute { [self] in
            let notifications = NotificationTable(capacity: plan.limits.capacity)
            for (index, poolPlan) in plan.pools.enumerated() {
                let pool = CredentialPool(
                    index: UInt16(index), plan: poolPlan, notifications: notifications,
                    apps: plan.appLimits.count, seed: UInt64(plan.index) << 32 | UInt64(index) + 1,
                    loop: loop, notices: notices, delegate: self)
                pools.append(pool)
            }
            for route in Set(plan.routes.values) {
                let limits = plan.appLimits[Int(route.app)]
                for pool in route.pools {
                    let isSet = pools[Int(pool)].setLimits(app: UInt32(route.app), limits)
                    precondition(isSet, "the configuration's checks let wrong limits pass")
                }
            }
            for pool in pools { pool.connections.start() }
        }
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
        if machine.watchPools(at: now, isConnected: { pools[$0].connections.openConnections > 0 }) { act() }
        if machine.maySend, !outcomes.isBlocked, permit.isValid { sendAll() }
        countPushes()
        submitToStore()
        reportSettled()
        if freedBytes != 0 {
            bytesInFlight.subtract(freedBytes)
            freedBytes = 0
        }
        armTimer()
    }

    /// Makes the turn's counts visible to the worker.
    private func countPushes() {
        let (ended, records) = (machine.endedPushes, outcomes.waiting + outcomes.retained)
        guard ended != counted.ended || records != counted.records else { return }
        pushes.count(ended: ended - counted.ended, records: records - counted.records)
        counted = (ended, records)
        // Otherwise the worker's own turns are enough.
        if pushes.wants { port.pushesCounted() }
    }

    private func armTimer() {
        guard let next = machine.nextWake(after: now) else { return }
        if let machineTimer {
            guard next < machineTimerAt else { return }
            loop.cancel(machineTimer)
        }
        machineTimerAt = next
        machineTimer = loop.schedule(at: MonotonicTime(nanoseconds: next), handler: self)
    }

    func timerFired(_ timer: TimerID) {
        machineTimer = nil
        machineTimerAt = .max
        guard !machine.hasEnded else { return }
        wallMilliseconds = wallClockMilliseconds()
        machine.advance(to: now)
        act()
        watchInvariants()
        askForTurnEnd()
    }

    /// Checks a part of the slots once a second. The worker continues whatever is found, because people have to know.
    private func watchInvariants() {
        guard loop.now >= nextInvariantCheck else { return }
        nextInvariantCheck = loop.now + .seconds(1)
        let (next, found) = machine.checkInvariants(from: checkedSlots, slots: Self.slotsChecked)
        checkedSlots = next
        guard let problem = found else { return }
        counters.brokenInvariants += 1
        notices.log(
            .error, .invariantBroken,
            "an invariant of the worker is broken; report this as a bug, and restart the worker when convenient",
            metadata: ["shard": "\(plan.index)", "state": "\(problem)"])
    }

    private static let slotsChecked = 256

    /// Counters with the state of this moment.
    /// - Parameter isDetailed: whether figures of apps, pools and the loop are wanted.
    func snapshot(isDetailed: Bool = true) -> ShardCounters {
        var snapshot = counters
        let figures = machine.figures
        snapshot.set(figures.delivery)
        snapshot.decoding = decoder.counts
        if let storage {
            snapshot.store = storage.counters
            snapshot.store.scansUnderWay = figures.scansUnderWay
            snapshot.evictedDevices = figures.evictedDevices
            snapshot.residentItems = figures.restoredItems
            snapshot.devicesAwaitingTurn = figures.devicesAwaitingTurn
        }
        snapshot.openConnections = pools.reduce(0) { $0 + $1.connections.openConnections }
        guard isDetailed else { return snapshot }
        for pool in pools { snapshot.credentials[pool.name] = pool.figures }
        for pool in figures.overloadedPools where pools.indices.contains(Int(pool)) {
            snapshot.credentials[pools[Int(pool)].name]?.pools.overloaded += 1
        }
        snapshot.apps = metrics.snapshot()
        for (number, name) in plan.appNames.enumerated() {
            for pool in pools {
                for connections in [pool.connections, pool.isolated].compactMap({ $0 }) {
                    snapshot.apps[name]?.inFlight += connections.scheduler.inFlight(app: UInt32(number))
                    snapshot.apps[name]?.waiting += Priority.allCases.reduce(0) {
                        $0 + connections.scheduler.depth(app: UInt32(number), $1)
                    }
                }
            }
        }
        for tenant in figures.tenantsOverShare where plan.appNames.indices.contains(Int(tenant >> 16)) {
            snapshot.apps[plan.appNames[Int(tenant >> 16)]]?.isOverShare = true
        }
        snapshot.loops = [loop.usage()]
        snapshot.stoppedTopics = figures.stoppedTopics
        snapshot.pausedTopics = figures.pausedTopics
        snapshot.overloadedTopics = figures.overloadedTopics
        return snapshot
    }
}

/// Bytes of the records that a worker holds.
final class InFlightBytes: Sendable {
    private let value = Atomic<Int>(0)

    var count: Int { value.load(ordering: .relaxed) }
    func add(_ bytes: Int) { value.add(bytes, ordering: .relaxed) }
    func subtract(_ bytes: Int) { value.subtract(bytes, ordering: .relaxed) }
}
