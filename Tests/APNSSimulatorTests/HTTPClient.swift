import Foundation
import Glibc

/// A client that sends bytes as they are given, and reads answers of HTTP/1.1.
final class HTTPClient {
    struct Answer {
        var status: Int
        /// Lower-case names.
        var fields: [String: String]
        var body: [UInt8]

        var text: String { String(decoding: body, as: UTF8.self) }

        /// Body as a JSON object; empty for another body.
        var json: [String: Any] {
            (try? JSONSerialization.jsonObject(with: Data(body)) as? [String: Any]) ?? [:]
        }

        var error: String? { json["error"] as? String }
    }

    struct Failure: Error, CustomStringConvertible {
        var description: String
    }

    private let descriptor: Int32
    private var buffer: [UInt8] = []
    let port: UInt16
    private(set) var sawEnd = false

    /// Connects to the loopback address.
    /// - Parameters:
    ///   - receiveBuffer: size of the socket's receive buffer in bytes; nil for the system's default.
    init(port: UInt16, receiveBuffer: Int32? = nil) throws {
        self.port = port
        descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        if var receiveBuffer { setsockopt(descriptor, SOL_SOCKET, SO_RCVBUF, &receiveBuffer, 4) }
        var patience = timeval(tv_sec: 20, tv_usec: 0)
        setsockopt(
            descriptor, SOL_SOCKET, SO_RCVTIMEO, &patience, socklen_t(MemoryLayout<timeval>.size))
        var name = sockaddr_in()
        name.sin_family = sa_family_t(AF_INET)
        name.sin_port = port.bigEndian
        name.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        let result = withUnsafePointer(to: &name) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
        guard result == 0 else { throw Failure(description: "connect: \(errno)") }
    }

    deinit { close(descriptor) }

    func send(_ text: String) throws { try send(Array(text.utf8)) }

    func send(_ bytes: [UInt8]) throws {
        var sent = 0
        while sent < bytes.count {
            let count = bytes[sent...].withUnsafeBytes {
                Glibc.send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL))
            }
            guard count > 0 else { throw Failure(description: "send: \(errno)") }
            sent += count
        }
    }

    /// Sends a request with the fields that a client sends by itself.
    func request(
        _ method: String, _ target: String, fields: [String] = [], body: String? = nil,
        type: String = "application/json"
    ) throws -> Answer {
        try start(method, target, fields: fields, body: body, type: type)
        return try answer(hasBody: method != "HEAD")
    }

    func start(
        _ method: String, _ target: String, fields: [String] = [], body: String? = nil,
        type: String = "application/json"
    ) throws {
        var lines = ["\(method) \(target) HTTP/1.1"]
        if !fields.contains(where: { $0.lowercased().hasPrefix("host:") }) {
            lines.append("Host: 127.0.0.1:\(port)")
        }
        lines += fields
        if let body { lines += ["Content-Type: \(type)", "Content-Length: \(body.utf8.count)"] }
        try send(lines.joined(separator: "\r\n") + "\r\n\r\n" + (body ?? ""))
    }

    /// Reads an answer with its body; interim answers are skipped.
    func answer(hasBody: Bool = true) throws -> Answer {
        var answer = try head()
        while answer.status == 100 { answer = try head() }
        guard hasBody, answer.status != 204, answer.status != 304 else { return answer }
        if answer.fields["transfer-encoding"] == "chunked" {
            while let chunk = try chunk() { answer.body += chunk }
        } else if let length = answer.fields["content-length"].flatMap({ Int($0) }) {
            answer.body = try take(length)
        } else {
            while try more() {}
            answer.body = try take(buffer.count)
        }
        return answer
    }

    /// Reads the head of an answer.
    func head() throws -> Answer {
        while true {
            if let end = buffer.firstRange(of: Array("\r\n\r\n".utf8)) {
                let lines = String(decoding: buffer[..<end.lowerBound], as: UTF8.self)
                    .components(separatedBy: "\r\n")
                buffer.removeSubrange(..<end.upperBound)
                let status = lines[0].split(separator: " ").dropFirst().first.flatMap { Int($0) } ?? 0
                var fields: [String: String] = [:]
                for line in lines.dropFirst() {
                    let parts = line.split(separator: ":", maxSplits: 1)
                    fields[parts[0].lowercased()] = parts.last?.trimmingCharacters(in: .whitespaces)
                }
                return Answer(status: status, fields: fields, body: [])
            }
            guard try more() else {
                throw Failure(
                    description: "no answer: \(String(decoding: buffer.prefix(200), as: UTF8.self))")
            }
        }
    }

    /// Reads the next chunk of a stream; nil at its end.
    func chunk() throws -> [UInt8]? {
        let size = Int(try line(), radix: 16) ?? 0
        let bytes = try take(size)
        _ = try line()
        return size == 0 ? nil : bytes
    }

    private func line() throws -> String {
        while true {
            if let end = buffer.firstRange(of: Array("\r\n".utf8)) {
                let line = String(decoding: buffer[..<end.lowerBound], as: UTF8.self)
                buffer.removeSubrange(..<end.upperBound)
                return line
            }
            guard try more() else { throw Failure(description: "the stream ended within a chunk") }
        }
    }

    private func take(_ count: Int) throws -> [UInt8] {
        while buffer.count < count {
            guard try more() else {
                throw Failure(description: "\(buffer.count) of \(count) bytes before the end")
            }
        }
        defer { buffer.removeFirst(count) }
        return Array(buffer.prefix(count))
    }

    /// Reads some bytes; returns false at the end.
    private func more() throws -> Bool {
        var bytes = [UInt8](repeating: 0, count: 64 << 10)
        let count = recv(descriptor, &bytes, bytes.count, 0)
        if count > 0 {
            buffer += bytes[..<count]
            return true
        }
        if count < 0, errno == EAGAIN { throw Failure(description: "no byte for 20 seconds") }
        sawEnd = true
        return false
    }

    /// Waits for the end of the connection, and drops what arrives before it.
    func waitForEnd() throws {
        while try more() {}
    }

    /// Ends the sending side.
    func finishSending() { shutdown(descriptor, Int32(SHUT_WR)) }
}

extension [UInt8] {
    fileprivate func firstRange(of part: [UInt8]) -> Range<Int>? {
        guard count >= part.count else { return nil }
        for start in 0...(count - part.count) where self[start..<start + part.count].elementsEqual(part) {
            return start..<start + part.count
        }
        return nil
    }
}
