import SluiceModel
import Testing

/// A malformed record, with the field and rule that its error names.
struct Malformed: Sendable, CustomTestStringConvertible {
    let name: String
    let record: @Sendable () -> TestRecord
    let field: String
    let rule: JobRule

    init(_ name: String, _ field: String, _ rule: JobRule, _ record: @escaping @Sendable () -> TestRecord) {
        (self.name, self.field, self.rule, self.record) = (name, field, rule, record)
    }

    var testDescription: String { "\(name) → \(field): \(rule.rawValue)" }
}

@Suite struct JobRuleTests {
    static let uuid = "00112233-4455-6677-8899-aabbccddeeff"

    static let malformedHeaders: [Malformed] = [
        Malformed("no key", "key", .required) { .push(key: nil) },
        Malformed("empty key", "key", .required) { .push(key: "") },
        Malformed("key with a space", "key", .hex) { .push(key: "0123 456") },
        Malformed("odd key", "key", .evenLength) { .push(key: TestRecord.token + "0") },
        Malformed("short key", "key", .length) { .push(key: "0123456789abcdef") },
        Malformed("long key", "key", .length) { .push(key: String(repeating: "ab", count: 201)) },
        Malformed("no topic", "apns-topic", .required) { .push([("apns-topic", nil)]) },
        Malformed("empty topic", "apns-topic", .length) { .push([("apns-topic", "")]) },
        Malformed("long topic", "apns-topic", .length) {
            .push([("apns-topic", String(repeating: "a", count: 256))])
        },
        Malformed("topic with a space", "apns-topic", .charset) {
            .push([("apns-topic", "com.example app")])
        },
        Malformed("topic with CR LF", "apns-topic", .charset) {
            .push([("apns-topic", "com.example\r\nx: y")])
        },
        Malformed("topic with an empty part", "apns-topic", .charset) { .push([("apns-topic", "com..app")]) },
        Malformed("topic ends in a period", "apns-topic", .charset) { .push([("apns-topic", "com.app.")]) },
        Malformed("topic in UTF-8", "apns-topic", .charset) { .push([("apns-topic", "com.exämple")]) },
        Malformed("voip without suffix", "apns-topic", .topicSuffix) { .push([("apns-push-type", "voip")]) },
        Malformed("suffix alone", "apns-topic", .charset) {
            .push([("apns-push-type", "voip"), ("apns-topic", ".voip")])
        },
        Malformed("alert to a Live Activity topic", "apns-topic", .topicSuffix) {
            .push([("apns-topic", "com.example.app.push-type.liveactivity")])
        },
        Malformed("mdm to an app", "apns-topic", .topicSuffix) { .push([("apns-push-type", "mdm")]) },
        Malformed("mdm prefix alone", "apns-topic", .charset) {
            .push([("apns-push-type", "mdm"), ("apns-topic", "com.apple.mgmt.")])
        },
        Malformed("no push type", "apns-push-type", .required) { .push([("apns-push-type", nil)]) },
        Malformed("unknown push type", "apns-push-type", .choice) { .push([("apns-push-type", "alret")]) },
        Malformed("push type in capitals", "apns-push-type", .choice) {
            .push([("apns-push-type", "Alert")])
        },
        Malformed("priority 7", "apns-priority", .choice) { .push([("apns-priority", "7")]) },
        Malformed("priority in words", "apns-priority", .number) { .push([("apns-priority", "high")]) },
        Malformed("priority 05", "apns-priority", .number) { .push([("apns-priority", "05")]) },
        Malformed("empty priority", "apns-priority", .number) { .push([("apns-priority", "")]) },
        Malformed("background at 10", "apns-priority", .pushTypePriority) {
            .push([("apns-push-type", "background"), ("apns-priority", "10")])
        },
        Malformed("background at 1", "apns-priority", .pushTypePriority) {
            .push([("apns-push-type", "background"), ("apns-priority", "1")])
        },
        Malformed("Live Activity at 1", "apns-priority", .pushTypePriority) {
            .push([
                ("apns-push-type", "liveactivity"), ("apns-topic", "com.example.app.push-type.liveactivity"),
                ("apns-priority", "1"),
            ])
        },
        Malformed("expiration as a duration", "apns-expiration", .range) {
            .push([("apns-expiration", "3600")])
        },
        Malformed("expiration in milliseconds", "apns-expiration", .range) {
            .push([("apns-expiration", "1700000000000")])
        },
        Malformed("negative expiration", "apns-expiration", .number) { .push([("apns-expiration", "-1")]) },
        Malformed("expiration as a date", "apns-expiration", .number) {
            .push([("apns-expiration", "2030-01-01")])
        },
        Malformed("expiration and ttl", "ttl", .exclusive) {
            .push([("apns-expiration", "1800000000"), ("ttl", "60")])
        },
        Malformed("ttl of two years", "ttl", .range) { .push([("ttl", "63072000")]) },
        Malformed("ttl with a unit", "ttl", .number) { .push([("ttl", "60s")]) },
        Malformed("long collapse identifier", "apns-collapse-id", .length) {
            .push([("apns-collapse-id", String(repeating: "c", count: 65))])
        },
        Malformed("empty collapse identifier", "apns-collapse-id", .length) {
            .push([("apns-collapse-id", "")])
        },
        Malformed("collapse identifier with a line feed", "apns-collapse-id", .charset) {
            .push([("apns-collapse-id", "a\nb")])
        },
        Malformed("collapse identifier with NUL", "apns-collapse-id", .charset) {
            .push([("apns-collapse-id", "a\0b")])
        },
        Malformed("collapse identifier in UTF-8", "apns-collapse-id", .charset) {
            .push([("apns-collapse-id", "größe")])
        },
        Malformed("collapse identifier begins with a blank", "apns-collapse-id", .charset) {
            .push([("apns-collapse-id", " a")])
        },
        Malformed("apns-id in capitals", "apns-id", .uuid) {
            .push([("apns-id", JobRuleTests.uuid.uppercased())])
        },
        Malformed("apns-id without hyphens", "apns-id", .uuid) {
            .push([("apns-id", "00112233445566778899aabbccddeeff")])
        },
        Malformed("deliver-at in seconds", "deliver-at", .range) { .push([("deliver-at", "1700000000")]) },
        Malformed("deliver-at in microseconds", "deliver-at", .range) {
            .push([("deliver-at", "1700000000000000")])
        },
        Malformed("registered-at in words", "registered-at", .number) {
            .push([("registered-at", "yesterday")])
        },
        Malformed("created-at in seconds", "created-at", .range) { .push([("created-at", "1700000000")]) },
        Malformed("unknown delivery", "delivery", .choice) { .push([("delivery", "best-effort")]) },
        Malformed("receipt-timeout without confirm", "receipt-timeout", .onlyWith) {
            .push([("receipt-timeout", "30")])
        },
        Malformed("receipt-timeout 0", "receipt-timeout", .range) {
            .push([("delivery", "confirm"), ("receipt-timeout", "0")])
        },
        Malformed("unknown duplicates", "duplicates", .choice) { .push([("duplicates", "yes")]) },
        Malformed("unknown environment", "environment", .choice) { .push([("environment", "staging")]) },
        Malformed("unknown kind", "kind", .choice) { .push([("kind", "delete")]) },
        Malformed("event on a push", "event", .notForKind) { .push([("event", "online")]) },
        Malformed("misspelt header", "apns-colapse-id", .unknown) { .push([("apns-colapse-id", "a")]) },
        Malformed("header of APNs that no job has", "apns-request-id", .unknown) {
            .push([("apns-request-id", "a")])
        },
        Malformed("header twice, once in capitals", "apns-topic", .doubled) {
            var record = TestRecord.push()
            record.headers.append((name: "Apns-Topic", value: Array("com.example.app".utf8)))
            return record
        },
        Malformed("header name of control bytes", "apns-?b", .unknown) { .push([("apns-\u{1}b", "x")]) },
        Malformed("header twice", "apns-topic", .doubled) {
            var record = TestRecord.push()
            record.headers.append((name: "apns-topic", value: Array("com.example.app".utf8)))
            return record
        },
        Malformed("null header", "ttl", .null) {
            var record = TestRecord.push()
            record.headers.append((name: "ttl", value: nil))
            return record
        },
        Malformed("content-type twice", "content-type", .doubled) {
            var record = TestRecord(document: "{}")
            record.headers.append(record.headers[0])
            return record
        },
        Malformed("null content-type", "content-type", .null) {
            TestRecord(key: TestRecord.token, value: "{}", headers: [("content-type", nil)])
        },
        Malformed("another content-type", "content-type", .contentType) {
            .push([("content-type", "text/plain")])
        },
        Malformed("packed line without a colon", "fields", .packedLine) {
            TestRecord(key: TestRecord.token, value: "ttl:60\n60")
        },
        Malformed("several CloudEvents", "content-type", .contentType) {
            .push([("content-type", "application/cloudevents-batch+json")])
        },
        Malformed("content-type of a longer name", "content-type", .contentType) {
            .push([("content-type", "application/json5")])
        },
    ]

