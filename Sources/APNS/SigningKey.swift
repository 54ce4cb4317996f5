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
    /// bytes each, big-endian (RFC 7518 §3.4). Throws when OpenSSL fails. Any thread.
    public func sign(_ message: [UInt8]) throws(SigningKeyError) -> [UInt8] {
        ERR_clear_error()
        guard let context = EVP_MD_CTX_new() else { throw failure() }
        defer { EVP_MD_CTX_free(context) }
        var length = 0
        guard EVP_DigestSignInit(context, nil, EVP_sha256(), nil, handle) == 1,
            EVP_DigestSign(context, nil, &length, message, message.count) == 1
        else { throw failure() }
        var encoded = [UInt8](repeating: 0, count: length)
        guard EVP_DigestSign(context, &encoded, &length, message, message.count) == 1,
            let raw = Self.raw(fromDER: encoded[..<length])
        else { throw failure() }
        return raw
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

    /// Converts OpenSSL's DER sequence of r and s to 2 × 32 bytes; returns nil for other input.
    private static func raw(fromDER encoded: ArraySlice<UInt8>) -> [UInt8]? {
        let parsed = encoded.withUnsafeBufferPointer { buffer -> OpaquePointer? in
            var cursor = buffer.baseAddress
            return d2i_ECDSA_SIG(nil, &cursor, buffer.count)
        }
        guard let signature = parsed else { return nil }
        defer { ECDSA_SIG_free(signature) }
        var bytes = [UInt8](repeating: 0, count: signatureLength)
        let half = Int32(signatureLength / 2)
        let written = bytes.withUnsafeMutableBufferPointer { buffer -> Bool in
            guard let base = buffer.baseAddress else { return false }
            return BN_bn2binpad(ECDSA_SIG_get0_r(signature), base, half) == half
                && BN_bn2binpad(ECDSA_SIG_get0_s(signature), base + Int(half), half) == half
        }
        return written ? bytes : nil
    }

    private func failure() -> SigningKeyError {
        SigningKeyError(.signingFailed(SigningKeyFile.libraryReason()))
    }
}
