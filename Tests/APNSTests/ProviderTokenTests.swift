import Testing

@testable import APNS

@Suite struct ProviderTokenTests {
    /// Begin of a step of the test's key, in seconds since 1970.
    private static let epoch: Int64 = {
        let identifiers = try? (KeyID("KEY1234567"), TeamID("TEAM123456"))
        let number = identifiers.map { ProviderTokenSource.number(of: $0, $1) } ?? 0
        return ProviderTokenPolicy(key: number).issueTime(
            at: ClockReading(wallSeconds: 1_700_000_000, monotonicSeconds: 0))
    }()

    private func credential(_ pem: [UInt8] = TestKeys.pem(TestKeys.p256)) throws -> TokenCredential {
        try TokenCredential(
            keyID: KeyID("KEY1234567"), teamID: TeamID("TEAM123456"), key: SigningKey(pem: pem))
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
        #expect(String(decoding: claims, as: UTF8.self) == #"{"iss":"TEAM123456","iat":\#(Self.epoch)}"#)
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
        #expect("\(token)" == "provider token 1 issued at \(Self.epoch)")
    }

    @Test func readersKeepTheirTokenUntilItIsRenewed() throws {
        let source = try ProviderTokenSource(credential())
        #expect(source.generation == 0)
        let first = try #require(try source.renewed(since: 0, at: at(0)))
        #expect(first.generation == 1)
        for minute in Int64(1)..<30 { #expect(try source.renewed(since: 1, at: at(minute)) == nil) }
        let second = try #require(try source.renewed(since: 1, at: at(30)))
        #expect(second.generation == 2)
        #expect(second.issuedAtSeconds == Self.epoch + 1800)
        // A later reader gets the same token.
        #expect(try source.renewed(since: 1, at: at(31)) == second)
        #expect(try source.renewed(since: 2, at: at(31)) == nil)
        #expect(second.text != first.text)
    }

    @Test func replicasWithTheSameKeyHaveTheSameTokenAtEachMoment() throws {
        let pem = TestKeys.pem(TestKeys.p256)
        let replicas = try (0..<10).map { _ in try ProviderTokenSource(credential(pem)) }
        var tokens: Set<[UInt8]> = []
        // The replicas start in different minutes, and each looks at its token every minute.
        for minute in Int64(0)..<240 {
            let now = try replicas.enumerated().filter { Int64($0.offset) * 3 <= minute }.map {
                try $0.element.current(at: at(minute)).authorization
            }
            // A replica that starts late in a step needs a few steps to change with the others.
            if minute >= 120 { #expect(Set(now).count == 1, "minute \(minute)") }
            tokens.formUnion(now)
        }
        #expect(tokens.count == 8)
    }

    @Test func expiredTokenIsRenewedOnceForAllReaders() throws {
        let source = try ProviderTokenSource(credential())
        _ = try source.current(at: at(0))
        #expect(source.expired(generation: 1, at: at(10)) == .tooYoung(seconds: 660))
        #expect(try source.renewed(since: 1, at: at(10)) == nil)
        #expect(source.expired(generation: 1, at: at(30)) == .renewed)
        #expect(try source.renewed(since: 1, at: at(30))?.generation == 2)
        // Late answers about the old token change nothing.
        #expect(source.expired(generation: 1, at: at(30)) == .renewed)
        #expect(try source.renewed(since: 2, at: at(49)) == nil)
        #expect(try source.renewed(since: 2, at: at(60))?.generation == 3)
    }

    @Test func tooManyUpdatesDelaysTheRenewal() throws {
        let source = try ProviderTokenSource(credential())
        _ = try source.current(at: at(29))
        #expect(source.rest(at: at(29)) == nil)
        #expect(source.tooManyUpdates(at: at(45)).isNew)
        let end: Int64 = 46 * 60
        #expect(source.rest(at: at(45)) == end)
        #expect(source.rest(at: at(46)) == nil)
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
                            wallSeconds: Self.epoch + 60 * minute, monotonicSeconds: 60 * minute)
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
        // Renewals every 30 minutes, once for all readers.
        #expect(generations == Set(1...7))
    }

    @Test func clockReadingsArePlausible() {
        let first = ClockReading.now()
        let second = ClockReading.now()
        #expect(first.wallSeconds > 1_600_000_000)
        #expect(second.monotonicSeconds >= first.monotonicSeconds)
    }
}
