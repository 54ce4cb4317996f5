/// A worker's whole configuration: validated, complete, with defaults filled in.
///
/// `Configuration.load(path:environment:)` returns such a value and reports every mistake at once. A test may build the
/// value in code. The reference of all settings is `sluice config reference`.
public struct Configuration: Sendable, Equatable {
    public var kafka: Kafka
    public var apns: APNS
    /// Every credential that an app refers to, also those written inside of an app.
    public var credentials: [Credential]
    public var apps: [App]
    public var jobs: Jobs
    public var outcomes: Outcomes
    public var delivery: Delivery
    /// Nil without a store: items that wait for long then wait in memory, and hold their offsets.
    public var store: Store?
    public var log: Log
    public var metrics: Metrics
    public var admin: Admin
    public var switches: Switches
    public var process: Process

    public init(
        kafka: Kafka, apns: APNS = APNS(), credentials: [Credential], apps: [App],
        jobs: Jobs = Jobs(), outcomes: Outcomes = Outcomes(), delivery: Delivery = Delivery(),
        store: Store? = nil, log: Log = Log(),
        metrics: Metrics = Metrics(),
        admin: Admin = Admin(), switches: Switches = Switches(), process: Process = Process()
    ) {
        self.kafka = kafka
        self.apns = apns
        self.credentials = credentials
        self.apps = apps
        self.jobs = jobs
        self.outcomes = outcomes
        self.delivery = delivery
        self.store = store
        self.log = log
        self.metrics = metrics
        self.admin = admin
        self.switches = switches
        self.process = process
    }

    /// Returns the credentials an app pushes with, one for each environment; the first serves jobs that name no
    /// environment. Loading guarantees that each exists.
    public func credentials(of app: App) -> [Credential] {
        app.credentials.compactMap { name in credentials.first { $0.name == name } }
    }

    /// Returns the server of a credential: its own, or that of section `apns`.
    public func endpoint(of credential: Credential) -> Endpoint { credential.endpoint ?? apns.endpoint }
}

extension Configuration {
    /// Section `kafka`.
    public struct Kafka: Sendable, Equatable {
        /// Comma-separated `host:port` pairs.
        public var bootstrapServers: String
        /// Name of the consumer group, which all workers of one installation share.
        public var groupID: String
        /// This worker's own name in the group (`group.instance.id`). Nil lets Kafka assign a new name at each start.
        /// Kafka then waits for a session when the worker ends without leaving the group.
        public var instanceID: String?
        public var topics: Topics
        /// Present when the worker may create topics that don't exist.
        public var createTopics: CreateTopics?
        /// librdkafka properties for consumer and producer, in the order of the file.
        public var properties: [Property]
        /// Properties of the consumer only; they override `properties`.
        public var consumerProperties: [Property]
        /// Properties of the producer only; they override `properties`.
        public var producerProperties: [Property]

        public init(
            bootstrapServers: String, groupID: String = "sluice", instanceID: String? = nil,
            topics: Topics = Topics(),
            createTopics: CreateTopics? = nil, properties: [Property] = [],
            consumerProperties: [Property] = [], producerProperties: [Property] = []
        ) {
            self.bootstrapServers = bootstrapServers
            self.groupID = groupID
            self.instanceID = instanceID
            self.topics = topics
            self.createTopics = createTopics
            self.properties = properties
            self.consumerProperties = consumerProperties
            self.producerProperties = producerProperties
        }

        /// Names of the topics.
        public struct Topics: Sendable, Equatable {
            /// Topic that jobs are read from.
            public var jobs: String
            /// Topic that outcomes are written to.
            public var outcomes: String
            /// Topic for records that aren't valid jobs.
            public var deadLetters: String
            /// Compacted topic with the content of the workers' stores. Only with ``Store/changelog``.
            public var changelog: String
            /// Compacted topic with the operators' switches. Only with ``Store/changelog``.
            public var switches: String

            public init(
                jobs: String = "sluice.jobs", outcomes: String = "sluice.outcomes",
                deadLetters: String = "sluice.dead-letters", changelog: String = "sluice.changelog",
                switches: String = "sluice.switches"
            ) {
                self.jobs = jobs
                self.outcomes = outcomes
                self.deadLetters = deadLetters
                self.changelog = changelog
                self.switches = switches
            }
        }

