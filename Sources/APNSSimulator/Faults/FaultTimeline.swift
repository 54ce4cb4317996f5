import SluiceModel

/// Faults of a simulator by time: a script of entries, each with its beginning and length.
public struct FaultTimeline: Sendable, Equatable {
    /// A fault and its time.
    public struct Entry: Sendable, Equatable {
        /// Beginning, from the start of the timeline.
        public var at: Duration
        /// Length; nil until the timeline ends. A fault that happens at a moment alone needs no length.
        public var lasts: Duration?
        public var kind: Kind

        public init(at: Duration = .zero, lasts: Duration? = nil, _ kind: Kind) {
            self.at = at
            self.lasts = lasts
            self.kind = kind
        }
    }

    /// A fault. Shares of connections choose by a number that each connection draws when it opens.
    public enum Kind: Sendable, Equatable {
        /// Answers shares of good requests with reasons.
        case answers([SimulatorOptions.Fault])
        /// Replaces the simulator's latency and jitter.
        case latency(LatencyDistribution)
        /// Leaves a share of the requests without an answer.
        case unanswered(share: Double)
        case goAway(GoAway)
        /// Closes a share of the open connections without GOAWAY, once or at intervals.
        case disconnect(share: Double, every: Duration?)
        case streamLimit(StreamLimit)
        /// Accepts connections, then neither reads nor writes on a share of them, and doesn't close them.
        case blackHole(share: Double)
        /// Reads slowly on a share of the connections, with at most so many bytes in a second.
        case slowReads(bytesPerSecond: Int, share: Double)
        /// Sends no WINDOW_UPDATE on a share of the connections.
        case noWindowUpdates(share: Double)
        /// Answers `TooManyRequests` above a number of requests of a device, or of an event loop, in a second. Nil for
        /// no such limit.
        case throttle(perDevice: Int?, perSecond: Int?)
        case certificate(ExpiredCertificate)
        /// Mixes the environments up for a share of device tokens or connections.
        case environment(MixedUp, share: Double)
    }

    /// A GOAWAY.
    public struct GoAway: Sendable, Equatable {
        /// End of the connection.
        public enum End: String, Sendable, CaseIterable {
            /// The open requests are answered before the connection closes.
            case drain
            /// The connection closes at once.
            case close
            /// Two GOAWAYs are sent in a row, then as ``drain``.
            case twice
        }

        /// Connections that receive the GOAWAY.
        public enum Target: String, Sendable, CaseIterable {
            /// The connections that are open at the moment.
            case open
            /// Each connection that opens during the fault, before its first request.
            case new
            case all
        }

        /// Reason in the debug data, as `{"reason":"…"}`; any name is possible. Empty sends ``text``.
        public var reason = "Shutdown"
        /// Debug data in place of the reason.
        public var text = ""
        /// Error code of RFC 9113 §7.
        public var code: UInt32 = 0
        public var end = End.drain
        public var connections = Target.open
        /// Next requests, before the GOAWAY, that the GOAWAY reports as not processed. No device gets them.
        public var unprocessed = 0
        /// Share of the connections.
        public var share = 1.0
        /// Interval of repetition; nil for once.
        public var every: Duration?

        public init() {}

        /// Debug data of the frame.
        var debugData: String { reason.isEmpty ? text : "{\"reason\":\"\(reason)\"}" }
    }

    /// Stream limit of all connections. Limits by provider token and error budget remain in force below it.
    public struct StreamLimit: Sendable, Equatable {
        /// Streams in the first half of each period; 0 refuses all.
        public var low: UInt32
        /// Streams in the second half of each period; nil for the usual limit.
        public var high: UInt32?
        /// Length of a period; nil keeps the limit low.
        public var period: Duration?

        public init(low: UInt32, high: UInt32? = nil, period: Duration? = nil) {
            self.low = low
            self.high = high
            self.period = period
        }
    }

    /// Certificate that counts as expired.
    public enum ExpiredCertificate: String, Sendable, CaseIterable {
        /// Certificate of the server: handshakes fail at the clients.
        case server
        /// Certificates of clients: GOAWAY with `BadCertificate` ends their connections.
        case client
    }

    /// Part of a request whose environment is the other one.
    public enum MixedUp: String, Sendable, CaseIterable {
        /// A share of the device tokens: `BadDeviceToken`. The same tokens are concerned each time.
        case deviceTokens = "device-tokens"
        /// Provider tokens on a share of the connections: `BadEnvironmentKeyIdInToken`.
        case key
        /// Certificates on a share of the connections: GOAWAY with `BadCertificateEnvironment`.
        case certificate
    }

    /// Seed of the random choices.
    public var seed: UInt64
    /// Time after which the timeline begins again; nil plays it once.
    public var repeats: Duration?
    /// Entries in any order. If two of a kind are in force at once, the later one in the list counts; answers add up.
    public var entries: [Entry]

    /// Most entries of a timeline.
    public static let mostEntries = 10_000
    /// Latest beginning, and greatest length.
    public static let longest: Duration = .seconds(30 * 86_400)
    /// Shortest interval between two events of an entry.
    public static let shortestInterval: Duration = .milliseconds(10)

    public init(seed: UInt64 = 1, repeats: Duration? = nil, entries: [Entry] = []) {
        self.seed = seed
        self.repeats = repeats
        self.entries = entries
    }

    /// Whether an entry needs the expired certificate of the server.
    var needsExpiredCertificate: Bool { entries.contains { $0.kind == .certificate(.server) } }
}

