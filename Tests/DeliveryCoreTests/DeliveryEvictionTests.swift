import SluiceModel
import StreamScheduling
import Testing

@testable import DeliveryCore

/// Items of a durable store leave memory and are restored unchanged.
struct DeliveryEvictionTests {
    private let hour: Int64 = 3_600_000

    /// A harness whose device "d" is offline and holds these pushes, which are stored.
    private func held(
        _ names: [String] = ["a"], _ adjust: (inout DeliveryLimits) -> Void = { _ in }
    )
        -> DeliveryHarness
    {
        var harness = DeliveryHarness {
            $0.storeIsDurable = true
            adjust(&$0)
        }
        harness.offline()
        for name in names { harness.push(name) { $0.delivery = .holdWhileOffline } }
        harness.allStored()
        return harness
    }

    /// Current values of the presences that the store was asked to keep.
    private func keptPresences(_ harness: borrowing DeliveryHarness) -> [KnownPresence] {
        var kept: [KnownPresence] = []
        for case .keepPresence(let number) in harness.others {
            kept.append(harness.machine.presence(number, at: harness.now))
        }
        return kept
    }

    /// Restores a push from the store with its last stored progress.
    @discardableResult
    private func restore(
        _ name: String, _ harness: inout DeliveryHarness, offset: Int64, delivery: DeliveryMode = .accept,
        collapse: String? = nil
    ) -> Admission {
        var progress = harness.stored[name]!
        progress.isStored = true
        progress.isOffsetDone = true
        progress.isAccepted = progress.wait == .confirming
        let facts = harness.facts(name, collapse: collapse) {
            $0.delivery = delivery
            $0.offset = offset
        }
        let admission = harness.machine.restore(facts, progress, at: harness.now)
        harness.note(admission, name)
        return admission
    }

    /// After a token change, a device's items and its presence can be in different partitions.
    @Test func itemRestoredBeforeItsDevicesPresenceIsHeld() {
        var harness = DeliveryHarness { $0.storeIsDurable = true }
        let device = DeliveryHarness.device("d")
        var progress = ItemProgress()
        (progress.isStored, progress.isOffsetDone, progress.attempts) = (true, true, 1)
        progress.expiryMilliseconds = harness.now.wallMilliseconds + hour
        // Held without a report of its device, and due for another attempt.
        (progress.wait, progress.wakeMilliseconds) = (.held, harness.now.wallMilliseconds - 1)
        let facts = harness.facts("a") { $0.delivery = .confirm }
        harness.note(harness.machine.restore(facts, progress, at: harness.now), "a")
        #expect(harness.waiting == ["a"])
        let known = KnownPresence(
            device: device, presence: .offline, learned: .at(harness.now.wallMilliseconds - 10),
            partition: 1)
        _ = harness.machine.restore(known, at: harness.now)
        harness.drain()
        #expect(harness.begin() == nil)
        #expect(harness.state("a") == .held)
    }

    /// A worker that looks for the push in the push's partition has to find the new device's presence there.
    @Test(arguments: [UInt16(0), 1]) func presenceIsKeptInThePartitionOfAPushThatMoves(_ partition: UInt16) {
        var harness = DeliveryHarness { $0.storeIsDurable = true }
        let device = DeliveryHarness.device("new")
        _ = harness.machine.offline(
            device, occurred: .at(harness.now.wallMilliseconds), partition: partition, at: harness.now)
        harness.drain()
        harness.push("a") { $0.delivery = .holdWhileOffline }
        harness.others = []
        _ = harness.machine.tokenChanged(
            DeliveryHarness.device("d"), to: device, isElsewhere: false, at: harness.now)
        harness.drain()
        #expect(keptPresences(harness).map(\.device) == (partition == 0 ? [] : [device]))
    }

    @Test func storedPushesAreEvictedWithinASecond() {
        var harness = held(["a", "b"])
        #expect(harness.state("a") == .held, "it stays for a moment while there is room")
        harness.pass(milliseconds: 1000)
        #expect(Set(harness.ended) == ["a evicted", "b evicted"])
        #expect(harness.machine.count == 0)
        #expect(harness.machine.milestones.evicted == 2)
        #expect(harness.machine.milestones.isBalanced)
    }

