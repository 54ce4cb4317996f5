import SimulatedEventLoop
import Testing

@testable import SimulatedHTTP2

/// Two simulated transports with an open TLS connection, read and written without loops.
private struct TransportPair {
    let scheduler: Scheduler
    let client: TLSTransport
    let server: TLSTransport
    let link: SimulatedLink
    let clientProcess = SimulatedProcess("client")

    init(seed: UInt64, gathersOutput: Bool = true, _ route: SimulatedRoute = .init()) throws {
        let scheduler = Scheduler(seed: seed)
        let network = SimulatedNetwork.of(scheduler)
        network.route = route
        let process = clientProcess
        let pair = try scheduler.run {
            let listener = try network.listen("10.0.0.1", 443, reusesPort: false)
            let descriptor = try process.run {
                try ClientSocket.connect(
                    to: SocketAddress("10.0.0.1", port: 443)!, userTimeoutMilliseconds: 30_000)
            }
            scheduler.run(until: scheduler.now + 10_000_000)
            let client = try TLSTransport(
                context: NetworkBed.tls.client, fileDescriptor: descriptor, serverName: "push.example",
                gathersOutput: gathersOutput)
            let accepted = try #require(network.accept(listener))
            let server = try TLSTransport(context: NetworkBed.tls.server, acceptedFileDescriptor: accepted)
            for _ in 0..<5 {
                _ = (client.handshake(), server.handshake())
                scheduler.run(until: scheduler.now + 10_000_000)
            }
            return (client, server)
        }
        (client, server) = pair
        self.scheduler = scheduler
        link = network.links[0]
    }

    /// Lets the time pass.
    func run(milliseconds: UInt64) { scheduler.run(until: scheduler.now + milliseconds * 1_000_000) }

    /// Writes at most a record of zeros; returns the bytes that the transport took.
    func writeRecord(_ count: Int) -> Int {
        let bytes = [UInt8](repeating: 0, count: count)
        guard case .bytes(let taken) = bytes.withUnsafeBytes({ client.write($0) }) else { return 0 }
        return taken
    }

    /// Writes zeros until the transport takes no more, and flushes; returns the bytes that it took.
    func write(_ count: Int) -> Int {
        client.willWrite(count)
        var written = 0
        while written < count {
            let taken = writeRecord(count - written)
            if taken == 0 { break }
            written += taken
        }
        _ = client.flushOutput()
        return written
    }

    /// Reads until nothing new arrives; returns the number of bytes and the last result in words.
    func read(_ transport: TLSTransport) -> (count: Int, end: String) {
        var total = 0
        var quiet = 0
        var buffer = [UInt8](repeating: 0, count: 20_000)
        return buffer.withUnsafeMutableBytes { buffer in
            while true {
                switch transport.read(into: buffer) {
                case .bytes(let count):
                    total += count
                    quiet = 0
                case .closed(let clean): return (total, clean ? "closed cleanly" : "closed")
                case .failed(let error): return (total, error.reason)
                case .wantRead, .wantWrite:
                    quiet += 1
                    if quiet == 3 { return (total, "open") }
                    run(milliseconds: 10)
                }
            }
        }
    }
}

/// Sockets and TLS of the simulation against the rules of the real ones.
struct NetworkSocketTests {
    private var smallWindow: SimulatedRoute {
        var route = SimulatedRoute()
        route.toServer.window = 20_000
        return route
    }

    /// The system of a closed socket goes on sending.
    @Test func aCloseDeliversWhatWasWritten() throws {
        let pair = try TransportPair(seed: 1, smallWindow)
        pair.scheduler.run {
            #expect(pair.write(100_000) == 100_000)
            pair.client.close()
            pair.run(milliseconds: 100)
            #expect(pair.read(pair.server) == (100_000, "closed cleanly"))
        }
    }

    @Test func aCloseWithResetDropsWhatWasNotSent() throws {
        let pair = try TransportPair(seed: 2, smallWindow)
        pair.scheduler.run {
            #expect(pair.write(100_000) == 100_000)
            pair.client.resetsOnClose = true
            pair.client.close()
            pair.run(milliseconds: 100)
            let (count, end) = pair.read(pair.server)
            #expect(count > 0 && count <= 20_000)
            #expect(end == "Connection reset by peer")
        }
    }

