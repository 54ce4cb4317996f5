/// Identity of the gateway towards APNs. Each connection belongs to one credential.
public enum Credential: Sendable {
    /// Provider tokens signed with a key: any app of the team, all push types.
    case token(TokenCredential)
    /// A TLS client certificate: one app and its extra topics.
    case certificate(CertificateCredential)

    /// Name of the credential in logs and metrics; contains nothing secret.
    public var label: String {
        switch self {
        case .token(let token): "key \(token.keyID) of team \(token.teamID)"
        case .certificate(let certificate): "certificate \(certificate.certificatePath)"
        }
    }
}

/// A signing key with the names that Apple assigned (APNs: "Establishing a token-based connection to APNs").
public struct TokenCredential: Sendable {
    public let keyID: KeyID
    public let teamID: TeamID
    public let key: SigningKey

    public init(keyID: KeyID, teamID: TeamID, key: SigningKey) {
        self.keyID = keyID
        self.teamID = teamID
        self.key = key
    }
}

/// A client certificate (APNs: "Establishing a certificate-based connection to APNs"). The files are read when the TLS
/// context is created.
public struct CertificateCredential: Sendable, Hashable {
    /// Path of the PEM file with the certificate, followed by its chain if it has one.
    public let certificatePath: String
    /// Path of the PEM file with the private key; may be the same file.
    public let keyPath: String

    public init(certificatePath: String, keyPath: String) throws(CredentialError) {
        guard !certificatePath.isEmpty else {
            throw CredentialError(field: "certificate", requirement: "must name a PEM file")
        }
        guard !keyPath.isEmpty else {
            throw CredentialError(
                field: "certificate key", requirement: "must name a PEM file (may be that of the certificate)"
            )
        }
        self.certificatePath = certificatePath
        self.keyPath = keyPath
    }
}

/// The identifier of a signing key (`kid`): 10 characters, A–Z and 0–9.
public struct KeyID: Sendable, Hashable, CustomStringConvertible {
    public let description: String

    /// Checks the identifier. Throws when the text hasn't 10 characters of A–Z and 0–9.
    public init(_ text: String) throws(CredentialError) {
        try CredentialError.checkIdentifier(text, field: "key id")
        description = text
    }
}

/// The identifier of a developer team (`iss`): 10 characters, A–Z and 0–9.
public struct TeamID: Sendable, Hashable, CustomStringConvertible {
    public let description: String

    /// Checks the identifier. Throws when the text hasn't 10 characters of A–Z and 0–9.
    public init(_ text: String) throws(CredentialError) {
        try CredentialError.checkIdentifier(text, field: "team id")
        description = text
    }
}

/// An invalid credential setting.
public struct CredentialError: Error, Sendable, Equatable, CustomStringConvertible {
    /// Name of the setting.
    public let field: String
    /// Requirement that the setting violates.
    public let requirement: String

    public init(field: String, requirement: String) {
        self.field = field
        self.requirement = requirement
    }

    public var description: String { "\(field) \(requirement)" }

    fileprivate static func checkIdentifier(_ text: String, field: String) throws(CredentialError) {
        guard text.utf8.count == 10 else {
            throw CredentialError(
                field: field, requirement: "must have 10 characters (A-Z, 0-9), not \(text.utf8.count)")
        }
        let isAllowed = text.utf8.allSatisfy {
            (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains($0)
                || (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0)
        }
        guard isAllowed else {
            throw CredentialError(
                field: field, requirement: "must consist of the letters A-Z and digits only")
        }
    }
}
