import SimulatedEventLoop
import SimulatedRetryStore
import SimulatedStoreSteps
import SluiceModel
import StoreSteps
import TestSupport
import Testing

/// The real store over simulated disks.
@Suite struct StoreTests {
    @Test func writesReadsAndScans() throws {
        try StoreWorld.run { world in
            let store = try world.open()
            let partition = try store.opened(0)
            let result = store.written { batch in
                batch.put(partition, 2, 10, due: 300, [1, 2])
                batch.put(partition, 1, 11, due: 100, [3])
                batch.put(partition, 2, 12, due: 200, [4])
                batch.load(partition, StoreWorld.key(2, 0).device)
            }
            #expect(result.items.map(\.offset) == [10, 12])
            #expect(result.items.map { Array(result.push($0)) } == [[1, 2], [4]])
            #expect(try store.due(partition).entries.map(\.key.offset) == [11, 12, 10])

            store.written { batch in
                batch.put(partition, 2, 10, due: 50, replacing: 300, [5])
                batch.remove(partition, StoreWorld.key(1, 11), due: 100)
            }
            let scan = try store.due(partition, through: 100)
            #expect(scan.entries.map(\.key.offset) == [10])
            #expect(scan.isEnd)
            #expect(try world.items() == ["2/10 due 50: [5]", "2/12 due 200: [4]"])

            store.close()
            #expect(try world.isConsistent())
            #expect(try world.items() == ["2/10 due 50: [5]", "2/12 due 200: [4]"])
        }
    }

    @Test func writesTakeTime() throws {
        try StoreWorld.run { world in
            world.disk.durations.write = 3_000_000_000...3_000_000_000
            let store = try world.open()
            let partition = try store.opened(0)
            let begin = world.scheduler.now
            store.written { $0.put(partition, 1, 1, due: 1) }
            #expect(world.scheduler.now >= begin + 3_000_000_000)
        }
    }

    @Test func aSecondProcessIsRefusedUntilTheFirstEnds() throws {
        try StoreWorld.run { world in
            let first = try world.open()
            let owner = world.process
            #expect(throws: RetryStoreError.locked(directory: world.disk.path)) { _ = try world.open() }
            #expect(StoreUser.process(of: world.disk.path) != nil)
            owner.kill()
            #expect(StoreUser.process(of: world.disk.path) == nil)
            let second = try world.open()
            #expect(first.identity == second.identity)
            second.close()
        }
    }

    @Test func chunksOfTheChangelogRestoreAPartition() throws {
        let token = Array("a1b2".utf8)
        func record(_ offset: Int64) -> [UInt8] {
            var key = ByteWriter()
            token.withUnsafeBytes { ChangelogKey.item(offset: offset, deviceToken: $0).encode(into: &key) }
            return Array(key.bytes)
        }
        func restore(_ store: RetryStore, _ copy: RestorablePartition) {
            let chunk = ChangelogChunk(of: store)
            var filter: RestoreFilter? = RestoreFilter(records: 10, mostBytes: 100)
            chunk.begin(copy.handle)
            for (offset, due) in [(1, 30), (2, 20), (1, 10), (2, nil)] as [(Int64, UInt8?)] {
                record(offset).withUnsafeBytes { key in
                    guard let due else { return chunk.append(key: key, value: nil, among: &filter) }
                    ([0, 0, 0, 0, 0, 0, 0, due, 7] as [UInt8]).withUnsafeBytes {
                        chunk.append(key: key, value: $0, among: &filter)
                    }
                }
            }
            #expect(store.restored(chunk) == nil)
        }
        try StoreWorld.run { world in
            world.disk.writesPerFlush = 2
            var store = try world.open(isCopy: true)
            var copy = try store.copies(of: [0])[0]
            #expect(copy.position == nil)
            restore(store, copy)
            #expect(try store.due(copy.handle).entries.map(\.due) == [10])
            // Without an orderly leave the copy is emptied, whatever was flushed.
            world.process.kill()
            store = try world.open(isCopy: true)
            copy = try store.copies(of: [0])[0]
            #expect(copy.position == nil)
            #expect(try store.due(copy.handle).entries.isEmpty)

            restore(store, copy)
            let position = ChangelogCheckpoint(offset: 4, reachedMilliseconds: 1_800_000_000_000)
            try store.checkpointed(copy.handle, position)
            world.disk.cutPower()
            store = try world.open(isCopy: true)
            copy = try store.copies(of: [0])[0]
            #expect(copy.position == position)
            #expect(try store.due(copy.handle).entries.map(\.due) == [10])
            store.close()
        }
    }

    @Test func aPurgeRewritesAllFiles() throws {
        try StoreWorld.run { world in
            let store = try world.open()
            let partition = try store.opened(0)
            store.written { $0.put(partition, 1, 1, due: 1) }
            store.written { $0.put(partition, 1, 2, due: 1) }
            store.written {
                $0.remove(partition, StoreWorld.key(1, 1), due: 1)
                $0.notePurge(partition)
            }
            #expect(store.purges.pending.keys.sorted() == [0])
            #expect(store.purged(.pending) == nil)
            #expect(store.purges.pending.isEmpty)
            #expect(store.purges.completed == 1)
            #expect(try world.items() == ["1/2 due 1: [1]"])
            store.close()
        }
    }

    @Test(arguments: 1...4 as ClosedRange<UInt64>)
    func theRealDatabaseReturnsTheSame(seed: UInt64) throws {
        let directory = try TemporaryDirectory("store")
        let real = try StoreSteps.randomSteps(seed: seed, directory: directory.file("store"), count: 300)
        let simulated = try StoreWorld.run(seed: seed) { world in
            world.disk.writesPerFlush = 10
            return try SimulatedStoreSteps.randomSteps(seed: seed, directory: world.disk.path, count: 300)
        }
        #expect(real.count > 100)
        let difference = zip(real, simulated).first { $0 != $1 }
        #expect(difference == nil, "\(String(describing: difference))")
        #expect(real.count == simulated.count)
    }

    @Test func aSeedAlwaysRunsTheSame() throws {
        func trace(_ seed: UInt64) throws -> [String] {
            try StoreWorld.run(seed: seed) { world in
                world.disk.durations.read = 0...20_000
                let lines = try SimulatedStoreSteps.randomSteps(
                    seed: 1, directory: world.disk.path, count: 200)
                return lines + ["\(world.scheduler.now) \(world.scheduler.steps)"]
            }
        }
        #expect(try trace(7) == trace(7))
        #expect(try trace(7) != trace(8))
    }
}
