import EventLoop
import Glibc

/// The client's side of an HTTP/2 connection (RFC 9113) as a state machine: bytes in → events, requests → bytes out.
/// The session touches no socket and no clock: its owner sends ``output`` to the server and passes in the bytes
/// received. Requests carry whole bodies, as pushes do; there is no server push and no priority.
public struct ClientSession: ~Copyable {
    /// Bytes of an answer's content that are kept by default; APNs' answers to pushes have less than 200 bytes.
    public static let maximumResponseBody = 4096
    /// Initial size of windows (RFC 9113 §6.9.2); ours stay there.
    static let defaultWindow: Int64 = 65_535
    /// Bytes of room for a request's header block. The longest legal block needs less than half, with token, topic,
    /// collapse identifier and provider token all uncompressed.
    static let headerBlockRoom = 8192
    static let largestStreamID: UInt32 = 0x7fff_ffff
    /// Highest number of SETTINGS, PING, PRIORITY, empty DATA and the like without an answer in between; more are a
    /// flood.
    static let maximumControlFrames = 10_000
    /// Highest length of a response's header block with its continuations, compressed, in bytes.
    static let maximumHeaderBlock = 65_536
    /// Highest number of bytes of unsent answers to SETTINGS and PING, and of window updates.
    static let maximumUnreadAnswers = 64 * 1024

    /// Limits of a session.
    public struct Configuration: Sendable {
        /// Highest number of streams open at once, whatever the server permits.
        public var maximumStreams = 1000
        /// Whether the session keeps to one stream until an answer shows that the server accepts our credential, for
        /// connections with provider tokens.
        public var waitsForAuthentication = true
        /// Whether ``ClientSession/answerFields`` holds the header fields of answers. Not for pushes, because each
        /// field is copied.
        public var keepsFields = false
        /// Bytes of an answer's content that are kept. Above ``ClientSession/maximumResponseBody`` the window of a
        /// stream is opened anew while content arrives; otherwise it stays at 65,535 bytes.
        public var maximumBody = ClientSession.maximumResponseBody
        /// Id of the first stream, odd. Values other than 1 serve tests of the ids' end.
        var firstStreamID: UInt32 = 1

        public init() {}
    }

    /// Bytes for the server. The owner consumes the bytes that it has sent.
    public var output = ByteQueue(capacity: 64 * 1024)
    /// Events of ``receive(_:)`` and the other calls, in order. The owner removes them after each call.
    public package(set) var events = EventBuffer()

    var encoder: HeaderBlockEncoder
    var decoder: HeaderBlockDecoder
    /// Regular header fields of the answer that began last, when they are kept; empty otherwise.
    public internal(set) var answerFields: [AnswerField] = []
    var streams: ClientStreamTable
    let configuration: Configuration

    var nextID: UInt32 = 1
    var connectionSendWindow = Self.defaultWindow
    var connectionReceiveWindow = Self.defaultWindow
    var receivedSinceUpdate: Int64 = 0
    var peerInitialWindow = Self.defaultWindow
    var peerMaximumFrame = FrameHeader.defaultMaximumPayload
    var peerMaximumStreams: UInt32?
    var authenticated: Bool
    var lastAcceptedID = Self.largestStreamID
    var goAwayReceived = false
    var controlFrames = 0
    var pingsUnanswered = 0
    /// Number of answers to requests that had expired: the server works, if slowly.
    var lateAnswers: UInt64 = 0
    /// Number of RST_STREAM that ended an open stream.
    var resetsReceived: UInt64 = 0
    /// Answers to the server's frames that lie in ``output``.
    var unreadAnswers = UnreadAnswers(limit: ClientSession.maximumUnreadAnswers)
    /// Whether any request has expired, whose bytes may still be under way.
    private var hasExpiredRequest = false
    /// Number of passes over all streams for a change of INITIAL_WINDOW_SIZE, so that tests can count them.
    var windowPasses = 0
    /// Error that ended the session; nothing is received any more. Nil while there is none.
    var failure: HTTP2ConnectionError?
    var blockedStreams: [UInt32] = []
    var collectedBodies: [UInt32: [UInt8]] = [:]
    /// Contents of answers that events point to.
    var finishedBodies: [[UInt8]] = []

    /// A header block that continues: its stream, and whether the stream ends with it.
    struct PendingBlock {
        var stream: UInt32
        var endStream: Bool
    }
    var pendingBlock: PendingBlock?
    var pendingBlockBytes = ByteQueue(capacity: 256)

