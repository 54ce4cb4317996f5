import Synchronization

/// Up to where a partition's offsets are committed, as far as the intake knows. It tells the shards.
final class CommittedOffset: Sendable {
    private let value: Atomic<Int64>

    init(_ offset: Int64) { value = Atomic(offset) }

    /// The next record that may be read again.
    var offset: Int64 { value.load(ordering: .acquiring) }

    func advance(to offset: Int64) { value.max(offset, ordering: .releasing) }
}
