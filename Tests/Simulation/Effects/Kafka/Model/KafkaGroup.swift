/// The group's coordinator: members, generations, offsets.
final class KafkaGroup {
    enum State: UInt8 {
        case empty
        /// The coordinator waits for all members to rejoin.
        case preparing
        /// The coordinator waits for the leader's assignment.
        case completing
        case stable
    }

    struct Member {
        var number: Int
        var client: ClientID
        /// Static name's number; -1 without a static name.
        var instance: Int
        /// Partitions that the member claims to own.
        var owned = PartitionSet()
        var assignment = PartitionSet()
        /// The answer to the member's join waits for all other members.
        var isJoining = false
        /// The answer to the member's sync waits for the leader's assignment.
        var isSyncing = false
        var hasSynced = false
        var seenAt: UInt64
    }

    struct Offset {
        var offset: Int64 = -1
        var metadata = ""
        var serial = 0
    }

    var state = State.empty
    var generation: Int32 = 0
    var members: [Member] = []
    /// The member that assigns the partitions.
    var leader = 0
    var nextMember = 1
    /// Committed offsets by partition of the jobs topic.
    var offsets = [Offset](repeating: Offset(), count: KafkaModel.stride)
    /// Offsets in open transactions, by partition.
    var unstable = [Int](repeating: 0, count: KafkaModel.stride)
    var isAway = false
    /// Number that grows each time the coordinator becomes unreachable.
    var epoch = 0
    /// Number that voids earlier deadlines.
    var deadlineEpoch: Int32 = 0
    /// The first members of an empty group wait for others.
    var isFirst = false
    /// State that was durable at the last assignment.
    var kept: (generation: Int32, members: [Member], leader: Int) = (0, [], 0)
    /// Partitions at the last assignment, and the time at which members check the number again.
    var sharedCount = 0
    var lookAt: UInt64 = 0
    private var serial = 0

    func nextSerial() -> Int {
        serial += 1
        return serial
    }

    func index(of member: Int) -> Int? { members.firstIndex { $0.number == member } }
}

extension KafkaModel {
    // MARK: Away and back

    /// Requests and answers under way are lost. The next coordinator knows the last complete assignment.
    func setGroupCoordinator(isAway: Bool) {
        guard group.isAway != isAway else { return }
        group.isAway = isAway
        group.deadlineEpoch &+= 1
        if isAway {
            group.epoch += 1
            for client in clients { disconnect(client) }
            return
        }
        group.generation = group.kept.generation
        group.members = group.kept.members
        group.leader = group.kept.leader
        for index in group.members.indices {
            group.members[index].isJoining = false
            group.members[index].isSyncing = false
            group.members[index].seenAt = now
            timers.add(
                .memberExpires, at: now + configuration.sessionTimeout, subject: group.members[index].number)
        }
        group.state = group.members.isEmpty ? .empty : .stable
    }

    private func keepGroup() { group.kept = (group.generation, group.members, group.leader) }

    // MARK: Joining

    func joinArrives(_ client: Client, _ number: Int, _ owned: PartitionSet, _ epoch: Int32) {
        let instance = client.consumer.instance
        var number = number
        if number != 0 {
            guard group.index(of: number) != nil else {
                return answer(client, .joined(0, 0, missing(number, instance), epoch))
            }
        } else if instance >= 0, let index = group.members.firstIndex(where: { $0.instance == instance }) {
            number = replace(client, index)
            if group.state == .stable {
                keepGroup()
                return answer(client, .joined(number, group.generation, nil, epoch))
            }
        } else {
            number = group.nextMember
            group.nextMember += 1
            group.members.append(
                .init(number: number, client: client.id, instance: instance, seenAt: now))
            timers.add(.memberExpires, at: now + configuration.sessionTimeout, subject: number)
        }
        let index = group.index(of: number)!
        // A rejoin of a member that doesn't lead changes nothing.
        if group.state == .stable, number != group.leader, group.members[index].hasSynced,
            group.members[index].owned == owned
        {
            group.members[index].seenAt = now
            return answer(client, .joined(number, group.generation, nil, epoch))
        }
        group.members[index].owned = owned
        group.members[index].isJoining = true
        group.members[index].isSyncing = false
        group.members[index].seenAt = now
        client.link.isHeld = true
        client.link.heldEpoch = epoch
        if group.state != .preparing { prepare() }
        completeIfAllJoined()
    }

