import TestSupport
import Testing

@testable import APNSSimulator

/// Ways of counting the updates of provider tokens.
@Suite struct TokenUpdateTests {
    private func fixture(
        _ counting: SimulatorOptions.TokenUpdateCounting, interval: Duration = .seconds(1_200),
        threads: Int = 1
    ) throws -> SimulatorFixture {
        try SimulatorFixture { options, _ in
            options.tokenUpdateCounting = counting
            options.tokenUpdateInterval = interval
            options.threads = threads
        }
    }

    private func reason(_ fixture: SimulatorFixture, _ token: String) throws -> String? {
        try fixture.connect().push(.good(token: token)).reason
    }

    private static let refusal = "TooManyProviderTokenUpdates"

    @Test func connectionsCountApartByDefault() throws {
        let fixture = try fixture(.connection)
        for age in [30, 20, 10] { #expect(try reason(fixture, fixture.key.token(age: age)) == nil) }
    }

    @Test func keyCountsItsTokensOnAllConnections() throws {
        let fixture = try fixture(.key, threads: 3)
        let first = fixture.key.token(age: 60)
        for _ in 0..<6 { #expect(try reason(fixture, first) == nil) }
        // The same claims with another signature are another token.
        let second = fixture.key.token(age: 60)
        #expect(second != first)
        for _ in 0..<6 { #expect(try reason(fixture, second) == Self.refusal) }
        #expect(try reason(fixture, first) == nil)
    }

    @Test func keyMayChangeItsTokenAfterTheInterval() throws {
        let fixture = try fixture(.key, interval: .zero)
        let first = fixture.key.token(age: 60)
        #expect(try reason(fixture, first) == nil)
        #expect(try reason(fixture, fixture.key.token(age: 30)) == nil)
        #expect(try reason(fixture, first) == nil)
    }

    @Test func keysAreCountedApart() throws {
        let other = try TestKey(keyID: "KEY7654321")
        let fixture = try SimulatorFixture { options, key in
            options.providerTokens = .keys([key.simulatorKey, other.simulatorKey])
            options.tokenUpdateCounting = .key
        }
        #expect(try reason(fixture, fixture.token) == nil)
        #expect(try reason(fixture, other.token()) == nil)
    }

    @Test func equalIssueTimesAreOneToken() throws {
        let fixture = try fixture(.issueTime, threads: 3)
        let age = 60
        let claims = fixture.key.claims(age: age)
        let tokens = (0..<4).map { _ in fixture.key.token { $0.claims = claims } }
        #expect(Set(tokens).count == 4)
        for token in tokens { #expect(try reason(fixture, token) == nil) }
        let client = try fixture.connect()
        for token in tokens { #expect(try client.push(.good(token: token)).reason == nil) }
    }

    @Test func issueTimesTooCloseTogetherAreRefused() throws {
        let fixture = try fixture(.issueTime, interval: .seconds(100))
        #expect(try reason(fixture, fixture.key.token(age: 1_000)) == nil)
        // Both directions count: replicas may send their tokens in any order.
        #expect(try reason(fixture, fixture.key.token(age: 950)) == Self.refusal)
        #expect(try reason(fixture, fixture.key.token(age: 1_050)) == Self.refusal)
        #expect(try reason(fixture, fixture.key.token(age: 800)) == nil)
        #expect(try reason(fixture, fixture.key.token(age: 1_300)) == nil)
        let client = try fixture.connect()
        #expect(try client.push(.good(token: fixture.key.token(age: 500))).reason == nil)
        #expect(try client.push(.good(token: fixture.key.token(age: 450))).reason == Self.refusal)
    }

    /// Clocks of loops are read apart, so that a later token can have an earlier time.
    @Test func tokenWithAnEarlierTimeIsNotOldEnough() {
        var updates = TokenUpdates()
        let token = VerifiedToken(keyID: "K", teamID: "T", issuedAt: 1, key: nil)
        func admit(_ text: String, at now: UInt64) -> Bool {
            Array(text.utf8).withUnsafeBytes {
                updates.admit(token, $0, counting: .key, interval: 100, now: now)
            }
        }
        #expect(admit("a", at: 1_000))
        #expect(!admit("b", at: 999))
        #expect(!admit("b", at: 1_099))
        #expect(admit("b", at: 1_100))
        #expect(admit("a", at: 1_101))
        #expect(!admit("c", at: 1_199))
    }
}

extension TestKey {
    fileprivate func claims(age: Int) -> String {
        var claims = ""
        _ = token({ claims = $0.claims }, age: age)
        return claims
    }
}
