/// Result of one run of `sluice bench`: `result.json`, described by `Schemas/bench-result.schema.json`. The report, the
/// comparison and the merge are made from results alone.
///
/// Times within a run are seconds since the beginning of its first phase.
public struct RunResult: Codable, Sendable, Equatable {
    /// Version of the document.
    public static let currentVersion = 1
    public var version = RunResult.currentVersion
    public var scenario: Scenario
    public var environment: Environment
    public var phases: [Phase]
    /// Loads in the order of the scenario; nil in a result without them.
    public var loads: [Load]?
    /// Figures by second, from second 0 to the end of the last phase.
    public var seconds: [Second]
    public var processes: [Process]
    /// Faults, actions and notes. ``mostAnnotations`` at most; a note has the number of the others.
    public var annotations: [Annotation]
    public var audit: Audit
    public var generator: Generator
    /// Reader of outcomes; nil in a result without its delay.
    public var reader: Reader?
    public var thresholds: [Threshold]

    public init(
        scenario: Scenario, environment: Environment, phases: [Phase], loads: [Load]? = nil,
        seconds: [Second],
        processes: [Process], annotations: [Annotation], audit: Audit, generator: Generator,
        reader: Reader? = nil, thresholds: [Threshold]
    ) {
        self.scenario = scenario
        self.environment = environment
        self.phases = phases
        self.loads = loads
        self.seconds = seconds
        self.processes = processes
        self.annotations = annotations
        self.audit = audit
        self.generator = generator
        self.reader = reader
        self.thresholds = thresholds
    }

    /// Whether every threshold holds.
    public var isPassed: Bool { thresholds.allSatisfy(\.isMet) }

    public struct Scenario: Codable, Sendable, Equatable {
        public var name: String
        public var description: String
        /// Scenario as it was run, in YAML, with all overrides.
        public var text: String
        public var seed: UInt64
        /// "embedded", "kafka", "simulator" or "staging", with addresses if there are any.
        public var target: String
        /// Overrides of the command line, as "path=value".
        public var overrides: [String]

        public init(
            name: String, description: String, text: String, seed: UInt64, target: String, overrides: [String]
        ) {
            self.name = name
            self.description = description
            self.text = text
            self.seed = seed
            self.target = target
            self.overrides = overrides
        }
    }

    public struct Environment: Codable, Sendable, Equatable {
        /// Start in milliseconds since the epoch.
        public var startedMilliseconds: Int64
        public var version: String
        public var commit: String
        /// Operating system, kernel and machine.
        public var system: String
        public var processor: String
        public var cores: Int
        public var memoryBytes: Int
        /// Load average over a minute before the start.
        public var loadBefore: Double
        public var noise: Noise

        public init(
            startedMilliseconds: Int64, version: String, commit: String, system: String, processor: String,
            cores: Int, memoryBytes: Int, loadBefore: Double, noise: Noise
        ) {
            self.startedMilliseconds = startedMilliseconds
            self.version = version
            self.commit = commit
            self.system = system
            self.processor = processor
            self.cores = cores
            self.memoryBytes = memoryBytes
            self.loadBefore = loadBefore
            self.noise = noise
        }
    }

    /// Processor time of a fixed calculation that ran once a fifth of a second beside the load, against its time before it.
    public struct Noise: Codable, Sendable, Equatable {
        /// Time of the calculation before the load, in nanoseconds: the least of several.
        public var quietNanoseconds: Double
        /// Median and 99th percentile of the time during the main phases ÷ `quietNanoseconds`.
        public var medianSlowdown: Double
        public var worstSlowdown: Double
        /// Share of processor time that the hypervisor gave to others (`steal`), 0 to 1.
        public var stolenShare: Double
        /// Share of processor time that processes outside of the run used in the main phases, 0 to 1; nil when unknown.
        public var othersShare: Double?

        public init(
            quietNanoseconds: Double, medianSlowdown: Double, worstSlowdown: Double, stolenShare: Double,
            othersShare: Double? = nil
        ) {
            self.quietNanoseconds = quietNanoseconds
            self.medianSlowdown = medianSlowdown
            self.worstSlowdown = worstSlowdown
            self.stolenShare = stolenShare
            self.othersShare = othersShare
        }
    }

    public enum PhaseKind: String, Codable, Sendable, CaseIterable {
        case warmUp = "warm-up"
        case main
        case drain
    }

    public struct Phase: Codable, Sendable, Equatable {
        public var name: String
        public var kind: PhaseKind
        public var from: Double
        public var to: Double
        /// Jobs with an intended time within the phase.
        public var intended: Int
        /// Jobs handed to the producer within the phase.
        public var produced: Int
        /// Outcomes within the phase.
        public var outcomes: Int
        /// Latency of the jobs with an intended time within the phase, from the intended time to the read outcome. A
        /// job with `deliver-at` counts from that time.
        public var latency: HDRHistogram
        /// Processor time of all processes of the gateway within the phase ÷ its outcomes, in microseconds; nil without
        /// outcomes, or with workers that run elsewhere.
        public var cpuMicrosecondsPerOutcome: Double?
        /// Jobs with an intended time within the phase, by the kind of their first outcome; nil in a result without
        /// them.
        public var byKind: [String: Int]?
        /// Jobs with an intended time within the phase that Kafka has, with and without an outcome; nil in a result
        /// without them.
        public var jobs: Int?
        /// Attempts at delivery in all outcomes of these jobs; nil in a result without them.
        public var attempts: Int?

