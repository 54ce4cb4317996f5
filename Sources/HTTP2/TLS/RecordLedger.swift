/// Bytes written to a gathering ``TLSTransport`` and not yet handed to the system.
public struct TLSBacklog: Sendable, Equatable {
    /// Bytes at the end of those that ``TLSTransport/write(_:)`` has accepted. The system has nothing of their records.
    public var untouched = 0
    /// Bytes that the next ``TLSTransport/write(_:)`` would accept. The system has a part of their record.
    public var begun = 0

    public init(untouched: Int = 0, begun: Int = 0) {
        self.untouched = untouched
        self.begun = begun
    }
}

/// Records where each record that waits for the socket begins in the stream of ciphertext. At the end of a connection
/// the ledger shows which plaintext the system never had. A record counts as never handed over only if the system has
/// no byte of it.
///
/// When there are too many, the two oldest records become one. The joint record counts from its beginning, which is the
/// safe side.
struct RecordLedger: ~Copyable {
    static let capacity = 8

    private struct Record: BitwiseCopyable {
        var start: UInt64 = 0
        var bytes = 0
    }

    /// Records that OpenSSL has passed on whole, the oldest first.
    private var records = InlineArray<8, Record>(repeating: Record())
    private var count = 0
    /// The record that OpenSSL is passing on, maybe in several calls; nil when there is none.
    private var current: Record?

    /// Begins or continues a write; a record under way stays as it was begun.
    ///
    /// - Parameters:
    ///   - start: bytes of ciphertext before the record.
    ///   - bytes: bytes of plaintext, at most.
    mutating func begin(at start: @autoclosure () -> UInt64, bytes: Int) {
        if current == nil { current = Record(start: start(), bytes: bytes) }
    }

    /// Ends the write; `bytes` of plaintext wait for the flush.
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

    /// Ends a write whose record the system received directly.
    mutating func passed() {
        current = nil
    }

    /// Clears the ledger, because the system has all gathered bytes.
    mutating func flushed() {
        count = 0
    }

    /// Returns the bytes that the system does not have.
    ///
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
