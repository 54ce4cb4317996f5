import SluiceModel
import Testing

@testable import DeliveryCore

/// Two tenants on one worker: A on topic 0 sends, B on topic 1 is in trouble. Both have the same weight.
struct BudgetTests {
    /// Pushes that the machine may have in memory.
    static let room = 40

    private func harness(isDurable: Bool = true, weight: Int = 1, isLimited: Bool = false) -> DeliveryHarness
    {
        var harness = DeliveryHarness {
            $0.storeIsDurable = isDurable
            $0.capacity = 256
            $0.room = Self.room
        }
        harness.machine.setTenant(1, ofTopic: 0, weight: weight, isLimited: false)
        harness.machine.setTenant(2, ofTopic: 1, weight: 1, isLimited: isLimited)
        return harness
    }

    private func push(
        _ harness: inout DeliveryHarness, _ names: [String], topic: UInt16,
        _ priority: Priority = .powerAware
    ) {
        for name in names {
            harness.push(name, device: name) {
                $0.topic = topic
                $0.pool = topic
                $0.priority = priority
            }
        }
    }

    private static func names(_ prefix: String, _ range: Range<Int>) -> [String] {
        range.map { "\(prefix)\($0)" }
    }

    /// Sends what waits of A, and lets time pass.
    private func pass(
        _ harness: inout DeliveryHarness, seconds: Int, presses: Bool = true, keeping kept: Int? = nil
    ) {
        for step in 0..<(10 * seconds) {
            push(&harness, ["a\(harness.now.wallMilliseconds)"], topic: 0)
            let sent = harness.queue.filter { harness.machine.info($0).topic == 0 }
            harness.queue.removeAll { sent.contains($0) }
            for slot in sent where harness.machine.beginAttempt(slot, at: harness.now) {
                harness.accept(slot)
            }
            if presses, step % 5 == 4 {
                harness.machine.makeRoom(pushes: Self.room, keeping: kept, at: harness.now)
                harness.drain()
            }
            harness.allStored()
            harness.pass(milliseconds: 100)
        }
    }

    private func inMemory(_ harness: borrowing DeliveryHarness, _ prefix: String) -> Set<String> {
        Set(harness.names.values.filter { $0.hasPrefix(prefix) })
    }

    /// Brings back the oldest evicted pushes of B that the machine wants.
    private func restoreWanted(_ harness: inout DeliveryHarness) -> [String] {
        var wanted = 0
        for case .pushesWanted(1, let count) in harness.others { wanted = max(wanted, count) }
        harness.others.removeAll { if case .pushesWanted = $0 { true } else { false } }
        let evicted = harness.ended.compactMap { $0.hasSuffix(" evicted") ? String($0.dropLast(8)) : nil }
        let back = Array(evicted.prefix(wanted))
        for name in back {
            harness.ended.removeAll { $0 == "\(name) evicted" }
            var progress = harness.stored[name]!
            progress.isOffsetDone = true
            progress.isStored = true
            let facts = harness.facts(name, device: name) {
                $0.topic = 1
                $0.pool = 1
                $0.priority = .powerAware
                $0.offset = 1_000_000
            }
            harness.note(harness.machine.restore(facts, progress, at: harness.now), name)
        }
        return back
    }

    // MARK: Parking

    @Test func pushesBeyondTheShareOfATenantThatCannotSendAreParked() {
        var harness = harness()
        push(&harness, Self.names("b", 0..<35), topic: 1)
        pass(&harness, seconds: 4)
        // The oldest half of the share stays; the other half is kept for priority 10.
        #expect(inMemory(harness, "b") == Set(Self.names("b", 0..<10)))
        #expect(harness.stored["b20"]?.wait == .suspended)
        #expect(harness.others.contains(.suspended(topic: 1)))
        #expect(!harness.others.contains(.suspended(topic: 0)))
        #expect(harness.machine.tenantsOverShare == [2])
        let alerts = harness.others.count { if case .parked(topic: 1, _) = $0 { true } else { false } }
        #expect(alerts == 1)
    }

