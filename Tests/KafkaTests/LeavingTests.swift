import Foundation
import Kafka
import TestSupport
import Testing

/// Members that leave while their group shares its partitions anew. What they fail to leave stands still for a session.
/// The embedded cluster knows no static members, and has each rebalance wait for a session.
@Suite(.enabled(if: KafkaTestBed.realBrokers != nil, "needs SLUICE_TEST_BOOTSTRAP_SERVERS"))
struct LeavingTests {
    /// Far above what any rebalance here takes.
    private static let session = [("session.timeout.ms", "30000"), ("heartbeat.interval.ms", "500")]

    /// Polls a member on a thread of its own for as long as the body runs.
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
    func aMemberThatClosesWhileItsGroupRebalancesLeaves(isStatic: Bool) throws {
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
        // It joins once more for this one, and Kafka doesn't answer before the slow one has joined too.
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
        try eventually("the others to have all", timeout: .seconds(15)) {
            slow.poll()
            third.poll()
            return slow.consumer.assignment.count == 3 && third.consumer.assignment.count == 3
        }
        polling(slow) { #expect(third.consumer.close()) }
        #expect(slow.consumer.close())
    }

    /// Librdkafka alone lets the partitions of a static member wait for its session to end.
    @Test func aStaticMemberLeavesAsWell() throws {
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
        try eventually("the partitions of the one that has left", timeout: .seconds(15)) {
            second.poll()
            return second.consumer.assignment.count == 2
        }
        #expect(second.consumer.close())
    }
}

/// A member that is polled on another thread for a while.
// Sendable: whoever made it doesn't touch the member before the thread has ended.
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
