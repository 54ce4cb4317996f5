import Testing

@testable import HTTP2

/// Tests a client's rules of RFC 9113 §§3-6 and 8, one by one. Two rules aren't checked on purpose. A
/// response's content-length may differ from its content (§8.1.1), because the client keeps at most 4 KB. The
/// server may delay its SETTINGS acknowledgement (§6.5.3), because a PING detects a dead connection. Frames on
/// closed streams are dropped and counted, however the stream was closed (§5.1).
@Suite struct ProtocolRulesTests {
    typealias Case = HostileServerTests.Case

    static func zeros(_ count: Int) -> [UInt8] { [UInt8](repeating: 0, count: count) }
    static func text(_ text: String) -> [UInt8] { [UInt8(text.utf8.count)] + text.utf8 }
    static func field(_ name: String, _ value: String) -> [UInt8] { [0x00] + text(name) + text(value) }
    static func status(_ value: String) -> [UInt8] { [0x08] + text(value) }

    // MARK: The beginning

    static let beginnings: [Case] = [
        Case("PING first (§3.4)", Raw.frame(6, zeros(8)), .protocolError),
        Case("an acknowledgement first", Raw.frame(4, flags: 1), .protocolError),
        Case("GOAWAY first", Raw.goAway(0, 0), .protocolError),
        Case("an unknown frame first", Raw.frame(0xaa), .protocolError),
        Case("HTTP/1.1", Array("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n".utf8), .protocolError),
        Case("noise", Array("SSH-2.0-OpenSSH_9.2\r\n".utf8), .frameSizeError),
    ]

    @Test(arguments: beginnings) func anyFirstFrameButSettingsEndsTheConnection(_ beginning: Case) {
        let harness = Harness()
        let error = harness.receive(beginning.bytes)
        #expect(error?.code == beginning.code, "\(error.map { "\($0)" } ?? "no error")")
        #expect(harness.submit(1) == .noCapacity)
        #expect(harness.frames().last?.type == 7)
    }