        /// Settings of missing topics that are created.
        public struct CreateTopics: Sendable, Equatable {
            /// Partitions of a created topic, 1 to 10,000.
            public var partitions: Int
            /// Replicas of a created topic, 1 to 15.
            public var replicationFactor: Int

            public init(partitions: Int = 12, replicationFactor: Int = 3) {
                self.partitions = partitions
                self.replicationFactor = replicationFactor
            }
        }

        /// A librdkafka property, passed through as written.
        public struct Property: Sendable, Equatable {
            public var name: String
            public var value: String
            /// File that the value was read from; nil when the value is written in the configuration.
            public var file: String?

            public init(name: String, value: String, file: String? = nil) {
                self.name = name
                self.value = value
                self.file = file
            }
        }
    }

    /// Section `apns`.
    public struct APNS: Sendable, Equatable {
        /// Environment of APNs. A device token belongs to one environment.
        public enum Environment: String, CaseIterable, Sendable {
            case production
            case development
            /// Neither of Apple's: the simulator, a test server.
            case custom

            /// Apple's host of the environment; nil for `custom`.
            public var host: String? {
                switch self {
                case .production: "api.push.apple.com"
                case .development: "api.sandbox.push.apple.com"
                case .custom: nil
                }
            }
        }

        /// Lowest version of TLS, by its number.
        public enum TLSVersion: String, CaseIterable, Sendable {
            case tls12 = "1.2"
            case tls13 = "1.3"
        }

        public var environment: Environment
        /// Name or address of the server; Apple's host by default, unless the environment is `custom`.
        public var host: String
        /// Port of the server, 1 to 65,535. APNs listens on 443 and 2197.
        public var port: Int
        /// Name of the server in requests and in its certificate; nil means host and port.
        public var authority: String?
        /// PEM file of the certificate authorities to trust; nil means the system's.
        public var caFile: String?
        /// Connections that each pool keeps open. A pool belongs to one credential and shard. A credential may override
        /// the number.
        public var connections: Int
        /// Connections that a pool grows to under load, at least ``connections``. A credential may override the number.
        public var maxConnections: Int
        /// Time between two connections by which a pool grows.
        public var growthInterval: Duration
        /// Time without need after which connections beyond ``connections`` close.
        public var idleTimeout: Duration
        /// Age at which a connection is replaced; zero means never.
        public var maxConnectionAge: Duration
        /// Longest time for TCP, TLS and the server's first frame together.
        public var connectTimeout: Duration
        /// Longest time from sending a push to its answer.
        public var requestTimeout: Duration
        /// Time after which a connection is replaced that accepts no push while pushes wait.
        public var progressTimeout: Duration
        /// Time after which an idle connection is checked with a PING.
        public var pingInterval: Duration
        /// Lowest version of TLS that is accepted.
        public var tlsMinimum: TLSVersion
        /// HTTP proxy that connections pass through (`CONNECT`); nil means none.
        public var proxy: Proxy?

        public init(
            environment: Environment = .production, host: String? = nil, port: Int = 443,
            authority: String? = nil, caFile: String? = nil, connections: Int = 2, maxConnections: Int = 16,
            growthInterval: Duration = .seconds(2), idleTimeout: Duration = .seconds(300),
            maxConnectionAge: Duration = .zero, connectTimeout: Duration = .seconds(10),
            requestTimeout: Duration = .seconds(30), progressTimeout: Duration = .seconds(15),
            pingInterval: Duration = .seconds(60),
            tlsMinimum: TLSVersion = .tls12, proxy: Proxy? = nil
        ) {
            self.environment = environment
            self.host = host ?? environment.host ?? ""
            self.port = port
            self.authority = authority
            self.caFile = caFile
            self.connections = connections
            self.maxConnections = maxConnections
            self.growthInterval = growthInterval
            self.idleTimeout = idleTimeout
            self.maxConnectionAge = maxConnectionAge
            self.connectTimeout = connectTimeout
            self.requestTimeout = requestTimeout
            self.progressTimeout = progressTimeout
            self.pingInterval = pingInterval
            self.tlsMinimum = tlsMinimum
            self.proxy = proxy
        }

