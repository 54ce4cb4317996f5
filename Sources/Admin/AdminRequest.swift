import Foundation

/// A request's head, the only part that the endpoint reads.
public struct AdminRequest: Sendable, Equatable {
    public var method: String
    /// Path without the query.
    public var path: String
    /// Decoded values by name.
    public var query: [String: String] = [:]
    /// Value of the field `Host`; nil when there is none.
    public var host: String?

    public init(
        method: String = "GET", path: String, query: [String: String] = [:], host: String? = nil
    ) {
        self.method = method
        self.path = path
        self.query = query
        self.host = host
    }

    /// Most bytes of request line and header fields.
    static let longestHead = 8192

    /// Returns the end of the head, behind its empty line; nil when the head isn't complete.
    static func headEnd(_ bytes: [UInt8]) -> Int? {
        var lineStart = 0
        for (index, byte) in bytes.enumerated() where byte == UInt8(ascii: "\n") {
            let length = index - lineStart
            if length == 0 || (length == 1 && bytes[lineStart] == UInt8(ascii: "\r")) { return index + 1 }
            lineStart = index + 1
        }
        return nil
    }

    /// Reads the request line (RFC 9112, 3) and the field `Host`. Nil when the head isn't valid or has several hosts.
    init?(head: some Collection<UInt8>) {
        let line = head.prefix { $0 != UInt8(ascii: "\n") && $0 != UInt8(ascii: "\r") }
        guard let text = String(validating: line, as: UTF8.self) else { return nil }
        for field in head.split(separator: UInt8(ascii: "\n")).dropFirst() {
            guard let value = Self.host(field) else { continue }
            guard host == nil else { return nil }
            host = value
        }
        let parts = text.split(separator: " ", omittingEmptySubsequences: false)
        guard parts.count == 3, !parts[0].isEmpty, parts[1].hasPrefix("/"),
            parts[2] == "HTTP/1.1" || parts[2] == "HTTP/1.0"
        else { return nil }
        method = String(parts[0])
        let target = parts[1].split(separator: "?", maxSplits: 1, omittingEmptySubsequences: false)
        path = String(target[0])
        guard target.count > 1 else { return }
        for pair in target[1].split(separator: "&") {
            let pair = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            guard let name = String(pair[0]).removingPercentEncoding,
                let value = String(pair.count > 1 ? pair[1] : "").removingPercentEncoding,
                query.updateValue(value, forKey: name) == nil
            else { return nil }
        }
    }

    /// Returns the value of a line with the field `Host`; nil for another line. Bytes that are no text make a host that
    /// matches nothing.
    private static func host(_ line: some Collection<UInt8>) -> String? {
        guard let colon = line.firstIndex(of: UInt8(ascii: ":")),
            String(decoding: line[..<colon], as: UTF8.self).lowercased() == "host"
        else { return nil }
        return String(decoding: line[line.index(after: colon)...], as: UTF8.self)
            .trimmingCharacters(in: CharacterSet(charactersIn: " \t\r"))
    }
}
