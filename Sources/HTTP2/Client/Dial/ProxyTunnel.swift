import EventLoop

/// The client's side of a CONNECT to a proxy, as a state machine: it has bytes to send and receives the proxy's bytes.
struct ProxyTunnel {
    enum Progress: Equatable {
        case needsMore
        /// The connection belongs to the target from here on.
        case established
        case failed(ProxyError)
    }

    private let proxy: String
    private let target: String
    private let request: [UInt8]
    private var sent = 0
    private var parser = ProxyResponseParser()

    init(proxy: ProxyConfiguration, targetHost: String, targetPort: UInt16) throws(ProxyError) {
        self.proxy = proxy.description
        target = ProxyEndpoint.text(host: targetHost, port: targetPort)
        let isHostValid =
            !targetHost.isEmpty
            && targetHost.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F && $0 != UInt8(ascii: "/") }
        let user = proxy.user.map { Array($0.utf8) }
        let password = Array((proxy.password ?? "").utf8)
        // RFC 7617 §2 forbids control characters in either, and the first colon ends the user.
        let areCredentialsValid = ((user ?? []) + password).allSatisfy { $0 >= 0x20 && $0 != 0x7F }
        guard isHostValid, areCredentialsValid, user?.contains(UInt8(ascii: ":")) != true else {
            throw ProxyError(kind: .configuration, proxy: self.proxy, target: target)
        }
        var text = Array("CONNECT \(target) HTTP/1.1\r\nHost: \(target)\r\n".utf8)
        if let user {
            text += Array("Proxy-Authorization: Basic ".utf8)
            text += Self.base64(user + [UInt8(ascii: ":")] + password)
            text += [13, 10]
        }
        request = text + [13, 10]
    }

    /// Bytes that are still to be sent.
    var unsent: ArraySlice<UInt8> { request[sent...] }

    mutating func didSend(_ count: Int) {
        sent += count
    }

    /// Receives bytes from the proxy.
    mutating func receive(_ bytes: UnsafeRawBufferPointer) -> Progress {
        switch parser.receive(bytes) {
        case .needsMore: .needsMore
        case .malformed: .failed(error(.notHTTP))
        case .tooLong: .failed(error(.headerTooLong))
        case .complete(let status, let rest):
            switch status {
            case 200..<300 where rest > 0: .failed(error(.unexpectedBytes))
            case 200..<300: .established
            case 407: .failed(error(.authenticationRequired))
            default: .failed(error(.refused(status: status)))
            }
        }
    }

    func error(_ kind: ProxyError.Kind) -> ProxyError {
        ProxyError(kind: kind, proxy: proxy, target: target)
    }

    /// Returns Base64 with padding (RFC 4648 §4).
    static func base64(_ bytes: [UInt8]) -> [UInt8] {
        let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)
        var text: [UInt8] = []
        for start in stride(from: 0, to: bytes.count, by: 3) {
            let group = bytes[start..<min(start + 3, bytes.count)]
            var word: UInt32 = 0
            for index in 0..<3 { word = word << 8 | UInt32(index < group.count ? group[start + index] : 0) }
            for index in 0..<4 {
                let padded = index > group.count
                text.append(
                    padded ? UInt8(ascii: "=") : alphabet[Int(word >> UInt32(18 - 6 * index)) & 63])
            }
        }
        return text
    }
}

/// Reads the header block of a response to CONNECT, in pieces of any size. A success has no content (RFC 9112 §4,
/// §6.3). Interim answers (1xx) are skipped. A line may end with LF alone (RFC 9112 §2.2).
struct ProxyResponseParser {
    /// Highest number of bytes of status line and headers, interim answers included.
    static let maximumLength = 8192

    enum Result: Equatable {
        case needsMore
        /// The final answer's header has ended; `rest` bytes of the last piece follow it.
        case complete(status: Int, rest: Int)
        case malformed
        case tooLong
    }

    private enum Place {
        case statusLine
        case header
        case over(Result)
    }
    private var place = Place.statusLine
    /// Bytes of the line so far, of which only the status line's beginning matters.
    private var line: [UInt8] = []
    private var length = 0
    private var status = 0

    mutating func receive(_ bytes: UnsafeRawBufferPointer) -> Result {
        if case .over(let result) = place { return result }
        for (offset, byte) in bytes.enumerated() {
            length += 1
            guard length <= Self.maximumLength else { return finish(.tooLong) }
            if byte != UInt8(ascii: "\n") {
                line.append(byte)
                // A response that is not HTTP is noticed at once, though its line may never end.
                if case .statusLine = place, !Self.beginsStatusLine(line) { return finish(.malformed) }
                continue
            }
            if line.last == UInt8(ascii: "\r") { line.removeLast() }
            defer { line.removeAll(keepingCapacity: true) }
            if case .statusLine = place {
                guard let status = Self.status(line) else { return finish(.malformed) }
                self.status = status
                place = .header
            } else if line.isEmpty {
                guard status < 200, status != 101 else {
                    return finish(.complete(status: status, rest: bytes.count - offset - 1))
                }
                place = .statusLine
            } else if !line.contains(UInt8(ascii: ":")), line[0] != 0x20, line[0] != 0x09 {
                return finish(.malformed)
            }
        }
        return .needsMore
    }

    private mutating func finish(_ result: Result) -> Result {
        place = .over(result)
        return result
    }

    private static let version = Array("HTTP/1.".utf8)

    private static func beginsStatusLine(_ line: [UInt8]) -> Bool {
        line.count > version.count || version.starts(with: line)
    }

    /// `HTTP/1.x SP 3DIGIT [SP reason]`
    private static func status(_ line: [UInt8]) -> Int? {
        func digit(_ index: Int) -> Int? {
            let value = Int(line[index]) - 0x30
            return (0...9).contains(value) ? value : nil
        }
        guard line.count >= 12, line.starts(with: version), digit(7) != nil, line[8] == 0x20,
            let hundreds = digit(9), let tens = digit(10), let ones = digit(11),
            line.count == 12 || line[12] == 0x20, (1...5).contains(hundreds)
        else { return nil }
        return hundreds * 100 + tens * 10 + ones
    }
}
