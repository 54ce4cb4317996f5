import SluiceModel
import Testing

@testable import DeliveryCore

/// How many pushes may be begun whose outcomes aren't committed.
@Suite struct PushWindowTests {
    private static let second: UInt64 = 1_000_000_000

    private func window(first: Int = 4, most: Int = 20, awaitsProducer: Bool = false) -> PushWindow {
        var limits = PushWindow.Limits()
        (limits.first, limits.most) = (first, most)
        return PushWindow(limits, awaitsProducer: awaitsProducer)
    }

    @Test func beginsSmallAndDoublesWithEachCommit() {
        #expect(PushWindow(.init(), awaitsProducer: false).size == 32)
        var window = window()
        #expect(window.limit(ended: 0) == 4)
        let sizes = (0..<4).map { _ in
            window.committed()
            return window.size
        }
        #expect(sizes == [8, 16, 20, 20])
        #expect(self.window(first: 32, most: 7).size == 7)
        var huge = self.window(first: 3, most: .max)
        for _ in 0..<100 { huge.committed() }
        #expect(huge.size == .max)
    }

    @Test func pushesInFlightAndOutcomesCount() {
        var window = window()
        // Seven were begun, of which two are in flight and three wait for a commit.
        window.count(uncommitted: 3, committable: 1, at: 0)
        #expect(window.limit(ended: 5) == 6)
        window.count(uncommitted: 9, committable: 9, at: 0)
        #expect(window.limit(ended: 5) == 5, "nothing new is begun beside more than the window")
    }

    @Test func halfOfTheWindowWantsACommit() {
        var window = window()
        window.count(uncommitted: 4, committable: 1, at: 0)
        #expect(!window.wantsCommit)
        window.count(uncommitted: 4, committable: 2, at: 0)
        #expect(window.wantsCommit)
        var smallest = self.window(first: 1, most: 1)
        #expect(!smallest.wantsCommit)
        smallest.count(uncommitted: 1, committable: 1, at: 0)
        #expect(smallest.wantsCommit)
    }

    /// Outcomes of pushes from the store need no commit of offsets.
    @Test func outcomesThatNeedNoCommitEndTheWait() {
        var window = window()
        window.count(uncommitted: 2, committable: 2, at: 0)
        window.settled()
        window.count(uncommitted: 2, committable: 2, at: 5 * Self.second)
        #expect(!window.isHeld && window.limit(ended: 2) == 4, "the size stays")
        window.count(uncommitted: 2, committable: 2, at: 10 * Self.second)
        #expect(window.isHeld)
        window.settled()
        #expect(!window.isHeld)
    }

    @Test func isHeldWhileNoCommitSucceeds() {
        var window = window()
        window.count(uncommitted: 1, committable: 1, at: 0)
        window.count(uncommitted: 2, committable: 2, at: 5 * Self.second - 1)
        #expect(!window.isHeld && window.limit(ended: 2) == 4)
        window.count(uncommitted: 2, committable: 2, at: 5 * Self.second)
        #expect(window.isHeld && window.limit(ended: 2) == 0)
        window.committed()
        #expect(!window.isHeld && window.limit(ended: 2) == 8)
        // The patience begins anew.
        window.count(uncommitted: 1, committable: 1, at: 9 * Self.second)
        window.count(uncommitted: 1, committable: 1, at: 14 * Self.second - 1)
        #expect(!window.isHeld)
        window.count(uncommitted: 1, committable: 1, at: 14 * Self.second)
        #expect(window.isHeld)
    }

    @Test func isNotHeldWhileNothingWaits() {
        var window = window()
        window.count(uncommitted: 1, committable: 1, at: 0)
        window.count(uncommitted: 0, committable: 0, at: 4 * Self.second)
        window.count(uncommitted: 1, committable: 1, at: 6 * Self.second)
        #expect(!window.isHeld)
        window.count(uncommitted: 1, committable: 1, at: 11 * Self.second)
        #expect(window.isHeld)
        // A lost partition's outcomes are its next owner's.
        window.count(uncommitted: 0, committable: 0, at: 12 * Self.second)
        #expect(!window.isHeld && window.limit(ended: 1) == 5)
    }

    @Test func nothingIsBegunBeforeTheProducerIsReady() {
        var window = window(awaitsProducer: true)
        window.count(uncommitted: 0, committable: 0, at: 0)
        #expect(window.limit(ended: 0) == 0 && !window.isHeld)
        window.count(uncommitted: 0, committable: 0, at: 5 * Self.second)
        #expect(window.limit(ended: 0) == 0 && window.isHeld)
        window.producerIsReady()
        #expect(window.limit(ended: 0) == 4 && !window.isHeld)
    }

    // MARK: The worker's part

    /// A worker that reads one partition, with counts of its shards.
    private final class Script {
        let script: WorkerScript
        var (ended, records, unreported) = (0, 0, 0)
        /// Pushes that may have been begun; nil: nothing was allowed yet.
        private(set) var allowed: Int?

        init(_ mode: StoreMode) {
            script = WorkerScript(mode)
            if mode == .none { script.assign([0], offset: 3) }
        }

        @discardableResult
        func count() -> [WorkerAction] {
            note(
                script.apply { machine, now in
                    machine.countPushes(ended: ended, records: records, unreported: unreported, at: now)
                })
        }

