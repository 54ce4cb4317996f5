import Testing

@testable import HTTP2

/// Tests requests whose last byte never left the output. The server can't have acted on them.
@Suite struct UnsentRequestTests {
    @Test func requestsStillInTheOutputAreNotProcessed() {
        let harness = HostileServerTests.opened(requests: 0)
        var ends: [Int] = []
        for tag in 1...4 as ClosedRange<UInt32> {
            #expect(harness.submit(tag) == .submitted)
            ends.append(harness.session.output.count)
        }
        // Two steps send the first request, and the second except for its last byte.
        harness.session.output.consume(ends[0] - 3)
        harness.session.output.consume(ends[1] - 1 - (ends[0] - 3))
        harness.session.abandonStreams()
        harness.drain()
        #expect(
            harness.log == [
                "settings", "1: unknown CONNECT_ERROR", "2: not processed CONNECT_ERROR",
                "3: not processed CONNECT_ERROR", "4: not processed CONNECT_ERROR",
            ])
    }

    /// Positions stay valid when the buffer restarts empty and when the buffer grows.
    @Test func requestPositionsSurviveBufferResets() {
        let harness = HostileServerTests.opened(requests: 0)
        #expect(harness.submit(1) == .submitted)
        harness.session.output.consume(harness.session.output.count)
        #expect(harness.submit(2, bytes: 30_000) == .submitted)
        harness.session.output.consume(harness.session.output.count - 1)
        #expect(harness.submit(3, bytes: 30_000) == .submitted)
        #expect(harness.submit(4) == .submitted)
        harness.session.output.consume(1)
        harness.session.abandonStreams()
        harness.drain()
        #expect(
            harness.log.dropFirst() == [
                "1: unknown CONNECT_ERROR", "2: unknown CONNECT_ERROR", "3: not processed CONNECT_ERROR",
                "4: not processed CONNECT_ERROR",
            ])
    }

    /// The request's end waits for the server's window and hasn't left.
    @Test func requestsWaitingForWindowAreNotProcessed() {
        let harness = HostileServerTests.opened([(4, 10)], requests: 0)
        for tag in 1...3 as ClosedRange<UInt32> {
            #expect(harness.submit(tag, bytes: 20, deadline: UInt64(tag)) == .submitted)
        }
        _ = harness.frames()
        // The first request expires, the second sends its end, and the third is cut off.
        #expect(harness.session.expire(now: 1).all == 1)
        #expect(harness.receive(Raw.windowUpdate(3, 10)) == nil)
        _ = harness.frames()
        harness.session.abandonStreams()
        harness.drain()
        #expect(
            harness.log == [
                "settings", "1: unknown CANCEL", "2: unknown CONNECT_ERROR",
                "3: not processed CONNECT_ERROR",
            ])
    }

    /// The system sends acknowledged bytes no more. All other bytes could arrive after their request's end.
    @Test func expiredRequestIsUnderWayUntilItsBytesAreAcknowledged() {
        let harness = HostileServerTests.opened([(4, 10)], requests: 0)
        var ends: [UInt64] = []
        for tag in 1...3 as ClosedRange<UInt32> {
            #expect(harness.submit(tag, bytes: 10, deadline: UInt64(tag)) == .submitted)
            ends.append(harness.session.output.endPosition)
        }
        // The content of the fourth waits for a window, and never leaves.
        #expect(harness.submit(4, bytes: 20, deadline: 4) == .submitted)
        let first = harness.session.expire(now: 1, arrivedThrough: ends[0])
        #expect(first == .init(all: 1, suspect: 1, underWay: 0))
        let others = harness.session.expire(now: 4, above: 3, arrivedThrough: ends[2] - 1)
        #expect(others == .init(all: 3, suspect: 1, underWay: 1))
    }

    @Test func sessionIsSettledOnceEveryRequestIsAnswered() {
        let harness = HostileServerTests.opened(requests: 0)
        var isSettled: Bool { harness.session.isSettled }
        #expect(isSettled)
        #expect(harness.submit(1) == .submitted)
        #expect(!isSettled)
        #expect(harness.receive(Raw.bad(1)) == nil)
        #expect(harness.receive(Raw.reset(1, 7)) == nil)
        #expect(isSettled)
        // The server may yet receive a request that has expired.
        #expect(harness.submit(2, deadline: 1) == .submitted)
        #expect(harness.session.expire(now: 1).all == 1)
        #expect(!isSettled)
    }
}
