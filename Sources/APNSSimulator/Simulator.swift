import EventLoop
import HTTP2
import SluiceModel
import Synchronization

/// An APNs server for development, tests and measurements. Serves the provider API over HTTP/2 with the checks, limits
/// and reasons of APNs, on one or more event loops.
public final class Simulator: Sendable {
    public let options: SimulatorOptions
    /// Signs the server's certificate, and can issue push certificates for clients.
    public let authority: CertificateAuthority
    /// Port that the simulator listens on.
    public let port: UInt16
    /// Port of channel management; nil when none is served.
    public var managementPort: UInt16? { shards[0].management?.port }
    private let channels: ChannelRegistry
    private let script: FaultRegistry
    private let shards: [SimulatorShard]

    private enum State {
        case ready, running, stopped
    }
    private let state = Mutex(State.ready)

    private let certificates: SimulatorCertificates

    /// Prepares everything and binds the port; connections are accepted after ``start()``.
    /// - Parameter sibling: simulator of the other environment, whose certificates are used too; nil for own ones.
    /// - Throws: `SimulatorError`, `TLSError`, `ServerError` or `SystemError`, which name the option that can't be
    ///   used.
    public init(options: SimulatorOptions, sibling: Simulator? = nil) throws {
        guard (1...64).contains(options.threads) else {
            throw SimulatorError("threads: must be between 1 and 64, not \(options.threads)")
        }
        guard options.maximumStreams > 0, options.streamsBeforeToken > 0 else {
            throw SimulatorError("the stream limits must be greater than 0")
        }
        if let budget = options.errorBudget, budget < 1 {
            throw SimulatorError(
                "error budget: must be at least 1, not \(budget); nil for any number of errors")
        }
        try SimulatorOptions.checkShares(options.faults)
        let reasons = options.faults.map(\.reason) + options.deviceRules.map(\.reason)
        for reason in reasons where reason.status < 400 {
            throw SimulatorError("“\(reason)” is not a reason for the answer to a push")
        }
        self.options = options
        let certificates =
            try sibling?.certificates
            ?? SimulatorCertificates(directory: options.certificateDirectory, names: options.serverNames)
        self.certificates = certificates
        authority = certificates.authority
        var tls = ServerTLSOptions(identity: certificates.server.identity)
        if options.acceptsClientCertificates, options.mode == .full {
            tls.clientCertificates = .request(.text(authority.certificatePEM))
        }
        let context = try TLSContext.server(tls)
        channels = ChannelRegistry(options)
        let tokenUpdates = TokenUpdateRegistry(options)
        let script = FaultRegistry { [authority, tls] in
            var expired = tls
            expired.identity = try authority.issueServer(names: options.serverNames, validity: .expired)
                .identity
            return try TLSContext.server(expired)
        }
        self.script = script
        try script.replace(with: options.faultTimeline, now: MonotonicTime.read().nanoseconds)
        var shards: [SimulatorShard] = []
        for index in 0..<options.threads {
            // The first shard determines the port that the others share.
            let port = shards.first?.listener.port ?? options.port
            shards.append(
                try SimulatorShard(
                    options: options, index: index, port: port, tls: context, channels: channels,
                    tokenUpdates: tokenUpdates, faults: script))
        }
        self.shards = shards
        port = shards[0].listener.port
    }

    deinit { stop() }

    /// Begins to accept connections.
    /// - Returns: the port.
    @discardableResult
    public func start() -> UInt16 {
        let isFirst = state.withLock { state in
            guard state == .ready else { return false }
            state = .running
            return true
        }
        guard isFirst else { return port }
        // The timeline was checked before. Its first faults are in force before the first connection.
        try? script.replace(with: script.current.timeline, now: MonotonicTime.read().nanoseconds)
        for shard in shards {
            shard.script.reload()
            shard.loop.start()
        }
        return port
    }

    /// Faults by script, and how far they are. Any thread.
    public var faults: FaultReport { script.report(now: MonotonicTime.read().nanoseconds) }

    /// Replaces the faults by script; the new timeline starts now. Any thread. Requests that arrive after the return meet
    /// the new faults, unless an event loop of the simulator calls.
    /// - Throws: `SimulatorError` for a timeline that can't be played; the faults so far then continue.
    public func replaceFaults(with timeline: FaultTimeline) throws {
        try script.replace(with: timeline, now: MonotonicTime.read().nanoseconds)
        guard state.withLock({ $0 == .running }) else { return }
        // A loop that waited for another could wait for itself.
        let waits = !shards.contains { $0.loop.isCurrent }
        for shard in shards {
            if waits {
                _ = shard.loop.runBlockingIfRunning { shard.script.reload() }
            } else {
                _ = shard.loop.execute { shard.script.reload() }
            }
        }
    }

    /// Ends all connections with GOAWAY (`Shutdown`), finishes open requests, and ends the threads. Blocks until then.
    /// Must not be called from one of the simulator's loops.
    public func stop() {
        let wasRunning = state.withLock { state in
            defer { state = .stopped }
            return state == .running
        }
        guard wasRunning else { return }
        let flags = shards.map { shard in
            let flag = BlockingFlag()
            shard.loop.execute {
                shard.stop { flag.set() }
            }
            return flag
        }
        for (shard, flag) in zip(shards, flags) {
            flag.wait()
            shard.loop.stop()
            shard.loop.join()
        }
    }

    /// Creates a channel as channel management does. Returns its identifier; nil at the app's limit. Any thread.
    public func createChannel(app: String, storage: ChannelStorage) -> String? {
        channels.create(app: app, storage: storage)
    }

    /// Returns a channel's state; nil if the channel does not exist. Any thread.
    public func channel(app: String, _ identifier: String) -> SimulatorChannel? {
        channels.snapshot(app: app, identifier)
    }

    /// Counts until now, also after the end. Any thread.
    public var summary: SimulatorSummary {
        var summary = SimulatorSummary()
        for shard in shards { shard.counters.add(to: &summary) }
        return summary
    }
}
