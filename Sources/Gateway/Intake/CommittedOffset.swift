import Synchronization

/// Offset up to which a partition is committed, as far as the intake knows. The intake shares it with the shards.
final class CommittedOffset: Sendable {
    private let value: Atomic<Int64>

    init(_ offset: Int64) { value = Atomic(offset) }

    /// Offset of the next record that may be read again.
    var offset: Int64 { value.load(ordering: .acquiring) }

    func advance(to offset: Int64) { value.max(offset, ordering: .releasing) }
}
