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
            example to see their dead letters. A line that has no form in the mode of --mode is left out.

            EXIT STATUS
              0   every record was acknowledged by Kafka
              1   a record was not acknowledged (the summary says how many)
              65  a job is not valid; invalid lines were left out
              69  Kafka or the topic can't be reached
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
        let lines = try file.map(reader)
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
        let invalid = try produce(lines, producer, partitions: partitions, stop: stop)
        try account(producer, invalid: invalid)
    }

    /// Opens the file of jobs.
    private func reader(_ path: String) throws(CommandFailure) -> LineReader {
        guard let lines = LineReader(path: path) else {
            let reason = String(cString: strerror(errno))
            throw CommandFailure(
                .dataError, "can't read \(path): \(reason); check that the file exists and is readable")
        }
        return lines
    }

    /// - Returns: the number of lines that are no valid jobs.
    private func produce(
        _ lines: LineReader, _ producer: RecordProducer, partitions: Int, stop: StopSignals
    ) throws -> Int {
        let check = JobCheck()
        var progress = Progress()
        var pace = Pace(perSecond: rate)
        var invalid = 0
        let begin = ContinuousClock.now
        func state() -> String {
            let elapsed = ContinuousClock.now - begin
            return
                "\(Numbers.grouped(producer.produced)) produced, \(Numbers.grouped(producer.acknowledged)) "
                + "acknowledged, \(Numbers.rate(producer.acknowledged, over: elapsed))"
        }
        while !stop.isRequested, let line = lines.next() {
            if line.allSatisfy({ $0 == 0x20 || $0 == 0x09 || $0 == 0x0d }) { continue }
            guard let job = valid(line, number: lines.number, check, &progress) else {
                invalid += 1
                continue
            }
            if pace.wait(stop) { break }
            try producer.produce(job)
            producer.poll()
            progress.show(fraction: lines.fraction, state)
        }
        producer.finish(timeoutMilliseconds: Int32(timeout) * 1_000)
        progress.finish(fraction: stop.isRequested ? lines.fraction : 1, state())
        let elapsed = ContinuousClock.now - begin
        Terminal.output(
            "\(Numbers.counted(producer.acknowledged, "job")) to \(jobsTopic) (\(Numbers.counted(partitions, "partition"))) "
                + "in \(Numbers.milliseconds(elapsed / .milliseconds(1)))")
        return invalid
    }

    private func valid(
        _ line: [UInt8], number: Int, _ check: JobCheck, _ progress: inout Progress
    ) -> EncodedJob? {
        func complain(_ text: String) {
            progress.clear()
            Terminal.error("\(file ?? ""):\(number): \(text)")
        }
        guard let job = JobEncoder.document(line) else {
            complain("is not a JSON object with `device-token` (or `channel-id` of a broadcast); left out")
            return nil
        }
        if self.check, let error = check.error(in: job) {
            complain("\(error); left out")
            return nil
        }
        do throws(JobError) {
            return try (mode ?? .structured).encode(document: job)
        } catch {
            complain("\(error); left out")
            return nil
        }
    }

    private func account(_ producer: RecordProducer, invalid: Int) throws {
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
