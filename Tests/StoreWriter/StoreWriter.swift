import EventLoop
import Glibc
import RetryStore
import SluiceModel
import Synchronization

/// A process that has a store open, for tests that kill it, fill its disk, or open the same directory.
///
///   sluice-store-writer hold DIRECTORY   opens the store, prints `open`, and keeps it
///   sluice-store-writer write DIRECTORY  puts items of 600 bytes, ten to a batch, and prints `synced N` when the
///                                        first N are on the disk; `failed CASE` when the store fails
///
/// The process ends with its standard input, without closing the store.
@main
struct StoreWriter {
    static func main() {
        guard CommandLine.arguments.count == 3 else { exit(64) }
        let (mode, directory) = (CommandLine.arguments[1], CommandLine.arguments[2])
        endWithInput()
        var settings = RetryStore.Settings(directory: directory, sourceTopic: "jobs")
        settings.memtableBytes = 1 << 20
        settings.blockCacheBytes = 1 << 20
        do throws(RetryStoreError) {
            let store = try RetryStore(settings)
            printLine("open")
            if mode == "write" { write(to: store) }
            while true { pause() }
        } catch {
            printLine("failed \(error)")
            exit(1)
        }
    }

    private static func write(to store: RetryStore) {
        let partition = wait { done in store.open(partition: 0) { done($0) } }
        guard case .success(let partition) = partition else { return printLine("failed \(partition)") }
        let value = [UInt8](repeating: 7, count: 600)
        store.observeFailures { if let error = $0 { printLine("failed \(error)") } }
        var next: Int64 = 0
        while true {
            let first = next
            var batch = store.makeBatch()
            for offset in first..<first + 10 {
                let key = ItemKey(device: DeviceKey(high: UInt64(offset) % 7, low: 1), offset: offset)
                value.withUnsafeBytes { batch.put(partition, key, due: offset, replacingDue: nil, value: $0) }
            }
            let written = BlockingAnswer<RetryStoreError?>()
            store.submit(batch) { written.set($0.error) }
            if let error = written.wait() ?? wait({ done in store.sync { done($0) } }) {
                return printLine("failed \(error)")
            }
            next += 10
            printLine("synced \(next)")
        }
    }

    private static func endWithInput() {
        var thread = pthread_t()
        pthread_create(
            &thread, nil,
            { _ in
                var byte: UInt8 = 0
                while read(0, &byte, 1) > 0 {}
                _exit(0)
            }, nil)
    }

    private static func printLine(_ line: String) {
        let text = line + "\n"
        _ = text.withCString { Glibc.write(1, $0, strlen($0)) }
    }

    private static func wait<Value: Sendable>(
        _ begin: (@escaping @Sendable (Value) -> Void) -> Void
    ) -> Value {
        let answer = BlockingAnswer<Value>()
        begin { answer.set($0) }
        return answer.wait()
    }
}
