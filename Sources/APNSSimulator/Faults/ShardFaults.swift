import EventLoop
import HTTP2
import SluiceModel

/// Plays the timeline of faults on one shard: its connections and requests. Loop's thread only, once
/// the loop runs.
final class ShardFaults: TimerHandler {
    /// Whether no request can meet a fault, as without a timeline. The only fact that each request asks for.
    private(set) var isQuiet = true
    private(set) var active = ActiveFaults()
    private let loop: EventLoop
    private let registry: FaultRegistry
    /// Distinguishes the shards' sequences of random choices.
    private let index: Int
    private var clock = FaultClock(FaultTimeline())
    private var startedAt: UInt64 = 0
    private var random = SeededGenerator(seed: 1)
    private var timer: TimerID?
    /// The open connections by their handlers. Each is removed when it closes.
    private var connections: [ObjectIdentifier: (handler: PushHandler, connection: ServerConnection)] = [:]
    private var mix = FaultMix([])
    private var deviceRate: DeviceRate?
    /// Requests in the current second, for ``ActiveFaults/perSecond``.
    private var second: (number: UInt64, count: Int) = (0, 0)
    /// Listener whose TLS changes; nil until ``start(_:tls:)``.
    private weak var listener: ServerListener?
    private var usualTLS: TLSContext?

    init(registry: FaultRegistry, loop: EventLoop, index: Int) {
        self.registry = registry
        self.loop = loop
        self.index = index
    }

    // MARK: - Timeline

    /// Sets the listener whose certificate may be replaced. Called before the loop starts.
    func start(_ listener: ServerListener, tls: TLSContext) {
        self.listener = listener
        usualTLS = tls
    }

    /// Begins to play the registry's timeline from its start. The loop need not run yet.
    func reload() {
        let run = registry.current
        clock = FaultClock(run.timeline)
        startedAt = run.startedAt
        random = SeededGenerator(seed: run.timeline.seed &+ UInt64(index) &* 0x1000_0000_1B3)
        advance()
    }

    /// Ends all faults, so that connections can end in order.
    func stop() {
        if let timer { loop.cancel(timer) }
        timer = nil
        clock = FaultClock(FaultTimeline())
        take(ActiveFaults())
    }

    func timerFired(_ id: TimerID) {
        timer = nil
        advance()
    }

    private func advance() {
        if let timer { loop.cancel(timer) }
        timer = nil
        let now = loop.now.nanoseconds
        let step = clock.advance(to: now > startedAt ? now - startedAt : 0)
        take(step.active)
        for event in step.events { carryOut(event) }
        guard let next = step.next else { return }
        timer = loop.schedule(at: MonotonicTime(nanoseconds: startedAt &+ next), handler: self)
    }

    private func take(_ faults: ActiveFaults) {
        guard faults != active else { return }
        let previous = active
        active = faults
        isQuiet = !faults.concernsRequests
        if faults.answers != previous.answers { mix = FaultMix(faults.answers) }
        if faults.perDevice != previous.perDevice {
            if let limit = faults.perDevice {
                deviceRate = DeviceRate(limit: limit)
            } else {
                deviceRate = nil
            }
        }
        if faults.hasExpiredServer != previous.hasExpiredServer {
            let expired = faults.hasExpiredServer ? registry.current.expiredTLS : nil
            if let tls = expired ?? usualTLS { listener?.tls = tls }
        }
        for (handler, connection) in connections.values {
            apply(to: handler, connection)
            refuseCertificate(of: handler, connection)
        }
    }

    // MARK: - Connections

    /// Adds a connection that has opened.
    func opened(_ handler: PushHandler, _ connection: ServerConnection) {
        handler.draw = random.fraction()
        connections[ObjectIdentifier(handler)] = (handler, connection)
        apply(to: handler, connection)
        refuseCertificate(of: handler, connection)
        for goAway in active.goAwaysOfNew where handler.draw < goAway.share { send(goAway, handler) }
    }

    func closed(_ handler: PushHandler) {
        connections[ObjectIdentifier(handler)] = nil
    }

    private func apply(to handler: PushHandler, _ connection: ServerConnection) {
        connection.isSilent = handler.draw < active.blackHole
        connection.readRate = handler.draw < active.readRateShare ? active.readRate : nil
        connection.withholdsWindowUpdates = handler.draw < active.noWindowUpdates
        handler.applyStreamLimit(connection)
    }

    private func refuseCertificate(of handler: PushHandler, _ connection: ServerConnection) {
        guard connection.peerCertificate != nil, connection.isOpen else { return }
        if active.hasExpiredClients {
            handler.shard.counters.add(.refused)
            handler.shard.refuse(connection, .badCertificate)
        } else if handler.draw < active.mixedUpCertificates {
            handler.shard.counters.add(.refused)
            handler.shard.refuse(connection, .badCertificateEnvironment)
        }
    }

    private func carryOut(_ event: FaultTimeline.Kind) {
        for (handler, connection) in connections.values {
            switch event {
            case .goAway(let goAway): if handler.draw < goAway.share { send(goAway, handler) }
            case .disconnect(let share, _): if handler.draw < share { connection.close() }
            default: break
            }
        }
    }

    private func send(_ goAway: FaultTimeline.GoAway, _ handler: PushHandler) {
        var frame = ServerGoAway(errorCode: goAway.code, debugData: goAway.debugData)
        switch goAway.end {
        case .drain: frame.end = .drained
        case .close: frame.end = .now
        case .twice: frame.end = .repeated
        }
        handler.goAway(frame, unprocessed: goAway.unprocessed)
    }

    // MARK: - Requests

    /// Whether a request is left without an answer.
    func leavesUnanswered() -> Bool { active.unanswered > 0 && random.fraction() < active.unanswered }

    /// Chooses the answer to a good push.
    func judge(_ push: PushRequest, _ handler: PushHandler) -> Reason {
        if active.mixedUpDevices > 0, push.deviceToken.sharePosition < active.mixedUpDevices {
            return .badDeviceToken
        }
        if deviceRate?.admit(push.deviceToken, second: loop.now.nanoseconds / 1_000_000_000) == false {
            return .tooManyRequests
        }
        return judge(handler)
    }

    /// Chooses the answer to a good push or broadcast.
    func judge(_ handler: PushHandler) -> Reason {
        if handler.certificate == nil, handler.draw < active.mixedUpKeys {
            return .badEnvironmentKeyIdInToken
        }
        if let limit = active.perSecond {
            let number = loop.now.nanoseconds / 1_000_000_000
            if second.number != number { second = (number, 0) }
            second.count += 1
            if second.count > limit { return .tooManyRequests }
        }
        return mix.choose(&random)
    }

    /// Returns the latency of an answer, in nanoseconds; nil for that of the simulator's options.
    func latency() -> UInt64? { active.latency?.sample(&random) }
}

extension UnsafeRawBufferPointer {
    /// Position of a device token among all tokens, 0 to below 1. The case of letters has no influence.
    fileprivate var sharePosition: Double {
        var hash: UInt64 = 0xCBF2_9CE4_8422_2325
        for byte in self { hash = (hash ^ UInt64(byte | 0x20)) &* 0x100_0000_01B3 }
        // The upper bits of FNV-1a hardly depend on the last bytes, so that the bits are mixed again.
        hash = (hash ^ hash >> 32) &* 0x9E37_79B9_7F4A_7C15
        return Double(hash >> 11) * 0x1p-53
    }
}
