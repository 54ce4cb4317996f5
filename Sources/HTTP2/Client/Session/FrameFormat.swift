/// Types, flags and codes of HTTP/2 frames (RFC 9113 §6, §7).
enum FrameType {
    static let data: UInt8 = 0
    static let headers: UInt8 = 1
    static let priority: UInt8 = 2
    static let reset: UInt8 = 3
    static let settings: UInt8 = 4
    static let pushPromise: UInt8 = 5
    static let ping: UInt8 = 6
    static let goAway: UInt8 = 7
    static let windowUpdate: UInt8 = 8
    static let continuation: UInt8 = 9
}

enum FrameFlag {
    static let endStream: UInt8 = 0x1
    static let acknowledgement: UInt8 = 0x1
    static let endHeaders: UInt8 = 0x4
    static let padded: UInt8 = 0x8
    static let priority: UInt8 = 0x20
}

enum SettingName {
    static let headerTableSize: UInt16 = 1
    static let enablePush: UInt16 = 2
    static let maxConcurrentStreams: UInt16 = 3
    static let initialWindowSize: UInt16 = 4
    static let maxFrameSize: UInt16 = 5
    static let maxHeaderListSize: UInt16 = 6
}

/// The code of a RST_STREAM or GOAWAY frame (RFC 9113 §7).
public struct HTTP2ErrorCode: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
    public let rawValue: UInt32

    public init(rawValue: UInt32) {
        self.rawValue = rawValue
    }

    public static let noError = HTTP2ErrorCode(rawValue: 0)
    public static let protocolError = HTTP2ErrorCode(rawValue: 1)
    public static let internalError = HTTP2ErrorCode(rawValue: 2)
    public static let flowControlError = HTTP2ErrorCode(rawValue: 3)
    public static let settingsTimeout = HTTP2ErrorCode(rawValue: 4)
    public static let streamClosed = HTTP2ErrorCode(rawValue: 5)
    public static let frameSizeError = HTTP2ErrorCode(rawValue: 6)
    public static let refusedStream = HTTP2ErrorCode(rawValue: 7)
    public static let cancel = HTTP2ErrorCode(rawValue: 8)
    public static let compressionError = HTTP2ErrorCode(rawValue: 9)
    public static let connectError = HTTP2ErrorCode(rawValue: 10)
    public static let enhanceYourCalm = HTTP2ErrorCode(rawValue: 11)
    public static let inadequateSecurity = HTTP2ErrorCode(rawValue: 12)
    public static let http11Required = HTTP2ErrorCode(rawValue: 13)

    private static let names = [
        "NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT",
        "STREAM_CLOSED", "FRAME_SIZE_ERROR", "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR",
        "ENHANCE_YOUR_CALM", "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED",
    ]

    public var description: String {
        Int(rawValue) < Self.names.count ? Self.names[Int(rawValue)] : "code \(rawValue)"
    }
}

/// A frame's first nine bytes (RFC 9113 §4.1).
struct FrameHeader {
    static let size = 9
    /// RFC 9113 §6.5.2: the least and first limit on a frame's payload; we announce no other.
    static let defaultMaximumPayload = 16_384

    var length: Int
    var type: UInt8
    var flags: UInt8
    var stream: UInt32

    init(length: Int, type: UInt8, flags: UInt8, stream: UInt32) {
        self.length = length
        self.type = type
        self.flags = flags
        self.stream = stream
    }

    /// Reads nine bytes.
    init(_ bytes: UnsafeRawPointer) {
        let word = UInt32(bigEndian: bytes.loadUnaligned(as: UInt32.self))
        length = Int(word >> 8)
        type = UInt8(truncatingIfNeeded: word)
        flags = bytes.load(fromByteOffset: 4, as: UInt8.self)
        stream = UInt32(bigEndian: bytes.loadUnaligned(fromByteOffset: 5, as: UInt32.self)) & 0x7fff_ffff
    }

    func write(to target: UnsafeMutableRawPointer) {
        target.storeBytes(
            of: (UInt32(truncatingIfNeeded: length) << 8 | UInt32(type)).bigEndian, as: UInt32.self)
        target.storeBytes(of: flags, toByteOffset: 4, as: UInt8.self)
        target.storeBytes(of: stream.bigEndian, toByteOffset: 5, as: UInt32.self)
    }
}

extension UnsafeRawPointer {
    func bigEndian32(at offset: Int = 0) -> UInt32 {
        UInt32(bigEndian: loadUnaligned(fromByteOffset: offset, as: UInt32.self))
    }

    func bigEndian16(at offset: Int = 0) -> UInt16 {
        UInt16(bigEndian: loadUnaligned(fromByteOffset: offset, as: UInt16.self))
    }
}
