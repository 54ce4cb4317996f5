import COpenSSL
import Glibc

/// Facts from the certificate that a client presents: the first certificate of a PEM source.
public struct CertificateFile: Sendable, Equatable {
    /// Subject and topics of the certificate.
    public let certificate: PeerCertificate
    /// First second of validity, in seconds of Unix time.
    public let notBefore: Int64
    /// Last second of validity, in seconds of Unix time.
    public let notAfter: Int64

    /// Reads the certificate.
    /// - Throws: `TLSError` of kind `configuration` that names the file.
    public init(reading source: PEMSource) throws(TLSError) {
        var facts: (certificate: PeerCertificate, notBefore: Int64, notAfter: Int64)?
        try PEM.certificates(in: source) { certificate throws(TLSError) in
            if facts != nil { return }
            guard let notBefore = Self.seconds(X509_get0_notBefore(certificate.pointer)),
                let notAfter = Self.seconds(X509_get0_notAfter(certificate.pointer))
            else {
                throw .configuration(
                    "reading the dates of the certificate of \(source.label)",
                    hint: "request a new certificate")
            }
            facts = (PeerCertificate(certificate), notBefore, notAfter)
        }
        // A source without certificate has been refused.
        guard let facts else { throw .configuration("reading certificates of \(source.label)", hint: "") }
        certificate = facts.certificate
        notBefore = facts.notBefore
        notAfter = facts.notAfter
    }

    /// Checks that the source has an unencrypted private key.
    /// - Throws: `TLSError` of kind `configuration` that names the file.
    public static func checkPrivateKey(in source: PEMSource) throws(TLSError) {
        _ = try PEM.privateKey(in: source)
    }

    /// Returns whether the private key belongs to the first certificate.
    /// - Throws: `TLSError` of kind `configuration` that names the file that can't be read.
    public static func isMatching(_ identity: TLSIdentity) throws(TLSError) -> Bool {
        let key = try PEM.privateKey(in: identity.privateKey)
        var matches: Bool?
        try PEM.certificates(in: identity.certificateChain) { certificate throws(TLSError) in
            if matches == nil { matches = X509_check_private_key(certificate.pointer, key.pointer) == 1 }
        }
        ERR_clear_error()
        return matches ?? false
    }

    private static func seconds(_ time: UnsafePointer<ASN1_TIME>?) -> Int64? {
        var parts = tm()
        guard let time, ASN1_TIME_to_tm(time, &parts) == 1 else { return nil }
        return Int64(timegm(&parts))
    }
}
