/// Sending follows committing: how many pushes the shards may begin.
extension WorkerMachine {
    /// Counts that the owner has read from its shards and its producer.
    struct PushCounts: Sendable {
        var ended: Int
        var records: Int
        var unreported: Int
    }

    /// Takes counts of pushes and of their records. The owner reads the counts in the order of the parameters, so that
    /// a push on its way from one to the next is counted twice, and never missed. To be called after reports were
    /// polled and ten times a second, before ``reportsPolled(unreported:bytesHeld:at:)``.
    /// - Parameters:
    ///   - ended: pushes that the shards have begun and that are not in flight any more.
    ///   - records: records that the shards keep for an abort, or that wait there.
    ///   - unreported: records that the producer has and whose reports weren't polled, and records that
    ///     ``LostFate/keep`` kept; ignored with transactions.
    public mutating func countPushes(ended: Int, records: Int, unreported: Int, at now: UInt64) {
        self.now = max(self.now, now)
        counts = PushCounts(ended: ended, records: records, unreported: transactions == nil ? unreported : 0)
        followPushes()
    }

    /// True while nothing new is sent, because commits don't succeed or the producer has no identifier, for longer than
    /// the patience.
    public var arePushesHeld: Bool { window.isHeld && drain.phase == .running }
    /// Outcomes and dead letters that are made and not committed, about.
    public var uncommittedPushes: Int { window.uncommitted }
    /// Most pushes that may be begun and not committed now.
    public var pushWindow: Int { window.size }

    /// Opens the window for the producer's first transaction.
    mutating func producerStepEnded(_ result: TransactionCycle.StepResult) {
        guard result.step == .initialize, result.failure == nil else { return }
        window.producerIsReady()
        followPushes()
    }

    /// Notes that a commit has succeeded.
    /// - Parameter hasOffsets: false: the outcomes were of pushes from the store, whose offsets were committed before.
    mutating func windowCommitted(hasOffsets: Bool) {
        if hasOffsets { window.committed() } else { window.settled() }
        followPushes()
    }

    /// Counts again, and passes a changed limit to the shards.
    private mutating func followPushes() {
        guard let counts else { return }
        if transactions != nil {
            window.count(uncommitted: counts.records, committable: counts.records, at: now)
        } else {
            var reported = 0
            partitions.forEachIndex { reported += partitions[$0].uncommitted }
            let waiting = deletes.removals + deletes.completions
            window.count(
                uncommitted: counts.records + counts.unreported + reported + waiting, committable: reported,
                at: now)
        }
        if window.isHeld != isHoldNoted, drain.phase == .running {
            isHoldNoted = window.isHeld
            let awaitsProducer = window.state == .awaitingProducer
            note(
                isHoldNoted
                    ? .pushesHeld(uncommitted: window.uncommitted, awaitsProducer: awaitsProducer)
                    : .pushesResumed)
        }
        let limit = window.limit(ended: counts.ended)
        guard limit != allowed else { return }
        allowed = limit
        act(.allowPushes(limit))
    }
}
