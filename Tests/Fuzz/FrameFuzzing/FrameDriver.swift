import HTTP2

/// Runs an input: a short program of the client owner's calls and the server's bytes. The first byte sets up
/// the session. Each operation follows as a byte with its arguments (``Operation``). The client's output,
/// events and state are checked after each operation.
public final class FrameDriver {
    /// The low four bits of an operation's byte; the upper four are its `modifier`.
    enum Operation: UInt8 {
        /// Submits a request; the modifier chooses the content's size.
        case submit
        /// Advances the clock by the next byte.
        case expire
        case ping
        /// The socket takes as much output as the modifier chooses.
        case consume
        /// Replaces the provider token.
        case replaceToken
        /// Arbitrary bytes after their count.
        case raw
        /// A frame of the type in the next byte. The other frame operations imply their type.
        case other
        case abandon
        case data, headers, reset, settings, pingFrame, goAway, windowUpdate, continuation
    }

    static let contentSizes = [
        0, 1, 10, 250, 1000, 4096, 5000, 16_384, 16_385, 40_000, 65_535, 65_536, 70_000,
    ]
    static let streamLimits = [1, 3, 8, 100]
    /// Most bytes that the server sends for an input.
    static let maximumDelivery = 256 * 1024
    /// Topics that together exceed the header table.
    static let topicNames = ["com.example.app"] + [1700, 1900, 900].map { String(repeating: "t", count: $0) }
    /// Source of each request's content.
    static let pattern = (0..<70_256).map { UInt8(truncatingIfNeeded: $0 &* 7 &+ $0 >> 8) }
    /// Time from a request's submission to its deadline.
    static let patience: UInt64 = 64

    struct Request {
        var content: UnsafeMutableRawBufferPointer
        var stream: UInt32
        var token: Int
        var hasEnded = false
    }

    var session: ClientSession
    let audit = OutputAudit()
    let server: ServerModel
    let topics: [StableFields.ID]
    let token: StableFields.ID
    let identifier: StableFields.ID
    let fields = StableFields()
    let limit: Int
    let chunk: Int

    var input: UnsafeRawBufferPointer
    var position = 0
    var requests: [Request] = []
    var open = 0
    var tokenVersion = 0
    var now: UInt64 = 0
    var isAuthenticated: Bool
    var failure: HTTP2ConnectionError?
    var wasAbandoned = false
    var goAwayEvents = 0
    /// Bytes from the server that the session hasn't used yet.
    var wire: [UInt8] = []
    var delivered = 0
    /// Bytes at the front of the output that the audit has seen.
    var audited = 0
    /// Number of bytes that the socket took.
    var consumed = 0
    /// Whether the socket took only a part of the output.
    var isPartlyConsumed = false

    /// Runs an input. Returns the client's first violation, or nil.
    public static func run(_ input: UnsafeRawBufferPointer) -> Violation? {
        guard let setup = input.first else { return nil }
        let driver = FrameDriver(setup, UnsafeRawBufferPointer(rebasing: input[1...]))
        do throws(Violation) {
            try driver.run(serverBegins: setup & 8 != 0)
            return nil
        } catch {
            return error
        }
    }

    init(_ setup: UInt8, _ input: UnsafeRawBufferPointer) {
        self.input = input
        var configuration = ClientSession.Configuration()
        configuration.waitsForAuthentication = setup & 1 != 0
        limit = Self.streamLimits[Int(setup >> 1 & 3)]
        configuration.maximumStreams = limit
        chunk = [Int.max, 1, 7, 100][Int(setup >> 4 & 3)]
        isAuthenticated = setup & 1 == 0
        let fields = fields
        topics = Self.topicNames.map { fields.add(name: "apns-topic", value: Array($0.utf8)) }
        token = fields.add(name: "authorization", value: Array("bearer 0".utf8))
        identifier = fields.add(name: "apns-id")
        server = ServerModel(audit: audit)
        session = ClientSession(configuration: configuration, fields: fields)
    }

    deinit {
        for request in requests where !request.hasEnded { request.content.deallocate() }
    }

    // MARK: The program

    private func next() -> UInt8 {
        guard position < input.count else { return 0 }
        position += 1
        return input[position - 1]
    }