        public init(
            name: String, kind: PhaseKind, from: Double, to: Double, intended: Int, produced: Int,
            outcomes: Int, latency: HDRHistogram, cpuMicrosecondsPerOutcome: Double? = nil
        ) {
            self.name = name
            self.kind = kind
            self.from = from
            self.to = to
            self.intended = intended
            self.produced = produced
            self.outcomes = outcomes
            self.latency = latency
            self.cpuMicrosecondsPerOutcome = cpuMicrosecondsPerOutcome
        }
    }

    /// Jobs of a load with an intended time in the main phases.
    public struct Load: Codable, Sendable, Equatable {
        public var name: String
        /// Length of the main phases in which the load runs, in seconds.
        public var seconds: Double
        public var intended: Int
        /// Jobs handed to the producer within the main phases.
        public var produced: Int
        /// Outcomes that were read within the main phases.
        public var outcomes: Int
        /// Latency of the jobs, as in ``Phase/latency``.
        public var latency: HDRHistogram
        /// Jobs by the kind of their first outcome.
        public var byKind: [String: Int]
        /// Jobs that Kafka has, with and without an outcome; nil in a result without them.
        public var jobs: Int?

        public init(
            name: String, seconds: Double, intended: Int, produced: Int, outcomes: Int, latency: HDRHistogram,
            byKind: [String: Int], jobs: Int? = nil
        ) {
            self.jobs = jobs
            self.name = name
            self.seconds = seconds
            self.intended = intended
            self.produced = produced
            self.outcomes = outcomes
            self.latency = latency
            self.byKind = byKind
        }
    }

    /// Figures of one second of the run. Optional figures are nil when no worker was asked, or none answered.
    public struct Second: Codable, Sendable, Equatable {
        public var intended = 0
        public var produced = 0
        /// Outcomes by kind ("accepted", "rejected", …) that were read in the second.
        public var outcomes: [String: Int] = [:]
        public var deadLetters = 0
        /// Latency of the jobs whose outcome was read in the second.
        public var latency = HDRHistogram()
        /// Jobs whose intended time is over and that have no outcome.
        public var open = 0
        /// Longest delay of the generator behind the intended times, in milliseconds.
        public var generatorDelayMilliseconds = 0.0
        /// Longest time that an outcome or dead letter waited for the reader, in milliseconds; nil when none was read.
        public var readerDelayMilliseconds: Double?
        /// Processor time in seconds, by name of the process.
        public var cpuSeconds: [String: Double] = [:]
        public var residentBytes: [String: Int] = [:]
        /// Slowdown of the calibration against quiet; nil when it did not run in the second.
        public var slowdown: Double?
        public var workers: Int?
        public var connections: Int?
        public var streamsInUse: Int?
        public var streamsFree: Int?
        /// Circuits that are open.
        public var circuitsOpen: Int?
        /// Jobs that wait in memory.
        public var queued: Int?
        /// Age of the oldest job in memory, in seconds.
        public var queueAgeSeconds: Double?
        /// Items of the retry stores.
        public var stored: Int?
        public var storeBytes: Int?
        /// Records behind the end of the jobs topic.
        public var lagRecords: Int?
        public var lagSeconds: Double?
        /// Share of time that the busiest loop worked, 0 to 1.
        public var loopBusy: Double?

        public init() {}
    }

    public enum Role: String, Codable, Sendable {
        case generator, worker, simulator, kafka
    }

    public struct Process: Codable, Sendable, Equatable {
        public var name: String
        public var role: Role
        /// Processor time in the main phases, in seconds.
        public var cpuSeconds: Double
        /// Processor time in the main phases ÷ outcomes there, in microseconds; nil without outcomes.
        public var cpuMicrosecondsPerOutcome: Double?
        public var maximumResidentBytes: Int

        public init(
            name: String, role: Role, cpuSeconds: Double, cpuMicrosecondsPerOutcome: Double? = nil,
            maximumResidentBytes: Int
        ) {
            self.name = name
            self.role = role
            self.cpuSeconds = cpuSeconds
            self.cpuMicrosecondsPerOutcome = cpuMicrosecondsPerOutcome
            self.maximumResidentBytes = maximumResidentBytes
        }
    }

    public enum AnnotationKind: String, Codable, Sendable {
        /// Step of the simulator's fault timeline.
        case fault
        /// Restart, crash, addition or removal of a worker.
        case action
        /// Observation of the harness, such as a generator that fell behind.
        case note
    }