    @Test func arrivingPushesOfAParkedTenantAreParkedAndUrgentOnesUseTheRestOfItsShare() {
        var harness = harness()
        push(&harness, Self.names("b", 0..<35), topic: 1)
        pass(&harness, seconds: 4)
        push(&harness, ["b35"], topic: 1)
        #expect(harness.state("b35") == .topicCircuitOpen)
        push(&harness, Self.names("urgent", 0..<12), topic: 1, .immediate)
        #expect(Self.names("urgent", 0..<10).allSatisfy { harness.state($0) == .waiting })
        #expect(
            harness.state("urgent10") == .topicCircuitOpen && harness.state("urgent11") == .topicCircuitOpen)
        let cause = harness.names.first { $0.value == "b35" }.flatMap {
            harness.machine.pending($0.key, at: harness.now)?.cause
        }
        #expect(cause == .parked)
    }

    /// A weighs three times as much, so that B's share is a quarter.
    @Test func shareIsByWeight() {
        var harness = harness(weight: 3)
        push(&harness, Self.names("b", 0..<35), topic: 1)
        pass(&harness, seconds: 4)
        #expect(inMemory(harness, "b") == Set(Self.names("b", 0..<5)))
    }

    /// Partitions that are paused resume once the tenants keep no more than this.
    @Test func tenantsShareWhatIsKept() {
        var harness = harness()
        push(&harness, Self.names("b", 0..<35), topic: 1)
        pass(&harness, seconds: 4, keeping: Self.room / 2)
        #expect(inMemory(harness, "b") == Set(Self.names("b", 0..<5)))
    }

    @Test func nothingIsParkedWithoutPressure() {
        var harness = harness()
        push(&harness, Self.names("b", 0..<35), topic: 1)
        pass(&harness, seconds: 4, presses: false)
        #expect(harness.machine.tenantsOverShare == [] && inMemory(harness, "b").count == 35)
    }

    /// Kafka keeps the backlog when nothing else could use the room.
    @Test func nothingIsParkedForATenantAlone() {
        var harness = harness()
        push(&harness, Self.names("b", 0..<35), topic: 1)
        for _ in 0..<40 {
            harness.pass(milliseconds: 100)
            harness.machine.makeRoom(pushes: Self.room / 2, at: harness.now)
            harness.drain()
        }
        #expect(harness.machine.tenantsOverShare == [] && inMemory(harness, "b").count == 35)
    }

    /// All servers are down: no tenant could use the room.
    @Test func nothingIsParkedWhenTheOthersCannotSendEither() {
        var harness = harness()
        push(&harness, Self.names("b", 0..<25), topic: 1)
        push(&harness, Self.names("a", 0..<25), topic: 0)
        for _ in 0..<40 {
            harness.pass(milliseconds: 100)
            harness.machine.makeRoom(pushes: Self.room, at: harness.now)
            harness.drain()
        }
        #expect(harness.machine.tenantsOverShare == [])
    }

    /// A tenant that ends what it has in memory within ten seconds is only busy.
    @Test(arguments: [false, true]) func busyTenantIsParkedOnlyIfItHasAPace(isLimited: Bool) {
        var harness = harness(isLimited: isLimited)
        var next = 31
        push(&harness, Self.names("b", 0..<next), topic: 1)
        for _ in 0..<10 {
            push(&harness, Self.names("b", next..<next + 4), topic: 1)
            next += 4
            for slot in harness.queue.prefix(4) {
                harness.begin()
                harness.accept(slot)
            }
            pass(&harness, seconds: 1)
        }
        let wasParked = harness.others.contains { if case .parked(topic: 1, _) = $0 { true } else { false } }
        #expect(wasParked == isLimited)
    }

    @Test func withoutAStoreTheTenantIsNamed() {
        var harness = harness(isDurable: false)
        push(&harness, Self.names("b", 0..<35), topic: 1)
        pass(&harness, seconds: 4)
        #expect(harness.others.contains(.crowds(topic: 1, pushes: 35)))
        #expect(inMemory(harness, "b").count == 35 && harness.stored.isEmpty)
        #expect(harness.machine.tenantsOverShare == [2])
        pass(&harness, seconds: 3, presses: false)
        #expect(harness.machine.tenantsOverShare == [])
    }

    /// Pushes between two attempts come back in their time. Parking would lose their back-off.
    @Test func pushesBetweenAttemptsAreStoredWithTheirTime() {
        var harness = harness()
        push(&harness, Self.names("b", 0..<35), topic: 1)
        for _ in 0..<25 {
            let slot = harness.begin()!
            harness.answer(slot, .serviceUnavailable, retryAfter: 20_000)
        }
        pass(&harness, seconds: 4)
        #expect(harness.stored["b0"]?.wait == .retrying)
        #expect(!inMemory(harness, "b").contains("b0"))
    }

    /// At the limit the tenant's pushes stay in memory.
    @Test func storeHasABoundForEachTenant() {
        var harness = DeliveryHarness {
            $0.storeIsDurable = true
            $0.capacity = 256
            $0.room = Self.room
            $0.parkedPushes = 30
        }
        harness.machine.setTenant(1, ofTopic: 0, weight: 1, isLimited: false)
        harness.machine.setTenant(2, ofTopic: 1, weight: 1, isLimited: false)
        push(&harness, Self.names("b", 0..<35), topic: 1)
        pass(&harness, seconds: 4)
        push(&harness, Self.names("c", 0..<5), topic: 1)
        pass(&harness, seconds: 1)
        #expect(inMemory(harness, "c").isEmpty && inMemory(harness, "b").count == 10)
        push(&harness, Self.names("d", 0..<30), topic: 1)
        #expect(harness.state("d0") == .waiting && harness.state("d29") == .waiting)
        harness.others.removeAll()
        pass(&harness, seconds: 2)
        #expect(inMemory(harness, "d").count == 30)
        #expect(harness.others.contains { if case .crowds(topic: 1, _) = $0 { true } else { false } })
        // A partition that ends takes its pushes along.
        harness.machine.end(partition: 0)
        pass(&harness, seconds: 2)
        #expect(inMemory(harness, "d").isEmpty)
    }

    /// A topic that is first seen while its tenant is parked is parked, too.
    @Test func topicOfAParkedTenantIsParkedFromItsFirstPushOn() {
        var harness = harness()
        push(&harness, Self.names("b", 0..<35), topic: 1)
        pass(&harness, seconds: 4)
        harness.machine.setTenant(2, ofTopic: 2, weight: 1, isLimited: false)
        push(&harness, ["watch"], topic: 2)
        #expect(harness.state("watch") == .topicCircuitOpen)
        #expect(harness.others.contains(.suspended(topic: 2)))
        for _ in 0..<60 {
            for slot in harness.queue where harness.machine.info(slot).topic != 0 {
                harness.queue.removeAll { $0 == slot }
                let begins = harness.machine.beginAttempt(slot, at: harness.now)
                if begins { harness.accept(slot) }
            }
            pass(&harness, seconds: 1, presses: false)
            _ = restoreWanted(&harness)
        }
        #expect(harness.machine.tenantsOverShare == [])
        harness.push("late", device: "late") { $0.topic = 2 }
        let late = harness.names.first { $0.value == "late" }!.key
        harness.queue.removeAll { $0 == late }
        let begins = harness.machine.beginAttempt(late, at: harness.now)
        #expect(begins)
        harness.answer(late, .topicDisallowed)
        #expect(harness.machine.stoppedTopics == 1)
    }

    /// A tenant that has sent well and gets many pushes at once is only busy.
    @Test func burstParksNothing() {
        var harness = harness()
        pass(&harness, seconds: 2)
        push(&harness, Self.names("b", 0..<35), topic: 1)
        for _ in 0..<3 {
            for slot in harness.queue.prefix(12) {
                harness.begin()
                harness.accept(slot)
            }
            pass(&harness, seconds: 1)
        }
        #expect(!harness.others.contains { if case .parked = $0 { true } else { false } })
    }

    /// Pushes that have returned from the store take slots, and no room for jobs. They leave again without a write.
    @Test func restoredPushesOfASlowTenantMakeRoom() {
        var harness = DeliveryHarness {
            $0.storeIsDurable = true
            $0.capacity = 256
            $0.restoredPushes = 40
        }
        harness.machine.setTenant(1, ofTopic: 0, weight: 1, isLimited: false)
        harness.machine.setTenant(2, ofTopic: 1, weight: 1, isLimited: false)
        var progress = ItemProgress()
        progress.isOffsetDone = true
        progress.isStored = true
        progress.wait = .suspended
        progress.expiryMilliseconds = harness.now.wallMilliseconds + 3_600_000
        progress.dueMilliseconds = progress.expiryMilliseconds
        for name in Self.names("b", 0..<35) {
            let facts = harness.facts(name, device: name) {
                $0.topic = 1
                $0.pool = 1
                $0.priority = .powerAware
            }
            harness.note(harness.machine.restore(facts, progress, at: harness.now), name)
        }
        for _ in 0..<4 {
            pass(&harness, seconds: 1, presses: false)
            // The sample was a count.
            harness.pass(milliseconds: 100)
            harness.machine.makeRoomForRestored(at: harness.now)
            harness.drain()
        }
        pass(&harness, seconds: 2, presses: false)
        #expect(inMemory(harness, "b") == Set(Self.names("b", 0..<10)))
        #expect(harness.stores.isEmpty)
    }

    /// Priority 10 that arrives without end leaves a part of the share to others.
    @Test func lowerPrioritiesReturnBesideUrgentOnes() {
        var harness = harness()
        push(&harness, Self.names("b", 0..<35), topic: 1)
        pass(&harness, seconds: 4)
        var accepted = 0
        for round in 0..<40 {
            push(&harness, ["u\(round)"], topic: 1, .immediate)
            if let slot = harness.queue.first(where: { harness.names[$0]!.hasPrefix("b") }) {
                harness.queue.removeAll { $0 == slot }
                let begins = harness.machine.beginAttempt(slot, at: harness.now)
                if begins { harness.accept(slot) }
                accepted += 1
            }
            pass(&harness, seconds: 1)
            _ = restoreWanted(&harness)
        }
        #expect(accepted == 35)
    }

    /// Pushes of a stopped topic have no place in memory while the worker is nearly full.
    @Test func pushesOfAStoppedTopicLeaveMemory() {
        var harness = harness()
        push(&harness, Self.names("b", 0..<10), topic: 1)
        harness.answer(harness.begin()!, .topicDisallowed)
        for _ in 1..<10 { harness.begin() }
        harness.allStored()
        #expect(inMemory(harness, "b").count == 10)
        harness.machine.makeRoom(pushes: Self.room, at: harness.now)
        harness.drain()
        #expect(inMemory(harness, "b").count == 0)
        push(&harness, Self.names("b", 10..<20), topic: 1)
        harness.allStored()
        #expect(inMemory(harness, "b").count == 0)
    }

    // MARK: Return

    @Test func parkedPushesReturnAsTheTenantEndsOthers() {
        var harness = harness()
        push(&harness, Self.names("b", 0..<35), topic: 1)
        pass(&harness, seconds: 4)
        harness.others.removeAll()
        // While nothing ends, nothing is asked for.
        pass(&harness, seconds: 3)
        #expect(restoreWanted(&harness).isEmpty)
        #expect(harness.machine.tenantsOverShare == [2])
        var accepted: [String] = []
        for _ in 0..<60 {
            if let slot = harness.queue.first {
                accepted.append(harness.names[slot]!)
                harness.begin()
                harness.accept(slot)
            }
            pass(&harness, seconds: 1)
            _ = restoreWanted(&harness)
            #expect(inMemory(harness, "b").count <= 21)
        }
        #expect(accepted == Self.names("b", 0..<35))
        #expect(harness.machine.tenantsOverShare == [])
        #expect(harness.others.contains(.unparked(topic: 1)) && harness.others.contains(.resumed(topic: 1)))
        push(&harness, ["later"], topic: 1)
        #expect(harness.state("later") == .waiting)
    }

    /// A topic that APNs stops meanwhile stays stopped. Its probe isn't parked, and its pushes return one after another.
    @Test func stoppedTopicOfAParkedTenantProbes() {
        var harness = harness()
        push(&harness, Self.names("b", 0..<35), topic: 1)
        pass(&harness, seconds: 4)
        harness.answer(harness.begin()!, .topicDisallowed)
        #expect(harness.state("b5") == .waiting)
        harness.begin()
        #expect(harness.state("b1") == .topicCircuitOpen)
        harness.others.removeAll()
        pass(&harness, seconds: 3)
        #expect(restoreWanted(&harness).isEmpty, "a stopped topic asks for a probe later")
        harness.pass(milliseconds: 900_000)
        let probe = harness.queue.last!
        harness.queue.removeLast()
        let begins = harness.machine.beginAttempt(probe, at: harness.now)
        #expect(begins)
        harness.drain()
        harness.accept(probe)
        #expect(harness.machine.stoppedTopics == 0 && harness.machine.tenantsOverShare == [2])
        #expect(!harness.others.contains(.resumed(topic: 1)))
    }

    // MARK: In flight

    private func maxima(_ harness: inout DeliveryHarness) -> [UInt32: Int] {
        var maxima: [UInt32: Int] = [:]
        for case .limitsFlights(let tenant, let maximum) in harness.others { maxima[tenant] = maximum }
        return maxima
    }

    private func harness(unanswered: Int) -> DeliveryHarness {
        var harness = DeliveryHarness {
            $0.storeIsDurable = true
            $0.capacity = 1024
            $0.room = 400
            $0.unanswered = unanswered
        }
        harness.machine.setTenant(1, ofTopic: 0, weight: 1, isLimited: false)
        harness.machine.setTenant(2, ofTopic: 1, weight: 1, isLimited: false)
        harness.drain()
        return harness
    }

    /// Requests without an answer leave the room that they may not take to the others.
    @Test func tenantsWithoutAnswersHaveFewInFlight() {
        var harness = harness(unanswered: 80)
        #expect(maxima(&harness) == [1: 60, 2: 60])
        push(&harness, Self.names("b", 0..<60), topic: 1)
        for _ in 0..<60 { harness.begin() }
        pass(&harness, seconds: 2, presses: false)
        // B leaves a quarter.
        #expect(maxima(&harness) == [1: 15, 2: 60])
    }

    /// A tenant that has more answers in a quarter of a second than its part isn't limited by the part.
    @Test func tenantsHaveAsManyInFlightAsAreAnswered() {
        var harness = harness(unanswered: 8)
        for step in 0..<30 {
            push(&harness, (0..<40).map { "a\(step)-\($0)" }, topic: 0)
            for slot in harness.queue where harness.machine.beginAttempt(slot, at: harness.now) {
                harness.accept(slot)
            }
            harness.queue = []
            harness.pass(milliseconds: 100)
        }
        #expect(maxima(&harness)[1]! > 80 && maxima(&harness)[2] == 6)
        // Without answers, the part counts again.
        for _ in 0..<6 { harness.pass(milliseconds: 500) }
        #expect(maxima(&harness)[1] == 6)
    }

    /// Pushes that end without an answer make no room for requests.
    @Test func supersededPushesAreNoAnswers() {
        var harness = harness(unanswered: 8)
        for step in 0..<30 {
            for number in 0..<40 {
                harness.push("a\(step)-\(number)", device: "a\(number)", collapse: "c")
            }
            harness.pass(milliseconds: 100)
        }
        #expect(harness.ended.count > 1000 && maxima(&harness)[1] == 6)
    }

    /// A push in flight keeps the other pushes of its device in memory.
    @Test func pushesOfTheSameDeviceCountAsUnanswered() {
        var harness = harness(unanswered: 80)
        for number in 0..<40 {
            harness.push("b\(number)", device: "b\(number / 8)") {
                $0.topic = 1
                $0.pool = 1
            }
        }
        for slot in harness.queue where ["b0", "b8", "b16", "b24", "b32"].contains(harness.names[slot]!) {
            harness.queue.removeAll { $0 == slot }
            let begins = harness.machine.beginAttempt(slot, at: harness.now)
            #expect(begins)
        }
        harness.pass(milliseconds: 2000)
        let inFlight = harness.machine.milestones[.inFlight]
        // All 40 pushes of the five devices.
        #expect(inFlight == 5 && maxima(&harness)[1] == 30)
    }

    @Test func withoutNeighboursNothingIsLimited() {
        var harness = harness(unanswered: .max)
        pass(&harness, seconds: 2, presses: false)
        #expect(maxima(&harness).isEmpty)
    }

    // MARK: Other shards

    private func harnessOfOneShard() -> DeliveryHarness {
        DeliveryHarness {
            $0.storeIsDurable = true
            $0.capacity = 256
            $0.room = Self.room
            $0.unanswered = 30
        }
    }

    /// A shard with pushes of one tenant gives room to those of tenants on other shards.
    @Test(arguments: [false, true]) func tenantsOfOtherShardsCount(_ areOthers: Bool) {
        var harness = harnessOfOneShard()
        harness.machine.setTenant(2, ofTopic: 1, weight: 1, isLimited: false)
        push(&harness, Self.names("b", 0..<35), topic: 1)
        for _ in 0..<8 {
            harness.machine.makeRoom(
                pushes: Self.room, keeping: 10, tenants: areOthers ? [1, 2] : [2], at: harness.now)
            harness.drain()
            harness.allStored()
            harness.pass(milliseconds: 500)
        }
        #expect(harness.others.contains(.tenant(2, isActive: true)))
        #expect(inMemory(harness, "b").count == (areOthers ? 5 : 35))
    }

    /// A tenant that had pushes here long ago has some on another shard.
    @Test func tenantsThatAreIdleHereCount() {
        var harness = harnessOfOneShard()
        harness.machine.setTenant(1, ofTopic: 0, weight: 1, isLimited: false)
        harness.machine.setTenant(2, ofTopic: 1, weight: 1, isLimited: false)
        push(&harness, ["a"], topic: 0)
        harness.pass(milliseconds: 1000)
        harness.accept(harness.begin()!)
        harness.pass(milliseconds: 1000)
        harness.pass(milliseconds: 1_200_000)
        push(&harness, Self.names("b", 0..<35), topic: 1)
        for _ in 0..<8 {
            harness.machine.makeRoom(
                pushes: Self.room, keeping: 10, tenants: [1, 2], at: harness.now)
            harness.drain()
            harness.allStored()
            harness.pass(milliseconds: 500)
        }
        #expect(inMemory(harness, "b").count == 5)
    }

    // MARK: Starvation

    /// Pushes that wait for their time fill the share. The others of their tenant go on.
    @Test func parkedPushesReturnBesideThoseThatWaitForTheirTime() {
        var harness = harness()
        for number in 0..<20 {
            harness.push("later\(number)", device: "later\(number)") {
                ($0.topic, $0.pool) = (1, 1)
                $0.deliverAtMilliseconds = $0.createdMilliseconds + 5000 + Int64(number)
            }
        }
        push(&harness, Self.names("b", 0..<15), topic: 1)
        pass(&harness, seconds: 3, keeping: 20)
        #expect(harness.machine.tenantsOverShare == [2])
        var accepted = 0
        for _ in 0..<5 {
            for slot in harness.queue where harness.machine.beginAttempt(slot, at: harness.now) {
                harness.accept(slot)
                accepted += 1
            }
            harness.queue = []
            pass(&harness, seconds: 1, keeping: 2)
            _ = restoreWanted(&harness)
        }
        #expect(accepted >= 4)
    }

    /// Reports that the worker is nearly full come as often as parked pushes return.
    @Test func parkedPushesReturnWhileTheWorkerIsNearlyFull() {
        var harness = harness()
        push(&harness, Self.names("b", 0..<35), topic: 1)
        pass(&harness, seconds: 4)
        harness.others.removeAll()
        for slot in harness.queue where harness.machine.beginAttempt(slot, at: harness.now) {
            harness.accept(slot)
        }
        harness.queue = []
        for _ in 0..<20 {
            harness.pass(milliseconds: 100)
            harness.machine.makeRoom(pushes: Self.room, at: harness.now)
            harness.drain()
        }
        #expect(!restoreWanted(&harness).isEmpty)
    }
}
