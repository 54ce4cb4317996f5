import Admin
import ArgumentParser
import Configuration
import DeliveryCore
import EventLoop
import Foundation
import Gateway
import Logging
import SluiceModel
import Synchronization

struct RunCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "run",
        abstract: "Run a worker: read jobs from Kafka, push them, produce their outcomes.",
        discussion: """
            Any number of workers with the same kafka.group-id share the partitions of the jobs topic.

            SIGTERM or SIGINT stops the worker cleanly. It takes no more jobs and waits up to delivery.drain-deadline for \
            jobs in flight. Then it flushes outcomes, commits offsets and leaves the group. A second signal ends it at \
            once, and another worker processes the jobs in flight again. The first signal behind `sluice ctl drain` is \
            not a second one.

            When Kafka has fenced the worker, for example because a broker was away for long, the worker restarts in \
            the same process: with new Kafka clients, from the committed offsets.

            The files of keys and certificates are watched. A changed file is checked and taken over without a restart; a \
            faulty one is logged, and the credential before stays in use. SIGHUP reads the configuration again for other \
            key files, key identifiers and proxies of the credentials.

            Logs go to standard error (log.level, log.format), never with device tokens, provider tokens or payloads.

            The admin endpoint (admin.listen) answers /livez, /readyz, /metrics and /store over HTTP, from before the \
            worker connects to Kafka until the worker has ended.

            Under systemd (Type=notify) the worker reports READY=1 once it has opened its store and begun to join the \
            group, STOPPING=1 at a stop, and WATCHDOG=1 while /livez answers 200.

            EXIT STATUS
              0   stopped on request, nothing left in flight
              69  Kafka can't be reached at the start, lacks a topic, or refuses a request for good; or the port of \
            admin.listen is in use
              70  a system call failed
              75  stopped on request, with jobs in flight at the drain deadline
              78  the configuration, or a key or certificate that it names, is wrong
            """)

    @Option(
        name: [.short, .long],
        help: ArgumentHelp(
            "Configuration file, YAML or JSON; SLUICE_ variables override it. Without a file all settings come from the "
                + "environment.",
            valueName: "path"))
    var config: String?

    @Option(
        help: ArgumentHelp(
            "Write `ready` to this file once the worker has partitions, and `admin host:port` to a second line if it has an "
                + "admin endpoint. The file is removed at the end.",
            valueName: "path"))
    var readyFile: String?

    @OptionGroup var lifetime: LifetimeOptions

    func run() throws {
        // Memory is protected before a key is read.
        ProcessMemory.setDumpable(false)
        let callersMask = umask(0o077)
        let ready = try readyFile.map { path throws(CommandFailure) in
            try ReadyFile(path: path, callersMask: callersMask)
        }
        let (configuration, places) = try loadConfiguration(config, .start)
        let stop = StopSignals(watchesInput: lifetime.stopWithInput, takesHangup: true)
        let level = LogLevel(configuration.log)
        let logger = Logger(label: "sluice") { _ in LineLogHandler(configuration.log, level: level) }
        protectSecrets(configuration, logger)
        logCertificateFaults(configuration, places, logger)
        let refusedHosts = AdminCounter()
        let endpoints = AdminEndpoints(
            refusedHosts: refusedHosts,
            process: ProcessControl(
                drain: { Self.drain(stop, logger) }, logLevels: LogLevel.names,
                logLevel: { level.level.rawValue },
                setLogLevel: { name in
                    guard LogLevel.names.contains(name) else { return false }
                    // Before, because a higher level would hide the line.
                    logger.notice("an operator sets the log's level", metadata: ["level": "\(name)"])
                    return level.set(name)
                }))
        let admin = try startAdmin(configuration, endpoints, refusedHosts, logger)
        defer { admin?.stop() }
        let socket = try startCommands(configuration, endpoints, logger)
        defer { socket?.stop() }
        let notifier = ServiceNotifier()
        notifier?.reportLife { await endpoints.isLive() }
        let reporting = Reporting(
            logger, configuration.metrics.statsInterval,
            readyFile: ready,
            readyText: ["ready", admin?.address.map { "admin \(AdminAddress(reaching: $0))" }].compactMap {
                $0
            }
            .joined(separator: "\n"))
        let supervisor = WorkerSupervisor(configuration: configuration, logger: logger) { worker in
            endpoints.attach(AdminSource(worker))
            reporting.begin(worker)
            notifier?.report("READY=1", "STATUS=The worker runs")
        } ended: { result in
            reporting.end()
            endpoints.detach()
            logger.notice("worker stopped", metadata: WorkerReporter.metadata(result.snapshot))
        }
        stop.onRequest {
            // No snapshot may be under way when the worker ends.
            reporting.end()
            notifier?.report("STOPPING=1", "STATUS=Jobs in flight finish")
            supervisor.requestStop()
        }
        stop.onHangup { [config] in
            do throws(ConfigurationError) {
                logger.notice("SIGHUP: the configuration's credentials are read again")
                supervisor.renewCredentials(try Configuration.load(path: config))
            } catch {
                logger.error(
                    "the configuration can't be read again; the settings before stay in use",
                    metadata: ["error": "\(error)"])
            }
        }
        let result: WorkerResult
        do {
            result = try supervisor.run()
        } catch let error as WorkerError {
            throw CommandFailure(error)
        } catch {
            throw CommandFailure(.internalError, "\(error)")
        }
        if let failure = result.failure { throw CommandFailure(.unavailable, failure.reason) }
        if result.snapshot.outstanding > 0 {
            throw CommandFailure(
                .unfinished,
                "the drain deadline passed with \(Numbers.counted(result.snapshot.outstanding, "job")) in flight; \(result.snapshot.outstanding == 1 ? "it" : "they") will be processed again"
            )
        }
    }
}

