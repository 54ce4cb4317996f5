import EventLoop
import Kafka
import SluiceModel

/// An observer outside of the workers, which checks Sluice's promises. The auditor knows the records of the jobs topic, the
/// requests that reach APNs with their answers, the committed records of the workers, and the faults.
final class WorkerAuditor {
    private(set) var jobs: [WorkerJob] = []
    private let scenario: WorkerScenario
    private let scheduler: Scheduler
    /// Receives each broken promise.
    private let report: (WorkerViolation.Promise, String) -> Void
    /// Nanoseconds until which faults of Kafka excuse lost knowledge.
    private var disturbedUntil: UInt64 = 0
    /// The same for faults of a host or its connections, by host.
    private var hostsDisturbedUntil: [UInt64]
    /// Connections whose packets were delayed, by the network's number.
    private var delayedLinks: Set<Int> = []
    /// Member that has each partition, and the nanoseconds since which the auditor has known.
    private var owners: [(process: SimulatedProcess?, since: UInt64)] = []
    /// Newest accepted job by device and collapse identifier.
    private var newest: [Identity: Int] = [:]
    /// Devices of which APNs has said that they are gone.
    private var goneDevices: Set<Int> = []
    private(set) var repeatedPushes = 0
    private(set) var repeatedOutcomes = 0
    private(set) var outcomes = 0

    private struct Identity: Hashable {
        var device: Int
        var collapse: String
    }

    private static let second: UInt64 = 1_000_000_000
    /// Nanoseconds in which a fault may have consequences, such as a lost membership.
    private static let aftermath = 30 * second
    /// Milliseconds that a request may take to APNs.
    private static let transport: Int64 = 100

    init(
        _ scenario: WorkerScenario, _ scheduler: Scheduler,
        report: @escaping (WorkerViolation.Promise, String) -> Void
    ) {
        self.scenario = scenario
        self.scheduler = scheduler
        self.report = report
        hostsDisturbedUntil = Array(repeating: 0, count: scenario.workers)
    }

    // MARK: Faults

    /// A fault of Kafka begins, and lasts for a while.
    func disturbed(nanoseconds: UInt64 = 0) {
        disturbedUntil = max(disturbedUntil, scheduler.now + nanoseconds + Self.aftermath)
    }

    /// A fault of a host or one of its connections begins, and lasts for a while.
    func disturbed(host: Int, nanoseconds: UInt64 = 0) {
        hostsDisturbedUntil[host] = max(
            hostsDisturbedUntil[host], scheduler.now + nanoseconds + Self.aftermath)
    }

    func delayed(link: Int) { delayedLinks.insert(link) }

    /// Whether the acceptance may be unknown to the worker that sent the job last.
    private func isExcused(_ job: WorkerJob) -> Bool {
        job.isExcused || job.acceptedAt <= disturbedUntil
            || job.host.map { job.acceptedAt <= hostsDisturbedUntil[$0] } ?? true
    }

    // MARK: The service and the group

    func appended(_ job: WorkerJob) { jobs.append(job) }

    /// Looks who has the partitions.
    func followOwners(_ kafka: KafkaCluster) {
        for partition in 0..<scenario.partitions {
            let owner = kafka.owner(of: Int32(partition))
            if owners.count <= partition {
                owners.append((owner, scheduler.now))
            } else if owners[partition].process !== owner {
                owners[partition] = (owner, scheduler.now)
            }
        }
    }

    // MARK: APNs

    /// A request has arrived.
    func received(_ push: SimulatedAPNS.Push) {
        let number = push.job
        let job = jobs[number]
        if push.token != WorkerJob.token(job.device) {
            report(.rightOutcome, "job \(number) is sent to \(push.token)")
        }
        if job.kind == .invalid { report(.rightOutcome, "job \(number) is sent, and can't be decoded") }
        // The system sends nothing more of a connection that was closed by a reset, also after a black hole.
        if let closedAt = push.closedAt, scheduler.now > closedAt + UInt64(Self.transport) * 1_000_000 {
            report(.neverLate, "job \(number) arrives though its worker has closed the connection")
        }
        guard !delayedLinks.contains(push.link) else { return }
        let now = wallClockMilliseconds()
        if job.expires < now - Self.transport - scenario.clockDeviation {
            report(.neverLate, "job \(number) arrives \(now - job.expires) ms after its expiration")
        }
        if job.due > now + scenario.clockDeviation { report(.waits, "job \(number) arrives before its time") }
        checkOwner(push)
    }

    /// A process that has lost a partition sends nothing of it. What was sent before arrives within two seconds.
    private func checkOwner(_ push: SimulatedAPNS.Push) {
        guard !owners.isEmpty else { return }
        let owner = owners[Int(jobs[push.job].partition)]
        guard let process = push.process, let other = owner.process, other !== process,
            owner.since + 2 * Self.second < scheduler.now
        else { return }
        report(.oneOwner, "\(process.name) sends job \(push.job), whose partition \(other.name) has")
    }

