/// APNs' reason for ending a connection: the debug data of a GOAWAY. The data is JSON with a reason of the same table
/// as answers, or plain text.
///
/// The text is printable ASCII of bounded length. It contains no word as long as a token, because a server could repeat
/// data that it was sent.
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
    /// Name of the reason, or the printable debug data; empty without debug data.
    public let text: String

    /// Most bytes of the text before it is cut; the longest text seen in the field has 51.
    public static let maximumText = 160
    /// Most letters and digits in a row; a longer word is left out. Device tokens have 64, reasons at most 27.
    static let longestWord = 31

    /// Parses debug data; any bytes are valid input.
    public init(_ debugData: UnsafeRawBufferPointer) {
        let body = ReasonBody(debugData)
        switch body.reason {
        case .absent:
            reason = debugData.isEmpty ? .absent : .unknown
            text = Self.printable(debugData)
        case .unknown:
            reason = .unknown
            text = Self.printable(debugData)
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

    private static func printable(_ bytes: UnsafeRawBufferPointer) -> String {
        var text: [UInt8] = []
        var word = 0
        for byte in bytes.prefix(maximumText) {
            let isPart =
                isLetter(byte) || isDigit(byte) || byte == UInt8(ascii: "+") || byte == UInt8(ascii: "/")
                || byte == UInt8(ascii: "-") || byte == UInt8(ascii: "_") || byte == UInt8(ascii: "=")
            word = isPart ? word + 1 : 0
            if word > longestWord {
                // The already kept part of the word is removed as well.
                if word == longestWord + 1 {
                    text.removeLast(longestWord)
                    text += Array("[...]".utf8)
                }
            } else {
                text.append(byte >= 0x20 && byte < 0x7f ? byte : UInt8(ascii: "?"))
            }
        }
        if bytes.count > maximumText { text += Array("...".utf8) }
        return String(decoding: text, as: UTF8.self)
    }
}
