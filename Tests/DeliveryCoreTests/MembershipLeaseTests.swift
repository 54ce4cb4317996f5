import SluiceModel
import StreamScheduling
import Testing

@testable import DeliveryCore

struct MembershipLeaseTests {
    private static let second: UInt64 = 1_000_000_000
    private static let session = 10 * second

    /// A lease whose owner ticks ten times a second, and carries out its actions.
    private struct Owner {
        var lease: MembershipLease
        var now: UInt64
        var permit: UInt64
        var asked: [UInt64] = []
        var doubts = 0

        init(now: UInt64 = 100 * MembershipLeaseTests.second) {
            self.now = now
            lease = MembershipLease(session: MembershipLeaseTests.session, now: now)
            permit = lease.until
        }

        var maySend: Bool { now < permit }

        mutating func follow(_ action: MembershipLease.Action?) {
            switch action {
            case nil: break
            case .extend(let until): permit = until
            case .doubt: doubts += 1
            case .askShards(let number): asked.append(number)
            }
        }

        mutating func run(_ seconds: Double) {
            for _ in 0..<Int(seconds * 10) {
                now += MembershipLeaseTests.second / 10
                follow(lease.tick(at: now))
            }
        }

        /// The process stands still, and resumes with a tick.
        mutating func stop(_ seconds: Double) {
            now += UInt64(seconds * 1e9)
            follow(lease.tick(at: now))
        }

        mutating func confirm(requestedAt: UInt64) { follow(lease.confirmed(requestedAt: requestedAt)) }

        mutating func shardsPass(_ number: UInt64) { follow(lease.shardsPassed(number, at: now)) }
    }

    @Test func leaseLastsWhileTheProcessRuns() {
        var owner = Owner()
        for _ in 0..<600 {
            owner.run(0.1)
            #expect(owner.maySend)
        }
        #expect(owner.doubts == 0)
    }

    @Test func shortPauseKeepsTheLease() {
        var owner = Owner()
        owner.run(5)
        owner.stop(3)
        #expect(owner.maySend && owner.doubts == 0)
        owner.run(5)
        #expect(owner.maySend && owner.doubts == 0)
    }

    @Test func longPauseBlocksSendingUntilTheGroupConfirms() {
        var owner = Owner()
        owner.run(5)
        let before = owner.now
        owner.now += 23 * Self.second
        #expect(!owner.maySend, "the permit expires before the next tick")
        owner.stop(0)
        #expect(!owner.maySend && owner.doubts == 1 && owner.lease.isDoubtful)
        owner.run(60)
        #expect(!owner.maySend && owner.doubts == 1, "time alone doesn't renew the permit")
        owner.confirm(requestedAt: before)
        #expect(owner.asked.isEmpty, "requested before the pause")
        owner.confirm(requestedAt: owner.now)
        #expect(owner.asked == [1] && !owner.maySend, "a shard may still have records of lost partitions")
        owner.shardsPass(1)
        #expect(owner.maySend && !owner.lease.isDoubtful)
        owner.run(10)
        #expect(owner.maySend)
    }

    @Test func confirmationRequestedBeforeAPauseDoesNotExtendTheLease() {
        var owner = Owner()
        owner.run(5)
        let requested = owner.now
        owner.now += 23 * Self.second
        owner.confirm(requestedAt: requested)
        #expect(!owner.maySend)
    }

    @Test func consecutivePausesAddUp() {
        var owner = Owner()
        owner.run(5)
        owner.stop(3)
        owner.run(0.5)
        #expect(owner.maySend)
        owner.stop(3)
        #expect(!owner.maySend && owner.lease.isDoubtful)
    }

    @Test func secondPauseDuringDoubtRestartsTheDoubt() {
        var owner = Owner()
        owner.stop(23)
        let requested = owner.now
        owner.confirm(requestedAt: requested)
        owner.stop(23)
        owner.shardsPass(1)
        #expect(
            !owner.maySend && owner.lease.isDoubtful, "the confirmation was requested before the second pause"
        )
        owner.confirm(requestedAt: requested)
        #expect(owner.asked == [1])
        owner.confirm(requestedAt: owner.now)
        owner.shardsPass(1)
        #expect(!owner.maySend)
        owner.shardsPass(2)
        #expect(owner.maySend)
    }

    @Test func lateShardAnswersDoNotRenewTheLease() {
        var owner = Owner()
        owner.stop(23)
        owner.confirm(requestedAt: owner.now)
        owner.run(6)
        owner.shardsPass(1)
        #expect(!owner.maySend && owner.lease.isDoubtful && owner.doubts == 2)
    }

    /// Nothing may be sent later than a session after the group last heard of this worker. After a longer pause,
    /// only a confirmation requested since the pause permits sending.
    @Test(arguments: UInt64(1)...50)
    func leaseNeverOutlastsTheSession(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        var owner = Owner()
        /// Last moment at which the group heard of the process, which must run for a second.
        var heard = owner.now
        var awake = owner.now
        var requests: [UInt64] = []
        var isLost = false
        for step in 0..<3_000 {
            switch Int.random(in: 0..<20, using: &random) {
            case 0:
                let pause = Double.random(in: 0.3...15, using: &random)
                owner.now += UInt64(pause * 1e9)
                awake = owner.now
                if Bool.random(using: &random) { owner.stop(0) }
            case 1: requests.append(owner.now)
            case 2:
                // An answer arrives only while the group counts this worker as a member.
                if let request = requests.popLast(), !isLost || request < heard {
                    if !isLost { heard = max(heard, request) }
                    owner.confirm(requestedAt: request)
                }
            case 3: if let number = owner.asked.last { owner.shardsPass(number) }
            default: owner.run(0.1)
            }
            if owner.now - heard > Self.session { isLost = true }
            if !isLost, owner.now - awake >= Self.second { heard = owner.now }
            if isLost, Int.random(in: 0..<50, using: &random) == 0 {
                // The worker joins again. Earlier requests stay unanswered.
                isLost = false
                heard = owner.now
                awake = owner.now
                requests = []
            }
            if isLost, owner.maySend {
                Issue.record(
                    "seed \(seed), step \(step): it may send after the group reassigned its partitions")
                return
            }
        }
    }
}
