import CNghttp2
import Glibc
import HTTP2

/// A violation by the client, as text.
public struct Violation: Error, CustomStringConvertible {
    public var description: String

    init(_ description: String) {
        self.description = description
    }
}

/// Reads the client's output as a server would, with code that shares nothing with the client's. Checks frames
/// by RFC 9113, header blocks by nghttp2's inflater, and the server's limits and windows.
final class OutputAudit {
    struct Stream {
        var tag: UInt32
        var window: Int64
        var contentSent = 0
        /// Whether the client has ended the stream, by END_STREAM or a reset.
        var isEnded = false
        var isReset = false
        /// Bytes of output up to the stream's END_STREAM; nil before END_STREAM.
        var end: Int?
    }

    private(set) var streams: [UInt32: Stream] = [:]
    private(set) var connectionWindow: Int64 = 65_535
    private(set) var lastStream: UInt32 = 0
    /// Codes of the GOAWAY frames.
    private(set) var goAways: [UInt32] = []
    private(set) var pings = 0
    private(set) var answeredPings = 0
    /// Bytes of answers since the queue was last empty.
    var answers = 0
    /// SETTINGS that the client hasn't acknowledged.
    private(set) var unacknowledged: [[(name: UInt16, value: UInt32)]] = []

    /// Bytes of output up to the end of the current frame.
    private var position = 0
    private var sawPreface = false
    private var maximumFrame = 16_384
    private var initialWindow: Int64 = 65_535
    private var inflater: OpaquePointer?

    init() {
        nghttp2_hd_inflate_new(&inflater)
    }

    deinit {
        nghttp2_hd_inflate_del(inflater)
    }

    // MARK: Frames of the server

    func granted(settings: [(name: UInt16, value: UInt32)]) {
        unacknowledged.append(settings)
    }

    func granted(window increment: UInt32, stream: UInt32) {
        if stream == 0 {
            connectionWindow += Int64(increment)
        } else {
            streams[stream]?.window += Int64(increment)
        }
    }

    // MARK: Output of the client

    /// Checks whole frames. `content` returns a request's bytes, `fields` its expected header fields.
    func take(
        _ bytes: UnsafeRawBufferPointer, content: (UInt32) -> UnsafeRawBufferPointer,
        fields: (UInt32) -> [String]
    ) throws(Violation) {
        var bytes = bytes
        if !sawPreface {
            let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
            guard bytes.starts(with: preface.utf8) else { throw Violation("no preface") }
            bytes = UnsafeRawBufferPointer(rebasing: bytes[24...])
            position = 24
            guard bytes.count > 9, bytes[3] == 4, bytes[4] == 0 else { throw Violation("no first SETTINGS") }
            sawPreface = true
        }
        while !bytes.isEmpty {
            guard bytes.count >= 9 else { throw Violation("a piece of a frame's header") }
            let length = Int(bytes[0]) << 16 | Int(bytes[1]) << 8 | Int(bytes[2])
            guard bytes.count >= 9 + length else { throw Violation("a piece of a frame") }
            guard length <= maximumFrame else { throw Violation("a frame of \(length) bytes") }
            guard goAways.isEmpty else { throw Violation("a frame after GOAWAY") }
            let stream = Self.word(bytes, 5)
            guard stream < 1 << 31 else { throw Violation("the reserved bit is set") }
            position += 9 + length
            try frame(
                type: bytes[3], flags: bytes[4], stream: stream,
                UnsafeRawBufferPointer(rebasing: bytes[9..<9 + length]), content: content, fields: fields)
            bytes = UnsafeRawBufferPointer(rebasing: bytes[(9 + length)...])
        }
    }

    private func frame(
        type: UInt8, flags: UInt8, stream: UInt32, _ payload: UnsafeRawBufferPointer,
        content: (UInt32) -> UnsafeRawBufferPointer, fields: (UInt32) -> [String]
    ) throws(Violation) {
        switch type {
        case 0: try data(flags, stream, payload, content: content)
        case 1:
            guard flags & ~1 == 4 else { throw Violation("HEADERS with flags \(flags)") }
            try headers(flags, stream, payload, fields: fields)
        case 3:
            guard payload.count == 4 else { throw Violation("RST_STREAM of \(payload.count) bytes") }
            guard let known = streams[stream], !known.isReset else {
                throw Violation("RST_STREAM on stream \(stream)")
            }
            streams[stream]!.isReset = true
            streams[stream]!.isEnded = true
        case 4:
            guard stream == 0 else { throw Violation("SETTINGS on a stream") }
            if flags == 1 {
                guard payload.isEmpty, !unacknowledged.isEmpty else { throw Violation("an ACK of nothing") }
                answers += 9
                apply(unacknowledged.removeFirst())
            } else {
                guard flags == 0, payload.count % 6 == 0 else { throw Violation("bad SETTINGS") }
            }
        case 6:
            guard stream == 0, payload.count == 8, flags <= 1 else { throw Violation("bad PING") }
            if flags == 1 {
                answeredPings += 1
                answers += 17
            } else {
                pings += 1
            }
        case 7:
            guard stream == 0, payload.count >= 8 else { throw Violation("bad GOAWAY") }
            goAways.append(Self.word(payload, 4))
        case 8:
            guard payload.count == 4, Self.word(payload, 0) > 0, stream == 0 else {
                throw Violation("bad WINDOW_UPDATE")
            }
            answers += 13
        default: throw Violation("a frame of type \(type)")
        }
    }

