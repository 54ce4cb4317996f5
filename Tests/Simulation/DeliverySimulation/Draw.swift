import DeliveryCore
import StreamScheduling

/// The choices of a run, all from its seed.
struct Draw {
    var generator: SeededGenerator

    init(seed: UInt64) { generator = SeededGenerator(seed: seed) }

    /// 0..<n
    @inline(__always)
    mutating func below(_ n: Int) -> Int {
        Int(((generator.next() >> 32) &* UInt64(n)) >> 32)
    }

    @inline(__always)
    mutating func among(_ range: ClosedRange<Int>) -> Int {
        range.lowerBound + below(range.upperBound - range.lowerBound + 1)
    }

    @inline(__always)
    mutating func chance(_ perMille: Int) -> Bool { below(1000) < perMille }

    /// Draws a number between the bounds, each order of magnitude as likely as the others.
    mutating func spread(_ range: ClosedRange<Int>) -> Int {
        var high = range.lowerBound
        while high < range.upperBound, chance(650) { high = min(range.upperBound, max(high * 2, high + 1)) }
        return among(range.lowerBound...high)
    }
}

/// A queue over an array, which frees the space of removed elements now and then.
struct Queue<Element> {
    private var elements: [Element] = []
    private var head = 0

    var count: Int { elements.count - head }
    var isEmpty: Bool { head == elements.count }
    var first: Element? { isEmpty ? nil : elements[head] }

    mutating func forEach(_ body: (inout Element) -> Void) {
        for index in head..<elements.count { body(&elements[index]) }
    }

    /// Returns the first result of the body that isn't nil, nil for none.
    func first<Found>(where body: (Element) -> Found?) -> Found? {
        for index in head..<elements.count { if let found = body(elements[index]) { return found } }
        return nil
    }

    mutating func append(_ element: Element) { elements.append(element) }

    mutating func replaceFirst(with element: Element) { elements[head] = element }

    mutating func popFirst() -> Element? {
        guard head < elements.count else { return nil }
        let element = elements[head]
        head += 1
        if head == elements.count {
            elements.removeAll(keepingCapacity: true)
            head = 0
        } else if head > 256 {
            elements.removeFirst(head)
            head = 0
        }
        return element
    }

    mutating func removeAll(where condition: (Element) -> Bool) {
        elements.removeFirst(head)
        head = 0
        elements.removeAll(where: condition)
    }
}
