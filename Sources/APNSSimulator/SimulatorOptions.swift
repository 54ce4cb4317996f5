import HTTP2
import SluiceModel

/// Behaviour of a simulated APNs.
public struct SimulatorOptions: Sendable {
    /// Extent of the checks.
    public enum Mode: Sendable, Equatable {
        /// All checks of APNs.
        case full
        /// Answers 200 as cheaply as possible and checks nothing: for measuring clients.
        case null
    }

    /// Environment of APNs that is simulated.
    public enum Environment: Sendable, Equatable {
        case sandbox, production
    }

    /// Provider tokens that are accepted.
    public enum ProviderTokens: Sendable {
        /// Every well-formed ES256 token with valid dates; its signature is not checked.
        case anyKey
        /// Tokens signed by these keys.
        case keys([SimulatorKey])
    }

    /// Tokens among which updates of a provider token are counted. APNs' pages do not name the scope.
    public enum TokenUpdateCounting: String, Sendable, CaseIterable {
        /// Tokens that are new on a connection.
        case connection
        /// Tokens of a key, on all connections together.
        case key
        /// Issue times (`iat`) of a key's tokens, on all connections together. Tokens with the same time are the same.
        case issueTime = "issue-time"
    }

    /// Answers a device token that begins with `prefix` with `reason`.
    public struct DeviceRule: Sendable, Equatable {
        /// Lower-case hexadecimal text.
        public var prefix: String
        /// Reason of the answer. Its status must be 400 or more.
        public var reason: Reason

        public init(prefix: String, reason: Reason) {
            self.prefix = prefix
            self.reason = reason
        }
    }

    /// Answers a share of otherwise good pushes with `reason`.
    public struct Fault: Sendable, Equatable {
        /// Reason of the answer. Its status must be 400 or more.
        public var reason: Reason
        /// Share of the pushes, 0 to 1.
        public var share: Double

        public init(reason: Reason, share: Double) {
            self.reason = reason
            self.share = share
        }
    }

    /// A file with one line of JSON for each push, for comparison with the senders' own counts.
    public struct PushLog: Sendable {
        /// Path of the file.
        public var path: String
        /// Whether device tokens are written unchanged. Otherwise their hash is written, see ``PushLogEntry``.
        public var showsTokens = false

        public init(path: String, showsTokens: Bool = false) {
            self.path = path
            self.showsTokens = showsTokens
        }
    }

    public var mode = Mode.full
    public var environment = Environment.production
    /// The IP address to listen on.
    public var address = "127.0.0.1"
    /// Port; 0 lets the system choose.
    public var port: UInt16 = 0
    /// Port of channel management; 0 lets the system choose, nil serves none. The first event loop serves it.
    public var managementPort: UInt16?
    /// Event loops; connections are spread over them by the system.
    public var threads = 1

    /// Directory of `ca.pem`, `ca-key.pem`, `server.pem` and `server-key.pem`. An existing authority is used again. Nil
    /// keeps everything in memory.
    public var certificateDirectory: String?
    /// Names in the server's certificate.
    public var serverNames = [
        "localhost", "127.0.0.1", "::1", "api.push.apple.com", "api.sandbox.push.apple.com",
        "api.development.push.apple.com", "api-manage-broadcast.push.apple.com",
        "api-manage-broadcast.sandbox.push.apple.com",
    ]

    /// Provider tokens that requests may carry.
    public var providerTokens = ProviderTokens.anyKey
    /// Whether provider tokens with a DER signature or a text as `iat` are accepted, which APNs presumably does. Otherwise
    /// they are answered with `InvalidProviderToken`, because they breach JWS (RFC 7518 §3.4) and Apple's pages.
    public var acceptsLenientTokens = false
    /// Whether clients may present push certificates of the simulator's authority instead of provider tokens.
    public var acceptsClientCertificates = true