extension RunCommand {
    /// Requests a stop at an operator's command. Its handlers run on a thread of their own, because they wait for the
    /// loops, and the command's answer must be sent meanwhile.
    fileprivate static func drain(_ stop: StopSignals, _ logger: Logger) {
        logger.notice("an operator has asked the worker to drain")
        let thread = Thread { stop.request() }
        thread.name = "drain"
        thread.start()
    }
}

/// Starts the socket for commands if it is configured.
private func startCommands(
    _ configuration: Configuration, _ endpoints: AdminEndpoints, _ logger: Logger
) throws -> AdminServer? {
    guard let path = configuration.admin.socket else { return nil }
    do throws(AdminError) {
        let server = try AdminServer(socket: path, routes: endpoints.routes, commands: endpoints.commands)
        server.start()
        logger.info("admin endpoint listens", metadata: ["socket": "\(path)"])
        return server
    } catch {
        throw CommandFailure(.unavailable, "\(error)")
    }
}

/// Protects memory from other users, or not. Warns of files with secrets that others have rights to.
private func protectSecrets(_ configuration: Configuration, _ logger: Logger) {
    let mayBeDumped = configuration.process.dumpable == .on
    if !ProcessMemory.setDumpable(mayBeDumped) || ProcessMemory.isDumpable != mayBeDumped {
        logger.warning(
            "the system refused to apply process.dumpable",
            metadata: ["setting": "\(configuration.process.dumpable.rawValue)"])
    }
    for exposure in configuration.exposedFiles() {
        logger.warning(
            "users other than the owner have rights to a secret or the store",
            metadata: ["problem": "\(exposure)"])
    }
    logger.info(
        "process protection applied",
        metadata: ["dumpable": "\(ProcessMemory.isDumpable ? "on" : "off")", "umask": "077"])
}

/// Logs certificates that can't serve their apps. The worker serves the other apps.
private func logCertificateFaults(
    _ configuration: Configuration, _ places: SettingPlaces, _ logger: Logger
) {
    for fault in configuration.certificateFaults(places: places) {
        logger.error(
            "a certificate can't serve its apps, whose pushes wait or fail; put a valid certificate into the file",
            metadata: ["problem": "\(fault)"])
    }
}

/// Starts the admin endpoint if it is configured. The endpoint answers from now on.
private func startAdmin(
    _ configuration: Configuration, _ endpoints: AdminEndpoints, _ refusedHosts: AdminCounter,
    _ logger: Logger
) throws -> AdminServer? {
    guard let address = configuration.admin.listen else { return nil }
    let hosts = AllowedHosts(
        listen: address, hostName: AllowedHosts.hostName, more: configuration.admin.allowedHosts)
    do throws(AdminError) {
        let server = try AdminServer(
            address, routes: endpoints.routes, commands: endpoints.commands, hosts: hosts,
            access: configuration.admin.tokenFile.map { .token(file: $0) } ?? .none,
            refusedHosts: refusedHosts)
        server.start()
        logger.info("admin endpoint listens", metadata: ["address": "http://\(server.address ?? address)"])
        return server
    } catch {
        throw CommandFailure(.unavailable, "\(error)")
    }
}

extension CommandFailure {
    init(_ error: WorkerError) {
        switch error {
        case .credential(let text): self.init(.configuration, text)
        case .kafka(let text), .store(let text), .disk(let text): self.init(.unavailable, text)
        case .system(let text): self.init(.internalError, text)
        }
    }
}

/// The running worker's reporter, if a worker runs.
private final class Reporting: Sendable {
    private let reporter = Mutex<WorkerReporter?>(nil)
    private let logger: Logger
    private let interval: Duration
    private let readyFile: ReadyFile?
    /// Content of the ready file.
    private let readyText: String

