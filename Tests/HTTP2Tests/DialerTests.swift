import EventLoop
import Glibc
import TestSupport
import Testing

@testable import HTTP2

/// Connections to several addresses of which some are dead, over real sockets.
@Suite(.serialized) struct DialerTests {
    /// Addresses where nothing listens: IPv6 loopback, and another IPv4 loopback host.
    private func refused(_ port: UInt16) -> [SocketAddress] {
        [SocketAddress("::1", port: port)!, SocketAddress("127.0.0.2", port: port)!]
    }

    @Test func refusedAddressesAreSkipped() throws {
        let server = try ServerFixture()
        let dead = refused(server.listener.port)
        let live = SocketAddress("127.0.0.1", port: server.listener.port)!
        let client = try ConnectionClient(
            addresses: dead + [live], context: .client(server.tls.clientOptions))
        try client.waitUntilOpen()
        #expect(client.address == live)
        #expect(client.read { $0.failedAddresses } == dead)
        client.stop()
    }

    @Test func nextAddressIsDialledWhenOneDropsPackets() throws {
        let server = try ServerFixture()
        let deaf = DeafListener()
        let live = SocketAddress("127.0.0.1", port: server.listener.port)!
        let client = try ConnectionClient(
            addresses: [deaf.address, live], context: .client(server.tls.clientOptions)
        ) { $0.connectTimeout = .seconds(60) }
        try client.waitUntilOpen()
        #expect(client.address == live)
        #expect(client.read { $0.failedAddresses } == [deaf.address])
        #expect(client.statistics.connectNanoseconds >= DialPlan.defaultDelay)
        // The other attempt leaves nothing behind.
        #expect(client.read { $0.closed.isEmpty })
        client.stop()
    }

    @Test func errorNamesEachFailedAddressWithItsCause() throws {
        let port = try freePort()
        let client = try ConnectionClient(
            addresses: refused(port), context: .client(TLSFixture().clientOptions))
        let reason = try client.waitUntilClosed()
        #expect(reason.kind == .network)
        guard case .connectFailed(let error) = reason else {
            Issue.record("\(reason)")
            return
        }
        #expect(error.attempts.map(\.address) == refused(port))
        #expect(
            error.attempts.allSatisfy {
                $0.cause == .system(SystemError(call: "connect", code: ECONNREFUSED))
            })
        #expect(reason.description.contains("[::1]:\(port): connect: Connection refused"))
        #expect(reason.description.contains("127.0.0.2:\(port): connect: Connection refused"))
        #expect(client.read { $0.failedAddresses } == refused(port))
        #expect(client.read { $0.opened } == 0)
        client.stop()
    }

    @Test func connectTimeoutBoundsAllAttempts() throws {
        let deaf = DeafListener()
        let other = DeafListener()
        let client = try ConnectionClient(
            addresses: [deaf.address, other.address], context: .client(TLSFixture().clientOptions)
        ) { $0.connectTimeout = .milliseconds(100) }
        let reason = try client.waitUntilClosed()
        guard case .connectFailed(let error) = reason else {
            Issue.record("\(reason)")
            return
        }
        // The second attempt would have started after 250 ms.
        #expect(error.attempts.map(\.cause) == [.noAnswer, .notTried])
        #expect(reason.kind == .network)
        #expect(reason.description.contains("no answer within the connect timeout"))
        #expect(client.read { $0.failedAddresses } == [deaf.address])
        client.stop()
    }

    @Test func silentServerTimesOutInTheHandshakePhase() throws {
        // TCP connects, because the queue has room, but nothing answers.
        let listening = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        defer { close(listening) }
        _ = SocketAddress("127.0.0.1", port: 0)!.withPointer { bind(listening, $0, $1) }
        listen(listening, 8)
        let address = SocketAddress("127.0.0.1", port: try #require(SocketAddress.port(of: listening)))!
        let client = try ConnectionClient(
            addresses: [address], context: .client(TLSFixture().clientOptions)
        ) { $0.connectTimeout = .seconds(1) }
        let reason = try client.waitUntilClosed()
        guard case .connectTimeout(.handshaking) = reason else {
            Issue.record("\(reason)")
            return
        }
        #expect(reason.description.contains("TLS handshake"))
        #expect(client.read { $0.failedAddresses } == [address])
        client.stop()
    }

    @Test func losingAttemptsAreClosedHoweverTheOpeningEnds() throws {
        let deaf = DeafListener()
        let server = try ServerFixture()
        let live = SocketAddress("127.0.0.1", port: server.listener.port)!
        let context = try TLSContext.client(server.tls.clientOptions)
        let winning = try ConnectionClient(addresses: [deaf.address, live], context: context)
        let timed = try ConnectionClient(addresses: [deaf.address], context: context) {
            $0.connectTimeout = .milliseconds(200)
        }
        let closed = try ConnectionClient(addresses: [deaf.address], context: context)
        try winning.waitUntilOpen()
        _ = try timed.waitUntilClosed()
        // The system's table may change while it is read.
        try eventually("one attempt is left") {
            try socketsConnecting(to: deaf.address) == DeafListener.fillers + 1
        }
        closed.close()
        try eventually("no attempt is left") {
            try socketsConnecting(to: deaf.address) == DeafListener.fillers
        }
        #expect(closed.read { $0.closed.map(\.kind) } == [.endedByUs])
        closed.stop()
        winning.stop()
        timed.stop()
    }

    /// Number of the system's open sockets whose remote end is this address.
    private func socketsConnecting(to address: SocketAddress) throws -> Int {
        let port = try #require(UInt16("\(address)".split(separator: ":")[1]))
        let digits = String(port, radix: 16, uppercase: true)
        let text = ":" + String(repeating: "0", count: 4 - digits.count) + digits
        let file = try #require(fopen("/proc/net/tcp", "r"))
        defer { fclose(file) }
        var line = [CChar](repeating: 0, count: 512)
        var count = 0
        while fgets(&line, Int32(line.count), file) != nil {
            let bytes = line.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }
            let fields = String(decoding: bytes, as: UTF8.self).split(separator: " ")
            // Checks the remote address, and the inode that shows that a process still holds the socket.
            if fields.count > 9, fields[2].hasSuffix(text), fields[9] != "0" { count += 1 }
        }
        return count
    }
}
