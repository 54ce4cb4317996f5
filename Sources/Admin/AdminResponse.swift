import Foundation

/// An answer of the admin endpoint.
public struct AdminResponse: Sendable {
    /// HTTP status.
    public var status: Int
    /// Value of `Content-Type`.
    public var contentType: String
    public var body: Data
    /// Header fields beside the fields that all answers have.
    public var fields: [(name: String, value: String)] = []

    public init(status: Int, contentType: String, body: Data) {
        self.status = status
        self.contentType = contentType
        self.body = body
    }

    /// Returns a JSON document with its keys in order.
    public static func json(_ status: Int = 200, _ document: [String: Any]) -> AdminResponse {
        AdminResponse(
            status: status, contentType: "application/json; charset=utf-8",
            body: Data((JSONText.of(document) + "\n").utf8))
    }

    static func error(_ status: Int, _ text: String) -> AdminResponse { json(status, ["error": text]) }

    private static let phrases = [
        200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed",
        421: "Misdirected Request", 429: "Too Many Requests", 431: "Request Header Fields Too Large",
        500: "Internal Server Error",
        503: "Service Unavailable",
    ]

    /// Returns the bytes to send. Each connection has a single answer.
    func encoded() -> Data {
        var head = "HTTP/1.1 \(status) \(Self.phrases[status] ?? "Status")\r\n"
        head += "Content-Type: \(contentType)\r\nContent-Length: \(body.count)\r\n"
        head += "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n"
        for field in fields { head += "\(field.name): \(field.value)\r\n" }
        return Data((head + "\r\n").utf8) + body
    }
}

/// JSON as all commands and the endpoint write it: on one line, keys in order.
public enum JSONText {
    /// Returns the document as text; `{}` when encoding fails.
    public static func of(_ document: [String: Any]) -> String {
        let data = try? JSONSerialization.data(
            withJSONObject: document, options: [.sortedKeys, .withoutEscapingSlashes])
        return data.map { String(decoding: $0, as: UTF8.self) } ?? "{}"
    }
}
