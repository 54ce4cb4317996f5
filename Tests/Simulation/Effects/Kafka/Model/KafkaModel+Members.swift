/// A client's membership, as the client sees it.
struct KafkaConsumerState {
    enum Pending: UInt8 {
        case none, assign, revoke, lost
    }

    enum JoinState: UInt8 {
        case none, joining, syncing, steady
    }

    var exists = false
    /// Static name's number; -1 without a static name.
    var instance = -1
    /// Number of the member; 0 while the client is no member.
    var member = 0
    var generation: Int32 = -1
    var joinState = JoinState.none
    /// Number that voids answers to earlier joins.
    var joinEpoch: Int32 = 0
    /// Partitions as the group has assigned them.
    var assigned = PartitionSet()
    /// Partitions accepted and not given back.
    var owned = PartitionSet()
    var pending = Pending.none
    var pendingSet = PartitionSet()
    /// Partitions to be assigned after a revocation, possibly none; nil: no assignment follows.
    var addedNext: PartitionSet?
    var rejoins = false
    /// True when the membership was lost before an event was answered.
    var isLostAfter = false
    var answeredAt: UInt64 = 0
    var awaitsHeartbeat = false
    var heartbeatEpoch: Int32 = 0
    /// True when a commit of an earlier generation has cost the client its partitions.
    var losesByCommit = false
}

extension KafkaModel {
    // MARK: Calls

    /// Joins the group for the jobs topic.
    /// - Parameter instance: a static member's name.
    func join(_ id: ClientID, instance: Int = -1) {
        let client = clients[id]
        client.consumer.exists = true
        client.consumer.instance = instance
        client.consumer.heartbeatEpoch &+= 1
        timers.add(
            .heartbeat, at: now + configuration.heartbeatInterval, client: id,
            epoch: client.consumer.heartbeatEpoch)
        sendJoin(client)
    }

    /// The membership now, `nil` without one.
    func membership(_ id: ClientID) -> Membership? {
        let consumer = clients[id].consumer
        return consumer.member == 0
            ? nil : Membership(member: consumer.member, generation: consumer.generation)
    }

    /// Returns whether the group may continue without the client before the client can know, in a slow network.
    ///
    /// The client's request for its partitions, or to join again, has had no answer for more than a second.
    func isCutOff(_ id: ClientID) -> Bool {
        let state = clients[id].consumer.joinState
        return (state == .syncing || state == .joining)
            && now - clients[id].consumer.answeredAt > 1_000_000_000
    }

    /// Whether a commit has to wait, because the client joins the group or is about to.
    func holdsCommits(_ id: ClientID) -> Bool {
        let consumer = clients[id].consumer
        return consumer.joinState == .joining || consumer.joinState == .syncing
            || (consumer.rejoins && consumer.pending != .revoke)
    }

    /// Whether the client has lost its partitions by a commit that it has sent while it joined.
    func losesByCommit(_ id: ClientID) -> Bool { clients[id].consumer.losesByCommit }

    /// Partitions that the client has taken and not given back.
    func owned(_ id: ClientID) -> PartitionSet { clients[id].consumer.owned }

    /// Whether the coordinator has the client's membership.
    func isMember(_ id: ClientID) -> Bool { group.index(of: clients[id].consumer.member) != nil }

    /// Answers `Event.assigned`.
    /// - Parameter offsets: where to begin; the reset policy decides for partitions that aren't named.
    func assign(_ id: ClientID, _ offsets: [(partition: Int, offset: Int64)] = []) {
        let client = clients[id]
        guard client.pending == .assign, client.isRunning else { return }
        let set = client.consumer.pendingSet
        answer(client)
        guard client.consumer.exists else { return }
        for partition in set {
            beginReading(id, partition, offsets.first { $0.partition == partition }?.offset)
        }
        answered(client)
    }

    /// Answers `Event.assigned`, and reads none of its partitions yet. Nothing happens where no answer is awaited.
    func accept(_ id: ClientID) {
        let client = clients[id]
        guard client.pending == .assign, client.isRunning else { return }
        answer(client)
        if client.consumer.exists { answered(client) }
    }

    /// Reads partitions that the client has taken, from these offsets on; nil: the reset policy decides.
    func read(_ id: ClientID, _ offsets: [(partition: Int, offset: Int64?)]) {
        let client = clients[id]
        guard client.isRunning, client.consumer.exists else { return }
        for (partition, offset) in offsets where client.consumer.owned.contains(partition) {
            beginReading(id, partition, offset)
        }
    }

    private func answer(_ client: Client) {
        client.consumer.pending = .none
        // The client was fenced meanwhile and accepts nothing.
        guard client.consumer.exists else { return }
        client.consumer.owned.formUnion(client.consumer.pendingSet)
    }

