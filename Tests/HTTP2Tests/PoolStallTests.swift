import EventLoop
import Glibc
import Synchronization
import TestSupport
import Testing

@testable import HTTP2

/// Serves TLS connections in turn by a blocking script, for orders of frames and ends that real servers seldom
/// produce.
final class ScriptedServer: @unchecked Sendable {
    // Sendable because only the script's thread uses the transport; the rest is constant.
    let tls: TLSFixture
    let port: UInt16
    private let listening: Int32

    struct Frame {
        var type: UInt8
        var flags: UInt8
        var stream: UInt32
        var payload: [UInt8]
    }

    final class Peer {
        let transport: TLSTransport
        private var buffer: [UInt8] = []

        init(_ transport: TLSTransport) { self.transport = transport }

        func write(_ bytes: [UInt8]) {
            bytes.withUnsafeBytes { _ = transport.write($0) }
        }

        func frame(_ type: UInt8, _ flags: UInt8, _ stream: UInt32, _ payload: [UInt8] = []) {
            let length = payload.count
            write(
                [
                    UInt8(length >> 16), UInt8(length >> 8 & 255), UInt8(length & 255), type, flags,
                    UInt8(stream >> 24), UInt8(stream >> 16 & 255), UInt8(stream >> 8 & 255),
                    UInt8(stream & 255),
                ] + payload)
        }

        private func fill(_ count: Int) -> Bool {
            while buffer.count < count {
                var bytes = [UInt8](repeating: 0, count: 65_536)
                let result = bytes.withUnsafeMutableBytes { transport.read(into: $0) }
                guard case .bytes(let read) = result else { return false }
                buffer += bytes[..<read]
            }
            return true
        }

        func take(_ count: Int) -> [UInt8]? {
            guard fill(count) else { return nil }
            defer { buffer.removeFirst(count) }
            return Array(buffer[..<count])
        }

        func next() -> Frame? {
            guard let head = take(9) else { return nil }
            let length = Int(head[0]) << 16 | Int(head[1]) << 8 | Int(head[2])
            guard let payload = take(length) else { return nil }
            return Frame(
                type: head[3], flags: head[4],
                stream: UInt32(head[5]) << 24 | UInt32(head[6]) << 16 | UInt32(head[7]) << 8
                    | UInt32(head[8]),
                payload: payload)
        }

        /// The stream of the next complete request; nil at the connection's end.
        func nextRequest() -> UInt32? {
            while let frame = next() {
                if frame.type <= 1, frame.flags & 1 != 0 { return frame.stream }
            }
            return nil
        }
    }

    init(_ script: @escaping @Sendable (Peer) -> Void) throws {
        tls = try TLSFixture()
        listening = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let descriptor = listening
        withUnsafeMutablePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                _ = bind(descriptor, $0, length)
                _ = getsockname(descriptor, $0, &length)
            }
        }
        port = UInt16(bigEndian: address.sin_port)
        listen(listening, 16)
        let context = try TLSContext.server(tls.serverOptions)
        spawn {
            while true {
                let accepted = acceptConnection(descriptor)
                guard accepted >= 0 else { return }
                guard let transport = try? TLSTransport(context: context, acceptedFileDescriptor: accepted),
                    case .done = transport.handshake()
                else { continue }
                let peer = Peer(transport)
                guard peer.take(24) != nil else { continue }
                peer.frame(4, 0, 0)
                script(peer)
            }
        }
    }

    func stop() {
        shutdown(listening, Int32(SHUT_RDWR))
        close(listening)
    }
}

private final class Work: Sendable {
    let body: @Sendable () -> Void
    init(_ body: @escaping @Sendable () -> Void) { self.body = body }
}

private func spawn(_ body: @escaping @Sendable () -> Void) {
    var thread = pthread_t()
    pthread_create(
        &thread, nil,
        {
            Unmanaged<Work>.fromOpaque($0!).takeRetainedValue().body()
            return nil
        }, Unmanaged.passRetained(Work(body)).toOpaque())
    pthread_detach(thread)
}

@Suite(.serialized) struct PoolStallTests {
    /// The window opens after the last answer, when nothing else happens on the connection.
    @Test func lateWindowUpdateSendsTheWaitingRequest() throws {
        let open = BlockingFlag()
        let server = try ScriptedServer { peer in
            for _ in 0..<13 {
                guard let stream = peer.nextRequest() else { return }
                peer.frame(1, 5, stream, [0x88])
            }
            open.wait()
            peer.frame(8, 0, 0, [0, 1, 0, 0])
            while let stream = peer.nextRequest() { peer.frame(1, 5, stream, [0x88]) }
        }
        let client = try PoolClient(
            port: server.port, context: .client(server.tls.clientOptions), bodyBytes: 5000)
        client.send(0..<14)
        try eventually("the window is used up") { client.read { $0.ends.count } == 13 }
        open.set()
        // Ends before the regular PING, whose answer would also trigger sending.
        try eventually("the last request is sent", timeout: .seconds(30)) {
            client.read { $0.ends.count } == 14
        }
        client.stop()
        server.stop()
    }

    /// The server answers and resets TCP before the client's next write. The answer lies in the socket.
    @Test func answerBeforeATCPResetIsRead() throws {
        let first = BlockingFlag()
        let gone = BlockingFlag()
        let server = try ScriptedServer { peer in
            guard let stream = peer.nextRequest() else { return }
            first.wait()
            peer.frame(1, 5, stream, [0x88])
            var linger = linger(l_onoff: 1, l_linger: 0)
            setsockopt(
                peer.transport.fileDescriptor, SOL_SOCKET, SO_LINGER, &linger,
                socklen_t(MemoryLayout.size(ofValue: linger)))
            peer.transport.close()
            gone.set()
        }
        let client = try PoolClient(port: server.port, context: .client(server.tls.clientOptions)) {
            $0.reconnectInitial = .seconds(60)
            $0.reconnectMaximum = .seconds(60)
        }
        client.send(0..<1)
        try eventually("the request is in flight") { client.read { $0.mostInFlight } == 1 }
        // Blocks the loop until the server has closed, so that the loop's next action is a write.
        client.send(1..<2) {
            first.set()
            gone.wait()
        }
        try eventually("both have ended") { client.read { $0.ends[0] != nil && $0.ends[1] != nil } }
        #expect(client.read { $0.ends[0] } == [200])
        client.stop()
        server.stop()
    }
}