    public struct Annotation: Codable, Sendable, Equatable {
        public var at: Double
        /// nil: a moment, not a span.
        public var until: Double?
        public var kind: AnnotationKind
        public var text: String

        public init(
            at: Double, until: Double? = nil, kind: AnnotationKind, text: String
        ) {
            self.at = at
            self.until = until
            self.kind = kind
            self.text = text
        }
    }

    /// Comparison of every produced job with the outcomes and dead letters that followed.
    public struct Audit: Codable, Sendable, Equatable {
        public var produced: Int
        /// Jobs that Kafka did not take; none of them is expected to have an outcome.
        public var refused: Int
        public var once: Int
        public var missing: Int
        public var doubled: Int
        /// Outcomes of jobs that this run did not produce.
        public var unknown: Int
        public var unreadable: Int
        /// Jobs by the kind of their first outcome; "dead-letter" has the dead letters.
        public var byKind: [String: Int]
        /// Rejected, expired and undeliverable jobs by reason.
        public var byReason: [String: Int]
        /// Attempts at delivery in all outcomes.
        public var attempts: Int
        /// Requests that the simulator counted; nil without a simulator of this run.
        public var simulatorRequests: Int?
        /// Jobs that were accepted more than a second before they were due; 0 in a result without them.
        public var early: Int
        /// Jobs that were due and that the generator had not produced when the run ended; 0 in a result without them.
        public var notProduced: Int

        public init(
            produced: Int, refused: Int, once: Int, missing: Int, doubled: Int, unknown: Int, unreadable: Int,
            byKind: [String: Int], byReason: [String: Int], attempts: Int, simulatorRequests: Int? = nil,
            early: Int = 0, notProduced: Int = 0
        ) {
            self.early = early
            self.notProduced = notProduced
            self.produced = produced
            self.refused = refused
            self.once = once
            self.missing = missing
            self.doubled = doubled
            self.unknown = unknown
            self.unreadable = unreadable
            self.byKind = byKind
            self.byReason = byReason
            self.attempts = attempts
            self.simulatorRequests = simulatorRequests
        }

        public init(from decoder: any Decoder) throws {
            let values = try decoder.container(keyedBy: CodingKeys.self)
            produced = try values.decode(Int.self, forKey: .produced)
            refused = try values.decode(Int.self, forKey: .refused)
            once = try values.decode(Int.self, forKey: .once)
            missing = try values.decode(Int.self, forKey: .missing)
            doubled = try values.decode(Int.self, forKey: .doubled)
            unknown = try values.decode(Int.self, forKey: .unknown)
            unreadable = try values.decode(Int.self, forKey: .unreadable)
            byKind = try values.decode([String: Int].self, forKey: .byKind)
            byReason = try values.decode([String: Int].self, forKey: .byReason)
            attempts = try values.decode(Int.self, forKey: .attempts)
            simulatorRequests = try values.decodeIfPresent(Int.self, forKey: .simulatorRequests)
            early = try values.decodeIfPresent(Int.self, forKey: .early) ?? 0
            notProduced = try values.decodeIfPresent(Int.self, forKey: .notProduced) ?? 0
        }
    }

    public struct Generator: Codable, Sendable, Equatable {
        /// Number of producers.
        public var producers: Int
        /// Whether the generator, not the gateway, limited the load: more than a hundredth of the jobs of the main
        /// phases were produced over 10 ms late, jobs were never produced, or the producer's queue was full from the first
        /// main phase on.
        public var wasLimit: Bool
        /// Explanation of `wasLimit`; empty otherwise.
        public var reason: String
        /// Delay of production behind the intended times in the main phases.
        public var delay: HDRHistogram

        public init(
            producers: Int, wasLimit: Bool, reason: String, delay: HDRHistogram
        ) {
            self.producers = producers
            self.wasLimit = wasLimit
            self.reason = reason
            self.delay = delay
        }
    }

    /// Reader of outcomes and dead letters. Each latency has the reader's delay in it.
    public struct Reader: Codable, Sendable, Equatable {
        /// Whether the reader was a limit of the measurement. More than a hundredth of the main phases' outcomes were then
        /// read over 10 ms late.
        public var wasLimit: Bool
        /// Explanation of `wasLimit`; empty otherwise.
        public var reason: String
        /// Time that the first outcomes of the main phases' jobs waited for the reader.
        public var delay: HDRHistogram

        public init(wasLimit: Bool, reason: String, delay: HDRHistogram) {
            self.wasLimit = wasLimit
            self.reason = reason
            self.delay = delay
        }
    }

    public struct Threshold: Codable, Sendable, Equatable {
        /// Name in the scenario, such as "latency-p99".
        public var name: String
        /// Bound as written, such as "≤ 50 ms".
        public var bound: String
        /// Measured value in the bound's unit; nil when it could not be measured, which misses the bound.
        public var value: Double?
        public var isMet: Bool

        public init(
            name: String, bound: String, value: Double? = nil, isMet: Bool
        ) {
            self.name = name
            self.bound = bound
            self.value = value
            self.isMet = isMet
        }
    }
}
