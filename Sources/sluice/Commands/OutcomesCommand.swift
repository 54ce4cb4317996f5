import Admin
import ArgumentParser
import Foundation
import Kafka
import SluiceModel

struct OutcomesCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "outcomes",
        abstract: "Show outcomes or dead letters as they arrive.",
        discussion: """
            Each line has the time, the outcome with APNs' answer, the app's topic, the push type, the first characters \
            of the device token, the attempts, the time from the job's creation to its outcome, and the job's record.

            Reads without a consumer group, so that workers and other readers are not disturbed.
            """)

    @OptionGroup var kafka: KafkaOptions

    @Option(
        help: ArgumentHelp(
            "Kafka topic to read (default: sluice.outcomes, or sluice.dead-letters with --dead-letters).",
            valueName: "name"))
    var from: String?

    @Flag(help: "Show dead letters: the records that are not valid jobs, with the reason.")
    var deadLetters = false

    @Flag(help: "Begin with the oldest record instead of the next.")
    var fromBeginning = false

    @Flag(help: "Show the present records, from the oldest, and stop.")
    var untilEnd = false

    @Option(
        help: ArgumentHelp(
            "With --until-end: longest wait for a first record, because a worker's group takes some seconds to assign "
                + "partitions.",
            valueName: "seconds"))
    var wait = 10

    @Option(name: [.short, .long], help: ArgumentHelp("Stop after this many records.", valueName: "n"))
    var count: Int?

    @Flag(help: "Print one JSON document on each line.")
    var json = false

    func validate() throws {
        if let count, count < 1 { throw ValidationError("--count must be at least 1") }
        guard (0...3_600).contains(wait) else { throw ValidationError("--wait: 0 to 3600 seconds") }
    }

    func run() throws {
        let stop = StopSignals()
        let topic = from ?? (deadLetters ? "sluice.dead-letters" : "sluice.outcomes")
        let reader = try TopicReader(
            topic: topic, start: fromBeginning || untilEnd ? .beginning : .end, stopsAtEnd: untilEnd,
            cluster: kafka.cluster)
        defer { reader.close() }
        var shown = 0
        var hasReader = true
        var patience: ContinuousClock.Instant?
        while !stop.isRequested, hasReader, shown < count ?? .max {
            if untilEnd, reader.isAtEnd {
                if shown > 0 || wait == 0 { break }
                let deadline = patience ?? .now + .seconds(wait)
                if patience == nil {
                    Terminal.error(
                        "sluice: \(topic) has no record yet; waiting up to \(Numbers.counted(wait, "second"))"
                    )
                }
                patience = deadline
                if .now >= deadline {
                    Terminal.error(
                        "sluice: \(topic) has no record; check that a worker runs and that jobs were produced"
                    )
                    break
                }
            }
            try reader.poll(timeoutMilliseconds: 100) { record in
                guard hasReader, shown < count ?? .max else { return }
                shown += 1
                hasReader = Terminal.output(line(for: record))
            }
        }
    }

    private func line(for record: ConsumedRecord) -> String {
        if deadLetters {
            let letter = DeadLetterView(record)
            return json ? letter.json : letter.line
        }
        let bytes = record.value.map { Array($0) } ?? []
        if json { return ForeignText.jsonLine(bytes) ?? Self.other(record, bytes) }
        guard let outcome = OutcomeSummary(json: bytes) else {
            return "partition \(record.partition), offset \(record.offset): the record is not an outcome"
        }
        return outcome.line
    }

    /// JSON of a record that is no JSON object.
    private static func other(_ record: ConsumedRecord, _ bytes: [UInt8]) -> String {
        JSONText.of([
            "partition": Int(record.partition), "offset": record.offset,
            "value-base64": Data(bytes).base64EncodedString(),
        ])
    }
}

extension OutcomeSummary {
    /// The outcome in columns.
    var line: String {
        var detail = headline
        if deleteToken { detail += " (delete the token)" }
        if suspectToken { detail += " (the token, environment or topic is wrong)" }
        let latency = Double(finishedMilliseconds - createdMilliseconds)
        let cells: [(String, Int)] = [
            (clockTime(milliseconds: finishedMilliseconds), 12),
            (detail, 28),
            (topic ?? "-", 24),
            (pushType ?? "-", 10),
            (abbreviated(deviceToken), 9),
            (Numbers.counted(attempts, "attempt"), 10),
            (Numbers.milliseconds(latency), 8),
            ("\(sourceTopic)[\(partition)]@\(offset)", 0),
        ]
        return cells.map { text, width in text + String(repeating: " ", count: max(0, width - text.count)) }
            .joined(separator: "  ")
    }
}

/// A dead letter as it is shown. The record's value is shown only in JSON.
struct DeadLetterView {
    private var headers: [String: String] = [:]
    private let key: String
    private let value: [UInt8]
    private let timestamp: Int64

    init(_ record: ConsumedRecord) {
        var headers: [String: String] = [:]
        record.forEachHeader { name, value in
            headers[String(decoding: name, as: UTF8.self)] = value.map { String(decoding: $0, as: UTF8.self) }
        }
        self.headers = headers
        key = record.key.map { String(decoding: $0, as: UTF8.self) } ?? ""
        value = record.value.map { Array($0) } ?? []
        timestamp = record.timestampMilliseconds
    }

    private subscript(_ header: DeadLetter.Header) -> String { headers[header.rawValue] ?? "?" }

    /// Parts that were left out for their size: `value`, `headers`, `key`.
    private var omitted: [String] {
        DeadLetter.Omission.allCases.filter { headers[$0.rawValue] != nil }.map { "\($0)" }
    }

    var line: String {
        let place = "\(self[.sourceTopic])[\(self[.sourcePartition])]@\(self[.sourceOffset])"
        return
            "\(clockTime(milliseconds: timestamp))  \(place)  \(self[.field]): \(self[.message]) [\(self[.rule])]  "
            + "key \(abbreviated(key)), \(Numbers.counted(value.count, "byte"))"
            + (omitted.isEmpty ? "" : ", too large: cut \(omitted.joined(separator: ", "))")
    }

    var json: String {
        var writer = ByteWriter()
        func member(_ name: String, _ text: String, first: Bool = false) {
            writer.append(first ? "{" : ",")
            writer.append(text: "\"\(name)\":")
            var text = text
            text.withUTF8 { writer.append(jsonString: UnsafeRawBufferPointer($0)) }
        }
        member("field", self[.field], first: true)
        member("rule", self[.rule])
        member("message", self[.message])
        member("source-topic", self[.sourceTopic])
        writer.append(text: ",\"source-partition\":\(Int(self[.sourcePartition]) ?? -1)")
        writer.append(text: ",\"source-offset\":\(Int(self[.sourceOffset]) ?? -1)")
        member("key", key)
        member("value-base64", Data(value).base64EncodedString())
        if !omitted.isEmpty { member("omitted", omitted.joined(separator: ",")) }
        writer.append("}")
        return String(decoding: writer.bytes, as: UTF8.self)
    }
}

/// Returns the first characters of a device token: enough to distinguish two, not enough to push with.
func abbreviated(_ token: String) -> String {
    token.count <= 8 ? token : "\(token.prefix(8))…"
}

/// Returns the local time of day with milliseconds.
func clockTime(milliseconds: Int64) -> String {
    var seconds = time_t(milliseconds / 1_000)
    var parts = tm()
    localtime_r(&seconds, &parts)
    return String(
        format: "%02d:%02d:%02d.%03d", parts.tm_hour, parts.tm_min, parts.tm_sec, Int32(milliseconds % 1_000))
}
