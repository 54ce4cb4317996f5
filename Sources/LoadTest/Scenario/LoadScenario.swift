import Configuration
import SluiceModel

/// A load test: target, workers, devices, loads, phases, events and thresholds.
///
/// All times are scaled and in seconds. Times of events count from the beginning of the first phase.
public struct LoadScenario: Sendable, Equatable {
    public var name: String
    public var description: String
    public var seed: UInt64
    /// Factor of all times; rates stay.
    public var timeScale: Double
    /// Threads that produce.
    public var producers: Int
    public var target: Target
    public var workers: Workers
    public var simulator: Simulator
    public var devices: Devices
    public var apps: [App]
    public var loads: [Load]
    public var phases: [Phase]
    public var actions: [Action]
    public var thresholds: [ThresholdRule]
    /// The scenario in YAML, with all overrides.
    public var text: String
    public var overrides: [String]

    // MARK: Target

    public enum TargetKind: String, Sendable, CaseIterable {
        /// Kafka, simulator and workers on this machine.
        case embedded
        /// A cluster that runs already; simulator and workers on this machine.
        case kafka
        /// A simulator that runs elsewhere.
        case simulator
        /// A staging endpoint of APNs.
        case staging
    }

    public struct Target: Sendable, Equatable {
        public var kind: TargetKind
        /// Brokers of a cluster that runs already; nil: an embedded cluster.
        public var bootstrapServers: String?
        /// Properties of librdkafka, in the order written.
        public var properties: [Property]
        public var topics: Topics
        /// Consumer group of the workers.
        public var group: String
        /// Partitions of an embedded cluster; nil: as many as hold the run.
        public var partitions: Int?
        /// Server of APNs; nil: a simulator of the run.
        public var server: Server?
    }

    public struct Property: Sendable, Equatable {
        public var name: String
        public var value: String
    }

    public struct Topics: Sendable, Equatable {
        public var jobs: String
        public var outcomes: String
        public var deadLetters: String
        public var changelog: String
    }

    public struct Server: Sendable, Equatable {
        public var host: String
        public var port: Int
        public var caFile: String?
        public var keyFile: String
        public var keyID: String
        public var teamID: String
        /// File with the device tokens that may be pushed to.
        public var tokensFile: String?
        /// Greatest rate of pushes per second.
        public var rateCap: Double
    }

    // MARK: Gateway and simulator

    public enum Store: String, Sendable, CaseIterable {
        case off
        case withoutChangelog = "without-changelog"
        case withChangelog = "with-changelog"
        case withTransactions = "with-transactions"
    }

    public struct Workers: Sendable, Equatable {
        /// 0: the workers run elsewhere.
        public var count: Int
        public var shards: Int
        public var store: Store
        public var hasInstanceIDs: Bool
        /// Further settings of the workers, a map.
        package var settings: ConfigurationValue?
        /// Admin endpoints of workers that run elsewhere.
        public var admin: [String]
    }

    public struct Simulator: Sendable, Equatable {
        public var port: Int
        public var threads: Int
        public var isNull: Bool
        /// Delay of each answer, and the greatest random further delay, in milliseconds.
        public var delay: Double
        public var delaySpread: Double
        public var answers: [String: Double]
        public var hasDevices: Bool
        public var knowsAppsOnly: Bool
        /// Errors after which the simulator ends a connection; nil: errors have no consequence.
        public var errorBudget: Int?
        /// Timeline of faults, a document as `sluice simulator --faults` reads it; nil without faults.
        public var faults: String?
        /// Further arguments of `sluice simulator`.
        public var arguments: [String]
    }

    // MARK: Devices and apps

    public enum Popularity: Sendable, Equatable {
        case uniform
        case zipf(Double)
    }

    public struct Devices: Sendable, Equatable {
        public var count: Int
        public var popularity: Popularity
        /// Share of the devices that are offline at the beginning, 0 to 1.
        public var offlineShare: Double
        /// Time at which the first offline device is back; nil: the end of the last main phase.
        public var returnAt: Double?
        /// Time within which all offline devices are back.
        public var returnOver: Double
        /// Device tokens that change in a minute.
        public var churnPerMinute: Double

        public init(
            count: Int, popularity: Popularity = .uniform, offlineShare: Double = 0, returnAt: Double? = nil,
            returnOver: Double = 0, churnPerMinute: Double = 0
        ) {
            self.count = count
            self.popularity = popularity
            self.offlineShare = offlineShare
            self.returnAt = returnAt
            self.returnOver = returnOver
            self.churnPerMinute = churnPerMinute
        }
    }

    public enum Credential: String, Sendable, CaseIterable {
        case shared, own, refused
    }

    public struct App: Sendable, Equatable {
        public var name: String
        public var bundle: String
        /// Share of the jobs, in proportion to the other apps' shares.
        public var share: Double
        public var credential: Credential
        /// Further settings of the app, a map.
        package var settings: ConfigurationValue?
    }

    // MARK: Loads

    public enum Arrival: Sendable, Equatable {
        case poisson
        case constant
        case bursts(every: Double, length: Double)
        /// A file with recorded arrivals.
        case trace(file: String)
        /// Jobs without an outcome at any time. The next job is due as soon as there is room.
        case closed(inFlight: Int)
    }

    public enum Delivery: String, Sendable, CaseIterable {
        case accept
        case holdWhileOffline = "hold-while-offline"
    }

    public enum PushType: String, Sendable, CaseIterable {
        case alert, background, voip

        /// End of the topic, after the bundle identifier.
        var topicSuffix: String { self == .voip ? ".voip" : "" }
    }

