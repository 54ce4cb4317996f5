import CNghttp2
import EventLoop

/// A GOAWAY frame, and the end of its connection.
public struct ServerGoAway: Sendable, Equatable {
    /// End of the connection after the frame.
    public enum End: Sendable, Equatable {
        /// Closed when the open streams have been finished.
        case drained
        /// Closed at once.
        case now
        /// A second GOAWAY follows the first, which names the highest stream. The end is that of ``drained``.
        case repeated
    }

    /// A code of RFC 9113 §7; 0 for a planned end.
    public var errorCode: UInt32 = 0
    /// Text sent with the GOAWAY; APNs puts a JSON object with `reason` there.
    public var debugData = ""
    /// Highest stream that is reported as processed; higher streams are closed without an answer. Nil: the newest stream.
    public var lastStream: Int32?
    public var end = End.drained

    public init(errorCode: UInt32 = 0, debugData: String = "") {
        self.errorCode = errorCode
        self.debugData = debugData
    }
}

/// Controls for the handler of a connection. Loop's thread only.
extension ServerConnection {
    /// SETTINGS_MAX_CONCURRENT_STREAMS, in force at once. The last change of a turn is sent with its end, or when the
    /// connection can be written again. Streams above the limit meet ``ServerOptions/excessStreams``.
    public var maximumConcurrentStreams: UInt32 {
        get { streamLimit.current }
        set {
            guard newValue != streamLimit.current else { return }
            streamLimit.current = newValue
            if session != nil { requestTurnEnd() }
        }
    }

    /// Submits SETTINGS with the stream limit, if the client does not have it. At most one frame a turn, so that limits
    /// that replace each other within a turn cost the client no acknowledgements.
    func submitStreamLimit() {
        guard let session, streamLimit.isDue else { return }
        var entry = setting(NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, ServerSessionFactory.unlimited)
        nghttp2_submit_settings(session, noFlags, &entry, 1)
        announceStreamLimit()
        guard streamLimit.isOverdue else { return }
        var end = ServerGoAway(errorCode: UInt32(NGHTTP2_SETTINGS_TIMEOUT.rawValue))
        end.end = .now
        goAway(end)
    }

    /// Records that the SETTINGS just submitted carry the stream limit.
    func announceStreamLimit() {
        streamLimit.announce()
        outputFilter.replaceLimit(with: streamLimit.current)
    }

    /// Sends GOAWAY. No more streams are accepted, the open ones are finished, then the connection is closed.
    /// - Parameters:
    ///   - errorCode: a code of RFC 9113 §7; 0 for a planned end.
    ///   - debugData: text sent with the GOAWAY; APNs puts a JSON object with `reason` there.
    public func goAway(errorCode: UInt32 = 0, debugData: String = "") {
        goAway(ServerGoAway(errorCode: errorCode, debugData: debugData))
    }

    /// Sends GOAWAY, unless it was sent before. No more streams are accepted.
    public func goAway(_ frame: ServerGoAway) {
        guard state == .open else {
            if state == .handshake { close(.byServer) }
            return
        }
        guard session != nil else {
            earlyGoAway = frame
            return
        }
        state = .draining
        if frame.end == .repeated { submitGoAway(frame, lastStream: Int32.max) }
        lastProcessedStream = frame.lastStream ?? newestStream
        submitGoAway(frame, lastStream: lastProcessedStream)
        if let timer { loop.cancel(timer) }
        timer = loop.schedule(after: options.drainTimeout, handler: self)
        if frame.end == .now { close(.byServer) }
        requestTurnEnd()
    }

    private func submitGoAway(_ frame: ServerGoAway, lastStream: Int32) {
        var debugData = frame.debugData
        debugData.withUTF8 { bytes in
            _ = nghttp2_submit_goaway(
                session, noFlags, lastStream, frame.errorCode, bytes.baseAddress, bytes.count)
        }
    }