    /// Begins a connection: the preface and our SETTINGS are in ``output``.
    public init(configuration: Configuration, fields: StableFields) {
        self.configuration = configuration
        encoder = HeaderBlockEncoder(fields: fields)
        decoder = HeaderBlockDecoder(keepsFields: configuration.keepsFields)
        streams = ClientStreamTable(streams: configuration.maximumStreams)
        nextID = configuration.firstStreamID
        authenticated = !configuration.waitsForAuthentication
        let preface: StaticString = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        output.append(UnsafeRawBufferPointer(start: preface.utf8Start, count: preface.utf8CodeUnitCount))
        writeSettings([
            (SettingName.enablePush, 0),
            (SettingName.maxHeaderListSize, UInt32(HeaderBlockDecoder.maximumHeaderListSize)),
        ])
    }

    // MARK: State

    /// Number of open streams.
    public var openStreams: Int { streams.count }

    /// Highest number of streams by the server's limit and ours; 0 until its SETTINGS have arrived.
    public var streamLimit: Int {
        guard let peerMaximumStreams else { return 0 }
        let limit = min(Int(peerMaximumStreams), configuration.maximumStreams)
        return authenticated ? limit : min(limit, 1)
    }

    /// Number of requests that may be submitted now, as far as streams are concerned.
    public var availableStreams: Int {
        canOpenStreams ? max(0, streamLimit - streams.count) : 0
    }

    /// Whether streams may be opened. False after GOAWAY, after an error, and when the stream ids are used up: the
    /// connection then only ends its open streams.
    public var canOpenStreams: Bool {
        !goAwayReceived && failure == nil
            && nextID <= Self.largestStreamID - UInt32(2 * streams.capacity)
    }

    /// Whether the server has answered, refused or reset every request. Otherwise a request may still arrive there after
    /// its end.
    public var isSettled: Bool { streams.count == 0 && !hasExpiredRequest }

    /// Whether content of a request may wait for the server's windows.
    var hasBlockedStreams: Bool { !blockedStreams.isEmpty }

    /// Number of streams that may be opened before the ids are used up (RFC 9113 §5.1.1).
    public var remainingStreams: Int {
        max(0, (Int(Self.largestStreamID) - 2 * streams.capacity - Int(nextID)) / 2)
    }

    /// Number of content bytes that the connection's window accepts now.
    public var sendWindow: Int { Int(max(connectionSendWindow, 0)) }

    /// Deadline of the oldest open stream; nil when none is open. Deadlines rise from one request to the next.
    public var oldestDeadline: UInt64? {
        streams.oldest >= 0 ? streams[streams.oldest].deadline : nil
    }

    // MARK: Requests

    /// Result of submitting a request.
    public enum SubmitResult: Equatable, Sendable {
        /// The request's frames are in ``output``, apart from content that the server's windows hold back.
        case submitted
        /// No stream is free, or the window does not accept the content. Nothing was written.
        case noCapacity
        /// The header fields are longer than a request of ours can be. The session can't be used any longer, because
        /// its header table is out of step.
        case headersTooLarge
    }

    /// Frames a request: HEADERS with the fields that `encode` writes, and one DATA frame with `body`.
    ///
    /// - Parameters:
    ///   - tag: the owner's mark, returned with the event that ends the request.
    ///   - body: copied once, at once, unless the server's windows are narrower. Stays valid until then, see
    ///     ``forEachUnsent(_:)``.
    ///   - deadline: nanoseconds of the monotonic clock, not lower than that of the request before.
    public mutating func submit(
        tag: UInt32, body: UnsafeRawBufferPointer, deadline: UInt64,
        encode: (inout HeaderBlockEncoder) -> Void
    ) -> SubmitResult {
        guard availableStreams > 0, connectionSendWindow >= body.count || body.count > Self.defaultWindow
        else {
            return .noCapacity
        }
        let id = streams.nextUsable(nextID)
        let room = output.prepare(2 * FrameHeader.size + Self.headerBlockRoom + body.count)
        let start = room.baseAddress!
        let block = start + FrameHeader.size
        encoder.start(at: block, capacity: Self.headerBlockRoom)
        encode(&encoder)
        guard !encoder.overflowed else {
            // Later blocks would refer to entries that the server never received.
            failure = HTTP2ConnectionError(.internalError, "a request's header fields are too long")
            goAway(.internalError)
            return .headersTooLarge
        }
        let blockLength = encoder.finish(from: block)
        let endStream = body.isEmpty ? FrameFlag.endStream : 0
        FrameHeader(
            length: blockLength, type: FrameType.headers, flags: FrameFlag.endHeaders | endStream, stream: id
        ).write(to: start)
        output.commit(FrameHeader.size + blockLength)
        nextID = id + 2

        var cell = ClientStreamTable.Cell()
        cell.id = id
        cell.tag = tag
        cell.deadline = deadline
        cell.sendWindow = Int32(clamping: peerInitialWindow)
        cell.receiveWindow = Int32(Self.defaultWindow)
        cell.unsent = body
        if body.isEmpty { cell.outputEnd = output.endPosition }
        let index = streams.insert(cell)
        if !body.isEmpty, !sendBody(index) {
            blockedStreams.append(id)
            // Streams that ended while they waited are dropped, even if a server never opens a window.
            if blockedStreams.count > streams.capacity { dropEndedBlocked() }
        }
        return .submitted
    }

