import COpenSSL
import Glibc
import HTTP2

@testable import APNSSimulator

/// A provider key that signs valid and invalid tokens.
struct TestKey: Sendable {
    let keyID: String
    let teamID: String
    let privateKeyPEM: String

    init(keyID: String = "KEY1234567", teamID: String = "TEAM123456") throws {
        self.keyID = keyID
        self.teamID = teamID
        privateKeyPEM = CertificateAuthority.pem(of: try CertificateAuthority.newKey())
    }

    var simulatorKey: SimulatorKey {
        SimulatorKey(keyID: keyID, teamID: teamID, key: .text(privateKeyPEM))
    }

    struct Token {
        var header: String
        var claims: String
        /// Whether the signature is DER instead of r‖s.
        var isDER = false
        /// Whether a bit of the signature is flipped.
        var isForged = false
    }

    func token(_ change: (inout Token) -> Void = { _ in }, age: Int = 0) -> String {
        var token = Token(
            header: #"{"alg":"ES256","kid":"\#(keyID)"}"#,
            claims: #"{"iss":"\#(teamID)","iat":\#(time(nil) - age)}"#)
        change(&token)
        let signed = Self.base64(Array(token.header.utf8)) + "." + Self.base64(Array(token.claims.utf8))
        var signature = sign(Array(signed.utf8))
        if !token.isDER { signature = Self.raw(signature) }
        if token.isForged { signature[signature.count - 1] ^= 1 }
        return signed + "." + Self.base64(signature)
    }

    private func sign(_ bytes: [UInt8]) -> [UInt8] {
        let key = try! PEM.privateKey(in: .text(privateKeyPEM))
        let context = EVP_MD_CTX_new()
        defer { EVP_MD_CTX_free(context) }
        EVP_DigestSignInit(context, nil, EVP_sha256(), nil, key.pointer)
        var count = 128
        var signature = [UInt8](repeating: 0, count: count)
        precondition(EVP_DigestSign(context, &signature, &count, bytes, bytes.count) == 1)
        return Array(signature[..<count])
    }

    /// r‖s of a DER signature.
    private static func raw(_ der: [UInt8]) -> [UInt8] {
        der.withUnsafeBufferPointer { buffer in
            var source = buffer.baseAddress
            let pair = d2i_ECDSA_SIG(nil, &source, buffer.count)
            defer { ECDSA_SIG_free(pair) }
            var bytes = [UInt8](repeating: 0, count: 64)
            bytes.withUnsafeMutableBufferPointer {
                BN_bn2binpad(ECDSA_SIG_get0_r(pair), $0.baseAddress, 32)
                BN_bn2binpad(ECDSA_SIG_get0_s(pair), $0.baseAddress! + 32, 32)
            }
            return bytes
        }
    }

    static func base64(_ bytes: [UInt8]) -> String {
        let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
        var text = ""
        for start in stride(from: 0, to: bytes.count, by: 3) {
            let group = bytes[start..<min(start + 3, bytes.count)]
            let bits = group.reduce(UInt32(0)) { $0 << 8 | UInt32($1) } << UInt32(8 * (3 - group.count))
            for index in 0...group.count { text.append(alphabet[Int(bits >> UInt32(18 - 6 * index) & 63)]) }
        }
        return text
    }
}
