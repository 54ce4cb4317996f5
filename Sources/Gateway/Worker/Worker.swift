import APNS
import Configuration
import DeliveryCore
import EventLoop
import HTTP2
import Kafka
import Logging
import RetryStore
import SluiceModel
import StoreEncryption
import Synchronization

/// Reason for which a worker could not start: the fault, its place, and the remedy.
public enum WorkerError: Error, Sendable, CustomStringConvertible {
    /// A key, certificate or other file of the configuration is not usable.
    case credential(String)
    /// Kafka could not be reached, or lacks something the worker needs.
    case kafka(String)
    /// The store can't be opened.
    case store(String)
    /// The store can't be opened for now, because of its disk.
    case disk(String)
    /// The system refused a resource, descriptors for instance.
    case system(String)

    public var description: String {
        switch self {
        case .credential(let text), .kafka(let text), .store(let text), .disk(let text), .system(let text):
            text
        }
    }
}

/// End of a worker.
public struct WorkerResult: Sendable {
    /// Nil after an orderly stop; otherwise the reason for which the worker had to stop.
    public var failure: WorkerFailure?
    /// State at the end, before the loops ended.
    public var snapshot: WorkerSnapshot
}

/// Gateway process that consumes jobs, pushes them and produces their outcomes until it is asked to stop.
///
/// ```
/// let worker = try Worker(configuration: configuration, logger: logger)
/// try worker.start()
/// let result = worker.waitUntilStopped()   // requestStop() from a signal handler's thread
/// ```
public final class Worker: Sendable {
    let configuration: Configuration
    private let logger: Logger
    let intake: Intake
    let shards: [Shard]
    private let bytesInFlight: InFlightBytes
    let credentials: CredentialKeeper
    /// Keys of the store's encryption; nil: it is off.
    let storeKeys: StoreKeyKeeper?
    private let watcher = CredentialWatcher()
    /// Pauses of operators.
    public let switches: SwitchBoard
    /// Store, open until the worker's end. Nil without a store: items that wait for long then wait in memory.
    package let store: RetryStore?
    private let stopped = BlockingFlag()
    private let failure: FailureBox
    private let lastSnapshot = SnapshotBox()

    private final class SnapshotBox: Sendable {
        let snapshot = Mutex<WorkerSnapshot?>(nil)
    }

    private final class FailureBox: Sendable {
        let failure = Mutex<WorkerFailure?>(nil)
    }

    /// Makes and checks the worker's parts: keys, certificates, Kafka and its topics. Blocks until Kafka answers, at
    /// most some ten seconds.
    ///
    /// - Parameter restarts: the count of workers that failed in this process before.
    public convenience init(configuration: Configuration, logger: Logger, restarts: Int = 0) throws {
        try self.init(
            configuration: configuration, logger: logger, restarts: restarts,
            bounds: WorkerBounds())
    }

