import Testing

@testable import SluiceModel

/// A structured-mode document as a list of members, each value as JSON text.
struct Draft {
    var members: [(name: String, value: String)]

    init(_ members: [(String, String)]) { self.members = members.map { (name: $0.0, value: $0.1) } }

    var json: [UInt8] {
        Array(("{" + members.map { #""\#($0.name)":\#($0.value)"# }.joined(separator: ",") + "}").utf8)
    }

    mutating func set(_ name: String, _ value: String?) {
        let index = members.firstIndex { $0.name == name }
        if let index { members.remove(at: index) }
        if let value { members.insert((name: name, value: value), at: index ?? members.count) }
    }

    /// The same job as a binary-mode record. Nil: a value has no counterpart there. A member with the value null counts as
    /// absent.
    var binary: TestRecord? {
        let members = members.filter { member in
            member.value != "null" || !JobField.allCases.contains { $0.memberName.text == member.name }
        }
        var record = TestRecord(key: nil as String?, value: nil)
        for (name, value) in members {
            guard let field = JobField.allCases.first(where: { $0.memberName.text == name }) else {
                return nil
            }
            let text: String
            switch field.valueType {
            case .object: text = value
            case .integer:
                guard value.allSatisfy(\.isNumber), value == "0" || !value.hasPrefix("0") else { return nil }
                text = value
            case .text:
                guard value.hasPrefix("\""), !value.contains("\\") else { return nil }
                text = String(value.dropFirst().dropLast())
            }
            switch field {
            case .deviceToken, .channelIdentifier:
                guard record.key == nil else { return nil }
                record.key = Array(text.utf8)
            case .payload:
                guard record.value == nil else { return nil }
                record.value = Array(text.utf8)
            default: record.headers.append((name: field.headerName?.text ?? "", value: Array(text.utf8)))
            }
        }
        // The kind decides which field the key is, so the other field has no counterpart.
        let isBroadcast = members.contains { $0.name == "kind" && $0.value == #""broadcast""# }
        guard members.contains(where: { $0.name == (isBroadcast ? "channel-id" : "device-token") }) else {
            return nil
        }
        return record
    }
}

/// Thousands of documents, valid and invalid, that the schema and the decoder must judge alike.
@Suite struct SchemaCorpusTests {
    static let token = #""\#(TestRecord.token)""#
    static let uuid = #""\#(JobRuleTests.uuid)""#

    static let bases: [Draft] = [
        Draft([
            ("device-token", token), ("topic", #""com.example.app""#), ("push-type", #""alert""#),
            ("payload", TestRecord.payload),
        ]),
        Draft([
            ("kind", #""push""#), ("device-token", token), ("topic", #""com.example.app""#),
            ("push-type", #""background""#), ("priority", "5"), ("ttl", "600"), ("collapse-id", #""a""#),
            ("apns-id", uuid), ("deliver-at", "1700000000000"), ("delivery", #""confirm""#),
            ("receipt-timeout", "30"),
            ("registered-at", "1700000000000"), ("duplicates", #""avoid""#), ("environment", #""sandbox""#),
            ("created-at", "1700000000000"), ("payload", "{}"),
        ]),
        Draft([
            ("kind", #""push""#), ("device-token", token),
            ("topic", #""com.example.app.push-type.liveactivity""#),
            ("push-type", #""liveactivity""#), ("expiration", "1800000000"), ("priority", "10"),
            ("payload", "{}"),
        ]),
        Draft([
            ("kind", #""cancel""#), ("device-token", token), ("topic", #""com.example.app""#),
            ("collapse-id", #""a""#),
            ("created-at", "1700000000000"),
        ]),
        Draft([("kind", #""cancel""#), ("device-token", token), ("apns-id", uuid)]),
        Draft([
            ("kind", #""device""#), ("device-token", token), ("event", #""online""#),
            ("occurred-at", "1700000000000"),
        ]),
        Draft([("kind", #""device""#), ("device-token", token), ("event", #""receipt""#), ("apns-id", uuid)]),
        Draft([
            ("kind", #""device""#), ("device-token", token), ("event", #""token-changed""#),
            ("new-device-token", token),
        ]),
        Draft([
            ("kind", #""broadcast""#), ("channel-id", #""QUJD""#), ("topic", #""com.example.app""#),
            ("push-type", #""liveactivity""#), ("priority", "1"), ("expiration", "0"),
            ("environment", #""production""#), ("payload", "{}"),
        ]),
    ]

    /// Values at and beyond the limits of every field, and of every JSON type.
    static let values: [String] =
        [
            "null", "true", "false", "[]", "{}", #"{"a":[1,{"b":null}]}"#, #""""#, #"" ""#, "0", "-0", "-1",
            "1", "2",
            "5", "10", "5.0", "1e1", "10.5", "1e400", "600", "86400", "86401", "31536000", "31536001",
            "999999999",
            "1000000000", "1800000000", "4294967295", "4294967296", "999999999999", "1000000000000",
            "1700000000000",
            "4294967295000", "4294967295001", "12345678901234567890123", #""10""#, #""5""#, uuid,
            #""00112233-4455-6677-8899-AABBCCDDEEFF""#, #""00112233-4455-6677-8899-aabbccddeeff\n""#, token,
            #""\#(String(repeating: "aB", count: 16))""#, #""\#(String(repeating: "a", count: 31))""#,
            #""\#(String(repeating: "a", count: 33))""#, #""\#(String(repeating: "a", count: 30))""#,
            #""\#(String(repeating: "a", count: 400))""#, #""\#(String(repeating: "a", count: 402))""#,
            #""xyz""#,
            #""a b""#, #"" a""#, #""a ""#, #""a\n""#, #""é""#, #""\u0041\/""#, #""a\u0000""#,
            #""\ud83d\udc8c""#,
            #""\#(String(repeating: "c", count: 64))""#, #""\#(String(repeating: "c", count: 65))""#,
            #""\#(String(repeating: "c", count: 255))""#, #""\#(String(repeating: "c", count: 256))""#,
            #""\#(String(repeating: "c", count: 257))""#, #""QUJD+/=_-""#, #""a.b""#, #""a_b.c""#, #""a..b""#,
            #"".a""#,
            #""a.""#,
            #""com.apple.mgmt.External.x""#, #""com.apple.mgmt.""#, #""com.apple.mgmt""#, #""Alert""#,
        ] + PushType.allCases.map { #""\#($0.headerValue)""# }
        + PushType.allCases.map { #""com.example.app\#($0.topicSuffix)""# }
        + PushType.allCases.filter { $0.topicSuffix.utf8CodeUnitCount > 0 }.map { #""\#($0.topicSuffix)""# }
        + DeliveryMode.allCases.map { #""\#($0.name)""# } + DuplicatePolicy.allCases.map { #""\#($0.name)""# }
        + JobEnvironment.allCases.map { #""\#($0.name)""# } + [#""sandbox""#, #""Production""#]
        + DeviceEvent.allCases.map { #""\#($0.name)""# } + JobKind.allCases.map { #""\#($0.name)""# }

    /// A valid value of every optional field.
    static let goodValues: [(name: String, value: String)] = [
        ("device-token", token), ("channel-id", #""QUJD""#), ("push-type", #""alert""#), ("priority", "10"),
        ("expiration", "1800000000"), ("ttl", "60"), ("collapse-id", #""a""#), ("apns-id", uuid),
        ("deliver-at", "1700000000000"), ("delivery", #""confirm""#), ("receipt-timeout", "30"),
        ("registered-at", "1700000000000"), ("duplicates", #""allow""#), ("environment", #""development""#),
        ("created-at", "1700000000000"), ("event", #""offline""#), ("new-device-token", token),
        ("occurred-at", "1700000000000"),
        ("payload", "{}"),
    ]

    static let names =
        JobField.allCases.map(\.memberName.text) + ["apns-topic", "Topic", "", "payl\\u006fad"]

    static func corpus() -> [Draft] {
        var random = SeededGenerator(seed: 2026)
        var drafts = bases
        for (index, base) in bases.enumerated() {
            for name in names {
                var without = base
                without.set(name, nil)
                drafts.append(without)
                var doubled = base
                if let member = base.members.first(where: { $0.name == name }) {
                    doubled.members.append(member)
                }
                drafts.append(doubled)
                // Every field takes every value once, and a few values in each kind.
                let isFirst = bases.firstIndex { $0.members.contains { $0.name == name } } == index
                for value in isFirst ? values : (0..<12).map({ _ in values.randomElement(using: &random)! }) {
                    var changed = base
                    changed.set(name, value)
                    drafts.append(changed)
                }
            }
        }
        for _ in 0..<1000 {
            var draft = bases.randomElement(using: &random)!
            for _ in 0..<Int.random(in: 2...4, using: &random) {
                let value =
                    Int.random(in: 0..<6, using: &random) == 0 ? nil : values.randomElement(using: &random)!
                draft.set(names.randomElement(using: &random)!, value)
            }
            drafts.append(draft)
        }
        // Every pair of fields, present and absent.
        for base in bases {
            for (index, one) in goodValues.enumerated() {
                for other in goodValues[..<index] {
                    var both = base
                    both.set(one.name, one.value)
                    both.set(other.name, other.value)
                    drafts.append(both)
                    both.set(one.name, nil)
                    drafts.append(both)
                }
            }
        }
        // All combinations of push type, topic and priority.
        for type in PushType.allCases {
            for topic in PushType.allCases {
                for priority in [nil, "10", "5", "1"] {
                    var draft = bases[0]
                    draft.set("push-type", #""\#(type.headerValue)""#)
                    draft.set("topic", #""com.apple.mgmt.x\#(topic.topicSuffix)""#)
                    draft.set("priority", priority)
                    drafts.append(draft)
                }
            }
        }
        return drafts
    }

    private func record(_ json: [UInt8]) -> TestRecord {
        var record = TestRecord(document: "")
        record.value = json
        if let key = JobEncoder.document(json)?.key { record.key = key }
        return record
    }

    @Test func schemaAndDecoderAgree() throws {
        let documents =
            Self.corpus().map(\.json) + JobRuleTests.malformedDocuments.compactMap { $0.record().value }
        let beyond = try Schemas.load("job")["x-rules-beyond-this-schema"].names
        #expect(beyond.isSubset(of: JobRule.allCases.map(\.rawValue)))
        let verdicts = try Schemas.verdicts(documents, schema: "job")
        let decoder = TestDecoder()
        var accepted = 0
        var disagreements = 0
        for (json, verdict) in zip(documents, verdicts) {
            switch decoder.decode(record(json)) {
            case .success:
                accepted += 1
                if verdict == "valid" { continue }
                disagreements += 1
                if disagreements < 10 { Issue.record("decoder accepts, \(verdict): \(text(json))") }
            case .failure(let error):
                if verdict != "valid" || beyond.contains(error.rule.rawValue) { continue }
                disagreements += 1
                if disagreements < 10 { Issue.record("schema accepts, decoder: \(error): \(text(json))") }
            }
        }
        #expect(disagreements == 0, "of \(documents.count)")
        #expect(
            accepted > 500 && accepted < documents.count - 500, "\(accepted) of \(documents.count) accepted")
    }

    private func text(_ json: [UInt8]) -> String { String(decoding: json.prefix(600), as: UTF8.self) }

    /// Both modes accept or refuse the same job, and decode it equally.
    @Test func binaryAndStructuredModeAgree() {
        let decoder = TestDecoder()
        var compared = 0
        var accepted = 0
        for draft in Self.corpus() {
            guard let binary = draft.binary else { continue }
            compared += 1
            switch (decoder.decode(binary), decoder.decode(record(draft.json))) {
            case (.success(let one), .success(let other)):
                accepted += 1
                #expect(one == other)
            case (.failure, .failure): break
            case (let one, let other): Issue.record("\(one)\n\(other)\n\(text(draft.json))")
            }
        }
        #expect(compared > 2000 && accepted > 500, "\(accepted) of \(compared) accepted")
    }

    /// Every combination of kind, reason and cause produces a document that the schema accepts.
    @Test func outcomesMatchTheirSchema() throws {
        var documents: [[UInt8]] = []
        func add(
            _ kind: OutcomeKind, collapse: String? = nil, topic: String = "com.example.app",
            _ change: (inout Outcome) -> Void
        ) {
            documents.append(Array(OutcomeTests.encode(kind, topic: topic, collapse: collapse, change).utf8))
        }
        for kind in OutcomeKind.allCases {
            add(kind) { _ in }
            add(kind, collapse: #"a"\ b"#, topic: "") { $0.pushType = nil }
        }
        for reason in Reason.allCases {
            let body =
                #"{"reason":"\#(reason == .unknown ? "Some \\u00e9 <b>" : reason.name.text)","timestamp":1700000000000}"#
            for status: UInt16 in [200, 400, 403, 410, 429, 500, 999] {
                let verdict = body.withBytes { ResponseVerdict.classify(status: status, body: $0) }
                add(.rejected) {
                    $0.apply(verdict, registeredAtMilliseconds: nil)
                    $0.attempts = 2
                    $0.firstSentMilliseconds = 1_700_000_000_020
                }
            }
        }
        for cause in OutcomeCause.allCases {
            add(.undeliverable) {
                $0.cause = cause
                $0.supersededBy = APNSID(high: 1, low: 2)
            }
        }
        for (kind, count) in [
            (OutcomeKind.cancelled, UInt32?(3)), (.tooLate, nil), (.notFound, nil), (.applied, 0),
        ] {
            for job in JobKind.allCases where job != .push {
                add(kind, topic: "") {
                    $0.job = job
                    $0.pushType = nil
                    $0.count = count
                }
            }
        }
        add(.rejected) {
            $0.reason = .unregistered
            $0.reasonClass = .token
            $0.deleteToken = true
            $0.cause = .deviceUnregistered
        }
        add(.rejected) {
            $0.reason = .badDeviceToken
            $0.reasonClass = .token
            $0.suspectToken = true
        }
        for type in PushType.allCases { add(.accepted) { $0.pushType = type } }
        let verdicts = try Schemas.verdicts(documents, schema: "outcome")
        for (document, verdict) in zip(documents, verdicts) where verdict != "valid" {
            Issue.record("\(verdict): \(text(document))")
        }
        #expect(documents.count > 300)
        #expect(documents.allSatisfy { OutcomeSummary(json: $0) != nil })
    }

    /// Without a required member, an outcome is neither valid nor readable.
    @Test func requiredOutcomeMembersAreRequired() throws {
        let required = try Schemas.load("outcome")["required"].strings
        let document = Array(OutcomeTests.encode(.accepted).utf8)
        var broken: [[UInt8]] = []
        for name in required {
            let renamed = String(decoding: document, as: UTF8.self)
                .split(separator: #""\#(name)":"#, maxSplits: 1, omittingEmptySubsequences: false)
                .joined(separator: #""another":"#)
            broken.append(Array(renamed.utf8))
        }
        #expect(broken.count == required.count)
        for (json, verdict) in zip(broken, try Schemas.verdicts(broken, schema: "outcome")) {
            #expect(verdict != "valid")
            let isAttempts = !text(json).contains(#""attempts":"#)
            #expect((OutcomeSummary(json: json) == nil) != isAttempts, "only attempts has a default")
        }
    }

    /// The dead letter of every malformed record in these tests.
    @Test func deadLettersMatchTheirSchema() throws {
        let decoder = TestDecoder()
        var documents: [[UInt8]] = []
        let malformed =
            JobRuleTests.malformedHeaders + JobRuleTests.malformedPayloads + JobRuleTests.malformedControls
            + JobRuleTests.malformedDocuments
        for case let record in malformed.map({ $0.record() }) {
            let error = try #require(decoder.error(record))
            let headers = record.withRecord { DeadLetter.headers(for: error, record: $0) }
            var writer = ByteWriter()
            writer.append("{")
            for (index, header) in headers.enumerated() {
                writer.append(index == 0 ? "" : ",")
                writer.append(jsonString: header.name)
                writer.append(":")
                header.value.withUnsafeBytes { writer.append(jsonString: $0) }
            }
            writer.append("}")
            documents.append(Array(writer.bytes))
        }
        for (document, verdict) in zip(documents, try Schemas.verdicts(documents, schema: "dead-letter")) {
            #expect(verdict == "valid", "\(text(document))")
        }
        let without = documents.map { Array(text($0).replacing("sluice-error-rule", with: "rule").utf8) }
        #expect(try Schemas.verdicts(without, schema: "dead-letter").allSatisfy { $0 != "valid" })
    }
}