    @Test func storedPushesAreEvictedAtOnceWhenRoomIsScarce() {
        let harness = held(["a", "b"]) { $0.capacity = 3 }
        #expect(Set(harness.ended) == ["a evicted", "b evicted"])
    }

    @Test func pushesNotYetDurableStayInMemory() {
        var harness = DeliveryHarness { $0.storeIsDurable = true }
        harness.offline()
        harness.push("a") { $0.delivery = .holdWhileOffline }
        harness.pass(milliseconds: 5000)
        #expect(harness.state("a") == .held, "the store hasn't confirmed the write")
        let (slot, version) = harness.stores[0]
        harness.machine.storeFailed(slot, version: version)
        harness.pass(milliseconds: 5000)
        #expect(harness.state("a") == .held, "the store failed")
        harness.allStored()
        harness.pass(milliseconds: 1000)
        #expect(harness.ended == ["a evicted"])
    }

    @Test func deviceIsEvictedOnlyWithAllItsPushes() {
        var harness = held()
        harness.push("flies")
        let slot = harness.begin()!
        harness.pass(milliseconds: 5000)
        #expect(harness.state("a") == .held, "another push of its device is in flight")
        harness.accept(slot)
        harness.pass(milliseconds: 1000)
        #expect(harness.ended == ["flies accepted", "a evicted"])
    }

    @Test func pushesDueSoonStayInMemory() {
        var harness = DeliveryHarness {
            $0.storeIsDurable = true
            $0.storeAfterMilliseconds = 5_000
        }
        harness.push("soon") { $0.deliverAtMilliseconds = $0.createdMilliseconds + 9_000 }
        harness.push("later", device: "e") { $0.deliverAtMilliseconds = $0.createdMilliseconds + 30_000 }
        harness.allStored()
        harness.pass(milliseconds: 1000)
        #expect(harness.ended == ["later evicted"])
        harness.pass(milliseconds: 8000)
        #expect(harness.waiting == ["soon"])
    }

    @Test func restoredHeldPushWaitsUntilDeviceIsOnline() {
        var harness = held()
        harness.pass(milliseconds: 1000)
        let asked = harness.stores.count
        restore("a", &harness, offset: 0, delivery: .holdWhileOffline)
        #expect(harness.state("a") == .held)
        harness.pass(milliseconds: 1000)
        #expect(harness.ended == ["a evicted", "a evicted"])
        #expect(harness.stores.count == asked, "the stored version is current")
        restore("a", &harness, offset: 0, delivery: .holdWhileOffline)
        harness.online()
        harness.pass(milliseconds: 1)
        #expect(harness.waiting == ["a"])
    }

    @Test func restoredRetryKeepsItsWakeTime() {
        var harness = DeliveryHarness { $0.storeIsDurable = true }
        harness.push("a")
        harness.answer(harness.begin()!, .serviceUnavailable, retryAfter: 60_000)
        harness.allStored()
        harness.pass(milliseconds: 1000)
        #expect(harness.ended == ["a evicted"])
        let kept = harness.stored["a"]!
        #expect(kept.wait == .retrying && kept.attempts == 1 && kept.failures == 1)
        #expect(kept.dueMilliseconds == kept.wakeMilliseconds)
        harness.pass(milliseconds: 40_000)
        restore("a", &harness, offset: 0)
        #expect(harness.state("a") == .retrying, "the retry isn't due yet")
        harness.pass(milliseconds: kept.wakeMilliseconds - harness.now.wallMilliseconds - 1)
        #expect(harness.state("a") == .retrying)
        harness.pass(milliseconds: 1)
        #expect(harness.waiting == ["a"])
    }