    @Test func http1AnswerIsNamedInTheError() {
        #expect(
            Harness().receive(Array("HTTP/1.1 400 Bad Request\r\n\r\n".utf8))?.message.contains("HTTP/1")
                == true)
    }

    // MARK: Errors of the connection

    static let connectionErrors: [Case] = [
        Case("§4.2: a frame of 16,385 bytes", Raw.frame(0, stream: 1, zeros(16_385)), .frameSizeError),
        Case(
            "§4.2: HEADERS shorter than their priority", Raw.frame(1, flags: 0x24, stream: 1, zeros(4)),
            .frameSizeError),
        Case("§4.2: padded HEADERS of no bytes", Raw.frame(1, flags: 0xc, stream: 1), .frameSizeError),
        Case(
            "§4.3: another stream's CONTINUATION",
            Raw.frame(1, stream: 1) + Raw.frame(9, flags: 4, stream: 3, [0x88]), .protocolError),
        Case(
            "§4.3: an unknown frame within a block", Raw.frame(1, stream: 1) + Raw.frame(0xaa), .protocolError
        ),
        Case("§4.3: DATA within a block", Raw.frame(1, stream: 1) + Raw.data(1, ""), .protocolError),
        Case("§5.1: DATA on an idle stream", Raw.data(3, ""), .protocolError),
        Case("§5.1: HEADERS on an idle stream", Raw.ok(3), .protocolError),
        Case("§5.1: RST_STREAM on an idle stream", Raw.reset(3, 0), .protocolError),
        Case("§5.1: WINDOW_UPDATE on an idle stream", Raw.windowUpdate(3, 1), .protocolError),
        Case("§5.1: CONTINUATION on an idle stream", Raw.frame(9, flags: 4, stream: 3), .protocolError),
        Case("§5.1.1: HEADERS on a stream of the server's", Raw.ok(2), .protocolError),
        Case("§5.1.1: DATA on a stream of the server's", Raw.data(2, ""), .protocolError),
        Case("§5.1.1: RST_STREAM on a stream of the server's", Raw.reset(2, 0), .protocolError),
        Case("§6.1: DATA on stream 0", Raw.data(0, ""), .protocolError),
        Case("§6.1: padding as long as its frame", Raw.frame(0, flags: 8, stream: 1, [1]), .protocolError),
        Case("§6.2: HEADERS on stream 0", Raw.ok(0), .protocolError),
        Case(
            "§6.2: padding longer than the block", Raw.frame(1, flags: 0xc, stream: 1, [2, 0]), .protocolError
        ),
        Case("§6.3: PRIORITY on stream 0", Raw.frame(2, zeros(5)), .protocolError),
        Case("§6.3: PRIORITY of 4 bytes", Raw.frame(2, stream: 1, zeros(4)), .frameSizeError),
        Case("§6.4: RST_STREAM on stream 0", Raw.reset(0, 0), .protocolError),
        Case("§6.4: RST_STREAM of 3 bytes", Raw.frame(3, stream: 1, zeros(3)), .frameSizeError),
        Case("§6.5: SETTINGS on a stream", Raw.frame(4, stream: 1), .protocolError),
        Case("§6.5: SETTINGS of 7 bytes", Raw.frame(4, zeros(7)), .frameSizeError),
        Case("§6.5: an acknowledgement with content", Raw.frame(4, flags: 1, zeros(6)), .frameSizeError),
        Case("§6.5.2: ENABLE_PUSH 1", Raw.settings([(2, 1)]), .protocolError),
        Case("§6.5.2: ENABLE_PUSH 2", Raw.settings([(2, 2)]), .protocolError),
        Case("§6.5.2: INITIAL_WINDOW_SIZE 2³¹", Raw.settings([(4, 1 << 31)]), .flowControlError),
        Case("§6.5.2: MAX_FRAME_SIZE 16,383", Raw.settings([(5, 16_383)]), .protocolError),
        Case("§6.5.2: MAX_FRAME_SIZE 2²⁴", Raw.settings([(5, 1 << 24)]), .protocolError),
        Case("§6.6: PUSH_PROMISE", Raw.frame(5, flags: 4, stream: 1, [0, 0, 0, 2, 0x82]), .protocolError),
        Case("§6.7: PING on a stream", Raw.frame(6, stream: 1, zeros(8)), .protocolError),
        Case("§6.7: PING of 9 bytes", Raw.frame(6, zeros(9)), .frameSizeError),
        Case("§6.8: GOAWAY on a stream", Raw.frame(7, stream: 1, zeros(8)), .protocolError),
        Case("§6.8: GOAWAY of 7 bytes", Raw.frame(7, zeros(7)), .frameSizeError),
        Case("§6.9: WINDOW_UPDATE of 5 bytes", Raw.frame(8, stream: 1, zeros(5)), .frameSizeError),
        Case("§6.9: WINDOW_UPDATE by 0", Raw.windowUpdate(0, 1 << 31), .protocolError),
        Case(
            "§6.9.1: the connection's window over 2³¹-1", Raw.windowUpdate(0, 0x7fff_ffff), .flowControlError),
        Case(
            "§6.9.2: INITIAL_WINDOW_SIZE takes a stream's over 2³¹-1",
            Raw.windowUpdate(1, 100) + Raw.settings([(4, 0x7fff_ffff)]), .flowControlError),
        Case("§6.10: CONTINUATION of nothing", Raw.ok(1) + Raw.frame(9, flags: 4, stream: 1), .protocolError),
        Case("§6.10: CONTINUATION on stream 0", Raw.frame(9, flags: 4), .protocolError),
    ]

    @Test(arguments: connectionErrors) func violationEndsTheConnectionWithItsErrorCode(_ violation: Case) {
        let harness = HostileServerTests.opened()
        let error = harness.receive(violation.bytes)
        #expect(error?.code == violation.code, "\(error.map { "\($0)" } ?? "no error")")
        #expect(harness.frames().last?.payload == Raw.word(0) + Raw.word(violation.code.rawValue))
        harness.session.abandonStreams()
        harness.drain()
        #expect(harness.log.filter { $0.hasPrefix("1:") }.count == 1)
    }

    @Test func dataBeyondTheConnectionWindowEndsTheConnection() {
        let harness = HostileServerTests.opened()
        // Frames of a closed stream use the connection's window, which the client replenishes.
        #expect(harness.receive(Raw.reset(1, 0)) == nil)
        for _ in 0..<50 { #expect(harness.receive(Raw.frame(0, stream: 1, Self.zeros(16_384))) == nil) }
        let granted = harness.frames().filter { $0.type == 8 }.map {
            UInt32($0.payload[1]) << 16 | UInt32($0.payload[2]) << 8 | UInt32($0.payload[3])
        }
        #expect(granted.reduce(0, +) + 65_535 >= 50 * 16_384)
        harness.session.connectionReceiveWindow = 100
        #expect(harness.receive(Raw.frame(0, stream: 1, Self.zeros(101)))?.code == .flowControlError)
    }

    // MARK: Errors of one stream

    static let streamErrors: [Case] = [
        Case("§8.1: DATA before HEADERS", Raw.data(1, "x"), .protocolError),
        Case(
            "§8.1: trailers that don't end the stream",
            Raw.bad(1) + Raw.frame(1, flags: 4, stream: 1, field("x", "y")), .protocolError),
        Case("§8.1: a status in trailers", Raw.bad(1) + Raw.ok(1), .protocolError),
        Case(
            "§8.1: an upper-case name in trailers",
            Raw.bad(1) + Raw.frame(1, flags: 5, stream: 1, field("X", "y")), .protocolError),
        Case(
            "§8.3: a pseudo-header field in trailers",
            Raw.bad(1) + Raw.frame(1, flags: 5, stream: 1, field(":x", "y")), .protocolError),
        Case(
            "§8.1: an informational response that ends the stream",
            Raw.frame(1, flags: 5, stream: 1, status("103")), .protocolError),
        Case(
            "§8.2.1: an upper-case name", Raw.frame(1, flags: 5, stream: 1, [0x88] + field("Apns-Id", "y")),
            .protocolError),
        Case(
            "§8.2.1: a name of no bytes", Raw.frame(1, flags: 5, stream: 1, [0x88] + field("", "y")),
            .protocolError),
        Case(
            "§8.3: an unknown pseudo-header field",
            Raw.frame(1, flags: 5, stream: 1, [0x88] + field(":x", "y")), .protocolError),
        Case(
            "§8.3: a request's pseudo-header field", Raw.frame(1, flags: 5, stream: 1, [0x88, 0x82]),
            .protocolError),
        Case(
            "§8.3: a status behind a field", Raw.frame(1, flags: 5, stream: 1, field("x", "y") + [0x88]),
            .protocolError),
        Case("§8.3: two statuses", Raw.frame(1, flags: 5, stream: 1, [0x88, 0x88]), .protocolError),
        Case("§8.3.2: no status", Raw.frame(1, flags: 5, stream: 1, field("x", "y")), .protocolError),
        Case("§8.3.2: an empty block", Raw.frame(1, flags: 5, stream: 1), .protocolError),
        Case("§8.3.2: a status of letters", Raw.frame(1, flags: 5, stream: 1, status("2oo")), .protocolError),
        Case(
            "§8.3.2: a status of two digits", Raw.frame(1, flags: 5, stream: 1, status("20")), .protocolError),
        Case(
            "§8.3.2: a status of four digits", Raw.frame(1, flags: 5, stream: 1, status("2000")),
            .protocolError),
        Case("§8.3.2: status 099", Raw.frame(1, flags: 5, stream: 1, status("099")), .protocolError),
        Case("§8.6: status 101", Raw.frame(1, flags: 4, stream: 1, status("101")), .protocolError),
        Case("§6.9: WINDOW_UPDATE by 0", Raw.windowUpdate(1, 0), .protocolError),
        Case("§6.9.1: the stream's window over 2³¹-1", Raw.windowUpdate(1, 0x7fff_ffff), .flowControlError),
    ]

    @Test(arguments: streamErrors) func streamViolationResetsOnlyItsStream(_ violation: Case) {
        let harness = HostileServerTests.opened(requests: 2)
        #expect(harness.receive(violation.bytes) == nil)
        let resets = harness.frames().filter { $0.type == 3 }
        #expect(resets.map(\.payload) == [Raw.word(violation.code.rawValue)])
        #expect(resets.map(\.stream) == [1])
        // A status that has arrived is the answer.
        let isAnswered = violation.bytes.starts(with: Raw.bad(1))
        #expect(harness.log.last == (isAnswered ? "1: 400 " : "1: unknown \(violation.code)"))
        // Later frames of the stream are dropped; the other stream is unaffected.
        #expect(harness.receive(Raw.data(1, "late") + Raw.ok(3)) == nil)
        #expect(harness.log.last == "2: 200 ")
    }

    // MARK: Frames that must be accepted

    static let harmless: [Case] = [
        Case("§4.1: the reserved bit", Raw.frame(6, flags: 0, stream: 1 << 31, zeros(8)), .noError),
        Case("§4.1: unknown flags", Raw.frame(6, flags: 0xfe, zeros(8)), .noError),
        Case("§5.5: an unknown frame on an idle stream", Raw.frame(0xaa, stream: 77, [1, 2, 3]), .noError),
        Case("ALTSVC", Raw.frame(0xa, stream: 0, zeros(20)), .noError),
        Case("ORIGIN", Raw.frame(0xc, stream: 0, zeros(20)), .noError),
        Case("PRIORITY_UPDATE", Raw.frame(0x10, stream: 0, zeros(5)), .noError),
        Case("§5.1: PRIORITY on an idle stream", Raw.frame(2, stream: 99, zeros(5)), .noError),
        Case("§6.5.2: an unknown setting", Raw.settings([(0x77, 5), (8, 1), (9, 1)]), .noError),
        Case("§6.5.2: ENABLE_PUSH 0", Raw.settings([(2, 0)]), .noError),
        Case("§6.5: an acknowledgement of nothing", Raw.frame(4, flags: 1), .noError),
        Case("§6.8: a GOAWAY whose last stream is the server's", Raw.goAway(0x7fff_fffe, 0), .noError),
        Case("§6.9.2: the largest windows", Raw.settings([(4, 0x7fff_ffff)]), .noError),
        Case(
            "§6.2: empty fragments and padding",
            Raw.frame(1, flags: 8, stream: 1, [3, 0, 0, 0]) + Raw.frame(9, stream: 1), .noError),
    ]

    @Test(arguments: harmless) func harmlessFramesKeepConnectionAndStreamOpen(_ bytes: Case) {
        let harness = HostileServerTests.opened()
        #expect(harness.receive(bytes.bytes) == nil)
        let end =
            harness.session.pendingBlock == nil
            ? Raw.ok(1) : Raw.frame(9, flags: 4, stream: 1, [0x88]) + Raw.data(1, "")
        #expect(harness.receive(end) == nil)
        #expect(harness.log.last == "1: 200 ")
    }

    @Test func responseBeforeEndOfRequestIsAccepted() {
        // §8.1: a complete response, then RST_STREAM with NO_ERROR.
        let harness = HostileServerTests.opened([(4, 3)])
        #expect(harness.receive(Raw.ok(1) + Raw.reset(1, 0)) == nil)
        #expect(harness.log.last == "1: 200 ")
        #expect(harness.frames().map(\.payload) == [Raw.word(8)])
    }

    @Test func trailersKeepTheResponsesContent() {
        let harness = HostileServerTests.opened()
        #expect(
            harness.receive(
                Raw.frame(1, flags: 4, stream: 1, Self.status("103")) + Raw.bad(1)
                    + Raw.data(1, "{\"a\":", end: false)
                    + Raw.data(1, "1}", end: false) + Raw.frame(1, flags: 5, stream: 1, Self.field("x", "y")))
                == nil)
        #expect(harness.log.last == "1: 400 {\"a\":1}")
    }
}
