/// Bytes written to a ``TLSTransport`` that gathers, and not yet handed to the system.
public struct TLSBacklog: Sendable, Equatable {
    /// Bytes at the end of what ``TLSTransport/write(_:)`` has taken. The system has nothing of their records.
    public var untouched = 0
    /// Bytes that ``TLSTransport/write(_:)`` would take next. The system has a part of their record.
    public var begun = 0

    public init(untouched: Int = 0, begun: Int = 0) {
        self.untouched = untouched
        self.begun = begun
    }
}

/// Where the records that wait for the socket begin in the stream of ciphertext, so that at the end of a connection it can
/// be told which plaintext the system never had. It never says so of a record of which the system has a byte.
///
/// The oldest records become one when there are too many: that one counts from its beginning, which errs to the safe side.
struct RecordLedger: ~Copyable {
    static let capacity = 8

    private struct Record: BitwiseCopyable {
        var start: UInt64 = 0
        var bytes = 0
    }

    /// Records that OpenSSL has given away whole, the oldest first.
    private var records = InlineArray<8, Record>(repeating: Record())
    private var count = 0
    /// The record that OpenSSL is giving away, maybe in several calls.
    private var current: Record?

    /// A write begins, or goes on: a record that is under way stays as it was begun.
    ///
    /// - Parameters:
    ///   - start: bytes of ciphertext before it.
    ///   - bytes: of plaintext, at most.
    mutating func begin(at start: @autoclosure () -> UInt64, bytes: Int) {
        if current == nil { current = Record(start: start(), bytes: bytes) }
    }

    /// The write has ended, and `bytes` of plaintext wait for the flush.
    mutating func gathered(_ bytes: Int) {
        guard let begun = current else { return }
        current = nil
        if count == Self.capacity {
            records[0].bytes += records[1].bytes
            for index in 2..<count { records[index - 1] = records[index] }
            count -= 1
        }
        records[count] = Record(start: begun.start, bytes: bytes)
        count += 1
    }

    /// The write has ended, and went straight to the system.
    mutating func passed() {
        current = nil
    }

    /// The system has all that was gathered.
    mutating func flushed() {
        count = 0
    }

    /// - Parameter handedOver: bytes of ciphertext that the system has.
    func backlog(handedOver: UInt64) -> TLSBacklog {
        var backlog = TLSBacklog()
        for index in 0..<count where records[index].start >= handedOver {
            backlog.untouched += records[index].bytes
        }
        if let current, current.start < handedOver { backlog.begun = current.bytes }
        return backlog
    }
}
