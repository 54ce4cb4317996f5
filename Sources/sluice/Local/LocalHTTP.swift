import Foundation

/// A request to the simulator's API on this machine.
enum LocalHTTP {
    /// Longest wait for the answer.
    private static let patience = 10

    /// Returns the content of a 200; nil when the server gives no such answer within ten seconds. Blocks.
    /// - Parameter address: host and port, IPv4.
    static func get(_ path: String, from address: String) -> Data? {
        let parts = address.split(separator: ":")
        guard parts.count == 2, let port = UInt16(parts[1]) else { return nil }
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        var limit = timeval(tv_sec: patience, tv_usec: 0)
        let size = socklen_t(MemoryLayout<timeval>.size)
        setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &limit, size)
        setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &limit, size)
        var server = sockaddr_in()
        server.sin_family = sa_family_t(AF_INET)
        server.sin_port = port.bigEndian
        guard inet_pton(AF_INET, String(parts[0]), &server.sin_addr) == 1 else { return nil }
        let isConnected = withUnsafePointer(to: &server) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size)) == 0
            }
        }
        guard isConnected,
            Terminal.write(
                "GET \(path) HTTP/1.1\r\nHost: \(address)\r\nConnection: close\r\n\r\n", to: descriptor)
        else { return nil }
        var answer = Data()
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while answer.count < 64 << 20 {
            let count = read(descriptor, &buffer, buffer.count)
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { break }
            answer += buffer[..<count]
        }
        guard answer.starts(with: Data("HTTP/1.1 200".utf8)),
            let end = answer.range(of: Data("\r\n\r\n".utf8))
        else { return nil }
        return answer[end.upperBound...]
    }
}
