/// When pushes that have ended may leave the store, and which offsets have to wait for that. One value for each partition
/// of the intake.
///
/// What a push has superseded must not come again when the push itself is gone, so two rules hold:
/// - A push is removed only after Kafka has taken a commit that was issued after the push's outcome was acknowledged, and
///   after the offsets of its device that were acknowledged before it are complete.
/// - An offset whose outcome is acknowledged after that of a stored push of its device is complete only when that push is
///   removed: were it committed before, a crash would bring back the older push alone.
///
/// So the acknowledgements of a device form a *chain* as soon as there is one of a stored push. Chains of different devices
/// don't wait for each other. All removals that come next in their chains go after one commit, and so do several in a row
/// of one chain.
///
/// Devices go by a hash: two that share it only wait for each other without need. Memory is bounded by what has ended and
/// awaits its removal. Pure. O(1) for each step; in steady state nothing is allocated, and without chains an
/// acknowledgement costs one comparison.
public struct DeferredDeletes: Sendable {
    /// What to do, in the order of ``nextAction()``.
    public enum Action: Equatable, Sendable {
        /// Remove the item from the store, after all removals before it; ``removed(device:offset:)`` has to follow when that
        /// is written.
        case remove(device: UInt64, offset: Int64)
        /// The offset is complete.
        case complete(Int64)
    }

    private struct Chain: Sendable {
        var first = DeferredDeletes.none
        var last = DeferredDeletes.none
        /// Offsets in it that wait for removals.
        var completions = 0
    }

    /// One thing that a chain still has to do; or a free one.
    private struct Link: Sendable {
        var offset: Int64
        var next = DeferredDeletes.none
        var isRemoval: Bool
        /// The owner has been asked to remove it.
        var isAsked = false
    }

    /// A removal whose turn it is, and which waits for a commit that is issued later than `commit`.
    private struct Waiting: Sendable {
        var device: UInt64
        var link: UInt32
        var commit: UInt64
    }

    private static let none = UInt32.max
    private var chains: [UInt64: Chain] = [:]
    private var links: [Link] = []
    private var firstFree = DeferredDeletes.none
    /// In the order in which it became their turn, and so with rising commits.
    private var waiting = FIFO<Waiting>()
    private var actions = FIFO<Action>()
    private var lastCommit: UInt64 = 0
    /// Issued, and neither taken nor failed.
    private var commitsUnderWay: [UInt64] = []
    /// Pushes whose outcome is acknowledged and which aren't removed yet.
    public private(set) var removals = 0
    /// Offsets that wait for removals.
    public private(set) var completions = 0

    public init() {}

    /// Nothing awaits its removal: there is no chain. Inlined, as it is asked of each outcome: a call would need a copy of all.
    @inlinable public var isEmpty: Bool { removals == 0 && completions == 0 }

    /// A removal waits for a commit that isn't issued yet: one has to be, also if no offset has changed.
    public var needsCommit: Bool {
        guard let last = waiting.last else { return false }
        return last.commit >= commitsUnderWay.max() ?? 0
    }

    // MARK: Events

    /// Kafka has the outcome of a record: of a push, or of a cancel or device event, which waits like a push that isn't
    /// stored. Calls come in the order in which the partition's outcomes are acknowledged.
    /// - Parameters:
    ///   - isStored: the store has the push, or is about to, and it is to be removed.
    ///   - completes: its offset isn't complete yet. It may be when the push is stored, and often is.
    /// - Returns: the offset is complete now, as far as the outcome completes it; otherwise ``nextAction()`` says when.
    public mutating func acknowledged(
        device: UInt64, offset: Int64, isStored: Bool, completes: Bool
    ) -> Bool {
        guard isStored || !chains.isEmpty else { return completes }
        guard var chain = chains[device] else {
            guard isStored else { return completes }
            var chain = Chain()
            append(Link(offset: offset, isRemoval: true), device, to: &chain)
            chains[device] = chain
            return completes
        }
        if completes { append(Link(offset: offset, isRemoval: false), device, to: &chain) }
        if isStored { append(Link(offset: offset, isRemoval: true), device, to: &chain) }
        chains[device] = chain
        return false
    }

    /// The partition's offsets are committed, with what was complete at this moment.
    /// - Returns: the commit's number, for ``commitTaken(_:)`` or ``commitFailed(_:)``.
    public mutating func commitIssued() -> UInt64 {
        lastCommit += 1
        commitsUnderWay.append(lastCommit)
        return lastCommit
    }