    @Test func restoredPushAwaitsReceiptForRemainingTimeout() {
        var harness = DeliveryHarness { $0.storeIsDurable = true }
        harness.push("a") {
            $0.delivery = .confirm
            $0.receiptTimeoutSeconds = 100
        }
        harness.accept(harness.begin()!)
        harness.allStored()
        harness.pass(milliseconds: 1000)
        #expect(harness.ended == ["a evicted"])
        harness.pass(milliseconds: 90_000)
        restore("a", &harness, offset: 0, delivery: .confirm)
        #expect(harness.state("a") == .confirming)
        harness.pass(milliseconds: 8_000)
        #expect(harness.state("a") == .confirming)
        harness.pass(milliseconds: 1_001)
        #expect(harness.state("a") == .held)
        // A device presumed offline gets another attempt, and its item is restored for that.
        harness.allStored()
        let kept = harness.stored["a"]!
        #expect(kept.wait == .held && kept.wakeMilliseconds > harness.now.wallMilliseconds)
        #expect(kept.dueMilliseconds == kept.wakeMilliseconds)
        // Eviction waits, in case the device returns at once.
        harness.pass(milliseconds: 20_000)
        #expect(harness.ended == ["a evicted", "a evicted"])
        harness.pass(milliseconds: kept.wakeMilliseconds - harness.now.wallMilliseconds)
        restore("a", &harness, offset: 0, delivery: .confirm)
        #expect(harness.waiting == ["a"])
        #expect(harness.begin() != nil, "sent although its device counts as offline")
    }

    @Test func changedPushIsStoredAgainBeforeEviction() {
        var harness = held()
        harness.online()
        harness.pass(milliseconds: 1)
        let slot = harness.begin()!
        #expect(harness.stores.count == 1)
        harness.answer(slot, .serviceUnavailable, retryAfter: 60_000)
        #expect(harness.stores.count == 2, "attempts and wake time have changed")
        #expect(harness.stored["a"]!.attempts == 1)
        harness.pass(milliseconds: 2000)
        #expect(harness.state("a") == .retrying, "the stored version is outdated")
        harness.allStored()
        harness.pass(milliseconds: 1000)
        #expect(harness.ended == ["a evicted"])
    }

    @Test func restoreOfItemInMemoryReportsRepeated() {
        var harness = held()
        let admission = restore("a", &harness, offset: 0, delivery: .holdWhileOffline)
        #expect(admission == .repeated(0, isDurable: true))
        #expect(harness.machine.count == 1)
        #expect(harness.machine.milestones.isBalanced)
    }

    @Test func itemExpiredInTheStoreEndsOnRestore() {
        var harness = DeliveryHarness { $0.storeIsDurable = true }
        harness.offline()
        harness.push("a") {
            $0.delivery = .holdWhileOffline
            $0.expirationMilliseconds = $0.createdMilliseconds + 3_600_000
        }
        harness.allStored()
        harness.pass(milliseconds: 1000)
        #expect(harness.stored["a"]!.dueMilliseconds == harness.stored["a"]!.expiryMilliseconds)
        harness.pass(milliseconds: hour)
        #expect(restore("a", &harness, offset: 0, delivery: .holdWhileOffline) == .expired)
    }

    /// However long the circuit is open: one write, and no visit before the item expires.
    @Test func itemBehindOpenCircuitIsStoredOnce() {
        var harness = DeliveryHarness {
            $0.storeIsDurable = true
            $0.retry.configuration = try! ExponentialBackoff(
                baseMilliseconds: 60_000, capMilliseconds: 900_000)
        }
        harness.push("a")
        harness.answer(harness.begin()!, .topicDisallowed)
        #expect(harness.others.contains(.suspended(topic: 0)))
        harness.allStored()
        harness.pass(milliseconds: 1000)
        #expect(harness.ended == ["a evicted"])
        let kept = harness.stored["a"]!
        #expect(kept.wait == .suspended && kept.wakeMilliseconds == 0)
        #expect(kept.dueMilliseconds == kept.expiryMilliseconds)
        // Restored while the circuit is open, as when a worker takes the partition over.
        for round in 1...3 {
            restore("a", &harness, offset: 0)
            #expect(harness.state("a") == .topicCircuitOpen)
            harness.pass(milliseconds: 1000)
            #expect(harness.ended.count == 1 + round)
        }
        #expect(harness.stores.count == 1, "the stored version is current")
    }

