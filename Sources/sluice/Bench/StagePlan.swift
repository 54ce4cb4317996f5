import APNSSimulator
import Configuration

/// Processes of a run of `sluice bench`, and the events that concern them.
///
/// Times are seconds since the beginning of the first phase.
struct StagePlan: Sendable {
    var cluster = Cluster.embedded
    var apns = Endpoint.simulator(Simulator())
    var topics = Topics()
    /// Greatest rate of pushes to another machine by default, per second.
    static let standardRateCap = 200.0

    /// Partitions of the topics of jobs, outcomes and changelog in an embedded cluster. Topics of another cluster keep
    /// their partitions.
    var partitions = 8
    /// Consumer group of the workers.
    var group = "bench"
    /// Apps of the workers, at least one if there are workers.
    var apps: [App] = []
    var workers = Workers()
    /// Events in any order.
    var actions: [Action] = []
    /// Greatest rate of jobs in any phase, per second; infinite when a load has no rate. Must not exceed ``rateLimit``.
    var highestRate = 0.0
    /// Longest length of the run in seconds, drain included; infinite when unknown. An action at a later time is refused.
    var length = Double.infinity
    /// Permission to reach other machines.
    var consent = Consent()
    /// Whether the scenario names the topics of jobs, outcomes and dead letters. A cluster on another machine requires it.
    var hasNamedTopics = true

    /// Permission of the command line to reach other machines, and the limits there.
    struct Consent: Sendable {
        /// Hosts that are confirmed: of a server of APNs, and of a Kafka broker.
        var hosts: [String] = []
        /// File with the device tokens that may be pushed to; nil: that of the server.
        var allowList: String?
        /// Greatest rate of pushes per second; nil: that of the server, or 200.
        var rateCap: Double?
    }

    // MARK: Kafka

    enum Cluster: Sendable {
        /// A cluster of librdkafka in a process of its own, on a free port of 127.0.0.1.
        case embedded
        /// A cluster that runs already.
        ///
        /// Properties are those of librdkafka; `NAME-file` reads the value of NAME from a file. The topics must exist.
        case given(bootstrapServers: String, properties: [String: String])
    }

    /// Names of the topics. The topics of a run should be its own: other outcomes count as unknown.
    struct Topics: Sendable, Equatable {
        var jobs = "sluice.jobs"
        var outcomes = "sluice.outcomes"
        var deadLetters = "sluice.dead-letters"
        /// Needed only for a store with changelog.
        var changelog = "sluice.changelog"
    }

    // MARK: APNs

    enum Endpoint: Sendable {
        /// A simulator of this run, at 127.0.0.1.
        case simulator(Simulator)
        /// A server that runs already: a simulator elsewhere, or a staging endpoint of APNs.
        case server(Server)
        /// Whatever server the workers have that run elsewhere. This run starts neither workers nor a simulator.
        case elsewhere
    }

    /// Options of the simulator.
    struct Simulator: Sendable {
        /// Port; 0: any free port. Workers that run elsewhere need a known port.
        var port: UInt16 = 0
        var threads = 1
        /// Whether the simulator answers 200 without any check. Faults and devices then have no effect.
        var isNull = false
        /// Delay of each answer, in milliseconds.
        var latency = 0.0
        /// Greatest random further delay of an answer, in milliseconds.
        var jitter = 0.0
        /// Shares of pushes that get an error, by reason: "ServiceUnavailable", 0.01.
        var answers: [String: Double] = [:]
        /// Reasons of pushes to device tokens with a prefix: "dead", "Unregistered".
        var deviceReasons: [String: String] = [:]
        /// Whether only the bundle identifiers of the plan's apps exist.
        var knowsAppsOnly = false
        /// Errors after which the simulator ends a connection; nil for no consequence of errors.
        var errorBudget: Int? = 1_000
        /// Whether the simulator models devices.
        var hasDevices = false
        /// Declarations of apps and devices in YAML (`Schemas/simulator-apps.schema.json`); nil for none. Only with
        /// ``hasDevices``.
        var declarations: String?
        /// Seed of random answers and faults.
        var seed: UInt64 = 1
        /// Timeline of faults. Its times count from the beginning of the first phase.
        var faults = FaultTimeline()
        /// Further arguments of `sluice simulator`.
        var arguments: [String] = []
    }

