import Foundation
import HTTP1

extension HTTPResponse {
    /// Fields that all answers of the API have.
    private static let security: [(String, String)] = [
        ("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", "no-referrer"), ("Cross-Origin-Resource-Policy", "same-origin"),
        ("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"),
    ]

    private struct ErrorDocument: Encodable {
        var error: String
    }

    /// Returns a value as JSON.
    static func json(_ status: Int = 200, _ value: some Encodable) -> HTTPResponse {
        guard let body = try? JSONText.bytes(value) else {
            return error(500, "the answer can't be written as JSON")
        }
        var response = HTTPResponse(status: status, type: "application/json", body: body)
        response.fields += security
        return response
    }

    static func error(_ status: Int, _ text: String) -> HTTPResponse {
        json(status, ErrorDocument(error: text))
    }
}

/// JSON as the API writes it: members in order, on one line.
enum JSONText {
    static func bytes(_ value: some Encodable) throws -> [UInt8] {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        return Array(try encoder.encode(value))
    }
}