    private func beginReading(_ id: ClientID, _ partition: Int, _ offset: Int64?) {
        begin(
            id, place(.jobs, partition), offset, configuration.isolation, configuration.resetPolicy,
            isGroup: true)
    }

    /// Answers `Event.revoked` and `Event.lost`.
    func unassign(_ id: ClientID) {
        let client = clients[id]
        guard client.pending == .revoke || client.pending == .lost, client.isRunning else { return }
        let gone = client.consumer.pendingSet
        client.consumer.pending = .none
        client.consumer.owned.subtract(gone)
        for partition in gone { end(client, place(.jobs, partition)) }
        answered(client)
    }

    /// Leaves the group, also as a static member.
    func leave(_ id: ClientID) {
        let client = clients[id]
        guard client.consumer.exists else { return }
        if client.consumer.member != 0 { send(client, .leave(client.consumer.member)) }
        for partition in client.consumer.owned { end(client, place(.jobs, partition)) }
        let epoch = client.consumer.joinEpoch &+ 1
        let beat = client.consumer.heartbeatEpoch &+ 1
        client.consumer = KafkaConsumerState()
        client.consumer.joinEpoch = epoch
        client.consumer.heartbeatEpoch = beat
    }

    // MARK: The rebalance

    private func sendJoin(_ client: Client) {
        client.joins += 1
        client.consumer.joinState = .joining
        client.consumer.joinEpoch &+= 1
        client.consumer.rejoins = false
        let owned = configuration.assignor == .cooperative ? client.consumer.assigned : []
        send(client, .join(client.consumer.member, owned, client.consumer.joinEpoch))
    }

    func rejoin(_ client: Client, _ epoch: Int32) {
        guard client.consumer.exists, client.consumer.joinEpoch == epoch, client.pending == .none else {
            return
        }
        sendJoin(client)
    }

    private func joinLater(_ client: Client) {
        client.consumer.joinEpoch &+= 1
        timers.add(
            .rejoin, at: now + configuration.retryPause, client: client.id, epoch: client.consumer.joinEpoch)
    }

    func joined(_ client: Client, _ member: Int, _ generation: Int32, _ failure: Failure?) {
        switch failure {
        case nil:
            client.consumer.member = member
            client.consumer.generation = generation
            client.consumer.joinState = .syncing
            client.consumer.answeredAt = now
            guard member == group.leader else { return sendSync(client, client.consumer.joinEpoch) }
            // The leader looks for the topic's partitions first.
            timers.add(
                .sendSync, at: now + drawDelay() + drawDelay(), client: client.id,
                epoch: client.consumer.joinEpoch)
        case .coordinatorAway: joinLater(client)
        case .fencedInstance: fenceInstance(client)
        default:
            client.consumer.member = 0
            lose(client)
        }
    }

    func sendSync(_ client: Client, _ epoch: Int32) {
        guard client.consumer.joinState == .syncing, client.consumer.joinEpoch == epoch else { return }
        send(client, .sync(client.consumer.member, client.consumer.generation, epoch))
    }

    func synced(_ client: Client, _ set: PartitionSet, _ failure: Failure?) {
        switch failure {
        case nil: break
        case .rebalanceInProgress, .illegalGeneration: return sendJoin(client)
        case .coordinatorAway: return joinLater(client)
        case .fencedInstance: return fenceInstance(client)
        default:
            client.consumer.member = 0
            return lose(client)
        }
        client.consumer.joinState = .steady
        client.consumer.answeredAt = now
        client.consumer.awaitsHeartbeat = false
        let before = client.consumer.assigned
        client.consumer.assigned = set
        let revoked = before.subtracting(set)
        let added = set.subtracting(before)
        guard !revoked.isEmpty else { return emit(client, .assign, added) }
        client.consumer.addedNext = added
        client.consumer.rejoins = true
        emit(client, .revoke, revoked)
    }

    private func emit(_ client: Client, _ pending: KafkaConsumerState.Pending, _ set: PartitionSet) {
        client.consumer.pending = pending
        client.consumer.pendingSet = set
        switch pending {
        case .assign: client.events.append(.assigned(set))
        case .revoke: client.events.append(.revoked(set))
        case .lost: client.events.append(.lost(set))
        case .none: break
        }
    }

    /// Continues after an event was answered.
    private func answered(_ client: Client) {
        guard client.consumer.exists else { return }
        if client.consumer.isLostAfter {
            client.consumer.isLostAfter = false
            return lose(client)
        }
        if let added = client.consumer.addedNext {
            // The first round of a cooperative rebalance ends with an assignment, even of nothing. The second follows.
            client.consumer.addedNext = nil
            return emit(client, .assign, added)
        }
        if client.consumer.rejoins || client.consumer.joinState == .none { sendJoin(client) }
    }

