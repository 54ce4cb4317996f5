import SluiceModel
import Testing

@testable import DeliveryCore

struct DeliveryPartitionTests {
    @Test func abandonedPartitionDropsPushesNotInFlight() {
        var harness = DeliveryHarness { $0.inFlightPerDevice = 2 }
        _ = harness.machine.offline(
            DeliveryHarness.device("off"), occurred: .at(1), partition: 0, at: harness.now)
        for partition in UInt16(1)...2 {
            harness.push("flying \(partition)", collapse: "\(partition)") { $0.partition = partition }
            harness.begin()
            harness.push("blocked \(partition)", collapse: "\(partition)") { $0.partition = partition }
        }
        for partition in UInt16(1)...2 {
            harness.push("waiting \(partition)", device: "e") { $0.partition = partition }
            harness.push("crowding \(partition)") { $0.partition = partition }
            harness.push("scheduled \(partition)", device: "e") {
                $0.partition = partition
                $0.deliverAtMilliseconds = $0.createdMilliseconds + 1000
            }
            harness.push("held \(partition)", device: "off") {
                $0.partition = partition
                $0.delivery = .holdWhileOffline
            }
        }
        harness.machine.abandon(partition: 1, at: harness.now)
        harness.drain()
        #expect(
            Set(harness.ended)
                == Set(["blocked", "waiting", "crowding", "scheduled", "held"].map { "\($0) 1 dropped" }))
        #expect(harness.machine.milestones.dropped == 5)
        #expect(harness.machine.count == 7)
        #expect(harness.state("flying 1") == .inFlight)
        #expect(harness.state("blocked 2") == .blocked)
    }

    /// Each answer to a push in flight whose partition was abandoned, with the push's end.
    @Test func pushInFlightOfAbandonedPartitionEndsOrIsDropped() {
        typealias Answer = (inout DeliveryHarness, UInt32) -> Void
        let cases: [(String, Answer)] = [
            ("a accepted", { $0.accept($1) }),
            ("a rejected", { $0.answer($1, .badDeviceToken) }),
            ("a dropped", { $0.answer($1, .internalServerError) }),
            ("a dropped", { $0.answer($1, .topicDisallowed) }),
            ("a dropped", { $0.fail($1, processed: false) }),
            ("a dropped", { $0.fail($1, processed: true) }),
        ]
        for isDraining in [false, true] {
            for (end, answer) in cases {
                var harness = DeliveryHarness()
                harness.push("a") { $0.partition = 3 }
                let slot = harness.begin()!
                harness.machine.abandon(partition: isDraining ? nil : 3, at: harness.now)
                harness.drain()
                #expect(harness.ended.isEmpty)
                answer(&harness, slot)
                #expect(harness.ended == [end])
                #expect(harness.machine.count == 0)
                #expect(harness.machine.nextWake(after: harness.now) == nil)
            }
        }
    }

    @Test func abandonedPartitionDropsUnconfirmedPushes() {
        var harness = DeliveryHarness()
        harness.push("a") { $0.delivery = .confirm }
        harness.push("b") { $0.delivery = .confirm }
        harness.accept(harness.begin()!)
        let slot = harness.begin()!
        harness.machine.abandon(partition: 0, at: harness.now)
        harness.drain()
        harness.accept(slot)
        #expect(harness.ended == ["a dropped", "b dropped"])
    }

    @Test func recordsOfAbandonedPartitionAreDroppedUntilItBegins() {
        var harness = DeliveryHarness()
        harness.push("other", collapse: "x") { $0.partition = 2 }
        harness.machine.abandon(partition: 1, at: harness.now)
        harness.push("a") { $0.partition = 1 }
        #expect(harness.ended == ["a dropped"])
        harness.push("newer", collapse: "x") { $0.partition = 1 }
        #expect(harness.ended.dropFirst() == ["other superseded by newer", "newer dropped"])
        #expect(harness.queue.isEmpty)
        harness.machine.begin(partition: 1)
        harness.push("b") { $0.partition = 1 }
        #expect(harness.waiting == ["b"])
    }

    /// The successor may be the same record, read again by this worker.
    @Test func successorOfAnotherPartitionSurvivesTheAbandonment() {
        var harness = DeliveryHarness()
        harness.push("a", collapse: "x") { $0.partition = 1 }
        let slot = harness.begin()!
        harness.push("b", collapse: "x") { $0.partition = 2 }
        harness.machine.abandon(partition: 1, at: harness.now)
        harness.drain()
        harness.fail(slot, processed: false)
        #expect(harness.ended == ["a dropped"])
        #expect(harness.waiting == ["b"])
    }

    @Test func drainingDropsWaitingAndLaterPushes() {
        var harness = DeliveryHarness()
        for index in 0..<10 { harness.push("\(index)") { $0.partition = UInt16(index) } }
        let slots = [harness.begin()!, harness.begin()!]
        harness.machine.abandon(partition: nil, at: harness.now)
        harness.drain()
        #expect(harness.machine.milestones.dropped == 8)
        for slot in slots { harness.accept(slot) }
        #expect(harness.machine.count == 0)
        #expect(harness.machine.nextWake(after: harness.now) == nil)
        harness.push("late")
        #expect(harness.ended.last == "late dropped")
    }

    // MARK: From the store

    @Test func restoredPushKeepsItsProgress() {
        var harness = DeliveryHarness { $0.retry.maximumAttempts = 3 }
        var progress = ItemProgress()
        progress.attempts = 7
        progress.failures = 2
        progress.firstSentMilliseconds = harness.now.wallMilliseconds - 5000
        progress.expiryMilliseconds = harness.now.wallMilliseconds + 60_000
        let facts = harness.facts("a")
        harness.note(harness.machine.restore(facts, progress, at: harness.now), "a")
        let slot = harness.begin()!
        progress.attempts = 8
        #expect(harness.machine.info(slot).progress == progress)
        harness.answer(slot, .internalServerError)
        #expect(harness.ended == ["a undeliverable attemptsExhausted"])
        #expect(harness.machine.milestones.restored == 1)
        #expect(harness.machine.milestones.received == 0)
    }

    @Test func restoredPushKeepsItsExpiration() {
        var harness = DeliveryHarness { $0.maximumExpirationMilliseconds = 1000 }
        var progress = ItemProgress()
        progress.expiryMilliseconds = harness.now.wallMilliseconds + 5000
        harness.note(harness.machine.restore(harness.facts("a"), progress, at: harness.now), "a")
        progress.expiryMilliseconds = harness.now.wallMilliseconds
        harness.note(harness.machine.restore(harness.facts("b"), progress, at: harness.now), "b")
        #expect(harness.ended == ["b expired"])
        harness.pass(milliseconds: 4999)
        #expect(harness.waiting == ["a"])
    }

    @Test func restoredAcceptedPushAwaitsItsReceipt() {
        var harness = DeliveryHarness()
        var progress = ItemProgress()
        progress.attempts = 1
        progress.firstSentMilliseconds = harness.now.wallMilliseconds - 1
        progress.isAccepted = true
        let facts = harness.facts("a") { $0.delivery = .confirm }
        harness.note(harness.machine.restore(facts, progress, at: harness.now), "a")
        #expect(harness.state("a") == .confirming)
        let confirmed = harness.machine.receipt(
            facts.device, notificationKey: facts.notificationKey, occurred: .at(1), partition: 0,
            at: harness.now)
        #expect(confirmed == 1)
        harness.drain()
        #expect(harness.ended == ["a confirmed"])
    }

    @Test func deviceLimitsApplyToRecordsNotRestoredItems() {
        var harness = DeliveryHarness { $0.pendingPerDevice = 2 }
        for index in 0..<5 {
            let facts = harness.facts("\(index)") { $0.offset = Int64(index) }
            harness.note(harness.machine.restore(facts, ItemProgress(), at: harness.now), "\(index)")
        }
        #expect(harness.waiting.count == 5)
        harness.push("new") { $0.offset = 9 }
        #expect(harness.ended == ["new undeliverable deviceLimit"])
    }

    // MARK: Between shards

    @Test func movedDevicesPushesDepartToAnotherShard() {
        var here = DeliveryHarness()
        var there = DeliveryHarness()
        let new = DeliveryHarness.device("new")
        here.push("flying")
        let flying = here.begin()!
        here.push("a", collapse: "x") {
            $0.offset = 5
            $0.deliverAtMilliseconds = $0.createdMilliseconds + 1000
            $0.registeredAtMilliseconds = 77
            $0.priority = .lowPower
        }
        let moved = here.machine.tokenChanged(
            DeliveryHarness.device("d"), to: new, isElsewhere: true, at: here.now)
        #expect(moved == 2)
        here.drain()
        #expect(here.others.contains(.noteMove(flying)))
        func carry(_ name: String) {
            let slots = here.others.compactMap { if case .depart(let slot) = $0 { slot } else { nil } }
            guard let slot = slots.last, here.names[slot] == name else {
                Issue.record("\(name) isElsewhere: \(here.others)")
                return
            }
            let (facts, progress) = here.machine.export(slot)
            here.machine.release(slot)
            here.names[slot] = nil
            #expect(facts.device == new)
            there.note(there.machine.importItem(facts, progress, at: there.now), name)
        }
        carry("a")
        #expect(there.state("a") == .scheduled)
        there.pass(milliseconds: 1000)
        #expect(there.waiting == ["a"])
        // The push in flight departs when it is retried.
        here.fail(flying, processed: true)
        carry("flying")
        #expect(there.waiting == ["a", "flying"])
        #expect(there.machine.info(there.queue[1]).progress.failures == 1)
        #expect(here.machine.count == 0)
        #expect(here.machine.milestones.departed == 2)
        #expect(there.machine.milestones.imported == 2)
        #expect(here.machine.milestones.isBalanced && there.machine.milestones.isBalanced)
    }

    @Test func importedPushYieldsToNewerAndReplacesOlder() {
        var harness = DeliveryHarness()
        let old = harness.facts("old", collapse: "x") {
            $0.partition = 1
            $0.createdMilliseconds -= 10
        }
        harness.push("here", collapse: "x")
        harness.note(harness.machine.importItem(old, ItemProgress(), at: harness.now), "old")
        #expect(harness.ended == ["old superseded by here"])
        let newer = harness.facts("newer", collapse: "x") {
            $0.partition = 1
            $0.createdMilliseconds += 10
        }
        harness.note(harness.machine.importItem(newer, ItemProgress(), at: harness.now), "newer")
        #expect(harness.ended.last == "here superseded by newer")
        #expect(harness.waiting == ["newer"])
    }

    @Test func importedPushOfAbandonedPartitionIsDropped() {
        var harness = DeliveryHarness()
        harness.machine.abandon(partition: 4, at: harness.now)
        let facts = harness.facts("a") { $0.partition = 4 }
        harness.note(harness.machine.importItem(facts, ItemProgress(), at: harness.now), "a")
        #expect(harness.ended == ["a dropped"])
    }

    /// The store's answers to older versions of the item must not count for the new version.
    @Test func importedStoredItemIsWrittenWithLaterVersion() {
        var harness = DeliveryHarness { $0.storeIsDurable = true }
        let later = harness.now.wallMilliseconds + 3_600_000
        let facts = harness.facts("a") { $0.deliverAtMilliseconds = later }
        var progress = ItemProgress()
        (progress.isStored, progress.storeVersion) = (true, 7)
        progress.expiryMilliseconds = later + 3_600_000
        harness.note(harness.machine.importItem(facts, progress, at: harness.now), "a")
        #expect(harness.stores.first?.version == 8)
    }
}
