import SluiceModel
import Testing

@Suite struct OutcomeTests {
    static let id = APNSID(high: 0x0011_2233_4455_6677, low: 0x8899_aabb_ccdd_eeff)

    /// Encodes an outcome of a fixed job after `change`.
    static func encode(
        _ kind: OutcomeKind = .accepted, sourceTopic: String = "jobs", topic: String = "com.example.app",
        collapse: String? = nil, _ change: (inout Outcome) -> Void = { _ in }
    ) -> String {
        TestRecord.token.withBytes { token in
            topic.withBytes { topic in
                sourceTopic.withBytes { source in
                    (collapse ?? "").withBytes { identifier in
                        var outcome = Outcome(
                            kind: kind, deviceToken: token, topic: topic, pushType: .alert, apnsID: id,
                            collapseIdentifier: collapse == nil ? nil : identifier, sourceTopic: source,
                            partition: 3,
                            offset: 42, createdMilliseconds: 1_700_000_000_000,
                            polledMilliseconds: 1_700_000_000_010,
                            finishedMilliseconds: 1_700_000_000_030)
                        change(&outcome)
                        var writer = ByteWriter(minimumCapacity: 1)
                        OutcomeEncoder.encode(outcome, into: &writer)
                        return writer.bytes.text
                    }
                }
            }
        }
    }

