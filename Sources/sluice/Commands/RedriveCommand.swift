import Admin
import ArgumentParser
import Configuration
import Foundation
import Kafka
import SluiceModel

struct RedriveCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "redrive",
        abstract: "Produce the jobs of dead letters or outcomes again, each once.",
        discussion: """
            After a fault that is repaired (a wrong topic, a missing credential, a producer's mistake):
              sluice redrive -c sluice.yaml --dead-letters --where rule=topic-suffix --dry-run
              sluice redrive -c sluice.yaml --dead-letters --where rule=topic-suffix
              sluice redrive -c sluice.yaml --outcomes undeliverable --since 2h

            A dead letter is produced with its key, value and headers, but without the headers that Sluice had added. An \
            outcome has no payload, so its job is read at its topic, partition and offset. A job that retention has removed \
            is reported as gone. Each job goes to the topic and partition that it came from; --to names another topic. The \
            header sluice-redriven names the dead letter or outcome, and counts.

            A job isn't sent when this version calls it invalid, its life since its first production is over, its record has \
            a later outcome, or the workers' group hasn't committed the record yet. A push isn't sent when a newer one of its \
            identity was accepted, cancelled or erased. The outcomes from --since to now show it; the report counts jobs for \
            which they can't.

            A ledger keeps what was redriven: the topic TOPIC-redriven, which is created with cleanup.policy=compact. A \
            later run skips its entries, and a second record of the same job. Job and entry are in one transaction, and a \
            second redrive with the same ledger fences the first.

            The command ends at the topic's end as of its start. SIGINT ends it early: what is done is in the ledger. When \
            Kafka doesn't answer within --timeout, the command reports what was done. Run it again for the rest.

            CONDITIONS
              Different fields of --where must all match; of one field, any value.
              both          app, topic, push-type, apns-id, partition, source-topic
              dead letters  rule, field
              outcomes      outcome, reason, cause, status, environment

            EXIT STATUS
              0   all selected records were redriven, or skipped for a reported cause
              1   a job was not produced
              69  Kafka or a topic can't be reached, or another redrive has fenced this one
              75  stopped on request before the end, whatever happened until then
              78  the configuration, or the ledger's cleanup.policy, is wrong
            """)

    @OptionGroup var kafka: ConfiguredKafkaOptions

    @Flag(help: "Redrive dead letters: the records that are not valid jobs.")
    var deadLetters = false

    @Option(
        help: ArgumentHelp(
            "Redrive the jobs of outcomes: undeliverable, rejected or expired, separated by commas.",
            valueName: "kinds"))
    var outcomes: String?

    @Option(
        help: ArgumentHelp(
            "Kafka topic with the dead letters or outcomes (default: the configuration's, else sluice.dead-letters or "
                + "sluice.outcomes).",
            valueName: "name"))
    var topic: String?

    @Option(
        name: .customLong("where"),
        help: ArgumentHelp("Condition, such as reason=BadTopic. Repeat for more.", valueName: "field=value"))
    var conditions: [String] = []

    @Option(
        help: ArgumentHelp(
            "Only records from this time on: an age such as 2h, or 2026-03-01T12:00:00Z.", valueName: "time"))
    var since: String?

    @Option(help: ArgumentHelp("Only records before this time, in the same forms.", valueName: "time"))
    var until: String?

    @Flag(help: "Report what would be redriven, and change nothing.")
    var dryRun = false

    @Option(
        help: ArgumentHelp(
            "Longest wait for an answer of Kafka, 1 to 3600. A batch waits for up to three answers.",
            valueName: "seconds"))
    var timeout = 60

    @Option(help: ArgumentHelp("Highest number of jobs per second, 0.001 to 1000000.", valueName: "jobs/s"))
    var rate: Double?

    @Option(
        help: ArgumentHelp(
            "Topic to produce to (default: the topic that each job came from).", valueName: "name"))
    var to: String?

    @Option(
        help: ArgumentHelp("Topic of the ledger (default: TOPIC-redriven).", valueName: "name"))
    var ledger: String?

    @Flag(help: "Also send what the ledger names.")
    var again = false

    @Flag(help: "Also send records that are no valid jobs by this version's rules.")
    var invalid = false

    @Option(
        help: ArgumentHelp(
            "Topic of the jobs' outcomes, for later ones (default: the configuration's, else sluice.outcomes).",
            valueName: "name"))
    var outcomesTopic: String?

    @Option(
        help: ArgumentHelp(
            "Consumer group of the workers (default: the configuration's, else sluice).", valueName: "name"))
    var group: String?

    @Flag(help: "Print the report as one JSON document.")
    var json = false

    func validate() throws {
        guard deadLetters != (outcomes != nil) else {
            throw ValidationError("give either --dead-letters or --outcomes KINDS")
        }
        _ = try kinds()
        try Pace.validate(rate)
        guard (1...3_600).contains(timeout) else { throw ValidationError("--timeout: 1 to 3600 seconds") }
        for (option, name) in [
            ("--topic", topic), ("--to", to), ("--ledger", ledger), ("--outcomes-topic", outcomesTopic),
        ] {
            guard let name, !TopicPartition.isTopicName(name) else { continue }
            throw ValidationError("\(option): `\(name)` is no name of a topic")
        }
        _ = try period(now: 0)
    }

    private var origin: RedriveOrigin { deadLetters ? .deadLetters : .outcomes }

    private func kinds() throws -> Set<OutcomeKind> {
        guard let outcomes else { return [] }
        let allowed: [OutcomeKind] = [.undeliverable, .rejected, .expired]
        return try Set(
            outcomes.split(separator: ",", omittingEmptySubsequences: false).map { name in
                guard let kind = allowed.first(where: { $0.name.description == name }) else {
                    throw ValidationError(
                        "--outcomes: `\(name)` can't be redriven; choose of "
                            + allowed.map(\.name.description).joined(separator: ", "))
                }
                return kind
            })
    }

    private func period(now: Int64) throws -> RecordPeriod {
        try RecordPeriod.read(since: since, until: until, now: now)
    }

    func run() throws {
        let stop = StopSignals()
        let run = RedriveRun(try settings(), stop: stop)
        do {
            try run.run()
        } catch let failure as CommandFailure {
            report(run)
            // A stop ends the wait for brokers that are away.
            guard run.isStopping, failure.status == .unavailable else { throw failure }
            throw CommandFailure(.unfinished, "stopped before the end; \(failure.message)")
        }
        report(run)
        let faults = run.tally[.failed] > 0 ? faults(run) : nil
        if !run.isComplete {
            throw CommandFailure(
                .unfinished,
                "stopped before the end; run the command again for the rest"
                    + (faults.map { "; \($0)" } ?? ""))
        }
        if let faults { throw CommandFailure(.failure, faults) }
    }

    private func faults(_ run: RedriveRun) -> String {
        let count = run.tally[.failed]
        return "\(Numbers.counted(count, "job")) "
            + (dryRun ? "can't be produced" : "\(count == 1 ? "was" : "were") not produced")
            + (run.firstFault.map { ": \($0)" } ?? "")
    }

    private func settings() throws -> RedriveRun.Settings {
        let configuration = try kafka.loadConfigured()
        let topics = configuration?.kafka.topics ?? Configuration.Kafka.Topics()
        let topic = topic ?? (deadLetters ? topics.deadLetters : topics.outcomes)
        let ledger = ledger ?? "\(topic)-redriven"
        guard TopicPartition.isTopicName(ledger) else {
            throw CommandFailure(
                .configuration,
                "the ledger's name `\(ledger)` is too long for a topic; name another by --ledger")
        }
        let others = [
            topic, topics.deadLetters, topics.outcomes, topics.jobs, topics.changelog, topics.switches,
        ]
        guard !others.contains(ledger) else {
            throw CommandFailure(
                .configuration, "--ledger \(ledger): the ledger must be a topic of its own; name another")
        }
        if let to, to == topic || to == ledger {
            throw CommandFailure(
                .configuration,
                "--to \(to): jobs can't be produced to the topic of \(origin.rawValue) or the ledger")
        }
        let apps = RedriveApps(configuration?.apps ?? [])
        let filter: RedriveFilter
        do throws(RedriveFilter.Mistake) {
            filter = try RedriveFilter(conditions, origin: origin, apps: apps)
        } catch {
            throw ValidationError(error.text)
        }
        var cluster = try kafka.cluster(configuration?.kafka)
        cluster.patience = .seconds(timeout)
        var producer = KafkaProperties([
            (name: "partitioner", value: "murmur2_random"), (name: "linger.ms", value: "5"),
        ])
        .overridden(by: cluster.properties)
        for property in configuration?.kafka.producerProperties ?? [] {
            producer[property.name] = property.value
        }
        let jobs = configuration?.jobs ?? Configuration.Jobs()
        return RedriveRun.Settings(
            origin: origin, topic: topic,
            outcomes: outcomesTopic ?? (deadLetters ? topics.outcomes : topic),
            group: group ?? configuration?.kafka.groupID ?? "sluice", ledger: ledger, destination: to,
            filter: filter, period: try period(now: Int64(Date().timeIntervalSince1970 * 1_000)),
            kinds: try kinds(), sendsAgain: again, sendsInvalid: invalid, isDryRun: dryRun, rate: rate,
            apps: apps,
            decoding: JobDecoder.Settings(
                passedHeaders: PassedHeaderNames(jobs.passHeaders),
                clockToleranceMilliseconds: Int64(jobs.clockTolerance / .milliseconds(1))),
            cluster: cluster, producerProperties: producer,
            replicationFactor: configuration?.kafka.createTopics?.replicationFactor ?? -1)
    }

    private func report(_ run: RedriveRun) {
        if json {
            var document = run.tally.document(of: origin)
            document["run"] = run.identifier
            document["ledger-entries"] = run.ledgerCount
            document["complete"] = run.isComplete
            Terminal.output(JSONText.of(document))
            return
        }
        for line in run.tally.lines(of: origin) { Terminal.output(line) }
    }
}