    init(_ logger: Logger, _ interval: Duration, readyFile: ReadyFile?, readyText: String) {
        self.logger = logger
        self.interval = interval
        self.readyFile = readyFile
        self.readyText = readyText
    }

    func begin(_ worker: Worker) {
        let new = WorkerReporter(
            worker: worker, logger: logger, interval: interval, readyFile: readyFile, readyText: readyText)
        reporter.withLock { $0 = new }
    }

    func end() {
        reporter.withLock { $0 }?.stop()
        readyFile?.remove()
    }
}

/// Logs a worker's counters at an interval, and notices when the worker has partitions.
final class WorkerReporter: Sendable {
    private let isStopped = Mutex(false)

    /// - Parameters:
    ///   - interval: Time between two reports; zero means none.
    ///   - readyText: Content of the ready file.
    init(
        worker: Worker, logger: Logger, interval: Duration, readyFile: ReadyFile?, readyText: String
    ) {
        let thread = Thread { [self] in
            var nextReport = ContinuousClock.now + interval
            var isReady = readyFile == nil
            while true {
                usleep(isReady ? 200_000 : 20_000)
                let reports = interval > .zero && ContinuousClock.now >= nextReport
                if isReady, !reports, !isStopped.withLock({ $0 }) { continue }
                // Holding the lock keeps the worker from ending meanwhile.
                let state = isStopped.withLock {
                    $0
                        ? nil
                        : (
                            worker.snapshot(), reports ? worker.partitionReports() : [],
                            reports ? worker.poolReports() : []
                        )
                }
                guard let (snapshot, partitions, pools) = state else { return }
                if let readyFile, !isReady, snapshot.assignedPartitions > 0 {
                    isReady = true
                    do throws(CommandFailure) {
                        try readyFile.write(readyText)
                    } catch {
                        logger.error(
                            "the ready file can't be written", metadata: ["error": "\(error.message)"])
                    }
                }
                if reports {
                    nextReport += interval
                    logger.info("worker statistics", metadata: WorkerReporter.metadata(snapshot, partitions))
                    for partition in partitions { partition.log(to: logger) }
                    for pool in pools { pool.log(to: logger) }
                }
            }
        }
        thread.name = "reporter"
        thread.start()
    }

    /// Stops the reports. Returns when no snapshot is under way any more.
    func stop() { isStopped.withLock { $0 = true } }

    static func metadata(_ snapshot: WorkerSnapshot, _ partitions: [PartitionReport] = []) -> Logger.Metadata
    {
        var metadata: Logger.Metadata = [
            "partitions": "\(snapshot.assignedPartitions)",
            "jobs": "\(snapshot.counters.records)",
            "finished": "\(snapshot.counters.finished)",
            "outstanding": "\(snapshot.outstanding)",
            "bytes-in-flight": "\(snapshot.intake?.bytesInFlight ?? 0)",
            "pushes": "\(snapshot.totals.sent)",
            "retries": "\(snapshot.totals.retried)",
            "dead-letters": "\(snapshot.totals.deadLetters)",
            "connections": "\(snapshot.totals.openConnections)",
            "unaccounted": "\(snapshot.totals.unaccounted)",
        ]
        for state in ItemState.allCases where state.isLive && snapshot.totals.count(in: state) > 0 {
            metadata["now-\(state)"] = "\(snapshot.totals.count(in: state))"
        }
        if let oldest = partitions.max(by: { $0.headOfLineAge < $1.headOfLineAge }),
            oldest.headOfLineAge > .zero
        {
            metadata["head-of-line-ms"] = "\(oldest.headOfLineMilliseconds)"
            metadata["head-of-line-partition"] = "\(oldest.partition)"
        }
        if let intake = snapshot.intake, intake.hasStore {
            metadata["store-puts"] = "\(snapshot.totals.store.puts)"
            metadata["store-removals"] = "\(snapshot.totals.store.removals)"
            metadata["store-loaded"] = "\(snapshot.totals.store.loaded)"
            metadata["devices-in-store"] = "\(snapshot.totals.evictedDevices)"
            if intake.remainingRecords > 0 { metadata["restoring"] = "\(intake.remainingRecords)" }
            if snapshot.counters.storeFailures > 0 {
                metadata["store-failures"] = "\(snapshot.counters.storeFailures)"
            }
        }
        let paused = partitions.count { !$0.pauseReasons.isEmpty }
        if paused > 0 { metadata["paused-partitions"] = "\(paused)" }
        for kind in OutcomeKind.allCases where snapshot.totals.count(of: kind) > 0 {
            metadata["\(kind.name)"] = "\(snapshot.totals.count(of: kind))"
        }
        return metadata
    }
}
