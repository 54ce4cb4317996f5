import EventLoop

extension ClientSession {
    /// Receives bytes from the server: as many whole frames as there are. Returns the number of bytes used; the owner
    /// passes the rest again with the bytes that follow.
    ///
    /// - Throws: an error if the connection can't continue. A GOAWAY with the code is then in ``output``. The owner
    ///   sends it if possible, calls ``abandonStreams(leftThrough:code:)`` and closes. A later call throws the same error.
    public mutating func receive(_ bytes: UnsafeRawBufferPointer) throws(HTTP2ConnectionError) -> Int {
        // Bytes used before the error must not be used a second time.
        if let failure { throw failure }
        finishedBodies.removeAll(keepingCapacity: true)
        guard let base = bytes.baseAddress else { return 0 }
        var used = 0
        do throws(HTTP2ConnectionError) {
            while bytes.count - used >= FrameHeader.size {
                let header = FrameHeader(base + used)
                // "HTTP" would be the beginning of a frame of 4 MB.
                if peerMaximumStreams == nil, (base + used).bigEndian32() == 0x4854_5450 {
                    throw HTTP2ConnectionError(.protocolError, "the server answers in HTTP/1, not in HTTP/2")
                }
                guard header.length <= FrameHeader.defaultMaximumPayload else {
                    throw HTTP2ConnectionError(.frameSizeError, "a frame of \(header.length) bytes")
                }
                guard bytes.count - used - FrameHeader.size >= header.length else { break }
                let payload = UnsafeRawBufferPointer(
                    start: base + used + FrameHeader.size, count: header.length)
                try receive(header, payload)
                used += FrameHeader.size + header.length
            }
        } catch {
            goAway(error.code)
            failure = error
            throw error
        }
        return used
    }

    private mutating func receive(
        _ header: FrameHeader, _ payload: UnsafeRawBufferPointer
    ) throws(HTTP2ConnectionError) {
        if pendingBlock != nil, header.type != FrameType.continuation {
            throw HTTP2ConnectionError(.protocolError, "a header block was not continued")
        }
        if peerMaximumStreams == nil,
            header.type != FrameType.settings || header.flags & FrameFlag.acknowledgement != 0
        {
            throw HTTP2ConnectionError(.protocolError, "the first frame was not SETTINGS")
        }
        switch header.type {
        case FrameType.headers: try receiveHeaders(header, payload)
        case FrameType.data: try receiveData(header, payload)
        case FrameType.settings: try receiveSettings(header, payload)
        case FrameType.windowUpdate: try receiveWindowUpdate(header, payload)
        case FrameType.reset: try receiveReset(header, payload)
        case FrameType.ping: try receivePing(header, payload)
        case FrameType.goAway: try receiveGoAway(header, payload)
        case FrameType.continuation: try receiveContinuation(header, payload)
        case FrameType.pushPromise:
            throw HTTP2ConnectionError(.protocolError, "PUSH_PROMISE although push is disabled")
        case FrameType.priority:
            guard header.stream != 0 else {
                throw HTTP2ConnectionError(.protocolError, "PRIORITY on stream 0")
            }
            // RFC 9113 §6.3 asks for a stream error, §5.4 permits the connection's.
            guard payload.count == 5 else {
                throw HTTP2ConnectionError(.frameSizeError, "PRIORITY of \(payload.count) bytes")
            }
            try countControlFrame()
        default:
            // RFC 9113 §4.1: frames of unknown types are ignored.
            try countControlFrame()
        }
    }

    /// Throws unless the frame's stream is a stream that we opened.
    func checkStream(_ id: UInt32, _ frame: StaticString) throws(HTTP2ConnectionError) {
        guard id != 0, id & 1 == 1, id < nextID else {
            throw HTTP2ConnectionError(.protocolError, "\(frame) on stream \(id), which was never opened")
        }
    }

