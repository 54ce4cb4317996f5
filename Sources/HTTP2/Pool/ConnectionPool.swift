import EventLoop
import SluiceModel
import StreamScheduling

/// The connections to one server with one credential on one event loop, and the scheduler that places notifications on
/// them. ``PoolStateMachine`` decides which connections exist; the pool carries out the decisions. Use on the loop's
/// thread only.
public final class ConnectionPool {
    /// Server, limits and times of a pool.
    public struct Configuration: Sendable {
        public var host: String
        public var port: UInt16
        /// Name that the server's certificate has; nil means the host.
        public var serverName: String?
        /// Number of connections that stay open.
        public var connections = 2
        /// Number of connections that the pool grows to under load; nil means that the pool does not grow.
        public var maximumConnections: Int?
        /// Least time between two openings, because APNs regards many at once as an attack.
        public var openInterval: Duration = .milliseconds(200)
        /// Least time between two connections by which the pool grows.
        public var growthInterval: Duration = .seconds(2)
        /// Time for which all connections are full, with requests waiting, before the pool grows.
        public var growthPatience: Duration = .milliseconds(100)
        /// Waiting time of requests after which the pool grows too, if no connection accepts them, full or not.
        public var queueAgeTarget: Duration = .milliseconds(500)
        /// Time without need after which connections beyond `connections` close.
        public var idleTimeout: Duration = .seconds(300)
        /// Age at which a connection is replaced, plus or minus a tenth; zero means never.
        public var maximumAge: Duration = .zero
        /// Back-off before an opening is retried after a failure: doubles each time, with jitter, up to the maximum.
        public var reconnectInitial: Duration = .milliseconds(250)
        /// Longest back-off between failed openings.
        public var reconnectMaximum: Duration = .seconds(10)
        /// Length of the first stop because the server refuses the credential. Further stops in a row double it.
        public var stopInitial: Duration = .seconds(5)
        /// Longest stop because the server refuses the credential.
        public var stopMaximum: Duration = .seconds(300)
        /// Age below which a connection is not replaced on mere suspicion.
        public var leastAgeToReplace: Duration = .seconds(30)
        /// Number of stream ids left below which a connection is replaced.
        public var leastStreamsLeft = 100_000
        /// Number of openings in a row that fail, while no connection serves, before the circuit opens.
        public var circuitFailures = 5
        /// Number of answers that the circuit needs before it opens. Either so many errors arrive in a row, or at least
        /// so many answers within ten seconds are half errors. The trouble must also last for `circuitErrorTime`.
        public var circuitServerErrors = 100
        /// Time that errors must last before the circuit opens.
        public var circuitErrorTime: Duration = .seconds(1)
        /// Time after which a connection that accepts no request, while requests wait, is replaced.
        public var progressTimeout: Duration = .seconds(15)
        /// Times and limits of each connection.
        public var connection = ClientConnection.Configuration()
        /// Per mille of each connection's streams that are reserved for priority 10.
        public var urgentPerMille = 25
        /// Number of apps that the scheduler distinguishes.
        public var apps = 1
        /// Seed of the jitter.
        public var seed: UInt64 = 1

        public init(host: String, port: UInt16) {
            self.host = host
            self.port = port
        }

        var limits: PoolLimits {
            var limits = PoolLimits()
            limits.minimum = connections
            limits.maximum = max(connections, maximumConnections ?? connections)
            limits.openInterval = openInterval.wholeNanoseconds
            limits.growthInterval = growthInterval.wholeNanoseconds
            limits.growthPatience = growthPatience.wholeNanoseconds
            limits.queueAgeTarget = queueAgeTarget.wholeNanoseconds
            limits.idleTimeout = idleTimeout.wholeNanoseconds
            limits.maximumAge = maximumAge.wholeNanoseconds
            limits.leastAgeToReplace = leastAgeToReplace.wholeNanoseconds
            limits.reconnectInitial = reconnectInitial.wholeNanoseconds
            limits.reconnectMaximum = reconnectMaximum.wholeNanoseconds
            limits.stopInitial = stopInitial.wholeNanoseconds
            limits.stopMaximum = stopMaximum.wholeNanoseconds
            limits.circuitFailures = circuitFailures
            limits.circuitServerErrors = circuitServerErrors
            limits.circuitErrorTime = circuitErrorTime.wholeNanoseconds
            limits.progressTimeout = progressTimeout.wholeNanoseconds
            return limits
        }
    }

