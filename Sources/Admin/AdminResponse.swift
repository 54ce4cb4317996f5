import Foundation
import HTTP1

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

    /// The answer as the server sends it.
    var response: HTTPResponse {
        var response = HTTPResponse(status: status, type: contentType, body: Array(body))
        response.fields += [("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff")]
        response.fields += fields
        return response
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