    /// A server of the provider API that this run does not start.
    struct Server: Sendable {
        var host: String
        var port = 443
        /// PEM file of the authorities to trust; nil for the system's.
        var caFile: String?
        var keyFile: String
        var keyID: String
        var teamID: String
        /// File with the device tokens that may be pushed to, a token in hexadecimal digits on each line. Required
        /// unless the host is this machine.
        var allowList: String?
        /// Greatest rate of pushes, per second, of all workers together.
        var rateCap = StagePlan.standardRateCap
    }

    // MARK: Apps and workers

    /// An app of the workers.
    struct App: Sendable {
        /// Credential of the app at the simulator.
        enum Credential: Sendable {
            /// Key that all such apps share, and so a pool of connections.
            case shared
            /// The same key under a name of its own, with a pool of its own.
            case own
            /// Key that the simulator refuses with `InvalidProviderToken`, with a pool of its own.
            case refused
        }

        var name: String
        var bundle: String
        var credential = Credential.shared
        /// Share of the jobs, in proportion to the other apps' shares. It divides the rate cap of a server.
        var share = 1.0
        /// Further settings of the app, such as `weight`.
        var settings: ConfigurationValue?
    }

    struct Workers: Sendable {
        /// Workers at the beginning. With 0 no worker is started, and ``adminAddresses`` are asked for figures.
        var count = 1
        var shards = 1
        var store = Store.off
        /// Whether each worker has a name in the group (`kafka.instance-id`), which a restart keeps.
        var hasInstanceIDs = false
        /// Further settings of the configuration, a map. They replace the stage's own settings of the same path; a list
        /// replaces the whole list.
        var settings: ConfigurationValue?
        /// Admin endpoints of workers that run elsewhere, as host:port.
        var adminAddresses: [String] = []
    }

    /// Retry store of the workers.
    enum Store: Sendable, Equatable {
        /// Pushes that wait stay in memory.
        case off
        case withoutChangelog
        case withChangelog
        /// With changelog and transactions, as the configuration's defaults. The embedded cluster accepts transactions
        /// and forgets their offsets.
        case withTransactions
    }

    // MARK: Events

    struct Action: Sendable, Equatable {
        var at: Double
        var kind: ActionKind

        init(at: Double, _ kind: ActionKind) {
            self.at = at
            self.kind = kind
        }
    }

    /// An event that concerns processes of the stage. Workers are numbered from 1.
    ///
    /// An event begins at its time, or once an event that concerns the same process has ended.
    enum ActionKind: Sendable, Equatable {
        /// Stops the worker in order, and starts it again with its store.
        case restartWorker(Int)
        /// Kills the worker (SIGKILL), and starts it again after a time; nil: never.
        case killWorker(Int, downSeconds: Double?)
        /// Stops the worker's threads for a time (SIGSTOP, SIGCONT).
        case pauseWorker(Int, seconds: Double)
        /// Starts another worker, whose number follows the greatest so far.
        case addWorker
        /// Stops the worker with the greatest number in order.
        case removeWorker
        /// Restarts the workers in order of their numbers, each when the worker before is ready again.
        case rollingRestart
        /// Ends the simulator, and starts it again at its port after a time. Devices forget their notifications.
        case outage(seconds: Double)
        /// Stops the embedded cluster's threads for a time.
        case pauseKafka(seconds: Double)
    }

    // MARK: Size of an embedded cluster

    /// Most partitions that a run's own cluster gets.
    static let mostPartitions = 2_000

    /// Returns partitions that hold a whole load. An embedded partition keeps about 5 MB of records. The result may exceed
    /// ``mostPartitions``.
    /// - Parameters:
    ///   - jobs: greatest number of jobs of the run.
    ///   - bytes: bytes of a job, or of its outcome if that is larger.
    static func partitions(jobs: Int, bytes: Int) -> Int {
        // Keys spread unevenly, and a record has headers and a frame.
        let records = Double(jobs) * Double(bytes + 200)
        return max(4, Int((records * 1.5 / 5_000_000).rounded(.up)))
    }
}
