import CNghttp2

/// Callbacks and options of nghttp2 that all sessions of a listener share.
final class ServerSessionFactory {
    private let callbacks: OpaquePointer
    private let option: OpaquePointer
    private let options: ServerOptions

    /// Stream limit that nghttp2 enforces: none, because the connection enforces its own (``ServerStreamLimit``).
    static let unlimited = UInt32(Int32.max)

    init(options: ServerOptions) {
        var callbacks: OpaquePointer?
        var option: OpaquePointer?
        guard nghttp2_session_callbacks_new(&callbacks) == 0, nghttp2_option_new(&option) == 0,
            let callbacks, let option
        else { fatalError("out of memory") }
        self.callbacks = callbacks
        self.option = option
        self.options = options
        nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, beginHeaders)
        nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, frameReceived)
        nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, dataReceived)
        nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, streamClosed)
        nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, invalidFrameReceived)
        if options.requestParts.contains(.headers) {
            nghttp2_session_callbacks_set_on_header_callback(callbacks, headerReceived)
        }
        // Closed streams would be kept for the priority tree only.
        nghttp2_option_set_no_closed_streams(option, 1)
        nghttp2_option_set_stream_reset_rate_limit(option, options.resetBurst, options.resetRatePerSecond)
        if !options.checksMessages { nghttp2_option_set_no_http_messaging(option, 1) }
    }

    deinit {
        nghttp2_option_del(option)
        nghttp2_session_callbacks_del(callbacks)
    }

    /// Creates a session that reports to `table`, which must outlive it, with its first SETTINGS submitted. Their stream
    /// limit is ``unlimited``; the connection replaces it.
    func makeSession(table: UnsafeMutablePointer<ServerStreamTable>) -> OpaquePointer? {
        var session: OpaquePointer?
        guard nghttp2_session_server_new2(&session, callbacks, table, option) == 0, let session else {
            return nil
        }
        let settings = [
            setting(NGHTTP2_SETTINGS_HEADER_TABLE_SIZE, options.headerTableSize),
            setting(NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, Self.unlimited),
            setting(NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, options.initialWindowSize),
            setting(NGHTTP2_SETTINGS_MAX_FRAME_SIZE, options.maximumFrameSize),
            setting(NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, options.maximumHeaderListSize),
        ]
        guard nghttp2_submit_settings(session, noFlags, settings, settings.count) == 0,
            options.connectionWindowSize <= 65_535
                || nghttp2_session_set_local_window_size(session, noFlags, 0, options.connectionWindowSize)
                    == 0
        else {
            nghttp2_session_del(session)
            return nil
        }
        return session
    }
}

/// nghttp2's flags are octets, but its constants are not.
let noFlags = UInt8(NGHTTP2_FLAG_NONE.rawValue)
private let endStream = UInt8(NGHTTP2_FLAG_END_STREAM.rawValue)
private let headersType = UInt8(NGHTTP2_HEADERS.rawValue)
private let dataType = UInt8(NGHTTP2_DATA.rawValue)
private let settingsType = UInt8(NGHTTP2_SETTINGS.rawValue)
private let acknowledgement = UInt8(NGHTTP2_FLAG_ACK.rawValue)

func setting(_ identifier: nghttp2_settings_id, _ value: UInt32) -> nghttp2_settings_entry {
    nghttp2_settings_entry(settings_id: Int32(identifier.rawValue), value: value)
}

// MARK: - Callbacks
//
// The callbacks run inside nghttp2_session_mem_recv and _mem_send, on the loop's thread. `userData` is the
// ServerStreamTable, which the connection frees only after the session. The session itself must not be freed within
// them.

private typealias Table = UnsafeMutablePointer<ServerStreamTable>
private typealias Slot = UnsafeMutablePointer<ServerStreamSlot>

@inline(__always)
private func table(_ userData: UnsafeMutableRawPointer?) -> Table {
    userData.unsafelyUnwrapped.assumingMemoryBound(to: ServerStreamTable.self)
}

@inline(__always)
private func slot(_ stream: Int32, _ table: Table, _ session: OpaquePointer?) -> Slot? {
    if table.pointee.currentStream == stream { return table.pointee.current }
    return nghttp2_session_get_stream_user_data(session, stream)?.assumingMemoryBound(
        to: ServerStreamSlot.self)
}

private func beginHeaders(
    session: OpaquePointer?, frame: UnsafePointer<nghttp2_frame>?, userData: UnsafeMutableRawPointer?
) -> Int32 {
    let header = frame.unsafelyUnwrapped.pointee.headers
    // Trailers begin in the same way, and are ignored.
    guard header.cat == NGHTTP2_HCAT_REQUEST else { return 0 }
    let table = table(userData)
    if let connection = table.pointee.connection, connection.isAtStreamLimit {
        return connection.refuseExcess(header.hd.stream_id, endsStream: header.hd.flags & endStream != 0)
            ? Int32(NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE.rawValue) : 0
    }
    let slot = table.pointee.open(header.hd.stream_id)
    return nghttp2_session_set_stream_user_data(session, header.hd.stream_id, slot)
}