    /// The highest stream that the client has opened; 0 before the first.
    public var newestStream: Int32 { table.pointee.lastStream }

    /// Resets a stream (RST_STREAM), for example with 7, REFUSED_STREAM: not processed.
    public func reset(stream: Int32, errorCode: UInt32) {
        guard let session else { return }
        nghttp2_submit_rst_stream(session, noFlags, stream, errorCode)
        requestTurnEnd()
    }

    /// Closes the connection at the end of this turn, without waiting for its streams.
    public func close() { close(.byServer) }

    // MARK: - Disturbances

    /// Whether the connection neither reads nor writes, as one whose packets are lost. Bytes wait until the silence ends.
    /// A client that closes meanwhile ends the connection, whose unread bytes are dropped.
    public var isSilent: Bool {
        get { isSilenced }
        set {
            guard newValue != isSilenced else { return }
            isSilenced = newValue
            resume()
        }
    }

    /// Bytes that are read in a second, at least 1; nil for no limit.
    public var readRate: Int? {
        get { readPace?.bytesPerSecond }
        set {
            guard newValue != readPace?.bytesPerSecond else { return }
            readPace = newValue.map { ReadPace(bytesPerSecond: $0) }
            resume()
        }
    }

    /// Whether the client receives no WINDOW_UPDATE. The credit is sent later, when the windows are opened again.
    public var withholdsWindowUpdates: Bool {
        get { outputFilter.holdsCredit }
        set {
            guard newValue != outputFilter.holdsCredit else { return }
            if newValue {
                outputFilter.holdCredit()
            } else {
                outputFilter.releaseCredit(to: &output)
                requestTurnEnd()
            }
        }
    }

    // MARK: - Called by the session

    /// Whether a further stream exceeds the limit.
    var isAtStreamLimit: Bool { table.pointee.count >= Int(streamLimit.current) }

    func settingsAcknowledged() { streamLimit.acknowledge() }

    /// Refuses a stream above the limit. Returns whether the stream was reset.
    func refuseExcess(_ stream: Int32, endsStream: Bool) -> Bool {
        guard let session, state == .open else { return false }
        let refused = UInt32(NGHTTP2_REFUSED_STREAM.rawValue)
        if options.excessStreams == .goAway, streamLimit.isViolated(open: table.pointee.count) {
            goAway(errorCode: refused, debugData: options.excessDebugData)
            return false
        }
        unsentRefusals += 1
        guard unsentRefusals <= ServerStreamLimit.mostUnsentRefusals else {
            close(.protocolError("too many streams above the limit"))
            return true
        }
        nghttp2_submit_rst_stream(session, noFlags, stream, refused)
        if !endsStream { table.pointee.refusedWithData.append(stream) }
        return true
    }

    /// Answers DATA of the streams whose refusals have been written.
    func answerRefusedData() {
        guard let session else { return }
        for stream in table.pointee.refusedWithData {
            nghttp2_submit_rst_stream(session, noFlags, stream, UInt32(NGHTTP2_STREAM_CLOSED.rawValue))
        }
        table.pointee.refusedWithData.removeAll(keepingCapacity: true)
    }
}

/// Pace at which a connection reads. Pure: times are nanoseconds of the monotonic clock.
struct ReadPace {
    let bytesPerSecond: Int
    /// Time at which the next bytes may be read.
    private var due: UInt64 = 0

    init(bytesPerSecond: Int) { self.bytesPerSecond = max(bytesPerSecond, 1) }

    /// Bytes to read at once: at most those of a tenth of a second.
    var mostBytes: Int { min(max(bytesPerSecond / 10, 1), TLSTransport.maximumRecordSize) }

    /// Counts bytes that were read. Returns the time at which more may be read.
    mutating func read(_ count: Int, now: UInt64) -> UInt64 {
        due = max(due, now) &+ UInt64(count) * 1_000_000_000 / UInt64(bytesPerSecond)
        return due
    }
}
