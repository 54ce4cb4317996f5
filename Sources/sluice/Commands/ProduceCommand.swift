import ArgumentParser
import Foundation
import Kafka
import SluiceModel

struct ProduceCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "produce",
        abstract: "Produce notification jobs: one job from options, or a file of JSON lines.",
        discussion: """
            One job:
              sluice produce --device-token $TOKEN --topic com.example.news --alert "Hello"
              sluice produce --device-token $TOKEN --kind device --event offline
              sluice produce --device-token $TOKEN --kind device --event erase --all-partitions
              sluice produce --device-token $TOKEN --kind cancel --topic com.example.news --collapse-id x
              sluice produce --kind broadcast --channel-id $CHANNEL --topic com.example.news --ttl 0 \
                --payload '{"aps":{"event":"update","timestamp":1893450000,"content-state":{"home":2}}}'

            A file with a job in structured mode on each line; `-` is standard input:
              sluice produce --file jobs.jsonl --rate 5000
              {"kind":"push","device-token":"…","topic":"com.example.news",
               "push-type":"alert","payload":{"aps":{"alert":"Hi"}}}   (on one line)
              sluice produce --file jobs.jsonl --mode packed   (encodes them in packed mode)

            Jobs are checked by the worker's rules before they are produced. --no-check produces invalid jobs too, for \
            example to see their dead letters. A line that has no form in the mode of --mode is left out, and so is a line of \
            more than 4 MiB. A record that Kafka refuses as too large is reported with its line; the others are produced.

            EXIT STATUS
              0   every record was acknowledged by Kafka
              1   a record was not acknowledged (the summary says how many)
              65  a job is not valid, and invalid lines were left out; or the input can't be read
              69  Kafka or the topic can't be reached
              75  stopped on request before the end of the input; the summary names the line
              78  a property given with -X is wrong
            """)

    @OptionGroup var kafka: KafkaOptions

    @Option(help: "Kafka topic of the jobs.")
    var jobsTopic = "sluice.jobs"

    @Option(
        name: [.short, .long],
        help: ArgumentHelp(
            "File of jobs in structured mode, one on each line; `-`: standard input.", valueName: "path"))
    var file: String?

    @Option(
        help: ArgumentHelp(
            "Encoding of the jobs: payload and headers (default for one job); payload after lines of fields, the cheapest "
                + "for workers; or one JSON document (default for --file)."))
    var mode: JobMode?

    @Option(help: ArgumentHelp("Highest number of jobs per second.", valueName: "jobs/s"))
    var rate: Double?

    @Flag(inversion: .prefixedNo, help: "Check jobs before they are produced.")
    var check = true

    @Flag(
        help: ArgumentHelp(
            "With --event erase: produce the event into every partition. It then reaches pushes that moved to the token, "
                + "which lie in the partition of their first token."))
    var allPartitions = false

    @Option(help: ArgumentHelp("Longest wait for acknowledgements at the end.", valueName: "seconds"))
    var timeout: Int = 30

    @OptionGroup(title: "One job") var job: JobOptions

    func validate() throws {
        if file != nil, job.isGiven {
            throw ValidationError("--file and the options of one job exclude each other; omit one of them")
        }
        if allPartitions, job.kind != .device || job.event != "erase" {
            throw ValidationError("--all-partitions is only for --kind device --event erase")
        }
        if file == nil { try job.validateComplete() }
        try Pace.validate(rate)
        guard (1...3_600).contains(timeout) else { throw ValidationError("--timeout: 1 to 3600 seconds") }
    }

    func run() throws {
        let stop = StopSignals()
        // A mistake in a single job is found before anything is connected.
        let single = try file == nil ? job.encoded(in: mode ?? .binary) : nil
        let rules = JobCheck()
        if check, let single, let error = rules.error(in: single) {
            throw CommandFailure(.dataError, "the job is not valid: \(error)")
        }
        let lines = try file.map { path throws(CommandFailure) in try LineReader(path: path) }
        let cluster = kafka.cluster
        let partitions = try cluster.partitionCount(of: jobsTopic)
        let producer = try RecordProducer(topic: jobsTopic, properties: cluster.properties) { error in
            Terminal.error("sluice: Kafka: \(error)")
        }
        if let single {
            if allPartitions {
                for partition in 0..<partitions {
                    try producer.produce(single, partition: Int32(partition))
                    producer.poll()
                }
            } else {
                try producer.produce(single)
            }
            producer.finish(timeoutMilliseconds: Int32(timeout) * 1_000)
            if allPartitions {
                Terminal.output(
                    "produced to \(jobsTopic), \(producer.acknowledged) of \(Numbers.counted(partitions, "partition"))"
                )
            } else if let position = producer.lastPosition {
                Terminal.output(
                    "produced to \(jobsTopic), partition \(position.partition), offset \(position.offset)")
            }
            try account(producer, invalid: 0)
            return
        }
        guard let lines else { return }
        try produce(lines, producer, partitions: partitions, stop: stop)
    }

    /// Produces the jobs of the lines, and accounts for all of them.
    private func produce(
        _ lines: LineReader, _ producer: RecordProducer, partitions: Int, stop: StopSignals
    ) throws {
        let check = JobCheck()
        var progress = Progress()
        var pace = Pace(perSecond: rate)
        var invalid = 0
        var failure: CommandFailure?
        let begin = ContinuousClock.now
        func state() -> String {
            let elapsed = ContinuousClock.now - begin
            return
                "\(Numbers.grouped(producer.produced)) produced, \(Numbers.grouped(producer.acknowledged)) "
                + "acknowledged, \(Numbers.rate(producer.acknowledged, over: elapsed))"
        }
        func complainAboutTooLarge() {
            for (line, error) in producer.takeTooLarge() {
                complain(Int(line), "was not acknowledged: \(error)", &progress)
            }
        }
        // Last line that was produced or left out, and whether the input was read to its end.
        var last = 0
        var isWhole = false
        do throws(CommandFailure) {
            reading: while true {
                guard let line = try lines.next(until: stop) else {
                    isWhole = !stop.isRequested
                    break
                }
                switch valid(line, number: lines.number, check, &progress) {
                case .empty: break
                case .invalid: invalid += 1
                case .job(let job):
                    if pace.wait(stop) { break reading }
                    try producer.produce(job, opaque: UInt(lines.number))
                }
                last = lines.number
                producer.poll()
                complainAboutTooLarge()
                progress.show(fraction: lines.fraction, state)
            }
        } catch {
            // Records that were produced before get their answers.
            failure = error
        }
        producer.finish(timeoutMilliseconds: Int32(timeout) * 1_000)
        complainAboutTooLarge()
        progress.finish(fraction: isWhole ? 1 : lines.fraction, state())
        let elapsed = ContinuousClock.now - begin
        Terminal.output(
            "\(Numbers.counted(producer.acknowledged, "job")) to \(jobsTopic) (\(Numbers.counted(partitions, "partition"))) "
                + "in \(Numbers.milliseconds(elapsed / .milliseconds(1)))")
        if failure == nil, !isWhole {
            failure = CommandFailure(.unfinished, "stopped on request after line \(last) of \(file ?? "")")
        }
        guard let failure else { return try account(producer, invalid: invalid) }
        do { try account(producer, invalid: invalid) } catch {
            Terminal.error("sluice: \(error.message)")
        }
        throw failure
    }

    private func complain(_ number: Int, _ text: String, _ progress: inout Progress) {
        progress.clear()
        Terminal.error("\(file ?? ""):\(number): \(text)")
    }

    private enum Line {
        case empty, invalid
        case job(EncodedJob)
    }

    /// Checks a line, and reports it where it is left out.
    private func valid(
        _ line: LineReader.Line, number: Int, _ check: JobCheck, _ progress: inout Progress
    ) -> Line {
        guard case .bytes(let bytes) = line else {
            complain(number, "is longer than \(LineReader.longest >> 20) MiB; left out", &progress)
            return .invalid
        }
        if bytes.allSatisfy({ $0 == 0x20 || $0 == 0x09 || $0 == 0x0d }) { return .empty }
        guard let job = JobEncoder.document(bytes) else {
            complain(
                number, "is not a JSON object with `device-token` (or `channel-id` of a broadcast); left out",
                &progress)
            return .invalid
        }
        do throws(JobError) {
            if self.check, let error = check.error(in: job) { throw error }
            return .job(try (mode ?? .structured).encode(document: job))
        } catch {
            complain(number, "\(error); left out", &progress)
            return .invalid
        }
    }

    private func account(_ producer: RecordProducer, invalid: Int) throws(CommandFailure) {
        if producer.acknowledged < producer.produced {
            let reason = producer.firstError.map { ": \($0)" } ?? ""
            throw CommandFailure(
                .failure,
                "\(Numbers.grouped(producer.produced - producer.acknowledged)) of "
                    + "\(Numbers.counted(producer.produced, "record")) \(producer.produced == 1 ? "was" : "were") not acknowledged\(reason)"
            )
        }
        if invalid > 0 {
            throw CommandFailure(
                .dataError,
                invalid == 1
                    ? "a line is not a valid job and was left out"
                    : "\(Numbers.grouped(invalid)) lines are not valid jobs and were left out")
        }
    }
}
