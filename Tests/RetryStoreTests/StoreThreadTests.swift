import Dispatch
import Foundation
import SluiceModel
import Synchronization
import TestSupport
import Testing

@testable import RetryStore

@Suite struct StoreThreadTests {
    /// Each thread replaces the items of its own devices, and must always load its last put.
    @Test func concurrentShardsLoadTheirOwnItems() throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory)
        defer { store.close() }
        let partitions = [try store.partition(0), try store.partition(1)]
        let failures = Mutex<[String]>([])
        let threads = 4
        let rounds: Int64 = 150
        let answers = Mutex(0)
        DispatchQueue.concurrentPerform(iterations: threads) { thread in
            let device = DeviceKey(high: UInt64(thread), low: 1)
            for round in 0..<rounds {
                var batch = store.makeBatch()
                for (number, partition) in partitions.enumerated() {
                    withUnsafeBytes(of: round) {
                        batch.put(
                            partition, ItemKey(device: device, offset: 1), due: round * 10 + Int64(number),
                            replacingDue: round == 0 ? nil : (round - 1) * 10 + Int64(number), value: $0)
                    }
                    batch.load(partition, device)
                }
                store.submit(batch) { result in
                    let dues = result.loads.map { load in result.items[load.items].map(\.due) }
                    if result.error != nil || dues != [[round * 10], [round * 10 + 1]] {
                        failures.withLock { $0.append("thread \(thread), round \(round): \(dues)") }
                    }
                    answers.withLock { $0 += 1 }
                }
                if round % 10 == 0 {
                    store.sync { error in
                        if let error { failures.withLock { $0.append("\(error)") } }
                        answers.withLock { $0 += 1 }
                    }
                }
            }
        }
        let expected = threads * Int(rounds + rounds / 10)
        try eventually("all completions") { answers.withLock { $0 } == expected }
        #expect(failures.withLock { $0 } == [])
        #expect(store.queuedBytes == 0)
        for (number, partition) in partitions.enumerated() {
            #expect(
                try store.due(partition).entries.map(\.due)
                    == Array(repeating: (rounds - 1) * 10 + Int64(number), count: threads))
        }
    }

    /// Otherwise the store's thread, which writes each batch to the log, would share its core with them.
    @Test func rocksDBBackgroundThreadsHaveLowerPriority() throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory)
        defer { store.close() }
        // A thread sets its name when it begins.
        #expect(try store.synced() == nil)
        var niceness: [String: [Int32]] = [:]
        for thread in try FileManager.default.contentsOfDirectory(atPath: "/proc/self/task") {
            // A thread of another test may have ended meanwhile.
            guard let line = try? String(contentsOfFile: "/proc/self/task/\(thread)/stat", encoding: .utf8),
                let name = line.firstIndex(of: "("), let end = line.lastIndex(of: ")")
            else { continue }
            let fields = line[line.index(after: end)...].split(separator: " ")
            niceness[String(line[line.index(after: name)..<end]), default: []].append(
                try #require(Int32(fields[16])))
        }
        let own = try #require(niceness["store"]?.first)
        for name in ["rocksdb:high", "rocksdb:low"] {
            #expect(Set(niceness[name] ?? []) == [own + BackgroundThreads.niceness], "\(name)")
        }
    }

    @Test func completionsFollowTheOrderOfCalls() throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory)
        defer { store.close() }
        let partition = try store.partition(0)
        let order = Mutex<[Int]>([])
        for number in 0..<100 {
            if number % 2 == 0 {
                var batch = store.makeBatch()
                batch.load(partition, DeviceKey(high: 1, low: 1))
                store.submit(batch) { _ in order.withLock { $0.append(number) } }
            } else {
                store.scanDue(partition, after: nil, through: .max, limit: 1) { _ in
                    order.withLock { $0.append(number) }
                }
            }
        }
        try eventually("all completions") { order.withLock { $0.count } == 100 }
        #expect(order.withLock { $0 } == Array(0..<100))
    }
}
