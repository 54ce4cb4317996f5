import DeliveryCore
import EventLoop
import Kafka
import Logging

/// Offsets on their way to Kafka, without transactions.
extension Intake {
    /// Without news of a rebalance for so long, commits go on.
    static let longestRebalance: Duration = .seconds(5)

    private func pendingCommit(_ place: Int) -> OffsetCommit? {
        guard partitions[place].isDirty else { return nil }
        let commit = commitPoint(place)
        return commit == partitions[place].committed ? nil : commit
    }

    /// The offset of a partition that is to be committed now.
    func commitPoint(_ place: Int) -> OffsetCommit {
        let topicPartition = partitions[place].topicPartition
        let (offset, metadata) = partitions[place].tracker.commitPoint()
        return OffsetCommit(
            topic: topicPartition.topic, partition: topicPartition.partition, offset: offset,
            metadata: metadata)
    }

    /// Commits what has moved since the last time; the result comes as an event.
    func commitDirty() {
        guard transactions == nil, commitUnderWay == nil, barrier == nil, inquiry == nil else { return }
        guard loop.now >= commitsWaitUntil || phase == .draining else { return }
        lastCommit = loop.now
        finishedSinceCommit = 0
        var issued = IssuedCommit()
        // What ends commits as well where removals from the store wait for it.
        for place in partitions.places where !partitions[place].isEnding || partitions[place].store != nil {
            // Without news of it, all that is complete was committed before.
            let commit = pendingCommit(place)
            guard commit != nil || partitions[place].removals.needsCommit else { continue }
            if partitions[place].store != nil {
                let serial = partitions[place].removals.commitIssued()
                issued.serials.append((partitions[place].slot, serial, commit?.offset))
            }
            guard let commit else { continue }
            issued.commits.append(commit)
            partitions[place].committed = commit
            partitions[place].isDirty = false
        }
        guard !issued.isEmpty else { return }
        guard !issued.commits.isEmpty else { return ended(issued, isTaken: true) }
        // What the commit covers has to outlive this machine, where the store has it.
        bringToDisk { [self] isDone in
            guard isDone else {
                ended(issued, isTaken: false)
                return commitAllAgain()
            }
            commit(issued)
        }
    }

    private func commit(_ issued: IssuedCommit) {
        var issued = issued
        issued.commits.removeAll { commit in
            partitions.place(of: commit.topicPartition) == nil
        }
        guard !issued.commits.isEmpty else { return }
        attempt("commit") { () throws(KafkaError) in
            issued.requestedAt = MonotonicTime.read().nanoseconds
            issued.reference = try consumer.commit(issued.commits)
            commitUnderWay = issued
        }
        if commitUnderWay == nil {
            ended(issued, isTaken: false)
            commitAllAgain()
        }
    }

    func committed(_ result: CommitResult) {
        if let inquiry, inquiry.reference == result.reference { return answered(inquiry, result) }
        var requestedAt: UInt64 = 0
        if let issued = commitUnderWay, result.reference == issued.reference {
            commitUnderWay = nil
            requestedAt = issued.requestedAt
            if result.error == nil { note(issued.commits) }
            ended(issued, isTaken: result.error == nil)
        }
        counters.commits += 1
        guard let error = result.error else { return confirmMembership(requestedAt: requestedAt) }
        counters.commitErrors += 1
        logger.warning("offsets were not committed; tried again", metadata: ["error": "\(error)"])
        // librdkafka 2.0 takes all partitions for lost when it learns of a new generation by a commit (its issue 4059):
        // the next one waits for what the rebalance brings.
        if error.isOfRebalance { commitsWaitUntil = loop.now + Self.longestRebalance }
        commitAllAgain()
        checkMetadata(error)
    }

    /// Without what is finished above the offsets, a successor would do it again: no commit goes without it.
    func checkMetadata(_ error: KafkaError) {
        guard error.isMetadataTooLarge else { return }
        fail(
            """
            the brokers refuse the metadata of commits, which has up to \(CommitMetadata.maximumBytes) bytes; set \
            offset.metadata.max.bytes of the brokers to at least that: \(error)
            """)
    }

    /// The group has these.
    private func note(_ commits: [OffsetCommit]) {
        for commit in commits {
            guard let place = partitions.place(of: commit.topicPartition) else { continue }
            partitions[place].taken = commit
        }
    }

    func commitAllAgain() {
        for place in partitions.places {
            partitions[place].committed = nil
            partitions[place].isDirty = true
        }
    }

    /// Commits and waits for it: the last chance.
    func commitNow(_ places: [Int]) {
        // Transactions have done so.
        guard transactions == nil else { return }
        let commits = places.compactMap { place -> OffsetCommit? in
            // An asynchronous commit may still fail, and one that waits for the disk is not issued any more: what they
            // cover is committed again.
            partitions[place].committed = nil
            if commitUnderWay != nil || barrier != nil { partitions[place].isDirty = true }
            return pendingCommit(place)
        }
        guard !commits.isEmpty else { return }
        do throws(KafkaError) {
            try consumer.commit(commits, synchronous: true, timeoutMilliseconds: 2_000)
            counters.commits += 1
        } catch {
            counters.commitErrors += 1
            logger.error(
                "the last commit failed; the jobs finished since the one before will be done again",
                metadata: ["error": "\(error)"])
        }
    }
}
