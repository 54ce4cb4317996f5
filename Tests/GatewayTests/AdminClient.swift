import Foundation
import TestSupport

/// A blocking client of the admin endpoint: the test decides each byte that it sends.
final class AdminClient {
    struct Answer {
        var status: Int
        var fields: [String: String]
        var body: String

        /// Announced length of the body.
        var length: Int { fields["content-length"].flatMap { Int($0) } ?? 0 }

        var json: [String: Any] {
            (try? JSONSerialization.jsonObject(with: Data(body.utf8)) as? [String: Any]) ?? [:]
        }
        var reasons: [String] { json["reasons"] as? [String] ?? [] }
    }

    private var descriptor: Int32
    /// End of the last answer that was not whole; empty before.
    private(set) var ending = ""

    init(_ port: UInt16) throws {
        descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { throw POSIXError(.EMFILE) }
        var patience = timeval(tv_sec: 60, tv_usec: 0)
        setsockopt(
            descriptor, SOL_SOCKET, SO_RCVTIMEO, &patience, socklen_t(MemoryLayout<timeval>.size))
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr = in_addr(s_addr: UInt32(0x7f00_0001).bigEndian)
        let connected = withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
        guard connected == 0 else {
            let code = errno
            close(descriptor)
            throw POSIXError(POSIXErrorCode(rawValue: code) ?? .ECONNREFUSED)
        }
    }

    deinit { leave() }

    /// Ends this side of the connection; answers still arrive.
    func finishSending() { shutdown(descriptor, Int32(SHUT_WR)) }

    /// Closes the connection.
    func leave() {
        if descriptor >= 0 { close(descriptor) }
        descriptor = -1
    }

    /// Sends a text. Returns false when the server has closed the connection.
    @discardableResult
    func send(_ text: String) -> Bool {
        let bytes = Array(text.utf8)
        var sent = 0
        while sent < bytes.count {
            let count = bytes.withUnsafeBytes { buffer in
                Foundation.send(
                    descriptor, buffer.baseAddress! + sent, bytes.count - sent, Int32(MSG_NOSIGNAL))
            }
            if count <= 0 { return false }
            sent += count
        }
        return true
    }

    /// Returns all bytes until the server closes the connection.
    func receiveAll(atMost most: Int = .max) -> String {
        var all: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while all.count < most {
            let count = recv(descriptor, &buffer, buffer.count, 0)
            if count <= 0 { break }
            all += buffer[..<count]
        }
        return String(decoding: all, as: UTF8.self)
    }

    /// Reads an answer, as long as its head says; nil when the server sent none.
    func answer() -> Answer? {
        var all: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while true {
            if let answer = Self.answer(all), answer.body.utf8.count >= answer.length { return answer }
            let count = recv(descriptor, &buffer, buffer.count, 0)
            if count < 0, errno == EINTR { continue }
            guard count > 0 else {
                ending = count == 0 ? "the server closed the connection" : String(cString: strerror(errno))
                return Self.answer(all)
            }
            all += buffer[..<count]
        }
    }

    private static func answer(_ bytes: [UInt8]) -> Answer? {
        let text = String(decoding: bytes, as: UTF8.self)
        guard let end = text.range(of: "\r\n\r\n") else { return nil }
        let lines = text[..<end.lowerBound].components(separatedBy: "\r\n")
        let status = lines[0].split(separator: " ")
        guard status.count > 1, let code = Int(status[1]) else { return nil }
        var fields: [String: String] = [:]
        for line in lines.dropFirst() {
            let parts = line.split(separator: ":", maxSplits: 1)
            fields[parts[0].lowercased()] = parts[1].trimmingCharacters(in: .whitespaces)
        }
        return Answer(status: code, fields: fields, body: String(text[end.upperBound...]))
    }

    static func request(_ method: String, _ target: String) -> String {
        "\(method) \(target) HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n"
    }

    static func get(_ target: String, _ port: UInt16, method: String = "GET") throws -> Answer {
        let client = try AdminClient(port)
        client.send(request(method, target))
        guard let answer = client.answer() else { throw Nothing(target: target, ending: client.ending) }
        return answer
    }

    struct Nothing: Error {
        var target: String
        var ending: String
    }
}