    public private(set) var configuration: Configuration
    /// Header fields that repeat in requests on new connections.
    public private(set) var fields: StableFields
    /// Scheduler of the waiting requests; decides which connection sends each.
    public var scheduler: StreamScheduler

    private(set) var context: TLSContext
    let resolver: AddressResolver
    let loop: EventLoop
    unowned let delegate: any ConnectionPoolDelegate
    var machine: PoolStateMachine
    /// Connections by number; nil where none exists.
    var connections: [ClientConnection?]
    var openingStarted: [MonotonicTime]
    /// Look-ups of openings that wait for addresses, by number; nil where none runs.
    var lookups: [AddressLookup?]
    var knownAddresses = KnownAddresses()
    var addressOrder = AddressOrder()
    /// Answers by app, for errors that concern one app alone.
    var appAnswers = AppAnswers()
    var counters = PoolCounters()
    private var givenStopReason: String?
    private var isCarryingOut = false

    private var tickTimer: TimerID?
    private var tickAt = UInt64.max
    private var views: [PoolStateMachine.View] = []
    private var peakInFlight = 0
    /// ``PoolStateMachine/mayGrow`` as of its last decision.
    private var mayGrow = true
    /// True while the circuit is half open, as of the machine's last decision.
    private var isProbing = false
    /// Slot of the request that probes; nil when none is under way, or the circuit isn't half open.
    var probe: UInt32?
    /// Timer for the moment when an app that its pace held back may send again; nil when none is set.
    private var paceTimer: TimerID?
    private var paceTimerAt = UInt64.max

    /// Times from enqueuing to the answer, by priority.
    private let latencies: (LatencyHistogram, LatencyHistogram, LatencyHistogram)

    /// - Parameter notifications: the loop's table; its slots are the tags of this pool's requests.
    public init(
        configuration: Configuration, context: TLSContext, fields: StableFields,
        notifications: NotificationTable, loop: EventLoop, delegate: any ConnectionPoolDelegate,
        resolver: AddressResolver = .system
    ) {
        self.configuration = configuration
        self.context = context
        self.resolver = resolver
        self.fields = fields
        self.loop = loop
        self.delegate = delegate
        machine = PoolStateMachine(configuration.limits, seed: configuration.seed)
        let numbers = machine.members.count
        scheduler = StreamScheduler(
            .init(
                connections: numbers, apps: configuration.apps, urgentPerMille: configuration.urgentPerMille),
            notifications: notifications)
        connections = Array(repeating: nil, count: numbers)
        lookups = Array(repeating: nil, count: numbers)
        openingStarted = Array(repeating: loop.now, count: numbers)
        views.reserveCapacity(numbers)
        latencies = (LatencyHistogram(), LatencyHistogram(), LatencyHistogram())
    }

    // MARK: Life

    /// Begins to open connections.
    public func start() {
        machine.maintain(now: loop.now.nanoseconds)
        carryOut()
    }

    /// Opens no more connections and lets the open ones end their requests.
    public func drain() {
        machine.close()
        for case let connection? in connections {
            connection.drain()
            report(connection)
        }
    }

    /// Closes all connections at once; open requests without a status end as unknown.
    public func close() {
        machine.close()
        for timer in [tickTimer, paceTimer] {
            if let timer { loop.cancel(timer) }
        }
        tickTimer = nil
        paceTimer = nil
        for lookup in lookups { lookup?.cancel() }
        for connection in connections { connection?.close() }
    }

    /// Stops opening connections and sending on open ones for a while, because the server refuses the credential. The
    /// first stop takes seconds, because the refusal may be a mistake. The length doubles until the server accepts a
    /// request on a connection opened since. Requests in flight continue. A pool that is stopped already stays so.
    public func stop(reason: String) {
        let now = loop.now.nanoseconds
        guard let end = machine.stop(now: now) else { return }
        givenStopReason = reason
        delegate.pool(self, happened: .stopped(reason: reason, nanoseconds: end - now))
        carryOut()
    }

