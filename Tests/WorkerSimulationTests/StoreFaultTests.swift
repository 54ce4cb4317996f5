import SimulatedEventLoop
import SimulatedRetryStore
import SimulatedStoreSteps
import Testing

/// Faults of a store's disk and process.
@Suite struct StoreFaultTests {
    /// Batches that a store was given, by their numbers.
    private struct Batches {
        var written: Set<Int64> = []
        var synced: Set<Int64> = []
        /// Batches that are found afterwards.
        var left: Set<Int64> = []
    }

    /// Writes batches of three items, ends the process at a random time, and reads what is left.
    private func interrupt(seed: UInt64, _ end: @escaping (StoreWorld) -> Void) throws -> Batches {
        try StoreWorld.run(seed: seed) { world in
            world.disk.writesPerFlush = 20
            world.disk.durations.flush = 50_000...1_000_000
            let store = try world.open()
            let partition = try store.opened(0)
            let (written, synced, process) = (Noted<Int64>(), Noted<Int64>(), world.process)
            for number in 0..<100 as Range<Int64> {
                var batch = store.makeBatch()
                for device in 1...3 as ClosedRange<UInt64> {
                    batch.put(partition, device, number, due: number)
                }
                store.submit(batch) { if $0.error == nil, process.isAlive { written.values.append(number) } }
                if number % 10 == 0 {
                    store.sync { if $0 == nil, process.isAlive { synced.values.append(number) } }
                }
            }
            // An event ends the process while the store's thread is in a call.
            world.scheduler.schedule(after: world.scheduler.below(4_000_000)) { end(world) }
            world.run(milliseconds: 5)
            let batches = Batches(
                written: Set(written.values),
                synced: Set(0..<(synced.values.max() ?? -1) + 1))
            #expect(try world.isConsistent())
            let reopened = try world.open()
            #expect(try world.isConsistent())
            let entries = try reopened.due(try reopened.opened(0)).entries
            var left = batches
            left.left = Set(entries.map(\.due))
            #expect(entries.count == 3 * left.left.count, "a part of a batch is left")
            reopened.close()
            return left
        }
    }

    @Test func aKillKeepsWrittenBatches() throws {
        var (lost, unanswered) = (0, 0)
        for seed in 1...60 as ClosedRange<UInt64> {
            let batches = try interrupt(seed: seed) { $0.process.kill() }
            #expect(batches.written.isSubset(of: batches.left), "seed \(seed)")
            lost += 100 - batches.left.count
            unanswered += batches.left.subtracting(batches.written).count
        }
        #expect(lost > 0)
        #expect(unanswered > 0)
    }

    @Test func aPowerCutKeepsSyncedBatches() throws {
        var (synced, lost, kept) = (0, 0, 0)
        for seed in 1...60 as ClosedRange<UInt64> {
            let batches = try interrupt(seed: seed) { $0.disk.cutPower() }
            #expect(batches.synced.isSubset(of: batches.left), "seed \(seed)")
            synced += batches.synced.count
            lost += batches.written.subtracting(batches.left).count
            kept += batches.left.subtracting(batches.synced).count
        }
        #expect(synced > 0)
        #expect(lost > 0)
        #expect(kept > 0)
    }

    @Test func unloggedWritesNeedAFlush() throws {
        try StoreWorld.run { world in
            world.disk.writesPerFlush = 0
            let store = try world.open(isCopy: true)
            let partition = try store.copies(of: [0])[0].handle
            store.written { $0.put(partition, 1, 1, due: 1) }
            #expect(try world.items().isEmpty)
            store.close()
            #expect(try world.items().count == 1)
        }
    }

