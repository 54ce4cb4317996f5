import CMemtableMemory
import Foundation
import SluiceModel
import Synchronization
import TestSupport
import Testing

@testable import RetryStore

/// Blocks of other tests' stores come and go meanwhile, so numbers are compared with what this one has at least.
@Suite struct MemtableMemoryTests {
    private static let blockBytes = Int(sluice_memtable_block_bytes)

    @Test func rocksDBTakesItsMemtablesFromIt() throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory, memtableBytes: 64 << 20)
        defer { store.close() }
        let partition = try store.partition(0)
        let value = [UInt8](repeating: 7, count: 600)
        try store.submitted { batch in
            for offset in 0..<Int64(2000) {
                value.withUnsafeBytes {
                    batch.put(
                        partition, ItemKey(device: DeviceKey(high: UInt64(offset), low: 1), offset: offset),
                        due: 1,
                        replacingDue: nil, value: $0)
                }
            }
        }
        #expect(sluice_memtable_blocks() * Self.blockBytes >= 2000 * 600)
        #expect(sluice_memtable_bytes() >= sluice_memtable_blocks() * Self.blockBytes)
    }

    /// More than there is room for: the rest comes from the heap. Nothing is given out twice.
    @Test func blocksAreTheirOwnersAlone() throws {
        var random = SeededRandom(seed: 7)
        var blocks: [(address: UnsafeMutablePointer<UInt64>, words: Int, mark: UInt64)] = []
        func check(_ block: (address: UnsafeMutablePointer<UInt64>, words: Int, mark: UInt64)) {
            #expect(block.address[0] == block.mark && block.address[block.words - 1] == block.mark)
            sluice_memtable_delete(block.address)
        }
        for mark in UInt64(1)...6000 {
            let bytes = mark % 10 == 0 ? Int.random(in: 2...1000, using: &random) * 8 : Self.blockBytes
            let memory = try #require(sluice_memtable_new(bytes)).assumingMemoryBound(to: UInt64.self)
            memory[0] = mark
            memory[bytes / 8 - 1] = mark
            blocks.append((memory, bytes / 8, mark))
            if mark % 3 == 0 { check(blocks.remove(at: Int.random(in: 0..<blocks.count, using: &random))) }
        }
        #expect(Set(blocks.map(\.address)).count == blocks.count)
        blocks.forEach(check)
    }

    @Test func threadsDoNotGetInEachOthersWay() {
        let failures = Mutex(0)
        DispatchQueue.concurrentPerform(iterations: 4) { thread in
            var random = SeededRandom(seed: UInt64(thread))
            var blocks: [UnsafeMutablePointer<Int>] = []
            for _ in 0..<2000 {
                if blocks.count < 40, Bool.random(using: &random) || blocks.isEmpty {
                    let memory = sluice_memtable_new(Self.blockBytes)!.assumingMemoryBound(to: Int.self)
                    memory[100] = thread
                    blocks.append(memory)
                } else {
                    let memory = blocks.swapRemove(Int.random(in: 0..<blocks.count, using: &random))
                    if memory[100] != thread { failures.withLock { $0 += 1 } }
                    sluice_memtable_delete(memory)
                }
            }
            blocks.forEach { sluice_memtable_delete($0) }
        }
        #expect(failures.withLock { $0 } == 0)
    }

    /// In a process of its own, where nobody else has blocks.
    @Test func memoryThatIsNotUsedGoesBack() async {
        await #expect(processExitsWith: .success) {
            let blocks = (0..<400).map { _ in sluice_memtable_new(Int(sluice_memtable_block_bytes))! }
            #expect(sluice_memtable_blocks() == 400)
            #expect(sluice_memtable_bytes() == 100 << 20)
            for block in blocks { memset(block, 1, Int(sluice_memtable_block_bytes)) }
            blocks.forEach { sluice_memtable_delete($0) }
            #expect(sluice_memtable_blocks() == 0)
            #expect(sluice_memtable_bytes() == 16 << 20)
            let again = sluice_memtable_new(Int(sluice_memtable_block_bytes))!
            memset(again, 2, Int(sluice_memtable_block_bytes))
            #expect(sluice_memtable_bytes() == 16 << 20)
            sluice_memtable_delete(again)
        }
    }
}

extension Array {
    fileprivate mutating func swapRemove(_ index: Int) -> Element {
        swapAt(index, count - 1)
        return removeLast()
    }
}