    /// - Parameters:
    ///   - bounds: bounds that no setting has.
    ///   - tokens: times of provider tokens.
    ///   - credentials: those of a worker before in this process; nil loads their files.
    ///   - switches: changes of switches by a worker before in this process that nothing else keeps.
    ///   - storeKeys: those of a worker before in this process; nil loads their file.
    init(
        configuration: Configuration, logger: Logger, restarts: Int = 0,
        bounds: WorkerBounds = WorkerBounds(), tokens: ProviderTokenPolicy.Settings = .init(),
        credentials: CredentialKeeper? = nil,
        storeKeys: StoreKeyKeeper? = nil, switches carried: [SwitchRecord] = []
    ) throws {
        self.configuration = configuration
        self.logger = logger
        let failure = FailureBox()
        let bytesInFlight = InFlightBytes()
        self.failure = failure
        self.bytesInFlight = bytesInFlight

        let permit = SendPermit(until: MonotonicTime(nanoseconds: 0))
        let pushes = PushAllowance()
        let planner = CredentialPoolPlanner(configuration, permit: permit)
        let credentials =
            try credentials ?? CredentialKeeper(configuration, tokens: tokens, logger: logger)
        self.credentials = credentials
        let storeKeys =
            try storeKeys
            ?? configuration.store?.encryption.map { settings throws(WorkerError) in
                try StoreKeyKeeper(settings, logger: logger)
            }
        self.storeKeys = storeKeys
        let (pools, routes) = try planner.plan(credentials)
        let properties = KafkaSetup(configuration.kafka)
        try properties.prepareTopics(changelog: configuration.store?.hasChangelog == true, logger: logger)

        let port = IntakePort()
        let peers = ShardPeers()
        var opened: RetryStore?
        do {
            let log = logger
            let events: @Sendable (KafkaProducerEvent) -> Void = { event in
                Worker.pass(event, to: port, log)
            }
            let store = try Self.openStore(configuration, storeKeys?.keyring, logger: logger)
            self.store = store
            opened = store
            switches = try SwitchBoard(
                properties.switchesHome(
                    configuration.store, required: configuration.switches.required == .on, logger: logger),
                carried: carried, logger: logger)
            let pauses = switches.switches
            let topics = configuration.kafka.topics
            let hasChangelog = configuration.store?.hasChangelog == true
            let largestBatches = properties.largestBatches(
                of: [topics.outcomes, topics.deadLetters] + (hasChangelog ? [topics.changelog] : []))
            let producerProperties = properties.producer(largestBatches: largestBatches)
            var transactional: TransactionalProducer?
            if let store, configuration.store?.hasTransactions == true {
                transactional = try TransactionalProducer(
                    properties: producerProperties,
                    transactionalID: "\(configuration.kafka.groupID)-\(store.identity)", events: events)
            }
            let producer =
                try transactional?.producer ?? KafkaProducer(properties: producerProperties, events: events)
            let outcomes = try producer.topic(
                topics.outcomes, largestBatch: largestBatches[topics.outcomes] ?? .max)
            let deadLetters = try producer.topic(
                topics.deadLetters, largestBatch: largestBatches[topics.deadLetters] ?? .max)
            let changelog = hasChangelog ? try producer.topic(topics.changelog) : nil
            let delivery = configuration.delivery
            // A shard may hold all jobs. A store needs slots for returning items besides.
            let capacity =
                delivery.maxInFlight + bounds.spareSlots + (store == nil ? 0 : bounds.residency.room)
            var limits = try planner.limits(capacity: capacity)
            limits.residentMilliseconds = bounds.residentMilliseconds
            var residency = bounds.residency
            limits.restoredPushes = residency.restored
            residency.hasStore = store != nil
            residency.capacity = capacity
            residency.itemsPerLoad = min(limits.pendingPerDevice, residency.room)
            var random = ProcessRandom()
            let hasher = store?.hasher ?? IdentityHasher(key0: random.next(), key1: random.next())
            let mode: StoreMode =
                store == nil
                ? .none : changelog == nil ? .local : transactional == nil ? .changelog : .transactions
            let tokenHash = try Self.tokenHash(configuration.outcomes)
            let parts = ShardProducer.Parts(
                producer: producer, outcomes: outcomes, deadLetters: deadLetters, changelog: changelog,
                isTransactional: transactional != nil, tokenHash: tokenHash,
                reportHasher: store == nil ? nil : hasher, permit: permit, fail: { port.fail($0, $1) })
            shards = try (0..<delivery.shards).map { index in
                let plan = ShardPlan(
                    index: index, shards: delivery.shards, mode: mode,
                    recordsPerTurn: bounds.recordsPerTurn, limits: limits, residency: residency,
                    hasher: hasher, sourceTopic: configuration.kafka.topics.jobs,
                    decoding: .init(
                        passedHeaders: PassedHeaderNames(configuration.jobs.passHeaders),
                        clockToleranceMilliseconds: Int64(
                            configuration.jobs.clockTolerance / .milliseconds(1))),
                    pools: pools,
                    routes: routes, appLimits: planner.appLimits(),
                    appNames: configuration.apps.map(\.name), coalesceWindows: planner.coalesceWindows(),
                    supersededStates: planner.supersededStates(),
                    collapsesRepeats: configuration.apps.map {
                        $0.missingCollapseIdentifier == .apnsID
                    }, switches: pauses)
                return try Shard(
                    plan: plan, producer: parts, bytesInFlight: bytesInFlight, permit: permit,
                    pushes: pushes, store: store, port: port, peers: peers, logger: logger)
            }
            let stopped = stopped
            var restorer: ChangelogRestorer?
            if let store, changelog != nil {
                restorer = try ChangelogRestorer(
                    store: store, topic: configuration.kafka.topics.changelog,
                    properties: properties.changelogReader, logger: logger,
                    extend: { properties.extendChangelog(logger: logger) },
                    renewKeys: { storeKeys?.renew() },
                    news: { news in port.receive(news) })
            }
            intake = try Intake(
                settings: .init(
                    mode: mode, shards: delivery.shards, maximumInFlight: delivery.maxInFlight,
                    maximumBytes: delivery.maxInFlightBytes, commitInterval: delivery.commitInterval,
                    transactionInterval: configuration.store?.transactionInterval ?? .milliseconds(200),
                    drainDeadline: delivery.drainDeadline,
                    revokeDeadline: min(
                        delivery.drainDeadline, .seconds(10), properties.longestRevocation),
                    partitionShare: delivery.partitionShare,
                    sessionTimeout: properties.sessionTimeout,
                    readsFromBeginning: properties.readsFromBeginning, fetchLimits: properties.fetchLimits,
                    longestAbsence: bounds.longestAbsence, spanLimit: bounds.spanLimit,
                    window: .init(delivery, first: bounds.firstPushes)),
                parts: .init(
                    consumerProperties: properties.consumer, jobsTopic: configuration.kafka.topics.jobs,
                    outcomes: outcomes, deadLetters: deadLetters, producer: producer,
                    transactional: transactional, shards: shards, bytesInFlight: bytesInFlight,
                    permit: permit, pushes: pushes, hasher: hasher, hashesTokens: tokenHash != nil,
                    store: store,
                    restorer: restorer, loop: EventLoop(name: "kafka"), logger: logger, restarts: restarts,
                    isAllPaused: pauses.pausesAll)
            ) { reason in
                failure.failure.withLock { $0 = reason }
                stopped.set()
            }
            port.connect(to: intake)
            peers.connect(to: shards)
            storeKeys?.connect { [weak self] keyring throws(RetryStoreError) in try self?.use(keyring) }
        } catch {
            // A purge may hold the store, and the next worker of this process needs its lock.
            opened?.close()
            switch error {
            case let error as KafkaError: throw WorkerError.kafka("\(error)")
            case let error as SwitchFile.Failure: throw WorkerError.store("\(error)")
            case let error as SystemError: throw WorkerError.system("\(error)")
            default: throw error
            }
        }
    }