    /// Credential of connections, and the way to the server.
    public struct Identity {
        public var context: TLSContext
        public var fields: StableFields
        /// Proxy to dial through; nil means none.
        public var proxy: ProxyConfiguration?

        public init(context: TLSContext, fields: StableFields, proxy: ProxyConfiguration?) {
            self.context = context
            self.fields = fields
            self.proxy = proxy
        }
    }

    /// Opens connections with another credential from now on, and replaces those of other generations. Each serves
    /// until its successor is open, unless `atOnce` is set: then it takes no further request.
    ///
    /// - Parameter generation: a new number, or that of an earlier credential to undo its renewal.
    public func renew(_ identity: Identity, generation: UInt32, atOnce: Bool) {
        context = identity.context
        fields = identity.fields
        if (configuration.connection.proxy?.host, configuration.connection.proxy?.port)
            != (identity.proxy?.host, identity.proxy?.port)
        {
            // The addresses are those of the other proxy.
            knownAddresses = KnownAddresses()
        }
        configuration.connection.proxy = identity.proxy
        machine.renew(generation: generation, atOnce: atOnce, now: loop.now.nanoseconds)
        machine.endStop(now: loop.now.nanoseconds)
        carryOut()
    }

    /// Lets a generation's connections take no further request, because the server refuses its credential.
    public func drain(generation: UInt32) {
        machine.drain(generation: generation, now: loop.now.nanoseconds)
        carryOut()
    }

    /// Whether the server has accepted the credential with which connections are opened.
    public var isGenerationProven: Bool { machine.isGenerationProven }

    /// Whether the connection is one of this pool's.
    public func has(_ connection: ClientConnection) -> Bool {
        Int(connection.number) < connections.count && connections[Int(connection.number)] === connection
    }

    /// Replaces a generation's connections that are younger than `age`, because its provider token changes.
    public func renewYoung(generation: UInt32, age: Duration) {
        machine.renewYoung(
            generation: generation, age: age.wholeNanoseconds, now: loop.now.nanoseconds)
        carryOut()
    }

    /// Whether a connection of the generation exists, in any state.
    public func hasConnection(ofGeneration generation: UInt32) -> Bool {
        machine.members.contains { $0.phase != .free && $0.generation == generation }
    }

    /// Drains one connection and opens another in its place.
    public func replace(_ number: UInt32, _ replacement: ConnectionReplacement) {
        switch replacement {
        case .now: machine.replaceNow(number, now: loop.now.nanoseconds)
        case .whenSuccessorIsOpen:
            machine.replaceWhenSuccessorIsOpen(number, now: loop.now.nanoseconds)
        case .ifOpeningsAreAllowed: machine.replaceIfAllowed(number, now: loop.now.nanoseconds)
        }
        carryOut()
    }

    // MARK: Placing

    /// Returns the next waiting slot and its connection. Returns nil when no request that may be sent waits or nothing
    /// has room; nil ends the run of assignments that one connection gets. The caller submits the request on that
    /// connection at once. Otherwise the caller calls ``withdraw(_:from:)`` and enqueues the slot again or drops it.
    ///
    /// - Parameter urgentOnly: excludes all requests below priority 10.
    public func nextAssignment(urgentOnly: Bool = false) -> (slot: UInt32, connection: ClientConnection)? {
        guard let assignment = assignment(urgentOnly: urgentOnly) else {
            scheduler.endRun()
            peakInFlight = max(peakInFlight, scheduler.assigned)
            armPaceTimer()
            if mayGrow || witness != nil, scheduler.hasEligible { armTick() }
            return nil
        }
        if isProbing { probe = assignment.slot }
        guard let connection = connections[Int(assignment.connection)] else {
            preconditionFailure("the scheduler knows connection \(assignment.connection), the pool does not")
        }
        return (assignment.slot, connection)
    }

    private func assignment(urgentOnly: Bool) -> StreamScheduler.Assignment? {
        let now = loop.now.nanoseconds
        if isProbing, !urgentOnly, let witness {
            return scheduler.nextAssignment(ofApp: witness, now: now)
        }
        return scheduler.nextAssignment(now: now, urgentOnly: urgentOnly)
    }

