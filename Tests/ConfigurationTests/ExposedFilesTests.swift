import Foundation
import TestSupport
import Testing

@testable import Configuration

/// Files with secrets that other users can access are reported.
@Suite struct ExposedFilesTests {
    @Test(arguments: [
        (mode_t(0o600), false), (0o400, false), (0o100700, false), (0o640, true), (0o604, true),
        (0o610, true),
        (0o644, true),
    ])
    func accessByOthersIsReported(_ mode: mode_t, isExposed: Bool) throws {
        let text = Configuration.exposure(of: "/k.p8", setting: "credentials.a.key-file", mode: mode)
        #expect((text != nil) == isExposed)
        guard let text else { return }
        #expect(text.hasPrefix("credentials.a.key-file: "))
        #expect(
            text.contains("/k.p8 (mode 0\(String(mode, radix: 8)))") && text.contains("`chmod 600 /k.p8`"))
    }

    @Test func everyFileWithSecretsIsChecked() throws {
        let directory = try TemporaryDirectory("keys")
        for name in [
            "token.p8", "client.key", "client.pem", "password", "hash.key", "store.keys", "good.p8",
        ] {
            try directory.write("hidden", to: name)
            chmod(directory.file(name), name == "good.p8" ? 0o600 : 0o644)
        }
        var configuration = Configuration(
            kafka: .init(bootstrapServers: "a:1"),
            credentials: [
                .init(
                    name: "token",
                    kind: .token(keyFile: directory.file("token.p8"), keyID: "A", teamID: "B")),
                .init(
                    name: "good", kind: .token(keyFile: directory.file("good.p8"), keyID: "A", teamID: "B")),
                .init(
                    name: "client",
                    kind: .certificate(
                        certificateFile: directory.file("client.pem"), keyFile: directory.file("client.key"))),
                .init(
                    name: "gone", kind: .token(keyFile: directory.file("gone.p8"), keyID: "A", teamID: "B")),
            ], apps: [])
        configuration.apns.proxy = .init(
            host: "proxy", port: 1, user: "me", passwordFile: directory.file("password"))
        configuration.outcomes = .init(deviceToken: .hash, hashKeyFile: directory.file("hash.key"))
        configuration.store = .init(
            directory: "store", encryption: .init(keyFile: directory.file("store.keys")))
        let exposed = configuration.exposedFiles()
        #expect(exposed.count == 5)
        #expect(!exposed.joined().contains("hidden"))
        for (text, setting) in zip(
            exposed,
            [
                "credentials.token.key-file", "credentials.client.key-file", "outcomes.hash-key-file",
                "store.encryption.key-file",
                "apns.proxy.password-file",
            ])
        {
            #expect(text.hasPrefix("\(setting): "))
        }
    }
}