    @Test func probeRestoredFromStoreResumesTheTopic() {
        var harness = DeliveryHarness {
            $0.storeIsDurable = true
            $0.retry.configuration = try! ExponentialBackoff(
                baseMilliseconds: 60_000, capMilliseconds: 900_000)
        }
        harness.push("a")
        harness.answer(harness.begin()!, .topicDisallowed)
        harness.allStored()
        harness.pass(milliseconds: 1000)
        let wanted = { (harness: borrowing DeliveryHarness) in
            harness.others.count { $0 == .pushesWanted(topic: 0, count: 4) }
        }
        #expect(wanted(harness) == 0)
        let wake = harness.machine.nextWake(after: harness.now)
        #expect(wake != nil, "the circuit needs a wake although memory is empty")
        harness.pass(milliseconds: 900_000)
        #expect(wanted(harness) == 1)
        harness.pass(milliseconds: 1)
        #expect(wanted(harness) == 1, "the request isn't repeated at once")
        harness.pass(milliseconds: 900_000)
        #expect(wanted(harness) == 2, "the store may have had no item then")
        restore("a", &harness, offset: 0)
        #expect(harness.waiting == ["a"], "the topic's probe")
        #expect(!harness.others.contains(.resumed(topic: 0)))
        harness.accept(harness.begin()!)
        #expect(harness.others.contains(.recovered(topic: 0)))
        #expect(harness.others.contains(.resumed(topic: 0)))
    }

    /// The stored wait of an item decides when the item is restored.
    @Test func itemHeldAfterCircuitClosesIsStoredAgain() {
        var harness = DeliveryHarness { $0.storeIsDurable = true }
        harness.push("a") { $0.delivery = .holdWhileOffline }
        harness.answer(harness.begin()!, .topicDisallowed)
        harness.allStored()
        harness.offline()
        harness.push("b", device: "e")
        harness.pass(milliseconds: 900_000)
        if harness.waiting == ["b"] { harness.accept(harness.begin()!) }
        harness.pass(milliseconds: 1000)
        let kept = harness.stored["a"]!
        #expect(harness.state("a") == .held)
        #expect(kept.wait == .held && kept.dueMilliseconds == kept.expiryMilliseconds)
        #expect(harness.stores.count == 3, "the last write is of the hold: \(harness.stored)")
    }

    // MARK: Presence

    @Test func newestPresenceWins() {
        for newestFirst in [true, false] {
            var harness = DeliveryHarness { $0.storeIsDurable = true }
            let device = DeliveryHarness.device("d")
            let learned = harness.now.wallMilliseconds
            var known = [
                KnownPresence(
                    device: device, presence: .offline, learned: .at(learned - 2000), partition: 1),
                KnownPresence(
                    device: device, presence: .online, learned: .at(learned - 1000), partition: 2),
            ]
            if newestFirst { known.reverse() }
            _ = harness.machine.restore(known[0], at: harness.now)
            harness.push("a") { $0.delivery = .holdWhileOffline }
            _ = harness.machine.restore(known[1], at: harness.now)
            harness.pass(milliseconds: 1000)
            #expect(harness.waiting == ["a"])
            // Older than the known presence.
            _ = harness.machine.offline(
                device, occurred: .at(learned - 1500), partition: 0, at: harness.now)
            harness.drain()
            #expect(harness.waiting == ["a"])
        }
    }

    /// Services that report in seconds produce reports of the same moment.
    @Test(arguments: [true, false]) func laterRecordWinsAmongReportsOfOneMoment(isNewestFirst: Bool) {
        var harness = DeliveryHarness { $0.storeIsDurable = true }
        let device = DeliveryHarness.device("d")
        let moment = harness.now.wallMilliseconds
        var known = [
            KnownPresence(
                device: device, presence: .online, learned: .at(moment, offset: 327), partition: 2),
            KnownPresence(
                device: device, presence: .offline, learned: .at(moment, offset: 328), partition: 1),
        ]
        if isNewestFirst { known.reverse() }
        for known in known { _ = harness.machine.restore(known, at: harness.now) }
        harness.push("a") { $0.delivery = .holdWhileOffline }
        #expect(harness.state("a") == .held)
        // The earlier record is read again.
        _ = harness.machine.receipt(
            device, notificationKey: 1, occurred: .at(moment, offset: 326), partition: 1, at: harness.now)
        harness.drain()
        #expect(harness.state("a") == .held)
        _ = harness.machine.online(
            device, occurred: .at(moment, offset: 329), partition: 1, at: harness.now)
        harness.pass(milliseconds: 1)
        #expect(harness.waiting == ["a"])
    }

