/// Error of a provider signing key (.p8): its cause, its file and the remedy.
public struct SigningKeyError: Error, Sendable, Equatable, CustomStringConvertible {
    /// Problem of a key file or a signature.
    public enum Problem: Sendable, Equatable {
        /// The file can't be opened or read; contains the system's reason.
        case unreadable(String)
        /// The file has no content.
        case empty
        /// The file is larger than 64 KB, which no key needs.
        case tooLarge
        /// The text contains no `-----BEGIN`.
        case notPEM
        /// The PEM contains no private key; contains the label that was found instead.
        case noPrivateKey(found: String)
        /// The key needs a passphrase.
        case encrypted
        /// OpenSSL can't decode the PEM; contains OpenSSL's reason.
        case malformed(String)
        /// The private key has another kind, such as RSA.
        case notEllipticCurve(found: String)
        /// The key is on another curve than P-256.
        case wrongCurve(found: String)
        /// OpenSSL could not sign; contains OpenSSL's reason.
        case signingFailed(String)
    }

    public let problem: Problem
    /// File that the key was read from; nil when the key was not read from a file.
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
            "\(place): is encrypted; decrypt the key as in Apple's .p8 files (openssl pkcs8 -in … -out …)"
        case .malformed(let reason): "\(place): is damaged: \(reason)"
        case .notEllipticCurve(let found):
            "\(place): is a key of type \(found); ES256 needs an EC key on P-256"
        case .wrongCurve(let found): "\(place): is on curve \(found); ES256 needs P-256 (prime256v1)"
        case .signingFailed(let reason): "\(place): signing failed: \(reason)"
        }
    }

    func at(_ path: String) -> SigningKeyError { SigningKeyError(problem, path: path) }
}