        /// Section `apns.proxy`.
        public struct Proxy: Sendable, Equatable {
            /// Name or address of the proxy.
            public var host: String
            /// Port of the proxy, 1 to 65,535.
            public var port: Int
            /// User for basic authentication, with ``passwordFile``.
            public var user: String?
            /// File whose first line is the password.
            public var passwordFile: String?

            public init(host: String, port: Int, user: String? = nil, passwordFile: String? = nil) {
                self.host = host
                self.port = port
                self.user = user
                self.passwordFile = passwordFile
            }
        }
    }

    /// An entry of section `apps`.
    public struct App: Sendable, Equatable {
        public var name: String
        /// Bundle identifiers. The topics derived from them (`….voip` and so on) belong to the app as well.
        public var topics: [String]
        /// Names of credentials, at least one, each of another environment. The first serves jobs that name no
        /// environment.
        public var credentials: [String]
        /// Share of the pushes against other apps of the same credential and priority that wait, 1 to 1000.
        public var weight: Int
        /// Pushes per second of one worker; nil means no limit.
        public var ratePerSecond: Double?
        /// Pushes that may be sent at once after a pause, with a rate; nil means a tenth of a second's worth.
        public var burst: Int?
        /// Pushes in flight to APNs of one worker; nil means no limit.
        public var maxInFlight: Int?
        /// Time that a push with a collapse identifier waits for a successor; zero means not at all.
        public var coalesceWindow: Duration
        /// Collapse identifier for pushes without one.
        public var missingCollapseIdentifier: MissingCollapseIdentifier

        /// Push types whose pushes without a collapse identifier supersede each other, because each has the whole state.
        public var supersede: [StateType]

        /// Push type whose pushes carry a whole state.
        public enum StateType: String, CaseIterable, Sendable {
            case liveActivity = "liveactivity"
            case widgets
            case controls
        }

        /// Collapse identifier of a push that has none of its own.
        public enum MissingCollapseIdentifier: String, CaseIterable, Sendable {
            /// No identifier: such a push replaces no other.
            case none
            /// The push's `apns-id`. A push repeated after a lost answer then replaces itself on the device.
            case apnsID = "apns-id"
        }

        public init(
            name: String, topics: [String], credentials: [String], weight: Int = 1,
            ratePerSecond: Double? = nil,
            burst: Int? = nil, maxInFlight: Int? = nil, coalesceWindow: Duration = .zero,
            missingCollapseIdentifier: MissingCollapseIdentifier = .none, supersede: [StateType] = []
        ) {
            self.name = name
            self.topics = topics
            self.credentials = credentials
            self.weight = weight
            self.ratePerSecond = ratePerSecond
            self.burst = burst
            self.maxInFlight = maxInFlight
            self.coalesceWindow = coalesceWindow
            self.missingCollapseIdentifier = missingCollapseIdentifier
            self.supersede = supersede
        }
    }

    /// Section `delivery`.
    public struct Delivery: Sendable, Equatable {
        /// Jobs taken from Kafka and not terminal yet, in the whole worker. At the limit the worker pauses its
        /// partitions.
        public var maxInFlight: Int
        /// Bytes of the records of such jobs. At the limit the worker pauses its partitions.
        public var maxInFlightBytes: Int
        /// Share of either limit for one partition's jobs when they are held for long while other partitions have work.
        /// Beyond the share that partition alone is paused; 1 means never.
        public var partitionShare: Double
        /// Whether pushes of priority 5 and 1 move to the store when the worker is nearly full, so that records behind them
        /// are read. Only with a store.
        public var readAhead: Store.Switch
        /// Event-loop threads that deliver.
        public var shards: Int
        /// Waiting times between attempts.
        public var retry: Retry
        /// Unfinished pushes of one device; a further push is undeliverable.
        public var maxPendingPerDevice: Int
        /// Pushes of one device in flight to APNs; further pushes wait.
        public var maxInFlightPerDevice: Int
        /// Devices whose presence a worker remembers.
        public var knownDevices: Int
        /// Held pushes that a worker sends per second to devices that are back.
        public var returnRate: Int
        /// Longest expiration; a longer one is shortened to this. APNs itself keeps nothing for longer than 30 days.
        public var maxExpiration: Duration
        /// Time for which a push without an expiration is tried.
        public var defaultTTL: Duration
        /// Time that pushes in flight at SIGTERM have to finish.
        public var drainDeadline: Duration
        /// Time between two commits of offsets.
        public var commitInterval: Duration
        /// Pushes that are begun and whose outcomes aren't committed.
        public var maxUncommitted: Int
        /// Time without a commit, after one is due, from which no push is begun.
        public var commitPatience: Duration

