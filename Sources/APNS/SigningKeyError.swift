/// Why a provider signing key (.p8) can't be used: what is wrong, where, and what to do.
public struct SigningKeyError: Error, Sendable, Equatable, CustomStringConvertible {
    public enum Problem: Sendable, Equatable {
        /// The file can't be opened or read; the system's reason.
        case unreadable(String)
        case empty
        /// Larger than any key, in bytes.
        case tooLarge
        /// No `-----BEGIN` in it.
        case notPEM
        /// PEM without a private key; the label of what it has instead.
        case noPrivateKey(found: String)
        /// Needs a passphrase.
        case encrypted
        /// PEM that OpenSSL can't decode; OpenSSL's reason.
        case malformed(String)
        /// A private key of another kind, such as RSA.
        case notEllipticCurve(found: String)
        /// On another curve than P-256.
        case wrongCurve(found: String)
        /// OpenSSL could not sign; its reason.
        case signingFailed(String)
    }

    public let problem: Problem
    /// The file it was read from, if it was one.
    public let path: String?

    public init(_ problem: Problem, path: String? = nil) {
        self.problem = problem
        self.path = path
    }

    public var description: String {
        let place = path.map { "signing key \($0)" } ?? "signing key"
        return switch problem {
        case .unreadable(let reason): "\(place): cannot be read: \(reason)"
        case .empty: "\(place): is empty; expected the .p8 file from the Apple developer account"
        case .tooLarge:
            "\(place): is too large for a key; expected the .p8 file from the Apple developer account"
        case .notPEM: "\(place): is not PEM text; expected a line -----BEGIN PRIVATE KEY-----"
        case .noPrivateKey(let found): "\(place): contains a \(found), not a private key"
        case .encrypted:
            "\(place): is encrypted; Apple's .p8 files are not, store it decrypted (openssl pkcs8 -in … -out …)"
        case .malformed(let reason): "\(place): is damaged: \(reason)"
        case .notEllipticCurve(let found):
            "\(place): is a key of type \(found); ES256 needs an EC key on P-256"
        case .wrongCurve(let found): "\(place): is on curve \(found); ES256 needs P-256 (prime256v1)"
        case .signingFailed(let reason): "\(place): signing failed: \(reason)"
        }
    }

    func at(_ path: String) -> SigningKeyError { SigningKeyError(problem, path: path) }
}
