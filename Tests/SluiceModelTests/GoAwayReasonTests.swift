import SluiceModel
import Testing

/// The debug data of a GOAWAY: its consequences, and the part that reaches a log.
@Suite struct GoAwayReasonTests {
    static func json(_ reason: Reason) -> GoAwayReason {
        GoAwayReason(Array(#"{"reason":"\#(reason.name)"}"#.utf8))
    }

    /// Reasons about a credential stop its pool, and reasons about a topic stop that topic. The rest concern the
    /// connection.
    @Test func everyReasonHasItsScope() {
        let credential: [Reason] = [
            .badCertificate, .badCertificateEnvironment, .invalidProviderToken, .missingProviderToken,
            .badEnvironmentKeyIdInToken,
        ]
        let topic: [Reason] = [.topicDisallowed, .topicMismatch, .featureNotEnabled]
        for reason in Reason.allCases where reason != .absent && reason != .unknown {
            let read = Self.json(reason)
            #expect(read.reason == reason)
            #expect(read.text == "\(reason.name)")
            let expected: GoAwayReason.Scope =
                if credential.contains(reason) {
                    .credential
                } else if topic.contains(reason) {
                    .topic
                } else if reason == .expiredProviderToken {
                    .providerToken
                } else {
                    .connection
                }
            #expect(read.scope == expected, "\(reason.name)")
        }
    }

    @Test(arguments: [
        ("", Reason.absent, ""),
        (
            "Maximum active streams violated for this endpoint.", .unknown,
            "Maximum active streams violated for this endpoint."
        ),
        (#"{"reason":"SomethingNew"}"#, .unknown, #"{"reason":"SomethingNew"}"#),
        ("{}", .unknown, "{}"),
        ("line\nbreak\u{1b}[31m \u{e9}", .unknown, "line?break?[31m ??"),
    ])
    func plainTextIsKeptPrintable(_ data: String, _ reason: Reason, _ text: String) {
        let read = GoAwayReason(Array(data.utf8))
        #expect(read.reason == reason)
        #expect(read.text == text)
        #expect(read.scope == .connection)
    }

    @Test func textLengthIsBounded() {
        let long = GoAwayReason(Array(String(repeating: "too long ", count: 10_000).utf8))
        #expect(long.text.utf8.count == GoAwayReason.maximumText + 3)
        #expect(long.text.hasSuffix("..."))
        for count in 0..<300 {
            let bytes = (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 151) }
            let read = GoAwayReason(bytes)
            #expect(read.text.utf8.count <= GoAwayReason.maximumText + 8 * 5)
            #expect(read.text.utf8.allSatisfy { $0 >= 0x20 && $0 < 0x7f })
        }
    }

    /// The server echoes its input.
    @Test func tokensAreRedacted() {
        let device = String(repeating: "0a1b", count: 16)
        let provider =
            "eyJhbGciOiJFUzI1NiIsImtpZCI6IkFCQ0RFRkdISUoifQ.eyJpc3MiOiJERUYxMjNHSElKIiwiaWF0IjoxNDM3MTc5MDM2fQ"
        for token in [device, provider, String(device.prefix(32))] {
            let read = GoAwayReason(Array("bad path /3/device/\(token)".utf8))
            #expect(!read.text.contains(token.prefix(8)), "\(read.text)")
            #expect(read.text.hasPrefix("bad path "))
        }
        #expect(GoAwayReason(Array("a \(device) b".utf8)).text == "a [...] b")
    }

    @Test func labelsComeFromAFixedSet() {
        #expect(GoAwayReason.label(GoAwayReason(Array("text \(1)".utf8)).reason) == "other")
        #expect(GoAwayReason.label(GoAwayReason([]).reason) == "none")
        #expect(GoAwayReason.label(Self.json(.shutdown).reason) == "Shutdown")
    }
}