        public init(
            maxInFlight: Int = 20_000, maxInFlightBytes: Int = 64 << 20, partitionShare: Double = 0.5,
            readAhead: Store.Switch = .off, shards: Int = 1, retry: Retry = Retry(),
            maxPendingPerDevice: Int = 128,
            maxInFlightPerDevice: Int = 16,
            knownDevices: Int = 65_536, returnRate: Int = 2000,
            maxExpiration: Duration = .seconds(30 * 86_400), defaultTTL: Duration = .seconds(86_400),
            drainDeadline: Duration = .seconds(25), commitInterval: Duration = .seconds(1),
            maxUncommitted: Int = 50_000, commitPatience: Duration = .seconds(5)
        ) {
            self.maxInFlight = maxInFlight
            self.maxInFlightBytes = maxInFlightBytes
            self.partitionShare = partitionShare
            self.readAhead = readAhead
            self.shards = shards
            self.retry = retry
            self.maxPendingPerDevice = maxPendingPerDevice
            self.maxInFlightPerDevice = maxInFlightPerDevice
            self.knownDevices = knownDevices
            self.returnRate = returnRate
            self.maxExpiration = maxExpiration
            self.defaultTTL = defaultTTL
            self.drainDeadline = drainDeadline
            self.commitInterval = commitInterval
            self.maxUncommitted = maxUncommitted
            self.commitPatience = commitPatience
        }

        /// Waiting times between attempts: `initial` first, then each `multiplier` times the one before, up to
        /// `maximum`. Each has full jitter.
        public struct Retry: Sendable, Equatable {
            /// Longest wait before the second attempt.
            public var initial: Duration
            /// Longest wait between two attempts.
            public var maximum: Duration
            /// Factor from each wait to the next, 1 to 100.
            public var multiplier: Double
            /// Attempts in all, the first included; nil for as many as the expiration allows.
            public var maxAttempts: Int?
            /// Connections that may end with a push alone on them before the push is undeliverable, 1 to 5.
            public var isolatedAttempts: Int
            /// Longest `Retry-After`; a longer one is shortened to this.
            public var retryAfterLimit: Duration

            public init(
                initial: Duration = .seconds(2), maximum: Duration = .seconds(900), multiplier: Double = 2,
                maxAttempts: Int? = nil, isolatedAttempts: Int = 3,
                retryAfterLimit: Duration = .seconds(60)
            ) {
                self.initial = initial
                self.maximum = maximum
                self.multiplier = multiplier
                self.maxAttempts = maxAttempts
                self.isolatedAttempts = isolatedAttempts
                self.retryAfterLimit = retryAfterLimit
            }
        }
    }

    /// Section `log`.
    public struct Log: Sendable, Equatable {
        public enum Level: String, CaseIterable, Sendable {
            case trace, debug, info, notice, warning, error, critical
        }

        public enum Format: String, CaseIterable, Sendable {
            case text, json
        }

        public var level: Level
        public var format: Format

        public init(level: Level = .info, format: Format = .text) {
            self.level = level
            self.format = format
        }
    }

    /// Section `metrics`.
    public struct Metrics: Sendable, Equatable {
        /// Time between two log lines of the worker's counters; zero means never.
        public var statsInterval: Duration

        public init(statsInterval: Duration = .seconds(10)) {
            self.statsInterval = statsInterval
        }
    }
}
