/// APNs' reason for ending a connection (the debug data of a GOAWAY), for people and for decisions: JSON with
/// a reason of the table that answers have too, or plain text.
///
/// The text is printable ASCII of bounded length. A word that is as long as a token isn't in it: a server could say back
/// what it was sent.
public struct GoAwayReason: Sendable, Equatable, CustomStringConvertible {
    /// The party that the reason is held against.
    public enum Scope: Sendable, Equatable {
        /// The certificate or the provider token: no connection with it would be of use.
        case credential
        /// A topic: other topics of the credential go on.
        case topic
        /// The provider token that was sent has expired: a new one is made.
        case providerToken
        /// This connection alone.
        case connection
    }

    /// ``Reason/absent`` without debug data; ``Reason/unknown`` where it isn't a reason of the table.
    public let reason: Reason
    /// The reason's name, or what there is to read; empty without debug data.
    public let text: String

    /// Longer texts are cut, in bytes; the longest that was seen in the field has 51.
    public static let maximumText = 160
    /// Letters and digits in a row, from which on a word is left out. Device tokens have 64, reasons at most 27.
    static let longestWord = 31

    /// Reads what there is to read; any bytes are welcome.
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

    public init(_ debugData: [UInt8]) {
        self = debugData.withUnsafeBytes { GoAwayReason($0) }
    }

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

    /// For a metric: of a fixed set of values, whatever a server says.
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
                // The part that was kept goes as well.
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
