import EventLoop

/// The frames that concern the connection, and those that only control a stream.
extension ClientSession {
    /// Counts an answer of `count` bytes before it is written, because a server that asks without reading would fill
    /// our memory.
    mutating func countAnswer(_ count: Int) throws(HTTP2ConnectionError) {
        let unread = unreadAnswers.add(
            count, endingAt: output.endPosition &+ UInt64(count), taken: output.frontPosition)
        guard unread <= Self.maximumUnreadAnswers else {
            throw HTTP2ConnectionError(
                .enhanceYourCalm, "more than \(Self.maximumUnreadAnswers) bytes of answers are unread")
        }
    }

    mutating func countControlFrame() throws(HTTP2ConnectionError) {
        controlFrames += 1
        guard controlFrames <= Self.maximumControlFrames else {
            throw HTTP2ConnectionError(
                .enhanceYourCalm, "more than \(Self.maximumControlFrames) control frames without an answer")
        }
    }

    mutating func receiveSettings(
        _ header: FrameHeader, _ payload: UnsafeRawBufferPointer
    ) throws(HTTP2ConnectionError) {
        guard header.stream == 0 else { throw HTTP2ConnectionError(.protocolError, "SETTINGS on a stream") }
        try countControlFrame()
        if header.flags & FrameFlag.acknowledgement != 0 {
            guard payload.isEmpty else {
                throw HTTP2ConnectionError(.frameSizeError, "a SETTINGS acknowledgement with content")
            }
            return
        }
        guard payload.count % 6 == 0 else {
            throw HTTP2ConnectionError(.frameSizeError, "SETTINGS of \(payload.count) bytes")
        }
        // Without a value the server sets no limit (RFC 9113 §6.5.2), so only our limit applies.
        if peerMaximumStreams == nil { peerMaximumStreams = .max }
        var windows = InitialWindows()
        let fault = applySettings(payload, windows: &windows)
        // Values before the fault were already in force, and may be the first fault themselves.
        try changeInitialWindow(windows)
        if let fault { throw fault }
        try countAnswer(FrameHeader.size)
        let room = output.prepare(FrameHeader.size)
        FrameHeader(length: 0, type: FrameType.settings, flags: FrameFlag.acknowledgement, stream: 0)
            .write(to: room.baseAddress!)
        output.commit(FrameHeader.size)
        sendBlocked()
        events.append(ClientEvent(.capacityChanged))
    }

    /// Values of INITIAL_WINDOW_SIZE in one frame.
    private struct InitialWindows {
        var last: Int64?
        var highest: Int64 = 0

        mutating func apply(_ value: UInt32) {
            last = Int64(value)
            highest = max(highest, Int64(value))
        }
    }

    /// Applies the values in their order (RFC 9113 §6.5.3), up to the first that is not permitted.
    private mutating func applySettings(
        _ payload: UnsafeRawBufferPointer, windows: inout InitialWindows
    ) -> HTTP2ConnectionError? {
        for offset in stride(from: 0, to: payload.count, by: 6) {
            let name = payload.baseAddress!.bigEndian16(at: offset)
            let value = payload.baseAddress!.bigEndian32(at: offset + 2)
            switch name {
            case SettingName.headerTableSize: encoder.peerTableSize(value)
            case SettingName.maxConcurrentStreams: peerMaximumStreams = value
            case SettingName.enablePush:
                guard value == 0 else {
                    return HTTP2ConnectionError(.protocolError, "ENABLE_PUSH in the server's SETTINGS")
                }
            case SettingName.initialWindowSize:
                guard value <= 0x7fff_ffff else {
                    return HTTP2ConnectionError(.flowControlError, "INITIAL_WINDOW_SIZE of \(value)")
                }
                windows.apply(value)
            case SettingName.maxFrameSize:
                guard value >= 16_384, value <= 16_777_215 else {
                    return HTTP2ConnectionError(.protocolError, "MAX_FRAME_SIZE of \(value)")
                }
                peerMaximumFrame = Int(value)
            default: break
            }
        }
        return nil
    }

    /// Applies a new initial window. A change applies to the open streams too, whose windows may become negative (RFC
    /// 9113 §6.9.2). Any value of the frame that raises a window over 2³¹-1 is an error, even when a later value lowers
    /// it again. The highest value shows the error, and the last one stays, so a single pass serves a frame full of
    /// values.
    private mutating func changeInitialWindow(_ windows: InitialWindows) throws(HTTP2ConnectionError) {
        guard let last = windows.last else { return }
        let difference = last - peerInitialWindow
        let rise = windows.highest - peerInitialWindow
        peerInitialWindow = last
        guard difference != 0 || rise > 0 else { return }
        windowPasses += 1
        var index = streams.oldest
        while index >= 0 {
            let window = Int64(streams[index].sendWindow)
            guard window + rise <= 0x7fff_ffff else {
                throw HTTP2ConnectionError(
                    .flowControlError, "INITIAL_WINDOW_SIZE overflows a stream's window")
            }
            streams[index].sendWindow = Int32(clamping: window + difference)
            index = streams[index].next
        }
    }