    /// Streams of a connection until a provider token was accepted; at least 1. APNs allows 1.
    public var streamsBeforeToken: UInt32 = 1
    /// Streams of a connection once a provider token was accepted; at least 1. APNs allows about 1,000.
    public var maximumStreams: UInt32 = 1_000
    /// Treatment of streams above the limit. APNs was seen to do both.
    public var excessStreams = ExcessStreams.refuse
    /// Errors that a connection may cause before its stream limit falls and GOAWAY ends the connection, at least 1; nil
    /// for any number. `BadDeviceToken` counts four times, 410 and 429 don't count. APNs' numbers are unknown.
    public var errorBudget: Int? = 1_000
    /// Receive window of a connection in bytes. APNs is not known to open it beyond the initial 65,535.
    public var connectionWindow: Int32 = 65_535
    /// Time without a byte from the client after which GOAWAY (`IdleTimeout`) ends the connection.
    public var idleTimeout: Duration = .seconds(3_600)
    /// Connections that each thread accepts at once; further connections are closed when they arrive.
    public var maximumConnections = 10_000

    /// Lifetime of a provider token after `iat`; one hour with APNs.
    public var maximumTokenAge: Duration = .seconds(3_600)
    /// Longest time that `iat` may lie in the future.
    public var futureTolerance: Duration = .seconds(3_600)
    /// Shortest time between two new provider tokens; 20 minutes with APNs.
    public var tokenUpdateInterval: Duration = .seconds(1_200)
    /// Scope of that time.
    public var tokenUpdateCounting = TokenUpdateCounting.connection

    /// Delay of every answer after its request.
    public var latency: Duration = .zero
    /// Largest additional delay of an answer, evenly distributed.
    public var jitter: Duration = .zero
    /// Faults that good pushes meet at random.
    public var faults: [Fault] = []
    /// Faults by time; ``Simulator/replaceFaults(with:)`` replaces them. They start with the simulator.
    public var faultTimeline = FaultTimeline()
    /// Seconds in the `retry-after` of 429 and 503; nil to omit the field.
    public var retryAfterSeconds: Int?
    /// Seed of the random choices (faults, jitter) and of generated identifiers. Nil makes the same choices at each
    /// start, with other identifiers.
    public var seed: UInt64?

    /// Share of the requests, 0 to 1, that are never answered.
    public var unansweredShare = 0.0
    /// Requests after which a connection ends (GOAWAY); nil for no limit.
    public var requestsPerConnection: Int?

    /// Rules by device token; the first rule that matches decides.
    public var deviceRules: [DeviceRule] = []
    /// Existing bundle identifiers; nil for any. Other topics are answered with `TopicDisallowed`.
    public var topics: [String]?
    /// Pushes that one device token may receive in a second before `TooManyRequests`; nil for any number.
    public var requestsPerDeviceSecond: Int?

    /// Bundle identifiers of apps whose broadcast capability is off; answered with `FeatureNotEnabled`.
    public var appsWithoutBroadcast: [String] = []
    /// Channels that an app may have; 10,000 with APNs.
    public var channelsPerApp = 10_000
    /// Broadcasts that a channel with storage may publish in a second before `TooManyRequests`; nil for any number.
    public var broadcastsPerSecond: Int?
    /// Broadcasts that a channel without storage may publish in a second; nil for any number.
    public var unstoredBroadcastsPerSecond: Int?
    /// Requests of channel management for an app in a second before `TooManyRequests`; nil for any number.
    public var managementRequestsPerSecond: Int?

    /// Log of all pushes; nil writes none.
    public var pushLog: PushLog?
    /// Devices behind APNs, which may be those of several simulators; nil for none.
    public var devices: DeviceRegistry?

    public init() {}

    /// Whether provider tokens of any key are accepted.
    var acceptsAnyKey: Bool {
        if case .anyKey = providerTokens { return true }
        return false
    }

    /// Seed of generated identifiers; without ``seed`` another at each call.
    var identifierSeed: UInt64 { seed ?? UInt64.random(in: .min ... .max) }