    /// Strips padding and, in HEADERS, the priority fields (RFC 9113 §6.1, §6.2).
    private func unpadded(
        _ header: FrameHeader, _ payload: UnsafeRawBufferPointer
    ) throws(HTTP2ConnectionError) -> UnsafeRawBufferPointer {
        var start = 0
        var end = payload.count
        if header.flags & FrameFlag.padded != 0 {
            guard let padding = payload.first else {
                throw HTTP2ConnectionError(.frameSizeError, "a padded frame without its pad length")
            }
            start = 1
            end -= Int(padding)
        }
        if header.type == FrameType.headers, header.flags & FrameFlag.priority != 0 {
            start += 5
            guard start <= payload.count else {
                throw HTTP2ConnectionError(.frameSizeError, "HEADERS without their priority fields")
            }
        }
        guard start <= end else {
            throw HTTP2ConnectionError(.protocolError, "padding longer than its frame")
        }
        return UnsafeRawBufferPointer(rebasing: payload[start..<end])
    }

    // MARK: HEADERS, CONTINUATION

    private mutating func receiveHeaders(
        _ header: FrameHeader, _ payload: UnsafeRawBufferPointer
    ) throws(HTTP2ConnectionError) {
        try checkStream(header.stream, "HEADERS")
        let block = try unpadded(header, payload)
        let endStream = header.flags & FrameFlag.endStream != 0
        if header.flags & FrameFlag.endHeaders != 0 {
            try receiveBlock(block, stream: header.stream, endStream: endStream)
            return
        }
        pendingBlock = PendingBlock(stream: header.stream, endStream: endStream)
        pendingBlockBytes.append(block)
    }

    private mutating func receiveContinuation(
        _ header: FrameHeader, _ payload: UnsafeRawBufferPointer
    ) throws(HTTP2ConnectionError) {
        guard let pending = pendingBlock, pending.stream == header.stream else {
            throw HTTP2ConnectionError(.protocolError, "CONTINUATION without a header block")
        }
        try countControlFrame()
        guard pendingBlockBytes.count + payload.count <= Self.maximumHeaderBlock else {
            throw HTTP2ConnectionError(
                .enhanceYourCalm, "a header block over \(Self.maximumHeaderBlock) bytes")
        }
        pendingBlockBytes.append(payload)
        guard header.flags & FrameFlag.endHeaders != 0 else { return }
        pendingBlock = nil
        defer { pendingBlockBytes.removeAll() }
        try receiveBlock(pendingBlockBytes.readable, stream: pending.stream, endStream: pending.endStream)
    }

    private mutating func receiveBlock(
        _ block: UnsafeRawBufferPointer, stream: UInt32, endStream: Bool
    ) throws(HTTP2ConnectionError) {
        // The block is decoded for a closed stream too, because the header table must keep in step.
        let fields: ResponseFields
        do {
            fields = try decoder.decode(block)
        } catch .compression {
            throw HTTP2ConnectionError(.compressionError, "a header block that does not decode")
        } catch {
            throw HTTP2ConnectionError(
                .enhanceYourCalm, "a header list over \(HeaderBlockDecoder.maximumHeaderListSize) bytes")
        }
        guard let index = streams.find(stream) else {
            try countControlFrame()
            lateAnswers += 1
            return
        }
        let isTrailer = streams[index].status != 0
        var isMalformed = fields.isMalformed
        if isTrailer {
            // Trailers end the stream and have no status (RFC 9113 §8.1).
            isMalformed = isMalformed || fields.status != 0 || !endStream
        } else if fields.status >= 100, fields.status < 200, fields.status != 101, !fields.isMalformed,
            !endStream
        {
            try countControlFrame()
            return
        } else {
            isMalformed = isMalformed || fields.status < 200
            // The status of a malformed answer is none.
            streams[index].status = isMalformed ? 0 : fields.status
            streams[index].retryAfterSeconds = fields.retryAfterSeconds
            if fields.uniqueIDCount > 0 { streams.keepUniqueID(decoder.uniqueID(fields), of: index) }
            if configuration.keepsFields { answerFields = decoder.fields }
        }
        if isMalformed {
            writeReset(stream, .protocolError)
            fail(index, failed: .unknown, code: .protocolError, isStreamError: true)
        } else if endStream {
            finishCollected(index)
        }
    }

    // MARK: DATA

