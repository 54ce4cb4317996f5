/// Cause for which a client can't talk to a broker, recognised in librdkafka's text.
public enum ConnectionFault: Sendable, Equatable, CaseIterable {
    /// The client speaks TLS, and the broker's port does not.
    case brokerWithoutTLS
    /// The port ends the client's conversation: it speaks TLS, and the client does not, or no broker of Kafka.
    case brokerWithTLS
    /// The broker's certificate leads to no authority that the client trusts.
    case unknownAuthority
    /// The broker's certificate has expired, or is not valid yet.
    case certificateDate
    /// The broker's certificate is for another name.
    case hostname
    /// The broker demands a client certificate, or refuses the one presented.
    case clientCertificate
    /// The broker refuses the user, the password or the token.
    case authentication
    /// The broker doesn't offer the mechanism of SASL.
    case mechanism
    /// Nothing listens at the address.
    case refused
    /// The name has no address.
    case unknownHost
    /// The address doesn't answer.
    case unanswered

    /// Recognises the cause in a reason that librdkafka reports; nil for any other text.
    public init?(reason: String) {
        let text = reason.lowercased()
        func has(_ parts: String...) -> Bool { parts.contains { text.contains($0) } }
        switch true {
        case has("certificate verify failed") && has("expired", "not yet valid"): self = .certificateDate
        case has("certificate verify failed") && has("hostname mismatch", "ip address mismatch"):
            self = .hostname
        case has("certificate verify failed"): self = .unknownAuthority
        case has("alert bad certificate", "certificate required", "alert certificate", "alert unknown ca"):
            self = .clientCertificate
        case has("plaintext broker listener", "wrong version number", "packet length too long"):
            self = .brokerWithoutTLS
        case has("connecting to a ssl listener"), Self.isOfTLS(text): self = .brokerWithTLS
        // librdkafka doesn't always ask its question. A broker ends a conversation that it doesn't understand.
        case has("disconnected", "connection reset", "unexpected eof") && has("in state ssl_handshake"):
            self = .brokerWithoutTLS
        case has("disconnected", "connection reset") && has("in state apiversion_query"):
            self = .brokerWithTLS
        case has("unsupported sasl mechanism", "mechanism not supported", "mechanism handshake failed"):
            self = .mechanism
        case has("sasl authentication error", "authentication failed", "authentication failure"):
            self = .authentication
        case has("connection refused"): self = .refused
        case has("failed to resolve", "name or service not known"): self = .unknownHost
        case has("connection setup timed out", "connection timed out", "no route to host"): self = .unanswered
        default: return nil
        }
    }

    /// Whether librdkafka took a TLS record for the size of a response: an alert is record 21 of version 3.
    private static func isOfTLS(_ text: String) -> Bool {
        guard let range = text.firstRange(of: "invalid response size ") else { return false }
        let digits = text[range.upperBound...].prefix { $0 == "-" || $0.isNumber }
        guard let size = Int64(digits) else { return false }
        return (size >> 24, size >> 16 & 0xff) == (21, 3) || (size >> 24, size >> 16 & 0xff) == (22, 3)
    }

    /// The cause and the remedy.
    public var advice: String {
        switch self {
        case .brokerWithoutTLS:
            "the broker's port doesn't speak TLS: set security.protocol to PLAINTEXT or SASL_PLAINTEXT, or name the broker's TLS port"
        case .brokerWithTLS:
            "the port speaks TLS, or no Kafka broker answers there: set security.protocol to SSL or SASL_SSL, or name the broker's port without TLS"
        case .unknownAuthority:
            "the authority of the broker's certificate isn't trusted: name it in ssl.ca.location"
        case .certificateDate:
            "the broker's certificate is out of date: renew it, or correct this machine's clock"
        case .hostname:
            "the broker's certificate is for another name: name the brokers as their certificates do"
        case .clientCertificate:
            "the broker refuses this client's certificate, or demands one: set ssl.certificate.location and ssl.key.location"
        case .authentication:
            "the broker refuses the user: check sasl.username, sasl.password and sasl.mechanism"
        case .mechanism: "the broker doesn't offer this mechanism: set sasl.mechanism to one that it offers"
        case .refused: "nothing listens there: check address and port, and that the broker runs"
        case .unknownHost: "the name has no address: check the name and this machine's resolver"
        case .unanswered: "the address doesn't answer: check address, port and firewalls"
        }
    }
}