    @Test func aFullDiskIsReportedAndWritingResumes() throws {
        try StoreWorld.run { world in
            let store = try world.open()
            let partition = try store.opened(0)
            let failures = Noted<RetryStoreError?>()
            store.observeFailures { failures.values.append($0) }
            world.disk.faults.isFull = true
            #expect(store.freeBytes == 0)
            let done = Noted<Int64>()
            for number in 0..<3 as Range<Int64> {
                var batch = store.makeBatch()
                batch.put(partition, 1, number, due: number)
                store.submit(batch) { _ in done.values.append(number) }
            }
            world.run(milliseconds: 10_000)
            #expect(done.values.isEmpty)
            #expect(store.failure == .noSpace(directory: world.disk.path))
            world.disk.faults.isFull = false
            world.run(milliseconds: 10_000)
            #expect(done.values == [0, 1, 2])
            #expect(store.failure == nil)
            #expect(failures.values.last == .some(nil))
            #expect(try world.items().count == 3)
            store.close()
        }
    }

    @Test func afterAFailedWriteTheDatabaseMustBeOpenedAgain() throws {
        try StoreWorld.run { world in
            let store = try world.open()
            let partition = try store.opened(0)
            store.written { $0.put(partition, 1, 1, due: 1) }
            world.disk.faults.failsWrites = true
            var batch = store.makeBatch()
            batch.put(partition, 1, 2, due: 2)
            store.submit(batch) { _ in }
            world.run(milliseconds: 2_000)
            world.disk.faults.failsWrites = false
            world.run(milliseconds: 20_000)
            #expect(world.disk.isStopped)
            #expect(store.failure?.isTransient == true)
            world.process.kill()
            let reopened = try world.open()
            #expect(try world.items() == ["1/1 due 1: [1]"])
            reopened.close()
        }
    }

    @Test func afterAFailedSyncOnlyAFlushMakesWritesSafe() throws {
        for seed in 1...20 as ClosedRange<UInt64> {
            try StoreWorld.run(seed: seed) { world in
                world.disk.writesPerFlush = 0
                let store = try world.open()
                let partition = try store.opened(0)
                store.written { $0.put(partition, 1, 1, due: 1) }
                world.disk.faults.failsSyncs = true
                world.disk.faults.dropsUnsynced = true
                let failures = Noted<RetryStoreError?>()
                store.sync { failures.values.append($0) }
                world.run(milliseconds: 6)
                world.disk.faults.failsSyncs = false
                #expect(failures.values.count == 1 && failures.values[0] != nil)
                guard !world.disk.isStopped else { return }
                world.run(milliseconds: 5_000)
                #expect(store.synced() == nil)
                world.disk.cutPower()
                #expect(try world.items().count == 1)
            }
        }
    }

    @Test func readsAndOpeningsFail() throws {
        try StoreWorld.run { world in
            var store = try world.open()
            let partition = try store.opened(0)
            world.disk.faults.failsReads = true
            #expect(throws: RetryStoreError.self) { _ = try store.due(partition) }
            world.disk.faults.failsReads = false
            #expect(try store.due(partition).entries.isEmpty)
            world.process.kill()

            world.disk.faults.failsOpenings = true
            #expect { store = try world.open() } throws: { ($0 as? RetryStoreError)?.isTransient == true }
            world.disk.faults.failsOpenings = false
            world.disk.faults.isDamaged = true
            #expect {
                store = try world.open()
            } throws: {
                guard case .corrupt = $0 as? RetryStoreError else { return false }
                return true
            }
            world.disk.faults.isDamaged = false
            store = try world.open()
            store.close()
        }
    }

    @Test func aLostDiskIsEmptyAfterwards() throws {
        try StoreWorld.run { world in
            let store = try world.open()
            let partition = try store.opened(0)
            store.written { $0.put(partition, 1, 1, due: 1) }
            world.disk.lose()
            let answers = Noted<RetryStoreError?>()
            store.sync { answers.values.append($0) }
            var batch = store.makeBatch()
            batch.put(partition, 1, 2, due: 2)
            store.submit(batch) { answers.values.append($0.error) }
            world.run(milliseconds: 5_000)
            #expect(answers.values.count == 1 && answers.values[0] != nil)
            #expect(store.failure?.isTransient == true)
            world.process.kill()
            let empty = try world.open()
            #expect(empty.partitions.isEmpty)
            #expect(empty.identity != store.identity)
            empty.close()
        }
    }
}
