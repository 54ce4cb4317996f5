import APNS
import Testing

@Suite struct CredentialTests {
    @Test(arguments: ["ABCDE12345", "0000000000", "ZZZZZZZZZZ"])
    func tenCharacterIdentifiersAreAccepted(text: String) throws {
        #expect(try KeyID(text).description == text)
        #expect(try TeamID(text).description == text)
    }

    @Test(arguments: ["", "ABCDE1234", "ABCDE123456", "abcde12345", "ABCDE 2345", "ABCDE1234\"", "ÄBCDE1234"])
    func invalidIdentifiersAreRefusedWithTheirField(text: String) {
        let key = #expect(throws: CredentialError.self) { try KeyID(text) }
        #expect(key?.field == "key id")
        let team = #expect(throws: CredentialError.self) { try TeamID(text) }
        #expect(team?.field == "team id")
    }

    @Test func environmentsHaveTheirHostsAndPorts() {
        #expect(APNSEndpoint(.production).description == "api.push.apple.com:443")
        #expect(APNSEndpoint(.development).description == "api.sandbox.push.apple.com:443")
        #expect(APNSEndpoint(.production, alternativePort: true).port == 2197)
        #expect(APNSEnvironment.development.managementPort == 2195)
        #expect(APNSEnvironment.production.managementHost == "api-manage-broadcast.push.apple.com")
    }

    @Test func customEndpointIsValidated() throws {
        #expect(try APNSEndpoint(host: "localhost", port: 8443).description == "localhost:8443")
        #expect(try APNSEndpoint(host: "::1", port: 8443).description == "[::1]:8443")
        for (host, port, field) in [
            ("", 1, "host"), ("https://x", 1, "host"), ("a b", 1, "host"), ("x", 0, "port"),
        ] {
            let error = #expect(throws: CredentialError.self) {
                try APNSEndpoint(host: host, port: UInt16(port))
            }
            #expect(error?.field == field)
        }
    }

    @Test func certificateCredentialNeedsBothPaths() throws {
        let certificate = try CertificateCredential(certificatePath: "a.pem", keyPath: "a.pem")
        #expect(Credential.certificate(certificate).label == "certificate a.pem")
        #expect(throws: CredentialError.self) { try CertificateCredential(certificatePath: "", keyPath: "k") }
        #expect(throws: CredentialError.self) { try CertificateCredential(certificatePath: "c", keyPath: "") }
    }

    @Test func credentialsOfAKeyAndTeamShareASource() throws {
        let key = try SigningKey(pem: TestKeys.pem(TestKeys.p256))
        let other = try SigningKey(pem: TestKeys.pem(TestKeys.p256))
        let first = try TokenCredential(keyID: KeyID("AAAAAAAAAA"), teamID: TeamID("TTTTTTTTTT"), key: key)
        let second = try TokenCredential(keyID: KeyID("AAAAAAAAAA"), teamID: TeamID("UUUUUUUUUU"), key: key)
        let clash = try TokenCredential(keyID: KeyID("AAAAAAAAAA"), teamID: TeamID("TTTTTTTTTT"), key: other)
        let sources = ProviderTokenSources()
        let one = try sources.source(for: first)
        let again = try sources.source(for: first)
        let two = try sources.source(for: second)
        #expect(one === again)
        #expect(one !== two)
        #expect(throws: CredentialError.self) { try sources.source(for: clash) }
        #expect(Credential.token(first).label == "key AAAAAAAAAA of team TTTTTTTTTT")
    }
}
