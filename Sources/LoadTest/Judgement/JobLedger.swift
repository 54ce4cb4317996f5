import SluiceModel

/// Every produced job with its intended time, and the outcomes and dead letters that followed.
///
/// A job's number is in its `apns-id`, beside the number of the run. Latency counts from the time from which the job was
/// due to the time at which its first outcome was read, on the generator's clock. Times are microseconds since the
/// beginning of the first phase.
public struct JobLedger: Sendable {
    /// A job that was handed to a producer.
    public struct Entry: Sendable {
        public var number: Int
        /// Index of the load; ``JobLedger/presence`` for device events.
        public var load: UInt8
        public var intended: Int64
        /// Time from which latency counts.
        public var due: Int64
        public var produced: Int64
        /// Device token of a device event, by which its outcome is found; nil for a push.
        public var token: String?

        public init(
            number: Int, load: UInt8, intended: Int64, due: Int64, produced: Int64, token: String? = nil
        ) {
            self.token = token
            self.number = number
            self.load = load
            self.intended = intended
            self.due = due
            self.produced = produced
        }
    }

    /// Most jobs of a run. Each takes 16 bytes.
    public static let mostJobs = 1 << 28
    /// Time before which an outcome may precede the time at which its job is due, in microseconds: clocks differ.
    static let earliness: Int64 = 1_000_000
    /// Load of device events, which are audited and have no latency.
    public static let presence = UInt8.max
    /// Delay of a production from which on the generator was late, in microseconds; also that of a reading.
    public static let lateness: Int64 = 10_000

    private struct Job {
        var due: Int64 = 0
        var phase: Int16 = -1
        var load: UInt8 = 0
        var outcomes: UInt8 = 0
        /// Kind of the first outcome.
        var kind: UInt8 = 0
        var state = State.absent
    }

    private enum State: UInt8 {
        case absent, produced, refused
    }

    /// Figures of a load.
    private struct LoadFigures {
        var intended = 0
        var jobs = 0
        var produced = 0
        var outcomes = 0
        var latency = HDRHistogram()
        var byKind: [String: Int] = [:]
    }

    private static let kinds = OutcomeKind.allCases.map(\.name.description) + ["dead-letter"]
    private static let acceptedKind = OutcomeKind.accepted.rawValue
    private static let deadLetterKind = UInt8(OutcomeKind.allCases.count)

    /// Number of the run, which tells its jobs from others.
    public let run: UInt64
    private let phases: [LoadScenario.Phase]
    private let loadNames: [String]
    private let loadPhases: [[Int]]
    private var jobs: [Job] = []
    private var phaseFigures: [RunResult.Phase]
    private var loads: [LoadFigures]
    private var seconds: [RunResult.Second] = []
    private var intendedBefore = 0
    private var byReason: [String: Int] = [:]
    private var attempts = 0
    private var unknown = 0
    private var unreadable = 0
    private var refusedCount = 0
    private var producedCount = 0
    private var doubledCount = 0
    private var earlyCount = 0
    private var notProducedCount = 0
    private var delay = HDRHistogram()
    private var lateJobs = 0
    private var mainJobs = 0
    private var readingDelay = HDRHistogram()
    private var lateReadings = 0
    private var presenceOpen = 0
    /// Numbers of device events by token, in their order.
    private var events: [String: [Int]] = [:]
    /// Jobs with an outcome and refused jobs, by load: jobs that are no longer in flight.
    public private(set) var finishedByLoad: [Int]
    /// Jobs with an outcome or a dead letter.
    public private(set) var finished = 0

    /// - Parameter run: number of the run.
    public init(_ scenario: LoadScenario, run: UInt64) {
        self.run = run
        phases = scenario.phases
        loadNames = scenario.loads.map(\.name)
        loadPhases = scenario.loads.map(\.phases)
        loads = Array(repeating: LoadFigures(), count: loadNames.count)
        finishedByLoad = Array(repeating: 0, count: loadNames.count)
        phaseFigures = zip(scenario.phases, scenario.spans).map { phase, span in
            RunResult.Phase(
                name: phase.name, kind: phase.kind, from: span.lowerBound, to: span.upperBound, intended: 0,
                produced: 0, outcomes: 0, latency: HDRHistogram(), cpuMicrosecondsPerOutcome: nil)
        }
        for index in phaseFigures.indices {
            phaseFigures[index].byKind = [:]
            phaseFigures[index].jobs = 0
            phaseFigures[index].attempts = 0
        }
    }

    /// Jobs that Kafka has, or may have.
    public var expected: Int { producedCount - refusedCount }
    /// Jobs without an outcome so far.
    public var open: Int { expected - finished }
    /// Device events without an outcome so far.
    public var openPresence: Int { presenceOpen }

    private func phase(at time: Int64) -> Int? {
        let seconds = Double(time) / 1e6
        return phaseFigures.firstIndex { $0.from <= seconds && seconds < $0.to }
    }