    /// Returns nil when outcomes and dead letters have device tokens in the clear.
    private static func tokenHash(_ outcomes: Configuration.Outcomes) throws(WorkerError) -> DeviceTokenHash?
    {
        guard outcomes.deviceToken == .hash else { return nil }
        guard outcomes.hashKey.count >= DeviceTokenHash.shortestKey else {
            throw .credential("outcomes.hash-key-file: the key has fewer than 32 bytes")
        }
        return DeviceTokenHash(key: outcomes.hashKey)
    }

    /// Starts the threads. Call it once.
    public func start() {
        for shard in shards { shard.start() }
        intake.start()
        switches.start { [shards, intake] switches in
            for shard in shards { shard.loop.execute { shard.apply(switches) } }
            intake.loop.execute { intake.setAllPaused(switches.pausesAll) }
        }
        credentials.warnOfExpiries(at: ClockReading.now().wallSeconds)
        watcher.start(files: { [credentials, storeKeys] in
            credentials.files.union(storeKeys.map { [$0.file] } ?? [])
        }) { [self] step in
            renewCredentials(reportsFaults: step == .settled)
            credentials.warnOfExpiries(at: ClockReading.now().wallSeconds)
        }
        logger.info(
            "worker started",
            metadata: [
                "shards": "\(shards.count)", "apps": "\(configuration.apps.count)",
                "jobs-topic": "\(configuration.kafka.topics.jobs)", "group": "\(configuration.kafka.groupID)",
                "credentials":
                    "\(credentials.reports.map { "\($0.name) (\($0.environment.rawValue))" }.joined(separator: ", "))",
            ])
    }