    /// App with waiting requests that is not in trouble itself, while the circuit isn't closed because of the answers to others,
    /// or because they have none; nil when there is none. Its next request shows whether the server fails for all apps.
    private var witness: UInt32? {
        switch machine.circuit {
        case .open(_, .serverErrors), .halfOpen(.serverErrors):
            scheduler.eligibleApp { !appAnswers.isInTrouble($0) }
        // Requests that are still in flight have no answer either.
        case .open(_, .noAnswer), .halfOpen(.noAnswer):
            scheduler.eligibleApp { !appAnswers.isInTrouble($0) && scheduler.inFlight(app: $0) == 0 }
        case .open, .halfOpen, .closed: nil
        }
    }

    /// True when a witness waits beside a probe of an app in trouble, which may hang.
    private var mayWitness: Bool {
        guard let probe, witness != nil else { return false }
        return appAnswers.isInTrouble(scheduler.lastApp(slot: probe))
            || machine.circuit == .halfOpen(.noAnswer)
    }

    /// Withdraws an assignment that was not submitted. The slot becomes idle, and its app and the connection regain
    /// their booked share.
    public func withdraw(_ slot: UInt32, from connection: ClientConnection) {
        scheduler.withdrawn(slot: slot, now: loop.now.nanoseconds)
        if probe == slot { probe = nil }
        report(connection)
    }

    /// Reports to the scheduler how it may use a connection.
    func report(_ connection: ClientConnection) {
        var state: StreamScheduler.ConnectionState = .suspended
        var free = connection.availableStreams
        if connection.isEnding {
            state = .draining
        } else if connection.isOpen {
            state = machine.members[Int(connection.number)].phase == .reserve ? .reserve : .ready
        }
        switch machine.circuit {
        case _ where machine.stoppedUntil != nil: free = 0
        case .closed where machine.members[Int(connection.number)].isSuspect: free = 0
        case .closed:
            if let share = machine.streamShare { free = min(free, max(0, share - connection.openStreams)) }
        case .open: free = 0
        case .halfOpen where connection.number != machine.probe: free = 0
        case .halfOpen where machine.members[Int(connection.number)].isSuspect:
            free = probe == nil || mayWitness ? min(free, 1) : 0
        case .halfOpen: free = min(free, max(0, (mayWitness ? 2 : 1) - connection.openStreams))
        }
        scheduler.connectionChanged(
            connection.number, inFlight: connection.openStreams, streamsFree: free,
            windowFree: connection.sendWindow, state: state)
    }

    /// Records an answer for `slot`, which is idle now.
    func ended(_ slot: UInt32, now: UInt64) {
        if probe == slot { probe = nil }
        let priority = scheduler.priority(slot: slot)
        latency(priority).record(nanoseconds: scheduler.ended(slot: slot, now: now))
    }

    // MARK: The machine's actions

    /// Carries out the machine's decisions.
    func carryOut() {
        // A delegate that receives a change may give an order, and the order's actions follow in this loop.
        guard !isCarryingOut else { return }
        isCarryingOut = true
        while let action = machine.nextAction() {
            switch action {
            case .open(let number): open(number)
            case .drain(let number):
                guard let connection = connections[Int(number)] else { continue }
                connection.drain()
                report(connection)
            case .report(let number): if let connection = connections[Int(number)] { report(connection) }
            case .reportAll:
                for case let connection? in connections { report(connection) }
                delegate.poolHasCapacity(self)
            case .changed(let change):
                if case .circuit(.open) = change { counters.circuitOpened += 1 }
                if case .rotates(_, .noProgress) = change { counters.stuck += 1 }
                delegate.pool(self, happened: .changed(change))
            }
        }
        isCarryingOut = false
        mayGrow = machine.mayGrow
        if case .halfOpen = machine.circuit { isProbing = true } else { (isProbing, probe) = (false, nil) }
        armTick()
    }

    // MARK: Timers

    private func armTick() {
        let now = loop.now.nanoseconds
        // A tick at most 11 ms away is near enough, so the timer does not change each turn.
        guard !machine.isClosing, tickTimer == nil || tickAt > now + 11_000_000 else { return }
        let next = machine.nextTick(
            now: now, isWaiting: mayGrow && scheduler.hasEligible || witness != nil)
        if let tickTimer {
            guard next < tickAt else { return }
            loop.cancel(tickTimer)
        }
        tickAt = next
        tickTimer = loop.schedule(at: MonotonicTime(nanoseconds: next), handler: self)
    }