    /// A static member's new process takes its place: the older one is fenced.
    private func replace(_ client: Client, _ index: Int) -> Int {
        let former = clients[group.members[index].client]
        let number = group.nextMember
        group.nextMember += 1
        if group.members[index].isJoining || group.members[index].isSyncing {
            group.members[index].isJoining = false
            group.members[index].isSyncing = false
            answer(former, .joined(0, 0, .fencedInstance, former.link.heldEpoch))
        }
        if group.leader == group.members[index].number { group.leader = number }
        group.members[index].number = number
        group.members[index].client = client.id
        group.members[index].owned = []
        group.members[index].seenAt = now
        timers.add(.memberExpires, at: now + configuration.sessionTimeout, subject: number)
        return number
    }

    private func missing(_ number: Int, _ instance: Int) -> Failure {
        instance >= 0 && group.members.contains { $0.instance == instance && $0.number != number }
            ? .fencedInstance : .unknownMember
    }

    /// Begins a rebalance: all members have to rejoin.
    private func prepare() {
        for index in group.members.indices where group.members[index].isSyncing {
            group.members[index].isSyncing = false
            let client = clients[group.members[index].client]
            answer(client, .synced([], .rebalanceInProgress, client.link.heldEpoch))
        }
        group.isFirst = group.state == .empty
        group.state = .preparing
        group.deadlineEpoch &+= 1
        timers.add(
            .groupDeadline,
            at: now + (group.isFirst ? configuration.initialRebalanceDelay : configuration.rebalanceTimeout),
            epoch: group.deadlineEpoch)
    }

    private func completeIfAllJoined() {
        guard group.state == .preparing, !group.isFirst, group.members.allSatisfy({ $0.isJoining }) else {
            return
        }
        completeJoin()
    }

    func groupDeadline(_ epoch: Int32) {
        guard group.deadlineEpoch == epoch, !group.isAway else { return }
        switch group.state {
        case .preparing:
            group.isFirst = false
            completeJoin()
        case .completing:
            // Removes members that don't request their assignment.
            group.members.removeAll { !$0.isSyncing }
            shareAnew()
        case .empty, .stable: break
        }
    }

    private func completeJoin() {
        group.members.removeAll { !$0.isJoining && $0.instance < 0 }
        group.generation += 1
        group.deadlineEpoch &+= 1
        guard group.members.contains(where: { $0.isJoining }) else {
            group.state = group.members.isEmpty ? .empty : .stable
            return keepGroup()
        }
        group.state = .completing
        timers.add(.groupDeadline, at: now + configuration.rebalanceTimeout, epoch: group.deadlineEpoch)
        if group.index(of: group.leader).map({ group.members[$0].isJoining }) != true {
            group.leader = group.members.first { $0.isJoining }!.number
        }
        for number in group.members.map(\.number) {
            guard let index = group.index(of: number), group.members[index].isJoining else { continue }
            group.members[index].isJoining = false
            group.members[index].hasSynced = false
            group.members[index].seenAt = now
            let client = clients[group.members[index].client]
            answer(client, .joined(number, group.generation, nil, client.link.heldEpoch))
        }
        // Requests that arrived behind a join are read now.
        for client in clients where !client.link.isHeld && !client.link.held.isEmpty { serveHeld(client) }
    }

    func syncArrives(_ client: Client, _ number: Int, _ generation: Int32, _ epoch: Int32) {
        guard let index = group.index(of: number) else {
            return answer(client, .synced([], missing(number, client.consumer.instance), epoch))
        }
        guard generation == group.generation else {
            return answer(client, .synced([], .illegalGeneration, epoch))
        }
        group.members[index].seenAt = now
        switch group.state {
        case .empty, .preparing: answer(client, .synced([], .rebalanceInProgress, epoch))
        case .stable:
            group.members[index].hasSynced = true
            answer(client, .synced(group.members[index].assignment, nil, epoch))
        case .completing:
            group.members[index].isSyncing = true
            client.link.isHeld = true
            client.link.heldEpoch = epoch
            guard number == group.leader else { return }
            shareOut()
            group.state = .stable
            group.deadlineEpoch &+= 1
            for index in group.members.indices where group.members[index].isSyncing {
                group.members[index].isSyncing = false
                group.members[index].hasSynced = true
                group.members[index].seenAt = now
                let client = clients[group.members[index].client]
                answer(client, .synced(group.members[index].assignment, nil, client.link.heldEpoch))
            }
            keepGroup()
            for client in clients where !client.link.isHeld && !client.link.held.isEmpty { serveHeld(client) }
        }
    }

