import SluiceModel
import Testing

@testable import DeliveryCore

/// Loads that no record asks for, and room of jobs that the store has.
@Suite struct StoreTurnTests {
    private static let device = DeviceKey(high: 1, low: 1)
    private static let now = DeliveryTime(
        wallMilliseconds: 1_700_000_000_000, monotonicNanoseconds: 1_000_000_000)

    /// Creates a shard with a store, of partition 7 in slot 0, whose records up to 99 were read.
    private static func machine(loads: Int = 4) -> ShardMachine {
        var limits = DeliveryLimits(capacity: 8, knownDevices: 8)
        limits.storeIsDurable = true
        var machine = ShardMachine(
            .init(
                index: 0, shards: 1, mode: .local, delivery: limits,
                residency: ResidencyLimits(hasStore: true, capacity: 8, loads: loads), seed: 1))
        machine.beginPartition(0, partition: 7, readThrough: 99)
        machine.scanned(0)
        return machine
    }

    /// Creates a push that is due in an hour. All such pushes have one identity.
    private static func facts(_ offset: Int64) -> PushFacts {
        PushFacts(
            device: device, notificationKey: 9, topic: 0, partition: 0, offset: offset,
            deliverAtMilliseconds: now.wallMilliseconds + 3_600_000,
            createdMilliseconds: now.wallMilliseconds)
    }

    private static func doActions(of machine: inout ShardMachine) {
        while machine.nextAction(at: now) != nil {}
    }

    @Test func expiredPresenceIsLoadedAndForgotten() throws {
        var machine = Self.machine()
        machine.expired(0, [Self.device], report: .expiredTaken(slot: 0))
        _ = machine.askForLoads(at: Self.now.monotonicNanoseconds)
        let event = machine.nextEvent()
        #expect(event == .load(Self.device, 0, withItems: true))
        let loads = machine.takeRequests().loads
        let load = try #require(loads.first)
        let counts = machine.beginLoad(load, last: nil)
        #expect(counts)
        let presence = KnownPresence(
            device: Self.device, presence: .offline, learned: .none, partition: 0,
            expiryMilliseconds: Self.now.wallMilliseconds)
        let isForgotten = machine.restore(presence, load, at: Self.now)
        #expect(isForgotten)
    }

    @Test func moreDueItemsMayComeOnceTheLineForLoadsIsShort() {
        var machine = Self.machine(loads: 1)
        machine.found(Self.device, offset: 50, 0)
        let item = DueItem(due: 5, device: Self.device, offset: 50)
        machine.due(0, [item], readThrough: 99, report: .dueTaken(slot: 0))
        let early = machine.takeReports()
        #expect(early.isEmpty)
        _ = machine.askForLoads(at: Self.now.monotonicNanoseconds)
        let reports = machine.takeReports()
        #expect(reports == [.dueTaken(slot: 0)])
    }

    /// The outcome of such a job doesn't count it off, because its offset is complete.
    @Test func replacedJobThatTheStoreHasLeavesItsRoom() {
        var machine = Self.machine()
        let first = machine.admit(Self.facts(100), at: Self.now)
        #expect(first == .placed(0))
        Self.doActions(of: &machine)
        let requests = machine.takeRequests()
        machine.done(requests)
        for put in requests.puts { machine.stored(put, at: Self.now) }
        Self.doActions(of: &machine)
        let stored = machine.takeProgress(holdsBack: false)
        #expect(stored?.completed.count == 1)
        guard case .replaced(0, let old) = machine.admit(Self.facts(101), at: Self.now) else {
            Issue.record("the push hasn't replaced the older push")
            return
        }
        #expect(old.isStored && old.isOffsetDone)
        let freed = machine.takeProgress(holdsBack: false)?.freed
        #expect(freed == [0: 1])
    }
}