    /// Rejoins, because the group rebalances.
    private func startRejoin(_ client: Client) {
        guard configuration.assignor == .eager, !client.consumer.owned.isEmpty else {
            return sendJoin(client)
        }
        client.consumer.rejoins = true
        client.consumer.assigned = []
        emit(client, .revoke, client.consumer.owned)
    }

    /// Loses the client's partitions, which belong to other members by now.
    func lose(_ client: Client) {
        client.consumer.joinState = .none
        client.consumer.joinEpoch &+= 1
        client.consumer.awaitsHeartbeat = false
        guard client.pending == .none else {
            if client.pending != .lost { client.consumer.isLostAfter = true }
            return
        }
        client.consumer.assigned = []
        client.consumer.addedNext = nil
        guard client.consumer.owned.isEmpty else { return emit(client, .lost, client.consumer.owned) }
        sendJoin(client)
    }

    private func fenceInstance(_ client: Client) {
        client.events.append(.instanceFenced)
        client.consumer.member = 0
        client.consumer.exists = false
        client.consumer.joinState = .none
        client.consumer.joinEpoch &+= 1
    }

    // MARK: Heartbeats

    func heartbeat(_ client: Client, _ epoch: Int32) {
        guard client.consumer.exists, client.consumer.heartbeatEpoch == epoch else { return }
        timers.add(
            .heartbeat, at: now + configuration.heartbeatInterval, client: client.id, epoch: epoch)
        let isPolled = now - client.polledAt <= configuration.maximumPollInterval
        guard client.consumer.member != 0 else {
            if client.consumer.joinState == .none, client.pending == .none, isPolled { sendJoin(client) }
            return
        }
        if !isPolled {
            send(client, .leave(client.consumer.member))
            client.consumer.member = 0
            return loseUnpolled(client)
        }
        guard client.consumer.joinState == .steady else { return }
        if now - client.consumer.answeredAt > configuration.sessionTimeout {
            client.consumer.member = 0
            return lose(client)
        }
        if group.sharedCount != partitionCount(.jobs), group.lookAt <= now, client.pending == .none {
            return startRejoin(client)
        }
        guard !client.consumer.awaitsHeartbeat else { return }
        client.consumer.awaitsHeartbeat = true
        send(
            client,
            .heartbeat(client.consumer.member, client.consumer.generation, client.consumer.joinEpoch))
    }

    /// Ends the membership of a client that wasn't polled. The client rejoins at the next poll.
    private func loseUnpolled(_ client: Client) {
        let hasNothing = client.consumer.owned.isEmpty && client.pending == .none
        guard hasNothing else { return lose(client) }
        client.consumer.joinState = .none
        client.consumer.joinEpoch &+= 1
        client.consumer.assigned = []
    }

    func heartbeatAnswered(_ client: Client, _ failure: Failure?) {
        client.consumer.awaitsHeartbeat = false
        guard client.consumer.joinState == .steady else { return }
        switch failure {
        case nil: client.consumer.answeredAt = now
        case .rebalanceInProgress:
            client.consumer.answeredAt = now
            if client.pending == .none { startRejoin(client) }
        case .illegalGeneration: lose(client)
        case .unknownMember:
            client.consumer.member = 0
            lose(client)
        case .fencedInstance: fenceInstance(client)
        default: break
        }
    }

    /// Processes a commit's answer, which also shows whether the membership is lost.
    func committed(_ client: Client, _ reference: Int, _ failure: Failure?, _ membership: Membership) {
        client.events.append(.committed(reference: reference, failure))
        guard let failure, failure.isMembershipLost, client.consumer.exists,
            client.consumer.member == membership.member, client.consumer.joinState != .none
        else { return }
        if failure == .unknownMember { client.consumer.member = 0 }
        // The client has sent the commit between the request to join and its answer.
        if failure == .illegalGeneration, client.consumer.generation > membership.generation {
            client.consumer.losesByCommit = true
        }
        // Loses partitions of a newer generation as well, as librdkafka does.
        lose(client)
    }

    // MARK: Partitions

    /// The number of partitions has changed: producers learn of it now, and members later.
    func partitionsChanged() {
        for client in clients where client.producer.exists && client.isRunning {
            for place in client.queues.indices
            where !client.queues[place].records.isEmpty && !logs[place].isAway {
                resumeQueue(client, place)
            }
        }
        group.lookAt = now + drawn(0...configuration.metadataAge)
    }
}