    private func data(
        _ flags: UInt8, _ stream: UInt32, _ payload: UnsafeRawBufferPointer,
        content: (UInt32) -> UnsafeRawBufferPointer
    ) throws(Violation) {
        guard flags <= 1 else { throw Violation("DATA with flags \(flags)") }
        guard var known = streams[stream], !known.isEnded else { throw Violation("DATA on stream \(stream)") }
        known.window -= Int64(payload.count)
        connectionWindow -= Int64(payload.count)
        guard known.window >= 0, connectionWindow >= 0 else {
            throw Violation("DATA beyond a window: \(known.window), \(connectionWindow)")
        }
        let whole = content(known.tag)
        guard payload.count <= whole.count - known.contentSent, !payload.isEmpty,
            areEqual(payload, whole[known.contentSent..<known.contentSent + payload.count])
        else { throw Violation("DATA of stream \(stream) differs from its request") }
        known.contentSent += payload.count
        guard (flags == 1) == (known.contentSent == whole.count) else {
            throw Violation("END_STREAM of stream \(stream) at \(known.contentSent) of \(whole.count)")
        }
        known.isEnded = flags == 1
        if flags == 1 { known.end = position }
        streams[stream] = known
    }

    private func headers(
        _ flags: UInt8, _ stream: UInt32, _ payload: UnsafeRawBufferPointer, fields: (UInt32) -> [String]
    ) throws(Violation) {
        guard stream & 1 == 1, stream > lastStream else { throw Violation("HEADERS on stream \(stream)") }
        lastStream = stream
        guard let list = decode(inflater, payload) else { throw Violation("a header block does not decode") }
        guard let last = list.last, last.hasPrefix("apns-id: "), let tag = UInt32(last.dropFirst(9)) else {
            throw Violation("no apns-id at the end of \(list)")
        }
        guard list == fields(tag) else { throw Violation("header fields \(list)") }
        let isEnded = flags & 1 != 0
        streams[stream] = Stream(
            tag: tag, window: initialWindow, isEnded: isEnded, end: isEnded ? position : nil)
    }

    /// Applies SETTINGS that the client has acknowledged and must now keep.
    private func apply(_ settings: [(name: UInt16, value: UInt32)]) {
        for (name, value) in settings {
            switch name {
            case 1: nghttp2_hd_inflate_change_table_size(inflater, Int(value))
            case 4:
                for id in streams.keys { streams[id]!.window += Int64(value) - initialWindow }
                initialWindow = Int64(value)
            case 5: maximumFrame = Int(value)
            default: break
            }
        }
    }

    static func word(_ bytes: UnsafeRawBufferPointer, _ offset: Int) -> UInt32 {
        UInt32(bigEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt32.self))
    }
}

/// Compares memory at once, because comparing single bytes would take most of the fuzzer's time.
func areEqual(_ bytes: UnsafeRawBufferPointer, _ expected: some Collection<UInt8>) -> Bool {
    guard bytes.count == expected.count else { return false }
    guard let base = bytes.baseAddress, !bytes.isEmpty else { return true }
    return expected.withContiguousStorageIfAvailable { memcmp(base, $0.baseAddress!, $0.count) == 0 }
        ?? bytes.elementsEqual(expected)
}

/// Fields of a header block by nghttp2's inflater, as `name: value`; nil when the block doesn't decode.
func decode(_ inflater: OpaquePointer?, _ block: UnsafeRawBufferPointer) -> [String]? {
    var list: [String] = []
    var input = Array(block)
    var offset = 0
    let end = input.count
    // Gives an empty block an address too.
    input.append(0)
    return input.withUnsafeMutableBufferPointer { input in
        while true {
            var pair = nghttp2_nv()
            var flags: Int32 = 0
            let used = nghttp2_hd_inflate_hd2(
                inflater, &pair, &flags, input.baseAddress! + offset, end - offset, 1)
            guard used >= 0 else { return nil }
            offset += used
            if flags & Int32(NGHTTP2_HD_INFLATE_EMIT.rawValue) != 0 {
                let name = UnsafeBufferPointer(start: pair.name, count: pair.namelen)
                let value = UnsafeBufferPointer(start: pair.value, count: pair.valuelen)
                list.append(
                    String(decoding: name, as: UTF8.self) + ": " + String(decoding: value, as: UTF8.self))
            }
            if flags & Int32(NGHTTP2_HD_INFLATE_FINAL.rawValue) != 0 {
                nghttp2_hd_inflate_end_headers(inflater)
                return list
            }
        }
    }
}
