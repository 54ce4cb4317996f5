import Testing

@testable import HTTP2

@Suite struct ClientSessionTests {
    @Test func requestsWaitForTheServersSettings() {
        let harness = Harness()
        #expect(harness.submit(1) == .noCapacity)
        #expect(harness.frames().map(\.type) == [4])
        #expect(harness.receive(Raw.settings([(3, 10)])) == nil)
        #expect(harness.session.availableStreams == 10)
        #expect(harness.submit(1) == .submitted)
        let frames = harness.frames()
        #expect(frames.map(\.type) == [4, 1, 0])
        #expect(frames[0].flags == 1)
        #expect(frames.map(\.stream) == [0, 1, 1])
        #expect(frames[2].flags == 1)
        #expect(frames[2].payload == (0..<10).map { UInt8($0) })
    }

    @Test func onlyOneStreamOpensUntilTheCredentialIsAccepted() {
        let harness = Harness(waits: true)
        harness.receive(Raw.settings([(3, 1000)]))
        #expect(harness.session.availableStreams == 1)
        #expect(harness.submit(1) == .submitted)
        #expect(harness.submit(2) == .noCapacity)
        harness.receive(Raw.frame(1, flags: 0x4, stream: 1, [0x08, 3] + Array("403".utf8)))
        harness.receive(Raw.data(1, #"{"reason":"InvalidProviderToken"}"#))
        #expect(harness.session.availableStreams == 1)
        #expect(harness.submit(2) == .submitted)
        harness.receive(Raw.ok(3))
        #expect(harness.session.availableStreams == 100)
        #expect(harness.log == ["settings", #"1: 403 {"reason":"InvalidProviderToken"}"#, "2: 200 "])
    }

    @Test func loweredStreamLimitAppliesAtOnce() {
        let harness = Harness()
        harness.receive(Raw.settings([(3, 3)]))
        for tag in 1...3 { #expect(harness.submit(UInt32(tag)) == .submitted) }
        harness.receive(Raw.settings([(3, 1)]))
        harness.receive(Raw.ok(1))
        harness.receive(Raw.ok(3))
        #expect(harness.session.availableStreams == 0)
        #expect(harness.submit(4) == .noCapacity)
        harness.receive(Raw.ok(5))
        #expect(harness.session.availableStreams == 1)
        harness.receive(Raw.settings([(3, 1000)]))
        #expect(harness.session.availableStreams == 100)
    }

    @Test func responseBodyInPiecesIsJoined() {
        let harness = Harness()
        harness.receive(Raw.settings())
        #expect(harness.submit(7) == .submitted)
        harness.receive(Raw.bad(1))
        harness.receive(Raw.data(1, "{\"rea", end: false))
        harness.receive(Raw.frame(0, flags: 0x8, stream: 1, [2] + Array("son\"".utf8) + [0, 0]))
        harness.receive(Raw.data(1, ":1}"))
        #expect(harness.log == ["settings", "7: 400 {\"reason\":1}"])
    }

    @Test func trailersAndInformationalResponsesAreIgnored() {
        let harness = Harness()
        harness.receive(Raw.settings())
        #expect(harness.submit(1) == .submitted)
        harness.receive(Raw.frame(1, flags: 0x4, stream: 1, [0x08, 3] + Array("103".utf8)))
        harness.receive(Raw.frame(1, flags: 0x4, stream: 1, [0x88]))
        harness.receive(
            Raw.frame(1, flags: 0x5, stream: 1, [0x00, 1] + Array("x".utf8) + [1] + Array("y".utf8)))
        #expect(harness.log == ["settings", "1: 200 "])
    }

    @Test func goAwayReportsStreamsAboveItAsNotProcessed() {
        let harness = Harness()
        harness.receive(Raw.settings())
        for tag in 1...4 { #expect(harness.submit(UInt32(tag)) == .submitted) }
        harness.receive(Raw.goAway(3, 0, "{\"reason\":\"Shutdown\"}"))
        #expect(harness.submit(5) == .noCapacity)
        harness.receive(Raw.goAway(3, 0))
        harness.receive(Raw.ok(1))
        _ = harness.frames()
        harness.session.abandonStreams()
        harness.drain()
        #expect(
            harness.log == [
                "settings", "goaway 0 {\"reason\":\"Shutdown\"}", "3: not processed NO_ERROR",
                "4: not processed NO_ERROR", "goaway 0 ", "1: 200 ", "2: unknown CONNECT_ERROR",
            ])
    }

    @Test func resetCodeDecidesBetweenNotProcessedAndUnknown() {
        let harness = Harness()
        harness.receive(Raw.settings())
        for tag in 1...2 { #expect(harness.submit(UInt32(tag)) == .submitted) }
        harness.receive(Raw.reset(1, 7) + Raw.reset(1, 5) + Raw.reset(3, 2))
        #expect(harness.log == ["settings", "1: not processed REFUSED_STREAM", "2: unknown INTERNAL_ERROR"])
    }

    @Test func expiredDeadlineResetsItsStream() {
        let harness = Harness()
        harness.receive(Raw.settings())
        #expect(harness.submit(1, deadline: 100) == .submitted)
        #expect(harness.submit(2, deadline: 200) == .submitted)
        _ = harness.frames()
        #expect(harness.session.oldestDeadline == 100)
        #expect(harness.session.expire(now: 150).all == 1)
        harness.drain()
        let frames = harness.frames()
        #expect(frames.map(\.type) == [3])
        #expect(frames[0].payload == Raw.word(8))
        // The late answer belongs to no stream and is ignored.
        #expect(harness.receive(Raw.ok(1)) == nil)
        #expect(harness.log == ["settings", "1: unknown CANCEL"])
        #expect(harness.session.openStreams == 1)
    }

    @Test func streamsWindowMayReachItsLimit() {
        let harness = Harness()
        harness.receive(Raw.settings([(3, 100)]))
        #expect(harness.submit(1, bytes: 0) == .submitted)
        #expect(harness.receive(Raw.settings([(4, 0x7fff_ffff)])) == nil)
        #expect(harness.receive(Raw.ok(1)) == nil)
        #expect(harness.log.last == "1: 200 ")
    }

    @Test func contentWaitsForTheStreamWindow() {
        let harness = Harness()
        harness.receive(Raw.settings([(4, 6)]))
        _ = harness.frames()
        #expect(harness.submit(1, bytes: 20) == .submitted)
        #expect(harness.frames().map(\.payload.count).last == 6)
        harness.receive(Raw.windowUpdate(1, 4))
        #expect(harness.frames().map(\.payload.count) == [4])
        harness.receive(Raw.settings([(4, 12)]))
        #expect(harness.frames().map(\.payload.count) == [0, 6])
        harness.receive(Raw.windowUpdate(1, 100))
        let last = harness.frames()
        #expect(last.map(\.payload.count) == [4])
        #expect(last[0].flags == 1)
        #expect(last[0].payload == [16, 17, 18, 19])
    }

    @Test func submitIsRefusedWhenTheConnectionWindowIsFull() {
        let harness = Harness()
        harness.receive(Raw.settings())
        for tag in 1...15 { #expect(harness.submit(UInt32(tag), bytes: 4096) == .submitted) }
        #expect(harness.submit(16, bytes: 4096) == .noCapacity)
        #expect(harness.session.sendWindow == 65_535 - 15 * 4096)
        harness.receive(Raw.windowUpdate(0, 4096))
        #expect(harness.submit(16, bytes: 4096) == .submitted)
    }

    @Test func pingsAreAnsweredAndPongsReported() {
        let harness = Harness()
        harness.receive(Raw.settings())
        _ = harness.frames()
        harness.receive(Raw.frame(6, [1, 2, 3, 4, 5, 6, 7, 8]))
        harness.session.ping(9)
        let frames = harness.frames()
        #expect(frames.map(\.flags) == [1, 0])
        #expect(frames[0].payload == [1, 2, 3, 4, 5, 6, 7, 8])
        harness.receive(Raw.frame(6, flags: 1, frames[1].payload))
        #expect(harness.log == ["settings", "pong 9"])
    }

    @Test func slowStreamKeepsItsCellWhileOthersAreReused() {
        let harness = Harness(maximumStreams: 4)
        harness.receive(Raw.settings())
        #expect(harness.submit(0) == .submitted)
        var id: UInt32 = 3
        for tag in 1...100 {
            #expect(harness.submit(UInt32(tag)) == .submitted)
            let used = harness.frames().last { $0.type == 0 }!.stream
            #expect(used >= id)
            id = used + 2
            harness.receive(Raw.ok(used))
        }
        harness.receive(Raw.ok(1))
        #expect(harness.log.last == "0: 200 ")
        #expect(harness.log.count == 102)
    }

    struct Violation: CustomTestStringConvertible, Sendable {
        var testDescription: String
        var bytes: [UInt8]
        var code: HTTP2ErrorCode
    }

    static let violations: [Violation] = [
        .init(
            testDescription: "oversized frame", bytes: [0, 0x40, 1, 0, 0] + Raw.word(1), code: .frameSizeError
        ),
        .init(
            testDescription: "push promise", bytes: Raw.frame(5, stream: 1, [0, 0, 0, 2]),
            code: .protocolError),
        .init(testDescription: "headers on stream 0", bytes: Raw.ok(0), code: .protocolError),
        .init(testDescription: "headers on an idle stream", bytes: Raw.ok(99), code: .protocolError),
        .init(testDescription: "headers on an even stream", bytes: Raw.ok(2), code: .protocolError),
        .init(testDescription: "data on an idle stream", bytes: Raw.data(99, ""), code: .protocolError),
        .init(
            testDescription: "bad padding", bytes: Raw.frame(0, flags: 8, stream: 1, [9, 0]),
            code: .protocolError),
        .init(
            testDescription: "no pad length", bytes: Raw.frame(0, flags: 8, stream: 1), code: .frameSizeError),
        .init(
            testDescription: "bad header block",
            bytes: Raw.frame(1, flags: 5, stream: 1, [0xff, 0xff, 0xff]),
            code: .compressionError),
        .init(
            testDescription: "header block interrupted",
            bytes: Raw.frame(1, stream: 1, [0x88]) + Raw.settings(),
            code: .protocolError),
        .init(
            testDescription: "continuation of nothing", bytes: Raw.frame(9, flags: 4, stream: 1, [0x88]),
            code: .protocolError),
        .init(
            testDescription: "continuation flood",
            bytes: Raw.frame(1, stream: 1) + (0..<5).flatMap { _ in Raw.frame(9, stream: 1, zeros(16_000)) },
            code: .enhanceYourCalm),
        .init(
            testDescription: "header bomb",
            // An entry of 3,000 bytes, repeated by its index.
            bytes: Raw.frame(
                1, flags: 5, stream: 1,
                [0x88, 0x40, 1, 0x61, 0x7f, 0xb9, 0x16] + [UInt8](repeating: 0x62, count: 3000)
                    + [UInt8](repeating: 0xbe, count: 100)), code: .enhanceYourCalm),
        .init(testDescription: "settings of 5 bytes", bytes: Raw.frame(4, zeros(5)), code: .frameSizeError),
        .init(testDescription: "settings on a stream", bytes: Raw.frame(4, stream: 1), code: .protocolError),
        .init(testDescription: "server enables push", bytes: Raw.settings([(2, 1)]), code: .protocolError),
        .init(
            testDescription: "window too large", bytes: Raw.settings([(4, 1 << 31)]), code: .flowControlError),
        .init(testDescription: "frame size too small", bytes: Raw.settings([(5, 100)]), code: .protocolError),
        .init(
            testDescription: "acknowledgement with content", bytes: Raw.frame(4, flags: 1, zeros(6)),
            code: .frameSizeError),
        .init(testDescription: "window update by 0", bytes: Raw.windowUpdate(0, 0), code: .protocolError),
        .init(
            testDescription: "window overflow", bytes: Raw.windowUpdate(0, 0x7fff_ffff),
            code: .flowControlError),
        .init(
            testDescription: "window update of 3 bytes", bytes: Raw.frame(8, zeros(3)), code: .frameSizeError),
        .init(testDescription: "reset of an idle stream", bytes: Raw.reset(99, 0), code: .protocolError),
        .init(
            testDescription: "reset of 5 bytes", bytes: Raw.frame(3, stream: 1, zeros(5)),
            code: .frameSizeError),
        .init(testDescription: "ping of 7 bytes", bytes: Raw.frame(6, zeros(7)), code: .frameSizeError),
        .init(
            testDescription: "ping on a stream", bytes: Raw.frame(6, stream: 1, zeros(8)),
            code: .protocolError),
        .init(
            testDescription: "goaway on a stream", bytes: Raw.frame(7, stream: 1, zeros(8)),
            code: .protocolError),
        .init(testDescription: "goaway of 7 bytes", bytes: Raw.frame(7, zeros(7)), code: .frameSizeError),
        .init(
            testDescription: "ping flood", bytes: (0..<10_001).flatMap { _ in Raw.frame(6, zeros(8)) },
            code: .enhanceYourCalm),
    ]

    static func zeros(_ count: Int) -> [UInt8] { [UInt8](repeating: 0, count: count) }

    @Test(arguments: violations) func serverViolationEndsTheConnectionWithItsErrorCode(_ violation: Violation)
    {
        let harness = Harness()
        harness.receive(Raw.settings())
        #expect(harness.submit(1) == .submitted)
        _ = harness.frames()
        let error = harness.receive(violation.bytes)
        #expect(error?.code == violation.code, "\(error.map { "\($0)" } ?? "no error")")
        let last = harness.frames().last
        #expect(last?.type == 7)
        #expect(last?.payload == [0, 0, 0, 0] + Raw.word(violation.code.rawValue))
        harness.session.abandonStreams()
        harness.drain()
        #expect(harness.log.filter { $0.hasPrefix("1:") }.count == 1)
    }

    @Test func streamErrorEndsOnlyItsStream() {
        let harness = Harness()
        harness.receive(Raw.settings())
        for tag in 1...3 { #expect(harness.submit(UInt32(tag)) == .submitted) }
        _ = harness.frames()
        // No status; DATA before HEADERS; a window update by 0.
        #expect(harness.receive(Raw.frame(1, flags: 5, stream: 1, [0x00, 1, 0x61, 1, 0x62])) == nil)
        #expect(harness.receive(Raw.data(3, "x")) == nil)
        #expect(harness.receive(Raw.windowUpdate(5, 0)) == nil)
        #expect(harness.frames().map(\.type) == [3, 3, 3])
        #expect(harness.session.openStreams == 0)
        #expect(harness.log.count == 4)
        #expect(harness.submit(4) == .submitted)
    }

    @Test(arguments: 0..<200 as Range<UInt64>) func randomFramesEndEveryRequestOnce(seed: UInt64) {
        var state = seed &* 0x9e37_79b9_7f4a_7c15 | 1
        func random(_ bound: Int) -> Int {
            state ^= state << 13
            state ^= state >> 7
            state ^= state << 17
            return Int(state % UInt64(bound))
        }
        let harness = Harness()
        harness.receive(Raw.settings([(3, 50)]))
        var submitted = 0
        for _ in 0..<50 {
            for _ in 0..<random(4) where harness.submit(UInt32(submitted)) == .submitted { submitted += 1 }
            let payload = (0..<random(30)).map { _ in UInt8(random(256)) }
            let bytes = Raw.frame(
                UInt8(random(11)), flags: UInt8(random(64)), stream: UInt32(random(2 * submitted + 4)),
                payload)
            if harness.receive(bytes) != nil { break }
        }
        harness.session.abandonStreams()
        harness.drain()
        let ends = harness.log.filter { $0.first!.isNumber }
        #expect(ends.count == submitted, "seed \(seed)")
        #expect(Set(ends.map { $0.prefix { $0.isNumber } }).count == submitted, "seed \(seed)")
    }
}
