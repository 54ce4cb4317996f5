import CNghttp2

/// Follows the server's frames and derives each stream's answer from them. Decodes header blocks with nghttp2's
/// inflater.
final class ServerModel {
    struct Answer: Equatable {
        var status = 0
        var body: [UInt8] = []
        var hasEnded = false
        /// Bytes of its DATA frames, padding included.
        var windowUsed = 0
    }

    private(set) var answers: [UInt32: Answer] = [:]
    private(set) var maximumStreams: UInt32?
    private(set) var lastAccepted: UInt32 = 0x7fff_ffff
    private(set) var goAways = 0
    private(set) var resets: [UInt32: UInt32] = [:]
    private(set) var pings = 0
    /// Whether the server sent a header block that nghttp2 refuses too.
    private(set) var isCompressionBroken = false

    private let audit: OutputAudit
    private var inflater: OpaquePointer?
    private var block: (stream: UInt32, endStream: Bool, bytes: [UInt8])?

    init(audit: OutputAudit) {
        self.audit = audit
        nghttp2_hd_inflate_new(&inflater)
    }

    deinit {
        nghttp2_hd_inflate_del(inflater)
    }

    /// Reads the whole frames at the beginning of `bytes`, and returns their length in bytes.
    func take(_ bytes: UnsafeRawBufferPointer) -> Int {
        var offset = 0
        while bytes.count - offset >= 9 {
            let length =
                Int(bytes[offset]) << 16 | Int(bytes[offset + 1]) << 8 | Int(bytes[offset + 2])
            guard length <= 16_384, bytes.count - offset - 9 >= length else { break }
            frame(
                type: bytes[offset + 3], flags: bytes[offset + 4],
                stream: OutputAudit.word(bytes, offset + 5) & 0x7fff_ffff,
                UnsafeRawBufferPointer(rebasing: bytes[offset + 9..<offset + 9 + length]))
            offset += 9 + length
        }
        return offset
    }

    private func frame(type: UInt8, flags: UInt8, stream: UInt32, _ payload: UnsafeRawBufferPointer) {
        switch type {
        case 0:
            guard let content = unpadded(flags, payload), !(answers[stream]?.hasEnded ?? false) else {
                return
            }
            answers[stream, default: Answer()].body.append(contentsOf: content)
            answers[stream]!.windowUsed += payload.count
            if flags & 1 != 0 { answers[stream]!.hasEnded = true }
        case 1:
            guard var fragment = unpadded(flags, payload) else { return }
            if flags & 0x20 != 0 { fragment = fragment.dropFirst(5) }
            block = (stream, flags & 1 != 0, Array(fragment))
            if flags & 4 != 0 { endBlock() }
        case 9:
            block?.bytes.append(contentsOf: payload)
            if flags & 4 != 0 { endBlock() }
        case 3 where payload.count == 4:
            if resets[stream] == nil { resets[stream] = OutputAudit.word(payload, 0) }
        case 4 where flags & 1 == 0 && payload.count % 6 == 0:
            var settings: [(name: UInt16, value: UInt32)] = []
            for offset in stride(from: 0, to: payload.count, by: 6) {
                let name = UInt16(payload[offset]) << 8 | UInt16(payload[offset + 1])
                settings.append((name, OutputAudit.word(payload, offset + 2)))
            }
            if maximumStreams == nil { maximumStreams = .max }
            for (name, value) in settings where name == 3 { maximumStreams = value }
            audit.granted(settings: settings)
        case 6 where flags & 1 == 0: pings += 1
        case 7 where payload.count >= 8:
            goAways += 1
            lastAccepted = min(lastAccepted, OutputAudit.word(payload, 0) & 0x7fff_ffff)
        case 8 where payload.count == 4:
            audit.granted(window: OutputAudit.word(payload, 0) & 0x7fff_ffff, stream: stream)
        default: break
        }
    }

    private func endBlock() {
        guard let (stream, endStream, bytes) = block else { return }
        block = nil
        guard let list = bytes.withUnsafeBytes({ decode(inflater, $0) }) else {
            isCompressionBroken = true
            return
        }
        guard !(answers[stream]?.hasEnded ?? false) else { return }
        let status = list.lazy.filter { $0.hasPrefix(":status: ") }.compactMap { Int($0.dropFirst(9)) }.first
        if let status, answers[stream]?.status ?? 0 == 0, status >= 200 {
            answers[stream, default: Answer()].status = status
        }
        if endStream { answers[stream, default: Answer()].hasEnded = true }
    }

    private func unpadded(_ flags: UInt8, _ payload: UnsafeRawBufferPointer) -> Slice<UnsafeRawBufferPointer>?
    {
        guard flags & 8 != 0 else { return payload[...] }
        guard let padding = payload.first, Int(padding) < payload.count else { return nil }
        return payload[1..<payload.count - Int(padding)]
    }
}