    /// Frames the part of a stream's content that the windows accept. Returns true when all of it is framed.
    mutating func sendBody(_ index: Int32) -> Bool {
        while true {
            let cell = streams[index]
            let chunk = min(
                cell.unsent.count, peerMaximumFrame,
                Int(max(0, min(Int64(cell.sendWindow), connectionSendWindow))))
            guard chunk > 0 else { return false }
            let last = chunk == cell.unsent.count
            let room = output.prepare(FrameHeader.size + chunk)
            FrameHeader(
                length: chunk, type: FrameType.data, flags: last ? FrameFlag.endStream : 0, stream: cell.id
            ).write(to: room.baseAddress!)
            memcpy(room.baseAddress! + FrameHeader.size, cell.unsent.baseAddress!, chunk)
            output.commit(FrameHeader.size + chunk)
            connectionSendWindow -= Int64(chunk)
            streams[index].sendWindow -= Int32(truncatingIfNeeded: chunk)
            streams[index].unsent = UnsafeRawBufferPointer(rebasing: cell.unsent[chunk...])
            if last {
                streams[index].outputEnd = output.endPosition
                return true
            }
        }
    }

    /// Calls `body` with the tag of each request whose content isn't framed yet. Its owner must not move the content.
    func forEachUnsent(_ body: (_ tag: UInt32) -> Void) {
        for id in blockedStreams { if let index = streams.find(id) { body(streams[index].tag) } }
    }

    private mutating func dropEndedBlocked() {
        var still: [UInt32] = []
        for id in blockedStreams where streams.find(id) != nil { still.append(id) }
        blockedStreams = still
    }

    /// Frames more of the content that waited for a window.
    mutating func sendBlocked() {
        guard !blockedStreams.isEmpty else { return }
        var still: [UInt32] = []
        for id in blockedStreams {
            guard let index = streams.find(id) else { continue }
            if !sendBody(index) { still.append(id) }
        }
        blockedStreams = still
    }

    /// Resets the streams whose deadline has passed. Each without a status ends as ``ClientEvent/Kind/failed`` with
    /// unknown processing and the code CANCEL.
    ///
    /// - Parameters:
    ///   - suspect: deadlines above this count as suspect.
    ///   - position: end of the output that the server's system has acknowledged.
    public mutating func expire(
        now: UInt64, above suspect: UInt64 = 0, arrivedThrough position: UInt64 = .max
    ) -> Expiry {
        var expired = Expiry()
        while streams.oldest >= 0, streams[streams.oldest].deadline <= now {
            let index = streams.oldest
            if streams[index].status == 0 { hasExpiredRequest = true }
            expired.all += 1
            if streams[index].deadline > suspect { expired.suspect += 1 }
            // The reset ends a request whose content waits for a window. The server never has such a request whole.
            if streams[index].unsent.isEmpty, streams[index].outputEnd > position { expired.underWay += 1 }
            writeReset(streams[index].id, .cancel)
            fail(index, failed: .unknown, code: .cancel)
        }
        return expired
    }

    /// Numbers of requests that ``expire(now:above:arrivedThrough:)`` ended.
    public struct Expiry: Sendable, Equatable {
        /// All expired requests.
        public var all = 0
        /// Requests with a suspect deadline.
        public var suspect = 0
        /// Whole requests that the server's system may not have. They would arrive after their end.
        public var underWay = 0
    }

    /// Ends every open stream, because the connection is gone. A stream is not processed when the end of its request
    /// was never sent or a GOAWAY excluded it. Otherwise the processing is unknown.
    ///
    /// - Parameters:
    ///   - position: end of the output that may have been sent, by ``EventLoop/ByteQueue/endPosition``; nil means as
    ///     far as it was consumed.
    ///   - code: CONNECT_ERROR when the other side ended the connection, otherwise CANCEL.
    public mutating func abandonStreams(
        leftThrough position: UInt64? = nil, code: HTTP2ErrorCode = .connectError
    ) {
        let position = position ?? output.frontPosition
        while streams.oldest >= 0 {
            let processed = wasProcessed(streams[streams.oldest], leftThrough: position)
            fail(streams.oldest, failed: processed, code: code)
        }
        blockedStreams.removeAll()
    }