    private func next(_ count: Int) -> UnsafeRawBufferPointer {
        let end = min(position + count, input.count)
        defer { position = end }
        return UnsafeRawBufferPointer(rebasing: input[position..<end])
    }

    private func run(serverBegins: Bool) throws(Violation) {
        try check()
        if serverBegins { try deliver([0, 0, 0, 4, 0, 0, 0, 0, 0], hold: false) }
        while position < input.count, failure == nil, !wasAbandoned {
            let byte = next()
            try perform(Operation(rawValue: byte & 15)!, modifier: Int(byte >> 4))
            try check()
        }
        try deliver([], hold: false)
        try end()
    }

    private func perform(_ operation: Operation, modifier: Int) throws(Violation) {
        switch operation {
        case .submit: try submit(Self.contentSizes[min(modifier, Self.contentSizes.count - 1)])
        case .expire:
            now += UInt64(next())
            _ = session.expire(now: now)
            if let oldest = session.oldestDeadline, oldest <= now {
                throw Violation("an expired stream is left")
            }
        case .ping: session.ping(UInt32(modifier))
        case .consume: consume(modifier)
        case .replaceToken:
            tokenVersion += 1
            fields.replace(token, value: Array("bearer \(tokenVersion)".utf8))
        case .raw: try deliver(Array(next(Int(next()))), hold: modifier & 1 != 0)
        case .abandon:
            // Abandons rarely, because no operation follows.
            if modifier == 15 { try abandon() }
        case .other: try frame(next(), modifier)
        case .data: try frame(0, modifier)
        case .headers: try frame(1, modifier)
        case .reset: try frame(3, modifier)
        case .settings: try frame(4, modifier)
        case .pingFrame: try frame(6, modifier)
        case .goAway: try frame(7, modifier)
        case .windowUpdate: try frame(8, modifier)
        case .continuation: try frame(9, modifier)
        }
    }

    /// Sends a frame: flags, stream, and a payload after its count. Modifier bit 1 holds the frame back, and
    /// bit 2 extends the payload by repetition. Bits 4 and 8 repeat the frame.
    private func frame(_ type: UInt8, _ modifier: Int) throws(Violation) {
        let flags = next()
        let choice = next()
        let pattern = next(Int(next()))
        // Recent streams are given by their distance from the last stream, others by number.
        let stream =
            choice < 64
            ? UInt32(choice)
            : choice < 192
                ? UInt32(max(0, Int(audit.lastStream) - 2 * Int(choice - 64))) : UInt32(choice) << 24
        var payload = Array(pattern)
        if modifier & 2 != 0, !payload.isEmpty {
            let length = 256 * Int(next())
            payload.reserveCapacity(length + payload.count)
            while payload.count < length { payload += payload.prefix(length - payload.count) }
        }
        let length = payload.count
        var bytes: [UInt8] = [
            UInt8(truncatingIfNeeded: length >> 16), UInt8(truncatingIfNeeded: length >> 8),
            UInt8(truncatingIfNeeded: length), type, flags, UInt8(stream >> 24),
            UInt8(truncatingIfNeeded: stream >> 16), UInt8(truncatingIfNeeded: stream >> 8),
            UInt8(truncatingIfNeeded: stream),
        ]
        bytes += payload
        let repetitions = [1, 2, 16, 256][modifier >> 2]
        if repetitions > 1, bytes.count * repetitions <= Self.maximumDelivery / 4 {
            let one = bytes
            for _ in 1..<repetitions { bytes += one }
        }
        try deliver(bytes, hold: modifier & 1 != 0)
    }

    // MARK: The owner

