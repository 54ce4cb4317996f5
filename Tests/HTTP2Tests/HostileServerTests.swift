import Testing

@testable import HTTP2

/// Tests servers that break the rules or exhaust the client: error codes, and bounds on memory.
@Suite struct HostileServerTests {
    /// A session after the server's SETTINGS, with a request on stream 1 and its first output taken.
    static func opened(_ settings: [(UInt16, UInt32)] = [], requests: UInt32 = 1) -> Harness {
        let harness = Harness()
        #expect(harness.receive(Raw.settings(settings)) == nil)
        for tag in 0..<requests { #expect(harness.submit(tag + 1) == .submitted) }
        _ = harness.frames()
        return harness
    }

    /// A quiet connection may exchange nothing but PINGs for weeks.
    @Test func answersToOwnPingsDoNotCountAsFlood() {
        let harness = Self.opened(requests: 0)
        for number in 1...UInt32(3 * ClientSession.maximumControlFrames) {
            harness.session.ping(number)
            guard harness.receive(Raw.frame(6, flags: 1, [0, 0, 0, 0] + Raw.word(number))) == nil else {
                Issue.record("PING \(number)")
                return
            }
            _ = harness.frames()
        }
    }

    static func zeros(_ count: Int) -> [UInt8] { [UInt8](repeating: 0, count: count) }

    struct Case: CustomTestStringConvertible, Sendable {
        var testDescription: String
        var bytes: [UInt8]
        var code: HTTP2ErrorCode

        init(_ name: String, _ bytes: [UInt8], _ code: HTTP2ErrorCode) {
            testDescription = name
            self.bytes = bytes
            self.code = code
        }
    }

    // MARK: Floods

    static func times(_ bytes: [UInt8], _ count: Int = ClientSession.maximumControlFrames + 1) -> [UInt8] {
        var result: [UInt8] = []
        result.reserveCapacity(bytes.count * count)
        for _ in 0..<count { result += bytes }
        return result
    }

    static let floods: [Case] = [
        Case(
            "empty CONTINUATION", Raw.frame(1, stream: 1) + times(Raw.frame(9, stream: 1)), .enhanceYourCalm),
        Case(
            "CONTINUATION of one byte", Raw.frame(1, stream: 1) + times(Raw.frame(9, stream: 1, [0x88])),
            .enhanceYourCalm),
        Case("SETTINGS", times(Raw.settings()), .enhanceYourCalm),
        Case("SETTINGS acknowledgements", times(Raw.frame(4, flags: 1)), .enhanceYourCalm),
        Case("PING", times(Raw.frame(6, zeros(8))), .enhanceYourCalm),
        Case("PING answers", times(Raw.frame(6, flags: 1, zeros(8))), .enhanceYourCalm),
        Case("PRIORITY", times(Raw.frame(2, stream: 1, [0, 0, 0, 0, 1])), .enhanceYourCalm),
        Case("unknown frames", times(Raw.frame(0xfa)), .enhanceYourCalm),
        Case("WINDOW_UPDATE of the connection", times(Raw.windowUpdate(0, 1)), .enhanceYourCalm),
        Case("WINDOW_UPDATE of the stream", times(Raw.windowUpdate(1, 1)), .enhanceYourCalm),
        Case("empty DATA", Raw.bad(1) + times(Raw.data(1, "", end: false)), .enhanceYourCalm),
        Case(
            "DATA that is padding", Raw.bad(1) + times(Raw.frame(0, flags: 8, stream: 1, [0])),
            .enhanceYourCalm),
        Case("DATA on a closed stream", Raw.reset(1, 0) + times(Raw.data(1, "")), .enhanceYourCalm),
        Case("HEADERS on a closed stream", Raw.reset(1, 0) + times(Raw.ok(1)), .enhanceYourCalm),
        Case("RST_STREAM on a closed stream", times(Raw.reset(1, 0)), .enhanceYourCalm),
        Case("GOAWAY", times(Raw.goAway(1, 0)), .enhanceYourCalm),
        Case(
            "informational responses",
            times(Raw.frame(1, flags: 4, stream: 1, [0x08, 3] + Array("103".utf8))), .enhanceYourCalm),
    ]

    @Test(arguments: floods) func floodEndsTheConnectionWithBoundedMemory(_ flood: Case) {
        let harness = Self.opened()
        let error = harness.receive(flood.bytes)
        #expect(error?.code == flood.code, "\(error.map { "\($0)" } ?? "no error")")
        #expect(harness.session.output.count <= ClientSession.maximumUnreadAnswers + 64)
        #expect(harness.session.pendingBlockBytes.count <= ClientSession.maximumHeaderBlock)
        #expect(harness.frames().last?.payload == Raw.word(0) + Raw.word(flood.code.rawValue))
        #expect(harness.session.brokenInvariant() == nil)
    }

    /// Responses in between make the control frames legal, but unread answers stay bounded.
    @Test func unreadControlAnswersEndTheConnectionAtABound() {
        let harness = Self.opened()
        var requests: UInt32 = 1
        var error: HTTP2ConnectionError?
        while error == nil, requests < 1000 {
            error = harness.receive(
                Self.times(Raw.frame(6, Self.zeros(8)), 100) + Self.times(Raw.settings(), 100)
                    + Raw.ok(2 * requests - 1))
            requests += 1
            if error == nil { #expect(harness.submit(requests) == .submitted) }
        }
        #expect(error?.code == .enhanceYourCalm)
        #expect(requests > 20)
        #expect(harness.session.output.count < ClientSession.maximumUnreadAnswers + 200 * Int(requests))
    }

    @Test func readingServerMaySendAnyNumberOfPings() {
        let harness = Self.opened()
        for request in 1...500 as ClosedRange<UInt32> {
            #expect(
                harness.receive(Self.times(Raw.frame(6, Self.zeros(8)), 400) + Raw.ok(2 * request - 1)) == nil
            )
            #expect(harness.submit(request + 1) == .submitted)
            // The socket takes all but one byte each time.
            harness.session.output.consume(harness.session.output.count - 1)
        }
    }

    /// The output never falls below its mark under load, although each answer leaves.
    @Test func sentControlAnswersDoNotCountUnderLoad() {
        let harness = Self.opened(requests: 0)
        let mark = 2 * ClientSession.maximumUnreadAnswers
        var request: UInt32 = 0
        var pings = 0
        while pings < 300 {
            #expect(harness.submit(request + 1, bytes: 2000) == .submitted)
            let stream = 2 * request + 1
            request += 1
            #expect(harness.receive(Raw.windowUpdate(0, 2000) + Raw.ok(stream)) == nil)
            guard harness.session.output.count > mark else { continue }
            // Answers are a quarter of the output, which is half of the permitted bytes.
            if let error = harness.receive(Self.times(Raw.frame(6, Self.zeros(8)), 40)) {
                Issue.record("\(error) after \(pings) times 40")
                return
            }
            pings += 1
            let surplus = harness.session.output.count - mark
            harness.session.output.consume(surplus)
            #expect(harness.session.output.count == mark)
        }
        // A server that stops reading still ends the connection.
        let error = harness.receive(Self.times(Raw.frame(6, Self.zeros(8)), 5000))
        #expect(error?.code == .enhanceYourCalm)
        #expect(harness.session.brokenInvariant() == nil)
    }

    @Test func requestsEndedAtOnceLeaveNoMemoryBehind() {
        let harness = Self.opened([(4, 0)], requests: 0)
        for request in 0..<20_000 as Range<UInt32> {
            // The stream's window is 0, so the content is never sent.
            #expect(harness.submit(request) == .submitted)
            let stream = harness.frames().last!.stream
            #expect(harness.receive(request % 2 == 0 ? Raw.reset(stream, 8) : Raw.ok(stream)) == nil)
        }
        #expect(harness.session.blockedStreams.count <= harness.session.streams.capacity)
        #expect(harness.session.collectedBodies.isEmpty)
        #expect(harness.session.brokenInvariant() == nil)
        // Rapid resets count as a flood only without answers in between.
        var error: HTTP2ConnectionError?
        var resets = 0
        while error == nil, resets < 20_000 {
            #expect(harness.submit(0) == .submitted)
            error = harness.receive(Raw.reset(harness.frames().first { $0.type == 1 }!.stream, 8))
            resets += 1
        }
        #expect(error?.code == .enhanceYourCalm)
    }

    @Test func bodyIsTruncatedAtLimitAndBoundByWindow() {
        let harness = Self.opened(requests: 2)
        #expect(harness.receive(Raw.bad(1)) == nil)
        // Small frames use up the stream's window, then one frame exceeds it.
        for _ in 0..<63 {
            #expect(harness.receive(Raw.data(1, String(repeating: "x", count: 1040), end: false)) == nil)
        }
        #expect(harness.session.collectedBodies[1]?.count == ClientSession.maximumResponseBody)
        #expect(harness.receive(Raw.data(1, "xxxxxx" + String(repeating: "x", count: 100))) == nil)
        #expect(harness.frames().last?.payload == Raw.word(HTTP2ErrorCode.flowControlError.rawValue))
        let kept = String(repeating: "x", count: ClientSession.maximumResponseBody)
        #expect(harness.log.last == "1: 400 \(kept)")
        #expect(harness.session.collectedBodies.isEmpty)
        #expect(harness.session.openStreams == 1)
    }

    // MARK: Header blocks

    static let blocks: [Case] = [
        Case(
            "an entry of 3,000 bytes by its index, again and again",
            Raw.frame(
                1, flags: 5, stream: 1,
                [0x88, 0x40, 1, 0x61, 0x7f, 0xb9, 0x16] + [UInt8](repeating: 0x62, count: 3000)
                    + [UInt8](repeating: 0xbe, count: 16_000 / 2)), .enhanceYourCalm),
        Case(
            "a long list in many frames",
            Raw.frame(1, stream: 1, [0x88])
                + (0..<3).flatMap { _ in Raw.frame(9, stream: 1, times([0x00, 1, 0x61, 1, 0x62], 3000)) }
                + Raw.frame(9, flags: 4, stream: 1), .enhanceYourCalm),
        Case("an index beyond the table", Raw.frame(1, flags: 5, stream: 1, [0xfe]), .compressionError),
        Case("index 0", Raw.frame(1, flags: 5, stream: 1, [0x80]), .compressionError),
        Case(
            "a block that ends within a field", Raw.frame(1, flags: 5, stream: 1, [0x88, 0x40, 5, 0x61]),
            .compressionError),
        Case(
            "an integer without an end", Raw.frame(1, flags: 5, stream: 1, [0x88, 0x7f] + times([0xff], 20)),
            .compressionError),
        Case(
            "a table larger than announced", Raw.frame(1, flags: 5, stream: 1, [0x3f, 0xe2, 0x1f, 0x88]),
            .compressionError),
        Case(
            "a table size behind a field", Raw.frame(1, flags: 5, stream: 1, [0x88, 0x20]), .compressionError),
        Case(
            "the end-of-string code in a string",
            Raw.frame(1, flags: 5, stream: 1, [0x88, 0x00, 0x84, 0xff, 0xff, 0xff, 0xff, 0]),
            .compressionError),
        Case(
            "a closed stream's block that does not decode",
            Raw.reset(1, 0) + Raw.frame(1, flags: 5, stream: 1, [0xfe]), .compressionError),
    ]

    @Test(arguments: blocks) func badHeaderBlockEndsConnectionWithItsErrorCode(_ block: Case) {
        let harness = Self.opened()
        let error = harness.receive(block.bytes)
        #expect(error?.code == block.code, "\(error.map { "\($0)" } ?? "no error")")
        #expect(harness.frames().last?.payload == Raw.word(0) + Raw.word(block.code.rawValue))
    }

    @Test func closedStreamsHeaderBlockStillUpdatesTheTable() {
        let harness = Self.opened(requests: 2)
        _ = harness.session.expire(now: 0)
        #expect(harness.receive(Raw.reset(1, 8)) == nil)
        // The late answer inserts `:status: 418`, to which the other stream's answer refers.
        #expect(harness.receive(Raw.frame(1, flags: 5, stream: 1, [0x48, 3] + Array("418".utf8))) == nil)
        #expect(harness.session.lateAnswers == 1, "the late answer is counted")
        #expect(harness.receive(Raw.frame(1, flags: 5, stream: 3, [0xbe])) == nil)
        #expect(harness.session.lateAnswers == 1)
        #expect(harness.log.last == "2: 418 ")
    }

    // MARK: After the end

    /// A failed flush passes its input again after the error. The repeated input has no effect.
    @Test func inputAfterAConnectionErrorIsIgnored() {
        let harness = Self.opened(requests: 3)
        let bytes = Raw.bad(1) + Raw.data(1, "a", end: false) + Raw.ok(3) + Raw.windowUpdate(0, 0)
        let error = harness.receive(bytes)
        #expect(error?.code == .protocolError)
        #expect(harness.frames().map(\.type) == [7])
        let log = harness.log
        #expect(harness.receive(bytes) == error)
        #expect(harness.receive(Raw.ok(5)) == error)
        #expect(harness.submit(9) == .noCapacity)
        #expect(harness.session.availableStreams == 0)
        #expect(harness.frames().isEmpty)
        #expect(harness.log == log)
        harness.session.abandonStreams()
        harness.drain()
        #expect(
            harness.log == ["settings", "2: 200 ", "1: 400 a", "3: unknown CONNECT_ERROR"])
    }

    @Test func oversizedRequestHeadersEndTheConnection() {
        let harness = Self.opened()
        let result = harness.session.submit(
            tag: 2, body: UnsafeRawBufferPointer(start: nil, count: 0), deadline: .max
        ) { block in
            [UInt8](repeating: 0x61, count: 9000).withUnsafeBytes { block.path("/", $0) }
        }
        #expect(result == .headersTooLarge)
        #expect(harness.frames().map(\.type) == [7])
        #expect(harness.submit(3) == .noCapacity)
        #expect(harness.receive(Raw.ok(1))?.code == .internalError)
    }
}
