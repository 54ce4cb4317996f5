import Foundation
import Kafka
import TestSupport
import Testing

/// Members that leave while their group rebalances. Partitions that they fail to return stay unread for a session.
/// The embedded cluster has no static members, and each of its rebalances waits for a session.
@Suite(.enabled(if: KafkaTestBed.realBrokers != nil, "needs SLUICE_TEST_BOOTSTRAP_SERVERS"))
struct LeavingTests {
    /// Far longer than any rebalance here.
    private static let session = [("session.timeout.ms", "30000"), ("heartbeat.interval.ms", "500")]

    /// Polls a member on a thread of its own while the body runs.
    private func polling<Result>(_ member: Member, _ body: () throws -> Result) rethrows -> Result {
        let box = PolledMember(member: member)
        Thread.detachNewThread {
            while !box.isDone.isSet {
                box.member.poll()
                usleep(1_000)
            }
            box.ended.signal()
        }
        defer {
            box.isDone.set()
            box.ended.wait()
        }
        return try body()
    }

    @Test(arguments: [false, true])
    func memberClosedDuringRebalanceLeavesTheGroup(isStatic: Bool) throws {
        let bed = try KafkaTestBed(partitions: 6)
        let member = { (name: String, answers: Member.Answers) throws -> Member in
            try Member(
                bed.consumerProperties(
                    Self.session + (isStatic ? [("group.instance.id", name)] : [])),
                topics: [bed.topic], answers: answers)
        }
        let slow = try member("slow", .atOnce)
        try eventually("all partitions") {
            slow.poll()
            return slow.consumer.assignment.count == 6
        }
        slow.answers = .byTest
        let leaving = try member("leaving", .atOnce)
        try eventually("a revocation that waits for its answer") {
            slow.poll()
            leaving.poll()
            return !slow.revoked.isEmpty
        }
        // The leaving member joins again for this member. Kafka answers only after the slow member has joined too.
        let third = try member("third", .atOnce)
        for _ in 0..<1_000 {
            slow.poll()
            leaving.poll()
            third.poll()
            usleep(1_000)
        }
        slow.answers = .atOnce
        try slow.consumer.unassign(slow.revoked[0])
        let hasLeft = polling(slow) { polling(third) { leaving.consumer.close(timeoutMilliseconds: 15_000) } }
        #expect(hasLeft)
        try eventually("the other members have all partitions", timeout: .seconds(15)) {
            slow.poll()
            third.poll()
            return slow.consumer.assignment.count == 3 && third.consumer.assignment.count == 3
        }
        polling(slow) { #expect(third.consumer.close()) }
        #expect(slow.consumer.close())
    }

    /// With librdkafka alone, a static member's partitions wait until its session ends.
    @Test func closedStaticMemberLeavesTheGroup() throws {
        let bed = try KafkaTestBed(partitions: 2)
        let properties = { (name: String) in
            bed.consumerProperties(Self.session + [("group.instance.id", name)])
        }
        let first = try Member(properties("one"), topics: [bed.topic])
        try eventually("the partitions") {
            first.poll()
            return first.consumer.assignment.count == 2
        }
        #expect(first.consumer.close())
        let second = try Member(properties("two"), topics: [bed.topic])
        try eventually("the partitions of the member that left", timeout: .seconds(15)) {
            second.poll()
            return second.consumer.assignment.count == 2
        }
        #expect(second.consumer.close())
    }
}

/// A member that is polled on another thread for a while.
// Sendable: the creator doesn't touch the member before the thread has ended.
private struct PolledMember: @unchecked Sendable {
    let member: Member
    let isDone = Flag()
    let ended = DispatchSemaphore(value: 0)

    // Sendable: the lock guards the value.
    final class Flag: @unchecked Sendable {
        private let lock = NSLock()
        private var value = false
        var isSet: Bool { lock.withLock { value } }
        func set() { lock.withLock { value = true } }
    }
}
