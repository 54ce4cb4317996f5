import Testing

@testable import SluiceModel

/// Records of producers that know little of Sluice: their headers, keys and content types.
@Suite struct ForeignRecordTests {
    let decoder = TestDecoder()

    @Test func foreignHeadersAreIgnoredAndCounted() throws {
        var record = TestRecord.push([("apns-priority", "5"), ("__TypeId__", "com.example.Push")])
        record.headers.append((name: "__TypeId__", value: nil))
        record.headers.append((name: "contentType", value: Array(#""application/json""#.utf8)))
        let push = try #require(decoder.push(record))
        #expect(push.priority == .powerAware)
        #expect(push.headers.isEmpty)
        #expect(decoder.counts.foreignHeaders == 3)
    }

    @Test func namesOfHeadersIgnoreCase() throws {
        let record = TestRecord(
            key: TestRecord.token, value: TestRecord.payload,
            headers: [("Apns-Topic", "com.example.app"), ("APNS-PUSH-TYPE", "alert"), ("Ttl", "60")])
        #expect(decoder.push(record)?.expiration == .at(1_700_000_060))
        var document = TestRecord(document: JobRuleTests.document())
        document.headers[0].name = "Content-Type"
        #expect(decoder.push(document) != nil)
    }

    @Test func misspeltHeaderNamesTheOneMeant() throws {
        let error = try #require(decoder.error(.push([("Apns_Collapse_Id", "a")])))
        #expect(error.message.contains("did you mean `apns-collapse-id`?"))
        #expect(try #require(decoder.error(.push([("apns-foo-bar", "a")]))).message.contains("apns-topic, "))
        // A name of the producer's own that resembles a field's is listed in the configuration.
        let listed = TestDecoder(.init(passedHeaders: PassedHeaderNames(["Created_At"])))
        #expect(listed.push(.push([("created_at", "today")]))?.headers == ["created_at: today"])
        #expect(decoder.error(.push([("created_at", "today")])) != nil)
    }

    @Test func misspeltMemberNamesTheOneMeant() throws {
        let record = TestRecord(document: JobRuleTests.document(#""apns-collapse-id":"a""#))
        #expect(try #require(decoder.error(record)).message.contains("did you mean `collapse-id`?"))
    }

    // MARK: Modes

    @Test func documentNeedsNoHeader() throws {
        for document in [JobRuleTests.document(), " \n" + JobRuleTests.document(#""kind":"push""#)] {
            var record = TestRecord(key: TestRecord.token, value: document)
            let push = try #require(decoder.push(record))
            #expect(push.payload == TestRecord.payload)
            record.headers = [(name: "__TypeId__", value: nil), (name: "x-request-id", value: [0x41])]
            #expect(decoder.push(record)?.headers == ["x-request-id: A"])
        }
    }

    /// A payload may have a member `kind` of its own.
    @Test func recordWithFieldsInHeadersStaysBinary() throws {
        let payload = #"{"aps":{},"kind":"promotion","device-token":"none"}"#
        #expect(decoder.push(.push(value: payload))?.payload == payload)
        let error = try #require(decoder.error(TestRecord(key: TestRecord.token, value: TestRecord.payload)))
        #expect(error.field == "apns-topic" && error.rule == .required)
    }

    @Test func textThatIsNoDocumentStaysBinary() {
        for value in [#"["kind"]"#, #""kind":"push""#, #"{"#, #"{"kind""#, "", "\u{0}", #"{"a":{"kind":1}}"#]
        {
            let error = decoder.error(TestRecord(key: TestRecord.token, value: value))
            #expect(error?.field == "apns-topic", "\(value)")
        }
    }

    @Test func binaryCloudEventIsAPayload() throws {
        let event = [
            ("ce_specversion", "1.0"), ("ce_id", "1"), ("ce_type", "com.example.push"),
            ("ce_source", "/orders"),
            ("ce_time", "2026-01-01T00:00:00Z"), ("content-type", "application/json; charset=utf-8"),
        ]
        #expect(decoder.push(.push(event))?.payload == TestRecord.payload)
        // Without fields in headers, the event's data can be a document.
        let record = TestRecord(
            key: TestRecord.token, value: JobRuleTests.document(), headers: event.map { ($0.0, $0.1) })
        #expect(decoder.push(record)?.payload == TestRecord.payload)
    }

    @Test func structuredCloudEventCarriesTheDocument() throws {
        let record = JobRuleTests.event(#""time":"2026-01-01T00:00:00Z","data":\#(JobRuleTests.document())"#)
        #expect(decoder.push(record)?.payload == TestRecord.payload)
        var withTrace = record
        withTrace.headers.append((name: "traceparent", value: Array("00-a".utf8)))
        // Passed headers and unescaped values share one block of memory.
        let document = JobRuleTests.document(#""collapse-id":"\u0061\/b""#)
        withTrace.value = Array(#"{"specversion":"1.0","data":\#(document)}"#.utf8)
        let push = try #require(decoder.push(withTrace))
        #expect(push.collapseIdentifier == "a/b")
        #expect(push.headers == ["traceparent: 00-a"])
    }

    // MARK: Keys

    @Test func keyMayBeAJSONString() throws {
        let quoted = #""\#(TestRecord.token)""#
        #expect(decoder.push(.push(key: quoted))?.deviceToken == TestRecord.token)
        #expect(
            decoder.push(TestRecord(document: JobRuleTests.document(), key: quoted))?.deviceToken
                == TestRecord.token)
        #expect(RecordKey.address(in: UnsafeRawBufferPointer(start: nil, count: 0)).isEmpty)
        for key in ["\"", "\"\"", "\"a", "a\""] {
            #expect(decoder.error(.push(key: key)) != nil)
        }
    }

    @Test func missingKeyOfADocumentNamesTheRemedy() throws {
        let error = try #require(decoder.error(TestRecord(document: JobRuleTests.document(), key: nil)))
        #expect(error.message.contains("ValueToKey") && error.message.contains("PARTITION BY"))
    }
}

@Suite struct PassedHeaderTests {
    static let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

    @Test func traceAndOwnHeadersAreKeptInOrder() throws {
        let decoder = TestDecoder()
        var record = TestRecord.push([("traceparent", Self.trace), ("X-Tenant", "7"), ("baggage", "a=b")])
        record.headers.append((name: "x-null", value: nil))
        record.headers.append((name: "X-Tenant", value: []))
        let headers = ["traceparent: \(Self.trace)", "X-Tenant: 7", "x-null: null", "X-Tenant: "]
        #expect(decoder.push(record)?.headers == headers)
        #expect(
            decoder.counts
                == {
                    var counts = JobDecoder.Counts()
                    counts.foreignHeaders = 5
                    return counts
                }())
    }

    /// The rest of the path allocates nothing for such a job.
    @Test func jobWithoutPassedHeadersHasNoMemoryOfItsOwn() throws {
        let storages = try [[], [("baggage", "a")], [("x-a", "b")]].map { (headers: [(String, String?)]) in
            try TestRecord.push(headers).withRecord { record -> Bool in
                var decoder = JobDecoder()
                guard case .push(let push) = try decoder.decode(record, nowMilliseconds: 0) else {
                    return true
                }
                defer { push.release() }
                return push.storage != nil
            }
        }
        #expect(storages == [false, false, true])
    }

    @Test func configurationNamesTheHeaders() {
        let decoder = TestDecoder(.init(passedHeaders: PassedHeaderNames(["baggage", "My-*"])))
        let record = TestRecord.push([
            ("traceparent", Self.trace), ("x-a", "1"), ("Baggage", "b"), ("my-own", "c"), ("baggage2", "d"),
        ])
        #expect(decoder.push(record)?.headers == ["Baggage: b", "my-own: c"])
        #expect(TestDecoder(.init(passedHeaders: PassedHeaderNames([]))).push(record)?.headers == [])
        // Fields never return.
        let all = TestDecoder(.init(passedHeaders: PassedHeaderNames(["*", "apns-topic"])))
        #expect(all.push(record)?.headers.count == 5)
    }

    @Test func headersBeyondTheRoomAreDroppedAndCounted() throws {
        let decoder = TestDecoder()
        let half = String(repeating: "v", count: 500)
        let record = TestRecord.push([
            ("x-1", half), ("x-large", String(repeating: "v", count: 2000)), ("x-2", half), ("x-3", half),
            ("x-4", "end"), ("x-" + String(repeating: "n", count: 254), "long name"),
        ])
        #expect(decoder.push(record)?.headers == ["x-1: \(half)", "x-2: \(half)", "x-4: end"])
        #expect(decoder.counts.droppedHeaders == 3)
    }

    @Test func controlJobsKeepHeaders() throws {
        let record = JobRuleTests.control([("kind", "device"), ("event", "online"), ("x-a", "1")])
        let headers = try record.withRecord { record -> [String] in
            var decoder = JobDecoder()
            guard case .control(let job) = try decoder.decode(record, nowMilliseconds: 0) else { return [] }
            defer { job.release() }
            return job.passedHeaders.texts
        }
        #expect(headers == ["x-a: 1"])
    }

    @Test func onlyWholeRowsAreAccepted() {
        let row = StoredDraft.row([("x-a", "12"), ("x-b", nil)])
        for count in 0...row.count {
            let isWhole = Array(row[..<count]).withUnsafeBytes { PassedHeaders(checking: $0) != nil }
            #expect(isWhole == [0, 8, 14].contains(count), "\(count)")
        }
        var random = SeededGenerator(seed: 20)
        for _ in 0..<3000 {
            let count = Int.random(in: 0...20, using: &random)
            let bytes = (0..<count).map { _ in UInt8.random(in: 0...5, using: &random) }
            let block = UnsafeMutableRawBufferPointer.allocate(byteCount: count, alignment: 1)
            block.copyBytes(from: bytes)
            _ = PassedHeaders(checking: UnsafeRawBufferPointer(block))?.texts
            block.deallocate()
        }
    }

    @Test func traceIdentifierComesFromAWellFormedHeader() {
        func trace(_ value: String) -> String? { value.withBytes { TraceIdentifier.text(in: $0) } }
        #expect(trace(Self.trace) == "4bf92f3577b34da6a3ce929d0e0e4736")
        for value in [
            "", "00", "00-4bf92f3577b34da6a3ce929d0e0e473", Self.trace.replacing("4bf9", with: "4bg9"),
            Self.trace.replacing("-", with: "_"), String(Self.trace.prefix(35)),
        ] {
            #expect(trace(value) == nil)
        }
        let record = TestRecord.push([("Traceparent", Self.trace)])
        #expect(record.withRecord { TraceIdentifier.text(of: $0) } == "4bf92f3577b34da6a3ce929d0e0e4736")
        #expect(TestRecord.push().withRecord { TraceIdentifier.text(of: $0) } == nil)
    }
}
