import Testing

@testable import APNS

@Suite struct ProviderTokenTests {
    private static let epoch: Int64 = 1_700_000_000

    private func credential() throws -> TokenCredential {
        try TokenCredential(
            keyID: KeyID("KEY1234567"), teamID: TeamID("TEAM123456"),
            key: SigningKey(pem: TestKeys.pem(TestKeys.p256)))
    }

    private func at(_ minutes: Int64) -> ClockReading {
        ClockReading(wallSeconds: Self.epoch + 60 * minutes, monotonicSeconds: 60 * minutes)
    }

    @Test func tokenPartsMatchWhatAPNsExpects() throws {
        let credential = try credential()
        let token = try ProviderTokenSource(credential).current(at: at(0))
        let parts = token.text.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        try #require(parts.count == 3)
        let header = try #require(TestKeys.base64URLDecoded(parts[0]))
        let claims = try #require(TestKeys.base64URLDecoded(parts[1]))
        let signature = try #require(TestKeys.base64URLDecoded(parts[2]))
        #expect(String(decoding: header, as: UTF8.self) == #"{"alg":"ES256","kid":"KEY1234567"}"#)
        #expect(String(decoding: claims, as: UTF8.self) == #"{"iss":"TEAM123456","iat":1700000000}"#)
        let signed = token.text.prefix(parts[0].count + 1 + parts[1].count)
        #expect(TestKeys.verify(signature, of: signed, by: credential.key.publicKey()))
        #expect(Array(token.authorization.prefix(7)) == Array("bearer ".utf8))
        #expect(token.authorization.count < 256)
    }

    @Test func base64URLRoundTripsAtEveryLength() throws {
        for length in 0..<70 {
            let bytes = (0..<length).map { UInt8(truncatingIfNeeded: $0 &* 151 &+ 0xF8) }
            #expect(TestKeys.base64URLDecoded(ProviderToken.base64URL(bytes)) == bytes, "length \(length)")
        }
        // RFC 4648 §10.
        #expect(ProviderToken.base64URL("foobar".utf8) == Array("Zm9vYmFy".utf8))
        #expect(ProviderToken.base64URL([0xFB, 0xFF]) == Array("-_8".utf8))
    }

    @Test func tokenNeverAppearsInItsDescriptions() throws {
        let token = try ProviderTokenSource(credential()).current(at: at(0))
        let text = String(decoding: token.text, as: UTF8.self)
        var dumped = ""
        dump(token, to: &dumped)
        for shown in ["\(token)", String(reflecting: token), dumped, "\([token])"] {
            #expect(!shown.contains(text.suffix(20)))
            #expect(!shown.contains("authorization"))
        }
        #expect("\(token)" == "provider token 1 issued at 1700000000")
    }

    @Test func readersKeepTheirTokenUntilItIsRenewed() throws {
        let source = try ProviderTokenSource(credential())
        #expect(source.generation == 0)
        let first = try #require(try source.renewed(since: 0, at: at(0)))
        #expect(first.generation == 1)
        for minute in Int64(1)..<50 { #expect(try source.renewed(since: 1, at: at(minute)) == nil) }
        let second = try #require(try source.renewed(since: 1, at: at(50)))
        #expect(second.generation == 2)
        #expect(second.issuedAtSeconds == Self.epoch + 3000)
        // A later reader gets the same token.
        #expect(try source.renewed(since: 1, at: at(51)) == second)
        #expect(try source.renewed(since: 2, at: at(51)) == nil)
        #expect(second.text != first.text)
    }

    @Test func expiredTokenIsRenewedOnceForAllReaders() throws {
        let source = try ProviderTokenSource(credential())
        _ = try source.current(at: at(0))
        #expect(source.expired(generation: 1, at: at(10)) == .tooYoung(seconds: 600))
        #expect(try source.renewed(since: 1, at: at(10)) == nil)
        #expect(source.expired(generation: 1, at: at(30)) == .renewed)
        #expect(try source.renewed(since: 1, at: at(30))?.generation == 2)
        // Late answers about the old token change nothing.
        #expect(source.expired(generation: 1, at: at(30)) == .renewed)
        #expect(try source.renewed(since: 2, at: at(49)) == nil)
    }

    @Test func tooManyUpdatesDelaysTheRenewal() throws {
        let source = try ProviderTokenSource(credential())
        _ = try source.current(at: at(0))
        source.tooManyUpdates(at: at(45))
        #expect(try source.renewed(since: 1, at: at(54)) == nil)
        #expect(try source.renewed(since: 1, at: at(55))?.generation == 2)
    }

    @Test func concurrentReadersShareEachRenewal() async throws {
        let source = try ProviderTokenSource(credential())
        let generations = try await withThrowingTaskGroup(of: Set<UInt64>.self) { group in
            for _ in 0..<8 {
                group.addTask {
                    var seen: Set<UInt64> = []
                    var held: UInt64 = 0
                    for minute in Int64(0)..<200 {
                        let now = ClockReading(
                            wallSeconds: 1_700_000_000 + 60 * minute, monotonicSeconds: 60 * minute)
                        if let token = try source.renewed(since: held, at: now) {
                            #expect(token.generation > held)
                            held = token.generation
                        }
                        seen.insert(held)
                    }
                    return seen
                }
            }
            return try await group.reduce(into: Set<UInt64>()) { $0.formUnion($1) }
        }
        // Renewals at minutes 0, 50, 100 and 150, once for all readers.
        #expect(generations == [1, 2, 3, 4])
    }

    @Test func clockReadingsArePlausible() {
        let first = ClockReading.now()
        let second = ClockReading.now()
        #expect(first.wallSeconds > 1_600_000_000)
        #expect(second.monotonicSeconds >= first.monotonicSeconds)
    }
}
