import COpenSSL

/// A provider token signing key: EC on P-256, from the .p8 file (PKCS #8 PEM) that Apple issues. See APNs:
/// "Establishing a token-based connection to APNs".
///
/// Owns the OpenSSL key and frees it. The key never leaves the object and never shows in text.
// Sendable: `handle` is set once, never changed, and freed only with the last reference. OpenSSL allows concurrent
// signing with one EVP_PKEY while each caller has its own EVP_MD_CTX. `sign` creates such a context.
public final class SigningKey: @unchecked Sendable, CustomStringConvertible {
    private let handle: OpaquePointer

    /// Length of an ES256 signature in bytes: r and s, 32 bytes each (RFC 7518 §3.4).
    public static let signatureLength = 64

    /// Reads the key from a file. Throws when the file is unreadable or not a valid key.
    public convenience init(path: String) throws(SigningKeyError) {
        var bytes: [UInt8]
        do throws(SigningKeyError) {
            bytes = try SigningKeyFile.read(path)
        } catch {
            throw error.at(path)
        }
        defer { OPENSSL_cleanse(&bytes, bytes.count) }
        do throws(SigningKeyError) {
            try self.init(pem: bytes)
        } catch {
            throw error.at(path)
        }
    }

    /// Reads the key from PEM text. Throws when the text is not a valid key.
    public init(pem: [UInt8]) throws(SigningKeyError) {
        handle = try SigningKeyFile.parse(pem)
    }

    deinit { EVP_PKEY_free(handle) }

    /// Returns the ES256 signature (ECDSA on P-256 with SHA-256) of `message` in JOSE form. The form is r and s, 32
    /// bytes each, big-endian (RFC 7518 §3.4). The same key and message always give the same signature. Throws when
    /// OpenSSL fails. Any thread.
    public func sign(_ message: [UInt8]) throws(SigningKeyError) -> [UInt8] {
        ERR_clear_error()
        guard let signature = DeterministicSignature.sign(message, key: handle), verifies(signature, message)
        else { throw failure() }
        return signature
    }

    /// Whether the signature is the key's. A wrong deterministic signature could give the key away.
    private func verifies(_ signature: [UInt8], _ message: [UInt8]) -> Bool {
        guard let encoded = Self.der(fromRaw: signature), let context = EVP_MD_CTX_new() else { return false }
        defer { EVP_MD_CTX_free(context) }
        return EVP_DigestVerifyInit(context, nil, EVP_sha256(), nil, handle) == 1
            && EVP_DigestVerify(context, encoded, encoded.count, message, message.count) == 1
    }

    /// Returns the public half as SubjectPublicKeyInfo in DER (RFC 5280 §4.1), for verifying tokens; empty on failure.
    public func publicKey() -> [UInt8] {
        let length = i2d_PUBKEY(handle, nil)
        guard length > 0 else { return [] }
        var bytes = [UInt8](repeating: 0, count: Int(length))
        bytes.withUnsafeMutableBufferPointer { buffer in
            var end = buffer.baseAddress
            _ = i2d_PUBKEY(handle, &end)
        }
        return bytes
    }

    /// Whether both are the same key.
    public func isSameKey(as other: SigningKey) -> Bool {
        self === other || EVP_PKEY_eq(handle, other.handle) == 1
    }

    public var description: String { "signing key (EC P-256)" }

    /// Converts r and s, 32 bytes each, to OpenSSL's DER sequence; returns nil when OpenSSL fails.
    private static func der(fromRaw raw: [UInt8]) -> [UInt8]? {
        guard raw.count == signatureLength, let pair = ECDSA_SIG_new() else { return nil }
        defer { ECDSA_SIG_free(pair) }
        let half = signatureLength / 2
        let (r, s) = raw.withUnsafeBufferPointer { buffer in
            (
                BN_bin2bn(buffer.baseAddress, Int32(half), nil),
                BN_bin2bn(buffer.baseAddress.map { $0 + half }, Int32(half), nil)
            )
        }
        guard ECDSA_SIG_set0(pair, r, s) == 1 else {
            BN_free(r)
            BN_free(s)
            return nil
        }
        let length = i2d_ECDSA_SIG(pair, nil)
        guard length > 0 else { return nil }
        var encoded = [UInt8](repeating: 0, count: Int(length))
        encoded.withUnsafeMutableBufferPointer { buffer in
            var end = buffer.baseAddress
            _ = i2d_ECDSA_SIG(pair, &end)
        }
        return encoded
    }

    private func failure() -> SigningKeyError {
        SigningKeyError(.signingFailed(SigningKeyFile.libraryReason()))
    }
}