    @Test func expiredPresenceIsIgnored() {
        var harness = DeliveryHarness { $0.storeIsDurable = true }
        let device = DeliveryHarness.device("d")
        var known = KnownPresence(
            device: device, presence: .offline, learned: .at(5), partition: 0,
            expiryMilliseconds: harness.now.wallMilliseconds)
        let isExpired = !harness.machine.restore(known, at: harness.now)
        #expect(isExpired)
        let knows = harness.machine.knowsPresence(of: device)
        #expect(!knows)
        known.expiryMilliseconds += 1
        let counts = harness.machine.restore(known, at: harness.now)
        #expect(counts)
    }

    /// The reporting service's clock may be ahead. Devices presumed offline report nothing.
    @Test func presenceExpiresByTheWorkersClock() {
        var harness = DeliveryHarness { $0.storeIsDurable = true }
        let device = DeliveryHarness.device("d")
        let now = harness.now.wallMilliseconds
        _ = harness.machine.offline(device, occurred: .at(now + 1_000_000), partition: 0, at: harness.now)
        let expiry = harness.machine.presence(0, at: harness.now).expiryMilliseconds
        #expect(expiry == now + harness.machine.limits.maximumExpirationMilliseconds)
        _ = harness.machine.restore(
            KnownPresence(
                device: device, presence: .presumedOffline, learned: .at(now + 2_000_000), partition: 0),
            at: harness.now)
        harness.pass(milliseconds: 7000)
        let later = harness.machine.presence(0, at: harness.now).expiryMilliseconds
        #expect(later == expiry + 7000)
    }

    @Test func presenceIsStoredAndRestored() {
        let harness = held()
        let kept = keptPresences(harness)
        let device = DeliveryHarness.device("d")
        let expected = KnownPresence(
            device: device, presence: .offline, learned: .at(harness.now.wallMilliseconds),
            partition: 0,
            expiryMilliseconds: harness.now.wallMilliseconds
                + harness.machine.limits.maximumExpirationMilliseconds)
        #expect(kept == [expected])
        var other = DeliveryHarness { $0.storeIsDurable = true }
        let knewIt = other.machine.knowsPresence(of: device)
        #expect(!knewIt)
        _ = other.machine.restore(expected, at: other.now)
        other.drain()
        let knowsIt = other.machine.knowsPresence(of: device)
        #expect(knowsIt)
        #expect(other.others.isEmpty, "the store has the presence")
        other.push("b") { $0.delivery = .holdWhileOffline }
        #expect(other.state("b") == .held)
        other.online()
        _ = other.machine.restore(expected, at: other.now)
        other.pass(milliseconds: 1)
        #expect(other.waiting == ["b"], "the known presence is newer")
    }

    /// The next owner of the partition loads such items, because no further report does.
    @Test func onlineDeviceWithHeldItemsIsStoredAsAwaited() {
        var harness = held()
        harness.online()
        harness.pass(milliseconds: 1)
        let leaving = keptPresences(harness)
        #expect(leaving.last?.presence == .online && leaving.last?.isAwaited == true)
        harness.accept(harness.begin()!)
        let sent = keptPresences(harness)
        #expect(sent.last?.isAwaited == false)
    }

    // MARK: Events that come again