    var channelLimits: ChannelTable.Limits {
        ChannelTable.Limits(
            channels: channelsPerApp, perSecond: broadcastsPerSecond,
            perSecondUnstored: unstoredBroadcastsPerSecond, requestsPerSecond: managementRequestsPerSecond)
    }

    /// Options of null mode: nothing is checked, and the window of a connection is wide open.
    public static var null: SimulatorOptions {
        var options = SimulatorOptions()
        options.mode = .null
        options.connectionWindow = 1 << 20
        return options
    }
}

/// A provider key as APNs knows it.
public struct SimulatorKey: Sendable {
    /// Key identifier of ten characters.
    public var keyID: String
    /// Team identifier of ten characters.
    public var teamID: String
    /// A .p8 file or a public key; only the public part is used.
    public var key: PEMSource
    /// Environment of the key; nil for a key of both environments.
    public var environment: SimulatorOptions.Environment?
    /// Topics of a topic-specific key; empty for a key of the whole team.
    public var topics: [String]
    /// Identifier of the only other topic-specific key allowed on the same connection; nil for none.
    public var relatedKeyID: String?

    public init(
        keyID: String, teamID: String, key: PEMSource, environment: SimulatorOptions.Environment? = nil,
        topics: [String] = [], relatedKeyID: String? = nil
    ) {
        self.keyID = keyID
        self.teamID = teamID
        self.key = key
        self.environment = environment
        self.topics = topics
        self.relatedKeyID = relatedKeyID
    }
}

/// Error of an option that can't be used.
public struct SimulatorError: Error, Sendable, Equatable, CustomStringConvertible {
    public let description: String

    init(_ description: String) { self.description = description }
}

extension SimulatorOptions {
    /// Reads a list of faults, for example `InternalServerError=0.01,TooManyRequests=0.005`.
    public static func parseFaults(_ text: String) throws(SimulatorError) -> [Fault] {
        var faults: [Fault] = []
        for item in text.split(separator: ",") {
            let parts = item.split(separator: "=", maxSplits: 1)
            guard parts.count == 2, let share = Double(parts[1]), (0...1).contains(share) else {
                throw SimulatorError("fault “\(item)”: expected REASON=SHARE, with a share from 0 to 1")
            }
            faults.append(Fault(reason: try reason(String(parts[0])), share: share))
        }
        try checkShares(faults)
        return faults
    }

    /// Reads a list of device rules, for example `dead=Unregistered,bad0=BadDeviceToken`.
    public static func parseDeviceRules(_ text: String) throws(SimulatorError) -> [DeviceRule] {
        var rules: [DeviceRule] = []
        for item in text.split(separator: ",") {
            let parts = item.split(separator: "=", maxSplits: 1)
            guard parts.count == 2, parts[0].utf8.allSatisfy({ hexDigit($0) }) else {
                throw SimulatorError("device rule “\(item)”: expected HEXPREFIX=REASON")
            }
            rules.append(DeviceRule(prefix: parts[0].lowercased(), reason: try reason(String(parts[1]))))
        }
        return rules
    }

    static func checkShares(_ faults: [Fault]) throws(SimulatorError) {
        let sum = faults.reduce(0) { $0 + $1.share }
        guard sum <= 1 else {
            throw SimulatorError("the shares of the faults add up to \(sum), but at most 1 is possible")
        }
    }

    private static func reason(_ name: String) throws(SimulatorError) -> Reason {
        var name = name
        let reason = name.withUTF8 { Reason.parse(name: UnsafeRawBufferPointer($0)) }
        guard reason != .absent, reason != .unknown else {
            throw SimulatorError("“\(name)” is not a reason of APNs, such as InternalServerError")
        }
        return reason
    }
}

func hexDigit(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "a")...UInt8(ascii: "f"),
        UInt8(ascii: "A")...UInt8(ascii: "F"):
        true
    default: false
    }
}
