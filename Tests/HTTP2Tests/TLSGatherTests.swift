import Glibc
import Testing

@testable import HTTP2

/// Tests a transport that gathers records and sends them together.
@Suite struct TLSGatherTests {
    let fixture: TLSFixture

    init() throws { fixture = try TLSFixture() }

    @Test(arguments: [TLSVersion.tls12, .tls13])
    func gatheredRecordsWaitForTheFlush(version: TLSVersion) throws {
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
        // Closing sends gathered records before close_notify.
        _ = pair.client.writeBytes([9])
        pair.client.close()
        #expect(pair.server.readBytes().bytes == [9])
        #expect({ if case .closed(clean: true) = pair.server.readBytes().result { true } else { false } }())
    }

    /// The backlog counts bytes that the system never received. A byte that the peer receives never counts.
    @Test(arguments: [TLSVersion.tls12, .tls13], [1, 100, 5000, 16_384, 40_000])
    func closeReportsBytesThatNeverLeft(version: TLSVersion, size: Int) throws {
        let pair = try fixture.pair(
            socketBuffer: 4_096, gathersOutput: true, client: { $0.maximumVersion = version })
        try #require(pair.handshake().isDone)
        let chunk = [UInt8](repeating: 7, count: size)
        var taken = 0
        var isStuck = false
        // The peer doesn't read, so the socket fills, then the buffer, then OpenSSL's own.
        for turn in 0..<10_000 where !isStuck {
            pair.client.willWrite(turn % 3 == 0 ? 100_000 : size)
            switch pair.client.writeBytes(chunk) {
            case .bytes(let count): taken += count
            case .wantWrite: isStuck = true
            default: Issue.record("turn \(turn)")
            }
            if turn % 2 == 0 { _ = pair.client.flushOutput() }
        }
        #expect(isStuck)
        pair.client.sendDeadline = 0
        let backlog = pair.client.close()
        var received = 0
        while true {
            let (result, bytes) = pair.server.readBytes()
            guard case .bytes = result else { break }
            received += bytes.count
        }
        #expect(backlog.untouched == 0 || backlog.begun == 0)
        #expect(received <= taken - backlog.untouched)
        // Records of one byte are mostly merged.
        if size > 1 { #expect(backlog.untouched + backlog.begun > 0) }
        // Only a begun record and merged records may count as sent without having been received.
        #expect(taken - backlog.untouched - received <= 16_384 + RecordLedger.capacity * size)
    }

    @Test func bytesGatheredPastTheDeadlineAreReportedUntouched() throws {
        let pair = try fixture.pair(gathersOutput: true)
        try #require(pair.handshake().isDone)
        pair.client.willWrite(100_000)
        _ = pair.client.writeBytes([1, 2, 3])
        _ = pair.client.flushOutput()
        _ = pair.client.writeBytes([4, 5])
        _ = pair.client.writeBytes([6])
        pair.client.sendDeadline = 0
        #expect(pair.client.close() == TLSBacklog(untouched: 3))
        #expect(pair.client.close() == TLSBacklog())
        #expect(pair.server.readBytes().bytes == [1, 2, 3])
        // Without a deadline, closing sends the gathered bytes before close_notify.
        let other = try fixture.pair(gathersOutput: true)
        try #require(other.handshake().isDone)
        other.client.willWrite(100_000)
        _ = other.client.writeBytes([1, 2, 3])
        #expect(other.client.close() == TLSBacklog())
        #expect(other.server.readBytes().bytes == [1, 2, 3])
    }

    @Test func fullLedgerMergesItsOldestRecords() {
        var ledger = RecordLedger()
        for record in 0..<UInt64(20) {
            ledger.begin(at: record * 100, bytes: 80)
            // Continuing a begun record changes nothing.
            ledger.begin(at: record * 100 + 50, bytes: 90)
            ledger.gathered(80)
        }
        #expect(ledger.backlog(handedOver: 0) == TLSBacklog(untouched: 20 * 80))
        // The first thirteen records are merged.
        #expect(ledger.backlog(handedOver: 1) == TLSBacklog(untouched: 7 * 80))
        #expect(ledger.backlog(handedOver: 1300) == TLSBacklog(untouched: 7 * 80))
        #expect(ledger.backlog(handedOver: 1301) == TLSBacklog(untouched: 6 * 80))
        #expect(ledger.backlog(handedOver: 2000) == TLSBacklog())
        ledger.flushed()
        ledger.begin(at: 2000, bytes: 60)
        #expect(ledger.backlog(handedOver: 2000) == TLSBacklog())
        #expect(ledger.backlog(handedOver: 2001) == TLSBacklog(begun: 60))
        ledger.passed()
        #expect(ledger.backlog(handedOver: 2001) == TLSBacklog())
    }

    /// A megabyte through a socket buffer of 4 KB, so that writes and flushes stop midway. With `announces`,
    /// small writes bypass the buffer at times.
    @Test(arguments: [TLSVersion.tls12, .tls13], [false, true])
    func partialWritesAndFlushesDeliverEveryByteInOrder(version: TLSVersion, announces: Bool) throws {
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
                case .wantRead: Issue.record("a write waited for input")
                case .failed(let error): throw error
                }
            }
            if turns % 3 == 0 || offset == sent.count {
                switch pair.client.flushOutput() {
                case .done: break
                case .wantWrite: stops.flush += 1
                case .wantRead: Issue.record("a flush waited for input")
                case .failed(let error): throw error
                }
            }
            if turns % 2 == 0 { received += pair.server.readBytes(5_000).bytes }
        }
        #expect(received == sent)
        #expect(stops.write > 10 && stops.flush > 10)
    }

    /// A write that fits into one record is sent at once, but after gathered records.
    @Test func smallWriteBypassesTheBufferInOrder() throws {
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

    @Test func flushToClosedPeerFailsAndBreaksTransport() throws {
        let pair = try fixture.pair(gathersOutput: true)
        try #require(pair.handshake().isDone)
        shutdown(pair.server.fileDescriptor, Int32(SHUT_RDWR))
        pair.server.close()
        #expect({ if case .bytes(3) = pair.client.writeBytes([1, 2, 3]) { true } else { false } }())
        guard case .failed(let error) = pair.client.flushOutput() else {
            Issue.record("flushing to a closed peer succeeded")
            return
        }
        #expect(error.kind == .connectionLost)
        guard case .failed = pair.client.writeBytes([1]), case .failed = pair.client.flushOutput() else {
            Issue.record("a broken transport was used")
            return
        }
    }

    @Test func flushWithoutGatheringSucceedsWithNothingToSend() throws {
        let pair = try fixture.pair()
        try #require(pair.handshake().isDone)
        _ = pair.client.writeBytes([1])
        #expect(pair.server.readBytes().bytes == [1])
        #expect({ if case .done = pair.client.flushOutput() { true } else { false } }())
    }
}
