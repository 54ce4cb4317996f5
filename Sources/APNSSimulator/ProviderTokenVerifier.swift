import COpenSSL
import HTTP2
import SluiceModel

/// Content of a provider token whose signature was found good.
struct VerifiedToken: Equatable {
    var keyID: String
    var teamID: String
    /// `iat` in UNIX seconds.
    var issuedAt: Int64
    /// Index of the key that signed the token; nil if any key is accepted.
    var key: Int?
}

/// Checks provider tokens (JWS, RFC 7515): ES256 only, kid, iss and iat. The signature is r‖s; a
/// lenient verifier also takes DER, as in one of Apple's examples, and a text as `iat`. The age is not checked here, because it changes while the token does not.
struct ProviderTokenVerifier: ~Copyable {
    private let keys: [SimulatorKey]?
    private let isLenient: Bool
    /// Public keys of `keys`; freed in deinit.
    private let handles: [OpaquePointer]
    /// Latest accepted time: far enough for every date, and small enough for calculations.
    private static let latestTime: Int64 = 1 << 40

    init(_ policy: SimulatorOptions.ProviderTokens, isLenient: Bool) throws {
        self.isLenient = isLenient
        switch policy {
        case .anyKey:
            keys = nil
            handles = []
        case .keys(let keys):
            var handles: [OpaquePointer] = []
            do {
                for key in keys {
                    guard Self.isIdentifier(key.keyID), Self.isIdentifier(key.teamID) else {
                        throw SimulatorError(
                            "key “\(key.keyID)” of team “\(key.teamID)”: each identifier must have ten letters or digits"
                        )
                    }
                    handles.append(try Self.load(key))
                }
            } catch {
                for handle in handles { EVP_PKEY_free(handle) }
                throw error
            }
            self.keys = keys
            self.handles = handles
        }
    }

    deinit {
        for handle in handles { EVP_PKEY_free(handle) }
    }

    func key(_ index: Int) -> SimulatorKey? { keys?[index] }

    /// Returns the token's content; nil for a token that APNs answers with `InvalidProviderToken`.
    func verify(_ token: UnsafeRawBufferPointer) -> VerifiedToken? {
        guard let firstDot = token.firstIndex(of: UInt8(ascii: ".")),
            let secondDot = token[(firstDot + 1)...].firstIndex(of: UInt8(ascii: ".")),
            let header = Base64URL.decode(token[..<firstDot]).flatMap(FlatJSON.parse),
            let claims = Base64URL.decode(token[(firstDot + 1)..<secondDot]).flatMap(FlatJSON.parse),
            let signature = Base64URL.decode(token[(secondDot + 1)...]),
            header["alg"] == .text("ES256"),
            case .text(let keyID)? = header["kid"], Self.isIdentifier(keyID),
            case .text(let teamID)? = claims["iss"], Self.isIdentifier(teamID),
            let issuedAt = claims["iat"]?.seconds(orText: isLenient), (0...Self.latestTime).contains(issuedAt)
        else { return nil }
        let forms = Self.derForms(of: signature, isLenient: isLenient)
        guard !forms.isEmpty else { return nil }
        var verified = VerifiedToken(keyID: keyID, teamID: teamID, issuedAt: issuedAt, key: nil)
        guard let keys else { return verified }
        guard let index = keys.firstIndex(where: { $0.keyID == keyID && $0.teamID == teamID }) else {
            return nil
        }
        let signed = UnsafeRawBufferPointer(rebasing: token[..<secondDot])
        guard forms.contains(where: { Self.isSignature($0, of: signed, by: handles[index]) }) else {
            return nil
        }
        verified.key = index
        return verified
    }

