/// A queue that can be indexed, and cut at its end.
struct KafkaQueue<Element> {
    private var elements: [Element] = []
    private var head = 0

    var count: Int { elements.count - head }
    var isEmpty: Bool { head == elements.count }
    var first: Element? { isEmpty ? nil : elements[head] }

    /// Accesses an element, counted from the first.
    subscript(index: Int) -> Element {
        get { elements[head + index] }
        _modify { yield &elements[head + index] }
    }

    mutating func append(_ element: Element) { elements.append(element) }

    mutating func popFirst() -> Element? {
        guard head < elements.count else { return nil }
        let element = elements[head]
        head += 1
        if head == elements.count {
            elements.removeAll(keepingCapacity: true)
            head = 0
        } else if head >= 256, head * 2 >= elements.count {
            elements.removeFirst(head)
            head = 0
        }
        return element
    }

    mutating func removeLast(_ count: Int) -> [Element] {
        let removed = Array(elements.suffix(count))
        elements.removeLast(count)
        return removed
    }

    mutating func removeAll() -> [Element] { removeLast(count) }
}
