import DequeModule

/// Decides when pushes that have ended may leave the store, and which offsets have to wait for that.
///
/// A superseded push must not return when its successor is gone. Two rules therefore hold:
/// - A push is removed only after Kafka has accepted a commit issued after the push's outcome was acknowledged. All
///   offsets of its device that were acknowledged before have to be complete as well.
/// - An offset whose outcome is acknowledged after that of a stored push of its device completes with that push's
///   removal. If it were committed before, a crash would bring back the older push alone.
///
/// The acknowledgements of a device therefore form a *chain* as soon as there is an acknowledgement of a stored push.
/// The chain spans partitions, because after a token change a device has pushes of several.
/// Chains of different devices don't wait for each other. All removals that come next in their chains follow the same
/// commit, even several in a row of one chain.
///
/// A hash identifies the device: two devices that share it only wait for each other without need. Memory is bounded
/// by the ended pushes that await their removal. Pure. Each step is O(1). In steady state nothing is allocated, and
/// without chains an acknowledgement costs one comparison.
public struct DeferredDeletes: Sendable {
    /// Action for the owner, in the order of ``nextAction()``.
    public enum Action: Equatable, Sendable {
        /// Remove the item from the store, after all removals before it. ``removed(_:)`` has to follow
        /// when the removal is written.
        case remove(EndedItem)
        /// The offset is complete.
        case complete(RecordPlace)
    }

    private struct Chain: Sendable {
        var first = DeferredDeletes.none
        var last = DeferredDeletes.none
        /// Offsets in the chain that wait for removals.
        var completions = 0
    }

    /// Link of a chain: a removal or completion that is still to be done, or a free link.
    private struct Link: Sendable {
        var place: RecordPlace
        var next = DeferredDeletes.none
        var isRemoval: Bool
        /// True when the removal waits for its commit, or the owner has been asked to remove the item.
        var isNext = false
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
    /// waits like a push that isn't stored. Calls come in the order in which the outcomes are acknowledged.
    /// - Parameters:
    ///   - isStored: true when the store has the push, or is about to, and the push is to be removed.
    ///   - completes: true when the offset isn't complete yet. The offset of a stored push often is complete.
    /// - Returns: true when the offset is complete now because of the outcome; otherwise ``nextAction()`` reports it.
    public mutating func acknowledged(
        _ item: EndedItem, isStored: Bool, completes: Bool
    ) -> Bool {
        guard isStored || !chains.isEmpty else { return completes }
        guard var chain = chains[item.device] else {
            guard isStored else { return completes }
            var chain = Chain()
            append(Link(place: item.place, isRemoval: true), item.device, to: &chain)
            chains[item.device] = chain
            return completes
        }
        if completes { append(Link(place: item.place, isRemoval: false), item.device, to: &chain) }
        if isStored { append(Link(place: item.place, isRemoval: true), item.device, to: &chain) }
        chains[item.device] = chain
        return false
    }

    /// Records that the offsets of all partitions are being committed, with all that are complete now.
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
            actions.append(.remove(EndedItem(device: next.device, place: links[Int(next.link)].place)))
        }
    }

    /// Records that Kafka hasn't accepted a commit, or that the result is unknown: another commit has to follow.
    public mutating func commitFailed(_ commit: UInt64) { endCommit(commit) }

    /// Records that a removal is written. Removals of a device are reported in the order in which they were
    /// requested.
    /// - Returns: true when the removal was awaited, and doesn't belong to an earlier assignment of the partition.
    @discardableResult
    public mutating func removed(_ item: EndedItem) -> Bool {
        guard var chain = chains[item.device], links[Int(chain.first)].place == item.place,
            links[Int(chain.first)].isAsked
        else { return false }
        removeFirst(of: &chain)
        removals -= 1
        advance(item.device, &chain)
        chains[item.device] = chain.first == Self.none ? nil : chain
        return true
    }

    /// Forgets what a partition has in the chains, because the partition has ended. O(links).
    /// - Returns: the number of its offsets that waited for removals.
    public mutating func removeAll(_ slot: UInt16) -> Int {
        guard has(slot) else { return 0 }
        waiting.removeAll { [links] in links[Int($0.link)].place.partitionSlot == slot }
        var forgotten = 0
        for device in chains.keys.sorted() {
            var (index, kept) = (chains[device]!.first, Chain())
            while index != Self.none {
                let link = links[Int(index)]
                if link.place.partitionSlot != slot {
                    attach(index, to: &kept)
                } else {
                    free(index)
                    if link.isRemoval { removals -= 1 } else { forgotten += 1 }
                }
                index = link.next
            }
            complete(&kept)
            awaitCommit(device, kept)
            chains[device] = kept.first == Self.none ? nil : kept
        }
        completions -= forgotten
        return forgotten
    }

    /// Returns true when a partition has removals or offsets in the chains. O(links).
    public func has(_ slot: UInt16) -> Bool {
        chains.values.contains { chain in
            var link = chain.first
            while link != Self.none {
                if links[Int(link)].place.partitionSlot == slot { return true }
                link = links[Int(link)].next
            }
            return false
        }
    }

    /// Returns the next action; nil when there is none. Drain after each other call.
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
        complete(&chain)
        awaitCommit(device, chain)
    }

    /// Completes the offsets at the front of a chain.
    private mutating func complete(_ chain: inout Chain) {
        while chain.first != Self.none, !links[Int(chain.first)].isRemoval {
            actions.append(.complete(links[Int(chain.first)].place))
            removeFirst(of: &chain)
            chain.completions -= 1
            completions -= 1
        }
    }

    /// Makes the removals at the front of a chain wait for a commit, unless they do or are asked for.
    private mutating func awaitCommit(_ device: UInt64, _ chain: Chain) {
        var link = chain.first
        while link != Self.none, links[Int(link)].isRemoval {
            if !links[Int(link)].isNext { wait(device, link) }
            link = links[Int(link)].next
        }
    }

    private mutating func wait(_ device: UInt64, _ link: UInt32) {
        links[Int(link)].isNext = true
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
        attach(index, to: &chain)
        if link.isRemoval {
            removals += 1
            // With nothing but removals before it, the removal is next together with them.
            if chain.completions == 0 { wait(device, index) }
        } else {
            completions += 1
        }
    }

    private mutating func attach(_ index: UInt32, to chain: inout Chain) {
        links[Int(index)].next = Self.none
        if chain.first == Self.none {
            chain.first = index
        } else {
            links[Int(chain.last)].next = index
        }
        chain.last = index
        if !links[Int(index)].isRemoval { chain.completions += 1 }
    }

    private mutating func removeFirst(of chain: inout Chain) {
        let index = chain.first
        chain.first = links[Int(index)].next
        free(index)
    }

    private mutating func free(_ index: UInt32) {
        links[Int(index)].next = firstFree
        firstFree = index
    }
}
