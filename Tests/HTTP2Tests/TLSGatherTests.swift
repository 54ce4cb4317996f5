import Glibc
import Testing

@testable import HTTP2

/// A client whose records are sent together.
@Suite struct TLSGatherTests {
    let fixture: TLSFixture

    init() throws { fixture = try TLSFixture() }

    @Test(arguments: [TLSVersion.tls12, .tls13])
    func recordsWaitForTheFlush(version: TLSVersion) throws {
        let pair = try fixture.pair(gathersOutput: true, client: { $0.maximumVersion = version })
        try #require(pair.handshake().isDone)
        for byte in UInt8(1)...3 {
            #expect(
                {
                    if case .bytes(1000) = pair.client.writeBytes(.init(repeating: byte, count: 1000)) {
                        true
                    } else {
                        false
                    }
                }())
        }
        #expect({ if case .wantRead = pair.server.readBytes().result { true } else { false } }())
        #expect({ if case .done = pair.client.flushOutput() { true } else { false } }())
        var received: [UInt8] = []
        while true {
            let (result, bytes) = pair.server.readBytes()
            guard case .bytes = result else { break }
            received += bytes
        }
        #expect(received == (1...3).flatMap { [UInt8](repeating: $0, count: 1000) })
        // What was gathered goes out before the farewell.
        _ = pair.client.writeBytes([9])
        pair.client.close()
        #expect(pair.server.readBytes().bytes == [9])
        #expect({ if case .closed(clean: true) = pair.server.readBytes().result { true } else { false } }())
    }

    /// A megabyte through a socket buffer of a few kilobytes: writes and flushes stop half-way, and every byte arrives
    /// once and in order; also when now and then little is announced, which goes past the buffer.
    @Test(arguments: [TLSVersion.tls12, .tls13], [false, true])
    func smallSocketBuffers(version: TLSVersion, announces: Bool) throws {
        let pair = try fixture.pair(
            socketBuffer: 4_096, gathersOutput: true, client: { $0.maximumVersion = version })
        try #require(pair.handshake().isDone)
        let sent = (0..<1_000_000).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ $0 >> 9) }
        var received: [UInt8] = []
        var offset = 0
        var stops = (write: 0, flush: 0)
        var turns = 0
        while received.count < sent.count {
            turns += 1
            try #require(turns < 100_000)
            if offset < sent.count {
                let end = min(offset + 1 + turns * 7_919 % 40_000, sent.count)
                if announces { pair.client.willWrite(turns % 5 < 3 ? 100 : 40_000) }
                switch pair.client.writeBytes(Array(sent[offset..<(stops.write > 0 ? sent.count : end)])) {
                case .bytes(let count): offset += count
                case .wantWrite: stops.write += 1
                case .wantRead: Issue.record("a write does not wait for input here")
                case .failed(let error): throw error
                }
            }
            if turns % 3 == 0 || offset == sent.count {
                switch pair.client.flushOutput() {
                case .done: break
                case .wantWrite: stops.flush += 1
                case .wantRead: Issue.record("a flush does not wait for input")
                case .failed(let error): throw error
                }
            }
            if turns % 2 == 0 { received += pair.server.readBytes(5_000).bytes }
        }
        #expect(received == sent)
        #expect(stops.write > 10 && stops.flush > 10)
    }

    /// What fits into one record is sent at once; what was gathered before goes first.
    @Test func littleGoesPastTheBuffer() throws {
        let pair = try fixture.pair(gathersOutput: true)
        try #require(pair.handshake().isDone)
        pair.client.willWrite(1)
        _ = pair.client.writeBytes([1])
        #expect(pair.server.readBytes().bytes == [1])
        pair.client.willWrite(100_000)
        _ = pair.client.writeBytes([2])
        pair.client.willWrite(1)
        _ = pair.client.writeBytes([3])
        #expect({ if case .wantRead = pair.server.readBytes().result { true } else { false } }())
        #expect({ if case .done = pair.client.flushOutput() { true } else { false } }())
        #expect(pair.server.readBytes().bytes == [2])
        #expect(pair.server.readBytes().bytes == [3])
        pair.client.willWrite(1)
        _ = pair.client.writeBytes([4])
        #expect(pair.server.readBytes().bytes == [4])
        pair.client.close()
        #expect({ if case .closed(clean: true) = pair.server.readBytes().result { true } else { false } }())
    }

    @Test func aClosedPeerIsNoticed() throws {
        let pair = try fixture.pair(gathersOutput: true)
        try #require(pair.handshake().isDone)
        shutdown(pair.server.fileDescriptor, Int32(SHUT_RDWR))
        pair.server.close()
        #expect({ if case .bytes(3) = pair.client.writeBytes([1, 2, 3]) { true } else { false } }())
        guard case .failed(let error) = pair.client.flushOutput() else {
            Issue.record("the flush went unnoticed")
            return
        }
        #expect(error.kind == .connectionLost)
        guard case .failed = pair.client.writeBytes([1]), case .failed = pair.client.flushOutput() else {
            Issue.record("a broken transport was used")
            return
        }
    }

    @Test func withoutGatheringAFlushHasNothingToDo() throws {
        let pair = try fixture.pair()
        try #require(pair.handshake().isDone)
        _ = pair.client.writeBytes([1])
        #expect(pair.server.readBytes().bytes == [1])
        #expect({ if case .done = pair.client.flushOutput() { true } else { false } }())
    }
}
