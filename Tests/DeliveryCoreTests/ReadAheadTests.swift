import SluiceModel
import Testing

@testable import DeliveryCore

/// Campaigns of priority 5 that stand before alerts of priority 10 in the log of a worker that reads ahead.
struct ReadAheadTests {
    /// 12,000 pushes before 20 alerts, of one app or of two.
    private func backlog(alerts topic: UInt16 = 0) -> [ReadAheadWorld.Job] {
        let campaign = (0..<12_000).map { ReadAheadWorld.Job(device: $0) }
        return campaign
            + (0..<20).map { .init(device: 20_000 + $0, topic: topic, priority: .immediate) }
    }

    /// The streams are full nearly all of the time.
    private func expectFullStreams(
        _ world: borrowing ReadAheadWorld, sourceLocation: SourceLocation = #_sourceLocation
    ) {
        let (ticks, least) = (world.sentInTick.count, world.sent.count / ReadAheadWorld.perTick)
        #expect(
            ticks <= least + least / 33, "\(ticks) tenths of a second instead of \(least)",
            sourceLocation: sourceLocation)
    }

    private func expectOneOutcomeEach(
        _ world: borrowing ReadAheadWorld, sourceLocation: SourceLocation = #_sourceLocation
    ) {
        let (jobs, kinds) = (world.log.count, world.outcomes)
        #expect(
            kinds.count == jobs && kinds.allSatisfy { $0.value == [.accepted] },
            sourceLocation: sourceLocation)
        let areOnce = world.writes.allSatisfy { $0.value == 1 } && world.loads.allSatisfy { $0.value == 1 }
        #expect(areOnce, "a push is written or loaded again", sourceLocation: sourceLocation)
    }

    // MARK: The row

    /// The app of the alerts has the weight 1,000, or is the campaign's own.
    @Test(arguments: [UInt16(0), 1]) func alertsBehindACampaignLeaveAfterAFewHundredPushes(topic: UInt16) {
        var world = ReadAheadWorld(log: backlog(alerts: topic), weights: [1, 1000])
        world.run(seconds: 60)
        let last = world.sent.lastIndex { $0 >= 12_000 }!
        #expect(last < 500, "the last alert is push \(last)")
        expectOneOutcomeEach(world)
        expectFullStreams(world)
        let (writes, loads) = (world.writes, world.loads)
        #expect(writes.count < 12_000 && loads.count <= writes.count)
        #expect(writes.keys.allSatisfy { $0 < 12_000 }, "alerts are never parked")
        let (others, over) = (world.others, world.machine.tenantsOverShare)
        let waits = world.machine.hasSuspended(topic: 0)
        #expect(others.contains { if case .readsAhead(topic: 0, _) = $0 { true } else { false } })
        #expect(others.last { $0 == .unparked(topic: 0) } != nil && !waits)
        #expect(!others.contains { if case .parked = $0 { true } else { false } } && over == [])
    }

    @Test func withoutTheSettingTheCampaignLeavesFirst() {
        var world = ReadAheadWorld(log: backlog(), readsAhead: false)
        world.run(seconds: 60)
        let first = world.sent.firstIndex { $0 >= 12_000 }!
        #expect(first > 10_000)
        expectOneOutcomeEach(world)
        let (writes, others) = (world.writes, world.others)
        #expect(writes.isEmpty && others.isEmpty)
    }

    @Test func withoutADurableStoreNothingIsParked() {
        var world = ReadAheadWorld(log: backlog(), isDurable: false)
        world.run(seconds: 60)
        let (writes, first) = (world.writes, world.sent.firstIndex { $0 >= 12_000 }!)
        #expect(writes.isEmpty && first > 10_000)
        expectOneOutcomeEach(world)
    }

    @Test func lowestPriorityIsParkedToo() {
        var world = ReadAheadWorld(
            log: (0..<6000).map { .init(device: $0, priority: $0 % 2 == 0 ? .powerAware : .lowPower) }
                + [.init(device: 9000, priority: .immediate)])
        world.run(seconds: 40)
        let alert = world.sent.firstIndex(of: 6000)!
        #expect(alert < 500)
        expectOneOutcomeEach(world)
    }

    // MARK: Bounds

    /// At the limit the worker pauses as without the setting, and goes on as parked pushes return.
    @Test func parkedLimitEndsTheReading() {
        var world = ReadAheadWorld(log: backlog(), parkedPushes: 2000)
        world.run(seconds: 5)
        let (read, stored) = (world.next, world.evicted.count)
        #expect(read < 12_000 && stored >= 2000 && stored < 2000 + 2 * ReadAheadWorld.limit)
        world.run(seconds: 55)
        expectOneOutcomeEach(world)
        expectFullStreams(world)
        // Parked pushes have their part of the streams, although the log could fill them.
        let parked = world.loads.keys.compactMap { job in world.sent.firstIndex(of: job) }.min()!
        #expect(parked < 8000)
    }

    /// APNs answers nothing: what is found behind could not be sent either.
    @Test func nothingIsParkedWhileNothingIsSent() {
        var world = ReadAheadWorld(log: backlog())
        world.isSending = false
        world.run(seconds: 5)
        let (writes, read) = (world.writes, world.next)
        #expect(writes.isEmpty && read == ReadAheadWorld.limit)
    }

    /// An app whose lower priorities take less than half of its share keeps its pushes in memory.
    @Test func campaignOfAnAppParksNothingOfAnother() {
        var log = backlog()
        for place in 0..<60 { log.insert(.init(device: 30_000 + place, topic: 1), at: 100 + place * 4) }
        var world = ReadAheadWorld(log: log)
        (world.blocked, world.blockedPerTick) = (1, 1)
        world.run(seconds: 60)
        let (writes, jobs) = (world.writes, world.log)
        #expect(!writes.isEmpty && writes.keys.allSatisfy { jobs[$0].topic == 0 })
        expectOneOutcomeEach(world)
    }

    /// The store brings such pushes back before they expire, so that they would gain nothing.
    @Test func pushesThatExpireSoonStay() {
        var world = ReadAheadWorld(log: (0..<2000).map { .init(device: $0, life: $0 % 2 == 0 ? 15 : nil) })
        world.run(seconds: 4)
        let writes = world.writes
        #expect(!writes.isEmpty && writes.keys.allSatisfy { $0 % 2 == 1 })
    }

    @Test func parkedPushesExpireInTheirTime() {
        var world = ReadAheadWorld(log: (0..<15_000).map { .init(device: $0, life: 25) })
        world.run(seconds: 40)
        let (outcomes, sent) = (world.outcomes, world.sent.count)
        #expect(outcomes.count == 15_000 && outcomes.allSatisfy { $0.value.count == 1 })
        let expired = outcomes.count { $0.value == [.expired] }
        #expect(expired > 1000 && expired == 15_000 - sent)
        let isLost = world.loads.isEmpty
        #expect(!isLost)
    }

    /// A tenant that stops sending is one in trouble: its share counts, and people are told.
    @Test func tenantInTroubleIsParkedForItsShareInstead() {
        let alerts = (0..<20).map { ReadAheadWorld.Job(device: $0, topic: 1, priority: .immediate) }
        var world = ReadAheadWorld(
            log: alerts + (0..<6000).map { .init(device: 100 + $0) }, weights: [1, 5])
        // The worker stays full.
        world.keepsWaiting = true
        world.run(seconds: 2)
        let (early, before) = (world.others, world.machine.tenantsOverShare)
        #expect(early.contains { if case .readsAhead(topic: 0, _) = $0 { true } else { false } })
        #expect(before == [])
        world.blocked = 0
        world.run(seconds: 3)
        let (late, over) = (world.others, world.machine.tenantsOverShare)
        #expect(late.contains { if case .parked(topic: 0, _) = $0 { true } else { false } } && over == [0])
        (world.blocked, world.keepsWaiting) = (nil, false)
        world.run(seconds: 60)
        let (outcomes, after) = (world.outcomes, world.machine.tenantsOverShare)
        #expect(outcomes.count == 6020 && outcomes.allSatisfy { $0.value == [.accepted] } && after == [])
    }

    // MARK: Order

    /// Several pushes for each device, of one priority: each device gets them in the order of the log.
    @Test(arguments: [0, 3]) func orderOfADeviceHolds(storeTicks: Int) {
        var random = SeededGenerator(seed: 1)
        var log = (0..<6000).map { _ in
            ReadAheadWorld.Job(
                device: .random(in: 0..<1500, using: &random),
                life: .random(in: 0..<20, using: &random) == 0 ? 21 : nil)
        }
        for place in 0..<50 { log.insert(.init(device: place, priority: .immediate), at: 4000 + place * 30) }
        var world = ReadAheadWorld(log: log)
        world.storeTicks = storeTicks
        world.run(seconds: 60)
        let outcomes = world.outcomes
        #expect(outcomes.count == log.count && outcomes.allSatisfy { $0.value == [.accepted] })
        var last: [Int: Int] = [:]
        var overtaken = 0
        for job in world.sent where world.log[job].priority != .immediate {
            let device = world.log[job].device
            if let before = last[device], before > job { overtaken += 1 }
            last[device] = job
        }
        #expect(overtaken == 0)
        let loads = world.loads
        #expect(!loads.isEmpty)
    }

    /// Reads another job of a device. Returns its state.
    private func read(_ world: inout ReadAheadWorld, device: Int) -> ItemState? {
        let number = world.next
        world.log.insert(.init(device: device), at: number)
        world.readNext()
        return state(world, number)
    }

    private func state(_ world: borrowing ReadAheadWorld, _ job: Int) -> ItemState? {
        world.slots.first { $0.value == job }.map { world.machine.state($0.key) }
    }

    /// A push whose device has a parked one in memory is parked, even if the streams could take more.
    @Test func pushBehindAParkedOneOfItsDeviceIsParked() {
        var world = ReadAheadWorld(log: (0..<3000).map { .init(device: $0) })
        world.keepsWaiting = true
        world.run(seconds: 1)
        let parked = world.slots.filter { world.machine.state($0.key) == .topicCircuitOpen }.values.max()!
        // The streams take some, so that they could have more.
        world.send()
        let behind = read(&world, device: parked)
        let other = read(&world, device: 9000)
        #expect(behind == .topicCircuitOpen && other == .waiting)
    }

    /// A push with a younger one of its device behind it that is parked stays, so that it isn't parked behind it.
    @Test func pushBeforeAParkedOneOfItsDeviceIsNotParked() {
        let alert = ReadAheadWorld.Job(device: 9000, topic: 1, priority: .immediate)
        var world = ReadAheadWorld(log: [alert] + (0..<3000).map { .init(device: $0) }, weights: [1, 1000])
        world.keepsWaiting = true
        world.run(seconds: 1)
        let waiting = world.slots.filter { world.machine.state($0.key) == .waiting }.values.sorted()
        let behind = read(&world, device: world.log[waiting.last!].device)
        #expect(behind == .topicCircuitOpen)
        // The streams take less, so that fewer pushes stay.
        world.isSending = false
        world.run(tenths: 8)
        let (before, other) = (state(world, waiting.last!), state(world, waiting.dropLast().last!))
        #expect(before == .waiting && other == .topicCircuitOpen)
    }

    /// The younger push expires soon, so that it isn't parked.
    @Test func pushBeforeOneOfItsDeviceThatStaysIsNotParked() {
        var world = ReadAheadWorld(log: (0..<3000).map { .init(device: $0) })
        world.log[950] = .init(device: 900, life: 15)
        world.keepsWaiting = true
        world.run(seconds: 1)
        let states = [state(world, 900), state(world, 901), state(world, 950)]
        #expect(states == [.waiting, .topicCircuitOpen, .waiting])
    }

    /// A newer push replaces the one of its identity, whether that is parked in memory, in the store, or waits.
    @Test func identitySupersedesParkedPushes() {
        let log = (0..<6000).map { ReadAheadWorld.Job(device: $0 % 1500, collapse: 1) }
        var world = ReadAheadWorld(log: log)
        world.run(seconds: 40)
        let (outcomes, sent) = (world.outcomes, world.sent)
        #expect(outcomes.count == 6000 && outcomes.allSatisfy { $0.value.count == 1 })
        #expect((4500..<6000).allSatisfy { outcomes[$0] == [.accepted] })
        #expect(Set(sent).count == sent.count)
        let order = Dictionary(grouping: sent) { $0 % 1500 }
        #expect(order.allSatisfy { $0.value == $0.value.sorted() })
    }

    /// An alert overtakes older pushes of its device that are parked, as it overtakes those that wait.
    @Test func alertOvertakesParkedPushesOfItsDevice() {
        var world = ReadAheadWorld(log: (0..<3000).map { .init(device: $0) })
        world.run(seconds: 2)
        let parked = world.evicted.min()!
        world.log.append(.init(device: parked, priority: .immediate))
        world.run(seconds: 1)
        let (alert, older) = (world.sent.firstIndex(of: 3000), world.sent.firstIndex(of: parked))
        #expect(alert != nil && (older == nil || older! > alert!))
        world.run(seconds: 20)
        expectOneOutcomeEach(world)
    }

    // MARK: Circuits

    /// Alerts that wait with a stopped topic don't wait for the turn of parked pushes when it recovers.
    @Test(arguments: [false, true]) func alertsOfAStoppedTopicLeaveWhenItRecovers(isPause: Bool) {
        var world = ReadAheadWorld(log: (0..<3000).map { .init(device: $0) })
        // The worker stays full.
        world.keepsWaiting = true
        world.run(seconds: 2)
        if isPause { world.machine.pause(topics: [0], at: world.now) } else { world.refuses = true }
        world.run(seconds: 1)
        let alerts = world.next..<world.next + 5
        for place in alerts { world.log.insert(.init(device: 9000 + place, priority: .immediate), at: place) }
        for _ in alerts { world.readNext() }
        world.run(seconds: 1)
        let before = world.sent.filter { alerts.contains($0) }
        #expect(before.isEmpty)
        world.refuses = false
        if isPause {
            world.machine.resume(topics: [0], at: world.now)
        } else {
            world.machine.circuitRecovered(topic: 0, at: world.now)
        }
        world.run(seconds: 1)
        let after = world.sent.filter { alerts.contains($0) }
        #expect(after.count == 5)
    }

    /// Those in the store must not return at the pace of the campaign.
    @Test func alertsInTheStoreReturnWhenTheirTopicSendsAgain() {
        var world = ReadAheadWorld(log: (0..<3000).map { .init(device: $0) })
        world.run(seconds: 2)
        world.refuses = true
        world.run(seconds: 1)
        let alerts = world.next..<world.next + 5
        for place in alerts { world.log.insert(.init(device: 9000 + place, priority: .immediate), at: place) }
        for _ in alerts { world.readNext() }
        world.run(seconds: 1)
        let stored = world.evicted
        #expect(stored.isSuperset(of: alerts))
        world.others = []
        world.refuses = false
        world.machine.circuitRecovered(topic: 0, at: world.now)
        world.run(tenths: 1)
        let isResumed = world.others.contains(.resumed(topic: 0))
        #expect(isResumed)
    }

    @Test func traceNamesTheCause() {
        var world = ReadAheadWorld(log: backlog())
        world.keepsWaiting = true
        world.run(seconds: 2)
        let slot = world.slots.keys.first { world.machine.state($0) == .topicCircuitOpen }!
        let cause = world.machine.pending(slot, at: world.now)?.cause
        #expect(cause == .readAhead)
    }
}