    @Test func replayedEventLeavesLaterRecordsAlone() {
        var harness = DeliveryHarness { $0.storeIsDurable = true }
        harness.push("a") { $0.offset = 100 }
        let device = DeliveryHarness.device("d")
        let early = RecordOrigin(partition: 0, offset: 80)
        #expect(harness.cancel("a", origin: early) == CancelResult())
        let now = harness.now
        let rejected = harness.machine.unregistered(
            device, occurredMilliseconds: .max, origin: early, at: now)
        #expect(rejected == 0)
        let moved = harness.machine.tokenChanged(
            device, to: DeliveryHarness.device("e"), isElsewhere: false, origin: early, at: now)
        #expect(moved == 0)
        harness.drain()
        #expect(harness.waiting == ["a"] && harness.ended.isEmpty)
        let elsewhere = RecordOrigin(partition: 1, offset: 80)
        #expect(harness.cancel("a", origin: elsewhere) == CancelResult(cancelled: 1), "another partition")
        harness.push("b") { $0.offset = 101 }
        let late = RecordOrigin(partition: 0, offset: 102)
        #expect(harness.cancel("b", origin: late) == CancelResult(cancelled: 1))
    }

    // MARK: Many at once

    @Test func massReturnKeepsLaterItemsInTheStore() {
        let (items, burst, perSecond, secondsAhead, sent) = (60, 1, 1, 10, 12)
        let returning = burst + secondsAhead * perSecond
        var harness = held((0..<items).map { "\($0)" }) {
            $0.capacity = 256
            $0.returnsPerSecond = perSecond
            $0.returnBurst = burst
        }
        harness.online()
        #expect(harness.machine.milestones[.returning] == returning, "returns within ten seconds")
        #expect(harness.machine.milestones.pending == items)
        harness.allStored()
        var order: [String] = []
        for _ in 0..<sent {
            harness.pass(milliseconds: 1000)
            for _ in harness.queue.indices {
                let name = harness.waiting[0]
                harness.accept(harness.begin()!)
                order.append(name)
            }
        }
        #expect(order == (0..<sent).map { "\($0)" }, "one each second, in order")
        #expect(harness.machine.milestones[.returning] == returning)
        #expect(harness.machine.milestones[.held] == items - sent - returning)
    }

    @Test func itemsBeyondTheReturnLimitAreSentInTurn() {
        var harness = held((0..<6).map { "\($0)" }) {
            $0.returnsPerSecond = 1
            $0.returnBurst = 1
            $0.returning = 2
        }
        harness.online()
        #expect(harness.machine.milestones[.returning] == 2)
        #expect(harness.machine.milestones[.held] == 4)
        let known = keptPresences(harness)
        #expect(known.last?.isAwaited == true)
        for _ in 0..<12 {
            harness.pass(milliseconds: 1000)
            while !harness.queue.isEmpty, let slot = harness.begin() { harness.accept(slot) }
        }
        #expect(harness.machine.milestones.pending == 0, "items in memory take their turns there")
    }

    @Test func restoredItemsOfOnlineDeviceRespectTheReturnLimit() {
        var harness = held((0..<5).map { "\($0)" }) {
            $0.returnsPerSecond = 1
            $0.returnBurst = 1
            $0.returning = 2
        }
        harness.pass(milliseconds: 1000)
        #expect(harness.ended.count == 5, "all have left memory")
        harness.online()
        for number in 0..<5 {
            restore("\(number)", &harness, offset: Int64(number), delivery: .holdWhileOffline)
        }
        #expect(harness.machine.milestones[.returning] == 2)
        #expect(harness.machine.milestones[.held] == 3)
        harness.others = []
        harness.pass(milliseconds: 1)
        #expect(harness.others.isEmpty, "a device leaves memory with all of its items")
        harness.offline()
        harness.online()
        #expect(harness.machine.milestones[.returning] == 2)
    }

    @Test func deviceBeyondTheReturnLimitIsEvictedAndAwaitsTurn() {
        var harness = held((0..<6).map { "\($0)" }) {
            $0.returnsPerSecond = 1
            $0.returnBurst = 1
            $0.returning = 2
        }
        harness.offline("e")
        harness.push("b", device: "e") { $0.delivery = .holdWhileOffline }
        harness.allStored()
        harness.online()
        harness.online("e")
        #expect(harness.state("b") == .held)
        harness.others = []
        let slot = harness.names.first { $0.value == "b" }!.key
        harness.pass(milliseconds: 1000)
        #expect(harness.others.contains(.awaitsTurn(slot)))
        #expect(harness.ended == ["b evicted"])
        #expect(harness.machine.milestones[.returning] == 2, "items of the first device")
    }

