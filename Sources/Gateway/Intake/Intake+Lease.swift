import DeliveryCore
import EventLoop
import Logging

/// What the lease decides is done here.
extension Intake {
    /// Each tick.
    func renewLease() {
        follow(lease.tick(at: MonotonicTime.read().nanoseconds))
    }

    /// The group has taken a commit that was asked for at this moment, as only a member can commit.
    func confirmMembership(requestedAt: UInt64) {
        follow(lease.confirmed(requestedAt: requestedAt))
        // It was on its way before the process was stopped: once more.
        if lease.isDoubtful, !lease.awaitsShards { commitAllAgain() }
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
                "this process was stopped for a while: nothing is sent until the group confirms its partitions",
                metadata: ["partitions": "\(partitions.count)"])
            commitAllAgain()
            if transactions == nil { commitDirty() }
        case .askShards(let number): askShards(number)
        }
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
