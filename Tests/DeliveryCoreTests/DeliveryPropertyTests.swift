import SluiceModel
import StreamScheduling
import Testing

@testable import DeliveryCore

/// Random events in any order: the machine stays consistent, and each push ends once.
struct DeliveryPropertyTests {
    @Test(arguments: 0..<150)
    func randomEventsKeepTheMachineConsistent(_ seed: Int) {
        var life = RandomLife(seed: UInt64(seed))
        for step in 0..<400 {
            life.step()
            if let problem = life.problem {
                Issue.record("seed \(seed), step \(step): \(problem)")
                return
            }
        }
        life.end()
        if let problem = life.problem { Issue.record("seed \(seed), at the end: \(problem)") }
    }
}

/// A machine, an owner that carries out its actions, and a model that knows what must not happen.
private struct RandomLife: ~Copyable {
    struct Push {
        var facts: PushFacts
        var expiry: Int64
        /// Sent and not answered.
        var isFlying = false
        /// Queued in the scheduler.
        var isQueued = false
        /// Device for the next attempt after a token change; nil: unchanged.
        var newDevice: DeviceKey?
    }

    private var machine: DeliveryMachine
    private var generator: SeededGenerator
    private var now = DeliveryTime(wallMilliseconds: 1_700_000_000_000, monotonicNanoseconds: 7_000_000_000)
    /// Latest moment of the wall clock so far, because the clock is set back at times.
    private var latest: Int64 = 0
    private var queue: [UInt32] = []
    private var flying: [UInt32] = []
    private var pushes: [UInt32: Push] = [:]
    private var stores: [(slot: UInt32, version: UInt64)] = []
    private var offsetsDone: Set<[Int64]> = []
    private var partitions: [Int64] = [0, 0, 0]
    private var gone: Set<UInt16> = []
    /// New device of the last token change.
    private var newDevice = DeviceKey(high: 0, low: 0)
    private var nextKey: UInt64 = 1
    private var handedIn = 0
    private var ended = 0
    private let isPatient: Bool
    private let devices: Int
    var problem: String?

    private static let capacity = 40

    init(seed: UInt64) {
        generator = SeededGenerator(seed: seed)
        var limits = DeliveryLimits(
            capacity: Self.capacity, pendingPerDevice: 6, inFlightPerDevice: 2, knownDevices: 3)
        latest = now.wallMilliseconds
        limits.returnsPerSecond = 5
        limits.returnBurst = 2
        limits.storeIsDurable = seed % 2 == 0
        limits.readsAhead = seed % 4 == 0
        limits.retry.maximumAttempts = 4
        isPatient = seed % 3 == 0
        devices = seed % 5 < 3 ? 5 : 60
        machine = DeliveryMachine(limits: limits, seed: seed)
    }

    private mutating func below(_ bound: Int) -> Int { Int.random(in: 0..<bound, using: &generator) }
    private mutating func chance(_ percent: Int) -> Bool { below(100) < percent }
    private mutating func device() -> DeviceKey { DeviceKey(high: 1, low: UInt64(below(devices))) }

    private mutating func fail(_ text: String) { if problem == nil { problem = text } }

    // MARK: Steps

    mutating func step() {
        switch below(100) {
        case 0..<35: arrive()
        case 35..<55: begin()
        case 55..<72: answer()
        case 72..<82: pass()
        case 82..<91: event()
        case 91: machine.makeRoom(pushes: 4 + below(Self.capacity), at: now)
        case 92..<96: store()
        default: partition()
        }
        drain()
        if let unsound = machine.checkInvariants() { fail(unsound) }
        if handedIn != ended + pushes.count {
            fail("\(handedIn) arrived, \(ended) ended, \(pushes.count) are left")
        }
        let queued = pushes.count { $0.value.isQueued }
        if queued != machine.milestones[.waiting] || queued != queue.count { fail("the queue differs") }
    }

