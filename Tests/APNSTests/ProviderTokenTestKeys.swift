import COpenSSL
import Glibc

/// Keys made by OpenSSL for the tests of signing keys and provider tokens.
enum TestKeys {
    enum Kind {
        case ec(curve: Int32)
        case rsa
        case ed25519
    }

    static let p256 = Kind.ec(curve: NID_X9_62_prime256v1)

    /// A new private key as PKCS #8 PEM, encrypted when a passphrase is given.
    static func pem(_ kind: Kind, passphrase: String? = nil) -> [UInt8] {
        let type =
            switch kind {
            case .ec: EVP_PKEY_EC
            case .rsa: EVP_PKEY_RSA
            case .ed25519: EVP_PKEY_ED25519
            }
        let context = EVP_PKEY_CTX_new_id(type, nil)
        defer { EVP_PKEY_CTX_free(context) }
        EVP_PKEY_keygen_init(context)
        if case .ec(let curve) = kind { EVP_PKEY_CTX_set_ec_paramgen_curve_nid(context, curve) }
        if case .rsa = kind { EVP_PKEY_CTX_set_rsa_keygen_bits(context, 1024) }
        var key: OpaquePointer?
        EVP_PKEY_keygen(context, &key)
        defer { EVP_PKEY_free(key) }
        return written { output in
            if let passphrase {
                var secret = passphrase.utf8.map { CChar(bitPattern: $0) }
                return PEM_write_bio_PKCS8PrivateKey(
                    output, key, EVP_aes_128_cbc(), &secret, Int32(secret.count), nil, nil)
            } else {
                return PEM_write_bio_PKCS8PrivateKey(output, key, nil, nil, 0, nil, nil)
            }
        }
    }

    /// The public half of a key as PEM.
    static func publicPEM(of der: [UInt8]) -> [UInt8] {
        let key = publicKey(der)
        defer { EVP_PKEY_free(key) }
        return written { PEM_write_bio_PUBKEY($0, key) }
    }

    /// Whether `signature` (r and s) is valid for `message` by the key with the SubjectPublicKeyInfo `der`.
    static func verify(
        _ signature: some Collection<UInt8>, of message: some Collection<UInt8>, by der: [UInt8]
    ) -> Bool {
        guard signature.count == 64 else { return false }
        let half = Array(signature.prefix(32))
        let rest = Array(signature.suffix(32))
        let pair = ECDSA_SIG_new()
        defer { ECDSA_SIG_free(pair) }
        ECDSA_SIG_set0(pair, BN_bin2bn(half, 32, nil), BN_bin2bn(rest, 32, nil))
        var encoded = [UInt8](repeating: 0, count: Int(i2d_ECDSA_SIG(pair, nil)))
        encoded.withUnsafeMutableBufferPointer { buffer in
            var end = buffer.baseAddress
            _ = i2d_ECDSA_SIG(pair, &end)
        }
        let key = publicKey(der)
        defer { EVP_PKEY_free(key) }
        let context = EVP_MD_CTX_new()
        defer { EVP_MD_CTX_free(context) }
        guard EVP_DigestVerifyInit(context, nil, EVP_sha256(), nil, key) == 1 else { return false }
        return EVP_DigestVerify(context, encoded, encoded.count, Array(message), message.count) == 1
    }

    /// Decodes RFC 4648 §5 with OpenSSL's decoder; nil unless `text` is base64url without padding.
    static func base64URLDecoded(_ text: some Collection<UInt8>) -> [UInt8]? {
        guard !text.contains(where: { "+/=".utf8.contains($0) }) else { return nil }
        var standard = text.map {
            $0 == UInt8(ascii: "-") ? UInt8(ascii: "+") : $0 == UInt8(ascii: "_") ? UInt8(ascii: "/") : $0
        }
        let padding = (4 - standard.count % 4) % 4
        standard += Array(repeating: UInt8(ascii: "="), count: padding)
        var bytes = [UInt8](repeating: 0, count: standard.count / 4 * 3)
        let length = EVP_DecodeBlock(&bytes, standard, Int32(standard.count))
        return length < 0 ? nil : Array(bytes[..<(Int(length) - padding)])
    }

    /// Calls `body` with the path of a file with `content`, then removes the file.
    static func withFile(_ content: [UInt8], _ body: (String) throws -> Void) rethrows {
        var template = Array("/tmp/sluice-key-XXXXXX".utf8CString)
        let descriptor = mkstemp(&template)
        let path = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
        defer { unlink(path) }
        _ = content.withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) }
        close(descriptor)
        try body(path)
    }

    private static func publicKey(_ der: [UInt8]) -> OpaquePointer? {
        der.withUnsafeBufferPointer { buffer in
            var cursor = buffer.baseAddress
            return d2i_PUBKEY(nil, &cursor, buffer.count)
        }
    }

    private static func written(_ body: (OpaquePointer?) -> Int32) -> [UInt8] {
        let output = BIO_new(BIO_s_mem())
        defer { BIO_free(output) }
        guard body(output) == 1 else { return [] }
        var bytes = [UInt8](repeating: 0, count: 16_384)
        let count = BIO_read(output, &bytes, Int32(bytes.count))
        return Array(bytes[..<Int(max(0, count))])
    }
}