// MARK: - Rules

extension FaultTimeline.Kind {
    /// Key of the fault in a document.
    var key: String {
        switch self {
        case .answers: "answers"
        case .latency: "latency"
        case .unanswered: "unanswered"
        case .goAway: "goaway"
        case .disconnect: "disconnect"
        case .streamLimit: "stream-limit"
        case .blackHole: "black-hole"
        case .slowReads: "slow-reads"
        case .noWindowUpdates: "no-window-updates"
        case .throttle: "throttle"
        case .certificate: "certificate"
        case .environment: "environment"
        }
    }

    /// Keys of all faults.
    static let keys = [
        "answers", "latency", "unanswered", "goaway", "disconnect", "stream-limit", "black-hole",
        "slow-reads",
        "no-window-updates", "throttle", "certificate", "environment",
    ]

    /// Interval of repetition; nil for a fault that doesn't repeat.
    var every: Duration? {
        switch self {
        case .goAway(let goAway): goAway.every
        case .disconnect(_, let every): every
        default: nil
        }
    }

    /// First fault of the numbers, with the key that has it; nil when they are good.
    var fault: (key: String, text: String)? {
        func share(_ value: Double, _ name: String) -> (String, String)? {
            (0...1).contains(value) ? nil : (name, "must be a share from 0 to 1")
        }
        switch self {
        case .answers(let faults):
            if faults.contains(where: { !(0...1).contains($0.share) }) {
                return ("answers", "each share must be from 0 to 1")
            }
            if let fault = faults.first(where: { $0.reason.status < 400 }) {
                return ("answers", "`\(fault.reason.name)` is no reason for the answer to a push")
            }
            let sum = faults.reduce(0) { $0 + $1.share }
            return sum <= 1 ? nil : ("answers", "the shares add up to \(sum), but at most 1 is possible")
        case .latency(let distribution):
            return distribution.fault.map { ("latency.\($0.key)", $0.text) }
        case .unanswered(let value): return share(value, "unanswered")
        case .blackHole(let value): return share(value, "black-hole.share")
        case .noWindowUpdates(let value): return share(value, "no-window-updates.share")
        case .environment(_, let value): return share(value, "environment.share")
        case .certificate: return nil
        case .goAway(let goAway):
            if let fault = share(goAway.share, "goaway.share") { return fault }
            guard goAway.reason.utf8.count + goAway.text.utf8.count <= 1_000 else {
                return ("goaway", "reason and text may have 1000 bytes together")
            }
            guard goAway.reason.utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x22 && $0 != 0x5C }) else {
                return ("goaway.reason", "must have no quotes, backslashes or control characters")
            }
            guard goAway.unprocessed >= 0 else { return ("goaway.unprocessed", "must be at least 0") }
            return interval(goAway.every, "goaway.every")
        case .disconnect(let value, let every):
            return share(value, "disconnect.share") ?? interval(every, "disconnect.every")
        case .streamLimit(let limit):
            if let high = limit.high, high < limit.low {
                return ("stream-limit.high", "must be at least `low`")
            }
            if limit.high != nil, limit.period == nil {
                return ("stream-limit.high", "has no effect without `period`")
            }
            return interval(limit.period, "stream-limit.period")
        case .slowReads(let bytes, let value):
            guard bytes >= 1 else { return ("slow-reads.bytes-per-second", "must be at least 1") }
            return share(value, "slow-reads.share")
        case .throttle(let perDevice, let perSecond):
            if perDevice == nil, perSecond == nil {
                return ("throttle", "needs `per-device` or `per-second`")
            }
            guard perDevice ?? 0 >= 0, perSecond ?? 0 >= 0 else { return ("throttle", "must be at least 0") }
            return nil
        }
    }

    private func interval(_ every: Duration?, _ name: String) -> (String, String)? {
        guard let every else { return nil }
        let isGood = every >= FaultTimeline.shortestInterval && every <= FaultTimeline.longest
        return isGood ? nil : (name, "must be from 10ms to 30d")
    }
}

extension FaultTimeline.Entry {
    /// First fault of the entry, with the key that has it; nil when it is good.
    /// - Parameter repeats: time after which the timeline begins again; nil when it is played once.
    func fault(repeats: Duration?) -> (key: String, text: String)? {
        guard at >= .zero, at <= FaultTimeline.longest else { return ("at", "must be from 0 to 30d") }
        if let lasts, lasts <= .zero || lasts > FaultTimeline.longest {
            return ("for", "must be above 0 and at most 30d")
        }
        if let repeats, at >= repeats {
            return ("at", "lies behind the end of the timeline, which `repeat` sets")
        }
        if case .disconnect(_, nil) = kind, lasts != nil {
            return ("for", "has no effect without `disconnect.every`")
        }
        return kind.fault
    }
}

extension FaultTimeline {
    /// Checks all entries.
    /// - Throws: the first mistake, with its entry.
    public func check() throws(SimulatorError) {
        guard entries.count <= Self.mostEntries else {
            throw SimulatorError("faults: \(entries.count) entries; at most \(Self.mostEntries) are possible")
        }
        if let repeats, repeats < .milliseconds(100) || repeats > Self.longest {
            throw SimulatorError("repeat: must be from 100ms to 30d")
        }
        for (index, entry) in entries.enumerated() {
            if let fault = entry.fault(repeats: repeats) {
                throw SimulatorError("faults[\(index)].\(fault.key): \(fault.text)")
            }
        }
    }
}
