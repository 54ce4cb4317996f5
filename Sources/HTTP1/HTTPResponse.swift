import Glibc

/// An answer of the HTTP server.
package struct HTTPResponse: Sendable, Equatable {
    package var status: Int
    /// Fields beside the fields that all answers have, as `Content-Length`.
    package var fields: [(name: String, value: String)] = []
    package var body: [UInt8] = []
    /// Whether the connection ends with this answer.
    package var closes = false

    package init(status: Int, type: String? = nil, body: [UInt8] = []) {
        self.status = status
        self.body = body
        if let type { fields.append(("Content-Type", type)) }
    }

    package static func == (left: HTTPResponse, right: HTTPResponse) -> Bool {
        left.status == right.status && left.body == right.body && left.closes == right.closes
            && left.fields.elementsEqual(right.fields, by: ==)
    }

    /// Value of a field; nil when it is absent.
    package subscript(_ name: String) -> String? { fields.first { $0.name == name }?.value }

    package func with(_ name: String, _ value: String) -> HTTPResponse {
        var response = self
        response.fields.append((name, value))
        return response
    }

    /// Length of the body as the head announces it.
    enum Framing: Equatable {
        case length(Int)
        case chunked
        /// The end of the connection ends the body, for HTTP/1.0.
        case untilClose
        /// The answer has no body by its status.
        case none
    }

    /// Returns the bytes of the head.
    /// - Parameter seconds: time of the answer, in seconds since 1970.
    func head(_ framing: Framing, persists: Bool, seconds: Int) -> [UInt8] {
        var head = "HTTP/1.1 \(status) \(Self.phrases[status] ?? "Status")\r\nDate: \(Self.date(seconds))\r\n"
        switch framing {
        case .length(let length): head += "Content-Length: \(length)\r\n"
        case .chunked: head += "Transfer-Encoding: chunked\r\n"
        case .untilClose, .none: break
        }
        for field in fields { head += "\(field.name): \(field.value)\r\n" }
        if !persists { head += "Connection: close\r\n" }
        return Array((head + "\r\n").utf8)
    }

    /// Returns a time in the form of the field `Date` (RFC 9110, 5.6.7).
    package static func date(_ seconds: Int) -> String {
        var time = time_t(seconds)
        var parts = tm()
        gmtime_r(&time, &parts)
        let days = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"]
        let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
        func two(_ number: Int32) -> String { number < 10 ? "0\(number)" : "\(number)" }
        return "\(days[Int(parts.tm_wday) % 7]), \(two(parts.tm_mday)) \(months[Int(parts.tm_mon) % 12]) "
            + "\(1900 + parts.tm_year) \(two(parts.tm_hour)):\(two(parts.tm_min)):\(two(parts.tm_sec)) GMT"
    }

    private static let phrases = [
        200: "OK", 201: "Created", 204: "No Content", 303: "See Other", 304: "Not Modified",
        400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found",
        405: "Method Not Allowed", 408: "Request Timeout", 409: "Conflict", 413: "Content Too Large",
        415: "Unsupported Media Type", 417: "Expectation Failed", 421: "Misdirected Request",
        422: "Unprocessable Content", 429: "Too Many Requests", 431: "Request Header Fields Too Large",
        500: "Internal Server Error", 501: "Not Implemented", 503: "Service Unavailable",
        505: "HTTP Version Not Supported",
    ]
}
