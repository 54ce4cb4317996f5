/// The group's offsets.
extension KafkaModel {
    // MARK: Calls

    /// Commits outside of transactions. `Event.committed` answers.
    func commit(_ id: ClientID, _ offsets: [OffsetCommit]) -> Int {
        let reference = nextReference()
        let consumer = clients[id].consumer
        send(clients[id], .commit(reference, consumer.member, consumer.generation, offsets))
        return reference
    }

    /// Asks for committed offsets. `Event.fetchedCommitted` answers.
    /// - Parameter requireStable: an open transaction's offsets make it fail.
    func fetchCommitted(_ id: ClientID, _ partitions: PartitionSet, requireStable: Bool = true) -> Int {
        let reference = nextReference()
        send(clients[id], .fetch(reference, partitions, requireStable))
        return reference
    }

    /// Sets an offset as an operator does, while no member has the partition. -1 deletes it.
    func resetOffset(_ partition: Int, to offset: Int64, metadata: String = "") -> Bool {
        guard !group.isAway,
            !group.members.contains(where: {
                $0.assignment.contains(partition) || $0.owned.contains(partition)
            })
        else { return false }
        setOffset(OffsetCommit(partition: partition, offset: offset, metadata: metadata), .outside)
        return true
    }

    /// Returns the offset that the coordinator has.
    func committedOffset(_ partition: Int) -> CommittedOffset {
        let offset = group.offsets[partition]
        return CommittedOffset(partition: partition, offset: offset.offset, metadata: offset.metadata)
    }

    // MARK: At the coordinator

    func setOffset(_ commit: OffsetCommit, _ origin: CommitOrigin, serial: Int? = nil) {
        group.offsets[commit.partition] = .init(
            offset: commit.offset, metadata: commit.metadata, serial: serial ?? group.nextSerial())
        commits.append(
            CommittedChange(
                time: now, partition: commit.partition, offset: commit.offset, metadata: commit.metadata,
                origin: origin))
    }

    /// Returns why a membership can't commit; nil when it can.
    func refusal(of membership: Membership) -> Failure? {
        if membership == .unfenced { return nil }
        guard let index = group.index(of: membership.member) else { return .unknownMember }
        guard membership.generation == group.generation else { return .illegalGeneration }
        group.members[index].seenAt = now
        return nil
    }

    func commitArrives(
        _ client: Client, _ reference: Int, _ membership: Membership, _ offsets: [OffsetCommit]
    ) {
        var failure = refusal(of: membership)
        // A group with members accepts no commit of other clients.
        if membership.member == 0, group.state != .empty { failure = .unknownMember }
        let isRefused =
            group.state == .completing
            || (group.state == .preparing && configuration.refusesCommitsWhileJoining)
        if failure == nil, isRefused { failure = .rebalanceInProgress }
        guard failure == nil else { return answer(client, .committed(reference, failure, membership)) }
        for commit in offsets {
            if commit.metadata.utf8.count > configuration.metadataLimit {
                failure = .metadataTooLarge
            } else {
                setOffset(commit, .member(client.id))
            }
        }
        let isLost = configuration.answerLostPerMille > 0 && draw.chance(configuration.answerLostPerMille)
        answer(client, .committed(reference, isLost ? .timedOut : failure, membership))
    }

    func fetchArrives(
        _ client: Client, _ reference: Int, _ partitions: PartitionSet, _ requireStable: Bool
    ) {
        if requireStable, partitions.contains(where: { group.unstable[$0] > 0 }) {
            return answer(client, .fetched(reference, [], .unstableOffsets))
        }
        answer(client, .fetched(reference, partitions.map { committedOffset($0) }, nil))
    }
}