    public struct PriorityShare: Sendable, Equatable {
        public var priority: Int
        public var share: Double
    }

    public struct Load: Sendable, Equatable {
        public var name: String
        public var arrival: Arrival
        /// Jobs per second; 0 for a trace and a closed loop.
        public var rate: Double
        /// Indices of the phases in which the load runs.
        public var phases: [Int]
        /// Shares by the name of the app; empty: the shares of the apps.
        public var apps: [String: Double]
        public var priorities: [PriorityShare]
        public var payloadBytes: ClosedRange<Int>
        /// Encoding of the jobs.
        public var mode: JobMode
        /// Share of the jobs with a collapse identifier, of so many identifiers.
        public var collapseShare: Double
        public var collapseIdentifiers: Int
        /// Time from a job's intended time to its `deliver-at`.
        public var deliverAfter: ClosedRange<Double>?
        public var ttl: Double?
        public var pushType: PushType
        public var delivery: Delivery
        public var avoidsDuplicates: Bool
        /// Share of the jobs that are malformed, and end as dead letters.
        public var malformedShare: Double
    }

    public struct Phase: Sendable, Equatable {
        public var name: String
        public var kind: RunResult.PhaseKind
        /// Length; the longest length of a drain.
        public var duration: Double
        /// Factor of the loads' rates.
        public var rateFactor: Double
    }

    // MARK: Events

    public enum ActionKind: String, Sendable, CaseIterable {
        case restartWorker = "restart-worker"
        case killWorker = "kill-worker"
        case pauseWorker = "pause-worker"
        case addWorker = "add-worker"
        case removeWorker = "remove-worker"
        case rollingRestart = "rolling-restart"
        case outage
        case pauseKafka = "pause-kafka"
    }

    public struct Action: Sendable, Equatable {
        public var at: Double
        public var kind: ActionKind
        /// Number of the worker, from 1.
        public var worker: Int
        /// Length of a pause, an outage, or the time until a killed worker is started again; nil: never.
        public var duration: Double?
    }
}

extension LoadScenario {
    /// Spans of the phases, in seconds since the beginning of the first phase.
    public var spans: [ClosedRange<Double>] {
        var start = 0.0
        return phases.map { phase in
            defer { start += phase.duration }
            return start...(start + phase.duration)
        }
    }

    /// Spans of the main phases.
    public var mainSpans: [ClosedRange<Double>] {
        zip(phases, spans).filter { $0.0.kind == .main }.map(\.1)
    }

    /// End of the last phase in which loads run.
    public var loadEnd: Double {
        phases.lastIndex { $0.kind != .drain }.map { spans[$0].upperBound } ?? 0
    }

    /// Time at which the first offline device is back.
    public var returnBegin: Double { devices.returnAt ?? loadEnd }

    /// Shares of the apps in a load, in the order of the apps.
    public func appShares(of load: Load) -> [Double] {
        apps.map { load.apps.isEmpty ? $0.share : load.apps[$0.name] ?? 0 }
    }

    /// Rates of a load over time: a segment for each of its phases.
    public func segments(of load: Load) -> [Arrivals.Segment] {
        let spans = spans
        return load.phases.map { index in
            Arrivals.Segment(
                from: spans[index].lowerBound, to: spans[index].upperBound,
                rate: load.rate * phases[index].rateFactor)
        }
    }

    /// Returns the arrivals of a load; nil for a closed loop.
    /// - Parameter trace: the load's trace, for a load with one.
    public func arrivals(of index: Int, trace: ArrivalTrace?) -> Arrivals? {
        let load = loads[index]
        let seed = seed &+ UInt64(index + 1) &* 0xA24B_AED4_963E_E407
        let segments = segments(of: load)
        switch load.arrival {
        case .poisson: return Arrivals(segments, isRandom: true, seed: seed)
        case .constant: return Arrivals(segments, isRandom: false, seed: seed)
        case .bursts(let every, let length):
            return Arrivals(
                segments.flatMap { Arrivals.bursts($0, every: every, length: length) }, isRandom: true,
                seed: seed)
        case .trace:
            let from = segments.first?.from ?? 0
            let to = segments.last?.to ?? 0
            return trace?.arrivals(from: from, to: to, scale: timeScale, seed: seed) ?? Arrivals(at: [])
        case .closed: return nil
        }
    }

    /// Rate of all open loops in the main phases, in jobs per second.
    public var mainRate: Double {
        let main = phases.indices.filter { phases[$0].kind == .main }
        let length = main.reduce(0) { $0 + phases[$1].duration }
        guard length > 0 else { return 0 }
        return loads.reduce(0) { sum, load in
            sum
                + load.phases.filter(main.contains).reduce(0) {
                    $0 + load.rate * phases[$1].rateFactor * phases[$1].duration
                }
        } / length
    }

    /// Greatest rate of all open loops together in any phase, in jobs per second.
    public var highestRate: Double {
        phases.indices.map { phase in
            loads.reduce(0) { sum, load in
                guard load.phases.contains(phase) else { return sum }
                var factor = phases[phase].rateFactor
                if case .bursts(let every, let length) = load.arrival { factor *= every / length }
                return sum + load.rate * factor
            }
        }.max() ?? 0
    }

    /// Overrides that multiply the rates of all open loops.
    public func overrides(multiplyingRatesBy factor: Double) -> [String] {
        loads.indices.filter { loads[$0].rate > 0 }.map {
            "loads[\($0)].arrivals.rate=\(loads[$0].rate * factor)/s"
        }
    }
}