    private mutating func second(_ time: Int64, _ body: (inout RunResult.Second) -> Void) {
        guard time >= 0, time < 40 * 86_400 * 1_000_000 else { return }
        let index = Int(time / 1_000_000)
        while seconds.count <= index { seconds.append(RunResult.Second()) }
        body(&seconds[index])
    }

    public mutating func add(_ entry: Entry) {
        guard (0..<Self.mostJobs).contains(entry.number) else { return }
        while jobs.count <= entry.number { jobs.append(Job()) }
        guard jobs[entry.number].state == .absent else { return }
        producedCount += 1
        var job = Job(due: entry.due, load: entry.load, state: .produced)
        defer { jobs[entry.number] = job }
        guard entry.load != Self.presence else {
            presenceOpen += 1
            if let token = entry.token { events[token, default: []].append(entry.number) }
            return
        }
        second(entry.intended) { $0.intended += 1 }
        let late = max(0, entry.produced - entry.intended)
        second(entry.produced) {
            $0.produced += 1
            $0.generatorDelayMilliseconds = max($0.generatorDelayMilliseconds, Double(late) / 1_000)
        }
        let load = Int(entry.load)
        if let index = phase(at: entry.produced) {
            phaseFigures[index].produced += 1
            if phases[index].kind == .main { loads[load].produced += 1 }
        }
        guard let index = phase(at: entry.intended) else { return }
        job.phase = Int16(index)
        phaseFigures[index].intended += 1
        count(job, 1)
        guard phases[index].kind == .main else { return }
        loads[load].intended += 1
        mainJobs += 1
        delay.record(microseconds: Int(late))
        if late > Self.lateness { lateJobs += 1 }
    }

    /// Changes the numbers of jobs that Kafka has, of the job's phase and load.
    private mutating func count(_ job: Job, _ change: Int) {
        guard job.phase >= 0 else { return }
        phaseFigures[Int(job.phase)].jobs? += change
        if phases[Int(job.phase)].kind == .main { loads[Int(job.load)].jobs += change }
    }

    /// Records a job that was due at a time, and that the generator had not produced when the run ended.
    public mutating func addNotProduced(load: UInt8, intended: Int64) {
        guard loads.indices.contains(Int(load)) else { return }
        notProducedCount += 1
        second(intended) { $0.intended += 1 }
        guard let index = phase(at: intended) else { return }
        phaseFigures[index].intended += 1
        if phases[index].kind == .main { loads[Int(load)].intended += 1 }
    }

    /// Records that Kafka did not take a job.
    public mutating func refuse(_ number: Int) {
        guard jobs.indices.contains(number), jobs[number].state == .produced, jobs[number].outcomes == 0
        else {
            return
        }
        jobs[number].state = .refused
        refusedCount += 1
        count(jobs[number], -1)
        if jobs[number].load == Self.presence {
            presenceOpen -= 1
        } else {
            finishedByLoad[Int(jobs[number].load)] += 1
        }
    }

    /// Adds an outcome that was read at a time; nil: a record that is no outcome.
    /// - Parameter delay: time that the record waited for its reader; nil when not measured.
    public mutating func add(_ outcome: OutcomeSummary?, at time: Int64, delay: Int64? = nil) {
        guard let outcome else {
            unreadable += 1
            return
        }
        let reason = outcome.reason ?? outcome.cause
        // A device event has no identifier of its own. The events of a device end in their order.
        var id = outcome.apnsID
        if outcome.job == "device", let numbers = events[outcome.deviceToken] {
            let number = numbers.first { jobs[$0].outcomes == 0 } ?? numbers.last ?? 0
            id = APNSID(high: run, low: UInt64(number))
        }
        add(
            id, kind: outcome.kind.rawValue,
            reason: [.rejected, .expired, .undeliverable].contains(outcome.kind) ? reason ?? "none" : nil,
            attempts: outcome.attempts, at: time, delay: delay)
    }

    /// Adds a dead letter that was read at a time; without an identifier it belongs to an unknown job.
    /// - Parameter delay: time that the record waited for its reader; nil when not measured.
    public mutating func addDeadLetter(_ id: APNSID?, rule: String, at time: Int64, delay: Int64? = nil) {
        guard let id else {
            unknown += 1
            return
        }
        add(id, kind: Self.deadLetterKind, reason: rule, attempts: 0, at: time, delay: delay)
    }