    private mutating func facts() -> PushFacts {
        let partition = UInt16(below(partitions.count))
        nextKey += 1
        var facts = PushFacts(
            device: device(), collapseKey: chance(60) ? UInt64(1 + below(2)) : 0,
            notificationKey: chance(95) ? nextKey : max(1, nextKey - 1), topic: UInt16(below(2)),
            partition: partition, offset: partitions[Int(partition)],
            createdMilliseconds: now.wallMilliseconds - Int64(below(1000)))
        partitions[Int(partition)] += 1
        if chance(50) { facts.expirationMilliseconds = now.wallMilliseconds + Int64(below(120_000)) - 1000 }
        if chance(20) { facts.deliverAtMilliseconds = now.wallMilliseconds + Int64(below(60_000)) - 1000 }
        if chance(20) { facts.coalesceWindowMilliseconds = UInt32(below(5000)) }
        facts.isOnce = chance(10)
        facts.delivery = DeliveryMode.allCases[below(3)]
        facts.duplicates = chance(50) ? .allow : .avoid
        facts.priority = Priority.allCases[below(3)]
        facts.receiptTimeoutSeconds = UInt32(below(100))
        facts.registeredAtMilliseconds = chance(50) ? .min : now.wallMilliseconds - Int64(below(10_000))
        return facts
    }

    private mutating func arrive() {
        let facts = facts()
        if chance(90) {
            take(machine.admit(facts, at: now), facts, expiry: facts.expirationMilliseconds)
        } else {
            var progress = ItemProgress()
            progress.attempts = UInt16(below(3))
            progress.firstSentMilliseconds = progress.attempts > 0 ? now.wallMilliseconds - 10 : 0
            progress.expiryMilliseconds = min(facts.expirationMilliseconds, now.wallMilliseconds + 500_000)
            progress.isAccepted = progress.attempts > 0 && facts.delivery == .confirm
            progress.isStored = chance(50)
            progress.storeVersion = UInt64(below(100))
            let admission =
                chance(50)
                ? machine.restore(facts, progress, at: now) : machine.importItem(facts, progress, at: now)
            take(admission, facts, expiry: progress.expiryMilliseconds)
        }
    }

    private mutating func take(_ admission: Admission, _ facts: PushFacts, expiry: Int64) {
        switch admission {
        case .placed(let slot):
            handedIn += 1
            if pushes[slot] != nil { fail("slot \(slot) is taken") }
            pushes[slot] = Push(facts: facts, expiry: expiry)
        case .replaced(let slot, let old):
            handedIn += 1
            ended += 1
            guard let push = pushes[slot], !push.isFlying else {
                return fail("slot \(slot) can't be replaced")
            }
            if push.facts.offset != old.offset || push.facts.partition != old.partition {
                fail("slot \(slot): another push than the owner's was replaced")
            }
            pushes[slot] = Push(
                facts: facts, expiry: expiry, isQueued: push.isQueued, newDevice: push.newDevice)
            // The device stays the replaced push's, which may have moved meanwhile.
            pushes[slot]!.facts.device = push.facts.device
        case .obsolete(let slot), .repeated(let slot, _): if pushes[slot] == nil { fail("no slot \(slot)") }
        case .deviceFull: break
        case .expired:
            if expiry > now.wallMilliseconds, facts.deliverAtMilliseconds < expiry {
                fail("an unexpired push is refused as expired")
            }
        case .full: if pushes.count < Self.capacity { fail("a push is refused although there is room") }
        }
    }

    private mutating func begin() {
        guard !queue.isEmpty else { return }
        let slot = queue.remove(at: chance(80) ? 0 : below(queue.count))
        pushes[slot]!.isQueued = false
        guard machine.beginAttempt(slot, at: now) else { return }
        let push = pushes[slot]!
        if push.expiry <= now.wallMilliseconds { fail("slot \(slot) begins after its expiration") }
        if push.facts.deliverAtMilliseconds > latest { fail("slot \(slot) begins too early") }
        for other in flying where pushes[other]!.facts.device == push.facts.device {
            let (one, another) = (push.facts, pushes[other]!.facts)
            if one.collapseKey != 0, one.collapseKey == another.collapseKey, one.topic == another.topic {
                fail("two pushes of one identity are in flight")
            }
        }
        if chance(5) {
            machine.notSent(slot, at: now)
            return
        }
        pushes[slot]!.isFlying = true
        flying.append(slot)
    }

