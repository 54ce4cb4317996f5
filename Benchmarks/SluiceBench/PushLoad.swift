import CAllocationCounter
import DeliveryCore
import EventLoop
import HTTP2
import StreamScheduling

/// Drives pushes through the connection layer on an event loop: scheduler, pool, frame layer and TLS. The
/// sources decide which pushes are sent when.
// Sendable because only the loop's thread uses the load; the result is read after `done`.
final class PushLoad: ConnectionPoolDelegate, TurnEndHandler, TimerHandler, @unchecked Sendable {
    /// Length of a part of the run.
    enum Extent: Sendable {
        /// A number of answers.
        case pushes(Int)
        case seconds(Double)
    }

    struct Settings: Sendable {
        var host = "localhost"
        var port: UInt16 = 0
        var trust = PEMSource.text("")
        /// Number of initial connections; the load starts when all of them are open.
        var connections = 1
        /// Maximum number of connections; nil when the pool must not grow.
        var maximumConnections: Int?
        /// Maximum number of requests in flight on each connection.
        var inFlight = 1000
        var payloadBytes = 250
        var deviceTokens = 10_000
        var warmUp = Extent.pushes(20_000)
        var measured = Extent.pushes(200_000)
        var sources: [LoadSource.Configuration] = []
        var countsAllocations = false
        /// The timeout of each request; nil for the default of normal service.
        var requestTimeout: Duration?
        /// Whether the run tolerates connections that end and pushes without an answer.
        var allowsFaults = false
        /// Ends the measurement; asked every tenth of a second. Nil when `measured` alone ends the measurement.
        var watch: GrowthWatch?
    }

    private enum Phase {
        case connecting, warmingUp, measuring, draining, done
    }

    /// Counters at the beginning or the end of the measurement.
    private struct Mark {
        var time: UInt64
        var usage: ProcessUsage
        var finished: [Int]
    }

    private let settings: Settings
    private let loop: EventLoop
    private var pool: LoadPool!
    private let material: LoadMaterial
    private let sources: UnsafeMutableBufferPointer<LoadSource>
    private let isPaced: Bool
    private var phase = Phase.connecting
    private var phaseBegan: (time: UInt64, finished: Int) = (0, 0)
    private var finished = 0
    /// Number of connections that have ended since the measurement began.
    private var closed = 0
    private var turnEndAsked = false
    private var from: Mark?
    private var openedBefore = 0
    private var watch: GrowthWatch?
    private var nextWatch: UInt64 = 0
    private var failure: String?
    private let done = BlockingFlag()
    private var result: LoadResult?

    /// Interval of the checks for due pushes, in nanoseconds.
    private static let tick: UInt64 = 100_000

    init(_ settings: Settings) throws {
        self.settings = settings
        watch = settings.watch
        loop = try EventLoop(name: "load")
        let fields = StableFields()
        material = LoadMaterial(
            fields: fields, authority: "\(settings.host):\(settings.port)",
            payloadBytes: settings.payloadBytes, tokenCount: settings.deviceTokens)
        sources = .allocate(capacity: settings.sources.count)
        var slot: UInt32 = 0
        for (index, source) in settings.sources.enumerated() {
            sources.initializeElement(at: index, to: LoadSource(source, firstSlot: slot))
            slot = sources[index].endSlot
        }
        isPaced = settings.sources.contains { if case .rate = $0.demand { true } else { false } }
        pool = try LoadPool(settings, fields: fields, loop: loop, delegate: self)
    }

    deinit {
        for source in sources { source.deallocate() }
        sources.deinitialize()
        sources.deallocate()
    }

    func run() throws -> LoadResult {
        loop.start()
        loop.execute { [self] in pool.pool.start() }
        done.wait()
        loop.runBlocking { [self] in pool.pool.close() }
        loop.stop()
        loop.join()
        if let failure { throw LoadError(description: failure) }
        return result!
    }

    // MARK: Load

    /// Enqueues all due pushes.
    private func feed(now: UInt64) {
        for index in sources.indices {
            while let slot = sources[index].nextDue(now: now) {
                pool.enqueue(
                    slot, of: sources[index].configuration, bytes: material.payloadBytes, now: now)
            }
        }
    }

    private func source(of slot: UInt32) -> Int {
        var index = 0
        while sources[index].endSlot <= slot { index += 1 }
        return index
    }

    func turnEnded() {
        turnEndAsked = false
        guard phase == .warmingUp || phase == .measuring else { return }
        let now = loop.now.nanoseconds
        feed(now: now)
        while let (slot, connection) = pool.nextAssignment() {
            let index = source(of: slot)
            if !material.submit(
                slot: slot, priority: sources[index].configuration.priority, to: connection)
            {
                pool.notSubmitted(
                    slot, of: sources[index].configuration, bytes: material.payloadBytes, on: connection,
                    now: now)
            }
        }
    }

    func timerFired(_ timer: TimerID) {
        guard phase == .warmingUp || phase == .measuring else { return }
        let now = loop.now.nanoseconds
        loop.schedule(at: MonotonicTime(nanoseconds: now + Self.tick), handler: self)
        if now >= nextWatch, watch != nil {
            nextWatch = now + 100_000_000
            let unfinished = sources.reduce(0) { $0 + $1.unfinished(now: now) }
            let enough = watch!.look(
                time: now, finished: finished, waiting: unfinished - pool.inFlight,
                connections: pool.openConnections)
            if enough { return endMeasurement() }
        }
        askTurnEnd()
        advance()
    }

