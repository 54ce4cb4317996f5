/// Reading of a partition up to the end that its log had at the assignment. Until then nothing of the partition is sent,
/// because a newer push of the same identity may follow that was sent before a crash.
struct CatchUp: Sendable {
    /// Nanoseconds that a partition's pushes wait at most.
    static let patience: UInt64 = 5_000_000_000

    /// The log's end at the assignment.
    let end: Int64
    /// Time at which the catch-up is given up, in nanoseconds of the monotonic clock.
    var deadline: UInt64
    /// True once the client has reported an end of the log. The log's last offsets may have no records.
    var hasReachedEnd = false
}

extension WorkerMachine {
    /// Returns the end up to which the partition is to be read before anything is sent; nil: nothing lies ahead.
    func catchUpEnd(_ offset: FetchedOffset) -> Int64? {
        guard let end = offset.logEnd else { return nil }
        // Without an offset, nobody has committed. A worker may have sent something all the same.
        let begin = offset.beginning ?? (settings.readsFromBeginning ? offset.logStart : end)
        return max(begin, offset.logStart) < end ? end : nil
    }

    /// Notes that the client has read the partition to an end of its log. Records before it may not be accepted yet;
    /// ``polled(_:bytes:)`` follows.
    public mutating func reachedEnd(partition: Int32, offset: Int64) {
        guard let catchUp = catchUps[partition], offset >= catchUp.end else { return }
        catchUps[partition]!.hasReachedEnd = true
    }

    /// Ends the catch-ups that have read enough, or can't go on: all that may be in flight is in memory, or time is up.
    mutating func endCatchUps() {
        guard !catchUps.isEmpty else { return }
        for (partition, catchUp) in catchUps.sorted(by: { $0.key < $1.key }) {
            guard let index = partitions.index(ofPartition: partition) else {
                catchUps[partition] = nil
                continue
            }
            let isRead = catchUp.hasReachedEnd || partitions[index].end >= catchUp.end
            if !isRead {
                // Nothing is sent while an operator has paused all sending.
                if gate.isAllPaused { catchUps[partition]!.deadline = now + CatchUp.patience }
                let isStuck =
                    gate.isAtLimit || !gate.reasons(index).isDisjoint(with: [.limit, .share, .window])
                guard isStuck || now >= catchUps[partition]!.deadline else { continue }
                note(.catchUpCut(partition, readTo: partitions[index].end, logEnd: catchUp.end))
            }
            catchUps[partition] = nil
            act(.requestAll(.caughtUp(slot: partitions[index].slot)))
        }
    }
}