    /// APNs refuses a push for good.
    /// - Parameter isGone: whether the device is gone.
    func refused(_ number: Int, isGone: Bool) {
        jobs[number].refusals += 1
        if isGone { goneDevices.insert(jobs[number].device) }
    }

    /// APNs asks for a pause of the push's device, which may last beyond the push's expiration.
    func paused(_ number: Int) { jobs[number].isPaused = true }

    /// APNs accepts a push, and answers at a time.
    func accepted(_ push: SimulatedAPNS.Push, answered: UInt64) {
        let job = jobs[push.job]
        if let collapse = job.collapse {
            let identity = Identity(device: job.device, collapse: collapse)
            if let last = newest[identity], last > push.job, !isExcused(jobs[last]),
                jobs[last].expires == .max
            {
                report(.newestWins, "job \(push.job) is accepted after \(last)")
            }
            newest[identity] = max(newest[identity] ?? 0, push.job)
        }
        if job.accepted > 0 {
            repeatedPushes += 1
            if !isExcused(job) {
                report(.noDuplicate, "job \(push.job) is accepted again though no answer was lost")
            }
        }
        jobs[push.job].accepted += 1
        jobs[push.job].acceptedAt = scheduler.now
        jobs[push.job].answeredAt = answered
        jobs[push.job].connection = push.connection
        jobs[push.job].host = push.host
        jobs[push.job].isExcused = false
    }

    /// A connection of APNs is gone. Answers that were given a moment ago may not have arrived.
    func closed(_ connection: Int) {
        for number in jobs.indices
        where jobs[number].connection == connection && jobs[number].answeredAt + Self.second > scheduler.now {
            jobs[number].isExcused = true
        }
    }

    // MARK: What becomes visible

    /// A dead letter is visible.
    func sawDeadLetter(_ record: KafkaCluster.Record) {
        func number(_ header: DeadLetter.Header) -> Int64? {
            record.headers.first { $0.name == header.rawValue }?.value
                .flatMap { Int64(String(decoding: $0, as: UTF8.self)) }
        }
        guard let partition = number(.sourcePartition), let offset = number(.sourceOffset),
            let job = job(Int32(truncatingIfNeeded: partition), offset)
        else { return report(.rightOutcome, "a dead letter belongs to no job") }
        if jobs[job].kind != .invalid { report(.rightOutcome, "job \(job) is sound, and has a dead letter") }
        saw(job)
    }

    /// An outcome is visible.
    func sawOutcome(_ record: KafkaCluster.Record) {
        guard let outcome = record.value?.withUnsafeBytes({ OutcomeSummary(json: $0) }),
            let number = job(outcome.partition, Int64(outcome.offset))
        else { return report(.rightOutcome, "an outcome belongs to no job") }
        if let problem = problem(outcome, number) {
            report(.rightOutcome, "job \(number) ends as \(outcome.kind.name), and \(problem)")
        }
        saw(number)
    }

    private func job(_ partition: Int32, _ offset: Int64) -> Int? {
        jobs.firstIndex { $0.partition == partition && $0.offset == offset }
    }

    /// Returns what contradicts an outcome; nil: nothing does.
    private func problem(_ outcome: OutcomeSummary, _ number: Int) -> String? {
        let job = jobs[number]
        if job.kind == .invalid { return "it can't be decoded" }
        if job.accepted > 0, outcome.kind != .accepted, !isExcused(job) { return "APNs has accepted it" }
        switch outcome.kind {
        case .accepted: return job.accepted > 0 ? nil : "APNs hasn't accepted it"
        // All pushes end with the answer that the device is gone.
        case .rejected:
            return job.refusals > 0 || goneDevices.contains(job.device)
                ? nil : "APNs hasn't refused it: \(outcome.status ?? 0) \(outcome.reason ?? "")"
        case .expired:
            // A push that is due after its expiration ends at once.
            let left = job.expires - wallClockMilliseconds() - scenario.clockDeviation
            let hasEnded = left <= 0 || job.expires <= job.due || job.isPaused && job.expires < .max
            return hasEnded ? nil : "its life goes on for \(left) ms"
        case .superseded:
            let isReplaced = jobs.indices.contains {
                $0 > number && jobs[$0].device == job.device && jobs[$0].collapse == job.collapse
            }
            return job.collapse != nil && isReplaced ? nil : "no newer job replaces it"
        case .undeliverable: return outcome.cause == nil ? "no cause is given" : nil
        case .confirmed, .cancelled, .tooLate, .notFound, .applied: return "nobody has asked for that"
        }
    }

    private func saw(_ number: Int) {
        let job = jobs[number]
        jobs[number].outcomes += 1
        jobs[number].outcomeAt = scheduler.now
        outcomes += 1
        guard job.outcomes > 0 else { return }
        repeatedOutcomes += 1
        let disturbed = max(disturbedUntil, hostsDisturbedUntil.max() ?? 0)
        if scenario.mode == .transactions || job.outcomeAt > disturbed {
            report(.oneOutcome, "job \(number) has \(job.outcomes + 1) outcomes")
        }
    }
}
