import SluiceModel
import Testing

@testable import DeliveryCore

/// Devices that return while many others do: their items stay in the store until it is their turn.
@Suite struct DeviceTurnTests {
    /// A shard whose store has one held item of each device, in partition 0.
    private final class Bed {
        var residency: DeviceResidency
        var delivery: DeliveryMachine
        var now = DeliveryTime(wallMilliseconds: 1_700_000_000_000, monotonicNanoseconds: 1_000_000_000)
        var asked: [ResidencyAction] = []
        private var offset: Int64 = 100

        init(devices: Int, returns: Int = 1, restored: Int = 64) {
            var limits = DeliveryLimits(capacity: 64, knownDevices: 64)
            limits.storeIsDurable = true
            limits.returnsPerSecond = 1
            limits.returnBurst = 1
            delivery = DeliveryMachine(limits: limits, seed: 1)
            residency = DeviceResidency(
                limits: ResidencyLimits(
                    hasStore: true, capacity: 64, restored: restored, itemsPerLoad: 1, returns: returns))
            residency.beginPartition(0, readThrough: 99)
            residency.beginPartition(1, readThrough: 99)
            for number in 0..<devices { residency.found(Self.device(number), offset: Int64(number), 0) }
            residency.scanned(0)
            residency.scanned(1)
        }

        static func device(_ number: Int) -> DeviceKey {
            DeviceKey(high: UInt64(number), low: UInt64(number))
        }

        /// A record whose handle is its offset.
        func report(_ number: Int, isReturn: Bool = true, isPush: Bool = false) -> UInt32 {
            let record = DeferredRecord(
                handle: UInt32(offset), device: Self.device(number),
                place: RecordPlace(partitionSlot: 0, offset: offset), look: .partition(0), isPush: isPush,
                isReturn: isReturn)
            offset += 1
            if residency.mustDefer(record, delivery) {
                residency.deferUntilLoaded(record, delivery)
            } else {
                asked.append(.proceed(record.handle))
            }
            return record.handle
        }

        func online(_ number: Int) {
            _ = delivery.online(
                Self.device(number), occurred: ReportTime(milliseconds: now.wallMilliseconds, offset: offset),
                partition: 0, at: now)
            drain()
        }

        /// Returns the presences that the store was asked to keep.
        @discardableResult
        func drain() -> [KnownPresence] {
            var kept: [KnownPresence] = []
            while let action = delivery.nextAction() {
                if case .keepPresence(let number) = action {
                    kept.append(residency.keepPresence(delivery.presence(number, at: now)))
                }
            }
            return kept
        }

        /// Asks for loads, and returns the actions that follow.
        func requestLoads() -> [ResidencyAction] {
            _ = residency.askForLoads(at: now.monotonicNanoseconds, delivery)
            while let action = residency.nextAction(delivery) { asked.append(action) }
            defer { asked = [] }
            return asked
        }

        func next() -> ResidencyAction? { residency.nextAction(delivery) }

        /// The store answers every load. Returns the number of restored items.
        func load(presence: Presence? = .offline) -> Int {
            var items = 0
            for load in residency.takeRequests().loads {
                let number = Int(load.device.low)
                if residency.beginLoad(load, last: load.isOfPresence ? nil : Int64(number)) {
                    if let presence {
                        _ = delivery.restore(
                            KnownPresence(
                                device: load.device, presence: presence, learned: ReportTime.none,
                                partition: 0),
                            at: now)
                    }
                    if !load.isOfPresence,
                        let place = residency.judge(offset: Int64(number), delivery).restore
                    {
                        items += 1
                        var facts = PushFacts(
                            device: load.device, collapseKey: 0, notificationKey: UInt64(number), topic: 0,
                            partition: 0, offset: place.offset, createdMilliseconds: now.wallMilliseconds)
                        facts.delivery = .holdWhileOffline
                        var progress = ItemProgress()
                        progress.wait = .held
                        progress.isStored = true
                        progress.isOffsetDone = true
                        if case .placed(let slot) = delivery.restore(facts, progress, at: now) {
                            residency.addItem(
                                slot, place, ResidentFacts(restoredFrom: load.device, due: .max), load.device)
                        }
                    }
                }
                residency.endLoad()
            }
            return items
        }

        func device(_ number: Int) -> DeviceKey { Self.device(number) }
        var awaitingTurn: Int { residency.devicesAwaitingTurn }
        var isIdle: Bool { residency.isIdle }
        var returning: Int { delivery.milestones[.returning] }
    }

    /// Restores the first device's item, which then waits for its return.
    private func bedWithFullReturns(devices: Int) -> Bed {
        let bed = Bed(devices: devices)
        let first = bed.report(0)
        #expect(bed.requestLoads() == [.load(bed.device(0), 0, withItems: true)])
        #expect(bed.load() == 1)
        #expect(bed.requestLoads() == [.proceed(first)])
        bed.online(0)
        #expect(bed.returning == 1)
        return bed
    }

    @Test func returningDevicesItemsStayStoredUntilItsTurn() {
        let bed = bedWithFullReturns(devices: 2)
        let report = bed.report(1)
        #expect(
            bed.requestLoads() == [.load(bed.device(1), 0, withItems: false)], "only its presence is loaded")
        #expect(bed.load() == 0)
        #expect(bed.next() == .proceed(report))
        _ = bed.delivery.online(
            bed.device(1), occurred: ReportTime(milliseconds: bed.now.wallMilliseconds, offset: 7),
            partition: 0,
            at: bed.now)
        let kept = bed.drain()
        #expect(kept.count == 1 && kept.allSatisfy { $0.isAwaited }, "the next owner loads the items")
        #expect(bed.requestLoads().isEmpty, "another device's turn")
        #expect(bed.awaitingTurn == 1)
        #expect(bed.isIdle)

