import SluiceModel
import Testing

@testable import DeliveryCore

/// Scripts of events for a shard, and the actions expected from it.
@Suite struct ShardMachineTests {
    /// A shard with a store, of partition 7 in slot 0, whose records up to 99 were read.
    struct Bed: ~Copyable {
        var machine: ShardMachine
        var now = DeliveryTime(wallMilliseconds: 1_700_000_000_000, monotonicNanoseconds: 1_000_000_000)

        init(
            _ mode: StoreMode, index: Int = 0, shards: Int = 1, loads: Int = 256, room: Int = 16_384
        ) {
            var limits = DeliveryLimits(capacity: 8, knownDevices: 8)
            limits.storeIsDurable = mode.hasStore
            machine = ShardMachine(
                .init(
                    index: index, shards: shards, mode: mode, delivery: limits,
                    residency: ResidencyLimits(
                        hasStore: mode.hasStore, capacity: 8, loads: loads, room: room, itemsPerLoad: 4),
                    seed: 1))
            machine.beginPartition(0, partition: 7, readThrough: 99)
            machine.scanned(0)
        }

        func facts(_ offset: Int64, _ adjust: (inout PushFacts) -> Void = { _ in }) -> PushFacts {
            var facts = PushFacts(
                device: ShardMachineTests.device, notificationKey: UInt64(offset), topic: 0, partition: 0,
                offset: offset, createdMilliseconds: now.wallMilliseconds)
            adjust(&facts)
            return facts
        }

        mutating func actions() -> [ShardAction] {
            var actions: [ShardAction] = []
            while let action = machine.nextAction(at: now) {
                if case .put = action { _ = machine.takeWriting() }
                actions.append(action)
            }
            return actions
        }

        @discardableResult
        mutating func apply(
            _ effect: ControlEffect, of device: DeviceKey = ShardMachineTests.device, _ offset: Int64,
            occurred: Int64 = 5
        ) -> ControlResult {
            _ = actions()
            return machine.apply(
                effect, device, ShardMachineTests.place(offset), occurredMilliseconds: occurred, at: now)
        }

        mutating func take(_ request: ShardRequest) { machine.take(request, at: now) }

        mutating func events() -> [ResidencyAction] {
            var events: [ResidencyAction] = []
            while let event = machine.nextEvent(at: now) { events.append(event) }
            return events
        }

        /// Stores a push that is due in an hour, and confirms the write.
        mutating func store(_ offset: Int64) -> (slot: UInt32, requests: StoreRequests) {
            let later = now.wallMilliseconds + 3_600_000
            let settlement = machine.admit(facts(offset) { $0.deliverAtMilliseconds = later }, at: now)
            guard case .placed(let slot) = settlement else { return (.max, StoreRequests()) }
            #expect(actions() == [.put(slot)])
            let requests = machine.takeRequests()
            machine.done(requests, at: now)
            return (slot, requests)
        }
    }

    static let device = DeviceKey(high: 1, low: 1)
    static let other = DeviceKey(high: 2, low: 1 << 32)

    static func place(_ offset: Int64) -> RecordPlace { RecordPlace(partitionSlot: 0, offset: offset) }

    @Test func acceptedPushEndsAndFreesItsSlot() {
        var bed = Bed(.none)
        #expect(bed.machine.arrives(Self.place(100)) == nil)
        #expect(bed.machine.mustWait(push: Self.device, Self.place(100), .accept) == nil)
        #expect(bed.machine.admit(bed.facts(100), at: bed.now) == .placed(0))
        #expect(bed.actions() == [.enqueue(0, atFront: false)])
        let begins = bed.machine.beginAttempt(0, at: bed.now)
        #expect(begins)
        bed.machine.accepted(0, at: bed.now)
        var facts = OutcomeFacts(Self.place(100), ItemProgress())
        facts.attempts = 1
        facts.firstSentMilliseconds = bed.now.wallMilliseconds
        #expect(bed.actions() == [.finish(0, .accepted, nil, successor: DeliveryMachine.noSlot, facts)])
        #expect(bed.machine.count == 0)
        // Kafka's report of the outcome completes the offset.
        #expect(bed.machine.takeProgress(holdsBack: false) == nil)
    }

