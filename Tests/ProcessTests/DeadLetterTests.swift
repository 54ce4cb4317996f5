import KafkaTestSupport
import SluiceModel
import TestSupport
import Testing

/// A record that is no valid job, and the error that its dead letter must name.
private struct Malformed {
    var key: String?
    var headers: [(name: String, value: String)]
    var value: String?
    var field: String
    var rule: String

    /// A valid record with one change.
    init(
        _ field: String, _ rule: String, key: String? = deviceToken,
        change: (name: String, value: String?)? = nil,
        add: (name: String, value: String)? = nil, value: String? = #"{"aps":{"alert":"Hi"}}"#
    ) {
        var headers = [
            (name: "apns-topic", value: "com.example.news"), (name: "apns-push-type", value: "alert"),
        ]
        if let change {
            headers.removeAll { $0.name == change.name }
            if let text = change.value { headers.append((change.name, text)) }
        }
        if let add { headers.append(add) }
        self.key = key
        self.headers = headers
        self.value = value
        self.field = field
        self.rule = rule
    }

    init(_ field: String, _ rule: String, key: String = deviceToken, document: String) {
        self.key = key
        headers = [("content-type", "application/json")]
        value = document
        self.field = field
        self.rule = rule
    }
}

private let long = String(repeating: "x", count: 5_000)

