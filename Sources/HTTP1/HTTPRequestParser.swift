/// Cuts the bytes of a connection into requests. Pure: bytes in, steps out. All sizes are bounded.
///
/// Bytes that a proxy may cut in another way are faults, because another client's request could hide in them
/// (request smuggling).
package struct HTTPRequestParser {
    package struct Limits: Sendable {
        /// Bytes of a request line with its fields.
        package var head = 16 << 10
        /// Bytes of a body, after its chunks are joined.
        package var body = 1 << 20

        package init() {}
    }

    enum Step: Equatable {
        /// Further bytes are needed.
        case wait
        /// A head is complete, its body is not. Appears once for each request.
        case head(HTTPRequest)
        case request(HTTPRequest)
    }

    private enum State {
        case head
        case body(HTTPRequest, remaining: Int)
        case chunk(HTTPRequest)
        case chunkData(HTTPRequest, remaining: Int)
        case trailers(HTTPRequest)
    }

    let limits: Limits
    private var state = State.head
    private var bytes: [UInt8] = []
    /// Start of the bytes that have not been used.
    private var start = 0
    /// Number of bytes behind `start` that were searched for the end of the head.
    private var searched = 0
    /// Bytes of the trailers so far.
    private var trailers = 0
    /// Body of a chunked request so far.
    private var body: [UInt8] = []

    init(limits: Limits = Limits()) { self.limits = limits }

    /// Whether bytes of an unfinished request have arrived.
    var isAmid: Bool {
        if case .head = state { return start < bytes.count }
        return true
    }

    /// Bytes that wait for their use.
    var waiting: Int { bytes.count - start }

    mutating func append(_ more: some Sequence<UInt8>) { bytes.append(contentsOf: more) }

    /// Returns the next step. After a fault nothing more can be read from the connection.
    mutating func next() throws(HTTPFault) -> Step {
        while true {
            switch state {
            case .head:
                guard let head = try takeHead() else { return .wait }
                body = []
                trailers = 0
                switch head.body {
                case .length(0): return .request(head.request)
                case .length(let length):
                    guard length <= limits.body else { throw tooLarge }
                    state = .body(head.request, remaining: length)
                case .chunked: state = .chunk(head.request)
                }
                return .head(head.request)
            case .body(var request, let length):
                guard waiting >= length else { return .wait }
                request.body = Array(bytes[start..<start + length])
                use(length)
                state = .head
                return .request(request)
            case .chunk(let request):
                guard let line = try takeLine(limit: 256) else { return .wait }
                let size = try Self.chunkSize(line)
                guard size <= limits.body - body.count else { throw tooLarge }
                state = size == 0 ? .trailers(request) : .chunkData(request, remaining: size)
            case .chunkData(let request, let size):
                guard waiting >= size + 2 else { return .wait }
                guard hasLineEnd(at: start + size) else {
                    throw HTTPFault(400, "a chunk does not end where its size says")
                }
                body += bytes[start..<start + size]
                use(size + 2)
                state = .chunk(request)
            case .trailers(var request):
                guard let line = try takeLine(limit: limits.head - trailers) else { return .wait }
                trailers += line.count + 2
                guard line.isEmpty else {
                    _ = try HTTPHead.field(line[...])
                    continue
                }
                request.body = body
                body = []
                state = .head
                return .request(request)
            }
        }
    }

    private var tooLarge: HTTPFault { HTTPFault(413, "a body must not exceed \(limits.body) bytes") }

    private mutating func takeHead() throws(HTTPFault) -> HTTPHead? {
        // Empty lines before a request are skipped (RFC 9112, 2.2).
        while hasLineEnd(at: start) { use(2) }
        guard let end = try endOfHead() else {
            if waiting > limits.head { throw tooLong }
            return nil
        }
        guard end - start <= limits.head else { throw tooLong }
        let head = try HTTPHead(bytes[start..<end])
        use(end - start)
        return head
    }

    private var tooLong: HTTPFault {
        HTTPFault(431, "a request's line and fields must not exceed \(limits.head) bytes")
    }

    /// Returns the index behind the empty line that ends a head; nil when it has not arrived.
    private mutating func endOfHead() throws(HTTPFault) -> Int? {
        for index in start + searched..<bytes.count where bytes[index] == UInt8(ascii: "\n") {
            try checkLineEnd(at: index - 1)
            if index >= start + 3, bytes[index - 2] == UInt8(ascii: "\n") { return index + 1 }
        }
        searched = waiting
        return nil
    }

    /// Returns the bytes before the next end of a line; nil when it has not arrived.
    private mutating func takeLine(limit: Int) throws(HTTPFault) -> [UInt8]? {
        guard let end = bytes[start...].firstIndex(of: UInt8(ascii: "\n")) else {
            if waiting > limit { throw HTTPFault(400, "a line of the body's chunks is too long") }
            return nil
        }
        guard end - start <= limit else { throw HTTPFault(400, "a line of the body's chunks is too long") }
        try checkLineEnd(at: end - 1)
        let line = Array(bytes[start..<end - 1])
        use(end + 1 - start)
        return line
    }

    /// Whether a line ends at an index, by CR and LF.
    private func hasLineEnd(at index: Int) -> Bool {
        index >= start && index + 1 < bytes.count && bytes[index] == UInt8(ascii: "\r")
            && bytes[index + 1] == UInt8(ascii: "\n")
    }

    /// Refuses LF alone. RFC 9112, 2.2 lets proxies choose whether such a line ends.
    private func checkLineEnd(at index: Int) throws(HTTPFault) {
        guard hasLineEnd(at: index) else { throw HTTPFault(400, "a line does not end with CR and LF") }
    }

    /// Reads the size before a chunk (RFC 9112, 7.1). Extensions behind a semicolon have no meaning.
    private static func chunkSize(_ line: [UInt8]) throws(HTTPFault) -> Int {
        let digits = line.prefix { hexadecimalDigit($0) != nil }
        let rest = line[digits.endIndex...]
        guard (1...8).contains(digits.count),
            rest.isEmpty || HTTPHead.trimmed(rest).first == UInt8(ascii: ";"),
            rest.allSatisfy(HTTPHead.isValueByte)
        else { throw HTTPFault(400, "a chunk's line is neither SIZE nor SIZE;EXTENSIONS") }
        return digits.reduce(0) { $0 << 4 | Int(hexadecimalDigit($1) ?? 0) }
    }

    private mutating func use(_ count: Int) {
        start += count
        searched = 0
        if start == bytes.count {
            bytes.removeAll(keepingCapacity: bytes.count <= 64 << 10)
            start = 0
        } else if start > 64 << 10 {
            bytes.removeFirst(start)
            start = 0
        }
    }
}