    /// Looks at the files of the credentials and of the store's keys, and takes changed ones over: new connections use
    /// them, and replace those before. A faulty file is logged and counted, and the credential or the keys before stay
    /// in use. Any thread but a loop's.
    ///
    /// - Parameter configuration: settings that may name other files and keys; nil means those before.
    public func renewCredentials(_ configuration: Configuration? = nil) {
        renewCredentials(configuration, reportsFaults: true)
    }

    private func renewCredentials(_ configuration: Configuration? = nil, reportsFaults: Bool) {
        storeKeys?.renew(reportsFaults: reportsFaults)
        let renewed = credentials.renew(configuration, reportsFaults: reportsFaults)
        guard !renewed.isEmpty else { return }
        for shard in shards { shard.loop.execute { shard.renew(renewed) } }
    }

    /// Takes the store's keys over. The store records them before a value is written under them.
    private func use(_ keyring: StoreKeyring) throws(RetryStoreError) {
        try store?.use(keyring)
        for shard in shards { shard.loop.execute { shard.use(keyring) } }
        intake.restorer?.use(keyring)
    }

    /// State of the store's keys; nil without encryption. Any thread.
    public var storeKeyReport: StoreKeyReport? { storeKeys?.report }

    /// States of the worker's credentials, by name. Any thread.
    public var credentialReports: [CredentialReport] { credentials.reports }

    /// Requests an orderly stop. Jobs in flight end within the drain deadline, offsets are committed, and the worker
    /// leaves the group. Any thread; returns at once.
    public func requestStop() {
        intake.stopNote.note(at: .read())
        intake.loop.execute { [intake] in intake.stop() }
    }

    /// Waits for the worker's end, whatever caused it, and ends the threads.
    public func waitUntilStopped() -> WorkerResult {
        stopped.wait()
        watcher.stop()
        switches.close()
        let last = snapshot()
        lastSnapshot.snapshot.withLock { $0 = last }
        for shard in shards {
            shard.loop.stop()
            shard.loop.join()
            shard.notices.end()
        }
        intake.loop.stop()
        intake.loop.join()
        intake.notices.end()
        closeStore()
        return WorkerResult(failure: failure.failure.withLock { $0 }, snapshot: last)
    }

    private static func openStore(
        _ configuration: Configuration, _ keyring: StoreKeyring?, logger: Logger
    ) throws(WorkerError) -> RetryStore? {
        guard let store = configuration.store else { return nil }
        var settings = RetryStore.Settings(
            directory: store.directory, sourceTopic: configuration.kafka.topics.jobs)
        settings.blockCacheBytes = store.cacheBytes
        settings.memtableBytes = store.writeBufferBytes
        settings.isChangelogBacked = store.hasChangelog
        settings.keyring = keyring
        settings.purgeAfter = store.purgeAfter
        do throws(RetryStoreError) {
            let opened = try RetryStore(settings)
            opened.observePurges { Self.log($0, logger) }
            for exposure in opened.exposures {
                logger.warning(
                    "users other than the owner have rights to a secret or the store",
                    metadata: ["problem": "\(exposure)"])
            }
            if !opened.copiesWithoutKey.isEmpty {
                logger.warning(
                    """
                    copies of partitions have values of a key that the key file lacks; they are restored from the changelog \
                    when their partitions are taken over
                    """,
                    metadata: [
                        "partitions": "\(opened.copiesWithoutKey.map { "\($0)" }.joined(separator: ","))"
                    ])
            }
            logger.info(
                "store opened",
                metadata: [
                    "directory": "\(store.directory)",
                    "partitions": "\(opened.partitions.map { "\($0.number)" }.joined(separator: ","))",
                    "encrypts": "\(keyring.map { $0.encrypts ? $0.primary.name : "off" } ?? "off")",
                ])
            return opened
        } catch {
            throw error.isTransient ? .disk("\(error)") : .store("\(error)")
        }
    }

