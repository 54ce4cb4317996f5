import DeliveryCore
import SluiceModel

/// The world of a seed, and its clock.
///
/// Its parts are in extensions: the service and the devices, the log, the workers, APNs, the store, the faults, and the
/// auditor.
final class World {
    /// Longest life of a push, in milliseconds.
    static let maximumExpiration: Int64 = 3_600_000
    /// Milliseconds after which a healthy world must be done, apart from pushes for devices that never confirm.
    static let healthyMilliseconds: Int64 = 2_400_000

    let seed: UInt64
    let events: Int
    var draw: Draw
    var scenario: Scenario
    var monotonic: UInt64 = 1_000_000_000
    var counts = SimulationCounts()
    var trace: Trace
    var violation: Violation?
    var isHealthy = false
    private var stepTable: [Step] = []

    var log: JobLog
    var jobs: [Job] = []
    var workers: [WorkerModel] = []
    /// The worker that owns each partition, -1 for none.
    var owner: [Int]
    var nextEpoch = 0
    private var nextIncarnation = 0
    var nextCommit = 0

    var tokens: [DeviceToken] = []
    var devices: [Device] = []
    var receipts: [(token: Int, job: Int)] = []
    var lastCreated: Int64 = 0

    var weather: Weather
    var store: StoreModel
    /// Tokens by the low half of their keys.
    var tokenByKey: [UInt64: Int] = [:]
    /// By token: whether a push for it asks for a receipt, so that its device may be presumed to be offline.
    var confirms: [Bool]
    /// By token: the newest presence that records committed as complete have reported.
    var told: [(occurred: ReportTime, isOffline: Bool)]

    /// By identity: the push that was begun last and its assignment; `shown` has the same of the pushes that devices
    /// saw.
    var begun: [Seen] = []
    var shown: [Seen] = []
    /// Cause of the machines' present actions, for the auditor.
    var cause = Cause()
    /// Whether the healthy part met a limit, so that only expirations bound its progress.
    var metLimit = false
    /// Whether the healthy part reports no device, so that pushes waiting for a device end by expiration.
    var isQuiet = false

    init(seed: UInt64, events: Int, _ bounds: SimulationLimits, printsTrace: Bool) {
        self.seed = seed
        self.events = events
        draw = Draw(seed: seed)
        let scenario = Scenario(&draw, bounds)
        self.scenario = scenario
        trace = Trace(prints: printsTrace)
        log = JobLog(partitions: scenario.partitions)
        store = StoreModel(partitions: scenario.partitions, tokens: scenario.tokens)
        confirms = [Bool](repeating: false, count: scenario.tokens)
        told = [(occurred: ReportTime, isOffline: Bool)](
            repeating: (.none, false), count: scenario.tokens)
        owner = [Int](repeating: -1, count: scenario.partitions)
        weather = Weather(scenario)
        begun = [Seen](repeating: Seen(), count: identities)
        shown = begun
        makeDevices()
        for number in 0..<scenario.workers { workers.append(newWorker(number)) }
        for (step, weight) in scenario.weights.sorted(by: { $0.key.rawValue < $1.key.rawValue }) {
            stepTable.append(contentsOf: repeatElement(step, count: weight))
        }
    }

    func newWorker(_ number: Int) -> WorkerModel {
        nextIncarnation += scenario.shards
        return WorkerModel(
            number: number, incarnation: nextIncarnation, scenario, seed: draw.generator.next())
    }

    // MARK: Time

    /// The devices' and the service's clock, in milliseconds since the epoch.
    var trueMilliseconds: Int64 { 1_700_000_000_000 + Int64(monotonic / 1_000_000) }

    /// Returns a worker's clocks.
    func now(_ worker: WorkerModel) -> DeliveryTime {
        DeliveryTime(
            wallMilliseconds: trueMilliseconds + worker.clockError, monotonicNanoseconds: monotonic)
    }

    // MARK: Running

    func run() {
        assignPartitions()
        var attempts = 0
        // A draw that finds nothing to do isn't a step.
        while counts.events < events, attempts < 40 * events, violation == nil {
            attempts += 1
            step(stepTable[draw.below(stepTable.count)])
            if attempts % 512 == 0 { checkAll() }
        }
        guard violation == nil else { return }
        checkAll()
        beHealthy()
        if violation == nil { checkEnd() }
    }

    func happened(_ what: Happening) {
        counts[what] += 1
        counts.events += 1
    }