        @discardableResult
        func note(_ actions: [WorkerAction]) -> [WorkerAction] {
            for case .allowPushes(let count) in actions { allowed = count }
            return actions
        }

        /// Lets time pass in ticks, with counts before each.
        func pass(_ ticks: Int) -> [WorkerAction] {
            (0..<ticks).flatMap { _ in
                script.pass(WorkerScript.second / 10)
                return count() + note(script.tick())
            }
        }
    }

    @Test func reportedOutcomesWaitForTheirCommit() throws {
        let worker = Script(.none)
        let script = worker.script
        worker.count()
        #expect(worker.allowed == 32)
        for offset in 3..<35 { _ = script.take(Int64(offset)) }
        // All are begun, half of them have ended, and some of their records are on their way.
        (worker.ended, worker.records, worker.unreported) = (16, 2, 14)
        worker.count()
        #expect(worker.allowed == 32)
        (worker.ended, worker.records, worker.unreported) = (32, 0, 0)
        for offset in 3..<35 { script.deliver(Int64(offset)) }
        worker.count()
        #expect(worker.allowed == 32)
        // The commit's interval isn't over.
        let commit = try #require(script.polled().compactMap(\.commit).first)
        worker.note(script.apply { $0.committed(commit.ticket, fault: nil, at: $1) })
        #expect(worker.allowed == 32 + 64)
    }

    @Test func outcomesReportedAfterACommitWasIssuedWaitForTheNext() throws {
        let worker = Script(.none)
        let script = worker.script
        for offset in 3..<9 { _ = script.take(Int64(offset)) }
        worker.ended = 6
        for offset in 3..<7 { script.deliver(Int64(offset)) }
        let commit = try #require(worker.pass(3).compactMap(\.commit).first)
        for offset in 7..<9 { script.deliver(Int64(offset)) }
        worker.count()
        worker.note(script.apply { $0.committed(commit.ticket, fault: nil, at: $1) })
        #expect(worker.allowed == 6 + 64 - 2)
    }

    @Test func worksOnlyWhileCommitsSucceed() throws {
        let worker = Script(.none)
        let script = worker.script
        _ = script.take(3)
        script.deliver(3)
        worker.ended = 1
        var passed: [WorkerAction] = []
        // Each commit fails. One is due after a fifth of a second.
        for _ in 0..<52 {
            let actions = worker.pass(1)
            passed += actions
            guard let commit = actions.compactMap(\.commit).first else { continue }
            worker.note(
                script.apply { $0.committed(commit.ticket, fault: KafkaFault("away", .retriable), at: $1) })
        }
        #expect(worker.allowed == 32 && !script.read { $0.arePushesHeld })
        let held = worker.pass(2)
        #expect(worker.allowed == 0 && script.read { $0.arePushesHeld })
        #expect(held.contains(.note(.pushesHeld(uncommitted: 1, awaitsProducer: false))))
        let commit = try #require((held + worker.pass(3)).compactMap(\.commit).last)
        let released = worker.note(script.apply { $0.committed(commit.ticket, fault: nil, at: $1) })
        #expect(worker.allowed == 1 + 64 && !script.read { $0.arePushesHeld })
        #expect(released.contains(.note(.pushesResumed)))
        #expect(!passed.contains { if case .note(.pushesHeld) = $0 { true } else { false } })
    }

    @Test func regularCommitsKeepTheWindowOpenWhileOutcomesWait() throws {
        let worker = Script(.none)
        let script = worker.script
        var commits = 0
        for offset in 3..<73 {
            _ = script.take(Int64(offset))
            script.deliver(Int64(offset))
            (worker.ended, worker.records) = (worker.ended + 1, 1)
            for commit in worker.pass(1).compactMap(\.commit) {
                commits += 1
                worker.note(script.apply { $0.committed(commit.ticket, fault: nil, at: $1) })
            }
            #expect(!script.read { $0.arePushesHeld })
        }
        #expect(commits > 20)
    }

    @Test func windowOfATransactionThatIsNotCommittedIsHeldUntilItIs() {
        let worker = Script(.transactions)
        worker.note(worker.script.step(.initialize))
        (worker.ended, worker.records) = (1, 1)
        _ = worker.pass(50)
        #expect(!worker.script.read { $0.arePushesHeld } && worker.allowed == 32)
        _ = worker.pass(5)
        #expect(worker.script.read { $0.arePushesHeld } && worker.allowed == 0)
        // The outcomes were of pushes from the store.
        worker.note(worker.script.apply { machine, _ in machine.windowCommitted(hasOffsets: false) })
        #expect(!worker.script.read { $0.arePushesHeld } && worker.allowed == 32)
    }

    @Test func transactionalWorkerAwaitsItsProducer() {
        let worker = Script(.transactions)
        _ = worker.pass(10)
        #expect(worker.allowed == nil)
        worker.note(worker.script.step(.initialize))
        #expect(worker.allowed == 32)
    }

    @Test func partitionThatIsLostHoldsNothingUp() {
        let worker = Script(.none)
        let script = worker.script
        for offset in 3..<9 { _ = script.take(Int64(offset)) }
        for offset in 3..<9 { script.deliver(Int64(offset)) }
        worker.ended = 6
        worker.count()
        #expect(worker.allowed == 32)
        script.apply { $0.revoked([0], isLost: true, at: $1) }
        worker.count()
        #expect(worker.allowed == 6 + 32)
    }
}
