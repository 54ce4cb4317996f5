import Testing

@testable import SluiceModel

/// Jobs in packed mode: lines of fields before the payload.
@Suite struct PackedFieldsTests {
    let decoder = TestDecoder()
    private let valid = "apns-topic:com.example.app\napns-push-type:alert\n"

    private func record(_ value: String) -> TestRecord { TestRecord(key: TestRecord.token, value: value) }

    private func push(_ lines: String) -> TestRecord { record("\(lines)\n\(TestRecord.payload)") }

    @Test func everyJobOfTheEncoderIsTheSameWhenPacked() throws {
        var push = PushDescription(
            deviceToken: TestRecord.token, topic: "com.example.app", payload: Array(TestRecord.payload.utf8))
        push.priority = 5
        push.ttl = 3_600
        push.collapseIdentifier = #"a: "b""#
        push.apnsID = "00112233-4455-6677-8899-aabbccddeeff"
        push.deliverAtMilliseconds = 1_700_000_100_000
        push.delivery = "confirm"
        push.receiptTimeoutSeconds = 30
        push.environment = "development"
        push.duplicates = "avoid"
        push.createdAtMilliseconds = 1_690_000_000_000
        var cancel = ControlDescription(.cancel, deviceToken: TestRecord.token)
        cancel.apnsID = "00112233-4455-6677-8899-aabbccddeeff"
        for job in [JobEncoder.binary(push), JobEncoder.binary(cancel)] {
            let packed = try JobEncoder.packed(job)
            #expect(packed.headers.isEmpty)
            #expect(try decoder.decode(TestRecord(packed)).get() == decoder.decode(TestRecord(job)).get())
        }
    }

    @Test func namesIgnoreCaseAndLinesHaveAnyOrder() throws {
        let push = try #require(decoder.push(push("APNS-Push-Type:alert\napns-topic:com.example.app\n")))
        #expect(push.topic == "com.example.app")
        #expect(push.payload == TestRecord.payload)
    }

    /// A decoder compares each line with that of the record before. Names of all lengths, in changing order and case.
    @Test func orderOfTheRecordBeforeChangesNothing() throws {
        let values: [JobField: String] = [
            .topic: "com.example.app", .pushType: "alert", .priority: "5", .ttl: "60",
            .collapseIdentifier: "a:b",
            .apnsID: "00112233-4455-6677-8899-aabbccddeeff", .deliverAt: "1700000100000",
            .delivery: "confirm",
            .receiptTimeout: "30", .registeredAt: "1690000000000", .duplicates: "avoid",
            .environment: "development", .createdAt: "1690000000000", .kind: "push",
        ]
        var random = SeededGenerator(seed: 78)
        for _ in 0..<2_000 {
            var fields = values.keys.filter { _ in Bool.random(using: &random) } + [.topic, .pushType]
            fields = Array(Set(fields)).sorted { $0.rawValue < $1.rawValue }
            if Bool.random(using: &random) { fields.shuffle(using: &random) }
            if !fields.contains(.delivery) { fields.removeAll { $0 == .receiptTimeout } }
            let headers = fields.map { field in
                let name = field.headerName?.text ?? ""
                return (
                    Int.random(in: 0..<9, using: &random) == 0 ? name.uppercased() : name, values[field] ?? ""
                )
            }
            let lines = headers.map { "\($0.0):\($0.1)\n" }.joined()
            let binary = TestRecord(
                key: TestRecord.token, value: TestRecord.payload, headers: headers.map { ($0.0, $0.1) })
            #expect(try decoder.decode(push(lines)).get() == decoder.decode(binary).get(), "\(lines)")
        }
    }

    /// A name that differs from the expected one in any byte is another name.
    @Test(arguments: JobField.allCases.compactMap(\.headerName?.description))
    func nameThatNearlyIsTheExpectedOneIsNoField(_ name: String) throws {
        let value = name == "kind" ? "push" : "x"
        func lines(_ name: String) -> String { "x-a:1\n\(name):\(value)\n\(valid)" }
        for index in name.indices {
            _ = decoder.decode(push(lines(name)))
            var other = name
            other.replaceSubrange(index...index, with: "?")
            #expect(decoder.error(push(lines(other)))?.rule == .packedLine)
        }
        for other in [name + "?", String(name.dropLast()) + "?"] {
            _ = decoder.decode(push(lines(name)))
            #expect(decoder.error(push(lines(other)))?.rule == .packedLine)
        }
    }