    func note(_ text: Trace.Text, _ a: Int = 0, _ b: Int = 0, _ c: Int = 0) {
        trace.add(text, a, b, c, at: monotonic)
    }

    func note(
        _ worker: WorkerModel, _ shard: ShardModel, _ text: Trace.Text, _ a: Int = 0, _ b: Int = 0,
        _ c: Int = 0
    ) {
        trace.add(text, a, b, c, at: monotonic, place: worker.number << 8 | shard.number)
    }

    /// Ends the run with the first broken promise.
    func broken(_ promise: Promise, _ what: @autoclosure () -> String) {
        guard violation == nil else { return }
        violation = Violation(
            seed: seed, promise: promise, what: what(), events: counts.events, trace: trace.lines)
    }

    private func step(_ step: Step) {
        switch step {
        case .produce: producePush()
        case .cancel: produceCancel()
        case .presence: changePresence()
        case .token: changeToken()
        case .receipt: sendReceipt()
        case .poll: pollSome(draw.among(1...4))
        case .send: sendSome(draw.among(1...6))
        case .answer: answerSome()
        case .acknowledge: acknowledgeSome(draw.among(1...5))
        case .commit: commitSome()
        case .settleCommit: settleSome()
        case .store: storeSome(draw.among(1...3))
        case .time: passTime()
        case .connectionFault: breakConnection()
        case .limitFlap: flapLimit()
        case .weather: changeWeather()
        case .clockStep: stepClock()
        case .crash: crash(anyWorker())
        case .handOver: handOver()
        case .stop: stop(anyWorker())
        case .offsetReset: resetOffset()
        }
        continueEnding()
        assignPartitions()
    }

    func anyWorker() -> WorkerModel { workers[draw.below(workers.count)] }

    /// Returns a drawn partition and its worker, nil when nobody owns the partition.
    func anyPartition() -> (WorkerModel, Int)? {
        let partition = draw.below(scenario.partitions)
        guard owner[partition] >= 0 else { return nil }
        return (workers[owner[partition]], partition)
    }

    /// Advances the clocks: a little, to the next timer, to the very edge of an expiration, or far.
    private func passTime() {
        let drawn = draw.below(100)
        if drawn < 45 {
            monotonic += UInt64(draw.below(3_000_000))
        } else if drawn < 70 {
            let worker = anyWorker()
            let wake = worker.shards[draw.below(worker.shards.count)].machine.nextWake(after: now(worker))
            monotonic = max(monotonic, min(wake ?? monotonic, monotonic + 20_000_000_000))
        } else if drawn < 85 {
            return passToEdge()
        } else if drawn < 97 {
            monotonic += UInt64(draw.below(500)) * 1_000_000
        } else {
            monotonic += UInt64(draw.below(10_000)) * 1_000_000
        }
        for worker in workers { advance(worker) }
    }

    /// Advances the clocks to the end of the last millisecond before a push expires.
    private func passToEdge() {
        let worker = anyWorker()
        let shard = worker.shards[draw.below(worker.shards.count)]
        // A push that waits for another attempt, if there is any, because its attempt must precede the expiration.
        let first = draw.below(shard.copies.count)
        let count = shard.copies.count
        let found = (0..<count).first { shard.copies[(first + $0) % count].isRetrying }
        let slot = (first + (found ?? 0)) % count
        let copy = shard.copies[slot]
        guard copy.isLive else { return }
        let wait = lastMoment(copy) - 1 - now(worker).wallMilliseconds
        guard wait > 0, wait < 60_000 else { return }
        // The milliseconds of both clocks begin at the same moment.
        monotonic = (monotonic / 1_000_000 + UInt64(wait)) * 1_000_000 + 999_999
        for worker in workers { advance(worker) }
        checkEdge(shard, slot, worker)
    }

    /// Fires the timers of a worker's shell.
    func advance(_ worker: WorkerModel) {
        while violation == nil, draw.chance(700), handDue(worker) {}
        let now = now(worker)
        for shard in worker.shards {
            guard let wake = shard.machine.nextWake(after: now), wake <= now.monotonicNanoseconds else {
                continue
            }
            happened(.timer)
            shard.machine.advance(to: now)
            shard.lastAdvance = monotonic
            drain(worker, shard)
        }
        for partition in owner.indices
        where owner[partition] == worker.number && worker.partitions[partition].isPaused {
            relieve(partition, worker, again: true)
        }
        lookForDue(worker)
    }
}
