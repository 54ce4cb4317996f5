import COpenSSL
import Glibc

/// Failure to build a TLS context, or failure of a TLS connection. The error holds the operation, OpenSSL's reason, and
/// a remedy.
public struct TLSError: Error, Sendable, Equatable, CustomStringConvertible {
    /// Class of a failure, for decisions; the texts are for people.
    public enum Kind: Sendable, Equatable {
        /// A file, a PEM text, a key or an option could not be used.
        case configuration
        /// The peer's certificate (or one of its chain) has expired.
        case certificateExpired
        /// The peer's certificate is not valid yet; most often a wrong clock.
        case certificateNotYetValid
        /// The peer's certificate is not for the name or address asked for.
        case hostnameMismatch
        /// The peer's certificate does not lead to a trusted authority.
        case unknownAuthority
        /// The peer's certificate failed verification for another reason.
        case certificateInvalid
        /// The peer refused our certificate, or demands one that we did not present.
        case certificateRefused
        /// ALPN: there is no common application protocol (RFC 7301 §3.2).
        case protocolRefused
        /// There is no common TLS version, cipher suite or group.
        case noCommonParameters
        /// The peer does not speak TLS.
        case notTLS
        /// The connection was reset, or ended inside the handshake.
        case connectionLost
        /// Any other breach of the TLS protocol.
        case protocolViolation
    }

    public let kind: Kind
    /// Operation that failed, with the name of the peer or file.
    public let operation: String
    /// OpenSSL's or the system's reason.
    public let reason: String
    /// Remedy for a person; empty when there is none.
    public let hint: String

    init(_ kind: Kind, operation: String, reason: String, hint: String) {
        self.kind = kind
        self.operation = operation
        self.reason = reason
        self.hint = hint
    }

    public var description: String {
        hint.isEmpty ? "\(operation): \(reason)" : "\(operation): \(reason); \(hint)"
    }
}

extension TLSError {
    /// Returns a configuration error from OpenSSL's error queue, and empties the queue.
    static func configuration(_ operation: String, hint: String) -> TLSError {
        let code = ERR_get_error()
        ERR_clear_error()
        return TLSError(
            .configuration, operation: operation, reason: reasonText(code, otherwise: "not usable"),
            hint: hint)
    }

    static func reasonText(_ code: UInt, otherwise: String) -> String {
        guard code != 0 else { return otherwise }
        // Libraries of the system error class carry an errno, whose text OpenSSL leaves out of the reason table.
        if let text = ERR_reason_error_string(code) { return String(cString: text) }
        let system = sluice_ERR_reason(code)
        return system > 0 ? String(cString: strerror(system)) : otherwise
    }

    /// Returns the error of a failed X.509 verification.
    static func verification(_ result: Int, operation: String, expectedName: String?) -> TLSError {
        let text = X509_verify_cert_error_string(result).map { String(cString: $0) } ?? "code \(result)"
        let name = expectedName.map { "“\($0)”" } ?? "the peer"
        switch Int32(truncatingIfNeeded: result) {
        case X509_V_ERR_CERT_HAS_EXPIRED:
            return TLSError(
                .certificateExpired, operation: operation, reason: text,
                hint: "renew the certificate of \(name), or correct this machine's clock")
        case X509_V_ERR_CERT_NOT_YET_VALID:
            return TLSError(
                .certificateNotYetValid, operation: operation, reason: text,
                hint: "correct the clock of this machine or of \(name)")
        case X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH:
            return TLSError(
                .hostnameMismatch, operation: operation, reason: text,
                hint: "the certificate is not for \(name); connect by a name of its subjectAltName, because a"
                    + " common name doesn't count")
        case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT, X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY,
            X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN, X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT,
            X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE, X509_V_ERR_CERT_UNTRUSTED:
            return TLSError(
                .unknownAuthority, operation: operation, reason: text,
                hint: "name the authority of \(name) in the CA file")
        default:
            return TLSError(
                .certificateInvalid, operation: operation, reason: text,
                hint: "check the certificate of \(name)")
        }
    }

    /// Returns the error behind `SSL_ERROR_SSL` from OpenSSL's error queue, and empties the queue.
    static func fromQueue(operation: String) -> TLSError {
        let code = ERR_get_error()
        ERR_clear_error()
        let text = reasonText(code, otherwise: "TLS failure")
        let reason = sluice_ERR_reason(code)
        switch reason {
        case SSL_R_TLSV1_ALERT_NO_APPLICATION_PROTOCOL, SSL_R_NO_APPLICATION_PROTOCOL:
            return .noApplicationProtocol(operation: operation, reason: text)
        case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED, SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
            return TLSError(
                .certificateRefused, operation: operation, reason: text,
                hint: "the server demands a client certificate; configure one")
        case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE, SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED,
            SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED, SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN,
            SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE, SSL_R_TLSV1_ALERT_UNKNOWN_CA,
            SSL_R_TLSV1_ALERT_ACCESS_DENIED:
            return TLSError(
                .certificateRefused, operation: operation, reason: text,
                hint: "the peer refused the certificate presented to it; check its dates and its authority")
        case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
            // In TLS 1.2 the alert covers both cases (RFC 5246 §7.2.2, §7.4.6); TLS 1.3 has a separate alert for the
            // second.
            return TLSError(
                .noCommonParameters, operation: operation, reason: text,
                hint: "the two sides share no TLS version or cipher suite, or the server demands a client"
                    + " certificate; compare their settings")
        case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION, SSL_R_UNSUPPORTED_PROTOCOL, SSL_R_NO_SHARED_CIPHER,
            SSL_R_NO_PROTOCOLS_AVAILABLE,
            SSL_R_NO_SUITABLE_KEY_SHARE:
            return TLSError(
                .noCommonParameters, operation: operation, reason: text,
                hint: "the two sides share no TLS version or cipher suite; compare their settings")
        case SSL_R_WRONG_VERSION_NUMBER, SSL_R_HTTP_REQUEST, SSL_R_HTTPS_PROXY_REQUEST,
            SSL_R_PACKET_LENGTH_TOO_LONG:
            return TLSError(
                .notTLS, operation: operation, reason: text,
                hint: "the peer does not speak TLS on this port; check address and port")
        case SSL_R_UNEXPECTED_EOF_WHILE_READING:
            return .lost(operation: operation, reason: text)
        default:
            return TLSError(.protocolViolation, operation: operation, reason: text, hint: "")
        }
    }

    static func noApplicationProtocol(operation: String, reason: String) -> TLSError {
        TLSError(
            .protocolRefused, operation: operation, reason: reason,
            hint: "the two sides share no application protocol (ALPN); the server must offer “h2”")
    }

    static func lost(operation: String, reason: String) -> TLSError {
        TLSError(
            .connectionLost, operation: operation, reason: reason,
            hint: "the peer or the network ended the connection")
    }
}
