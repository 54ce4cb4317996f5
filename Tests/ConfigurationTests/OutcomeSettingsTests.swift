import TestSupport
import Testing

@testable import Configuration

/// The form of device tokens on outcomes, and the key of the hashes.
@Suite("Configuration: outcomes") struct OutcomeSettingsTests {
    private func load(_ outcomes: String, key: String? = nil) throws -> Configuration {
        let directory = try TemporaryDirectory("outcomes")
        try directory.write("key", to: "key.p8")
        if let key { try directory.write(key, to: "token.key") }
        let path = try directory.write(
            """
            kafka: {bootstrap-servers: "a:1"}
            outcomes: \(outcomes)
            apps:
              - name: news
                topics: [com.example.news]
                credential: {type: token, key-file: key.p8, key-id: ABC123DEFG, team-id: DEF123GHIJ}
            """, to: "sluice.yaml")
        let configuration = try Configuration.load(path: path, environment: [:])
        if let file = configuration.outcomes.hashKeyFile { #expect(file == directory.file("token.key")) }
        return configuration
    }

    private func problem(_ outcomes: String, key: String? = nil) throws -> String {
        let error = try #require(throws: ConfigurationError.self) { try load(outcomes, key: key) }
        return error.problems.map { "\($0.key): \($0.message)" }.joined(separator: "\n")
    }

    private let hash = "{device-token: hash, hash-key-file: token.key}"

    @Test func tokensAreInTheClearByDefault() throws {
        let outcomes = try load("{}").outcomes
        #expect(outcomes == .init() && outcomes.deviceToken == .clear && outcomes.hashKey.isEmpty)
    }

    @Test func keysAreHexadecimalDigitsOrBase64() throws {
        let bytes = (0..<32).map { UInt8($0) }
        let digits = "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F"
        #expect(try load(hash, key: digits + "\n").outcomes.hashKey == bytes)
        let base64 = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
        #expect(try load(hash, key: base64).outcomes.hashKey == bytes)
    }

    @Test func faultsOfTheKeyAreNamed() throws {
        #expect(try problem("{device-token: hash}").contains("outcomes.hash-key-file: is required"))
        #expect(try problem("{hash-key-file: token.key}", key: "00").contains("no use without"))
        #expect(try problem(hash).contains("does not exist"))
        #expect(try problem(hash, key: "\n").contains("is empty"))
        for key in [String(repeating: "00", count: 31), "not a key at all!", "AAECAwQFBgcICQoLDA0ODw=="] {
            let text = try problem(hash, key: key)
            #expect(text.contains("at least 32 random bytes") && text.contains("openssl rand -hex 32"))
            #expect(!text.contains(key), "the key is in the error")
        }
        #expect(try problem("{device-token: secret}").contains("outcomes.device-token"))
    }
}
