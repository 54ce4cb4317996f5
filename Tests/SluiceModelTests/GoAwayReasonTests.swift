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
        ("Maximum active streams violated for this endpoint.", .unknown, "unknown"),
        (#"{"reason":"SomethingNew"}"#, .unknown, "SomethingNew"),
        (#"{"reason":"bad path /3/device/0a1b"}"#, .unknown, "unknown"),
        ("timeout", .unknown, "timeout"), ("{}", .unknown, "unknown"),
        ("line\nbreak\u{1b}[31m \u{e9}", .unknown, "unknown"),
        (String(repeating: "z", count: 10_000), .unknown, "unknown"),
    ])
    func unknownTextIsLettersOrUnknown(_ data: String, _ reason: Reason, _ text: String) {
        let read = GoAwayReason(Array(data.utf8))
        #expect(read.reason == reason)
        #expect(read.text == text)
        #expect(read.scope == .connection)
    }

    /// The server echoes its input, also in parts.
    @Test func tokensAreNeverShown() {
        let device = String(repeating: "0a1b", count: 16)
        let provider =
            "eyJhbGciOiJFUzI1NiIsImtpZCI6IkFCQ0RFRkdISUoifQ.eyJpc3MiOiJERUYxMjNHSElKIiwiaWF0IjoxNDM3MTc5MDM2fQ"
        for token in [device, provider, String(device.prefix(32)), "0a1b 0a1b 0a1b"] {
            for data in ["bad path /3/device/\(token)", token, "{\"reason\":\"\(token)\"}"] {
                #expect(GoAwayReason(Array(data.utf8)).text == "unknown")
            }
        }
    }

    @Test func labelsComeFromAFixedSet() {
        #expect(GoAwayReason.label(GoAwayReason(Array("text \(1)".utf8)).reason) == "other")
        #expect(GoAwayReason.label(GoAwayReason([]).reason) == "none")
        #expect(GoAwayReason.label(Self.json(.shutdown).reason) == "Shutdown")
    }
}
