#if RocksDBTuning
import CRocksDBTuning
import Foundation
import RetryStore
import SluiceModel
import Synchronization
import TestSupport
import Testing

/// Each test runs in a process of its own, where no other code holds blocks.
@Suite struct MemtableMemoryTests {
    @Test func rocksDBAllocatesMemtablesFromTheBlocks() async {
        await #expect(processExitsWith: .success) {
            let directory = try TemporaryDirectory("store")
            let store = try RetryStore.make(directory, memtableBytes: 64 << 20)
            do {
                let partition = try store.partition(0)
                let before = sluice_memtable_blocks()
                let value = [UInt8](repeating: 7, count: 600)
                try store.submitted { batch in
                    for offset in 0..<Int64(2000) {
                        let key = ItemKey(device: DeviceKey(high: UInt64(offset), low: 1), offset: offset)
                        value.withUnsafeBytes {
                            batch.put(partition, key, due: 1, replacingDue: nil, value: $0)
                        }
                    }
                }
                #expect((sluice_memtable_blocks() - before) * blockBytes >= 2000 * 600)
            }
            store.close()
            #expect(sluice_memtable_blocks() == 0)
        }
    }

    /// Allocates more blocks than fit. The heap provides the rest.
    @Test func blocksAreNeverHandedOutTwice() async {
        await #expect(processExitsWith: .success) {
            var random = SeededGenerator(seed: 7)
            var blocks: [Block] = []
            for mark in UInt64(1)...6000 {
                let bytes = mark % 10 == 0 ? Int.random(in: 2...1000, using: &random) * 8 : blockBytes
                blocks.append(Block(bytes: bytes, mark: mark))
                if mark % 3 == 0 {
                    let block = blocks.swapRemove(Int.random(in: 0..<blocks.count, using: &random))
                    #expect(block.isUntouched)
                    block.free()
                }
            }
            #expect(sluice_memtable_bytes() == 512 << 20)
            for block in blocks {
                #expect(block.isUntouched)
                block.free()
            }
            #expect(sluice_memtable_blocks() == 0)
        }
    }

    @Test func threadsAllocateBlocksIndependently() async {
        await #expect(processExitsWith: .success) {
            let failures = Mutex(0)
            DispatchQueue.concurrentPerform(iterations: 4) { thread in
                var random = SeededGenerator(seed: UInt64(thread))
                var blocks: [Block] = []
                for _ in 0..<2000 {
                    if blocks.count < 40, Bool.random(using: &random) || blocks.isEmpty {
                        blocks.append(Block(bytes: blockBytes, mark: UInt64(thread)))
                    } else {
                        let block = blocks.swapRemove(Int.random(in: 0..<blocks.count, using: &random))
                        if !block.isUntouched { failures.withLock { $0 += 1 } }
                        block.free()
                    }
                }
                for block in blocks { block.free() }
            }
            #expect(failures.withLock { $0 } == 0)
            #expect(sluice_memtable_blocks() == 0)
        }
    }

    @Test func unusedMemoryIsReturned() async {
        await #expect(processExitsWith: .success) {
            let count = 400
            let blocks = (0..<count).map { Block(bytes: blockBytes, mark: UInt64($0)) }
            #expect(sluice_memtable_blocks() == count)
            #expect(sluice_memtable_bytes() == count * blockBytes)
            for block in blocks { block.free() }
            #expect(sluice_memtable_blocks() == 0)
            #expect(sluice_memtable_bytes() == 16 << 20)
            let again = Block(bytes: blockBytes, mark: 1)
            #expect(again.isUntouched)
            #expect(sluice_memtable_bytes() == 16 << 20)
            again.free()
        }
    }
}

private let blockBytes = Int(sluice_memtable_block_bytes)

/// Has its mark in its first and last word.
private struct Block {
    private let address: UnsafeMutablePointer<UInt64>
    private let last: Int
    private let mark: UInt64

    init(bytes: Int, mark: UInt64) {
        address = sluice_memtable_new(bytes)!.assumingMemoryBound(to: UInt64.self)
        last = bytes / 8 - 1
        self.mark = mark
        address[0] = mark
        address[last] = mark
    }

    var isUntouched: Bool { address[0] == mark && address[last] == mark }

    func free() { sluice_memtable_delete(address) }
}

extension Array {
    fileprivate mutating func swapRemove(_ index: Int) -> Element {
        swapAt(index, count - 1)
        return removeLast()
    }
}
#endif