    func pool(
        _ pool: ConnectionPool, received events: UnsafeBufferPointer<ClientEvent>,
        on connection: ClientConnection
    ) {
        let now = isPaced ? MonotonicTime.read().nanoseconds : loop.now.nanoseconds
        let isMeasuring = phase == .measuring
        for event in events {
            let status: UInt16?
            switch event.kind {
            case .response: status = event.status
            case .failed: status = nil
            default: continue
            }
            sources[source(of: event.tag)].ended(
                event.tag, status: status, now: now, isMeasuring: isMeasuring)
            finished += 1
        }
        advance()
    }

    func poolHasCapacity(_ pool: ConnectionPool) {
        if phase == .connecting {
            guard self.pool.openConnections >= settings.connections else { return }
            enter(.warmingUp)
            for index in sources.indices { sources[index].start(now: phaseBegan.time) }
            if isPaced {
                loop.schedule(at: MonotonicTime(nanoseconds: phaseBegan.time), handler: self)
            }
        }
        askTurnEnd()
    }

    func pool(_ pool: ConnectionPool, happened event: PoolEvent) {
        guard phase != .done else { return }
        switch event {
        // The pool itself closes connections that it doesn't need.
        case .closed(_, _, .drained): break
        case .closed where settings.allowsFaults: closed += 1
        case .closed(let number, _, let reason): fail("connection \(number) closed: \(reason)")
        case .resolveFailed(let error): fail("\(error)")
        case .stopped(let reason, _): fail("the pool stopped: \(reason)")
        default: break
        }
    }

    private func askTurnEnd() {
        guard !turnEndAsked else { return }
        turnEndAsked = true
        loop.atTurnEnd(self)
    }

    // MARK: Phases

    private func enter(_ phase: Phase) {
        self.phase = phase
        phaseBegan = (MonotonicTime.read().nanoseconds, finished)
    }

    private func isOver(_ extent: Extent) -> Bool {
        switch extent {
        case .pushes(let count): finished - phaseBegan.finished >= count
        case .seconds(let seconds):
            Double(loop.now.nanoseconds(since: MonotonicTime(nanoseconds: phaseBegan.time))) >= seconds * 1e9
        }
    }

    private func advance() {
        switch phase {
        case .warmingUp where isOver(settings.warmUp): beginMeasurement()
        case .measuring where isOver(settings.measured): endMeasurement()
        case .draining where pool.inFlight == 0: finish()
        default: break
        }
    }

    private func beginMeasurement() {
        from = Mark(time: 0, usage: .read(), finished: sources.map(\.finished))
        enter(.measuring)
        from?.time = phaseBegan.time
        if settings.countsAllocations { sluice_allocations_begin(2048) }
        closed = 0
        openedBefore = pool.pool.totals.opened
    }

    private func endMeasurement() {
        let allocations =
            settings.countsAllocations ? sluice_allocations_end() : sluice_allocation_counts()
        guard let from else { return fail("ended before the measurement began") }
        enter(.draining)
        let usage = ProcessUsage.read()
        result = LoadResult(
            pushes: finished - from.finished.reduce(0, +),
            seconds: Double(phaseBegan.time - from.time) / 1e9,
            cpuSeconds: usage.cpuSeconds - from.usage.cpuSeconds,
            maximumResidentMegabytes: usage.maximumResidentMegabytes,
            waiting: sources.reduce(0) { $0 + $1.unfinished(now: phaseBegan.time) } - pool.inFlight,
            allocations: allocations, watch: watch, closed: closed,
            opened: pool.pool.totals.opened - openedBefore,
            unanswered: sources.reduce(0) { $0 + $1.unanswered },
            sources: zip(sources, from.finished).map { source, before in
                LoadResult.Source(pushes: source.finished - before, latencies: source.latencies)
            })
        advance()
    }

    /// Called when each sent push has been answered.
    private func finish() {
        phase = .done
        let bad = sources.reduce(0) { $0 + $1.otherAnswers + $1.unanswered }
        if bad > 0, !settings.allowsFaults { failure = "\(bad) pushes were not accepted" }
        done.set()
    }

    private func fail(_ text: String) {
        phase = .done
        failure = text
        done.set()
    }
}

struct LoadError: Error, CustomStringConvertible {
    var description: String
}

/// Figures of a run of a load.
// Sendable because nothing changes the histograms after the load has ended.
struct LoadResult: @unchecked Sendable {
    struct Source {
        var pushes: Int
        var latencies: LatencyHistogram?
    }

    var pushes: Int
    var seconds: Double
    var cpuSeconds: Double
    var maximumResidentMegabytes: Double
    /// Number of due pushes that hadn't begun at the end.
    var waiting: Int
    var allocations: sluice_allocation_counts
    var watch: GrowthWatch?
    /// Numbers of connections that ended and opened during the measurement, and of unanswered pushes of the
    /// whole run.
    var closed: Int
    var opened: Int
    var unanswered: Int
    var sources: [Source]

    /// The line that every load prints and may extend.
    var line: JSONLine {
        var line = JSONLine()
        line.add("pushes", pushes)
        line.add("seconds", seconds)
        line.add("pushes_per_second", Double(pushes) / seconds)
        line.add("cpu_us_per_push", cpuSeconds * 1e6 / Double(pushes))
        line.add("max_resident_mb", maximumResidentMegabytes)
        return line
    }
}