    @Test func itemExpiringBeforeItsTurnIsSentAtOnce() {
        var harness = held(["a"]) {
            $0.returnsPerSecond = 1
            $0.returnBurst = 1
            $0.returning = 1
        }
        harness.push("b") {
            $0.delivery = .holdWhileOffline
            $0.expirationMilliseconds = $0.createdMilliseconds + 15_000
        }
        harness.allStored()
        harness.pass(milliseconds: 1000)
        #expect(harness.ended.sorted() == ["a evicted", "b evicted"])
        harness.pass(milliseconds: 7000)
        harness.online()
        restore("a", &harness, offset: 0, delivery: .holdWhileOffline)
        #expect(harness.state("a") == .returning)
        var progress = harness.stored["b"]!
        (progress.isStored, progress.isOffsetDone) = (true, true)
        progress.expiryMilliseconds = harness.now.wallMilliseconds + 7_000
        let facts = harness.facts("b") {
            $0.delivery = .holdWhileOffline
            $0.offset = 1
            $0.expirationMilliseconds = $0.createdMilliseconds + 7_000
        }
        harness.note(harness.machine.restore(facts, progress, at: harness.now), "b")
        #expect(harness.waiting == ["b"])
    }

    // MARK: More than one wait

    @Test func blockedItemKeepsItsRetryDelay() {
        var harness = DeliveryHarness { $0.storeIsDurable = true }
        harness.push("a", collapse: "c") { $0.offset = 7 }
        harness.answer(harness.begin()!, .serviceUnavailable, retryAfter: 60_000)
        harness.allStored()
        harness.pass(milliseconds: 1000)
        #expect(harness.ended == ["a evicted"])
        // After a restart, an older record of the same identity is read first.
        harness.push("older", collapse: "c") { $0.offset = 3 }
        let slot = harness.begin()!
        restore("a", &harness, offset: 7, collapse: "c")
        #expect(harness.state("a") == .blocked)
        harness.accept(slot)
        #expect(harness.state("a") == .retrying)
        #expect(harness.waiting == [])
    }

    @Test func itemTakingOverARetryDelayIsStoredAgain() {
        var harness = DeliveryHarness {
            $0.storeIsDurable = true
            $0.retry.retryAfterLimitMilliseconds = 3_600_000
        }
        harness.push("a", collapse: "c") {
            $0.offset = 7
            $0.deliverAtMilliseconds = $0.createdMilliseconds + 100_000
        }
        harness.allStored()
        harness.pass(milliseconds: 1000)
        #expect(harness.ended == ["a evicted"])
        harness.push("older", collapse: "c") { $0.offset = 3 }
        harness.answer(harness.begin()!, .serviceUnavailable, retryAfter: 200_000)
        restore("a", &harness, offset: 7, collapse: "c")
        #expect(harness.state("a") == .coalescing)
        harness.allStored()
        harness.pass(milliseconds: 1000)
        #expect(harness.ended.last == "a evicted")
        let kept = harness.stored["a"]!
        #expect(kept.wait == .retrying && kept.wakeMilliseconds > harness.now.wallMilliseconds + 190_000)
    }

    @Test func deviceReportedOfflineGetsNoPresumedOfflineRetry() {
        var harness = DeliveryHarness { $0.storeIsDurable = true }
        harness.push("a") {
            $0.delivery = .confirm
            $0.receiptTimeoutSeconds = 100
        }
        harness.accept(harness.begin()!)
        harness.pass(milliseconds: 101_000)
        #expect(harness.state("a") == .held)
        let kept = harness.stored["a"]!
        #expect(kept.wait == .held && kept.wakeMilliseconds > 0)
        var later = DeliveryHarness { $0.storeIsDurable = true }
        later.now = harness.now
        later.now.wallMilliseconds = kept.wakeMilliseconds + 1
        later.offline()
        later.stored = harness.stored
        restore("a", &later, offset: 0, delivery: .confirm)
        #expect(later.state("a") == .held)
        #expect(later.waiting == [])
    }
}
