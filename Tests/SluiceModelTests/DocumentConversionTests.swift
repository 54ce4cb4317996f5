import Testing

@testable import SluiceModel

/// Documents of structured mode that are encoded in another mode.
@Suite struct DocumentConversionTests {
    let decoder = TestDecoder()

    private func record(_ document: [UInt8], _ mode: JobMode) throws -> TestRecord {
        TestRecord(try mode.encode(document: try #require(JobEncoder.document(document))))
    }

    @Test func everyDocumentOfTheCorpusIsTheSameJobInAllModes() throws {
        var valid = 0
        var invalid = 0
        for document in SchemaCorpusTests.corpus().map(\.json) {
            guard JobEncoder.document(document) != nil else { continue }
            let expected = decoder.decode(try record(document, .structured))
            for mode in [JobMode.binary, .packed] {
                guard let converted = try? record(document, mode) else {
                    if case .success = expected { Issue.record("\(text(document)) has no \(mode) form") }
                    continue
                }
                switch (expected, decoder.decode(converted)) {
                case (.success(let job), .success(let other)) where job == other: valid += 1
                case (.failure, .failure): invalid += 1
                case (_, let other): Issue.record("\(mode), \(text(document)): \(other)")
                }
                if mode == .packed, case .success = expected { #expect(converted.headers.isEmpty) }
            }
        }
        #expect(valid > 1_000 && invalid > 1_000, "\(valid) valid, \(invalid) invalid")
    }

    @Test func textsAreUnescapedNumbersAreDecimalsAndThePayloadKeepsItsBytes() throws {
        let document = """
            { "payl\\u006fad" : {"aps": { "alert":"\\u00e9\\n" }} , "collapse-id":"a\\u0020\\"b\\/", "ttl":6e1,
              "priority":5.0,"device-token":"\(TestRecord.token)","topic":"com.example.app","push-type":"alert"}
            """
        let job = try JobEncoder.binary(document: Array(document.utf8))
        #expect(text(job.key) == TestRecord.token)
        #expect(text(job.value) == #"{"aps": { "alert":"\u00e9\n" }}"#)
        #expect(
            job.headers.map { "\($0.name):\(text($0.value))" } == [
                "apns-topic:com.example.app", "apns-push-type:alert", "apns-priority:5", "ttl:60",
                #"apns-collapse-id:a "b/"#,
            ])
        let structured = try decoder.decode(record(Array(document.utf8), .structured)).get()
        #expect(try decoder.decode(TestRecord(job)).get() == structured)
    }

    /// The rest of a value would count as a line.
    @Test func valueWithALineFeedIsNeverPacked() throws {
        let document = """
            {"device-token":"\(TestRecord.token)","topic":"a.b\\nttl:60","push-type":"alert","payload":{}}
            """
        let error = #expect(throws: JobError.self) { try record(Array(document.utf8), .packed) }
        #expect(error?.field == "apns-topic" && error?.rule == .packedLine)
    }

    @Test(arguments: [
        (#"{"device-token":"0a","a":1}"#, "a", JobRule.unknown),
        (#"{"device-token":"0a","ttl":1,"ttl":2}"#, "ttl", .doubled),
        (#"{"device-token":"0a","ttl":"1"}"#, "ttl", .type),
        (#"{"device-token":"0a","ttl":1.5}"#, "ttl", .number),
        (#"{"device-token":"0a","channel-id":"a"}"#, "channel-id", .notForKind),
        (#"{"kind":"post","device-token":"0a"}"#, "kind", .choice), ("{}", "device-token", .required),
        (#"{"kind":"broadcast"}"#, "channel-id", .required), ("[]", "document", .jsonObject),
        ("{", "document", .json), ("", "document", .json),
    ])
    func documentWithoutAFormInBinaryModeIsNamed(_ document: String, _ field: String, _ rule: JobRule) {
        let error = #expect(throws: JobError.self) {
            try JobEncoder.binary(document: Array(document.utf8))
        }
        #expect(error?.field == field && error?.rule == rule, "\(String(describing: error))")
    }

    private func text(_ bytes: [UInt8]) -> String { String(decoding: bytes, as: UTF8.self) }
}