/// A machine with the parts of a worker around it: a log, the intake's limit, streams, and a store.
private struct ReadAheadWorld: ~Copyable {
    struct Job {
        var device: Int
        var topic: UInt16 = 0
        var priority = Priority.powerAware
        var collapse: UInt64 = 0
        /// Seconds until the push expires; nil: an hour.
        var life: Int64?
    }

    /// Jobs that the worker takes at once.
    static let limit = 1000
    /// Pushes that the streams take in a tenth of a second.
    static let perTick = 42
    /// Tenths of a second that a load takes.
    static let loadTicks = 2

    var machine: DeliveryMachine
    var now = DeliveryTime(wallMilliseconds: 1_700_000_000_000, monotonicNanoseconds: 1_000_000_000)
    var log: [Job]
    /// Offset of the next record to read.
    var next = 0
    /// Number of the job in each slot.
    var slots: [UInt32: Int] = [:]
    /// Jobs that the store alone has.
    var evicted: Set<Int> = []
    /// Jobs in the order of their first sending.
    var sent: [Int] = []
    /// Pushes begun in each tenth of a second in which some were left.
    var sentInTick: [Int] = []
    var outcomes: [Int: [OutcomeKind]] = [:]
    /// Puts and loads, by job.
    var writes: [Int: Int] = [:]
    var loads: [Int: Int] = [:]
    var others: [DeliveryAction] = []
    /// False: the streams take nothing.
    var isSending = true
    /// True: APNs refuses the topic.
    var refuses = false
    /// Topic whose pool has few streams or none; nil: none.
    var blocked: UInt16?
    /// Pushes that the streams of such a topic take in a tenth of a second.
    var blockedPerTick = 0
    /// True: the store answers nothing.
    var keepsWaiting = false
    /// Tenths of a second after which the store answers, at most.
    var storeTicks = 0

