/// Head of a request (RFC 9112, 2 to 5): request line and fields.
struct HTTPHead: Sendable, Equatable {
    /// Length of the body.
    enum Body: Sendable, Equatable {
        case length(Int)
        case chunked
    }

    private(set) var request: HTTPRequest
    private(set) var body = Body.length(0)

    static let mostFields = 100

    /// Reads the lines of a head, each of which ends with CR and LF. The empty line at its end is skipped.
    /// - Throws: the fault of a head that breaks the rules of RFC 9112, or has more than `mostFields` fields.
    init(_ bytes: ArraySlice<UInt8>) throws(HTTPFault) {
        var lines = bytes.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false).map { line in
            line.last == UInt8(ascii: "\r") ? line.dropLast() : line
        }
        while lines.last?.isEmpty == true { lines.removeLast() }
        guard let first = lines.first else { throw HTTPFault(400, "the request line is missing") }
        let (method, target, isOld) = try Self.requestLine(first)
        guard lines.count - 1 <= Self.mostFields else {
            throw HTTPFault(431, "a request must not have more than \(Self.mostFields) fields")
        }
        var fields: [HTTPRequest.Field] = []
        for line in lines.dropFirst() { fields.append(try Self.field(line)) }
        let (authority, path, query) = try Self.split(target)
        var segments: [String] = []
        for part in path.split(separator: "/") {
            guard let text = Self.decoded(part.utf8, plusIsSpace: false) else {
                throw HTTPFault(400, "the path has an escape that is no UTF-8 text")
            }
            segments.append(text)
        }
        let hosts = fields.filter { $0.name == "host" }
        guard hosts.count == 1 || (isOld && hosts.isEmpty) else {
            throw HTTPFault(400, "a request must have exactly one field `Host`")
        }
        request = HTTPRequest(
            method: method, path: String(path), segments: segments, query: try Self.parameters(query),
            fields: fields, host: authority ?? hosts.first?.value, isOld: isOld, persists: false,
            expectsContinue: false)
        request.persists = !isOld && !Self.elements("connection", in: fields).contains(Array("close".utf8))
        body = try Self.bodyLength(fields, isOld: isOld)
        if let expectation = request["expect"] {
            guard expectation.lowercased() == "100-continue" else {
                throw HTTPFault(417, "the only known expectation is 100-continue")
            }
            request.expectsContinue = !isOld && body != .length(0)
        }
    }

    private static func requestLine(
        _ line: ArraySlice<UInt8>
    ) throws(HTTPFault) -> (method: String, target: Substring, isOld: Bool) {
        let parts = line.split(separator: UInt8(ascii: " "), omittingEmptySubsequences: false)
        guard parts.count == 3, !parts[0].isEmpty, parts[0].allSatisfy(isTokenByte),
            !parts[1].isEmpty, parts[1].allSatisfy({ (0x21...0x7E).contains($0) })
        else { throw HTTPFault(400, "the request line is not METHOD TARGET VERSION") }
        let version = String(decoding: parts[2], as: UTF8.self)
        guard version == "HTTP/1.1" || version == "HTTP/1.0" else {
            guard version.hasPrefix("HTTP/"), version.utf8.count == 8 else {
                throw HTTPFault(400, "the request line is not METHOD TARGET VERSION")
            }
            throw HTTPFault(505, "this server knows HTTP/1.1 and 1.0 only")
        }
        return (
            String(decoding: parts[0], as: UTF8.self), Substring(decoding: parts[1], as: UTF8.self),
            version == "HTTP/1.0"
        )
    }

    /// Reads the line of a field, without its end.
    /// - Throws: the fault of a line that is not NAME: VALUE.
    static func field(_ line: ArraySlice<UInt8>) throws(HTTPFault) -> HTTPRequest.Field {
        // A line that begins with a space would continue the line before, which RFC 9112, 5.2 forbids.
        guard let colon = line.firstIndex(of: UInt8(ascii: ":")), colon > line.startIndex,
            line[..<colon].allSatisfy(isTokenByte)
        else { throw HTTPFault(400, "a field's line is not NAME: VALUE") }
        let value = trimmed(line[line.index(after: colon)...])
        guard value.allSatisfy(isValueByte) else { throw HTTPFault(400, "a field has a control character") }
        return HTTPRequest.Field(
            name: String(decoding: line[..<colon], as: UTF8.self).lowercased(),
            value: String(decoding: value, as: UTF8.self))
    }

    /// Splits a target in origin or absolute form (RFC 9112, 3.2).
    private static func split(
        _ target: Substring
    ) throws(HTTPFault) -> (authority: String?, path: Substring, query: Substring) {
        var target = target
        var authority: String?
        if target.lowercased().hasPrefix("http://") {
            target = target.dropFirst(7)
            let end = target.firstIndex { $0 == "/" || $0 == "?" } ?? target.endIndex
            authority = String(target[..<end])
            target = target[end...]
            if !target.hasPrefix("/") { target = "/" + target }
        }
        guard target.hasPrefix("/") else { throw HTTPFault(400, "the target must begin with a slash") }
        let path = target.prefix { $0 != "?" && $0 != "#" }
        let rest = target[path.endIndex...]
        let query = rest.hasPrefix("?") ? rest.dropFirst().prefix { $0 != "#" } : ""
        return (authority, path, query)
    }

    private static func parameters(_ query: Substring) throws(HTTPFault) -> [HTTPRequest.Field] {
        var parameters: [HTTPRequest.Field] = []
        for pair in query.split(separator: "&") {
            let name = pair.prefix { $0 != "=" }
            let value = pair[name.endIndex...].dropFirst()
            guard let name = decoded(name.utf8, plusIsSpace: true),
                let value = decoded(value.utf8, plusIsSpace: true)
            else { throw HTTPFault(400, "the query has an escape that is no UTF-8 text") }
            parameters.append(HTTPRequest.Field(name: name, value: value))
        }
        return parameters
    }

    /// Determines the length of the body (RFC 9112, 6.3).
    private static func bodyLength(_ fields: [HTTPRequest.Field], isOld: Bool) throws(HTTPFault) -> Body {
        let lengths = Set(elements("content-length", in: fields))
        let codings = elements("transfer-encoding", in: fields)
        if !codings.isEmpty {
            guard lengths.isEmpty, !isOld else {
                throw HTTPFault(400, "Transfer-Encoding needs HTTP/1.1, and excludes Content-Length")
            }
            guard codings.allSatisfy({ !$0.isEmpty && $0.allSatisfy(isTokenByte) }),
                codings.firstIndex(of: Array("chunked".utf8)) == codings.count - 1
            else { throw HTTPFault(400, "Transfer-Encoding is no list of codings with chunked at its end") }
            guard codings.count == 1 else {
                throw HTTPFault(501, "the only known transfer coding is chunked")
            }
            return .chunked
        }
        guard let digits = lengths.first else { return .length(0) }
        guard lengths.count == 1, (1...18).contains(digits.count),
            digits.allSatisfy({ (0x30...0x39).contains($0) })
        else { throw HTTPFault(400, "Content-Length is not a number of bytes") }
        return .length(digits.reduce(0) { $0 * 10 + Int($1 - 0x30) })
    }

    /// Returns the elements of a field that is a list, with ASCII letters in lower case. They are bytes, because
    /// strings that differ in their bytes can be equal: KELVIN SIGN is a K.
    private static func elements(_ name: String, in fields: [HTTPRequest.Field]) -> [[UInt8]] {
        fields.filter { $0.name == name }.flatMap { field in
            Array(field.value.utf8).split(separator: UInt8(ascii: ","), omittingEmptySubsequences: false)
                .map { trimmed($0).map { (0x41...0x5A).contains($0) ? $0 | 0x20 : $0 } }
        }
    }

    /// Returns the bytes without blanks at both ends.
    static func trimmed(_ bytes: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
        var bytes = bytes
        while let byte = bytes.first, isBlank(byte) { bytes.removeFirst() }
        while let byte = bytes.last, isBlank(byte) { bytes.removeLast() }
        return bytes
    }

    /// Resolves percent-encoding; nil for a broken escape, and for bytes that are no UTF-8.
    static func decoded(_ text: some Sequence<UInt8>, plusIsSpace: Bool) -> String? {
        var bytes: [UInt8] = []
        var iterator = text.makeIterator()
        while let byte = iterator.next() {
            switch byte {
            case UInt8(ascii: "%"):
                guard let high = iterator.next().flatMap(hexadecimalDigit),
                    let low = iterator.next().flatMap(hexadecimalDigit)
                else { return nil }
                bytes.append(high << 4 | low)
            case UInt8(ascii: "+") where plusIsSpace: bytes.append(UInt8(ascii: " "))
            default: bytes.append(byte)
            }
        }
        return String(validating: bytes, as: UTF8.self)
    }

    private static func isBlank(_ byte: UInt8) -> Bool {
        byte == UInt8(ascii: " ") || byte == UInt8(ascii: "\t")
    }

    /// Whether a byte may be part of a field's value (RFC 9110, 5.5): no control character but the tabulator.
    static func isValueByte(_ byte: UInt8) -> Bool {
        byte >= 0x20 && byte != 0x7F || byte == UInt8(ascii: "\t")
    }

    /// Whether a byte may be part of a method or of a field's name (RFC 9110, 5.6.2).
    private static func isTokenByte(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"):
            true
        default: "!#$%&'*+-.^_`|~".utf8.contains(byte)
        }
    }
}

/// Value of a hexadecimal digit; nil for another byte.
func hexadecimalDigit(_ byte: UInt8) -> UInt8? {
    switch byte {
    case UInt8(ascii: "0")...UInt8(ascii: "9"): byte - UInt8(ascii: "0")
    case UInt8(ascii: "a")...UInt8(ascii: "f"): byte - UInt8(ascii: "a") + 10
    case UInt8(ascii: "A")...UInt8(ascii: "F"): byte - UInt8(ascii: "A") + 10
    default: nil
    }
}