    mutating func receiveWindowUpdate(
        _ header: FrameHeader, _ payload: UnsafeRawBufferPointer
    ) throws(HTTP2ConnectionError) {
        guard payload.count == 4 else {
            throw HTTP2ConnectionError(.frameSizeError, "WINDOW_UPDATE of \(payload.count) bytes")
        }
        let increment = Int64(payload.baseAddress!.bigEndian32() & 0x7fff_ffff)
        if header.stream == 0 {
            guard increment > 0 else { throw HTTP2ConnectionError(.protocolError, "WINDOW_UPDATE by 0") }
            try countControlFrame()
            connectionSendWindow += increment
            guard connectionSendWindow <= 0x7fff_ffff else {
                throw HTTP2ConnectionError(
                    .flowControlError, "WINDOW_UPDATE overflows the connection's window")
            }
            sendBlocked()
            events.append(ClientEvent(.capacityChanged))
            return
        }
        try checkStream(header.stream, "WINDOW_UPDATE")
        try countControlFrame()
        guard let index = streams.find(header.stream) else { return }
        let window = Int64(streams[index].sendWindow) + increment
        guard increment > 0, window <= 0x7fff_ffff else {
            let code: HTTP2ErrorCode = increment == 0 ? .protocolError : .flowControlError
            writeReset(header.stream, code)
            fail(index, failed: .unknown, code: code, isStreamError: true)
            return
        }
        streams[index].sendWindow = Int32(clamping: window)
        sendBlocked()
    }

    mutating func receiveReset(
        _ header: FrameHeader, _ payload: UnsafeRawBufferPointer
    ) throws(HTTP2ConnectionError) {
        try checkStream(header.stream, "RST_STREAM")
        guard payload.count == 4 else {
            throw HTTP2ConnectionError(.frameSizeError, "RST_STREAM of \(payload.count) bytes")
        }
        try countControlFrame()
        guard let index = streams.find(header.stream) else { return }
        let code = HTTP2ErrorCode(rawValue: payload.baseAddress!.bigEndian32())
        resetsReceived += 1
        // RFC 9113 §8.7: REFUSED_STREAM promises that the request was not processed.
        fail(
            index, failed: code == .refusedStream ? .no : .unknown, code: code, isStreamError: true)
    }

    mutating func receivePing(
        _ header: FrameHeader, _ payload: UnsafeRawBufferPointer
    ) throws(HTTP2ConnectionError) {
        guard header.stream == 0 else { throw HTTP2ConnectionError(.protocolError, "PING on a stream") }
        guard payload.count == 8 else {
            throw HTTP2ConnectionError(.frameSizeError, "PING of \(payload.count) bytes")
        }
        // The acknowledgement of our PING is no flood, however many a quiet connection has had.
        if header.flags & FrameFlag.acknowledgement != 0, pingsUnanswered > 0 {
            pingsUnanswered -= 1
        } else {
            try countControlFrame()
        }
        if header.flags & FrameFlag.acknowledgement != 0 {
            var event = ClientEvent(.pingAnswered)
            event.code = payload.baseAddress!.bigEndian32(at: 4)
            events.append(event)
            return
        }
        try countAnswer(FrameHeader.size + 8)
        let room = output.prepare(FrameHeader.size)
        FrameHeader(length: 8, type: FrameType.ping, flags: FrameFlag.acknowledgement, stream: 0)
            .write(to: room.baseAddress!)
        output.commit(FrameHeader.size)
        output.append(payload)
    }

    mutating func receiveGoAway(
        _ header: FrameHeader, _ payload: UnsafeRawBufferPointer
    ) throws(HTTP2ConnectionError) {
        guard header.stream == 0 else { throw HTTP2ConnectionError(.protocolError, "GOAWAY on a stream") }
        guard payload.count >= 8 else {
            throw HTTP2ConnectionError(.frameSizeError, "GOAWAY of \(payload.count) bytes")
        }
        try countControlFrame()
        goAwayReceived = true
        // RFC 9113 §6.8: a later GOAWAY never raises the last stream.
        lastAcceptedID = min(lastAcceptedID, payload.baseAddress!.bigEndian32() & 0x7fff_ffff)
        var event = ClientEvent(.goAway)
        event.code = payload.baseAddress!.bigEndian32(at: 4)
        event.body = UnsafeRawBufferPointer(rebasing: payload[8...])
        events.append(event)
        var index = streams.oldest
        while index >= 0 {
            let next = streams[index].next
            if streams[index].id > lastAcceptedID { fail(index, failed: .no, code: .noError) }
            index = next
        }
    }
}
