/// Source of a PEM text.
public enum PEMSource: Sendable, Equatable {
    /// A file, by path.
    case file(String)
    /// The text itself.
    case text(String)

    /// Name of the source in an error. A PEM text passed directly is never shown.
    var label: String {
        switch self {
        case .file(let path): "“\(path)”"
        case .text: "the PEM text given"
        }
    }
}

/// A certificate chain (leaf first) and its private key, which must not be encrypted.
public struct TLSIdentity: Sendable, Equatable {
    public var certificateChain: PEMSource
    public var privateKey: PEMSource

    public init(certificateChain: PEMSource, privateKey: PEMSource) {
        self.certificateChain = certificateChain
        self.privateKey = privateKey
    }
}

/// The authorities that a peer's certificate may lead to.
public enum TLSTrust: Sendable, Equatable {
    /// The system's store.
    case system
    /// Only these certificates.
    case authorities(PEMSource)
}

/// Version of TLS; raw values are those of the protocol.
public enum TLSVersion: Int32, Sendable, Comparable {
    case tls12 = 0x0303
    case tls13 = 0x0304

    public static func < (a: TLSVersion, b: TLSVersion) -> Bool { a.rawValue < b.rawValue }
}

/// Suites of TLS 1.3. AES-128-GCM is first, the cheapest suite where the processor has AES instructions.
let defaultCipherSuites = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"
/// The suites of TLS 1.2 that HTTP/2 permits (RFC 9113 §9.2.2): ephemeral key exchange and AEAD.
let defaultCipherList =
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:"
    + "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305"

/// Settings of TLS for a client.
public struct ClientTLSOptions: Sendable {
    /// Authorities that the server's certificate may lead to.
    public var trust: TLSTrust = .system
    /// The client certificate, for servers that ask for one.
    public var identity: TLSIdentity?
    public var minimumVersion: TLSVersion = .tls12
    public var maximumVersion: TLSVersion = .tls13
    /// Protocols that ALPN offers, in order of preference. An empty list omits ALPN.
    public var applicationProtocols: [String] = ["h2"]
    /// Whether a server that selects none of `applicationProtocols` is refused.
    public var requiresApplicationProtocol = true
    /// Suites of TLS 1.3, in OpenSSL's syntax.
    public var cipherSuites: String = defaultCipherSuites
    /// Suites of TLS 1.2, in OpenSSL's syntax.
    public var cipherList: String = defaultCipherList
    /// Whether chain and name are checked; false only for diagnosis.
    public var verifiesPeer = true

    public init() {}
}

/// A server's treatment of client certificates.
public enum ClientCertificatePolicy: Sendable, Equatable {
    /// The server requests no certificate.
    case ignore
    /// The server requests a certificate. A client without a certificate is served, and a client with a bad one is
    /// refused.
    case request(PEMSource)
    /// The server requires a certificate. A client without a good certificate is refused.
    case require(PEMSource)
}

/// Settings of TLS for a server.
public struct ServerTLSOptions: Sendable {
    /// Certificate chain and key of the server.
    public var identity: TLSIdentity
    /// Treatment of client certificates.
    public var clientCertificates: ClientCertificatePolicy = .ignore
    public var minimumVersion: TLSVersion = .tls12
    public var maximumVersion: TLSVersion = .tls13
    /// Protocols that ALPN accepts, in order of preference. A client that offers none of them is refused with the alert
    /// `no_application_protocol`. A client that does not use ALPN is served.
    public var applicationProtocols: [String] = ["h2"]
    /// Suites of TLS 1.3, in OpenSSL's syntax.
    public var cipherSuites: String = defaultCipherSuites
    /// Suites of TLS 1.2, in OpenSSL's syntax.
    public var cipherList: String = defaultCipherList

    public init(identity: TLSIdentity) { self.identity = identity }
}
