import COpenSSL
import Glibc

/// A certificate with its key, as PEM texts.
public struct IssuedCertificate: Sendable, Equatable {
    /// The leaf, followed by the authority's certificate.
    public let chainPEM: String
    /// The unencrypted key (PKCS #8).
    public let privateKeyPEM: String

    /// Chain and key as an identity for TLS.
    public var identity: TLSIdentity {
        TLSIdentity(certificateChain: .text(chainPEM), privateKey: .text(privateKeyPEM))
    }
}

/// Validity of a certificate, in seconds relative to now; expired certificates are for tests.
public struct CertificateValidity: Sendable, Equatable {
    /// First second of validity, relative to now.
    public var notBefore: Int
    /// Last second of validity, relative to now.
    public var notAfter: Int

    public init(notBefore: Int, notAfter: Int) {
        self.notBefore = notBefore
        self.notAfter = notAfter
    }

    /// Returns a validity from an hour ago, for clocks that differ, until so many days from now.
    public static func days(_ days: Int) -> CertificateValidity {
        CertificateValidity(notBefore: -3_600, notAfter: days * 86_400)
    }

    /// Validity that ended an hour ago.
    public static let expired = CertificateValidity(notBefore: -172_800, notAfter: -3_600)
    /// Validity that begins in a day.
    public static let future = CertificateValidity(notBefore: 86_400, notAfter: 172_800)
}

/// A certificate authority for development and tests: P-256 keys, ECDSA with SHA-256. Not for production use.
public struct CertificateAuthority: Sendable {
    /// The authority's own certificate.
    public let certificatePEM: String
    /// The unencrypted key (PKCS #8).
    public let privateKeyPEM: String

    /// Creates a new authority.
    public init(
        commonName: String = "Sluice development CA", validity: CertificateValidity = .days(3_650)
    ) throws(TLSError) {
        let key = try Self.newKey()
        let certificate = try CertificateBuilder()
        try certificate.setSubject(commonName: commonName, validity: validity)
        try certificate.setKey(key)
        try certificate.setIssuer(of: certificate.pointer)
        try certificate.add(NID_basic_constraints, "critical,CA:TRUE", issuer: certificate.pointer)
        try certificate.add(NID_key_usage, "critical,keyCertSign,cRLSign", issuer: certificate.pointer)
        try certificate.add(NID_subject_key_identifier, "hash", issuer: certificate.pointer)
        try certificate.sign(with: key)
        certificatePEM = certificate.pem
        privateKeyPEM = Self.pem(of: key)
    }

    /// Loads an authority created earlier.
    public init(certificatePEM: String, privateKeyPEM: String) throws(TLSError) {
        try PEM.certificates(in: .text(certificatePEM)) { _ in }
        _ = try PEM.privateKey(in: .text(privateKeyPEM))
        self.certificatePEM = certificatePEM
        self.privateKeyPEM = privateKeyPEM
    }

    /// Issues a server's certificate.
    /// - Parameter names: DNS names (a leading `*.` is allowed) and IP addresses; at least one.
    public func issueServer(
        names: [String], validity: CertificateValidity = .days(825)
    ) throws(TLSError) -> IssuedCertificate {
        let alternatives = names.map { SocketAddressText.isAddress($0) ? "IP:\($0)" : "DNS:\($0)" }
        return try issue(
            commonName: names.first ?? "localhost", userID: nil, validity: validity, usage: "serverAuth",
            alternatives: alternatives.joined(separator: ","), topics: [])
    }

    /// Issues a client's certificate, in the form of an APNs push certificate if it has a topic.
    /// - Parameters:
    ///   - userID: UID of the subject; on a push certificate the bundle identifier.
    ///   - topics: the topics extension; on a push certificate the bundle identifier and its suffixed topics.
    public func issueClient(
        commonName: String, userID: String? = nil, topics: [String] = [],
        validity: CertificateValidity = .days(365)
    ) throws(TLSError) -> IssuedCertificate {
        try issue(
            commonName: commonName, userID: userID, validity: validity, usage: "clientAuth",
            alternatives: nil,
            topics: topics)
    }

    /// Issues a certificate.
    /// - Parameters:
    ///   - usage: extended key usage, as `serverAuth`.
    ///   - alternatives: subjectAltName in the syntax of `x509v3_config(5)`; nil for none.
    /// - Throws: `TLSError` of kind `configuration` when OpenSSL refuses a name or date.
    func issue(
        commonName: String, userID: String?, validity: CertificateValidity, usage: String,
        alternatives: String?,
        topics: [String]
    ) throws(TLSError) -> IssuedCertificate {
        let key = try Self.newKey()
        let issuerKey = try PEM.privateKey(in: .text(privateKeyPEM))
        let certificate = try CertificateBuilder()
        try certificate.setSubject(commonName: commonName, userID: userID, validity: validity)
        try certificate.setKey(key)
        try PEM.certificates(in: .text(certificatePEM)) { issuer throws(TLSError) in
            try certificate.setIssuer(of: issuer.pointer)
            try certificate.add(NID_basic_constraints, "critical,CA:FALSE", issuer: issuer.pointer)
            try certificate.add(NID_key_usage, "critical,digitalSignature", issuer: issuer.pointer)
            try certificate.add(NID_ext_key_usage, usage, issuer: issuer.pointer)
            try certificate.add(NID_authority_key_identifier, "keyid", issuer: issuer.pointer)
            if let alternatives {
                try certificate.add(NID_subject_alt_name, alternatives, issuer: issuer.pointer)
            }
        }
        if !topics.isEmpty { try certificate.addTopics(topics) }
        try certificate.sign(with: issuerKey)
        return IssuedCertificate(chainPEM: certificate.pem + certificatePEM, privateKeyPEM: Self.pem(of: key))
    }

    /// Creates a new P-256 key.
    package static func newKey() throws(TLSError) -> KeyHandle {
        ERR_clear_error()
        let context = EVP_PKEY_CTX_new_id(EVP_PKEY_EC, nil)
        defer { EVP_PKEY_CTX_free(context) }
        var key: OpaquePointer?
        guard EVP_PKEY_keygen_init(context) == 1,
            EVP_PKEY_CTX_set_ec_paramgen_curve_nid(context, NID_X9_62_prime256v1) == 1,
            EVP_PKEY_keygen(context, &key) == 1, let key
        else { throw .configuration("generating a P-256 key", hint: "") }
        return KeyHandle(pointer: key)
    }

    package static func pem(of key: borrowing KeyHandle) -> String {
        let bio = BIOHandle()
        PEM_write_bio_PrivateKey(bio.pointer, key.pointer, nil, nil, 0, nil, nil)
        return bio.text
    }
}
