import DequeModule

extension Deque {
    /// Removes and returns the last elements, in their order.
    mutating func takeLast(_ count: Int) -> [Element] {
        let taken = Array(suffix(count))
        removeLast(count)
        return taken
    }

    /// Removes and returns all elements, in their order.
    mutating func takeAll() -> [Element] { takeLast(count) }
}
