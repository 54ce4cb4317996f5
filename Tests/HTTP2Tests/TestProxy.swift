import CNghttp2
import EventLoop
import Glibc
import Synchronization

@testable import HTTP2

/// A small HTTP proxy with blocking sockets and a thread per direction. Its answers can be scripted. It can
/// stop forwarding, like a network that stalls.
final class TestProxy: Sendable {
    enum Answer: Sendable {
        /// Opens the tunnel if the request carries this authorization; nil requires none.
        case tunnel(authorization: String?)
        /// Writes these pieces one by one, then waits for the client to close.
        case pieces([String])
        /// Writes these pieces, and closes after the client's first byte in reply.
        case piecesAndClose([String])
        /// Writes header lines without an end.
        case flood
        case silence
        /// Closes after reading the request.
        case close
    }

    let port: UInt16
    private let listening: Int32
    private let answer: Answer
    private let heads = Mutex<[String]>([])
    private let hold = Mutex<BlockingFlag?>(nil)

    /// The header blocks that clients have sent.
    var requests: [String] { heads.withLock { $0 } }
    var address: SocketAddress { SocketAddress("127.0.0.1", port: port)! }

    init(_ answer: Answer) throws {
        self.answer = answer
        listening = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        let descriptor = listening
        _ = SocketAddress("127.0.0.1", port: 0)!.withPointer { bind(descriptor, $0, $1) }
        guard listen(listening, 16) == 0, let port = SocketAddress.port(of: listening) else {
            throw SystemError(call: "listen")
        }
        self.port = port
        inThread { [self] in
            while true {
                let client = acceptConnection(listening)
                guard client >= 0 else { return }
                inThread { [self] in serve(client) }
            }
        }
    }

    /// Stops forwarding in both directions until ``resume()``.
    func pause() { hold.withLock { $0 = BlockingFlag() } }

    func resume() {
        let flag = hold.withLock { hold in
            defer { hold = nil }
            return hold
        }
        flag?.set()
    }

    func stop() {
        resume()
        shutdown(listening, Int32(SHUT_RDWR))
        close(listening)
    }

    private func serve(_ client: Int32) {
        defer { close(client) }
        guard let head = readHead(client) else { return }
        heads.withLock { $0.append(head) }
        switch answer {
        case .close: return
        case .silence: waitForEnd(client)
        case .flood:
            _ = write("HTTP/1.1 200 OK\r\n", to: client)
            while write("X-Filler: 0123456789\r\n", to: client) {}
        case .pieces(let pieces):
            write(pieces, to: client)
            waitForEnd(client)
        case .piecesAndClose(let pieces):
            write(pieces, to: client)
            var byte: UInt8 = 0
            _ = recv(client, &byte, 1, 0)
        case .tunnel(let authorization):
            if let authorization, !head.contains("\r\nProxy-Authorization: \(authorization)\r\n") {
                _ = write(
                    "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=x\r\n\r\n",
                    to: client)
                return waitForEnd(client)
            }
            tunnel(client, head)
        }
    }

    private func tunnel(_ client: Int32, _ head: String) {
        let target = head.split(separator: " ")[1]
        let port = UInt16(target.split(separator: ":").last!)!
        let server = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        defer { close(server) }
        guard SocketAddress("127.0.0.1", port: port)!.withPointer({ connect(server, $0, $1) }) == 0 else {
            _ = write("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 3\r\n\r\nno\n", to: client)
            return waitForEnd(client)
        }
        guard write("HTTP/1.1 200 Connection established\r\nVia: 1.1 test\r\n\r\n", to: client) else {
            return
        }
        let back = BlockingFlag()
        inThread { [self] in
            forward(from: server, to: client)
            back.set()
        }
        forward(from: client, to: server)
        back.wait()
    }

    private func forward(from source: Int32, to target: Int32) {
        var bytes = [UInt8](repeating: 0, count: 65_536)
        while true {
            let count = recv(source, &bytes, bytes.count, 0)
            if count <= 0 { break }
            hold.withLock { $0 }?.wait()
            var sent = 0
            while sent < count {
                let written = bytes.withUnsafeBytes {
                    send(target, $0.baseAddress! + sent, count - sent, Int32(MSG_NOSIGNAL))
                }
                guard written > 0 else { break }
                sent += written
            }
            guard sent == count else { break }
        }
        shutdown(source, Int32(SHUT_RDWR))
        shutdown(target, Int32(SHUT_RDWR))
    }

    private func readHead(_ client: Int32) -> String? {
        var head: [UInt8] = []
        var byte: UInt8 = 0
        while !head.suffix(4).elementsEqual([13, 10, 13, 10]) {
            guard recv(client, &byte, 1, 0) == 1 else { return nil }
            head.append(byte)
        }
        return String(decoding: head, as: UTF8.self)
    }

    private func write(_ text: String, to client: Int32) -> Bool {
        let bytes = Array(text.utf8)
        return send(client, bytes, bytes.count, Int32(MSG_NOSIGNAL)) == bytes.count
    }

    private func write(_ pieces: [String], to client: Int32) {
        var one: Int32 = 1
        setsockopt(client, Int32(IPPROTO_TCP), TCP_NODELAY, &one, 4)
        for piece in pieces { _ = write(piece, to: client) }
    }

    private func waitForEnd(_ client: Int32) {
        var byte: UInt8 = 0
        while recv(client, &byte, 1, 0) == 1 {}
    }
}

private final class ThreadWork: Sendable {
    let body: @Sendable () -> Void
    init(_ body: @escaping @Sendable () -> Void) { self.body = body }
}

/// Waits for the next connection and returns its descriptor; negative once the socket is shut down. Programs
/// that other tests start don't inherit the descriptor, which they would keep open.
func acceptConnection(_ listening: Int32) -> Int32 {
    accept4(listening, nil, nil, Int32(SOCK_CLOEXEC.rawValue))
}

/// Runs `body` on a thread of its own.
func inThread(_ body: @escaping @Sendable () -> Void) {
    var thread = pthread_t()
    pthread_create(
        &thread, nil,
        {
            Unmanaged<ThreadWork>.fromOpaque($0!).takeRetainedValue().body()
            return nil
        }, Unmanaged.passRetained(ThreadWork(body)).toOpaque())
    pthread_detach(thread)
}