    private mutating func answer() {
        guard !flying.isEmpty else { return }
        let slot = flying.remove(at: below(flying.count))
        pushes[slot]!.isFlying = false
        switch below(10) {
        case 0..<4: machine.accepted(slot, at: now)
        case 4: machine.failed(slot, processed: false, at: now)
        case 5: machine.failed(slot, processed: true, at: now)
        default:
            let reasons = Reason.allCases.filter { $0.class != .accepted }
            let reason = reasons[below(reasons.count)]
            machine.answered(
                slot,
                AttemptAnswer(
                    class: reason.class, reason: reason,
                    invalidSinceMilliseconds: chance(50) ? now.wallMilliseconds - 5000 : nil,
                    retryAfterMilliseconds: chance(20) ? Int64(below(100_000)) : 0, mustWait: chance(20)),
                at: now)
        }
    }

    private mutating func pass() {
        if chance(30), let wake = machine.nextWake(after: now), wake < UInt64.max / 2 {
            let passed = wake - now.monotonicNanoseconds
            now.monotonicNanoseconds = wake
            now.wallMilliseconds += Int64(passed / 1_000_000)
        } else {
            let passed = below(isPatient ? 100_000 : 2000)
            now.monotonicNanoseconds += UInt64(passed) * 1_000_000
            now.wallMilliseconds += Int64(passed)
        }
        if chance(10) { now.wallMilliseconds += Int64(below(20_000)) - 10_000 }
        latest = max(latest, now.wallMilliseconds)
        // An item's end can leave work for the next call. The work ends within as many calls as slots.
        for _ in 0..<Self.capacity {
            machine.advance(to: now)
            drain()
            guard let wake = machine.nextWake(after: now), wake <= now.monotonicNanoseconds else { return }
        }
        fail("the machine requests wakes without end")
    }

    private mutating func event() {
        let device = device()
        let occurred = now.wallMilliseconds - Int64(below(3000))
        switch below(7) {
        case 0: _ = machine.online(device, occurred: .at(occurred), partition: 0, at: now)
        case 1: _ = machine.offline(device, occurred: .at(occurred), partition: 0, at: now)
        case 2: _ = machine.unregistered(device, occurredMilliseconds: occurred, at: now)
        case 3:
            let key = pushes.values.map(\.facts.notificationKey).max() ?? 1
            _ = machine.receipt(
                device, notificationKey: key, occurred: .at(occurred), partition: 0, at: now)
        case 4:
            let collapseKey = UInt64(1 + below(2))
            let topic = chance(50) ? UInt16(below(2)) : nil
            _ = machine.cancel(device, .collapseKey(collapseKey, topic: topic), at: now)
        case 5:
            let key = pushes.values.map(\.facts.notificationKey).min() ?? 1
            _ = machine.cancel(device, .notificationKey(key), at: now)
        default:
            newDevice = self.device()
            _ = machine.tokenChanged(
                device, to: newDevice, isElsewhere: chance(30), mayWait: machine.limits.storeIsDurable,
                waits: chance(50), at: now)
            drain()
        }
    }

    private mutating func store() {
        guard !stores.isEmpty else { return }
        let (slot, version) = stores.remove(at: below(stores.count))
        if chance(70) {
            machine.stored(slot, version: version, at: now)
        } else {
            machine.storeFailed(slot, version: version)
        }
    }

    private mutating func partition() {
        let partition = UInt16(below(partitions.count))
        if gone.contains(partition) {
            gone.remove(partition)
            machine.begin(partition: partition)
        } else if chance(50) {
            gone.insert(partition)
            machine.abandon(partition: partition, at: now)
        }
    }

    // MARK: Actions

