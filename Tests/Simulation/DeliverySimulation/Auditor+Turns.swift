import DeliveryCore
import SluiceModel

/// The auditor's view of broadcasts, which are sent in turn, and of pushes that end a state.
extension World {
    // MARK: Broadcasts

    /// Checks that a broadcast is sent after all broadcasts of its channel that came to the machine before it.
    func checkTurn(_ copy: Copy, _ slot: UInt32, _ worker: WorkerModel, _ shard: ShardModel) {
        guard jobs[copy.job].facts.isOrdered else { return }
        counts[.broadcastSent] += 1
        if copy.outlived == .ended { counts[.broadcastOutlives] += 1 }
        if copy.outlived == .dropped { counts[.broadcastOutlivesDropped] += 1 }
        for index in shard.copies.indices where index != Int(slot) {
            let other = shard.copies[index]
            guard other.isLive, other.address == copy.address else { continue }
            if other.connection >= 0 {
                broken(.inTurn, "broadcast \(copy.job) is sent while \(other.job) is in flight")
            }
            if other.arrival < copy.arrival {
                if isSurelyDue(other, worker, shard) {
                    broken(.inTurn, "broadcast \(copy.job) is sent before \(other.job), which came earlier")
                }
                counts[.broadcastOvertakes] += 1
            }
            shard.copies[index].freeSince = 0
        }
        shard.copies[Int(slot)].outlived = .none
    }

    /// Returns whether the push's time has come, and its machine knows. With a clock that was set nobody can tell.
    private func isSurelyDue(_ copy: Copy, _ worker: WorkerModel, _ shard: ShardModel) -> Bool {
        let deliverAt = jobs[copy.job].facts.deliverAtMilliseconds
        guard deliverAt > 0 else { return true }
        let since = Int64((monotonic - shard.lastAdvance) / 1_000_000)
        return worker.clockSteps == 0 && deliverAt + 2 <= now(worker).wallMilliseconds - since
    }

    /// Checks that a limited broadcast has another before it. Otherwise it leaves within about a second.
    func checkIsHeldUp(_ slot: Int, _ shard: ShardModel) {
        let copy = shard.copies[slot]
        guard jobs[copy.job].facts.isOrdered else { return }
        let isHeldUp = shard.copies.indices.contains { index in
            let other = shard.copies[index]
            return index != slot && other.isLive && other.address == copy.address
                && (other.connection >= 0
                    || other.arrival < copy.arrival && shard.machine.state(UInt32(index)) != .scheduled)
        }
        if isHeldUp {
            counts[.broadcastHeldUp] += 1
            shard.copies[slot].freeSince = 0
        } else if copy.freeSince == 0 {
            shard.copies[slot].freeSince = monotonic
        } else if shard.lastAdvance >= copy.freeSince + 2_200_000_000 {
            broken(.progress, "broadcast \(copy.job) is held up, and nothing is before it")
        }
    }

    /// Notes for the broadcasts behind one that it has ended without an answer.
    func outlive(_ copy: Copy, _ how: Outlived, _ shard: ShardModel) {
        guard jobs[copy.job].facts.isOrdered else { return }
        for index in shard.copies.indices {
            let other = shard.copies[index]
            guard other.isLive, other.address == copy.address, other.arrival > copy.arrival else { continue }
            shard.copies[index].freeSince = 0
            // A broadcast that isn't limited any more was released by the end itself.
            guard how == .dropped || shard.machine.state(UInt32(index)) == .deviceLimited else { continue }
            shard.copies[index].outlived = how
        }
    }

    // MARK: Ends of states

    /// Returns whether the first push ends a state that the second one only updates. The end wins, whichever is newer.
    func outranks(_ one: Int, _ other: Int) -> Bool {
        jobs[one].facts.isFinal && !jobs[other].facts.isFinal
    }

    /// Returns the slot of a push that ends the state of the push's identity; nil when the shard has none.
    private func final(_ copy: Copy, _ shard: ShardModel) -> Int? {
        guard scenario.finalPerMille > 0, !jobs[copy.job].facts.isFinal else { return nil }
        let number = identity(copy)
        return shard.copies.firstIndex {
            $0.isLive && jobs[$0.job].facts.isFinal && identity($0) == number
        }
    }

    /// Checks that an update gives way to the end of its state that came before it.
    func checkAgainstFinal(_ copy: Copy, _ admission: Admission, _ shard: ShardModel) {
        if case .replaced(let slot, _) = admission, outranks(copy.job, shard.copies[Int(slot)].job) {
            counts[.finalReplaces] += 1
        }
        guard final(copy, shard) != nil else { return }
        guard case .obsolete(let slot) = admission, jobs[shard.copies[Int(slot)].job].facts.isFinal else {
            return broken(.newestWins, "update \(copy.job) isn't superseded by the end of its state")
        }
        let end = shard.copies[Int(slot)]
        guard end.job < copy.job else { return }
        counts[end.connection < 0 ? .updateAfterFinal : .updateBehindFinal] += 1
        if end.isRestored { counts[.updateAfterStoredFinal] += 1 }
    }

    /// Checks that no update is sent while the shard has the end of its state.
    func checkNoFinal(_ copy: Copy, _ shard: ShardModel) {
        guard let slot = final(copy, shard) else { return }
        broken(.newestWins, "update \(copy.job) is sent, and \(shard.copies[slot].job) ends its state")
    }
}
