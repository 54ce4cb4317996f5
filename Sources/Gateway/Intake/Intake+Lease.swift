import DeliveryCore
import EventLoop
import Kafka
import Logging

/// A commit of what is committed already: it changes nothing, and only a member can make it.
struct MembershipInquiry {
    var reference: UInt64
    /// On the monotonic clock.
    var requestedAt: UInt64
}

/// Carries out the lease's decisions.
extension Intake {
    /// Each tick.
    func renewLease() {
        follow(lease.tick(at: MonotonicTime.read().nanoseconds))
        inquire()
    }

    /// The group has taken a commit that was asked for at this moment, as only a member can commit.
    func confirmMembership(requestedAt: UInt64) {
        follow(lease.confirmed(requestedAt: requestedAt))
        // It was on its way before the process was stopped: once more.
        if lease.isDoubtful, !lease.awaitsShards, transactions != nil { commitAllAgain() }
    }

    private func follow(_ action: MembershipLease.Action?) {
        switch action {
        case nil: break
        case .extend(let until):
            let wasOver = !permit.isValid
            permit.extend(until: MonotonicTime(nanoseconds: until))
            if wasOver { for shard in shards { shard.loop.execute { shard.askForTurnEnd() } } }
        case .doubt:
            logger.warning(
                "this process was stopped for a while, or its Kafka thread was held up: nothing is sent until the group confirms its partitions",
                metadata: ["partitions": "\(partitions.count)"])
            // The next transaction asks.
            if transactions != nil { commitAllAgain() }
            inquire()
        case .askShards(let number): askShards(number)
        }
    }

    /// Without transactions the group is asked by a commit of what is committed: what isn't yet may wait for changes of the
    /// store, and these for the group's answer.
    private func inquire() {
        guard lease.isDoubtful, !lease.awaitsShards, transactions == nil, inquiry == nil,
            commitUnderWay == nil,
            loop.now >= commitsWaitUntil
        else { return }
        // With nothing committed as yet, the beginning is, where a group without offsets reads from there.
        let commits = partitions.places.compactMap { place in
            if let taken = partitions[place].taken { return taken }
            guard settings.readsFromBeginning else { return nil }
            let topicPartition = partitions[place].topicPartition
            return OffsetCommit(
                topic: topicPartition.topic, partition: topicPartition.partition, offset: 0, metadata: "")
        }
        guard !commits.isEmpty else { return }
        let requestedAt = MonotonicTime.read().nanoseconds
        attempt("ask the group") { () throws(KafkaError) in
            inquiry = MembershipInquiry(reference: try consumer.commit(commits), requestedAt: requestedAt)
        }
    }

    /// The group has answered, or hasn't: then it is asked again with the next tick.
    func answered(_ inquiry: MembershipInquiry, _ result: CommitResult) {
        self.inquiry = nil
        guard let error = result.error else { return confirmMembership(requestedAt: inquiry.requestedAt) }
        if error.isOfRebalance { commitsWaitUntil = loop.now + Self.longestRebalance }
    }

    /// Shards do what they are told in its order: when all have answered, they have let go of what was lost before.
    private func askShards(_ number: UInt64) {
        var awaited = shards.count
        let passed = LoopCallback { [self] in
            awaited -= 1
            if awaited == 0 { follow(lease.shardsPassed(number, at: MonotonicTime.read().nanoseconds)) }
        }
        for shard in shards {
            shard.loop.execute { [self] in loop.execute { passed.call() } }
        }
    }
}