    private mutating func drain() {
        while let action = machine.nextAction() {
            switch action {
            case .enqueue(let slot, let atFront):
                if pushes[slot]?.isQueued != false { fail("slot \(slot) is queued already, or gone") }
                pushes[slot]?.isQueued = true
                queue.insert(slot, at: atFront ? 0 : queue.count)
            case .dequeue(let slot):
                if pushes[slot]?.isQueued != true { fail("slot \(slot) isn't queued") }
                pushes[slot]?.isQueued = false
                queue.removeAll { $0 == slot }
            case .requeue(let slot): if pushes[slot]?.isQueued != true { fail("slot \(slot) isn't queued") }
            case .finish(let slot, let kind, _, let successor):
                if kind == .superseded, successor != DeliveryMachine.noSlot, pushes[successor] == nil {
                    fail("slot \(slot) is superseded by nothing")
                }
                if kind == .expired, let push = pushes[slot], push.expiry > now.wallMilliseconds + 3_600_000,
                    !push.facts.isOnce, push.expiry != .max
                {
                    fail("slot \(slot) has expired too early")
                }
                release(slot)
            case .drop(let slot):
                if let push = pushes[slot], !gone.contains(push.facts.partition) {
                    fail("slot \(slot) is dropped although its partition is assigned")
                }
                release(slot)
            case .depart(let slot):
                _ = machine.export(slot)
                release(slot)
            case .moveWanted(let slot): if chance(50) { machine.moveOn(slot, at: now) }
            case .offsetDone(let partition, let offset):
                if !machine.limits.storeIsDurable { fail("the store isn't durable") }
                if !offsetsDone.insert([Int64(partition), offset]).inserted { fail("offset done twice") }
            case .store(let slot, let version):
                if pushes[slot] == nil { fail("slot \(slot) is stored after its release") }
                stores.append((slot, version))
                if chance(80) { _ = machine.progressToStore(slot, at: now) }
            case .evict(let slot):
                let progress = machine.info(slot).progress
                if !machine.limits.storeIsDurable || !progress.isOffsetDone || !progress.isStored {
                    fail("slot \(slot) is evicted, but isn't stored")
                }
                release(slot)
            case .awaitsTurn(let slot):
                if pushes[slot] == nil { fail("slot \(slot) awaits its turn after its release") }
            case .keepPresence(let number):
                if !machine.limits.storeIsDurable { fail("the store isn't durable") }
                if !machine.knowsPresence(of: machine.presence(number, at: now).device) {
                    fail("an unknown presence is stored")
                }
            case .noteMove(let slot):
                if pushes[slot] == nil { fail("slot \(slot) moves, and is gone") }
                pushes[slot]?.newDevice = newDevice
            case .noteErasure: break
            case .readdress(let slot, _):
                guard let push = pushes[slot] else {
                    fail("slot \(slot) moves, and is gone")
                    continue
                }
                pushes[slot]!.facts.device = push.newDevice ?? newDevice
                pushes[slot]!.newDevice = nil
            case .alert, .recovered, .crowds, .poolOverloaded, .isolated, .limitsFlights, .tenant: break
            case .suspended, .resumed, .pushesWanted, .parked, .readsAhead, .unparked:
                if !machine.limits.storeIsDurable { fail("the store isn't durable") }
            }
        }
    }

    private mutating func release(_ slot: UInt32) {
        guard let push = pushes.removeValue(forKey: slot) else { return fail("slot \(slot) has ended twice") }
        if push.isFlying || push.isQueued { fail("slot \(slot) ends while queued or in flight") }
        machine.release(slot)
        ended += 1
    }

    // MARK: The end

    /// Answers the pushes in flight, and lets the others be sent or expire.
    mutating func end() {
        for _ in 0..<5000 where problem == nil && machine.count > 0 {
            while !flying.isEmpty {
                let slot = flying.removeLast()
                pushes[slot]!.isFlying = false
                machine.accepted(slot, at: now)
                drain()
            }
            while !queue.isEmpty {
                let slot = queue.removeFirst()
                pushes[slot]!.isQueued = false
                if machine.beginAttempt(slot, at: now) {
                    pushes[slot]!.isFlying = true
                    flying.append(slot)
                }
                drain()
            }
            if let wake = machine.nextWake(after: now) {
                // Adds an hour, so that waits for a device that never returns end.
                let passed = wake - now.monotonicNanoseconds + 3_600_000_000_000
                now.monotonicNanoseconds += passed
                now.wallMilliseconds += Int64(passed / 1_000_000)
                machine.advance(to: now)
                drain()
            }
            if let unsound = machine.checkInvariants() { fail(unsound) }
        }
        if machine.count > 0 { fail("\(machine.count) pushes are neither sent nor ended") }
        if handedIn != ended { fail("\(handedIn) arrived, \(ended) ended") }
        if !machine.milestones.isBalanced { fail("the milestones are unbalanced") }
    }
}
