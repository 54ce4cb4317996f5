/// APNs' reason for ending a connection: the debug data of a GOAWAY. The data is JSON with a reason of the same table
/// as answers, or plain text. The text of an unknown one is a ``ReasonText``.
public struct GoAwayReason: Sendable, Equatable, CustomStringConvertible {
    /// Party to which the reason applies.
    public enum Scope: Sendable, Equatable {
        /// The certificate or the provider token: a new connection with it would be useless.
        case credential
        /// A topic: other topics of the credential continue.
        case topic
        /// The provider token has expired: a new token is made.
        case providerToken
        /// This connection alone.
        case connection
    }

    /// Parsed reason: ``Reason/absent`` without debug data; ``Reason/unknown`` where it isn't a reason of the table.
    public let reason: Reason
    /// Name of the reason; empty without debug data.
    public let text: String

    /// Parses debug data; any bytes are valid input.
    public init(_ debugData: UnsafeRawBufferPointer) {
        let body = ReasonBody(debugData)
        switch body.reason {
        case .absent:
            reason = debugData.isEmpty ? .absent : .unknown
            text = debugData.isEmpty ? "" : "\(ReasonText(debugData))"
        case .unknown:
            reason = .unknown
            text = "\(body.unknownReason)"
        default:
            reason = body.reason
            text = "\(body.reason.name)"
        }
    }

    /// Parses debug data; any bytes are valid input.
    public init(_ debugData: [UInt8]) {
        self = debugData.withUnsafeBytes { GoAwayReason($0) }
    }

    /// Party to which the reason applies; ``Scope/connection`` for an absent or unknown reason.
    public var scope: Scope {
        switch reason {
        case .badCertificate, .badCertificateEnvironment, .invalidProviderToken, .missingProviderToken,
            .badEnvironmentKeyIdInToken:
            .credential
        case .expiredProviderToken: .providerToken
        case .topicDisallowed, .topicMismatch, .featureNotEnabled: .topic
        default: .connection
        }
    }

    public var description: String { text }

    /// Returns a label for a metric, from a fixed set of values for any server.
    public static func label(_ reason: Reason) -> String {
        switch reason {
        case .absent: "none"
        case .unknown: "other"
        default: "\(reason.name)"
        }
    }
}
