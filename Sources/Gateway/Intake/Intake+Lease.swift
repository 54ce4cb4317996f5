import EventLoop
import Logging

extension Intake {
    /// Each tick. After a pause that was too long, nothing is renewed until the group has taken a commit, or has given
    /// partitions anew.
    func renewLease() {
        if !isDoubtful, lease.isValid(at: loop.now) { return lease.renew(at: loop.now) }
        guard !isDoubtful else { return }
        isDoubtful = true
        logger.warning(
            "this process was stopped for a while: nothing is sent until the group confirms its partitions",
            metadata: ["partitions": "\(partitions.count)"])
        guard partitions.count > 0 else { return confirmMembership() }
        // Offsets as they were: whoever isn't a member any more can't commit them.
        for place in partitions.places {
            partitions[place].committed = nil
            partitions[place].isDirty = true
        }
        if transactions == nil { commitDirty() }
    }

    /// The group has confirmed that this worker is a member.
    func confirmMembership() {
        guard isDoubtful else { return }
        isDoubtful = false
        lease.renew(at: loop.now)
        for shard in shards { shard.loop.execute { shard.askForTurnEnd() } }
    }
}