    private func submit(_ size: Int) throws(Violation) {
        let content = UnsafeMutableRawBufferPointer.allocate(byteCount: size, alignment: 1)
        let tag = UInt32(requests.count)
        Self.pattern.withUnsafeBytes { pattern in
            content.copyMemory(
                from: UnsafeRawBufferPointer(rebasing: pattern[(Int(tag) & 255)...].prefix(size)))
        }
        let expected =
            failure == nil && !wasAbandoned && server.goAways == 0
            && open < min(limit, Int(server.maximumStreams ?? 0), isAuthenticated ? .max : 1)
            && (Int64(size) <= audit.connectionWindow || size > 65_535)
        let topic = topics[Int(tag) % topics.count]
        let result = session.submit(
            tag: tag, body: UnsafeRawBufferPointer(content), deadline: now + Self.patience
        ) { block in
            block.indexedStatic(3)
            block.indexedStatic(7)
            Self.withBytes("\(tag)") { block.path("/3/device/", $0) }
            block.stable(topic)
            block.stable(token)
            Self.withBytes("\(tag)") { block.value(identifier, $0) }
        }
        guard (result == .submitted) == expected else {
            content.deallocate()
            throw Violation("a request was \(result) with \(open) open")
        }
        guard expected else { return content.deallocate() }
        requests.append(Request(content: content, stream: 0, token: tokenVersion))
        open += 1
        try check()
        requests[Int(tag)].stream = audit.lastStream
        guard audit.streams[audit.lastStream]?.tag == tag else { throw Violation("no HEADERS for a request") }
    }

    private static func withBytes(_ text: String, _ body: (UnsafeRawBufferPointer) -> Void) {
        Array(text.utf8).withUnsafeBytes(body)
    }

    private func consume(_ modifier: Int) {
        let waiting = session.output.count
        let count = [waiting, waiting / 2, min(waiting, 1), 0][modifier & 3]
        session.output.consume(count)
        audited -= count
        consumed += count
        isPartlyConsumed = (isPartlyConsumed || count > 0) && count < waiting
        if count == waiting { audit.answers = 0 }
    }

    private func abandon() throws(Violation) {
        wasAbandoned = true
        session.abandonStreams()
        try check()
        guard session.openStreams == 0 else { throw Violation("streams are left") }
    }

    // MARK: The server

    private func deliver(_ bytes: [UInt8], hold: Bool) throws(Violation) {
        guard delivered + bytes.count <= Self.maximumDelivery else { return }
        delivered += bytes.count
        var visible = wire.count
        wire += bytes
        guard !hold else { return }
        while failure == nil {
            visible = min(wire.count, wire.count > 2000 ? wire.count : visible + min(chunk, wire.count))
            try receive(&visible)
            if visible == wire.count { break }
        }
    }

