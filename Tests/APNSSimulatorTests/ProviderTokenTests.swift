import HTTP2
import TestSupport
import Testing

@testable import APNSSimulator

/// A provider token and APNs' answer to it (APNs: TOK, HNR).
struct TokenCase: Sendable, CustomTestStringConvertible {
    let name: String
    let reason: String?
    var age = 0
    let change: @Sendable (inout TestKey.Token) -> Void

    init(
        _ name: String, _ reason: String?, age: Int = 0,
        _ change: @escaping @Sendable (inout TestKey.Token) -> Void = { _ in }
    ) {
        self.name = name
        self.reason = reason
        self.age = age
        self.change = change
    }

    var testDescription: String { "\(name): \(reason ?? "accepted")" }

    /// Tokens that breach the rules, and that APNs presumably accepts.
    static let lenient: [TokenCase] = [
        TokenCase("signature as DER", "InvalidProviderToken") { $0.isDER = true },
        TokenCase("iat as text", "InvalidProviderToken") {
            $0.claims = $0.claims.replacing(#""iat":"#, with: #""iat":""#).dropLast() + "\"}"
        },
    ]

    static let all: [TokenCase] =
        lenient + [
            TokenCase("good", nil),
            TokenCase("blanks in the JSON", nil) {
                $0.header = #"{ "kid" : "KEY1234567", "alg": "ES256" ,"typ":"JWT"}"#
            },
            TokenCase("59 minutes old", nil, age: 59 * 60),
            TokenCase("61 minutes old", "ExpiredProviderToken", age: 61 * 60),
            TokenCase("30 minutes in the future", nil, age: -30 * 60),
            TokenCase("two hours in the future", "InvalidProviderToken", age: -7_200),
            TokenCase("forged", "InvalidProviderToken") { $0.isForged = true },
            TokenCase("forged DER", "InvalidProviderToken") {
                $0.isForged = true
                $0.isDER = true
            },
            TokenCase("HS256", "InvalidProviderToken") { $0.header = #"{"alg":"HS256","kid":"KEY1234567"}"# },
            TokenCase("none", "InvalidProviderToken") { $0.header = #"{"alg":"none","kid":"KEY1234567"}"# },
            TokenCase("no alg", "InvalidProviderToken") { $0.header = #"{"kid":"KEY1234567"}"# },
            TokenCase("no kid", "InvalidProviderToken") { $0.header = #"{"alg":"ES256"}"# },
            TokenCase("unknown key", "InvalidProviderToken") {
                $0.header = #"{"alg":"ES256","kid":"KEY7654321"}"#
            },
            TokenCase("short kid", "InvalidProviderToken") { $0.header = #"{"alg":"ES256","kid":"KEY"}"# },
            TokenCase("other team", "InvalidProviderToken") {
                $0.claims = $0.claims.replacing("TEAM123456", with: "TEAM654321")
            },
            TokenCase("no iss", "InvalidProviderToken") { $0.claims = #"{"iat":1700000000}"# },
            TokenCase("no iat", "InvalidProviderToken") { $0.claims = #"{"iss":"TEAM123456"}"# },
            TokenCase("iat that is no time", "InvalidProviderToken") {
                $0.claims = #"{"iss":"TEAM123456","iat":"yesterday"}"#
            },
            TokenCase("iat before all times", "InvalidProviderToken") {
                $0.claims = #"{"iss":"TEAM123456","iat":-9223372036854775808}"#
            },
            TokenCase("iat after all times", "InvalidProviderToken") {
                $0.claims = #"{"iss":"TEAM123456","iat":9223372036854775807}"#
            },
            TokenCase("no JSON", "InvalidProviderToken") { $0.claims = "iss=TEAM123456" },
            TokenCase("member twice", "InvalidProviderToken") {
                $0.header = #"{"alg":"ES256","alg":"ES256","kid":"KEY1234567"}"#
            },
        ]
}

@Suite struct ProviderTokenTests {
    @Test(arguments: TokenCase.all) func eachTokenGetsItsDocumentedAnswer(row: TokenCase) throws {
        let fixture = try SimulatorFixture()
        let client = try fixture.connect()
        let token = fixture.key.token(row.change, age: row.age)
        let response = try client.push(.good(token: token))
        #expect(response.reason == row.reason)
        #expect(response.status == (row.reason == nil ? 200 : 403))
        // The second answer may use the first answer's result.
        #expect(try client.push(.good(token: token)).reason == row.reason)
    }

    @Test(arguments: TokenCase.lenient) func lenientSimulatorAcceptsDERAndTextAsTime(row: TokenCase) throws {
        let fixture = try SimulatorFixture { options, _ in options.acceptsLenientTokens = true }
        let token = fixture.key.token(row.change)
        #expect(try fixture.connect().push(.good(token: token)).status == 200)
        let forged = fixture.key.token {
            row.change(&$0)
            $0.isForged = true
        }
        #expect(try fixture.connect().push(.good(token: forged)).reason == "InvalidProviderToken")
    }

    @Test(arguments: [
        TokenCase("good", nil), TokenCase("forged", nil) { $0.isForged = true },
        TokenCase("other key", nil) { $0.header = #"{"alg":"ES256","kid":"KEY7654321"}"# },
        TokenCase("expired", "ExpiredProviderToken", age: 4_000),
        TokenCase("HS256", "InvalidProviderToken") { $0.header = #"{"alg":"HS256","kid":"KEY1234567"}"# },
    ])
    func anyKeySkipsOnlyTheSignatureCheck(row: TokenCase) throws {
        let fixture = try SimulatorFixture { options, _ in options.providerTokens = .anyKey }
        let token = fixture.key.token(row.change, age: row.age)
        #expect(try fixture.connect().push(.good(token: token)).reason == row.reason)
    }

    @Test func anyKeyRefusesATokenWithoutSignature() throws {
        let fixture = try SimulatorFixture { options, _ in options.providerTokens = .anyKey }
        let cut = fixture.token.split(separator: ".").dropLast().joined(separator: ".") + "."
        #expect(try fixture.connect().push(.good(token: cut)).reason == "InvalidProviderToken")
    }

    @Test func secondTokenWithinTheIntervalIsRejected() throws {
        let fixture = try SimulatorFixture()
        let client = try fixture.connect()
        let first = fixture.key.token(age: 60)
        let second = fixture.key.token()
        #expect(try client.push(.good(token: first)).status == 200)
        let refused = try client.push(.good(token: second))
        #expect(refused.status == 429)
        #expect(refused.reason == "TooManyProviderTokenUpdates")
        // The first token still works, and each connection counts its own updates.
        #expect(try client.push(.good(token: first)).status == 200)
        #expect(try fixture.connect().push(.good(token: second)).status == 200)
    }

    @Test func tokenMayChangeAfterTheInterval() throws {
        let fixture = try SimulatorFixture { options, _ in options.tokenUpdateInterval = .zero }
        let client = try fixture.connect()
        for age in [30, 20, 10] {
            #expect(try client.push(.good(token: fixture.key.token(age: age))).status == 200)
        }
    }

    @Test func secondTeamsTokenIsRejectedOnTheSameConnection() throws {
        let other = try TestKey(keyID: "KEY7654321", teamID: "TEAM654321")
        let fixture = try SimulatorFixture { options, key in
            options.providerTokens = .keys([key.simulatorKey, other.simulatorKey])
            options.tokenUpdateInterval = .zero
        }
        let client = try fixture.connect()
        #expect(try client.push(fixture.good()).status == 200)
        #expect(try client.push(.good(token: other.token())).reason == "InvalidProviderToken")
        #expect(try fixture.connect().push(.good(token: other.token())).status == 200)
    }

    @Test func keyOfTheOtherEnvironmentIsRejected() throws {
        for (environment, reason) in [
            (SimulatorOptions.Environment.sandbox, "BadEnvironmentKeyIdInToken"), (.production, nil),
        ] {
            let fixture = try SimulatorFixture { options, key in
                var known = key.simulatorKey
                known.environment = environment
                options.providerTokens = .keys([known])
            }
            #expect(try fixture.connect().push(fixture.good()).reason == reason)
        }
    }

    /// A connection with a team key accepts no topic-specific key. A connection with a topic-specific key
    /// accepts only the related key.
    @Test func connectionAcceptsOnlyRelatedTopicKeys() throws {
        let topicKeys = try ["KEYTOPIC01", "KEYTOPIC02", "KEYTOPIC03"].map { try TestKey(keyID: $0) }
        let fixture = try SimulatorFixture { options, key in
            var known = topicKeys.map(\.simulatorKey)
            for index in known.indices { known[index].topics = ["com.example.app"] }
            known[0].relatedKeyID = "KEYTOPIC02"
            options.providerTokens = .keys([key.simulatorKey] + known)
        }
        let tokens = topicKeys.map { $0.token() }
        var client = try fixture.connect()
        #expect(try client.push(fixture.good()).status == 200)
        #expect(try client.push(.good(token: tokens[0])).reason == "UnrelatedKeyIdInToken")
        client = try fixture.connect()
        #expect(try client.push(.good(token: tokens[0])).status == 200)
        #expect(try client.push(.good(token: tokens[1])).status == 200)
        #expect(try client.push(.good(token: tokens[2])).reason == "UnrelatedKeyIdInToken")
        #expect(try client.push(fixture.good()).reason == "UnrelatedKeyIdInToken")
        var request = PushRequestTemplate.good(token: tokens[0])
        request["apns-topic"] = "com.example.other"
        #expect(try client.push(request).reason == "TopicDisallowed")
        request["apns-topic"] = "com.example.app.voip"
        request["apns-push-type"] = "voip"
        #expect(try client.push(request).status == 200)
    }
}

@Suite struct PushCertificateTests {
    private func client(
        _ fixture: SimulatorFixture, name: String = "Apple Push Services: com.example.app",
        userID: String? = "com.example.app", topics: [String] = []
    ) throws -> PushClient {
        try fixture.connect(
            identity: fixture.simulator.authority.issueClient(
                commonName: name, userID: userID, topics: topics))
    }

    @Test func pushCertificateReplacesTheProviderToken() throws {
        let fixture = try SimulatorFixture()
        let client = try client(fixture)
        #expect(client.streamLimit == 1_000)
        var request = PushRequestTemplate.good(token: nil)
        #expect(try client.push(request).status == 200)
        // The request's token is ignored, and the certificate's topic is the default.
        request["authorization"] = "bearer nonsense"
        request["apns-topic"] = nil
        #expect(try client.push(request).status == 200)
        request["apns-topic"] = "com.example.other"
        #expect(try client.push(request).reason == "TopicDisallowed")
    }

    @Test func topicMustBeNamedByTheCertificate() throws {
        let fixture = try SimulatorFixture()
        let client = try client(fixture, topics: ["com.example.app", "com.example.app.voip"])
        var request = PushRequestTemplate.good(token: nil)
        request["apns-topic"] = nil
        #expect(try client.push(request).reason == "MissingTopic")
        request["apns-push-type"] = "voip"
        request["apns-topic"] = "com.example.app.voip"
        #expect(try client.push(request).status == 200)
        request["apns-push-type"] = "location"
        request["apns-topic"] = "com.example.app.location-query"
        #expect(try client.push(request).reason == "TopicDisallowed")
    }

    @Test func certificateOfTheOtherEnvironmentEndsTheConnection() throws {
        let table: [(SimulatorOptions.Environment, String, String?)] = [
            (
                .production, "Apple Development IOS Push Services: com.example.app",
                "BadCertificateEnvironment"
            ),
            (.sandbox, "Apple Development IOS Push Services: com.example.app", nil),
            (.sandbox, "Apple Push Services: com.example.app", nil),
        ]
        for (environment, name, reason) in table {
            let fixture = try SimulatorFixture { options, _ in options.environment = environment }
            let client = try client(fixture, name: name)
            guard let reason else {
                #expect(try client.push(.good(token: nil)).status == 200)
                continue
            }
            try client.run { false }
            let goAway = try #require(client.inbox.goAway)
            #expect(goAway.debugData == "{\"reason\":\"\(reason)\"}")
            #expect(goAway.errorCode == 0)
            #expect(goAway.lastStream == 0)
            #expect(fixture.simulator.summary.refusedConnections == 1)
        }
    }

    @Test func otherCertificateEndsTheConnectionWithBadCertificate() throws {
        let fixture = try SimulatorFixture()
        let client = try client(fixture, name: "someone", userID: nil)
        try client.run { false }
        #expect(client.inbox.goAway?.debugData == #"{"reason":"BadCertificate"}"#)
    }

    @Test func foreignCertificateIsRefusedByTLS() throws {
        let fixture = try SimulatorFixture()
        let identity = try CertificateAuthority().issueClient(commonName: "x", userID: "com.example.app")
        #expect(throws: TLSError.self) { try fixture.connect(identity: identity) }
    }
}
