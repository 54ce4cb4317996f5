/// The waiting notifications of a ``StreamScheduler``: one first-in-first-out list per class, linked through a
/// preallocated table, and the rule that says which class is next.
struct PriorityQueues: Sendable {
    static let levels = 3
    private static let none = UInt32.max
    private static let notQueued = UInt8.max

    private struct Node {
        var next = PriorityQueues.none
        var previous = PriorityQueues.none
        var bytes: UInt32 = 0
        var level = PriorityQueues.notQueued
        var since: UInt64 = 0
    }

    private struct List {
        var head = PriorityQueues.none
        var tail = PriorityQueues.none
        var count = 0
    }

    /// Whose turn it is; made real by ``commit(_:)`` once a connection was found.
    struct Turn {
        var slot: UInt32
        /// The credits as they are after this turn.
        var credits: (Int, Int)
    }

    private var nodes: [Node]
    private var lists: [List]
    private(set) var total = 0
    private let floor: Int
    /// Turns, in per mille, that the classes below 10 (first) and the class 1 (second) are owed.
    private var credits = (0, 0)

    init(slots: Int, floorPerMille: Int) {
        nodes = [Node](repeating: Node(), count: slots)
        lists = [List](repeating: List(), count: Self.levels)
        floor = floorPerMille
    }

    func contains(_ slot: UInt32) -> Bool {
        Int(slot) < nodes.count && nodes[Int(slot)].level != Self.notQueued
    }

    func count(level: Int) -> Int { lists[level].count }

    func bytes(at slot: UInt32) -> UInt32 { nodes[Int(slot)].bytes }

    func firstSince(level: Int) -> UInt64? {
        let head = lists[level].head
        return head == Self.none ? nil : nodes[Int(head)].since
    }

    mutating func insert(slot: UInt32, level: Int, bytes: UInt32, since: UInt64, atFront: Bool) -> Bool {
        guard Int(slot) < nodes.count, nodes[Int(slot)].level == Self.notQueued else { return false }
        let neighbour = atFront ? lists[level].head : lists[level].tail
        nodes[Int(slot)] = Node(
            next: atFront ? neighbour : Self.none, previous: atFront ? Self.none : neighbour, bytes: bytes,
            level: UInt8(level), since: since)
        if atFront {
            lists[level].head = slot
            if neighbour == Self.none {
                lists[level].tail = slot
            } else {
                nodes[Int(neighbour)].previous = slot
            }
        } else {
            lists[level].tail = slot
            if neighbour == Self.none { lists[level].head = slot } else { nodes[Int(neighbour)].next = slot }
        }
        lists[level].count += 1
        total += 1
        return true
    }

    mutating func remove(slot: UInt32) -> Bool {
        guard contains(slot) else { return false }
        let node = nodes[Int(slot)]
        let level = Int(node.level)
        if node.previous == Self.none {
            lists[level].head = node.next
        } else {
            nodes[Int(node.previous)].next = node.next
        }
        if node.next == Self.none {
            lists[level].tail = node.previous
        } else {
            nodes[Int(node.next)].previous = node.previous
        }
        nodes[Int(slot)].level = Self.notQueued
        lists[level].count -= 1
        total -= 1
        return true
    }

    /// The first of the class whose turn it is; nil when nothing waits. Changes nothing, so that a turn that
    /// finds no connection isn't lost.
    func nextTurn() -> Turn? {
        guard total > 0 else { return nil }
        var credits = credits
        var level = 0
        if lists[0].count == 0 || (lists[0].count < total && Self.owed(&credits.0, floor)) {
            level = 1
            if lists[1].count == 0 || (lists[2].count > 0 && Self.owed(&credits.1, floor)) { level = 2 }
        }
        return Turn(slot: lists[level].head, credits: credits)
    }

    mutating func commit(_ turn: Turn) {
        credits = turn.credits
        _ = remove(slot: turn.slot)
    }

    /// One contended turn: the lower side earns its share of it, and has the turn once it is owed a whole one.
    private static func owed(_ credit: inout Int, _ share: Int) -> Bool {
        credit += share
        guard credit >= 1000 else { return false }
        credit -= 1000
        return true
    }
}