        // The first item was sent.
        bed.now.monotonicNanoseconds += 2_000_000_000
        bed.delivery.advance(to: bed.now)
        bed.drain()
        #expect(bed.returning == 0)
        #expect(bed.requestLoads() == [.load(bed.device(1), 0, withItems: true)])
        #expect(bed.load(presence: nil) == 1)
        _ = bed.requestLoads()
        #expect(bed.returning == 1, "at the return rate")
        #expect(bed.awaitingTurn == 0 && bed.isIdle)
    }

    @Test func pushAfterTheReportLoadsTheItems() {
        let bed = bedWithFullReturns(devices: 2)
        let report = bed.report(1)
        #expect(bed.requestLoads() == [.load(bed.device(1), 0, withItems: false)])
        let push = bed.report(1, isReturn: false, isPush: true)
        #expect(bed.load() == 0)
        #expect(bed.requestLoads() == [.proceed(report)])
        #expect(bed.requestLoads() == [.load(bed.device(1), 0, withItems: true)])
        #expect(bed.load() == 1)
        #expect(bed.requestLoads() == [.proceed(push)])
    }

    @Test func pushWaitingWithTheReportLoadsTheItems() {
        let bed = bedWithFullReturns(devices: 2)
        let report = bed.report(1)
        let push = bed.report(1, isReturn: false, isPush: true)
        #expect(bed.requestLoads() == [.load(bed.device(1), 0, withItems: true)])
        #expect(bed.load() == 1)
        #expect(bed.requestLoads() == [.proceed(report), .proceed(push)])
    }

    @Test func reportDoesNotDelayDueItems() {
        let bed = bedWithFullReturns(devices: 3)
        bed.residency.due(bed.device(1), 0)
        let report = bed.report(1)
        #expect(bed.requestLoads() == [.load(bed.device(1), 0, withItems: true)])
        #expect(bed.load() == 1)
        #expect(bed.requestLoads() == [.proceed(report)])

        let other = bed.report(2)
        #expect(bed.requestLoads() == [.load(bed.device(2), 0, withItems: false)])
        bed.residency.due(bed.device(2), 0)
        #expect(bed.load() == 0)
        #expect(
            bed.requestLoads() == [.load(bed.device(2), 0, withItems: true)],
            "became due after the load was requested"
        )
        #expect(bed.load() == 1)
        #expect(bed.requestLoads() == [.proceed(other)])
    }

    @Test func deviceWithoutItemsAwaitsNoTurn() {
        let bed = bedWithFullReturns(devices: 1)
        let report = bed.report(5)
        #expect(bed.requestLoads() == [.load(bed.device(5), 0, withItems: true)])
        _ = bed.load(presence: nil)
        #expect(bed.requestLoads() == [.proceed(report)])
        #expect(bed.awaitingTurn == 0)
    }

    @Test func presenceLoadsWithoutRoomForItems() {
        let bed = Bed(devices: 4, returns: 1, restored: 1)
        let first = bed.report(0)
        #expect(bed.requestLoads() == [.load(bed.device(0), 0, withItems: true)])
        #expect(bed.load() == 1)
        #expect(bed.requestLoads() == [.proceed(first)])
        bed.online(0)
        _ = bed.report(1)
        #expect(bed.requestLoads() == [.load(bed.device(1), 0, withItems: false)])
        _ = bed.report(2, isReturn: false, isPush: true)
        #expect(bed.requestLoads().isEmpty, "there is no room")
    }

    @Test func itemsOfAnotherPartitionLoadAtOnce() {
        let bed = bedWithFullReturns(devices: 2)
        bed.residency.found(bed.device(1), offset: 5, 1)
        _ = bed.report(1)
        let asked = bed.requestLoads()
        #expect(asked.count == 2, "the other partition's items have no presence beside them")
        #expect(asked.contains(.load(bed.device(1), 1, withItems: true)))
    }

    @Test func outdatedReportAwaitsNoTurn() {
        let bed = bedWithFullReturns(devices: 2)
        _ = bed.report(1)
        _ = bed.requestLoads()
        #expect(bed.load() == 0)
        // The report has no effect: the device stays offline.
        _ = bed.requestLoads()
        #expect(bed.awaitingTurn == 0)
    }

    @Test func deviceQueuesOncePerPartitionAndLeavesWithIt() {
        let bed = Bed(devices: 3)
        for _ in 0..<3 { bed.residency.awaited(bed.device(1), 0) }
        bed.residency.awaited(bed.device(2), 0)
        bed.residency.awaited(bed.device(2), 1)
        #expect(bed.awaitingTurn == 3)
        bed.residency.endPartition(0)
        #expect(bed.awaitingTurn == 1)
    }

    @Test func devicesTakeTurnsInReturnOrder() {
        let bed = Bed(devices: 4, returns: 2)
        for number in [2, 0, 3, 1] { bed.residency.awaited(bed.device(number), 0) }
        #expect(
            bed.requestLoads() == [
                .load(bed.device(2), 0, withItems: true), .load(bed.device(0), 0, withItems: true),
            ])
    }
}