    @Test func recordWaitsUntilItsPartitionBegins() {
        var bed = Bed(.local)
        let handle = bed.machine.arrives(RecordPlace(partitionSlot: 3, offset: 0))
        #expect(handle != nil)
        #expect(bed.events().isEmpty == true)
        bed.machine.beginPartition(3, partition: 9, readThrough: -1)
        #expect(bed.events() == [.takeIn(handle!)])
    }

    @Test func storedPushCompletesItsOffsetOnce() {
        var bed = Bed(.local)
        let slot = bed.store(100).slot
        #expect(bed.actions().isEmpty == true)
        #expect(
            bed.machine.takeProgress(holdsBack: false)?.completed
                == [.init(place: Self.place(100), isRepeated: false)])
        // An ended job frees its room.
        bed.apply(.cancel([.notificationKey(100)]), 101)
        guard case .finish(slot, .cancelled, nil, _, let facts)? = bed.actions().first else {
            Issue.record("the push has not ended")
            return
        }
        #expect(facts.isStored && facts.isOffsetDone)
        #expect(facts.removal == .none)
        #expect(bed.machine.takeProgress(holdsBack: false)?.freed == [0: 1])
    }

    /// The outcomes of the old push and of a push that moves are acknowledged in any order.
    @Test(arguments: [StoreMode.local, .changelog])
    func movedPushWaitsUntilTheOldTokensEndedPushesHaveLeftTheStore(_ mode: StoreMode) {
        var bed = Bed(mode)
        bed.endStoredPush(before: bed.facts(101))
        bed.changeToken()
        #expect(bed.actions() == [.noteMove(1), .dequeue(1), .keepToken(0)])
        bed.expectMove(of: 1, after: Self.place(100))
    }

    /// The push in flight has no outcome yet when the token changes.
    @Test(arguments: [StoreMode.local, .changelog])
    func pushBehindAStoredPushInFlightWaitsForItsRemoval(_ mode: StoreMode) {
        var bed = Bed(mode)
        let (slot, _) = bed.store(100)
        bed.pass(milliseconds: 3_600_000)
        #expect(bed.begins(slot) == true)
        let newer = bed.facts(101) { $0.notificationKey = 100 }
        #expect(bed.machine.admit(newer, at: bed.now) == .placed(1))
        bed.apply(.tokenChanged(to: ShardMachineTests.other), 102)
        #expect(bed.actions() == [.noteMove(1), .noteMove(slot), .keepToken(0)])
        bed.machine.accepted(slot, at: bed.now)
        #expect(bed.actions().count == 1)
        bed.expectMove(of: 1, after: Self.place(100))
    }

    /// The old token is gone before the push has moved.
    @Test func pushThatWaitsForItsMoveOutlivesTheOldToken() {
        var bed = Bed(.local)
        bed.endStoredPush(before: bed.facts(101))
        bed.changeToken()
        _ = bed.actions()
        #expect(
            bed.apply(.unregistered, 104, occurred: .max) == ControlResult(kind: .applied, count: 0))
        bed.expectMove(of: 1, after: Self.place(100))
    }

    /// The later change is read before the change that brings the push.
    @Test func pushThatFollowsARememberedChangeWaitsForRemovals() {
        var bed = Bed(.local)
        bed.endStoredPush(before: bed.facts(101))
        bed.machine.remember(Self.device, to: Self.other, 6, Self.place(103))
        bed.machine.moveOn(Self.device, after: 5, at: bed.now)
        #expect(bed.actions() == [.keepToken(0), .moveOn(0), .noteMove(1), .dequeue(1)])
        bed.expectMove(of: 1, after: Self.place(100), by: [.depart(1)])
    }

    /// The second change comes while the push waits for the first.
    @Test func pushThatWaitsForItsMoveFollowsALaterChange() {
        var bed = Bed(.local)
        let third = DeviceKey(high: 3, low: 3 << 32)
        bed.endStoredPush(before: bed.facts(101))
        bed.changeToken()
        _ = bed.actions()
        let moved = bed.apply(.tokenChanged(to: third), of: Self.other, 104, occurred: 6)
        #expect(moved.count == 1)
        #expect(bed.actions() == [.noteMove(1), .keepToken(1)])
        bed.expectMove(of: 1, after: Self.place(100))
        #expect(bed.apply(.cancel([.notificationKey(101)]), of: third, 105).count == 1)
    }

    @Test func pushThatIsAloneMovesAtOnce() {
        var bed = Bed(.local)
        #expect(bed.machine.admit(bed.facts(100), at: bed.now) == .placed(0))
        _ = bed.actions()
        bed.apply(.tokenChanged(to: ShardMachineTests.other), 102)
        #expect(
            bed.actions()
                == [
                    .dequeue(0), .readdress(0, isStored: false), .enqueue(0, atFront: false), .keepToken(0),
                ])
    }

    /// Nobody removes the items of a partition that has ended.
    @Test func endedPartitionHoldsNoMoveUp() {
        var bed = Bed(.local)
        bed.machine.beginPartition(1, partition: 8, readThrough: 99)
        bed.machine.scanned(1)
        bed.endStoredPush(before: bed.facts(101) { $0.partition = 1 })
        bed.changeToken()
        _ = bed.actions()
        bed.take(.end(slots: [0]))
        #expect(bed.pass(milliseconds: 100).contains(.readdress(1, isStored: false)))
    }

    @Test(arguments: [StoreMode.changelog, .transactions])
    func endedStoredPushIsRemovedFromTheChangelog(_ mode: StoreMode) {
        var bed = Bed(mode)
        _ = bed.store(100)
        _ = bed.actions()
        bed.apply(.cancel([.notificationKey(100)]), 101)
        guard case .finish(_, _, _, _, let facts)? = bed.actions().first else {
            Issue.record("the push has not ended")
            return
        }
        let item = EndedItem(device: Self.device.low, place: Self.place(100))
        #expect(facts.removal == (mode == .transactions ? .now(item) : .later(item)))
        _ = bed.actions()
        bed.take(.remove([item]))
        guard case .remove(item, let key)? = bed.actions().first else {
            Issue.record("the item isn't removed")
            return
        }
        #expect(key.device == Self.device)
    }

    @Test func endedPartitionsPushNeedsNoRemoval() {
        var bed = Bed(.transactions)
        _ = bed.store(100)
        _ = bed.actions()
        bed.take(.end(slots: [0]))
        _ = bed.events()
        bed.apply(.cancel([.notificationKey(100)]), 101)
        guard case .finish(_, _, _, _, let facts)? = bed.actions().first else {
            Issue.record("the push has not ended")
            return
        }
        #expect(facts.isStored)
        #expect(facts.removal == .none)
    }

    @Test func pushWaitsForItsDevicesStoredItems() {
        var bed = Bed(.local)
        bed.machine.found(Self.device, offset: 50, 0)
        let handle = bed.machine.mustWait(push: Self.device, Self.place(100), .accept)
        #expect(handle != nil)
        let mayBeMore = bed.machine.askForLoads(at: bed.now.monotonicNanoseconds)
        #expect(!mayBeMore)
        #expect(bed.events() == [.load(Self.device, 0, withItems: true)])
        let load = bed.machine.takeRequests().loads[0]
        let counts = bed.machine.beginLoad(load, last: 50)
        #expect(counts)
        let verdict = bed.machine.judge(offset: 50, load)
        #expect(verdict.restore == Self.place(50))
        var progress = ItemProgress()
        progress.dueMilliseconds = bed.now.wallMilliseconds + 3_600_000
        let facts = bed.facts(50) { $0.deliverAtMilliseconds = progress.dueMilliseconds }
        #expect(bed.machine.restore(facts, Self.place(50), progress, at: bed.now) == .placed(0))
        _ = bed.actions()
        bed.machine.endLoad()
        #expect(bed.events() == [.proceed(handle!)])
        #expect(bed.machine.figures.restoredItems == 1)
        // The offset was completed when the push was stored.
        bed.apply(.cancel([.notificationKey(50)]), 101)
        guard case .finish(_, .cancelled, nil, _, let outcome)? = bed.actions().first else {
            Issue.record("the push has not ended")
            return
        }
        #expect(outcome.isStored && outcome.isOffsetDone)
        #expect(bed.machine.figures.restoredItems == 0)
    }

    @Test func itemAtAnotherDevicesOffsetBelongsToEarlierLog() {
        var bed = Bed(.local)
        bed.machine.found(Self.device, offset: 50, 0)
        bed.machine.found(Self.other, offset: 50, 0)
        _ = bed.machine.mustWait(push: Self.device, Self.place(100), .accept)
        _ = bed.machine.mustWait(push: Self.other, Self.place(101), .accept)
        _ = bed.machine.askForLoads(at: bed.now.monotonicNanoseconds)
        _ = bed.events()
        let loads = bed.machine.takeRequests().loads
        #expect(loads.map(\.device) == [Self.device, Self.other])
        var places: [RecordPlace?] = []
        for load in loads {
            _ = bed.machine.beginLoad(load, last: 50)
            let place = bed.machine.judge(offset: 50, load).restore
            places.append(place)
            var progress = ItemProgress()
            progress.dueMilliseconds = bed.now.wallMilliseconds + 3_600_000
            let facts = bed.facts(50) {
                $0.device = load.device
                $0.deliverAtMilliseconds = progress.dueMilliseconds
            }
            if let place { _ = bed.machine.restore(facts, place, progress, at: bed.now) }
            bed.machine.endLoad()
        }
        #expect(places == [Self.place(50), Self.place(50).inEarlierLog])
    }

    @Test func rereadRecordOfEndedStoredItemIsComplete() {
        var bed = Bed(.local)
        _ = bed.store(100)
        _ = bed.actions()
        let id = APNSID(high: 0, low: 100)
        #expect(bed.machine.isDone(Self.place(100), Self.device, id) == false)
        bed.apply(.cancel([.notificationKey(100)]), 101)
        _ = bed.actions()
        _ = bed.machine.takeProgress(holdsBack: false)
        #expect(bed.machine.isDone(Self.place(100), Self.device, id) == true)
        #expect(
            bed.machine.takeProgress(holdsBack: false)?.completed
                == [.init(place: Self.place(100), isRepeated: true)])
        // A record of another device at that offset belongs to another log.
        #expect(bed.machine.isDone(Self.place(100), Self.other, id) == false)
    }

    /// The record may outdate the push that is in memory already.
    @Test(arguments: [true, false]) func catchUpWaitsForRecordsThatWaitForLoads(_ isLoaded: Bool) {
        var bed = Bed(.local)
        bed.take(.catchUp(slot: 1))
        bed.machine.beginPartition(1, partition: 8, readThrough: 99)
        bed.machine.scanned(1)
        #expect(bed.machine.admit(bed.facts(100) { $0.partition = 1 }, at: bed.now) == .placed(0))
        let newer = RecordPlace(partitionSlot: 1, offset: 101)
        let handle = bed.machine.mustWait(push: Self.device, newer, .holdWhileOffline)
        bed.take(.caughtUp(slot: 1))
        #expect(bed.pass(milliseconds: 10) == [])
        guard isLoaded else {
            #expect(bed.machine.takeReports() == [])
            #expect(bed.pass(milliseconds: 5000) == [.enqueue(0, atFront: false)])
            #expect(bed.machine.takeReports() == [.catchUpCut(slot: 1, readTo: 101, end: 102)])
            return
        }
        _ = bed.machine.askForLoads(at: bed.now.monotonicNanoseconds)
        _ = bed.events()
        for load in bed.machine.takeRequests().loads {
            _ = bed.machine.beginLoad(load, last: 0)
            bed.machine.endLoad()
        }
        #expect(bed.events() == [.proceed(handle ?? 0)])
        #expect(bed.pass(milliseconds: 10) == [.enqueue(0, atFront: false)])
    }

    @Test func pushWithoutFreeSlotWaits() {
        var bed = Bed(.none)
        for offset in 100..<108 {
            #expect(bed.machine.admit(bed.facts(Int64(offset)), at: bed.now) == .placed(UInt32(offset - 100)))
        }
        guard case .deferred(let handle) = bed.machine.admit(bed.facts(108), at: bed.now) else {
            Issue.record("the push wasn't deferred")
            return
        }
        _ = bed.actions()
        #expect(bed.events().isEmpty == true)
        bed.apply(.cancel([.notificationKey(100)]), 109)
        _ = bed.actions()
        #expect(bed.events() == [.proceed(handle)])
    }

    @Test func abandonedPartitionGivesBackPushesNotInFlight() {
        var bed = Bed(.none)
        _ = bed.machine.admit(bed.facts(100), at: bed.now)
        _ = bed.machine.admit(bed.facts(101), at: bed.now)
        _ = bed.actions()
        let begins = bed.machine.beginAttempt(0, at: bed.now)
        #expect(begins)
        bed.take(.settle(slot: 0))
        bed.take(.abandon(slots: [0], isLost: true))
        #expect(bed.actions() == [.dequeue(1), .giveBack(1)])
        #expect(bed.events() == [])
        #expect(bed.actions() == [.abandoned(SlotCount(slot: 0, count: 1), isLost: true)])
        #expect(bed.machine.takeSettled().isEmpty == true)
        // The failure isn't retried here.
        bed.machine.attemptEnded(0, .unanswered(processed: false), at: bed.now)
        #expect(bed.actions().contains(.gaveBack(0)) == true)
        #expect(bed.machine.takeSettled() == [.settled(slot: 0)])
        #expect(bed.machine.takeSettled().isEmpty == true)
    }

    @Test func drainedShardSendsNothingAndReportsOnce() {
        var bed = Bed(.none)
        #expect(bed.machine.maySend == true)
        bed.take(.drain)
        #expect(bed.machine.maySend == false)
        #expect(bed.machine.takeSettled() == [.settledAll])
        #expect(bed.machine.takeSettled().isEmpty == true)
    }

    @Test func endingShardGivesUpUnansweredPushesThatAvoidDuplicates() {
        var bed = Bed(.none)
        _ = bed.machine.admit(bed.facts(100) { $0.duplicates = .avoid }, at: bed.now)
        _ = bed.machine.admit(bed.facts(101), at: bed.now)
        _ = bed.actions()
        for slot: UInt32 in [0, 1] { #expect(bed.begins(slot) == true) }
        _ = bed.machine.admit(bed.facts(102), at: bed.now)
        _ = bed.actions()
        bed.take(.finish)
        #expect(bed.machine.hasEnded == true)
        #expect(bed.actions() == [])
        #expect(bed.events() == [])
        let actions = bed.actions()
        let ends = actions.compactMap { action -> OutcomeCause? in
            if case .finish(0, .undeliverable, let cause, _, _) = action { cause } else { nil }
        }
        #expect(ends == [.answerLost])
        // The others are freed without an outcome, and nothing waits.
        #expect(actions.suffix(2) == [.giveBack(1), .giveBack(2)])
        #expect(bed.events() == [])
        #expect(bed.machine.hasSteps == false)
        // An outcome that Kafka refuses may stop the partition meanwhile.
        bed.take(.abandon(slots: [0], isLost: true))
        _ = (bed.actions(), bed.events())
        #expect(bed.actions() == [.abandoned(SlotCount(slot: 0, count: 0), isLost: true)])
    }

    @Test func completionsAreHeldBackForALaterTransaction() {
        var bed = Bed(.transactions)
        _ = bed.store(100)
        _ = bed.actions()
        #expect(bed.machine.takeProgress(holdsBack: true) == nil)
        #expect(bed.machine.takeProgress(holdsBack: false)?.completed.count == 1)
    }

    @Test func departedItemIsLeftOutWhenItsSlotChangesPartition() {
        var bed = Bed(.changelog, shards: 2)
        _ = bed.store(100)
        _ = bed.actions()
        let moved = bed.apply(.tokenChanged(to: Self.other), 101)
        #expect(moved.count == 1)
        #expect(bed.actions() == [.depart(0), .keepToken(0)])
        let migration = bed.machine.takeDeparture()
        #expect(migration.writing?.write.leaves?.device == Self.device)
        #expect(migration.facts.device == Self.other)
        #expect(migration.movedAtMilliseconds == 5)
        #expect(bed.machine.count == 0)

        var target = Bed(.changelog, index: 1, shards: 2)
        #expect(target.machine.shard(of: Self.other) == 1)
        // The device's presence is loaded first.
        guard case .deferred(let handle) = target.machine.arrives(migration, isReleased: false) else {
            Issue.record("the item wasn't deferred")
            return
        }
        var unreleased: [UInt32] = []
        target.machine.release(Self.other) {
            unreleased.append($0)
            return false
        }
        #expect(unreleased == [handle])
        // The slot belongs to another partition by now.
        target.machine.beginPartition(0, partition: 8, readThrough: 10)
        #expect(target.machine.takeOver(migration, at: target.now) == .leftOut)
        #expect(target.machine.arrives(migration, isReleased: true) == .leftOut)
    }

    /// A worker that reads the record again after a crash must not send its push under the old token.
    @Test func departingStoredItemMarksItsRecord() {
        var bed = Bed(.changelog, shards: 2)
        _ = bed.store(100)
        _ = bed.actions()
        bed.apply(.tokenChanged(to: ShardMachineTests.other), 101)
        _ = bed.actions()
        let migration = bed.machine.takeDeparture()
        #expect(migration.writing?.write.marks == true)
        #expect(migration.resident.hasMoved && migration.resident.isMarked)
    }

    /// The record is read again after a crash, and the store has its item.
    @Test func pendingPushFoundInTheStoreEndsAsStored() {
        var bed = Bed(.local)
        _ = bed.machine.arrives(Self.place(100))
        #expect(bed.machine.admit(bed.facts(100), at: bed.now) == .placed(0))
        _ = bed.actions()
        bed.machine.found(Self.device, offset: 100, 0)
        _ = bed.machine.mustWait(push: Self.device, Self.place(101), .accept)
        _ = bed.machine.askForLoads(at: bed.now.monotonicNanoseconds)
        _ = bed.events()
        let load = bed.machine.takeRequests().loads[0]
        _ = bed.machine.beginLoad(load, last: 100)
        let verdict = bed.machine.judge(offset: 100, load)
        #expect(verdict.restore == Self.place(100))
        var progress = ItemProgress()
        progress.dueMilliseconds = bed.now.wallMilliseconds + 3_600_000
        #expect(bed.machine.restore(bed.facts(100), Self.place(100), progress, at: bed.now) == .repeated)
        bed.machine.endLoad()
        _ = bed.events()
        bed.apply(.cancel([.notificationKey(100)]), 102)
        let ends = bed.actions().compactMap { action -> Bool? in
            if case .finish(0, .cancelled, nil, _, let facts) = action { facts.isStored } else { nil }
        }
        #expect(ends == [true])
    }

    @Test func recordWaitsForNoLoadOfAnAbandonedPartition() {
        var bed = Bed(.local)
        bed.machine.beginPartition(1, partition: 8, readThrough: 99)
        bed.machine.scanned(1)
        bed.machine.found(Self.device, offset: 50, 0)
        bed.take(.abandon(slots: [0], isLost: false))
        _ = (bed.actions(), bed.events(), bed.actions())
        let place = RecordPlace(partitionSlot: 1, offset: 100)
        let handle = bed.machine.mustWait(push: Self.device, place, .accept)
        #expect(handle != nil)
        _ = bed.machine.askForLoads(at: bed.now.monotonicNanoseconds)
        #expect(bed.events() == [.proceed(handle!)])
    }

    /// Items without a free slot prove nothing about the room for restored items.
    @Test func loadWithoutFreeSlotIsRepeatedAndRefusesNothing() {
        var bed = Bed(.local, room: 4)
        for offset in 100..<108 {
            _ = bed.machine.admit(bed.facts(Int64(offset)) { $0.device = Self.other }, at: bed.now)
        }
        _ = bed.actions()
        bed.machine.found(Self.device, offset: 50, 0)
        _ = bed.machine.mustWait(push: Self.device, Self.place(108), .accept)
        _ = bed.machine.askForLoads(at: bed.now.monotonicNanoseconds)
        _ = bed.events()
        let load = bed.machine.takeRequests().loads[0]
        _ = bed.machine.beginLoad(load, last: 52)
        var progress = ItemProgress()
        progress.dueMilliseconds = bed.now.wallMilliseconds + 3_600_000
        let first = bed.machine.judge(offset: 50, load)
        #expect(first.restore == Self.place(50))
        #expect(bed.machine.restore(bed.facts(50), Self.place(50), progress, at: bed.now) == .leftOut)
        for offset: Int64 in 51...52 { #expect(bed.machine.judge(offset: offset, load).restore == nil) }
        bed.machine.endLoad()
        #expect(bed.events().isEmpty == true)
        let retry = bed.machine.retryLoadsAt
        _ = bed.machine.askForLoads(at: retry)
        #expect(bed.events() == [.load(Self.device, 0, withItems: true)])
    }

    @Test func departingItemOfAnEndedPartitionIsLeftOut() {
        var bed = Bed(.local, shards: 2)
        _ = bed.store(100)
        _ = bed.actions()
        bed.take(.end(slots: [0]))
        bed.apply(.tokenChanged(to: ShardMachineTests.other), 101)
        _ = bed.actions()
        let migration = bed.machine.takeDeparture()
        #expect((migration.writing == nil) == true)
        var target = Bed(.local, index: 1, shards: 2)
        target.take(.end(slots: [0]))
        #expect(target.machine.arrives(migration, isReleased: true) == .leftOut)
    }

    /// The push's record takes room in the worker until the push is given back.
    @Test func departingPushOfAnEndedPartitionIsGivenBack() {
        var bed = Bed(.local, shards: 2)
        _ = bed.machine.admit(bed.facts(100), at: bed.now)
        bed.apply(.tokenChanged(to: ShardMachineTests.other), 101)
        #expect(bed.actions().contains(.depart(0)) == true)
        let migration = bed.machine.takeDeparture()
        #expect(migration.progress.isOffsetDone == false)
        var target = Bed(.local, index: 1, shards: 2)
        target.take(.end(slots: [0]))
        _ = target.actions()
        #expect(target.machine.arrives(migration, isReleased: true) == .leftOut)
        #expect(target.actions() == [.gaveBack(0)])
    }

    @Test func drainAfterTheEndChangesNothing() {
        var bed = Bed(.none)
        bed.take(.finish)
        bed.take(.drain)
        #expect(bed.machine.hasEnded == true)
    }

    @Test func tokenChangeWaitsForAStoredItemInFlight() {
        var bed = Bed(.local)
        let (slot, _) = bed.store(100)
        _ = bed.actions()
        bed.pass(milliseconds: 3_600_000)
        #expect(bed.begins(slot) == true)
        bed.apply(.tokenChanged(to: ShardMachineTests.other), 101)
        #expect(bed.actions() == [.noteMove(slot), .keepToken(0)])
        guard case .waits(let handle) = bed.machine.applied(Self.place(101), isReplay: false) else {
            Issue.record("the token change does not wait")
            return
        }
        #expect(bed.machine.takeChangesDone().isEmpty == true)
        bed.machine.accepted(slot, at: bed.now)
        _ = bed.actions()
        #expect(bed.machine.takeChangesDone() == [handle])
    }

    @Test func endedShardReportsDueItemsAtOnce() {
        var bed = Bed(.local)
        bed.take(.finish)
        bed.take(.due(slot: 0, [], readThrough: 99))
        #expect(bed.machine.takeReports() == [.dueTaken(slot: 0)])
    }

    @Test func flushReportsItsEpochAndChanges() {
        var bed = Bed(.changelog)
        let first = bed.machine.changeEpoch
        bed.machine.changed()
        bed.machine.changed()
        _ = bed.machine.takeRequests()
        #expect(bed.machine.flushed() == ShardFlush(hasWritten: true, produced: 2, epoch: first))
        #expect(bed.machine.flushed().produced == 0)
        #expect(bed.machine.changeEpoch.epoch == first.epoch + 2)
    }
}

extension ShardMachineTests.Bed {
    fileprivate mutating func begins(_ slot: UInt32) -> Bool { machine.beginAttempt(slot, at: now) }

    @discardableResult
    fileprivate mutating func pass(milliseconds: Int64) -> [ShardAction] {
        now = DeliveryTime(
            wallMilliseconds: now.wallMilliseconds + milliseconds,
            monotonicNanoseconds: now.monotonicNanoseconds + UInt64(milliseconds) * 1_000_000)
        machine.advance(to: now)
        return actions()
    }

    /// Stores a push, admits another as slot 1, and cancels the stored push, which is in the store still.
    fileprivate mutating func endStoredPush(before other: PushFacts) {
        _ = store(100)
        #expect(machine.admit(other, at: now) == .placed(1))
        apply(.cancel([.notificationKey(100)]), 102)
        _ = actions()
    }

    fileprivate mutating func changeToken() {
        apply(.tokenChanged(to: ShardMachineTests.other), 103)
    }

    /// Expects a push to move once the ended push has left the store, and not before.
    fileprivate mutating func expectMove(
        of slot: UInt32, after place: RecordPlace, by moves: [ShardAction]? = nil
    ) {
        let item = EndedItem(device: ShardMachineTests.device.low, place: place)
        #expect(pass(milliseconds: 100) == [])
        take(.remove([item]))
        guard case .remove(item, _)? = pass(milliseconds: 100).first else {
            Issue.record("the item isn't removed")
            return
        }
        machine.done(machine.takeRequests(), at: now)
        #expect(events() == [.removed(place, ShardMachineTests.device)])
        #expect(
            pass(milliseconds: 100) == moves ?? [
                .readdress(slot, isStored: false), .enqueue(slot, atFront: false),
            ])
    }
}