    private var progress: [Int: ItemProgress] = [:]
    private var evictedOfDevice: [Int: [Int]] = [:]
    /// Jobs in the order in which they left memory; those before `head` have returned.
    private var line: [Int] = []
    private var head = 0
    private var restored: Set<Int> = []
    /// Jobs in memory that take room for jobs.
    private var jobs = 0
    private var queues: [[UInt32]] = [[], [], []]
    private var asked: [(slot: UInt32, version: UInt64, tick: Int)] = []
    private var ticks = 0
    /// Pushes that are loaded, and the tenths of a second until then, by topic.
    private var wanted: [UInt16: (count: Int, ticks: Int)] = [:]
    private var begun = 0

    init(
        log: [Job], readsAhead: Bool = true, isDurable: Bool = true, parkedPushes: Int = 1_000_000,
        weights: [Int] = [1, 1]
    ) {
        var limits = DeliveryLimits(
            capacity: 4 * Self.limit, pendingPerDevice: 1024, inFlightPerDevice: 1000, knownDevices: 8)
        limits.storeIsDurable = isDurable
        limits.readsAhead = readsAhead
        limits.parkedPushes = parkedPushes
        limits.room = Self.limit
        limits.restoredPushes = Self.limit
        machine = DeliveryMachine(limits: limits, seed: 1)
        self.log = log
        for (topic, weight) in weights.enumerated() {
            machine.setTenant(UInt32(topic), ofTopic: UInt16(topic), weight: weight, isLimited: false)
        }
    }

