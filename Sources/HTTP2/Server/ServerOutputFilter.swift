import EventLoop

/// Changes frames of nghttp2 on their way to the client.
///
/// `nghttp2_session_mem_send` returns one frame at a time, or a part of a long header block. Only whole SETTINGS and
/// WINDOW_UPDATE frames are changed.
struct ServerOutputFilter {
    /// Stream limits of SETTINGS frames that are still within nghttp2, in the order of sending.
    private var limits: [UInt32] = []
    /// Whether WINDOW_UPDATE frames are held back. Their sum is sent once they are released.
    private(set) var holdsCredit = false
    /// Credit of the connection's window that was held back, in bytes.
    private var credit: UInt32 = 0

    private static let headerSize = 9
    private static let settings: UInt8 = 4
    private static let windowUpdate: UInt8 = 8
    /// Identifier of SETTINGS_MAX_CONCURRENT_STREAMS.
    private static let streamLimit: UInt8 = 3

    /// Whether any frame can need a change.
    var isActive: Bool { holdsCredit || !limits.isEmpty }

    /// Sets the limit that the next unsent SETTINGS frame shall carry in place of nghttp2's.
    mutating func replaceLimit(with limit: UInt32) { limits.append(limit) }

    mutating func holdCredit() { holdsCredit = true }

    /// Sends WINDOW_UPDATE frames again, beginning with the credit that was held back.
    mutating func releaseCredit(to output: inout ByteQueue) {
        holdsCredit = false
        guard credit > 0 else { return }
        let frame: [UInt8] = [0, 0, 4, Self.windowUpdate, 0, 0, 0, 0, 0] + Self.bytes(credit)
        frame.withUnsafeBytes { output.append($0) }
        credit = 0
    }

    /// Appends a frame to the output, changed where it must be.
    mutating func pass(_ frame: UnsafeRawBufferPointer, to output: inout ByteQueue) {
        guard frame.count >= Self.headerSize else { return output.append(frame) }
        if holdsCredit, frame[3] == Self.windowUpdate, frame.count == Self.headerSize + 4 {
            let stream = Self.number(frame, 5)
            if stream == 0 { credit = min(credit &+ Self.number(frame, 9), UInt32(Int32.max)) }
            return
        }
        let isSettings = frame[3] == Self.settings && frame[4] & 1 == 0
        guard isSettings, let limit = limits.first else { return output.append(frame) }
        limits.removeFirst()
        var changed = Array(frame)
        for entry in stride(from: Self.headerSize, to: changed.count - 5, by: 6)
        where changed[entry] == 0 && changed[entry + 1] == Self.streamLimit {
            changed.replaceSubrange((entry + 2)..<(entry + 6), with: Self.bytes(limit))
        }
        changed.withUnsafeBytes { output.append($0) }
    }

    private static func bytes(_ number: UInt32) -> [UInt8] {
        (0..<4).map { UInt8(truncatingIfNeeded: number >> UInt32(24 - 8 * $0)) }
    }

    private static func number(_ frame: UnsafeRawBufferPointer, _ offset: Int) -> UInt32 {
        (0..<4).reduce(0) { $0 << 8 | UInt32(frame[offset + $1]) }
    }
}
