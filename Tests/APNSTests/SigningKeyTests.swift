import APNS
import COpenSSL
import Foundation
import Glibc
import Testing

@Suite struct SigningKeyTests {
    @Test func signaturesVerifyWithThePublicKey() throws {
        let key = try SigningKey(pem: TestKeys.pem(TestKeys.p256))
        // Enough signatures for leading zeros in r or s, which one signature in 128 has.
        for number in 0..<600 {
            let message = Array("message \(number)".utf8)
            let signature = try key.sign(message)
            let isValid = TestKeys.verify(signature, of: message, by: key.publicKey())
            let isValidForOther = TestKeys.verify(signature, of: message + [0], by: key.publicKey())
            if !isValid || isValidForOther {
                Issue.record("message \(number)")
                return
            }
        }
    }

    /// The key, messages and signatures of RFC 6979, appendix A.2.5, with SHA-256.
    @Test(arguments: [
        (
            "sample",
            "EFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716"
                + "F7CB1C942D657C41D436C7A1B6E29F65F3E900DBB9AFF4064DC4AB2F843ACDA8"
        ),
        (
            "test",
            "F1ABB023518351CD71D881567B1EA663ED3EFCF6C5132B354F28D3B0B7D38367"
                + "019F4113742A2B14BD25926B49C649155F267E60D3814B4C0CC84250E46F0083"
        ),
    ]) func signaturesAreThoseOfTheStandardsExamples(message: String, expected: String) throws {
        let secret = "C9AFA9D845BA75166B5C215767B1D6934E50C3DB36E89B127B8A622B120F6721"
        // ECPrivateKey (RFC 5915): version, secret, curve P-256.
        let der = "3031020101" + "0420" + secret + "A00A" + "06082A8648CE3D030107"
        var pem = "-----BEGIN EC PRIVATE KEY-----\n"
        pem += Data(bytes(der)).base64EncodedString() + "\n-----END EC PRIVATE KEY-----\n"
        let key = try SigningKey(pem: Array(pem.utf8))
        #expect(try key.sign(Array(message.utf8)) == bytes(expected))
        #expect(try key.sign(Array(message.utf8)) == bytes(expected))
    }

    private func bytes(_ hexadecimal: String) -> [UInt8] {
        let digits = Array(hexadecimal)
        return stride(from: 0, to: digits.count, by: 2).compactMap {
            UInt8(String(digits[$0...$0 + 1]), radix: 16)
        }
    }

    @Test func keyReadFromFileEqualsKeyFromPEM() throws {
        let pem = TestKeys.pem(TestKeys.p256)
        try TestKeys.withFile(pem) { path in
            let key = try SigningKey(path: path)
            let same = try SigningKey(pem: pem)
            let other = try SigningKey(pem: TestKeys.pem(TestKeys.p256))
            #expect(key.isSameKey(as: same))
            #expect(!key.isSameKey(as: other))
            #expect("\(key)" == "signing key (EC P-256)")
        }
    }

    @Test func keyWithWindowsLineEndsIsAccepted() throws {
        let pem = TestKeys.pem(TestKeys.p256).flatMap { $0 == 10 ? [13, 10] : [$0] }
        _ = try SigningKey(pem: pem)
    }

    private func problem(_ pem: [UInt8]) -> SigningKeyError.Problem? {
        do {
            _ = try SigningKey(pem: pem)
            return nil
        } catch {
            return error.problem
        }
    }

    @Test func invalidKeyIsRefusedWithItsProblem() throws {
        let good = TestKeys.pem(TestKeys.p256)
        let key = try SigningKey(pem: good)
        #expect(problem([]) == .empty)
        #expect(problem(Array("MIGTAgEAMBMGByqGSM49".utf8)) == .notPEM)
        #expect(problem(key.publicKey()) == .notPEM)
        #expect(problem(TestKeys.publicPEM(of: key.publicKey())) == .noPrivateKey(found: "PUBLIC KEY"))
        #expect(problem(TestKeys.pem(TestKeys.p256, passphrase: "secret")) == .encrypted)
        #expect(problem(TestKeys.pem(.rsa)) == .notEllipticCurve(found: "RSA"))
        #expect(problem(TestKeys.pem(.ed25519)) == .notEllipticCurve(found: "ED25519"))
        #expect(problem(TestKeys.pem(.ec(curve: NID_secp384r1))) == .wrongCurve(found: "secp384r1"))
        #expect(problem(TestKeys.pem(.ec(curve: NID_secp256k1))) == .wrongCurve(found: "secp256k1"))
        #expect(problem([UInt8](repeating: 65, count: 70_000)) == .tooLarge)
        var damaged = good
        damaged.removeSubrange(60..<80)
        guard case .malformed = problem(damaged) else {
            Issue.record("a damaged key was accepted")
            return
        }
    }

    @Test func unusableKeyFileIsReportedWithItsPath() throws {
        let missing = #expect(throws: SigningKeyError.self) {
            try SigningKey(path: "/nonexistent/AuthKey.p8")
        }
        #expect(
            missing?.description
                == "signing key /nonexistent/AuthKey.p8: cannot be read: No such file or directory")
        let directory = #expect(throws: SigningKeyError.self) { try SigningKey(path: "/") }
        #expect(directory?.problem == .unreadable("Is a directory"))
        TestKeys.withFile(TestKeys.pem(.ec(curve: NID_secp384r1))) { path in
            let error = #expect(throws: SigningKeyError.self) { try SigningKey(path: path) }
            #expect(error?.path == path)
            #expect(error?.description.contains("P-256") == true)
        }
        TestKeys.withFile([UInt8](repeating: 10, count: 100_000)) { path in
            let error = #expect(throws: SigningKeyError.self) { try SigningKey(path: path) }
            #expect(error?.problem == .tooLarge)
        }
    }

    @Test func oneKeySignsOnManyThreads() async throws {
        let key = try SigningKey(pem: TestKeys.pem(TestKeys.p256))
        let valid = try await withThrowingTaskGroup(of: Int.self) { group in
            for task in 0..<8 {
                group.addTask {
                    var valid = 0
                    for number in 0..<50 {
                        let message = Array("\(task) \(number)".utf8)
                        if TestKeys.verify(try key.sign(message), of: message, by: key.publicKey()) {
                            valid += 1
                        }
                    }
                    return valid
                }
            }
            return try await group.reduce(0, +)
        }
        #expect(valid == 400)
    }
}