    @Test func acceptedOutcomeHasItsExactText() {
        let text = Self.encode(collapse: "order-7") {
            $0.status = 200
            $0.attempts = 1
            $0.firstSentMilliseconds = 1_700_000_000_020
        }
        #expect(
            text == """
                {"outcome":"accepted","device-token":"\(TestRecord.token)","topic":"com.example.app",\
                "push-type":"alert","apns-id":"00112233-4455-6677-8899-aabbccddeeff","collapse-id":"order-7",\
                "status":200,"attempts":1,"source":{"topic":"jobs","partition":3,"offset":42},\
                "created-at":1700000000000,"polled-at":1700000000010,"first-sent-at":1700000000020,\
                "finished-at":1700000000030}
                """)
    }

    @Test func everyOutcomeMemberRoundTrips() throws {
        let verdict = #"{"reason":"Unregistered","timestamp":1699999999999}"#.withBytes {
            ResponseVerdict.classify(status: 410, body: $0)
        }
        let text = Self.encode(.rejected, collapse: #"a "b" \c"#) {
            $0.apply(verdict, registeredAtMilliseconds: 1_600_000_000_000)
            $0.attempts = 3
            $0.environment = .development
            $0.uniqueID = APNSID(high: 3, low: 4)
            $0.adjustments = [.createdAt, .timestamp]
            $0.cause = .attemptsExhausted
            $0.supersededBy = APNSID(high: 1, low: 2)
            $0.firstSentMilliseconds = 1_700_000_000_015
        }
        let summary = try #require(OutcomeSummary(json: Array(text.utf8)))
        #expect(summary.kind == .rejected)
        #expect(summary.deviceToken == TestRecord.token)
        #expect(summary.topic == "com.example.app")
        #expect(summary.pushType == "alert")
        #expect(summary.environment == "development")
        #expect(summary.uniqueID == APNSID(high: 3, low: 4))
        #expect(summary.adjusted == ["created-at", "timestamp"])
        #expect(summary.apnsID == Self.id)
        #expect(summary.collapseIdentifier == #"a "b" \c"#)
        #expect(summary.status == 410)
        #expect(summary.reason == "Unregistered")
        #expect(summary.reasonClass == "token")
        #expect(summary.deleteToken)
        #expect(summary.tokenInvalidSinceMilliseconds == 1_699_999_999_999)
        #expect(summary.cause == "attempts-exhausted")
        #expect(summary.supersededBy == APNSID(high: 1, low: 2))
        #expect(summary.attempts == 3)
        #expect(summary.sourceTopic == "jobs")
        #expect(summary.partition == 3)
        #expect(summary.offset == 42)
        #expect(summary.createdMilliseconds == 1_700_000_000_000)
        #expect(summary.polledMilliseconds == 1_700_000_000_010)
        #expect(summary.firstSentMilliseconds == 1_700_000_000_015)
        #expect(summary.finishedMilliseconds == 1_700_000_000_030)
    }

    @Test func headlinesDescribeTheOutcome() throws {
        func headline(_ kind: OutcomeKind, _ change: (inout Outcome) -> Void) -> String? {
            OutcomeSummary(json: Array(Self.encode(kind, change).utf8))?.headline
        }
        #expect(headline(.accepted) { $0.status = 200 } == "accepted")
        #expect(
            headline(.rejected) {
                $0.job = .broadcast
                $0.status = 400
                $0.reason = .channelNotRegistered
            } == "rejected: broadcast 400 ChannelNotRegistered")
        #expect(
            headline(.rejected) {
                $0.status = 400
                $0.reason = .badTopic
            } == "rejected: 400 BadTopic")
    }

    @Test func unknownReasonIsUnknownUnlessItIsLetters() throws {
        let verdict = #"{"reason":"Too \"Odd\""}"#.withBytes {
            ResponseVerdict.classify(status: 400, body: $0)
        }
        let text = Self.encode(.rejected) { $0.apply(verdict, registeredAtMilliseconds: nil) }
        let summary = try #require(OutcomeSummary(json: Array(text.utf8)))
        #expect(summary.reason == "unknown")
        #expect(
            OutcomeSummary(json: Array(text.replacing("unknown", with: "Odd one").utf8))?.reason == "unknown")
        #expect(!summary.deleteToken)
    }

    /// For any bytes, the document is valid JSON and can be read.
    @Test func anyBytesGiveValidJSON() throws {
        var random = SeededGenerator(seed: 3)
        for _ in 0..<2000 {
            let bytes = (0..<40).map { _ in UInt8.random(in: 0...255, using: &random) }
            let text = bytes.withUnsafeBytes { bytes in
                var outcome = Outcome(
                    kind: .undeliverable, deviceToken: bytes, topic: bytes, pushType: nil, apnsID: Self.id,
                    collapseIdentifier: bytes, sourceTopic: bytes, partition: .min, offset: .min,
                    createdMilliseconds: .min, polledMilliseconds: .max, finishedMilliseconds: 0)
                outcome.attempts = .max
                var writer = ByteWriter()
                OutcomeEncoder.encode(outcome, into: &writer)
                return Array(writer.bytes)
            }
            let summary = try #require(OutcomeSummary(json: text))
            #expect(summary.partition == .min)
            #expect(
                summary.deviceToken == String(decoding: bytes, as: UTF8.self)
                    || summary.deviceToken.contains("\u{FFFD}"))
        }
    }

    @Test func outcomesTakeTheFactsOfTheirJobs() throws {
        let record = TestRecord.push([("delivery", "confirm")])
        try record.withRecord { record in
            var decoder = JobDecoder()
            guard case .push(let job) = try decoder.decode(record, nowMilliseconds: 0) else {
                Issue.record("not a push")
                return
            }
            var outcome = Outcome(
                .superseded, of: job, sourceTopic: record.topic, partition: record.partition,
                offset: record.offset,
                polledMilliseconds: 1, finishedMilliseconds: 2)
            outcome.supersededBy = APNSID(high: 1, low: 2)
            var writer = ByteWriter()
            OutcomeEncoder.encode(outcome, into: &writer)
            let summary = try #require(OutcomeSummary(json: writer.bytes))
            #expect(summary.headline == "superseded")
            #expect(summary.job == "push")
            #expect(summary.supersededBy == APNSID(high: 1, low: 2))
            #expect(summary.apnsID == job.apnsID)
        }
        try JobRuleTests.control([("kind", "device"), ("event", "online")]).withRecord { record in
            var decoder = JobDecoder()
            guard case .control(let job) = try decoder.decode(record, nowMilliseconds: 0) else {
                Issue.record("not a control job")
                return
            }
            func summary(_ kind: OutcomeKind, _ count: UInt32?) -> OutcomeSummary? {
                var writer = ByteWriter()
                let outcome = Outcome(
                    kind, of: job, count: count, sourceTopic: record.topic, partition: 0, offset: 1,
                    polledMilliseconds: 1, finishedMilliseconds: 2)
                OutcomeEncoder.encode(outcome, into: &writer)
                return OutcomeSummary(json: writer.bytes)
            }
            #expect(summary(.applied, 2)?.headline == "applied: device, 2 pushes")
            #expect(summary(.applied, 2)?.count == 2)
            #expect(summary(.applied, 2)?.job == "device")
        }
    }

    @Test func deadLetterNamesErrorAndPosition() throws {
        let record = TestRecord.push([("apns-priority", "3")])
        let error = try #require(TestDecoder().error(record))
        let headers = record.withRecord { DeadLetter.headers(for: error, record: $0) }
        #expect(headers.map(\.name) == DeadLetter.Header.allCases.map(\.rawValue))
        #expect(
            headers.map { String(decoding: $0.value, as: UTF8.self) } == [
                "apns-priority", "choice", "must be 10, 5 or 1", "jobs", "3", "42", "1700000000123",
            ])
        #expect(headers.allSatisfy { Array($0.name.utf8).withUnsafeBytes { DeadLetter.isOwnHeader($0) } })
    }

    @Test(arguments: [0, 7, -1, 10, 99, 100, 1_700_000_000_000, Int64.max, Int64.min])
    func integersAreWrittenInDecimal(_ value: Int64) {
        var writer = ByteWriter()
        writer.append(decimal: value)
        #expect(writer.bytes.text == "\(value)")
    }

    @Test func writerGrowsAndIsReused() {
        var writer = ByteWriter(minimumCapacity: 0)
        for round in 0..<3 {
            writer.removeAll()
            var expected = ""
            for index in 0..<500 {
                writer.append("item ")
                Array("\(index),".utf8).withUnsafeBytes { writer.append($0) }
                expected += "item \(index),"
            }
            #expect(writer.bytes.text == expected, "round \(round)")
        }
        writer.removeAll()
        writer.append(jsonString: "\u{0}\"\\/\u{1F}é💌")
        #expect(writer.bytes.text == #""\u0000\"\\/\u001fé💌""#)
    }
}