    private static func log(_ purge: PurgeStatus.End, _ logger: Logger) {
        switch purge.outcome {
        case .purged:
            logger.info(
                "a partition of the store was purged of removed data",
                metadata: [
                    "partition": "\(purge.partition)", "seconds": "\(Double(purge.duration) / 1e3)",
                ])
        case .dropped:
            logger.info(
                "a purge ended because the store no longer has the partition's files",
                metadata: ["partition": "\(purge.partition)"])
        case .failed(let failure):
            logger.warning(
                "a partition of the store can't be purged of removed data; retrying",
                metadata: ["partition": "\(purge.partition)", "error": "\(failure)"])
        }
    }

    /// Closes the store. The threads have ended, so nothing else uses the store.
    private func closeStore() {
        intake.restorer?.close()
        for shard in shards { shard.storage?.forgetPartitions() }
        intake.forgetStores()
        store?.close()
    }

    /// Returns counters and state of this moment, or of the worker's end if it has ended. Blocks for a turn of each
    /// loop. Call it after ``start()``, from any thread but a loop's.
    public func snapshot() -> WorkerSnapshot {
        var snapshot = WorkerSnapshot()
        for (index, shard) in shards.enumerated() {
            guard let counters = shard.loop.runBlockingIfRunning({ shard.snapshot() }) else {
                return finalSnapshot
            }
            snapshot.add(.shard(index, counters))
        }
        guard let state = intake.loop.runBlockingIfRunning({ [intake] in intake.snapshot() }) else {
            return finalSnapshot
        }
        snapshot.add(.intake(state))
        return snapshot
    }

    /// Returns the present state of all pools; empty after the worker's end. Blocks for a turn of each loop. Call it
    /// after ``start()``, from any thread but a loop's.
    public func poolReports() -> [PoolReport] {
        shards.flatMap { shard in shard.loop.runBlockingIfRunning { shard.poolReports() } ?? [] }
    }

    /// Returns the present state of all assigned partitions, in order; empty after the worker's end. Blocks for a turn
    /// of the Kafka loop. Call it after ``start()``, from any thread but a loop's.
    public func partitionReports() -> [PartitionReport] {
        intake.loop.runBlockingIfRunning { [intake] in intake.partitionReports() } ?? []
    }

    /// Totals, which are taken before the loops end; empty if the loops ended in another way.
    private var finalSnapshot: WorkerSnapshot { lastSnapshot.snapshot.withLock { $0 } ?? WorkerSnapshot() }

    private static func pass(_ event: KafkaProducerEvent, to port: IntakePort, _ logger: Logger) {
        switch event {
        case .error(let error) where error.isFatal: port.fail("the Kafka producer failed: \(error)", error)
        case .error(let error): port.warn(ofProducer: error)
        case .log(let line):
            logger.log(
                level: line.level <= 3
                    ? .error : line.level == 4 ? .warning : line.level <= 6 ? .info : .debug,
                "librdkafka producer wrote a log line",
                metadata: ["facility": "\(line.facility)", "text": "\(line.message)"])
        case .statistics(let text): port.note(statistics: text)
        }
    }
}
