/// Counts the answers that a server's frames have demanded and that still lie in the output. Positions are those of
/// ``EventLoop/ByteQueue``. An answer counts until the output has been removed up to the answer's end, whatever follows
/// it.
///
/// Consecutive answers form a group, which counts until the last of them is removed. A group is closed when it has a
/// sixteenth of the limit. The overcount is thus limited, and nothing is allocated.
struct UnreadAnswers: ~Copyable {
    private static let groups = 16

    private struct Group: BitwiseCopyable {
        var bytes = 0
        var end: UInt64 = 0
    }

    private let groupSize: Int
    /// A ring of `count` groups from `first` on, the oldest first.
    private var ring = InlineArray<16, Group>(repeating: Group())
    private var first = 0
    private var count = 0
    /// Bytes of answers that count as unread.
    private(set) var bytes = 0

    /// - Parameter limit: the owner gives up beyond it; so many bytes have room in the groups.
    init(limit: Int) {
        groupSize = max(1, (limit + Self.groups - 1) / Self.groups)
    }

    /// Adds an answer. Returns what is unread with it.
    ///
    /// - Parameters:
    ///   - size: bytes of the answer.
    ///   - end: position behind it.
    ///   - taken: position up to which the output was taken.
    mutating func add(_ size: Int, endingAt end: UInt64, taken: UInt64) -> Int {
        while count > 0, ring[first].end <= taken {
            bytes -= ring[first].bytes
            first = (first + 1) % Self.groups
            count -= 1
        }
        var last = (first + count + Self.groups - 1) % Self.groups
        if count == 0 || (ring[last].bytes >= groupSize && count < Self.groups) {
            last = (first + count) % Self.groups
            ring[last] = Group()
            count += 1
        }
        ring[last].bytes += size
        ring[last].end = end
        bytes += size
        return bytes
    }
}