    private mutating func receiveData(
        _ header: FrameHeader, _ payload: UnsafeRawBufferPointer
    ) throws(HTTP2ConnectionError) {
        try checkStream(header.stream, "DATA")
        // RFC 9113 §6.9.1: the whole frame counts, padding included, also on a closed stream.
        connectionReceiveWindow -= Int64(payload.count)
        guard connectionReceiveWindow >= 0 else {
            throw HTTP2ConnectionError(.flowControlError, "DATA beyond the connection's window")
        }
        receivedSinceUpdate += Int64(payload.count)
        if receivedSinceUpdate >= Self.defaultWindow / 2 {
            try countAnswer(FrameHeader.size + 4)
            writeWord(type: FrameType.windowUpdate, stream: 0, UInt32(receivedSinceUpdate))
            connectionReceiveWindow += receivedSinceUpdate
            receivedSinceUpdate = 0
        }
        let content = try unpadded(header, payload)
        if content.isEmpty { try countControlFrame() }
        guard let index = streams.find(header.stream) else {
            try countControlFrame()
            return
        }
        streams[index].receiveWindow -= Int32(payload.count)
        guard streams[index].receiveWindow >= 0, streams[index].status != 0 else {
            let code: HTTP2ErrorCode = streams[index].status == 0 ? .protocolError : .flowControlError
            writeReset(header.stream, code)
            fail(index, failed: .unknown, code: code, isStreamError: true)
            return
        }
        let endStream = header.flags & FrameFlag.endStream != 0
        if endStream, !streams[index].collectsBody {
            finish(index, body: UnsafeRawBufferPointer(rebasing: content.prefix(configuration.maximumBody)))
            return
        }
        streams[index].collectsBody = true
        let kept = collectedBodies[header.stream]?.count ?? 0
        collectedBodies[header.stream, default: []].append(
            contentsOf: content.prefix(max(0, configuration.maximumBody - kept)))
        if endStream {
            finishCollected(index)
        } else if configuration.maximumBody > Self.maximumResponseBody {
            try reopenWindow(of: index)
        }
    }

    /// Opens a stream's window anew when half of it is used, because a long answer exceeds the window.
    private mutating func reopenWindow(of index: Int32) throws(HTTP2ConnectionError) {
        let used = Int32(Self.defaultWindow) - streams[index].receiveWindow
        guard used >= Int32(Self.defaultWindow / 2) else { return }
        try countAnswer(FrameHeader.size + 4)
        writeWord(type: FrameType.windowUpdate, stream: streams[index].id, UInt32(used))
        streams[index].receiveWindow += used
    }

    /// Ends a stream whose content, if any, arrived in frames before this one.
    mutating func finishCollected(_ index: Int32, isCut: Bool = false) {
        guard streams[index].collectsBody else {
            return finish(index, body: UnsafeRawBufferPointer(start: nil, count: 0), isCut: isCut)
        }
        finishedBodies.append(collectedBodies.removeValue(forKey: streams[index].id) ?? [])
        let copy = finishedBodies[finishedBodies.count - 1]
        // The array lives in `finishedBodies` until the next input, and is not changed meanwhile.
        finish(index, body: copy.withUnsafeBytes { $0 }, isCut: isCut)
    }

    /// - Parameter isCut: the stream has ended before the end of its answer, and needs no reset.
    private mutating func finish(_ index: Int32, body: UnsafeRawBufferPointer, isCut: Bool = false) {
        let cell = streams[index]
        var event = ClientEvent(.response)
        event.tag = cell.tag
        event.status = cell.status
        event.retryAfterSeconds = cell.retryAfterSeconds
        event.body = body
        event.isCut = isCut
        if cell.uniqueIDCount > 0 { event.uniqueID = streams.uniqueID(of: index) }
        if !authenticated, ClientEvent.isAboutPush(status: cell.status) { authenticated = true }
        controlFrames = 0
        if !cell.unsent.isEmpty, !isCut {
            // The answer arrived before the end of the request (RFC 9113 §8.1), so the rest is not needed.
            writeReset(cell.id, .cancel)
        }
        release(index)
        events.append(event)
    }
}
