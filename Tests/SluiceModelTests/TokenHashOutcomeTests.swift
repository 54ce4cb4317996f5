import SluiceModel
import Testing

@Suite("Outcomes and dead letters without device tokens")
struct TokenHashOutcomeTests {
    private static let hash = "0123456789abcdef0123456789abcdef"

    @Test func theHashStandsInTheTokensPlace() throws {
        let decoder = TestDecoder()
        var record = TestRecord.push()
        record.offset = 7
        var writer = ByteWriter()
        record.withRecord { record in
            var job = JobDecoder()
            guard case .push(let push)? = try? job.decode(record, nowMilliseconds: 5) else { return }
            defer { push.release() }
            let outcome = Outcome(
                .accepted, of: push, sourceTopic: record.topic, partition: 3, offset: 7,
                polledMilliseconds: 1,
                finishedMilliseconds: 2)
            Self.hash.withBytes { OutcomeEncoder.encode(outcome, deviceTokenHash: $0, into: &writer) }
        }
        let text = writer.bytes.text
        #expect(text.contains(#""device-token-hash":"\#(Self.hash)","topic""#))
        #expect(!text.contains(TestRecord.token) && !text.contains(#""device-token":"#))
        let summary = try #require(OutcomeSummary(json: writer.bytes))
        #expect(summary.deviceToken == Self.hash && summary.isTokenHashed && summary.offset == 7)
        #expect(decoder.push(record) != nil)
    }

    @Test func headersThatMayHoldATokenAreFound() {
        func mayHold(_ name: String, _ value: String?, key: String? = "00aaFF11") -> Bool {
            let key = key.map { Array($0.utf8) }
            return name.withBytes { name in
                (value ?? "").withBytes { bytes in
                    (key ?? []).withUnsafeBytes { keyBytes in
                        DeadLetter.mayHoldToken(
                            RecordHeader(name: name, value: value == nil ? nil : bytes),
                            key: key == nil ? nil : keyBytes)
                    }
                }
            }
        }
        #expect(
            mayHold("device-token", nil) && mayHold("Device-Token", "x") && mayHold("new-device-token", "x"))
        #expect(
            mayHold("x-to", "for 00AAff11.") && mayHold("x-to", "00aaFF11") && !mayHold("x-to", "00aaF11"))
        #expect(
            mayHold("x-to", "0000aaFF1100", key: "\"00aaff11\"")
                && mayHold("x-to", "zzzyzzzyzz", key: "zzzyzzzyz"))
        #expect(!mayHold("x-to", "00aaFF11", key: nil) && !mayHold("x-to", "", key: ""))
        // A short key could be anywhere. A long one takes no longer than its length.
        #expect(!mayHold("x-to", "a", key: "a") && !mayHold("x-to", "0000001", key: "0000001"))
        let long = String(repeating: "z", count: 400_000)
        #expect(!mayHold("x-to", long + long, key: long + "y") && mayHold("x-to", long + "y", key: long))
        #expect(mayHold("x-other", "token:\(TestRecord.token)"))
        #expect(mayHold("x-other", TestRecord.token.uppercased(), key: nil))
        #expect(!mayHold("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"))
        #expect(!mayHold("apns-topic", "com.example.app") && !mayHold("x-null", nil))
    }

    @Test func appendedHeadersJoinARow() {
        var row = ByteWriter()
        func append(_ name: String, _ value: String?) {
            name.withBytes { name in
                (value ?? "").withBytes { bytes in
                    PassedHeaders.append(
                        RecordHeader(name: name, value: value == nil ? nil : bytes), to: &row)
                }
            }
        }
        append("x-one", "1")
        append("x-null", nil)
        append("", "no name")
        append(String(repeating: "n", count: 256), "long name")
        append("x-long", String(repeating: "v", count: 65_535))
        append("x-last", "")
        let headers = PassedHeaders(checking: row.bytes)
        var found: [String] = []
        headers?.forEach { found.append("\($0.name.text)=\($0.value?.text ?? "null")") }
        #expect(found == ["x-one=1", "x-null=null", "x-last="])
    }
}
