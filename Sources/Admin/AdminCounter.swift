import Synchronization

/// Counts refused requests of the endpoint. Any thread.
public final class AdminCounter: Sendable {
    private let value = Atomic<Int>(0)

    public init() {}

    func add() { value.add(1, ordering: .relaxed) }
    var count: Int { value.load(ordering: .relaxed) }
}