    /// Passes the first `visible` bytes of the wire to the session.
    private func receive(_ visible: inout Int) throws(Violation) {
        // A buffer of the exact size, so that the sanitizer detects reads beyond its end.
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: visible, alignment: 1)
        defer { buffer.deallocate() }
        wire.withUnsafeBytes { buffer.copyMemory(from: UnsafeRawBufferPointer(rebasing: $0[..<visible])) }
        let bytes = UnsafeRawBufferPointer(buffer)
        let (used, error) = feed(bytes)
        if let error {
            failure = error
            _ = server.take(bytes)
            guard error.code != .compressionError || server.isCompressionBroken else {
                throw Violation("a header block that nghttp2 takes: \(error)")
            }
        } else {
            guard server.take(UnsafeRawBufferPointer(rebasing: bytes[..<used])) == used,
                server.take(UnsafeRawBufferPointer(rebasing: bytes[used...])) == 0
            else { throw Violation("the session did not use whole frames: \(used) of \(bytes.count) bytes") }
            wire.removeFirst(used)
            visible -= used
        }
        try check()
    }

    private func feed(_ bytes: UnsafeRawBufferPointer) -> (used: Int, error: HTTP2ConnectionError?) {
        do throws(HTTP2ConnectionError) {
            return (try session.receive(bytes), nil)
        } catch {
            return (0, error)
        }
    }

    // MARK: Checks

    private func check() throws(Violation) {
        let output = session.output.readable
        if output.count < audited { throw Violation("output vanished") }
        let added = UnsafeRawBufferPointer(rebasing: output[audited...])
        audited = output.count
        try audit.take(added, content: { UnsafeRawBufferPointer(self.requests[Int($0)].content) }) {
            self.expectedFields($0)
        }
        if !isPartlyConsumed, audit.answers > ClientSession.answerLimit {
            throw Violation("\(audit.answers) bytes of answers are unread")
        }
        for index in 0..<session.events.count { try take(session.events[index]) }
        session.events.removeAll()
        guard session.openStreams == open else {
            throw Violation("\(session.openStreams) streams, not \(open)")
        }
        if let broken = session.brokenInvariant() { throw Violation(broken) }
    }

    private func expectedFields(_ tag: UInt32) -> [String] {
        [
            ":method: POST", ":scheme: https", ":path: /3/device/\(tag)",
            "apns-topic: \(Self.topicNames[Int(tag) % Self.topicNames.count])",
            "authorization: bearer \(requests[Int(tag)].token)", "apns-id: \(tag)",
        ]
    }

    private func take(_ event: ClientEvent) throws(Violation) {
        switch event.kind {
        case .capacityChanged, .pingAnswered: return
        case .goAway:
            goAwayEvents += 1
            return
        case .response, .failed: break
        }
        let tag = Int(event.tag)
        guard tag < requests.count, !requests[tag].hasEnded else {
            throw Violation("an event for request \(tag)")
        }
        let stream = requests[tag].stream
        if event.kind == .response {
            let answer = server.answers[stream] ?? ServerModel.Answer()
            // After an error the model has read more than the session.
            let isCut = event.isCut || failure != nil || answer.windowUsed > 65_535
            let content = answer.body.prefix(
                isCut ? event.body.count : ClientSession.maximumResponseBody)
            guard answer.status == Int(event.status), answer.status != 0, areEqual(event.body, content),
                event.isCut || answer.hasEnded
            else {
                throw Violation(
                    "stream \(stream): \(event.status), \(event.body.count) bytes; sent: \(answer)")
            }
            if event.status != 403 { isAuthenticated = true }
        } else if event.processed == .no {
            guard
                server.resets[stream] == 7 || stream > server.lastAccepted || isUnsent(stream)
                    || (failure != nil && !hasLeft(stream))
            else {
                throw Violation("stream \(stream) counts as not processed")
            }
        } else if event.code == HTTP2ErrorCode.connectError.rawValue, server.resets[stream] == nil,
            isUnsent(stream)
        {
            throw Violation("stream \(stream) never left and counts as unknown")
        }
        requests[tag].hasEnded = true
        requests[tag].content.deallocate()
        open -= 1
    }

    /// Whether the end of the request has left.
    private func hasLeft(_ stream: UInt32) -> Bool {
        audit.streams[stream]?.end.map { $0 <= consumed } ?? false
    }

    /// Whether the end of the request hasn't left and no answer has begun. After an error the model has read
    /// more than the session.
    private func isUnsent(_ stream: UInt32) -> Bool {
        !hasLeft(stream) && (server.answers[stream]?.status ?? 0) == 0
    }

    private func end() throws(Violation) {
        if let failure {
            guard audit.goAways == [failure.code.rawValue] else {
                throw Violation("GOAWAY with \(audit.goAways) after \(failure)")
            }
            try staysFailed(failure)
        } else {
            guard audit.goAways.isEmpty else { throw Violation("GOAWAY without an error") }
            guard audit.unacknowledged.isEmpty else { throw Violation("SETTINGS without their ACK") }
            guard audit.answeredPings == server.pings else { throw Violation("a PING without its answer") }
            guard goAwayEvents == server.goAways else { throw Violation("a GOAWAY was not reported") }
            guard !server.isCompressionBroken else {
                throw Violation("a header block that nghttp2 refuses was taken")
            }
            for request in requests where !request.hasEnded {
                guard server.answers[request.stream]?.hasEnded != true, server.resets[request.stream] == nil
                else {
                    throw Violation("stream \(request.stream) was ended and is open")
                }
            }
        }
        if !wasAbandoned { try abandon() }
        guard requests.allSatisfy(\.hasEnded) else { throw Violation("a request did not end") }
    }

    /// Checks that the same input has no effect after an error.
    private func staysFailed(_ failure: HTTP2ConnectionError) throws(Violation) {
        guard wire.withUnsafeBytes({ feed($0).error }) == failure else {
            throw Violation("input is taken after an error")
        }
        try submit(10)
        try check()
    }
}