    /// The system acts for a process that is killed: no `close_notify`, but all bytes, unless it had asked for a reset.
    @Test(arguments: [false, true]) func deathOfAProcess(_ resets: Bool) throws {
        let pair = try TransportPair(seed: 3, smallWindow)
        pair.scheduler.run {
            #expect(pair.write(100_000) == 100_000)
            pair.client.resetsOnClose = resets
            pair.clientProcess.kill()
            #expect(pair.write(10) == 0)
            pair.run(milliseconds: 100)
            let (count, end) = pair.read(pair.server)
            #expect(resets ? count <= 20_000 : count == 100_000)
            #expect(end == (resets ? "Connection reset by peer" : "closed"))
        }
    }

    /// Unread input turns a close into a reset, which destroys what was not sent yet.
    @Test func aCloseWithUnreadInputResets() throws {
        let pair = try TransportPair(seed: 4, smallWindow)
        pair.scheduler.run {
            [UInt8](repeating: 1, count: 100).withUnsafeBytes { _ = pair.server.write($0) }
            pair.run(milliseconds: 10)
            #expect(pair.write(100_000) == 100_000)
            pair.client.close()
            pair.run(milliseconds: 100)
            let (count, end) = pair.read(pair.server)
            #expect(count <= 20_000)
            #expect(end == "Connection reset by peer")
        }
    }

    @Test func nothingLeavesFromTheDeadlineOn() throws {
        let pair = try TransportPair(seed: 5)
        pair.scheduler.run {
            pair.client.sendDeadline = pair.scheduler.now + 1_000_000_000
            #expect(pair.write(1000) == 1000)
            pair.run(milliseconds: 500)
            // More than a record is to be written, so that the first is gathered and waits for its flush.
            pair.client.willWrite(20_000)
            #expect(pair.writeRecord(20_000) == 16_384)
            pair.run(milliseconds: 500)
            guard case .failed(let error) = pair.client.flushOutput() else {
                Issue.record("flushed after the deadline")
                return
            }
            #expect(error.reason == "Timer expired")
            #expect(pair.writeRecord(20_000) == 0)
            #expect(pair.client.close() == TLSBacklog(untouched: 16_384, begun: 0))
            pair.run(milliseconds: 100)
            #expect(pair.read(pair.server) == (1000, "closed"))
        }
    }

    /// A record of which the system has a part counts as sent.
    @Test func aRecordIsBegunOnceTheSystemHasAPart() throws {
        var route = SimulatedRoute()
        route.toServer.sendBuffer = 5000
        let pair = try TransportPair(seed: 6, route)
        pair.scheduler.run {
            #expect(pair.write(10_000) == 0)
            #expect(pair.client.unacknowledged == 5000)
            #expect(pair.client.close() == TLSBacklog(untouched: 0, begun: 10_000))
        }
    }

    /// Bytes without acknowledgement end the connection after the socket's timeout.
    @Test func unacknowledgedBytesEndTheConnection() throws {
        let pair = try TransportPair(seed: 7)
        pair.scheduler.run {
            pair.link.client.path.isBlackHole = true
            #expect(pair.write(1000) == 1000)
            pair.run(milliseconds: 29_000)
            #expect(pair.link.isOpen)
            pair.run(milliseconds: 2000)
            #expect(!pair.link.isOpen)
            #expect(pair.read(pair.client) == (0, "Connection timed out"))
        }
    }

    /// Only one side sees the cut; the other learns of it when it sends.
    @Test func aCutThatOneSideSees() throws {
        let pair = try TransportPair(seed: 8)
        pair.scheduler.run {
            pair.link.cut(client: false, server: true)
            #expect(pair.read(pair.client) == (0, "open"))
            #expect(pair.write(1000) == 1000)
            #expect(pair.read(pair.client) == (0, "Connection reset by peer"))
        }
    }

    @Test func anEndThatOneSideSees() throws {
        let pair = try TransportPair(seed: 10)
        pair.scheduler.run {
            pair.link.end(server: false)
            #expect(pair.read(pair.client) == (0, "closed"))
            #expect(pair.read(pair.server) == (0, "open"))
            [UInt8](repeating: 1, count: 100).withUnsafeBytes { _ = pair.server.write($0) }
            #expect(pair.read(pair.server) == (0, "Connection reset by peer"))
        }
    }

    @Test func endedLinksAreForgotten() throws {
        let pair = try TransportPair(seed: 9)
        pair.scheduler.run {
            pair.client.close()
            pair.run(milliseconds: 10)
            #expect(SimulatedNetwork.current.links.count == 1)
            pair.server.close()
            pair.run(milliseconds: 10)
            #expect(SimulatedNetwork.current.links.isEmpty)
        }
    }
}
