/// A provider token: the JSON web token that authorises requests on token connections. See APNs: "Establishing a
/// token-based connection to APNs"; RFC 7515, ES256 of RFC 7518.
///
/// Immutable and shared. Its text is a secret for an hour, so no description shows it.
public struct ProviderToken: Sendable, Equatable, CustomStringConvertible, CustomDebugStringConvertible {
    /// Number of the token within its source, from 1. Tokens of one source with equal generations are the same.
    public let generation: UInt64
    /// Issue time (`iat`), in seconds since 1970.
    public let issuedAtSeconds: Int64
    /// Value of the `authorization` header: `bearer` and the token.
    public let authorization: [UInt8]

    /// Text of the token, without `bearer`.
    public var text: ArraySlice<UInt8> { authorization.dropFirst(Self.scheme.count) }

    private static let scheme = Array("bearer ".utf8)

    /// Signs a new token. Throws when signing fails.
    init(credential: TokenCredential, issuedAtSeconds: Int64, generation: UInt64) throws(SigningKeyError) {
        // Identifiers are letters and digits, so nothing needs escaping.
        let header = "{\"alg\":\"ES256\",\"kid\":\"\(credential.keyID)\"}"
        let claims = "{\"iss\":\"\(credential.teamID)\",\"iat\":\(issuedAtSeconds)}"
        var text = Self.base64URL(header.utf8)
        text.append(UInt8(ascii: "."))
        text += Self.base64URL(claims.utf8)
        let signature = try credential.key.sign(text)
        text.append(UInt8(ascii: "."))
        text += Self.base64URL(signature)

        authorization = Self.scheme + text
        self.issuedAtSeconds = issuedAtSeconds
        self.generation = generation
    }

    public var description: String { "provider token \(generation) issued at \(issuedAtSeconds)" }
    public var debugDescription: String { description }

    private static let alphabet = Array(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".utf8)

    /// Encodes as in RFC 4648 §5, without padding (RFC 7515 §2).
    static func base64URL(_ bytes: some Collection<UInt8>) -> [UInt8] {
        var text: [UInt8] = []
        text.reserveCapacity((bytes.count * 4 + 2) / 3)
        var pending: UInt32 = 0
        var bits: UInt32 = 0
        for byte in bytes {
            pending = pending << 8 | UInt32(byte)
            bits += 8
            while bits >= 6 {
                bits -= 6
                text.append(alphabet[Int(pending >> bits & 63)])
            }
        }
        if bits > 0 { text.append(alphabet[Int(pending << (6 - bits) & 63)]) }
        return text
    }
}

extension ProviderToken: CustomReflectable {
    public var customMirror: Mirror {
        Mirror(self, children: ["generation": generation, "issuedAtSeconds": issuedAtSeconds])
    }
}
