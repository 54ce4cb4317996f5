import HTTP2
import SluiceModel

/// How a simulated APNs behaves.
public struct SimulatorOptions: Sendable {
    public enum Mode: Sendable, Equatable {
        /// All checks of APNs.
        case full
        /// Answers 200 as cheaply as possible and looks at nothing: for measuring clients.
        case null
    }

    public enum Environment: Sendable, Equatable {
        case sandbox, production
    }

    /// Which provider tokens are accepted.
    public enum ProviderTokens: Sendable {
        /// Every well-formed ES256 token with dates that are right; its signature is not checked.
        case anyKey
        /// Tokens signed by these keys.
        case keys([SimulatorKey])
    }

    /// A device token that begins with `prefix` is answered with `reason`.
    public struct DeviceRule: Sendable, Equatable {
        /// Lower-case hexadecimal.
        public var prefix: String
        public var reason: Reason

        public init(prefix: String, reason: Reason) {
            self.prefix = prefix
            self.reason = reason
        }
    }

    /// A share of otherwise good pushes is answered with `reason`.
    public struct Fault: Sendable, Equatable {
        public var reason: Reason
        /// 0 to 1.
        public var share: Double

        public init(reason: Reason, share: Double) {
            self.reason = reason
            self.share = share
        }
    }

    /// A file with one line of JSON for each push, for comparing with what senders believe.
    public struct PushLog: Sendable {
        public var path: String
        /// Whether device tokens are written as they are. Otherwise their hash is, see ``PushLogEntry``.
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
    /// 0 lets the system choose.
    public var port: UInt16 = 0
    /// Event loops; connections are spread over them by the system.
    public var threads = 1

    /// Where `ca.pem`, `ca-key.pem`, `server.pem` and `server-key.pem` are written. An authority that is there is
    /// taken up again. Without a directory everything stays in memory.
    public var certificateDirectory: String?
    /// Names in the server's certificate.
    public var serverNames = [
        "localhost", "127.0.0.1", "::1", "api.push.apple.com", "api.sandbox.push.apple.com",
        "api.development.push.apple.com",
    ]

    public var providerTokens = ProviderTokens.anyKey
    /// Whether clients may present push certificates of the simulator's authority instead of provider tokens.
    public var acceptsClientCertificates = true

    /// Streams until the first provider token was accepted, and after that (APNs: CON, 1 and about 1,000).
    public var streamsBeforeToken: UInt32 = 1
    public var maximumStreams: UInt32 = 1_000
    /// The receive window of a connection in bytes. APNs is not known to open it beyond the initial 65,535.
    public var connectionWindow: Int32 = 65_535
    public var idleTimeout: Duration = .seconds(3_600)
    public var maximumConnections = 10_000

    /// How long a provider token lives after `iat` (APNs: TOK, one hour).
    public var maximumTokenAge: Duration = .seconds(3_600)
    /// How far `iat` may lie in the future.
    public var futureTolerance: Duration = .seconds(3_600)
    /// A new provider token on a connection sooner than this after the one before is too soon (APNs: TOK, 20 minutes).
    public var tokenUpdateInterval: Duration = .seconds(1_200)

    /// Every answer comes this long after its request…
    public var latency: Duration = .zero
    /// …and up to so much later, evenly distributed.
    public var jitter: Duration = .zero
    public var faults: [Fault] = []
    /// What 429 and 503 say in `retry-after`, in seconds; nil to say nothing.
    public var retryAfterSeconds: Int?
    /// Of the random choices: faults, jitter and generated identifiers.
    public var seed: UInt64 = 1

    /// This share of the requests, 0 to 1, is never answered.
    public var unansweredShare = 0.0
    /// A connection ends (GOAWAY) with so many requests; nil: it doesn't.
    public var requestsPerConnection: Int?

    public var deviceRules: [DeviceRule] = []
    /// Bundle identifiers that exist; nil for any. Others are answered with `TopicDisallowed`.
    public var topics: [String]?
    /// Pushes that one device token may get in a second before `TooManyRequests`; nil for any number.
    public var requestsPerDeviceSecond: Int?

    public var pushLog: PushLog?

    public init() {}

    /// The options of null mode: nothing is looked at, and the window of a connection is wide open.
    public static var null: SimulatorOptions {
        var options = SimulatorOptions()
        options.mode = .null
        options.connectionWindow = 1 << 20
        return options
    }
}

/// A provider key as APNs knows it.
public struct SimulatorKey: Sendable {
    /// Ten characters.
    public var keyID: String
    /// Ten characters.
    public var teamID: String
    /// A .p8 file or a public key; only the public part is used.
    public var key: PEMSource
    /// nil for a key of both environments.
    public var environment: SimulatorOptions.Environment?
    /// The topics of a topic-specific key; empty for a key of the whole team.
    public var topics: [String]
    /// The one other topic-specific key that may be used on the same connection.
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

/// An option that cannot be used.
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
                throw SimulatorError("fault “\(item)”: REASON=SHARE is expected, with a share from 0 to 1")
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
                throw SimulatorError("device rule “\(item)”: HEXPREFIX=REASON is expected")
            }
            rules.append(DeviceRule(prefix: parts[0].lowercased(), reason: try reason(String(parts[1]))))
        }
        return rules
    }

    static func checkShares(_ faults: [Fault]) throws(SimulatorError) {
        let sum = faults.reduce(0) { $0 + $1.share }
        guard sum <= 1 else { throw SimulatorError("the shares of the faults sum up to \(sum), more than 1") }
    }

    private static func reason(_ name: String) throws(SimulatorError) -> Reason {
        var name = name
        let reason = name.withUTF8 { Reason.parse(name: UnsafeRawBufferPointer($0)) }
        guard reason != .absent, reason != .unknown else {
            throw SimulatorError("“\(name)” is no reason of APNs; for example InternalServerError is")
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
