import SluiceModel
import Testing

@Suite struct JobDecoderTests {
    let decoder = TestDecoder()

    @Test func minimalBinaryPushTakesDefaults() throws {
        let push = try #require(decoder.push(.push()))
        #expect(push.deviceToken == TestRecord.token)
        #expect(push.topic == "com.example.app")
        #expect(push.payload == TestRecord.payload)
        #expect(push.pushType == .alert)
        #expect(push.priority == .immediate)
        #expect(push.expiration == .unspecified)
        #expect(push.collapseIdentifier == nil)
        #expect(push.deliverAt == nil)
        #expect(push.delivery == .accept)
        #expect(push.duplicates == .allow)
        #expect(push.environment == nil)
        #expect(push.registeredAt == nil)
        #expect(push.created == 1_700_000_000_123)
        let derived = "jobs".withBytes { APNSID.derived(topic: $0, partition: 3, offset: 42) }
        #expect(push.apnsID == derived)
    }

    @Test func everyHeaderIsDecoded() throws {
        let push = try #require(
            decoder.push(
                .push([
                    ("kind", "push"), ("apns-priority", "1"), ("apns-expiration", "1800000000"),
                    ("apns-collapse-id", "order 7/~"), ("apns-id", JobRuleTests.uuid),
                    ("deliver-at", "1700000500000"), ("delivery", "confirm"), ("receipt-timeout", "86400"),
                    ("registered-at", "1690000000000"), ("duplicates", "avoid"),
                    ("environment", "production"), ("created-at", "1699999999999"),
                ])))
        #expect(push.priority == .lowPower)
        #expect(push.expiration == .at(1_800_000_000))
        #expect(push.collapseIdentifier == "order 7/~")
        #expect(push.apnsID.description == JobRuleTests.uuid)
        #expect(push.deliverAt == 1_700_000_500_000)
        #expect(push.delivery == .confirm)
        #expect(push.receiptTimeout == 86_400)
        #expect(push.registeredAt == 1_690_000_000_000)
        #expect(push.duplicates == .avoid)
        #expect(push.environment == .production)
        #expect(push.created == 1_699_999_999_999)
    }

    @Test(arguments: PushType.allCases)
    func everyPushTypeDecodesWithItsTopic(_ type: PushType) throws {
        let topic = type == .mdm ? "com.apple.mgmt.External.1" : "com.example.app\(type.topicSuffix)"
        let limit = type == .voip ? 5120 : 4096
        let record = TestRecord.push(
            [("apns-push-type", type.headerValue.text), ("apns-topic", topic)],
            value: JobRuleTests.sized(limit))
        let push = try #require(decoder.push(record))
        #expect(push.pushType == type)
        #expect(push.priority == (type == .background ? .powerAware : .immediate))
        #expect(type.headerValue.bytesForTest.withUnsafeBytes { PushType(headerValue: $0) } == type)
    }

    @Test(arguments: [
        ("production", JobEnvironment.production), ("development", .development), ("sandbox", .development),
    ])
    func environmentHasASecondSpelling(_ name: String, _ environment: JobEnvironment) throws {
        #expect(decoder.push(.push([("environment", name)]))?.environment == environment)
        let document = JobRuleTests.document(#""environment":"\#(name)""#)
        #expect(decoder.push(TestRecord(document: document))?.environment == environment)
        let broadcast = JobRuleTests.broadcast([("environment", name)])
        #expect(decoder.push(broadcast)?.environment == environment)
    }

    /// Apple documents no underscore in bundle identifiers, but APNs alone knows the app.
    @Test func topicMayHaveUnderscores() {
        #expect(decoder.push(.push([("apns-topic", "com.example.my_app")]))?.topic == "com.example.my_app")
    }

    /// Serializers write a member without a value as null, of every field that their class has.
    @Test func nullMemberCountsAsAbsent() throws {
        for base in SchemaCorpusTests.bases {
            var draft = base
            for field in JobField.allCases
            where !base.members.contains(where: { $0.name == field.memberName.text }) {
                draft.set(field.memberName.text, "null")
            }
            let key = try #require(JobEncoder.document(base.json)?.key)
            func decoded(_ draft: Draft) -> Result<OwnedJob, JobError> {
                var record = TestRecord(document: "")
                (record.key, record.value) = (key, draft.json)
                return decoder.decode(record)
            }
            #expect(try decoded(draft).get() == decoded(base).get())
            // The other modes have no nulls.
            let job = try #require(JobEncoder.document(draft.json))
            let fields = base.members.count { !["device-token", "channel-id", "payload"].contains($0.name) }
            #expect(try JobEncoder.binary(document: job.value).headers.count == fields)
        }
    }

    /// A bundle identifier may end in a push type's suffix.
    @Test func alertTopicMayEndInVoip() {
        #expect(decoder.push(.push([("apns-topic", "com.example.voip")])) != nil)
    }

    @Test(arguments: [
        "traceparent", "tracestate", "baggage", "b3", "ce_id", "ce_type", "x-anything", "sluice-error-rule",
    ])
    func foreignHeadersAreSkipped(_ name: String) {
        var record = TestRecord.push([(name, "x")])
        record.headers.append((name: name, value: nil))
        #expect(decoder.push(record) != nil)
        var document = TestRecord(document: JobRuleTests.document())
        document.headers.append((name: name, value: [0xFF]))
        #expect(decoder.push(document) != nil)
    }

    @Test(arguments: [Int64.max, .min, -1, 0, 1, 4_294_967_295_001])
    func implausibleTimestampCountsAsNone(timestamp: Int64) {
        var plain = TestRecord.push([("ttl", "60")])
        plain.timestamp = -1
        var record = plain
        record.timestamp = timestamp
        let push = decoder.push(record)
        #expect(push != nil)
        #expect(push == decoder.push(plain))
    }

    @Test func expirationsAreCapped() {
        #expect(Expiration.at(2_000_000_000).capped(atMilliseconds: 1_900_000_000_999) == .at(1_900_000_000))
        #expect(Expiration.at(1_900_000_000).capped(atMilliseconds: 1_900_000_000_000) == .at(1_900_000_000))
        #expect(Expiration.at(1).capped(atMilliseconds: .max) == .at(1))
        #expect(Expiration.once.capped(atMilliseconds: 0) == .once)
        #expect(Expiration.unspecified.capped(atMilliseconds: 0) == .unspecified)
    }

    @Test func ttlCountsFromDeliveryOrCreation() {
        #expect(decoder.push(.push([("ttl", "60")]))?.expiration == .at(1_700_000_060))
        #expect(
            decoder.push(.push([("ttl", "60"), ("created-at", "1699999999999")]))?.expiration
                == .at(1_700_000_059))
        #expect(
            decoder.push(.push([("ttl", "60"), ("deliver-at", "1700000500999")]))?.expiration
                == .at(1_700_000_560))
        #expect(decoder.push(.push([("ttl", "0")]))?.expiration == .once)
        #expect(decoder.push(.push([("apns-expiration", "0")]))?.expiration == .once)
        var withoutTimestamp = TestRecord.push([("ttl", "60")])
        withoutTimestamp.timestamp = -1
        #expect(decoder.push(withoutTimestamp)?.expiration == .at(1_700_000_160), "from the decoder's clock")
    }

    @Test func expirationIsPastAtItsInstant() {
        #expect(!Expiration.at(1000).isPast(atMilliseconds: 999_999))
        #expect(Expiration.at(1000).isPast(atMilliseconds: 1_000_000))
        #expect(!Expiration.once.isPast(atMilliseconds: .max))
        #expect(!Expiration.unspecified.isPast(atMilliseconds: .max))
    }

    @Test(arguments: [
        "application/json", "application/json; charset=utf-8", "Application/JSON",
        "application/json ;charset=utf-8",
    ])
    func structuredModeIsRecognised(_ contentType: String) {
        var record = TestRecord(document: JobRuleTests.document())
        record.headers = [(name: "content-type", value: Array(contentType.utf8))]
        #expect(decoder.push(record) != nil)
    }

    @Test func structuredPayloadIsTheOriginalText() throws {
        let payload = "{ \"aps\" : {\"alert\":\"\\u00e9 \\\"}\\\" 💌\"} ,\n\"n\":1.50e+1 }"
        let document =
            "\n " + JobRuleTests.document(#""payload":\#t\#(payload) "#, without: "payload") + "\r\n"
        #expect(decoder.push(TestRecord(document: document))?.payload == payload)
    }

    @Test func structuredStringsAreUnescaped() throws {
        let document = JobRuleTests.document(
            #""collapse-id":"a\/b\\c\"\u0041","push\u002dtype":"\u0061lert""#, without: "push-type")
        let push = try #require(decoder.push(TestRecord(document: document)))
        #expect(push.collapseIdentifier == #"a/b\c"A"#)
        #expect(push.pushType == .alert)
    }

    @Test(arguments: ["10", "10.0", "1e1", "1E+1", "100e-1", "0.1e2", "10.000000000000000000000000"])
    func structuredNumbersAcceptAnyNotation(_ number: String) {
        #expect(
            decoder.push(TestRecord(document: JobRuleTests.document(#""priority":\#(number)"#)))?.priority
                == .immediate)
    }

    @Test func bothModesDecodeToTheSamePush() {
        var push = PushDescription(
            deviceToken: TestRecord.token, topic: "com.example.app", payload: Array(TestRecord.payload.utf8))
        push.priority = 5
        push.ttl = 600
        push.collapseIdentifier = #"a "quoted" \ thing"#
        push.apnsID = JobRuleTests.uuid
        push.deliverAtMilliseconds = 1_700_000_000_000
        push.delivery = "confirm"
        push.receiptTimeoutSeconds = 5
        push.registeredAtMilliseconds = 1_600_000_000_000
        push.duplicates = "avoid"
        push.environment = "development"
        push.createdAtMilliseconds = 1_690_000_000_000
        let binary = decoder.push(TestRecord(JobEncoder.binary(push)))
        let structured = decoder.push(TestRecord(JobEncoder.structured(push)))
        #expect(binary != nil)
        #expect(binary == structured)
        #expect(binary?.collapseIdentifier == push.collapseIdentifier)
    }

    @Test func documentRecordGetsTheDocumentsKey() {
        let push = JobEncoder.document(Array(JobRuleTests.document().utf8))
        #expect(push.flatMap { decoder.push(TestRecord($0)) } != nil)
        #expect(push?.key == Array(TestRecord.token.utf8))
        let broadcast = JobEncoder.document(Array(#"{"kind":"broadcast","channel-id":"QUJD"}"#.utf8))
        #expect(broadcast?.key == Array("QUJD".utf8))
        #expect(JobEncoder.document(Array("{}".utf8)) == nil)
        #expect(JobEncoder.document(Array("[".utf8)) == nil)
    }

    @Test func controlAndBroadcastJobsDecode() {
        func decode(_ headers: [(String, String)]) -> OwnedJob? {
            try? decoder.decode(JobRuleTests.control(headers)).get()
        }
        func control(_ kind: JobKind, _ detail: String, topic: String = "") -> OwnedJob {
            .control(kind: kind, address: TestRecord.token, topic: topic, detail: detail)
        }
        let uuid = JobRuleTests.uuid
        #expect(decode([("kind", "cancel"), ("apns-id", uuid)]) == control(.cancel, "cancel \(uuid)"))
        #expect(
            decode([("kind", "cancel"), ("apns-collapse-id", "a"), ("apns-topic", "com.example.app")])
                == control(.cancel, "collapse a", topic: "com.example.app"))
        for event in ["online", "offline", "unregistered", "erase"] {
            #expect(decode([("kind", "device"), ("event", event)]) == control(.device, event))
        }
        #expect(
            decode([("kind", "device"), ("event", "receipt"), ("apns-id", uuid)])
                == control(.device, "receipt \(uuid)"))
        let other = String(repeating: "cd", count: 32)
        #expect(
            decode([("kind", "device"), ("event", "token-changed"), ("new-device-token", other)])
                == control(.device, "token \(other)"))
        let broadcast = try? decoder.decode(
            JobRuleTests.broadcast([("apns-priority", "1"), ("ttl", "0")])
        ).get().push
        #expect(broadcast?.isBroadcast == true)
        #expect(broadcast?.deviceToken == "dHN0LXNyY2gtY2hubA==")
        #expect(broadcast?.topic == "com.example.app")
        #expect(broadcast?.pushType == .liveActivity)
        #expect(broadcast?.payload == TestRecord.payload)
        #expect(broadcast?.priority == .lowPower)
        #expect(broadcast?.expiration == .once)
        #expect(
            (try? decoder.decode(
                TestRecord(
                    document: #"{"kind":"device","device-token":"\#(TestRecord.token)","event":"online"}"#)
            ).get()) == control(.device, "online"))
    }

    @Test func correctedDeadLetterDecodes() throws {
        var record = TestRecord.push([("apns-priority", "3")])
        let error = try #require(decoder.error(record))
        record.headers += record.withRecord { DeadLetter.headers(for: error, record: $0) }
            .map { (name: $0.name, value: $0.value) }
        let index = try #require(record.headers.firstIndex { $0.name == "apns-priority" })
        record.headers[index].value = Array("5".utf8)
        #expect(decoder.push(record)?.priority == .powerAware)
    }

    /// A decoder serves thousands of records of every kind, and carries nothing from one record to the next.
    @Test func decoderIsReusable() {
        for _ in 0..<200 {
            #expect(
                decoder.push(TestRecord(document: JobRuleTests.document(#""collapse-id":"\u0061""#))) != nil)
            #expect(decoder.error(.push(value: "{")) != nil)
            #expect(
                decoder.error(TestRecord(document: JobRuleTests.document(#""collapse-id":"\u000a""#))) != nil)
            #expect(decoder.push(.push()) != nil)
        }
    }
}

extension StaticString {
    var bytesForTest: [UInt8] { Array(description.utf8) }
}