private func headerReceived(
    session: OpaquePointer?, frame: UnsafePointer<nghttp2_frame>?, name: UnsafePointer<UInt8>?,
    nameCount: Int,
    value: UnsafePointer<UInt8>?, valueCount: Int, flags: UInt8, userData: UnsafeMutableRawPointer?
) -> Int32 {
    let frame = frame.unsafelyUnwrapped
    guard frame.pointee.headers.cat == NGHTTP2_HCAT_REQUEST,
        let slot = slot(frame.pointee.hd.stream_id, table(userData), session),
        let request = slot.pointee.request
    else { return 0 }
    if !request.pointee.append(
        name: name.unsafelyUnwrapped, nameCount, value: value.unsafelyUnwrapped, valueCount)
    {
        slot.pointee.isOversized = true
    }
    return 0
}

private func frameReceived(
    session: OpaquePointer?, frame: UnsafePointer<nghttp2_frame>?, userData: UnsafeMutableRawPointer?
) -> Int32 {
    let header = frame.unsafelyUnwrapped.pointee.hd
    guard header.type == headersType || header.type == dataType, header.flags & endStream != 0 else {
        if header.type == settingsType, header.flags & acknowledgement != 0 {
            table(userData).pointee.connection?.settingsAcknowledged()
        }
        return 0
    }
    let table = table(userData)
    guard let slot = slot(header.stream_id, table, session), slot.pointee.phase == .receiving else {
        return 0
    }
    handOver(slot, table)
    return 0
}

private func dataReceived(
    session: OpaquePointer?, flags: UInt8, stream: Int32, bytes: UnsafePointer<UInt8>?, count: Int,
    userData: UnsafeMutableRawPointer?
) -> Int32 {
    let table = table(userData)
    guard let slot = slot(stream, table, session), let request = slot.pointee.request else { return 0 }
    let isWithinLimit =
        table.pointee.parts.contains(.body)
        ? request.pointee.append(body: bytes.unsafelyUnwrapped, count) : request.pointee.count(body: count)
    if !isWithinLimit, slot.pointee.phase == .receiving { handOver(slot, table) }
    return 0
}

private func streamClosed(
    session: OpaquePointer?, stream: Int32, errorCode: UInt32, userData: UnsafeMutableRawPointer?
) -> Int32 {
    let table = table(userData)
    guard let slot = slot(stream, table, session) else { return 0 }
    let phase = slot.pointee.phase
    table.pointee.close(slot)
    if phase == .handedOver { table.pointee.connection?.requestCancelled(stream) }
    return 0
}

private func invalidFrameReceived(
    session: OpaquePointer?, frame: UnsafePointer<nghttp2_frame>?, code: Int32,
    userData: UnsafeMutableRawPointer?
) -> Int32 {
    table(userData).pointee.connection?.lastProtocolError = code
    return 0
}

/// Hands the request to the handler, and frees its storage for reuse after that.
@inline(__always)
private func handOver(_ slot: Slot, _ table: Table) {
    slot.pointee.phase = .handedOver
    if let connection = table.pointee.connection { connection.handOver(slot) }
    table.pointee.releaseStorage(of: slot)
}

/// Passes nghttp2 the next piece of a response's body.
func readResponse(
    session: OpaquePointer?, stream: Int32, buffer: UnsafeMutablePointer<UInt8>?, length: Int,
    flags: UnsafeMutablePointer<UInt32>?, source: UnsafeMutablePointer<nghttp2_data_source>?,
    userData: UnsafeMutableRawPointer?
) -> Int {
    let slot = source.unsafelyUnwrapped.pointee.ptr.assumingMemoryBound(to: ServerStreamSlot.self)
    let count = min(length, slot.pointee.responseCount - slot.pointee.responseSent)
    if count > 0, let response = slot.pointee.response {
        UnsafeMutableRawPointer(buffer.unsafelyUnwrapped).copyMemory(
            from: response + slot.pointee.responseSent, byteCount: count)
    }
    slot.pointee.responseSent += count
    if slot.pointee.responseSent == slot.pointee.responseCount {
        flags.unsafelyUnwrapped.pointee |= NGHTTP2_DATA_FLAG_EOF.rawValue
        // The request was answered before its end, so the client is asked not to send the rest (RFC 9113 §8.1).
        if nghttp2_session_get_stream_remote_close(session, stream) == 0 {
            nghttp2_submit_rst_stream(session, noFlags, stream, UInt32(NGHTTP2_NO_ERROR.rawValue))
        }
    }
    return count
}