    private func tick() {
        let now = loop.now.nanoseconds
        views.removeAll(keepingCapacity: true)
        for case let connection? in connections where connection.isOpen {
            views.append(
                PoolStateMachine.View(
                    number: connection.number, inFlight: connection.openStreams,
                    limit: connection.streamLimit,
                    isAuthenticated: connection.isAuthenticated,
                    isWindowFull: connection.sendWindow < scheduler.configuration.largestBody,
                    isBlocked: connection.availableStreams == 0,
                    isNearlyExhausted: connection.remainingStreams < configuration.leastStreamsLeft))
        }
        let demand = PoolStateMachine.Demand(
            isWaiting: scheduler.hasEligible,
            age: Priority.allCases.reduce(0) { max($0, scheduler.nextAge($1, now: now) ?? 0) },
            peakInFlight: peakInFlight, hasWitness: witness != nil)
        peakInFlight = scheduler.assigned
        machine.tick(now: now, demand: demand, views: views)
        carryOut()
    }

    private func armPaceTimer() {
        guard !machine.isClosing, let wake = scheduler.nextWake else { return }
        if let paceTimer {
            guard wake < paceTimerAt else { return }
            loop.cancel(paceTimer)
        }
        paceTimerAt = wake
        paceTimer = loop.schedule(at: MonotonicTime(nanoseconds: wake), handler: self)
    }

    /// Calls `body` with the tag of each request whose content a connection still reads from its owner.
    public func forEachUnsent(_ body: (_ tag: UInt32) -> Void) {
        for connection in connections { connection?.session.forEachUnsent(body) }
    }

    // MARK: What an operator sees

    /// Reason why nothing is opened or sent for the time being; nil when the pool is not stopped.
    public var stopReason: String? { machine.stoppedUntil == nil ? nil : givenStopReason }

    /// State of the circuit breaker.
    public var circuit: PoolCircuit { machine.circuit }

    /// Number of connections that accept requests.
    public var openConnections: Int {
        connections.reduce(0) { $0 + (($1?.isOpen ?? false) ? 1 : 0) }
    }

    /// Number of requests in flight.
    public var inFlight: Int { scheduler.assigned }

    /// Counts of the pool so far, without the open connections' own.
    public var totals: PoolCounters { counters }

    /// Returns the times from enqueuing to the answer, for one priority.
    public func latency(_ priority: Priority) -> LatencyHistogram {
        switch priority {
        case .immediate: latencies.0
        case .powerAware: latencies.1
        case .lowPower: latencies.2
        }
    }

    /// Returns the state of this moment. The call looks at every connection and app, so it serves reports only.
    public func snapshot() -> PoolSnapshot {
        let now = loop.now.nanoseconds
        var totals = counters
        for case let connection? in connections { totals.add(connection.statistics) }
        return PoolSnapshot(
            circuit: machine.circuit, stopReason: stopReason, streamShare: machine.streamShare,
            targetConnections: machine.target,
            inFlight: scheduler.assigned, waiting: scheduler.waiting,
            queues: Priority.allCases.map {
                PoolSnapshot.Queue(
                    priority: $0, depth: scheduler.depth($0),
                    oldestAgeNanoseconds: scheduler.oldestAge($0, now: now))
            },
            connections: connections.compactMap { connection in
                guard let connection else { return nil }
                return PoolSnapshot.Connection(
                    number: connection.number, state: state(of: connection),
                    address: "\(connection.address)", statistics: connection.statistics)
            }, counters: totals)
    }

    private func state(of connection: ClientConnection) -> PoolSnapshot.ConnectionState {
        if connection.isEnding { return .draining }
        if connection.isSuspended { return .suspected }
        switch machine.members[Int(connection.number)].phase {
        case .free, .draining: return .draining
        case .opening: return .opening
        case .active: return .active
        case .reserve: return .reserve
        case .retiring: return .retiring
        }
    }
}

extension ConnectionPool: TimerHandler {
    public func timerFired(_ timer: TimerID) {
        if timer == paceTimer {
            paceTimer = nil
            return delegate.poolHasCapacity(self)
        }
        tickTimer = nil
        tickAt = .max
        tick()
    }
}