    mutating func run(seconds: Int = 0, tenths: Int = 0) {
        for _ in 0..<10 * seconds + tenths { tick() }
        #expect(machine.checkInvariants() == nil)
    }

    /// Lets a tenth of a second pass.
    private mutating func tick() {
        if jobs >= Self.limit - Self.limit / 4 { machine.makeRoom(pushes: Self.limit, at: now) }
        act()
        for _ in 0..<20 {
            read()
            answer()
        }
        if isSending { send() }
        load()
        ticks += 1
        now.wallMilliseconds += 100
        now.monotonicNanoseconds += 100_000_000
        machine.advance(to: now)
        act()
    }

    private mutating func read() {
        guard next < log.count else { return }
        for _ in 0..<max(0, min(Self.limit - jobs, log.count - next)) { readNext() }
    }

    /// Reads a record, whether there is room or not.
    mutating func readNext() {
        // A device's stored pushes are in memory before its next record.
        for job in (evictedOfDevice[log[next].device] ?? []).sorted() { restore(job) }
        let admission = machine.admit(facts(next), at: now)
        note(admission, next)
        next += 1
    }

    private func facts(_ number: Int) -> PushFacts {
        let job = log[number]
        return PushFacts(
            device: DeviceKey(high: UInt64(job.device) + 1, low: UInt64(job.device)),
            collapseKey: job.collapse, notificationKey: UInt64(number) + 1, topic: job.topic, pool: job.topic,
            partition: 0, offset: Int64(number),
            expirationMilliseconds: 1_700_000_000_000 + (job.life ?? 3600) * 1000,
            createdMilliseconds: 1_700_000_000_000, priority: job.priority)
    }