    @Test func payloadIsAllBytesAfterTheFirstEmptyLine() throws {
        let payload = "\n { \"a\": 1 }\n\n"
        #expect(try #require(decoder.push(record("\(valid)\n\(payload)"))).payload == payload)
    }

    @Test(arguments: [
        "kind:device\nevent:offline", "kind:device\nevent:offline\n", "kind:device\nevent:offline\n\n",
    ])
    func jobWithoutPayloadHasTheLinesAlone(_ value: String) throws {
        guard case .success(.control(let kind, _, _, _)) = decoder.decode(record(value)) else {
            Issue.record("\(decoder.decode(record(value)))")
            return
        }
        #expect(kind == .device)
    }

    @Test func linesThatAreNoFieldCountAsHeaders() throws {
        let push = try #require(
            decoder.push(push("\(valid)traceparent:00-a\nx-note:a:b\ncontent-type:text/plain\n")))
        #expect(push.headers == ["traceparent: 00-a", "x-note: a:b"])
    }

    /// The type of the content is no header of the producer's, also where the names of passed headers match it.
    @Test func contentTypeIsNeverPassedOn() throws {
        let decoder = TestDecoder(.init(passedHeaders: PassedHeaderNames(["x-*", "content-type"])))
        for value in ["text/plain", String(repeating: "a", count: 600)] {
            let lines = "\(valid)content-type:\(value)\nx-a:\(String(repeating: "b", count: 800))\nx-b:c\n"
            let push = try #require(decoder.push(push(lines)))
            #expect(push.headers == ["x-a: \(String(repeating: "b", count: 800))", "x-b: c"])
        }
    }

    @Test func traceOfARecordIsInALine() {
        let lines = "\(valid)traceparent:00-\(String(repeating: "ab", count: 16))-00f067aa0ba902b7-01\n"
        push(lines).withRecord { #expect(TraceIdentifier.text(of: $0) == String(repeating: "ab", count: 16)) }
        push(valid).withRecord { #expect(TraceIdentifier.text(of: $0) == nil) }
    }

    @Test func headersOfTheRecordAreNoFields() throws {
        var packed = push(valid)
        packed.headers = [
            ("apns-topic", Array("com.example.other".utf8)), ("traceparent", Array("00-a".utf8)),
            ("ttl", nil),
            ("content-type", Array("application/json".utf8)),
        ]
        let push = try #require(decoder.push(packed))
        #expect(push.topic == "com.example.app")
        #expect(push.headers == [])
    }

    @Test(arguments: [
        ("apns-topic:com.example.app\napns-topic:com.example.app\n", "apns-topic", JobRule.doubled),
        ("apns-topic:com.example.app\napns-push-type:alert\nno colon\n", "fields", .packedLine),
        ("apns-topic:com.example.app\r\napns-push-type:alert\r\n", "fields", .packedLine),
        ("apns-topic:com.example.app\n:x\n", "fields", .packedLine),
        ("apns-topc:com.example.app\napns-push-type:alert\n", "apns-topc", .unknown),
        ("apns-topic: com.example.app\napns-push-type:alert\n", "apns-topic", .charset),
        ("x:\n", "apns-topic", .required),
    ])
    func faultyLinesAreNamed(_ lines: String, _ field: String, _ rule: JobRule) throws {
        let carriageReturn = lines.contains("\r") ? "\r" : ""
        let error = try #require(decoder.error(record("\(lines)\(carriageReturn)\n\(TestRecord.payload)")))
        #expect(error.rule == rule)
        #expect(error.field == field)
    }

    @Test func payloadWithoutAnEmptyLineIsNoLine() throws {
        let error = try #require(decoder.error(record(valid + TestRecord.payload)))
        #expect(error.rule == .packedLine)
        #expect(error.message.contains("an empty line"))
    }

    @Test func missingPayloadIsNamed() throws {
        let error = try #require(decoder.error(record(valid)))
        #expect(error.field == "payload" && error.rule == .required)
        #expect(error.message.contains("an empty line"))
    }

    @Test func misspeltLineNamesTheOneMeant() throws {
        let error = try #require(decoder.error(push("apns-topc:com.example.app\napns-push-type:alert\n")))
        #expect(error.message.contains("did you mean `apns-topic`?"))
    }

    @Test func valueOfTheDocumentsSizeAndMoreIsRefused() throws {
        let value = "\(valid)x:\(String(repeating: "y", count: JobLimits.maximumDocumentSize))\n\n{}"
        #expect(decoder.error(record(value))?.rule == .documentSize)
    }

    /// The rest of a value would count as a line, and a payload alone as another mode.
    @Test func jobWithoutAPackedFormIsRefused() {
        let cut = EncodedJob(
            key: [], value: [],
            headers: [("apns-topic", Array("a\nttl:60".utf8)), ("apns-push-type", Array("alert".utf8))])
        let bare = EncodedJob(key: [], value: Array("{}".utf8), headers: [])
        for (job, field) in [(cut, "apns-topic"), (bare, "fields")] {
            let error = #expect(throws: JobError.self) { try JobEncoder.packed(job) }
            #expect(error?.field == field && error?.rule == .packedLine)
        }
    }

    @Test(arguments: [
        "{}", " a:b", "null", "hello", "", "1:2", "\"a\":1", String(repeating: "a", count: 256) + ":b",
    ])
    func otherValuesAreInAnotherMode(_ value: String) {
        #expect(!value.withBytes { PackedFields.begin($0) })
    }

    @Test(arguments: ["a:", "Z:b", String(repeating: "a", count: 255) + ":b"])
    func letterAndColonBeginPackedMode(_ value: String) {
        #expect(value.withBytes { PackedFields.begin($0) })
    }

    /// A reader of dead letters knows a job by its identifier, although the record isn't a valid job.
    @Test(arguments: [
        ("ttl:x\nAPNS-ID:\(JobRuleTests.uuid)\nno colon", true), ("apns-id:\(JobRuleTests.uuid)", true),
        ("no colon\napns-id:\(JobRuleTests.uuid)", false), ("apns-id:12\n", false),
        ("ttl:1\n\napns-id:\(JobRuleTests.uuid)", false),
        (#"{"kind":7,"apns-id":"\#(JobRuleTests.uuid)","payload":{"aps":}"#, true),
        (#"{"payload":{"apns-id":"\#(JobRuleTests.uuid)"}}"#, false), (#"{"apns-id":7}"#, false),
        (#"{"aps":"#, false), ("", false),
    ])
    func identifierIsFoundInAValue(_ value: String, _ isFound: Bool) {
        let found = value.withBytes { APNSID(jobValue: $0) }
        #expect(found?.description == (isFound ? JobRuleTests.uuid : nil))
    }

    @Test func randomBytesNeverTrap() {
        var random = SeededGenerator(seed: 77)
        let pieces = [
            "apns-topic", ":", "\n", "apns-push-type", "alert", "com.example.app", "ttl", "9", "\u{0}", "é",
            "{}",
            "traceparent", "x-a",
        ]
        for _ in 0..<5_000 {
            let lines = (0..<Int.random(in: 0..<14, using: &random)).map { _ in
                pieces.randomElement(using: &random) ?? ""
            }
            _ = decoder.decode(record(lines.joined()))
            _ = lines.joined().withBytes { APNSID(jobValue: $0) }
        }
    }
}

/// Conversions that handle eight bytes at a time, against plain ones.
@Suite struct WordConversionTests {
    @Test func decimalsOfAnyLengthAreWritten() {
        var values: [Int64] = [0, .min, .max, -1]
        var power: Int64 = 1
        for _ in 0..<18 {
            power *= 10
            values += [power - 1, power, power + 1, -power, power / 7]
        }
        for value in values {
            var writer = ByteWriter()
            writer.append(decimal: value)
            #expect(String(decoding: writer.bytes, as: UTF8.self) == "\(value)")
        }
        var random = SeededGenerator(seed: 5)
        for _ in 0..<10_000 {
            let value = Int64(bitPattern: random.next() >> (random.next() & 63))
            var writer = ByteWriter()
            writer.append(decimal: value)
            guard String(decoding: writer.bytes, as: UTF8.self) == "\(value)" else {
                Issue.record("\(value) is written as \(String(decoding: writer.bytes, as: UTF8.self))")
                return
            }
        }
    }

    @Test func timesAreWrittenAsDecimals() {
        var writer = ByteWriter()
        var expected = ""
        let second: Int64 = 1_700_000_000
        for value in [
            0, -1, 999_999_999_999, 1_000_000_000_000, 9_999_999_999_999, 10_000_000_000_000, .max, .min,
            second * 1_000, second * 1_000 + 7, second * 1_000 + 99, second * 1_000 + 999,
            second * 1_000 + 1_000,
            second * 1_000 + 5, 1_000_000_000_001,
        ] as [Int64] {
            writer.append(milliseconds: value)
            writer.append(UInt8(ascii: " "))
            expected += "\(value) "
        }
        #expect(String(decoding: writer.bytes, as: UTF8.self) == expected)
    }

    @Test func bytesAreEqualOnlyWhenEachIs() {
        for count in 0..<30 {
            let bytes = (0..<count).map { UInt8($0) }
            #expect(bytes.withUnsafeBytes { $0.elementsEqual(bytesOf: $0) })
            for place in 0..<count {
                var other = bytes
                other[place] ^= 0x80
                let isEqual = bytes.withUnsafeBytes { first in
                    other.withUnsafeBytes { first.elementsEqual(bytesOf: $0) }
                }
                if isEqual { Issue.record("byte \(place) of \(count) is not compared") }
            }
        }
    }

    @Test func decimalsAreReadOnlyFromDigits() {
        var random = SeededGenerator(seed: 6)
        for _ in 0..<2_000 {
            let value =
                Int64(random.next() >> 5) % Int64.random(in: 1..<1_000_000_000_000_000_000, using: &random)
            let text = Array("\(value)".utf8)
            #expect(text.withUnsafeBytes { $0.decimal } == value)
        }
        // Every byte at every place of a number of nine digits.
        for place in 0..<9 {
            for byte in UInt8.min...UInt8.max {
                var text = Array("123456789".utf8)
                text[place] = byte
                let expected = Int64(String(decoding: text, as: UTF8.self)).flatMap {
                    byte == UInt8(ascii: "0") && place == 0 || byte == UInt8(ascii: "+")
                        || byte == UInt8(ascii: "-") ? nil : $0
                }
                if text.withUnsafeBytes({ $0.decimal }) != expected {
                    Issue.record("byte \(byte) at \(place)")
                }
            }
        }
    }

    @Test func identifiersAreReadOnlyFromLowerCaseDigits() {
        let canonical = "00112233-4455-6677-8899-aabbccddeeff"
        for place in 0..<36 {
            for byte in UInt8.min...UInt8.max {
                var text = Array(canonical.utf8)
                text[place] = byte
                let isDash = [8, 13, 18, 23].contains(place)
                let isLower = "0123456789abcdef".utf8.contains(byte)
                let isUpper = "ABCDEF".utf8.contains(byte)
                let exact = text.withUnsafeBytes { APNSID(canonical: $0) }
                let any = text.withUnsafeBytes { APNSID(anyCase: $0) }
                let isRight =
                    (exact != nil) == (isDash ? byte == UInt8(ascii: "-") : isLower)
                    && (any != nil) == (isDash ? byte == UInt8(ascii: "-") : isLower || isUpper)
                    && any.map { $0.description == String(decoding: text, as: UTF8.self).lowercased() }
                        ?? true
                if !isRight { Issue.record("byte \(byte) at \(place)") }
            }
        }
    }

    @Test func stringsOfEveryLengthAreEscapedAtEveryPlace() {
        for length in 0..<40 {
            for place in 0..<max(1, length) {
                for special in [UInt8(ascii: "\""), 0x1f, 0xff, UInt8(ascii: "x")] {
                    var text = [UInt8](repeating: UInt8(ascii: "a"), count: length)
                    if length > 0 { text[place] = special }
                    var writer = ByteWriter(minimumCapacity: 1)
                    text.withUnsafeBytes { writer.append(jsonString: $0) }
                    let escaped =
                        switch special {
                        case UInt8(ascii: "\""): "\\\""
                        case 0x1f: "\\u001f"
                        case 0xff: "\u{FFFD}"
                        default: "x"
                        }
                    let a = { String(repeating: "a", count: $0) }
                    let expected = length == 0 ? "" : a(place) + escaped + a(length - place - 1)
                    if String(decoding: writer.bytes, as: UTF8.self) != "\"\(expected)\"" {
                        Issue.record("byte \(special) at \(place) of \(length)")
                    }
                }
            }
        }
    }

    @Test func topicsAreJudgedByteForByte() {
        func plain(_ topic: [UInt8]) -> Bool {
            topic.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false).allSatisfy { label in
                !label.isEmpty && label.allSatisfy { isLetter($0) || isDigit($0) || "-_".utf8.contains($0) }
            }
        }
        var random = SeededGenerator(seed: 8)
        let alphabet = Array("ab.Z-9_. ".utf8) + [0xc3, 0x00, 0x7f]
        for _ in 0..<20_000 {
            let topic = (0..<Int.random(in: 0..<40, using: &random)).map { _ in
                Int.random(in: 0..<8, using: &random) == 0
                    ? alphabet.randomElement(using: &random)! : UInt8(ascii: "k")
            }
            guard topic.withUnsafeBytes({ Topic.isWellFormed($0) }) == plain(topic) else {
                Issue.record("\(topic)")
                return
            }
        }
    }
}
