import APNS
import Admin
import ArgumentParser
import Configuration
import Foundation
import Kafka
import SluiceModel

struct TraceCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "trace",
        abstract: "Show the life of one notification: workers and topics are asked for it.",
        discussion: """
            Where is my notification?
              sluice trace 6f1de4a9-2c7e-4d7a-9a4f-0c1f0a3f6f11 --config sluice.yaml
              sluice trace --device-token 0a1b… --config sluice.yaml --since 6h
              sluice trace 6f1de4a9-… --url worker-0.sluice:9464 --url worker-1.sluice:9464 -b kafka:9092

            Asks each worker for the push in memory and store, then reads outcomes and dead letters since the given time. \
            The job's record is read at its place. When no outcome and no worker names that place, the jobs topic is \
            searched. Superseded pushes are followed to the push that replaced them.

            Without --url the worker of this machine is asked: admin.listen of --config, otherwise 127.0.0.1:9464. Name \
            all workers of the group, because each knows its own pushes only.

            With outcomes.device-token: hash, --device-token needs --config, which names the hash's key.

            A push without an apns-id of its own is found by the identifier in its outcome, which follows from its \
            record's place. Payloads and collapse identifiers are never shown.

            Reads without a consumer group, so that workers and other readers are not disturbed. SIGINT ends the search, \
            and shows what was found.

            EXIT STATUS
              0   something was found
              1   nothing was found; what was searched is shown
              64  the command line is wrong
              69  nothing was found, and Kafka, a topic, or a worker of --url can't be reached
              75  nothing was found before the stop on request
              78  the configuration is wrong
            """)

    @OptionGroup var kafka: ConfiguredKafkaOptions

    @Argument(help: ArgumentHelp("Identifier of the notification.", valueName: "apns-id"))
    var identifier: String?

    @Option(
        help: ArgumentHelp(
            "Show all jobs of this device; with an apns-id, search faster.", valueName: "token"))
    var deviceToken: String?

    @Option(
        help: ArgumentHelp(
            "Admin endpoint of a worker, such as worker-0.sluice:9464. Repeat for each worker.",
            valueName: "host:port"))
    var url: [String] = []

    @Option(
        help: ArgumentHelp(
            "Begin of the search: an age such as 2h, or 2026-03-01T12:00:00Z.", valueName: "time"))
    var since = "1h"

    @Option(
        help: ArgumentHelp(
            "End of the search in the jobs topic, in the same forms. Outcomes are read to their end.",
            valueName: "time"))
    var until: String?

    @Option(help: ArgumentHelp("Most records to read in all.", valueName: "records"))
    var limit = 5_000_000

    @Option(
        help: ArgumentHelp(
            "Longest wait for a worker, or for Kafka's next records, 1 to 300.", valueName: "seconds"))
    var timeout = 20

    @Option(
        help: ArgumentHelp(
            "Topic of jobs (default: the configuration's, else sluice.jobs).", valueName: "name"))
    var jobsTopic: String?

    @Option(
        help: ArgumentHelp(
            "Topic of outcomes (default: the configuration's, else sluice.outcomes).", valueName: "name"))
    var outcomesTopic: String?

    @Option(
        help: ArgumentHelp(
            "Topic of dead letters (default: the configuration's, else sluice.dead-letters).",
            valueName: "name"))
    var deadLettersTopic: String?

    @Flag(help: "Print one JSON document.")
    var json = false

    private static let mostWorkers = 256

    func validate() throws {
        guard identifier != nil || deviceToken != nil else {
            throw ValidationError("give an apns-id or --device-token")
        }
        if let identifier, APNSID(text: identifier) == nil {
            throw ValidationError("`\(identifier)` is not an apns-id: a UUID in its canonical form")
        }
        if let deviceToken, !DeviceToken.isValid(deviceToken) {
            throw ValidationError("--device-token: a device token has \(DeviceToken.grammar)")
        }
        guard (1...300).contains(timeout) else { throw ValidationError("--timeout: 1 to 300 seconds") }
        guard limit > 0 else { throw ValidationError("--limit must be at least 1") }
        guard url.count <= Self.mostWorkers else {
            throw ValidationError("at most \(Self.mostWorkers) addresses")
        }
        for text in url where AdminAddress(text) == nil {
            throw ValidationError("--url: `\(text)` is not \(AdminAddress.grammar)")
        }
        for (option, name) in [
            ("--jobs-topic", jobsTopic), ("--outcomes-topic", outcomesTopic),
            ("--dead-letters-topic", deadLettersTopic),
        ] {
            guard let name, !TopicPartition.isTopicName(name) else { continue }
            throw ValidationError("\(option): `\(name)` is no name of a topic")
        }
        _ = try period(now: 0)
    }

    private func period(now: Int64) throws -> RecordPeriod {
        try RecordPeriod.read(since: since, until: until, now: now)
    }

    func run() throws {
        let stop = StopSignals()
        let configuration = try kafka.loadConfigured()
        var cluster = try kafka.cluster(configuration?.kafka)
        cluster.patience = .seconds(timeout)
        let topics = configuration?.kafka.topics ?? Configuration.Kafka.Topics()
        let settings = TraceRun.Settings(
            identifier: identifier.flatMap { APNSID(text: $0) }, deviceToken: deviceToken,
            tokenHash: deviceToken.flatMap { Self.tokenHash(of: $0, configuration?.outcomes) },
            workers: TraceWorkers(addresses: try addresses(configuration), patience: .seconds(timeout)),
            cluster: cluster, jobs: jobsTopic ?? topics.jobs,
            outcomes: outcomesTopic ?? topics.outcomes, deadLetters: deadLettersTopic ?? topics.deadLetters,
            group: configuration?.kafka.groupID, period: try period(now: Self.now), limit: limit)
        let run = TraceRun(settings, stop: stop)
        run.run()
        let report = TraceReport(
            jobs: run.book.sorted, searches: run.searches, replies: run.replies,
            readFailure: run.readFailure, isLimited: run.isLimited, isTruncated: run.book.isTruncated,
            isAbridged: run.book.isAbridged, isStopped: run.isStopped,
            mayLackHash: deviceToken != nil && configuration == nil, limit: limit, deviceToken: deviceToken,
            now: Self.now)
        if json {
            Terminal.output(JSONText.of(report.document))
        } else {
            for line in report.lines where !Terminal.output(line) { break }
        }
        guard report.jobs.isEmpty else { return }
        if run.isStopped {
            throw CommandFailure(.unfinished, "stopped before the end, and nothing was found until then")
        }
        if let fault = report.kafkaFailure { throw CommandFailure(.unavailable, fault) }
        // Without --url the worker of this machine is only tried.
        if !url.isEmpty, let fault = report.workerFailure { throw CommandFailure(.unavailable, fault) }
        throw CommandFailure(.failure)
    }

    /// Returns the hash that stands for a device token; nil where outcomes have the token itself.
    static func tokenHash(of token: String, _ outcomes: Configuration.Outcomes?) -> String? {
        guard let outcomes, outcomes.deviceToken == .hash else { return nil }
        return DeviceTokenHash(key: outcomes.hashKey).text(of: token)
    }

    private static var now: Int64 { Int64(Date().timeIntervalSince1970 * 1_000) }

    /// Returns the workers' endpoints: the named ones, or that of this machine's worker. None when the configuration
    /// turns the endpoint off or lets it have any port.
    private func addresses(_ configuration: Configuration?) throws -> [AdminAddress] {
        if !url.isEmpty {
            var list: [AdminAddress] = []
            for address in url.compactMap({ AdminAddress($0) }) where !list.contains(address) {
                list.append(address)
            }
            return list
        }
        return
            (try? AdminAddress.ofThisMachine(
                option: nil, config: kafka.config, environment: ProcessInfo.processInfo.environment)).map {
                [$0]
            } ?? []
    }
}