    private mutating func note(_ admission: Admission, _ number: Int) {
        switch admission {
        case .placed(let slot):
            slots[slot] = number
            if !restored.contains(number) { jobs += 1 }
        case .replaced(let slot, _):
            let old = left(slot)
            outcomes[old, default: []].append(.superseded)
            slots[slot] = number
            if !restored.contains(number) { jobs += 1 }
        case .obsolete, .expired:
            outcomes[number, default: []].append(admission == .expired ? .expired : .superseded)
            restored.remove(number)
        case .deviceFull, .repeated, .full: Issue.record("job \(number) is \(admission)")
        }
        act()
    }

    /// The store confirms requests.
    private mutating func answer() {
        guard !keepsWaiting else { return }
        let due = asked.filter { $0.tick <= ticks }
        asked.removeAll { $0.tick <= ticks }
        for (slot, version, _) in due { machine.stored(slot, version: version, at: now) }
        act()
    }

    mutating func send() {
        var left = Self.perTick
        let hadSome = queues.contains { !$0.isEmpty }
        begun = 0
        var ofBlocked = blockedPerTick
        for index in queues.indices {
            var place = 0
            while left > 0, place < queues[index].count {
                let slot = queues[index][place]
                if log[slots[slot]!].topic == blocked {
                    guard ofBlocked > 0 else {
                        place += 1
                        continue
                    }
                    ofBlocked -= 1
                }
                queues[index].remove(at: place)
                guard machine.beginAttempt(slot, at: now) else {
                    act()
                    continue
                }
                act()
                left -= 1
                begun += 1
                if refuses {
                    let answer = AttemptAnswer(class: .configuration, reason: .topicDisallowed)
                    machine.answered(slot, answer, at: now)
                } else {
                    sent.append(slots[slot]!)
                    machine.accepted(slot, at: now)
                }
                act()
            }
        }
        if hadSome { sentInTick.append(begun) }
    }

