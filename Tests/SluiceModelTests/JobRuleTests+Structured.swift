import SluiceModel

extension JobRuleTests {
    /// A valid push document with one member added, or one left out by name.
    static func document(_ extra: String = "", without name: String? = nil) -> String {
        let members = [
            ("device-token", #""\#(TestRecord.token)""#), ("topic", #""com.example.app""#),
            ("push-type", #""alert""#),
            ("payload", TestRecord.payload),
        ]
        let text = members.filter { $0.0 != name }.map { #""\#($0.0)":\#($0.1)"# }.joined(separator: ",")
        return "{" + text + (extra.isEmpty ? "" : "," + extra) + "}"
    }

    /// A CloudEvent in structured mode.
    static func event(_ members: String, key: String? = TestRecord.token) -> TestRecord {
        TestRecord(
            key: key,
            value:
                #"{"specversion":"1.0","id":"1","source":"/orders","type":"com.example.push",\#(members)}"#,
            headers: [("content-type", "application/cloudevents+json; charset=utf-8")])
    }

    static let malformedDocuments: [Malformed] = [
        Malformed("no document", "document", .required) { TestRecord(document: "") },
        Malformed("document is an array", "document", .jsonObject) { TestRecord(document: "[]") },
        Malformed("document is cut off", "document", .json) { TestRecord(document: #"{"kind":"push""#) },
        Malformed("document is too deep", "document", .depth) { TestRecord(document: nested(129)) },
        Malformed("no key beside a document", "key", .required) {
            TestRecord(document: document(), key: nil)
        },
        Malformed("document without headers and key", "key", .required) {
            TestRecord(key: nil, value: document(#""kind":"push""#))
        },
        Malformed("key as of JsonConverter with schemas", "key", .keyMismatch) {
            TestRecord(
                document: document(), key: #"{"schema":{"type":"string"},"payload":"\#(TestRecord.token)"}"#)
        },
        Malformed("key of a schema registry", "key", .schemaRegistry) {
            TestRecord(document: document(), key: "\0\0\0\0\u{1}" + TestRecord.token)
        },
        Malformed("event without data", "data", .required) { event(#""type":"push""#) },
        Malformed("event whose data is null", "data", .required) {
            event(#""data":null,"data_base64":null"#)
        },
        Malformed("event with text", "data", .type) { event(#""data":"{}""#) },
        Malformed("event in base64", "data_base64", .type) { event(#""data_base64":"e30=""#) },
        Malformed("event with data twice", "data", .doubled) { event(#""data":{},"data":{}"#) },
        Malformed("another key", "key", .keyMismatch) {
            TestRecord(document: document(), key: String(repeating: "ab", count: 32))
        },
        Malformed("no device token", "device-token", .required) {
            TestRecord(document: document(without: "device-token"))
        },
        Malformed("no payload", "payload", .required) { TestRecord(document: document(without: "payload")) },
        Malformed("payload as text", "payload", .type) {
            TestRecord(document: document(#""payload":"{}""#, without: "payload"))
        },
        Malformed("payload of 4,097 bytes", "payload", .payloadSize) {
            TestRecord(document: document(#""payload":"# + sized(4097), without: "payload"))
        },
        Malformed("topic as a number", "topic", .type) {
            TestRecord(document: document(#""topic":7"#, without: "topic"))
        },
        Malformed("required member is null", "payload", .required) {
            TestRecord(document: document(#""payload":null"#, without: "payload"))
        },
        Malformed("unknown member is null", "apns-topic", .unknown) {
            TestRecord(document: document(#""apns-topic":null"#))
        },
        Malformed("member twice, once null", "topic", .doubled) {
            TestRecord(document: document(#""topic":null"#))
        },
        Malformed("priority as text", "priority", .type) {
            TestRecord(document: document(#""priority":"10""#))
        },
        Malformed("priority 10.5", "priority", .number) {
            TestRecord(document: document(#""priority":10.5"#))
        },
        Malformed("priority 2", "priority", .choice) { TestRecord(document: document(#""priority":2"#)) },
        Malformed("ttl of 1e30", "ttl", .range) { TestRecord(document: document(#""ttl":1e30"#)) },
        Malformed("negative ttl", "ttl", .range) { TestRecord(document: document(#""ttl":-1"#)) },
        Malformed("ttl beyond 64 bits", "ttl", .range) {
            TestRecord(document: document(#""ttl":123456789012345678901234567890"#))
        },
        Malformed("unknown member", "apns-topic", .unknown) {
            TestRecord(document: document(#""apns-topic":"com.example.app""#))
        },
        Malformed("device token as a member's name", "member", .unknown) {
            TestRecord(document: document(#""\#(TestRecord.token)":{}"#))
        },
        Malformed("member twice", "topic", .doubled) {
            TestRecord(document: document(#""topic":"com.example.app""#))
        },
        Malformed("member twice, once escaped", "topic", .doubled) {
            TestRecord(document: document(#""t\u006fpic":"com.example.app""#))
        },
        Malformed("escaped line feed in a collapse identifier", "collapse-id", .charset) {
            TestRecord(document: document(#""collapse-id":"a\nb""#))
        },
        Malformed("escaped lone surrogate in a collapse identifier", "collapse-id", .charset) {
            TestRecord(document: document(#""collapse-id":"a\ud800""#))
        },
        Malformed("fields in headers beside a document", "apns-topic", .notInStructuredMode) {
            var record = TestRecord(document: document())
            record.headers.append((name: "apns-topic", value: Array("com.example.app".utf8)))
            return record
        },
        Malformed("misspelt header beside a document", "deliver_at", .unknown) {
            var record = TestRecord(document: document())
            record.headers.append((name: "deliver_at", value: []))
            return record
        },
        Malformed("document of 64 KiB and a byte", "document", .documentSize) {
            TestRecord(document: sized(65537))
        },
    ]

    static let malformedControls: [Malformed] = [
        Malformed("cancel with a value", "payload", .noValue) {
            control([("kind", "cancel"), ("apns-id", uuid)], value: "{}")
        },
        Malformed("cancel of nothing", "apns-collapse-id", .required) { control([("kind", "cancel")]) },
        Malformed("cancel of two things", "apns-id", .exclusive) {
            control([("kind", "cancel"), ("apns-id", uuid), ("apns-collapse-id", "a"), ("apns-topic", "a.b")])
        },
        Malformed("cancel without topic", "apns-topic", .requiredWith) {
            control([("kind", "cancel"), ("apns-collapse-id", "a")])
        },
        Malformed("cancel with a priority", "apns-priority", .notForKind) {
            control([("kind", "cancel"), ("apns-id", uuid), ("apns-priority", "5")])
        },
        Malformed("cancel with an environment", "environment", .notForKind) {
            control([("kind", "cancel"), ("apns-id", uuid), ("environment", "production")])
        },
        Malformed("device without event", "event", .required) { control([("kind", "device")]) },
        Malformed("device with an unknown event", "event", .choice) {
            control([("kind", "device"), ("event", "asleep")])
        },
        Malformed("receipt of nothing", "apns-id", .requiredWith) {
            control([("kind", "device"), ("event", "receipt")])
        },
        Malformed("online with an apns-id", "apns-id", .onlyWith) {
            control([("kind", "device"), ("event", "online"), ("apns-id", uuid)])
        },
        Malformed("token-changed to nothing", "new-device-token", .requiredWith) {
            control([("kind", "device"), ("event", "token-changed")])
        },
        Malformed("token-changed to text", "new-device-token", .hex) {
            control([("kind", "device"), ("event", "token-changed"), ("new-device-token", "mine")])
        },
        Malformed("offline with a new token", "new-device-token", .onlyWith) {
            control([("kind", "device"), ("event", "offline"), ("new-device-token", TestRecord.token)])
        },
        Malformed("broadcast without channel", "key", .required) { broadcast([], key: nil) },
        Malformed("broadcast to a word", "key", .charset) { broadcast([], key: "not base64!") },
        Malformed("broadcast to a long channel", "key", .length) {
            broadcast([], key: String(repeating: "A", count: 257))
        },
        Malformed("broadcast of an alert", "apns-push-type", .choice) {
            broadcast([("apns-push-type", "alert")])
        },
        Malformed("broadcast without expiration", "apns-expiration", .required) { broadcast([("ttl", nil)]) },
        Malformed("broadcast to a topic with suffix", "apns-topic", .topicSuffix) {
            broadcast([("apns-topic", "com.example.app.push-type.liveactivity")])
        },
        Malformed("broadcast with a collapse identifier", "apns-collapse-id", .notForKind) {
            broadcast([("apns-collapse-id", "a")])
        },
        Malformed("broadcast for later", "deliver-at", .range) {
            broadcast([("deliver-at", "4000000000000")])
        },
        Malformed("broadcast of 5,121 bytes", "payload", .payloadSize) { broadcast([], value: sized(5121)) },
    ]

    static func control(_ headers: [(String, String)], value: String? = nil) -> TestRecord {
        TestRecord(key: TestRecord.token, value: value, headers: headers.map { ($0.0, $0.1) })
    }

    static func broadcast(
        _ changes: [(String, String?)], key: String? = "dHN0LXNyY2gtY2hubA==",
        value: String = TestRecord.payload
    ) -> TestRecord {
        let base: [(String, String?)] = [
            ("kind", "broadcast"), ("apns-topic", "com.example.app"), ("apns-push-type", nil), ("ttl", "60"),
        ]
        return .push(base + changes, key: key, value: value)
    }
}
