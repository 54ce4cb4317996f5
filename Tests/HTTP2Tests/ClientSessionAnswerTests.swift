import Testing

@testable import HTTP2

/// Header values and long contents of answers.
@Suite struct ClientSessionAnswerTests {
    /// HEADERS of an answer with `apns-unique-id`, as a literal with its own name.
    private func headers(_ stream: UInt32, status: UInt8 = 0x88, uniqueID: String, end: Bool) -> [UInt8] {
        let name = Array("apns-unique-id".utf8)
        let value = Array(uniqueID.utf8)
        let block = [status, 0x00, UInt8(name.count)] + name + [UInt8(value.count)] + value
        return Raw.frame(1, flags: end ? 0x5 : 0x4, stream: stream, block)
    }

    private func events(_ harness: Harness, _ bytes: [UInt8]) throws -> [(tag: UInt32, uniqueID: String)] {
        let used = try bytes.withUnsafeBytes { try harness.session.receive($0) }
        #expect(used == bytes.count)
        let found = harness.session.events.all.map {
            (tag: $0.tag, uniqueID: String(decoding: $0.uniqueID, as: UTF8.self))
        }
        harness.session.events.removeAll()
        return found
    }

    @Test func answersOfOneReadKeepTheirUniqueIdentifiers() throws {
        let harness = Harness()
        harness.receive(Raw.settings([(3, 100)]))
        for tag in 1...4 { #expect(harness.submit(UInt32(tag)) == .submitted) }
        // The second answer has content, and ends after the third; the fourth has no identifier.
        let found = try events(
            harness,
            headers(1, uniqueID: "first", end: true)
                + headers(3, status: 0x8c, uniqueID: "second", end: false)
                + headers(5, uniqueID: "third", end: true) + Raw.data(3, "x") + Raw.ok(7))
        #expect(found.map(\.tag) == [1, 3, 2, 4])
        #expect(found.map(\.uniqueID) == ["first", "third", "second", ""])
    }

    @Test func answerWithoutUniqueIdentifierHasNotThatOfItsCellsLastAnswer() throws {
        let harness = Harness()
        harness.receive(Raw.settings([(3, 100)]))
        let cells = harness.session.streams.capacity
        for number in 0...cells {
            #expect(harness.submit(UInt32(number)) == .submitted)
            let stream = UInt32(2 * number + 1)
            let answer = number == cells ? Raw.ok(stream) : headers(stream, uniqueID: "\(number)", end: true)
            let found = try events(harness, answer)
            #expect(found.map(\.uniqueID) == [number == cells ? "" : "\(number)"])
            _ = harness.frames()
        }
    }

    @Test func longContentIsReceivedWholeWhenAskedFor() throws {
        let harness = Harness(maximumBody: 1_000_000)
        harness.receive(Raw.settings([(3, 100)]))
        #expect(harness.submit(1) == .submitted)
        _ = harness.frames()
        let piece = String(repeating: "x", count: 16_000)
        _ = try events(harness, Raw.frame(1, flags: 0x4, stream: 1, [0x88]))
        var credit = 65_535
        for _ in 0..<20 {
            #expect(credit >= piece.utf8.count, "the server may send")
            credit -= piece.utf8.count
            _ = try events(harness, Raw.data(1, piece, end: false))
            for frame in harness.frames() where frame.type == 8 && frame.stream == 1 {
                credit += frame.payload.reduce(0) { $0 << 8 | Int($1) }
            }
        }
        let end = Raw.data(1, "end")
        _ = try end.withUnsafeBytes { try harness.session.receive($0) }
        #expect(harness.session.events.all.map(\.body.count) == [20 * piece.utf8.count + 3])
    }

    // MARK: Answers that are cut

    /// Ways in which a stream can end behind the status of its answer.
    enum Cut: CaseIterable { case reset, refusal, goAway, connection, deadline, trailers, window }

    @Test(arguments: Cut.allCases, [10, 200_000])
    func statusThatHasArrivedIsTheAnswer(cut: Cut, bytes: Int) {
        let harness = Harness()
        harness.receive(Raw.settings([(3, 100)]))
        // A long request isn't sent whole.
        #expect(harness.submit(1, bytes: bytes, deadline: 10) == .submitted)
        _ = harness.frames()
        harness.receive(Raw.bad(1) + Raw.data(1, #"{"reason":"BadTopic"}"#, end: false))
        switch cut {
        case .reset: harness.receive(Raw.reset(1, 8))
        case .refusal: harness.receive(Raw.reset(1, 7))
        case .goAway: harness.receive(Raw.goAway(0, 0))
        case .connection: harness.session.abandonStreams()
        case .deadline: _ = harness.session.expire(now: 10)
        case .trailers: harness.receive(Raw.frame(1, flags: 0x4, stream: 1, [0x88]))
        case .window: harness.receive(Raw.windowUpdate(1, 0))
        }
        harness.drain()
        #expect(harness.log.filter { $0.hasPrefix("1: ") } == [#"1: 400 {"reason":"BadTopic"}"#])
        #expect(harness.session.streams.count == 0)
        let resets = harness.frames().filter { $0.type == 3 }
        #expect(resets.count == ([.deadline, .trailers, .window].contains(cut) ? 1 : 0))
    }

    @Test func contentBeyondItsLimitIsCutOff() throws {
        let harness = Harness(maximumBody: 20_000)
        harness.receive(Raw.settings([(3, 100)]))
        #expect(harness.submit(1) == .submitted)
        let piece = String(repeating: "x", count: 16_000)
        _ = try events(
            harness, Raw.frame(1, flags: 0x4, stream: 1, [0x88]) + Raw.data(1, piece, end: false))
        let end = Raw.data(1, piece)
        _ = try end.withUnsafeBytes { try harness.session.receive($0) }
        #expect(harness.session.events.all.map(\.body.count) == [20_000])
    }
}