    private mutating func add(
        _ id: APNSID, kind: UInt8, reason: String?, attempts: Int, at time: Int64, delay: Int64?
    ) {
        guard id.high == run, let number = Int(exactly: id.low), jobs.indices.contains(number),
            jobs[number].state != .absent
        else {
            unknown += 1
            return
        }
        self.attempts += attempts
        var job = jobs[number]
        if job.phase >= 0 { phaseFigures[Int(job.phase)].attempts? += attempts }
        defer { jobs[number] = job }
        if job.outcomes > 0 {
            if job.outcomes == 1 { doubledCount += 1 }
            if job.outcomes < .max { job.outcomes += 1 }
            return
        }
        if job.state == .refused {
            // Kafka has taken the job although the producer was not told so.
            job.state = .produced
            refusedCount -= 1
            count(job, 1)
            if job.load == Self.presence {
                presenceOpen += 1
            } else {
                finishedByLoad[Int(job.load)] -= 1
            }
        }
        job.outcomes = 1
        job.kind = kind
        finished += 1
        if let reason { byReason[reason, default: 0] += 1 }
        let name = Self.kinds[Int(kind)]
        guard job.load != Self.presence else {
            presenceOpen -= 1
            return
        }
        finishedByLoad[Int(job.load)] += 1
        if kind == Self.acceptedKind, job.due - time > Self.earliness { earlyCount += 1 }
        let latency = Int(max(0, time - job.due))
        second(time) {
            if kind == Self.deadLetterKind { $0.deadLetters += 1 } else { $0.outcomes[name, default: 0] += 1 }
            $0.latency.record(microseconds: latency)
            if let delay {
                $0.readerDelayMilliseconds = max($0.readerDelayMilliseconds ?? 0, Double(delay) / 1_000)
            }
        }
        if let index = phase(at: time) {
            phaseFigures[index].outcomes += 1
            if phases[index].kind == .main { loads[Int(job.load)].outcomes += 1 }
        }
        guard job.phase >= 0 else { return }
        phaseFigures[Int(job.phase)].latency.record(microseconds: latency)
        phaseFigures[Int(job.phase)].byKind?[name, default: 0] += 1
        if phases[Int(job.phase)].kind == .main {
            loads[Int(job.load)].latency.record(microseconds: latency)
            loads[Int(job.load)].byKind[name, default: 0] += 1
            if let delay {
                readingDelay.record(microseconds: Int(delay))
                if delay > Self.lateness { lateReadings += 1 }
            }
        }
    }

    // MARK: Results

    /// Ends the last phase at a time, when it ended sooner or later than planned.
    public mutating func end(at time: Double) {
        guard let last = phaseFigures.indices.last, phaseFigures[last].kind == .drain else { return }
        phaseFigures[last].to = max(phaseFigures[last].from, time)
    }

    public var phaseResults: [RunResult.Phase] { phaseFigures }

    /// Figures by second, to the end of the last phase.
    public var secondResults: [RunResult.Second] {
        var seconds = seconds
        let end = Int((phaseFigures.last?.to ?? 0).rounded(.up))
        while seconds.count < end { seconds.append(RunResult.Second()) }
        var open = 0
        for index in seconds.indices {
            open += seconds[index].intended
            open -= seconds[index].outcomes.values.reduce(0, +) + seconds[index].deadLetters
            seconds[index].open = max(0, open)
        }
        return seconds
    }

    public var loadResults: [RunResult.Load] {
        loads.indices.map { index in
            let length = loadPhases[index].filter { phases[$0].kind == .main }.reduce(0) {
                $0 + phaseFigures[$1].to - phaseFigures[$1].from
            }
            let load = loads[index]
            return RunResult.Load(
                name: loadNames[index], seconds: length, intended: load.intended, produced: load.produced,
                outcomes: load.outcomes, latency: load.latency, byKind: load.byKind, jobs: load.jobs)
        }
    }

    public func audit(simulatorRequests: Int?) -> RunResult.Audit {
        var byKind: [String: Int] = [:]
        for job in jobs where job.outcomes > 0 { byKind[Self.kinds[Int(job.kind)], default: 0] += 1 }
        return RunResult.Audit(
            produced: producedCount, refused: refusedCount, once: finished - doubledCount,
            missing: expected - finished, doubled: doubledCount, unknown: unknown, unreadable: unreadable,
            byKind: byKind, byReason: byReason, attempts: attempts, simulatorRequests: simulatorRequests,
            early: earlyCount, notProduced: notProducedCount)
    }

    /// Judges the generator.
    /// - Parameter fullSeconds: time in which the producers' queues were full.
    public func generator(producers: Int, fullSeconds: Double) -> RunResult.Generator {
        var reasons: [String] = []
        if lateJobs * 100 > mainJobs {
            let share = Double(lateJobs * 1_000 / max(1, mainJobs)) / 10
            reasons.append("\(share) % of the jobs of the main phases were produced over 10 ms late")
        }
        if fullSeconds > 0.01 {
            reasons.append("a producer's queue was full for \((fullSeconds * 1_000).rounded() / 1_000) s")
        }
        if notProducedCount > 0 {
            reasons.append("jobs that were due and not produced when the run ended: \(notProducedCount)")
        }
        return RunResult.Generator(
            producers: producers, wasLimit: !reasons.isEmpty, reason: reasons.joined(separator: "; "),
            delay: delay)
    }

    /// Judgement of the reader of outcomes.
    public var readerResult: RunResult.Reader {
        let read = readingDelay.count
        let wasLimit = lateReadings * 100 > read
        let share = Double(lateReadings * 1_000 / max(1, read)) / 10
        return RunResult.Reader(
            wasLimit: wasLimit,
            reason: wasLimit
                ? "\(share) % of the outcomes of the main phases' jobs were read over 10 ms late" : "",
            delay: readingDelay)
    }
}