private let malformed: [Malformed] = [
    Malformed("key", "required", key: nil),
    Malformed("key", "hex", key: "not a device token at all, but long"),
    Malformed("key", "even-length", key: deviceToken + "a"),
    Malformed("key", "length", key: "0a0a"),
    Malformed("apns-topic", "required", change: ("apns-topic", nil)),
    Malformed("apns-topic", "charset", change: ("apns-topic", "com example")),
    Malformed("apns-topic", "topic-suffix", change: ("apns-push-type", "complication")),
    Malformed("apns-push-type", "required", change: ("apns-push-type", nil)),
    Malformed("apns-push-type", "choice", change: ("apns-push-type", "allert")),
    Malformed("apns-priority", "choice", add: ("apns-priority", "7")),
    Malformed("apns-expiration", "number", add: ("apns-expiration", "soon")),
    Malformed("apns-expiration", "range", add: ("apns-expiration", "17952311854220")),
    Malformed("apns-collapse-id", "length", add: ("apns-collapse-id", String(long.prefix(65)))),
    Malformed("apns-id", "uuid", add: ("apns-id", "42")),
    Malformed("apns-topic", "doubled", add: ("apns-topic", "com.example.news")),
    Malformed("apns-colour", "unknown", add: ("apns-colour", "red")),
    Malformed("content-type", "content-type", add: ("content-type", "text/plain")),
    Malformed("payload", "required", value: nil),
    Malformed("payload", "json", value: #"{"aps":{"alert":"cut off"#),
    Malformed("payload", "json-object", value: "[]"),
    Malformed("payload", "payload-size", value: #"{"aps":{"alert":"\#(long)"}}"#),
    Malformed("kind", "choice", document: #"{"kind":"shove","device-token":"\#(deviceToken)"}"#),
    Malformed(
        "colour", "unknown",
        document: """
            {"kind":"push","device-token":"\(deviceToken)","topic":"a.b","push-type":"alert","payload":{},"colour":1}
            """),
    Malformed(
        "payload", "type",
        document: """
            {"kind":"push","device-token":"\(deviceToken)","topic":"a.b","push-type":"alert","payload":"text"}
            """),
    Malformed("document", "json", document: #"{"kind":"push""#),
]

@Suite("Dead letters, as a process")
struct DeadLetterTests {
    @Test func malformedRecordsBecomeDeadLettersNamingTheirError() throws {
        try withBed(BedOptions(partitions: 1)) { bed in
            let worker = try bed.start()
            try bed.kafka.produce(
                to: "jobs",
                malformed.map {
                    NewRecord(key: $0.key, value: $0.value, headers: $0.headers.map { ($0.name, $0.value) })
                })
            var random = SeededGenerator(seed: 1)
            try bed.produce([Bed.job(&random, number: 0)])

            try bed.outcomes.wait(for: 1, of: worker)
            let letters = try readLetters(bed, count: malformed.count, worker)
            #expect(
                bed.outcomes.outcomes.map(\.headline) == ["accepted"], "no malformed record has an outcome")
            for (index, expected) in malformed.enumerated() {
                let letter = try #require(
                    letters[Int64(index)], "record \(index), \(expected.field): \(expected.rule)")
                #expect(letter[.field] == expected.field, "record \(index): \(letter[.message] ?? "")")
                #expect(letter[.rule] == expected.rule, "record \(index): \(letter[.message] ?? "")")
                #expect((letter[.message] ?? "").isEmpty == false)
                #expect(letter[.sourceTopic] == bed.kafka.topic("jobs"))
                #expect(letter[.sourcePartition] == "0")
                // The record itself is unchanged.
                #expect(letter.keyText == expected.key && letter.valueText == expected.value)
                let original = letter.headers.prefix(expected.headers.count)
                #expect(original.map(\.name) == expected.headers.map(\.name))
                let texts = original.map { String(decoding: $0.value ?? [], as: UTF8.self) }
                #expect(texts == expected.headers.map(\.value))
                #expect(letter[.message]?.contains(deviceToken) == false)
            }
            let shown = try sluice(
                "outcomes", "-b", bed.kafka.bootstrapServers, "--dead-letters", "--from",
                bed.kafka.topic("dead-letters"), "--from-beginning", "--until-end")
            #expect(shown.standardOutput.split(separator: "\n").count == malformed.count)
            #expect(worker.isRunning)
        }
    }

    @Test func eventsCancelsAndBroadcastsHaveOutcomes() throws {
        try withBed(BedOptions(partitions: 1)) { bed in
            let worker = try bed.start()
            let documents = [
                #"{"kind":"device","device-token":"\#(deviceToken)","event":"offline"}"#,
                """
                {"kind":"push","device-token":"\(deviceToken)","topic":"com.example.news","push-type":"alert",\
                "collapse-id":"a","delivery":"hold-while-offline","payload":{}}
                """,
                #"{"kind":"cancel","device-token":"\#(deviceToken)","topic":"com.example.news","collapse-id":"a"}"#,
                #"{"kind":"cancel","device-token":"\#(deviceToken)","topic":"com.example.news","collapse-id":"a"}"#,
                """
                {"kind":"broadcast","channel-id":"dGVzdA==","topic":"com.example.news","ttl":60,\
                "payload":{"aps":{"event":"update"}}}
                """,
            ]
            try bed.produce(documents.compactMap { JobEncoder.document(Array($0.utf8)) })
            try bed.outcomes.wait(for: documents.count, of: worker)
            #expect(
                bed.outcomes.outcomes.sorted { $0.offset < $1.offset }.map(\.headline) == [
                    "applied: device, 0 pushes", "cancelled", "cancelled: cancel, 1 push",
                    "not-found: cancel",
                    "rejected: broadcast 400 ChannelNotRegistered",
                ])
            try worker.end()
            #expect(bed.pushes().isEmpty)
        }
    }

    /// Returns the dead letters by the offsets of their records.
    private func readLetters(
        _ bed: Bed, count: Int, _ worker: WorkerProcess
    ) throws -> [Int64: ReadRecord] {
        let reader = try TopicReader(bed.kafka, "dead-letters", partitions: 1)
        try worker.waits(for: "\(count) dead letters") {
            reader.poll()
            return reader.records.count >= count
        }
        var letters: [Int64: ReadRecord] = [:]
        for letter in reader.records {
            let offset = letter[.sourceOffset].flatMap { Int64($0) } ?? -1
            #expect(
                letters.updateValue(letter, forKey: offset) == nil, "offset \(offset) has two dead letters")
        }
        return letters
    }
}

extension ReadRecord {
    /// Returns a header of a dead letter.
    fileprivate subscript(_ header: DeadLetter.Header) -> String? { self.header(header.rawValue) }
}
