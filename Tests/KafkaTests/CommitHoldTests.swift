import TestSupport
import Testing

@testable import Kafka

/// Times at which a member of a group sends no commit.
struct CommitHoldTests {
    private let now: UInt64 = 60_000_000_000

    private func seen(joins: UInt64 = 0, joinedAt: UInt64 = 0, answeredAt: UInt64 = 0) -> JoinWatch.Traffic {
        JoinWatch.Traffic(joins: joins, joinedAt: joinedAt, answeredAt: answeredAt)
    }

    @Test func joinIsHeldUntilItsRebalanceEvent() {
        var hold = CommitHold()
        #expect(!hold.isOn(seen(), at: now))
        #expect(hold.isOn(seen(joins: 1), at: now))
        // The broker asks for a second request, with an identifier.
        #expect(hold.isOn(seen(joins: 2), at: now))
        hold.rebalanced(joins: 2)
        #expect(!hold.isOn(seen(joins: 2), at: now))
    }

    /// A revocation's commit doesn't wait for what the group says meanwhile, because the client joins only after the
    /// answer.
    @Test func eventWithoutAnswerHoldsNothing() {
        var hold = CommitHold()
        hold.rebalanced(joins: 2)
        let traffic = seen(joins: 2, joinedAt: now, answeredAt: now)
        #expect(!hold.isOn(traffic, isEventOpen: true, at: now + 1))
        #expect(
            hold.isOn(seen(joins: 3), isEventOpen: true, at: now + 1), "the client has joined all the same")
        hold.answered(at: now + 2)
        #expect(hold.isOn(traffic, at: now + 3), "a request may follow")
        #expect(!hold.isOn(traffic, at: now + 2 + hold.reaction))
    }

    /// A cooperative member that gives partitions back joins a second time.
    @Test func bothRoundsOfARebalanceAreHeld() {
        var hold = CommitHold()
        hold.rebalanced(joins: 3)
        hold.revoked(joins: 3, at: now)
        hold.rebalanced(joins: 3)
        hold.answered(at: now)
        #expect(hold.isOn(seen(joins: 3), at: now + hold.reaction), "the second round follows")
        #expect(hold.isOn(seen(joins: 4), at: now + hold.reaction))
        hold.rebalanced(joins: 4)
        #expect(!hold.isOn(seen(joins: 4), at: now + hold.reaction))
        // A second round that never comes holds nothing for ever.
        hold.revoked(joins: 4, at: now)
        #expect(!hold.isOn(seen(joins: 4), at: now + CommitHold.longestWait))
    }

    @Test func answerHoldsForAMoment() {
        let hold = CommitHold()
        #expect(hold.isOn(seen(answeredAt: now), at: now + 1_000_000))
        #expect(!hold.isOn(seen(answeredAt: now), at: now + hold.reaction))
        // Frequent heartbeats leave time for commits.
        let frequent = CommitHold(heartbeatMilliseconds: 40)
        #expect(!frequent.isOn(seen(answeredAt: now), at: now + 10_000_000))
    }

    /// The client learns soon after a rebalance that the group rebalances again, and joins a second after its last
    /// request.
    @Test func answerSoonAfterARebalanceHoldsUntilTheClientMayJoin() {
        var hold = CommitHold()
        hold.rebalanced(joins: 5)
        hold.answered(at: now)
        let traffic = seen(joins: 5, joinedAt: now, answeredAt: now + 400_000_000)
        #expect(hold.isOn(traffic, at: now + 1_000_000_000))
        #expect(!hold.isOn(traffic, at: now + CommitHold.joinInterval))
        #expect(!hold.isOn(seen(joins: 5, joinedAt: now), at: now + 1_000_000_000), "no answer came")
    }

    /// The client's own threads report its requests.
    @Test func requestsToJoinAreCounted() throws {
        let bed = try KafkaTestBed(partitions: 1)
        var hasBeenAssigned = false
        let consumer = try KafkaConsumer(properties: bed.consumerProperties(), topics: [bed.topic]) { event in
            if case .assigned = event { hasBeenAssigned = true }
        }
        defer { consumer.close() }
        let buffer = UnsafeMutableBufferPointer<ConsumedRecord>.allocate(capacity: 1)
        defer { buffer.deallocate() }
        try eventually("a request to join is counted") { consumer.context.watch.traffic.joins > 0 }
        #expect(consumer.holdsCommits)
        try eventually("the group assigns the partition") {
            _ = consumer.poll(into: buffer)
            return hasBeenAssigned
        }
        try eventually("an answer is seen") {
            _ = consumer.poll(into: buffer)
            return consumer.context.watch.traffic.answeredAt > 0
        }
    }
}
