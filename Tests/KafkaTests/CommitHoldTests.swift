import TestSupport
import Testing

@testable import Kafka

/// Times at which a member of a group sends no commit.
struct CommitHoldTests {
    private let now: UInt64 = 60_000_000_000

    @Test func joinIsHeldUntilItsRebalanceEvent() {
        var hold = CommitHold()
        #expect(!hold.isOn(joins: 0, heartbeatAnsweredAt: 0, at: now))
        #expect(hold.isOn(joins: 1, heartbeatAnsweredAt: 0, at: now))
        // The broker asks for a second request, with an identifier.
        #expect(hold.isOn(joins: 2, heartbeatAnsweredAt: 0, at: now))
        hold.rebalanced(joins: 2)
        #expect(!hold.isOn(joins: 2, heartbeatAnsweredAt: 0, at: now))
    }

    /// A cooperative member that gives partitions back joins a second time.
    @Test func bothRoundsOfARebalanceAreHeld() {
        var hold = CommitHold()
        hold.rebalanced(joins: 3)
        hold.revoked(joins: 3, at: now)
        hold.rebalanced(joins: 3)
        #expect(hold.isOn(joins: 3, heartbeatAnsweredAt: 0, at: now + 1), "the second round follows")
        #expect(hold.isOn(joins: 4, heartbeatAnsweredAt: 0, at: now + 2))
        hold.rebalanced(joins: 4)
        #expect(!hold.isOn(joins: 4, heartbeatAnsweredAt: 0, at: now + 3))
        // A second round that never comes holds nothing for ever.
        hold.revoked(joins: 4, at: now)
        #expect(!hold.isOn(joins: 4, heartbeatAnsweredAt: 0, at: now + CommitHold.longestWait))
    }

    @Test func answerToAHeartbeatHoldsForAMoment() {
        let hold = CommitHold()
        #expect(hold.isOn(joins: 0, heartbeatAnsweredAt: now, at: now + 1_000_000))
        #expect(!hold.isOn(joins: 0, heartbeatAnsweredAt: now, at: now + hold.reaction))
        // Frequent heartbeats leave time for commits.
        let frequent = CommitHold(heartbeatMilliseconds: 40)
        #expect(!frequent.isOn(joins: 0, heartbeatAnsweredAt: now, at: now + 10_000_000))
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
        try eventually("a request to join is counted") { consumer.context.watch.joins > 0 }
        #expect(consumer.holdsCommits)
        try eventually("the group assigns the partition") {
            _ = consumer.poll(into: buffer)
            return hasBeenAssigned
        }
        try eventually("the answer to a heartbeat is seen") {
            _ = consumer.poll(into: buffer)
            return consumer.context.watch.heartbeatAnsweredAt > 0
        }
    }
}
