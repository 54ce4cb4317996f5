import DequeModule

/// Decides when pushes that have ended may leave the store, and which offsets have to wait for that. Each partition
/// of the intake has its own value.
///
/// A superseded push must not return when its successor is gone. Two rules therefore hold:
/// - A push is removed only after Kafka has accepted a commit issued after the push's outcome was acknowledged. All
///   offsets of its device that were acknowledged before have to be complete as well.
/// - An offset whose outcome is acknowledged after that of a stored push of its device completes with that push's
///   removal. If it were committed before, a crash would bring back the older push alone.
///
/// The acknowledgements of a device therefore form a *chain* as soon as there is an acknowledgement of a stored push.
/// Chains of different devices don't wait for each other. All removals that come next in their chains follow the same
/// commit, even several in a row of one chain.
///
/// A hash identifies the device: two devices that share it only wait for each other without need. Memory is bounded
/// by the ended pushes that await their removal. Pure. Each step is O(1). In steady state nothing is allocated, and
/// without chains an acknowledgement costs one comparison.
public struct DeferredDeletes: Sendable {
    /// Action for the owner, in the order of ``nextAction()``.
    public enum Action: Equatable, Sendable {
        /// Remove the item from the store, after all removals before it. ``removed(device:offset:)`` has to follow
        /// when the removal is written.
        case remove(device: UInt64, offset: Int64)
        /// The offset is complete.
        case complete(Int64)
    }

    private struct Chain: Sendable {
        var first = DeferredDeletes.none
        var last = DeferredDeletes.none
        /// Offsets in the chain that wait for removals.
        var completions = 0
    }

    /// Link of a chain: a removal or completion that is still to be done, or a free link.
    private struct Link: Sendable {
        var offset: Int64
        var next = DeferredDeletes.none
        var isRemoval: Bool
        /// True when the owner has been asked to remove the item.
        var isAsked = false
    }

    /// Removal that is next in its chain, and waits for a commit issued later than `commit`.
    private struct Waiting: Sendable {
        var device: UInt64
        var link: UInt32
        var commit: UInt64
    }

    private static let none = UInt32.max
    private var chains: [UInt64: Chain] = [:]
    private var links: [Link] = []
    private var firstFree = DeferredDeletes.none
    /// Removals in the order in which they became next, and therefore with rising commits.
    private var waiting = Deque<Waiting>()
    private var actions = Deque<Action>()
    private var lastCommit: UInt64 = 0
    /// Commits that were issued, and neither accepted nor failed.
    private var commitsUnderWay: [UInt64] = []
    /// Pushes whose outcome is acknowledged and that aren't removed yet.
    public private(set) var removals = 0
    /// Offsets that wait for removals.
    public private(set) var completions = 0

    public init() {}

    /// True when no removal is awaited: there is no chain. Inlined because it is asked for each outcome: a call would
    /// copy the value.
    @inlinable public var isEmpty: Bool { removals == 0 && completions == 0 }

    /// True when a removal waits for a commit that isn't issued yet. A commit is then needed even if no offset has
    /// changed.
    public var needsCommit: Bool {
        guard let last = waiting.last else { return false }
        return last.commit >= commitsUnderWay.max() ?? 0
    }

    // MARK: Events

    /// Records that Kafka has acknowledged the outcome of a push, cancel or device event. A cancel or device event
    /// waits like a push that isn't stored. Calls come in the order in which the partition's outcomes are
    /// acknowledged.
    /// - Parameters:
    ///   - isStored: true when the store has the push, or is about to, and the push is to be removed.
    ///   - completes: true when the offset isn't complete yet. The offset of a stored push often is complete.
    /// - Returns: true when the offset is complete now because of the outcome; otherwise ``nextAction()`` reports it.
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

    /// Records that the partition's offsets are being committed, with all that are complete now.
    /// - Returns: the commit's number, for ``commitTaken(_:)`` or ``commitFailed(_:)``.
    public mutating func commitIssued() -> UInt64 {
        lastCommit += 1
        commitsUnderWay.append(lastCommit)
        return lastCommit
    }

    /// Records that Kafka has accepted a commit.
    public mutating func commitTaken(_ commit: UInt64) {
        endCommit(commit)
        while let next = waiting.first, next.commit < commit {
            waiting.removeFirst()
            links[Int(next.link)].isAsked = true
            actions.append(.remove(device: next.device, offset: links[Int(next.link)].offset))
        }
    }

    /// Records that Kafka hasn't accepted a commit, or that the result is unknown: another commit has to follow.
    public mutating func commitFailed(_ commit: UInt64) { endCommit(commit) }

    /// Records that a removal is written. Removals of a device are reported in the order in which they were
    /// requested.
    /// - Returns: true when the removal was awaited, and doesn't belong to an earlier assignment of the partition.
    @discardableResult
    public mutating func removed(device: UInt64, offset: Int64) -> Bool {
        guard var chain = chains[device], links[Int(chain.first)].offset == offset,
            links[Int(chain.first)].isAsked
        else { return false }
        removeFirst(of: &chain)
        removals -= 1
        advance(device, &chain)
        chains[device] = chain.first == Self.none ? nil : chain
        return true
    }

    /// Forgets all chains because the partition was revoked.
    public mutating func removeAll() {
        chains.removeAll(keepingCapacity: true)
        links.removeAll(keepingCapacity: true)
        firstFree = Self.none
        waiting.removeAll(keepingCapacity: true)
        actions.removeAll(keepingCapacity: true)
        commitsUnderWay = []
        (removals, completions) = (0, 0)
    }

    /// Returns the next action; nil when there is none. Drain after ``commitTaken(_:)`` and
    /// ``removed(device:offset:)``.
    public mutating func nextAction() -> Action? { actions.popFirst() }

    // MARK: Chains

    private mutating func endCommit(_ commit: UInt64) {
        if let index = commitsUnderWay.firstIndex(of: commit) { commitsUnderWay.remove(at: index) }
    }

    /// Completes the offsets behind a removal. The removals behind those offsets wait for a commit that includes the
    /// offsets.
    private mutating func advance(_ device: UInt64, _ chain: inout Chain) {
        // The next removal of the row waits for its commit already.
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
            // With nothing but removals before it, the removal is next together with them.
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