    /// Kafka has taken a commit.
    public mutating func commitTaken(_ commit: UInt64) {
        end(commit)
        while let next = waiting.first, next.commit < commit {
            waiting.removeFirst()
            links[Int(next.link)].isAsked = true
            actions.append(.remove(device: next.device, offset: links[Int(next.link)].offset))
        }
    }

    /// Kafka hasn't taken a commit, or it isn't known whether it has: another has to follow.
    public mutating func commitFailed(_ commit: UInt64) { end(commit) }

    /// A removal is written; those of a device in the order in which they were asked for.
    /// - Returns: whether it was awaited: not that of an earlier assignment of the partition.
    @discardableResult
    public mutating func removed(device: UInt64, offset: Int64) -> Bool {
        guard var chain = chains[device], links[Int(chain.first)].offset == offset,
            links[Int(chain.first)].isAsked
        else { return false }
        removeFirst(of: &chain)
        removals -= 1
        goOn(device, &chain)
        chains[device] = chain.first == Self.none ? nil : chain
        return true
    }

    /// The partition has gone: nothing is awaited any more.
    public mutating func removeAll() {
        chains.removeAll(keepingCapacity: true)
        links.removeAll(keepingCapacity: true)
        firstFree = Self.none
        waiting.removeAll()
        actions.removeAll()
        commitsUnderWay = []
        (removals, completions) = (0, 0)
    }

    /// What to do next; to be drained after ``commitTaken(_:)`` and ``removed(device:offset:)``.
    public mutating func nextAction() -> Action? { actions.popFirst() }

    // MARK: Chains

    private mutating func end(_ commit: UInt64) {
        if let index = commitsUnderWay.firstIndex(of: commit) { commitsUnderWay.remove(at: index) }
    }

    /// After a removal: completes the offsets behind it. The removals behind those wait for a commit that has them.
    private mutating func goOn(_ device: UInt64, _ chain: inout Chain) {
        // The next removal of a row has its turn already.
        guard chain.first != Self.none, !links[Int(chain.first)].isRemoval else { return }
        while chain.first != Self.none, !links[Int(chain.first)].isRemoval {
            actions.append(.complete(links[Int(chain.first)].offset))
            removeFirst(of: &chain)
            chain.completions -= 1
            completions -= 1
        }
        var link = chain.first
        while link != Self.none, links[Int(link)].isRemoval {
            wait(device, link)
            link = links[Int(link)].next
        }
    }

    private mutating func wait(_ device: UInt64, _ link: UInt32) {
        waiting.append(Waiting(device: device, link: link, commit: lastCommit))
    }

    private mutating func append(_ link: Link, _ device: UInt64, to chain: inout Chain) {
        let index: UInt32
        if firstFree != Self.none {
            index = firstFree
            firstFree = links[Int(index)].next
            links[Int(index)] = link
        } else {
            index = UInt32(links.count)
            links.append(link)
        }
        if chain.first == Self.none {
            chain.first = index
        } else {
            links[Int(chain.last)].next = index
        }
        chain.last = index
        if link.isRemoval {
            removals += 1
            // Nothing but removals before it: its turn comes with theirs.
            if chain.completions == 0 { wait(device, index) }
        } else {
            chain.completions += 1
            completions += 1
        }
    }

    private mutating func removeFirst(of chain: inout Chain) {
        let index = chain.first
        chain.first = links[Int(index)].next
        links[Int(index)].next = firstFree
        firstFree = index
    }
}

/// A queue over a ring that grows when it must.
private struct FIFO<Element: Sendable>: Sendable {
    private var ring: [Element?] = []
    private var head = 0
    private var count = 0

    var first: Element? { count == 0 ? nil : ring[head] }
    var last: Element? { count == 0 ? nil : ring[(head + count - 1) & (ring.count - 1)] }

    mutating func append(_ element: Element) {
        if count == ring.count {
            ring = (0..<count).map { ring[(head + $0) & (ring.count - 1)] }
            ring += repeatElement(nil, count: max(16, count))
            head = 0
        }
        ring[(head + count) & (ring.count - 1)] = element
        count += 1
    }

    mutating func removeFirst() {
        ring[head] = nil
        head = (head + 1) & (ring.count - 1)
        count -= 1
    }

    mutating func popFirst() -> Element? {
        guard let element = first else { return nil }
        removeFirst()
        return element
    }

    mutating func removeAll() {
        head = 0
        count = 0
    }
}
