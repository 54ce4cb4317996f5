import CNghttp2

extension ServerConnection {
    /// Answers a request. The answer is written at the end of the loop's turn.
    ///
    /// Nothing happens if the stream is gone, because the client has reset it.
    /// - Parameters:
    ///   - status: 100 to 599.
    ///   - headers: at most 15 fields.
    ///   - body: copied; without one, and in the answer to HEAD, the header block ends the stream.
    public func respond(
        stream: Int32, status: UInt16, headers: UnsafeBufferPointer<ResponseField>,
        body: UnsafeRawBufferPointer
    ) {
        precondition(headers.count < Self.maximumResponseFields, "too many response fields")
        guard let session, let slot = slot(of: stream), slot.pointee.phase == .handedOver else { return }
        fields[0] = Self.statusField(status)
        for (index, field) in headers.enumerated() {
            let flags = field.isIndexed ? NGHTTP2_NV_FLAG_NONE : NGHTTP2_NV_FLAG_NO_INDEX
            fields[index + 1] = nghttp2_nv(
                name: UnsafeMutablePointer(mutating: field.name.utf8Start),
                value: UnsafeMutablePointer(
                    mutating: field.value.assumingMemoryBound(to: UInt8.self).baseAddress),
                namelen: field.name.utf8CodeUnitCount, valuelen: field.value.count,
                flags: UInt8(flags.rawValue))
        }
        slot.pointee.phase = .answered
        if body.isEmpty || slot.pointee.isHead {
            nghttp2_submit_response(session, stream, fields, headers.count + 1, nil)
        } else {
            slot.pointee.setResponse(body)
            var provider = nghttp2_data_provider(
                source: nghttp2_data_source(ptr: slot), read_callback: readResponse)
            nghttp2_submit_response(session, stream, fields, headers.count + 1, &provider)
        }
        requestTurnEnd()
    }

    /// Answers with a status alone, the cheapest answer.
    public func respond(stream: Int32, status: UInt16) {
        guard let session, let slot = slot(of: stream), slot.pointee.phase == .handedOver else { return }
        slot.pointee.phase = .answered
        fields[0] = Self.statusField(status)
        nghttp2_submit_response(session, stream, fields, 1, nil)
        requestTurnEnd()
    }

    private func slot(of stream: Int32) -> UnsafeMutablePointer<ServerStreamSlot>? {
        if table.pointee.currentStream == stream { return table.pointee.current }
        return nghttp2_session_get_stream_user_data(session, stream)?.assumingMemoryBound(
            to: ServerStreamSlot.self)
    }

    /// Returns `:status`, with texts that live as long as the process, so that nghttp2 does not copy them.
    private static func statusField(_ status: UInt16) -> nghttp2_nv {
        let name: StaticString = ":status"
        precondition((100..<600).contains(status), "no HTTP status: \(status)")
        return nghttp2_nv(
            name: UnsafeMutablePointer(mutating: name.utf8Start),
            value: statusTexts.text(status), namelen: 7, valuelen: 3,
            flags: UInt8(NGHTTP2_NV_FLAG_NO_COPY_NAME.rawValue | NGHTTP2_NV_FLAG_NO_COPY_VALUE.rawValue))
    }

    // MARK: - Called by the session

    func handOver(_ slot: UnsafeMutablePointer<ServerStreamSlot>) {
        let stream = slot.pointee.stream
        // nghttp2 closes later streams when the GOAWAY leaves.
        guard stream <= lastProcessedStream, let request = slot.pointee.request else { return }
        let received = ServerRequest(stream: stream, storage: request)
        slot.pointee.isHead = received.isHead
        if slot.pointee.isOversized {
            handler?.requestOversized(received, on: self)
        } else {
            handler?.requestReceived(received, on: self)
        }
    }

    func requestCancelled(_ stream: Int32) {
        guard stream <= lastProcessedStream else { return }
        handler?.requestCancelled(stream: stream, on: self)
    }
}

private let statusTexts = StatusTexts()

/// Decimal texts of all statuses, created once and never freed.
private struct StatusTexts: Sendable {
    // Written in init only, and never freed: safe to read from any thread.
    private nonisolated(unsafe) let base: UnsafeMutablePointer<UInt8>

    init() {
        base = .allocate(capacity: 600 * 3)
        for status in 0..<600 {
            base[status * 3] = UInt8(48 + status / 100)
            base[status * 3 + 1] = UInt8(48 + status / 10 % 10)
            base[status * 3 + 2] = UInt8(48 + status % 10)
        }
    }

    func text(_ status: UInt16) -> UnsafeMutablePointer<UInt8> { base + Int(status) * 3 }
}