    private mutating func load() {
        for (topic, want) in wanted {
            wanted[topic]!.ticks -= 1
            guard want.ticks == 0 else { continue }
            wanted[topic] = nil
            var (left, place) = (want.count, head)
            while left > 0, place < line.count {
                let job = line[place]
                if evicted.contains(job), log[job].topic == topic {
                    // Loads bring all pushes of a device.
                    for other in (evictedOfDevice[log[job].device] ?? []).sorted() { restore(other) }
                    left -= 1
                }
                place += 1
            }
        }
        while head < line.count, !evicted.contains(line[head]) { head += 1 }
        // Due items, as far as there is room for restored ones.
        var place = head
        while restored.count < Self.limit, place < line.count,
            !evicted.contains(line[place])
                || progress[line[place]]!.dueMilliseconds <= now.wallMilliseconds + 2000
        {
            restore(line[place])
            place += 1
        }
    }

    private mutating func restore(_ job: Int) {
        guard evicted.remove(job) != nil else { return }
        evictedOfDevice[log[job].device]!.removeAll { $0 == job }
        loads[job, default: 0] += 1
        restored.insert(job)
        let admission = machine.restore(facts(job), progress[job]!, at: now)
        note(admission, job)
    }

    /// A job leaves memory. Returns its number.
    private mutating func left(_ slot: UInt32) -> Int {
        let job = slots.removeValue(forKey: slot)!
        if restored.remove(job) == nil { jobs -= 1 }
        return job
    }

    private mutating func act() {
        while let action = machine.nextAction() {
            switch action {
            case .enqueue(let slot, let atFront):
                let list = log[slots[slot]!].priority
                let index = list == .immediate ? 0 : list == .powerAware ? 1 : 2
                queues[index].insert(slot, at: atFront ? 0 : queues[index].count)
            case .dequeue(let slot):
                for index in queues.indices { queues[index].removeAll { $0 == slot } }
            case .finish(let slot, let kind, _, _):
                outcomes[left(slot), default: []].append(kind)
                machine.release(slot)
            case .evict(let slot):
                let job = left(slot)
                evicted.insert(job)
                line.append(job)
                evictedOfDevice[log[job].device, default: []].append(job)
                machine.release(slot)
            case .store(let slot, let version):
                let job = slots[slot]!
                progress[job] = machine.progressToStore(slot, at: now)
                progress[job]!.isOffsetDone = true
                progress[job]!.isStored = true
                progress[job]!.storeVersion = version
                writes[job, default: 0] += 1
                asked.append((slot, version, ticks + job * 7919 % (storeTicks + 1)))
            // A want that isn't satisfied takes up no other.
            case .pushesWanted(let topic, let count): wanted[topic] = wanted[topic] ?? (count, Self.loadTicks)
            case .resumed(let topic):
                wanted[topic] = (.max, Self.loadTicks)
                others.append(action)
            case .requeue, .offsetDone: break
            default: others.append(action)
            }
        }
    }
}