    // MARK: Members

    func heartbeatArrives(_ client: Client, _ number: Int, _ generation: Int32, _ epoch: Int32) {
        guard let index = group.index(of: number) else {
            return answer(client, .heartbeat(missing(number, client.consumer.instance), epoch))
        }
        guard generation == group.generation else {
            return answer(client, .heartbeat(.illegalGeneration, epoch))
        }
        group.members[index].seenAt = now
        answer(client, .heartbeat(group.state == .preparing ? .rebalanceInProgress : nil, epoch))
    }

    func leaveArrives(_ number: Int) {
        guard let index = group.index(of: number) else { return }
        group.members.remove(at: index)
        shareAnew()
    }

    func memberExpires(_ number: Int) {
        guard !group.isAway, let index = group.index(of: number) else { return }
        let member = group.members[index]
        // A member that waits for an answer counts as alive.
        let seenAt = member.isJoining || member.isSyncing ? now : member.seenAt
        let due = seenAt + configuration.sessionTimeout
        guard due <= now else { return timers.add(.memberExpires, at: due, subject: number) }
        group.members.remove(at: index)
        shareAnew()
    }

    /// Assigns the partitions anew after a member has left.
    private func shareAnew() {
        switch group.state {
        case .preparing where group.isFirst: break
        case .preparing where group.members.isEmpty: completeJoin()
        case .preparing: completeIfAllJoined()
        case .empty: break
        case .completing, .stable:
            guard !group.members.isEmpty else {
                group.generation += 1
                group.deadlineEpoch &+= 1
                group.state = .empty
                return keepGroup()
            }
            prepare()
        }
    }

    // MARK: Assignors

    private func shareOut() {
        group.sharedCount = partitionCount(.jobs)
        switch configuration.assignor {
        case .cooperative: shareCooperatively()
        case .eager: shareEagerly()
        }
    }

    /// Contiguous ranges.
    private func shareEagerly() {
        let count = partitionCount(.jobs)
        let members = group.members.count
        var next = 0
        for index in group.members.indices {
            let share = count / members + (index < count % members ? 1 : 0)
            var assignment = PartitionSet()
            for partition in next..<next + share { assignment.insert(partition) }
            group.members[index].assignment = assignment
            next += share
        }
    }

    /// Even shares, with as few moves as possible. A partition that moves is given to nobody until its owner has
    /// joined without it.
    private func shareCooperatively() {
        let all = PartitionSet(below: partitionCount(.jobs))
        let count = group.members.count
        var free = all
        var claimed = PartitionSet()
        var extra = all.count % count
        let order = group.members.indices.sorted {
            let (one, other) = (group.members[$0], group.members[$1])
            return one.owned.count != other.owned.count
                ? one.owned.count > other.owned.count : one.number < other.number
        }
        for index in order {
            var kept = group.members[index].owned.intersection(all).subtracting(claimed)
            claimed.formUnion(kept)
            var share = all.count / count
            if extra > 0, kept.count > share {
                share += 1
                extra -= 1
            }
            while kept.count > share { kept.remove(chosen(kept)) }
            group.members[index].assignment = kept
            free.subtract(kept)
        }
        for partition in free {
            let index = group.members.indices.min {
                let (one, other) = (group.members[$0], group.members[$1])
                return one.assignment.count != other.assignment.count
                    ? one.assignment.count < other.assignment.count : one.number < other.number
            }!
            group.members[index].assignment.insert(partition)
        }
        for index in group.members.indices {
            let others = group.members.indices.reduce(PartitionSet()) {
                $1 == index ? $0 : $0.union(group.members[$1].owned)
            }
            let kept = group.members[index].owned
            group.members[index].assignment.subtract(others.subtracting(kept))
        }
    }

    /// Any of a set's partitions.
    private func chosen(_ set: PartitionSet) -> Int {
        var rest = draw.below(set.count)
        for partition in set {
            if rest == 0 { return partition }
            rest -= 1
        }
        return 0
    }
}