    static let malformedPayloads: [Malformed] = [
        Malformed("no value", "payload", .required) { .push(value: nil) },
        Malformed("empty value", "payload", .required) { .push(value: "") },
        Malformed("array", "payload", .jsonObject) { .push(value: "[1]") },
        Malformed("string", "payload", .jsonObject) { .push(value: #""text""#) },
        Malformed("null", "payload", .jsonObject) { .push(value: "null") },
        Malformed("text", "payload", .json) { .push(value: "hello") },
        Malformed("blanks", "payload", .json) { .push(value: "   ") },
        Malformed("Avro", "payload", .schemaRegistry) { .push(value: "\0\0\0\0\u{7}\u{2}abc") },
        Malformed("Avro without headers", "payload", .schemaRegistry) {
            TestRecord(key: TestRecord.token, value: "\0\0\0\0\u{7}{}")
        },
        Malformed("cut off", "payload", .json) { .push(value: #"{"aps":{"alert":"Hel"#) },
        Malformed("trailing comma", "payload", .json) { .push(value: #"{"aps":{},}"#) },
        Malformed("two objects", "payload", .json) { .push(value: "{}{}") },
        Malformed("trailing byte", "payload", .json) { .push(value: "{}\0") },
        Malformed("single quotes", "payload", .json) { .push(value: "{'aps':{}}") },
        Malformed("comment", "payload", .json) { .push(value: "{} // no") },
        Malformed("NaN", "payload", .json) { .push(value: #"{"a":NaN}"#) },
        Malformed("leading zero", "payload", .json) { .push(value: #"{"a":01}"#) },
        Malformed("raw line feed in a string", "payload", .json) { .push(value: "{\"a\":\"x\ny\"}") },
        Malformed("byte order mark", "payload", .json) { .push(value: "\u{FEFF}{}") },
        Malformed("not UTF-8", "payload", .utf8) {
            var record = TestRecord.push()
            record.value = Array(#"{"a":""#.utf8) + [0xC3, 0x28] + Array(#""}"#.utf8)
            return record
        },
        Malformed("UTF-8 surrogate", "payload", .utf8) {
            var record = TestRecord.push()
            record.value = Array(#"{"a":""#.utf8) + [0xED, 0xA0, 0x80] + Array(#""}"#.utf8)
            return record
        },
        Malformed("4,097 bytes", "payload", .payloadSize) { .push(value: sized(4097)) },
        Malformed("5,121 bytes of VoIP", "payload", .payloadSize) {
            .push([("apns-push-type", "voip"), ("apns-topic", "com.example.app.voip")], value: sized(5121))
        },
        Malformed("129 levels", "payload", .depth) { .push(value: nested(129)) },
        Malformed("64 KiB and a byte", "payload", .documentSize) { .push(value: sized(65537)) },
    ]

    static func sized(_ bytes: Int) -> String {
        #"{"a":""# + String(repeating: "x", count: bytes - 8) + #""}"#
    }

    static func nested(_ levels: Int) -> String {
        String(repeating: #"{"a":"#, count: levels - 1) + #"{"a":1}"#
            + String(repeating: "}", count: levels - 1)
    }

    @Test(arguments: malformedHeaders + malformedPayloads + malformedControls + malformedDocuments)
    func malformedRecordNamesFieldAndRule(_ malformed: Malformed) throws {
        let error = try #require(TestDecoder().error(malformed.record()), "the record was accepted")
        #expect(error.field == malformed.field)
        #expect(error.rule == malformed.rule)
        #expect(!error.message.isEmpty)
    }

    /// Every rule is broken by a record above.
    @Test func everyRuleIsCovered() {
        let all =
            Self.malformedHeaders + Self.malformedPayloads + Self.malformedControls + Self.malformedDocuments
        let uncovered = Set(JobRule.allCases).subtracting(all.map(\.rule))
        #expect(uncovered.isEmpty)
    }

    @Test func errorsContainNeitherTokensNorPayloads() throws {
        let secret = "5ec2e7"
        let token = String(repeating: secret, count: 12)
        let records = [
            TestRecord.push(key: token + "x"), .push(key: token + "0"), .push([("apns-topic", token + "!")]),
            .push([("apns-push-type", token)]), .push([("apns-id", token)]), .push([("ttl", token)]),
            .push(value: #"{"\#(token)":}"#), .push(value: #"["\#(token)"]"#),
            TestRecord(document: #"{"device-token":"\#(token)","topic":4}"#, key: token),
        ]
        for record in records {
            let error = try #require(TestDecoder().error(record))
            #expect(!error.description.contains(secret), "\(error)")
        }
    }

    @Test func longFieldNamesAreTruncated() throws {
        let error = try #require(
            TestDecoder().error(.push([("apns-" + String(repeating: "n", count: 10_000), "x")])))
        #expect(error.field.count <= 65)
    }
}