    /// Returns whether the text has ten letters or digits, as key and team identifiers have.
    static func isIdentifier(_ text: String) -> Bool {
        text.utf8.count == 10
            && text.utf8.allSatisfy {
                hexDigit($0) || (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains($0 & 0xDF)
            }
    }

    private static func load(_ key: SimulatorKey) throws -> OpaquePointer {
        let handle: OpaquePointer
        // Named, because a handle lives to the end of its scope, but a temporary handle does not outlive `.pointer`.
        let bio = try BIOHandle(reading: key.key)
        if let publicKey = PEM_read_bio_PUBKEY(bio.pointer, nil, nil, nil) {
            handle = publicKey
        } else {
            let privateKey = try PEM.privateKey(in: key.key)
            EVP_PKEY_up_ref(privateKey.pointer)
            handle = privateKey.pointer
        }
        guard EVP_PKEY_get_bits(handle) == 256, EVP_PKEY_get_base_id(handle) == EVP_PKEY_EC else {
            EVP_PKEY_free(handle)
            throw SimulatorError("key “\(key.keyID)”: the key must be an EC key on P-256")
        }
        return handle
    }

    /// Returns the signature in OpenSSL's form: 64 bytes read as r‖s, and for a lenient verifier the bytes
    /// read as DER.
    private static func derForms(of signature: [UInt8], isLenient: Bool) -> [[UInt8]] {
        var forms: [[UInt8]] = []
        if signature.count == 64, let pair = ECDSA_SIG_new() {
            defer { ECDSA_SIG_free(pair) }
            let r = BN_bin2bn(signature, 32, nil)
            let s = Array(signature[32...]).withUnsafeBufferPointer { BN_bin2bn($0.baseAddress, 32, nil) }
            if ECDSA_SIG_set0(pair, r, s) == 1 {
                var bytes = [UInt8](repeating: 0, count: 80)
                let count = bytes.withUnsafeMutableBufferPointer { buffer in
                    var target = buffer.baseAddress
                    return i2d_ECDSA_SIG(pair, &target)
                }
                if count > 0 { forms.append(Array(bytes[..<Int(count)])) }
            }
        }
        guard isLenient else { return forms }
        let isDER = signature.withUnsafeBufferPointer { buffer -> Bool in
            var source = buffer.baseAddress
            guard let pair = d2i_ECDSA_SIG(nil, &source, buffer.count) else { return false }
            ECDSA_SIG_free(pair)
            return source == buffer.baseAddress! + buffer.count
        }
        ERR_clear_error()
        if isDER { forms.append(signature) }
        return forms
    }

    private static func isSignature(
        _ signature: [UInt8], of bytes: UnsafeRawBufferPointer, by key: OpaquePointer
    ) -> Bool {
        let context = EVP_MD_CTX_new()
        defer {
            EVP_MD_CTX_free(context)
            ERR_clear_error()
        }
        return EVP_DigestVerifyInit(context, nil, EVP_sha256(), nil, key) == 1
            && EVP_DigestVerify(
                context, signature, signature.count, bytes.assumingMemoryBound(to: UInt8.self).baseAddress,
                bytes.count) == 1
    }
}

enum Base64URL {
    /// Decodes base64url without padding (RFC 4648 §5); returns nil for anything else.
    static func decode(_ text: Slice<UnsafeRawBufferPointer>) -> [UInt8]? {
        guard text.count % 4 != 1 else { return nil }
        var bytes: [UInt8] = []
        bytes.reserveCapacity(text.count * 3 / 4)
        var bits: UInt32 = 0
        var count = 0
        for character in text {
            guard let value = value(character) else { return nil }
            bits = bits << 6 | value
            count += 6
            if count >= 8 {
                count -= 8
                bytes.append(UInt8(truncatingIfNeeded: bits >> UInt32(count)))
            }
        }
        return bytes
    }

    private static func value(_ character: UInt8) -> UInt32? {
        switch character {
        case UInt8(ascii: "A")...UInt8(ascii: "Z"): UInt32(character) - 65
        case UInt8(ascii: "a")...UInt8(ascii: "z"): UInt32(character) - 97 + 26
        case UInt8(ascii: "0")...UInt8(ascii: "9"): UInt32(character) - 48 + 52
        case UInt8(ascii: "-"): 62
        case UInt8(ascii: "_"): 63
        default: nil
        }
    }
}