    /// Returns whether the server may have acted on a request, if it has the output up to `position`.
    private func wasProcessed(
        _ cell: ClientStreamTable.Cell, leftThrough position: UInt64
    ) -> ClientEvent.Processed {
        cell.outputEnd > position ? .no : .unknown
    }

    /// Writes a PING whose acknowledgement is reported as ``ClientEvent/Kind/pingAnswered`` with the same number.
    public mutating func ping(_ number: UInt32) {
        pingsUnanswered += 1
        let room = output.prepare(FrameHeader.size + 8)
        FrameHeader(length: 8, type: FrameType.ping, flags: 0, stream: 0).write(to: room.baseAddress!)
        let payload = room.baseAddress! + FrameHeader.size
        payload.storeBytes(of: 0, as: UInt32.self)
        payload.storeBytes(of: number.bigEndian, toByteOffset: 4, as: UInt32.self)
        output.commit(FrameHeader.size + 8)
    }

    /// Writes a GOAWAY, which reports to the server that the connection ends, and why.
    public mutating func goAway(_ code: HTTP2ErrorCode) {
        let room = output.prepare(FrameHeader.size + 8)
        FrameHeader(length: 8, type: FrameType.goAway, flags: 0, stream: 0).write(to: room.baseAddress!)
        let payload = room.baseAddress! + FrameHeader.size
        payload.storeBytes(of: 0, as: UInt32.self)
        payload.storeBytes(of: code.rawValue.bigEndian, toByteOffset: 4, as: UInt32.self)
        output.commit(FrameHeader.size + 8)
    }

    // MARK: Inside

    /// Ends a stream before the end of its answer. A status that has arrived is the answer all the same, because a push
    /// that was accepted must not be repeated.
    /// - Parameter isStreamError: the server failed this request, and not its connection.
    mutating func fail(
        _ index: Int32, failed processed: ClientEvent.Processed, code: HTTP2ErrorCode,
        isStreamError: Bool = false
    ) {
        if streams[index].status != 0 { return finishCollected(index, isCut: true) }
        var event = ClientEvent(.failed)
        event.isStreamError = isStreamError
        event.tag = streams[index].tag
        event.code = code.rawValue
        event.processed = streams[index].id > lastAcceptedID ? .no : processed
        release(index)
        events.append(event)
    }

    mutating func release(_ index: Int32) {
        if streams[index].collectsBody { collectedBodies[streams[index].id] = nil }
        streams.remove(index)
    }

    mutating func writeReset(_ id: UInt32, _ code: HTTP2ErrorCode) {
        writeWord(type: FrameType.reset, stream: id, code.rawValue)
    }

    mutating func writeWord(type: UInt8, stream: UInt32, _ word: UInt32) {
        let room = output.prepare(FrameHeader.size + 4)
        FrameHeader(length: 4, type: type, flags: 0, stream: stream).write(to: room.baseAddress!)
        room.baseAddress!.storeBytes(of: word.bigEndian, toByteOffset: FrameHeader.size, as: UInt32.self)
        output.commit(FrameHeader.size + 4)
    }

    private mutating func writeSettings(_ settings: [(UInt16, UInt32)]) {
        let room = output.prepare(FrameHeader.size + 6 * settings.count)
        var cursor = room.baseAddress!
        FrameHeader(length: 6 * settings.count, type: FrameType.settings, flags: 0, stream: 0).write(
            to: cursor)
        cursor += FrameHeader.size
        for (name, value) in settings {
            cursor.storeBytes(of: name.bigEndian, as: UInt16.self)
            cursor.storeBytes(of: value.bigEndian, toByteOffset: 2, as: UInt32.self)
            cursor += 6
        }
        output.commit(FrameHeader.size + 6 * settings.count)
    }
}

/// Events in a buffer that is kept from one call to the next.
public struct EventBuffer: ~Copyable {
    private var base: UnsafeMutablePointer<ClientEvent>
    private var capacity = 256
    /// Number of events.
    public private(set) var count = 0

    init() {
        base = .allocate(capacity: capacity)
    }

    deinit {
        base.deallocate()
    }

    /// Event at an index below ``count``, in the order of arrival.
    public subscript(_ index: Int) -> ClientEvent { base[index] }

    /// All events in order, valid until the buffer is changed.
    public var all: UnsafeBufferPointer<ClientEvent> { UnsafeBufferPointer(start: base, count: count) }

    /// Removes all events and keeps the storage.
    public mutating func removeAll() {
        count = 0
    }

    mutating func append(_ event: ClientEvent) {
        if count == capacity {
            let grown = UnsafeMutablePointer<ClientEvent>.allocate(capacity: capacity * 2)
            grown.moveInitialize(from: base, count: count)
            base.deallocate()
            base = grown
            capacity *= 2
        }
        (base + count).initialize(to: event)
        count += 1
    }
}
