import ArgumentParser
import EventLoop
import RetryStore
import SluiceModel
import StoreEncryption

extension StoreCommand {
    /// Compares encrypted and plain items: the processor time of puts and loads, and the cipher by itself.
    struct Encryption: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract:
                "Encrypted and plain items in turns; prints the processor time of an item's put and load.")

        @OptionGroup var shape: Shape
        @Option(help: "Rounds; each has a plain and an encrypted part.") var rounds = 5

        func validate() throws {
            try shape.requireNewDirectory()
            guard rounds > 0 else { throw ValidationError("--rounds must be at least 1") }
        }

        func run() throws {
            defer { removeDirectory(shape.directory) }
            let key = [UInt8](repeating: 7, count: StoreKey.count).withUnsafeBytes {
                StoreKey(name: "2026-11", $0)
            }
            guard let key else { throw LoadError(description: "OpenSSL has no memory for a key") }
            var settings = shape.settings
            settings.keyring = StoreKeyring(primary: key)
            let cipher = try ValueCipher(StoreKeyring(primary: key))
            var load = try EncryptionLoad(settings, items: shape.items, cipher)
            // Warms up what both use.
            _ = try load.run(isEncrypted: true)
            var (plain, sealed): ([Double], [Double]) = ([], [])
            for round in 0..<rounds {
                for isEncrypted in round % 2 == 0 ? [false, true] : [true, false] {
                    let cost = try load.run(isEncrypted: isEncrypted)
                    if isEncrypted { sealed.append(cost) } else { plain.append(cost) }
                }
            }
            let ratios = zip(sealed, plain).map { $0 / $1 }.sorted()
            figure("encrypted_put_load_cpu_ratio", ratios[ratios.count / 2], "ratio")
            figure("encrypted_put_load_cpu_ratio_least", ratios[0], "ratio")
            figure("encrypted_put_load_cpu_ratio_greatest", ratios[ratios.count - 1], "ratio")
            figure("put_load_cpu_us", plain.sorted()[plain.count / 2], "µs")
            figure("encrypted_put_load_cpu_us", sealed.sorted()[sealed.count / 2], "µs")
            let (sealing, opening) = try load.cipherAlone(1_000_000)
            figure("seal_ns", sealing, "ns")
            figure("open_ns", opening, "ns")
            figure("sealed_overhead_bytes", Double(SealedValue.overhead(of: key)), "bytes")
            load.close()
        }
    }
}

/// Puts and loads items as a shard does with a changelog: encoded once, decoded at the load.
private struct EncryptionLoad: ~Copyable {
    private let store: RetryStore
    private let jobs: StoreJobs
    private let cipher: ValueCipher
    private let gate = BatchGate()
    private var value = ByteWriter(minimumCapacity: 1024)
    private var scratch = ByteWriter(minimumCapacity: 1024)
    private var nextPartition: Int32 = 0

    private static let batch = 500
    private static let devicesAtOnce = 50

    init(_ settings: RetryStore.Settings, items: Int, _ cipher: ValueCipher) throws {
        store = try RetryStore(settings)
        jobs = StoreJobs(items: items, partitions: 1, hasher: store.hasher)
        self.cipher = cipher
    }

    func close() { store.close() }

    /// Puts all items into a new partition, loads them by device, and drops them. Returns the processor time of all
    /// threads for an item, in microseconds.
    mutating func run(isEncrypted: Bool) throws -> Double {
        let number = nextPartition
        nextPartition += 1
        let partition = try wait { [store] done in store.open(partition: number) { done($0) } }.get()
        let before = ProcessUsage.read().cpuSeconds
        try put(partition, isEncrypted)
        try load(partition)
        let cost = (ProcessUsage.read().cpuSeconds - before) / Double(jobs.items) * 1e6
        if let error = wait({ [store] done in store.drop(partition) { done($0) } }) { throw error }
        return cost
    }

    private mutating func put(_ partition: StorePartition, _ isEncrypted: Bool) throws {
        var item = 0
        while item < jobs.items {
            let end = min(item + Self.batch, jobs.items)
            var batch = store.makeBatch()
            for item in item..<end {
                let identity = jobs.key(item)
                let due = jobs.due(item, state: 0)
                value.removeAll()
                var start = 0
                var failure: CipherFailure?
                jobs.withPush(item, identity, attempts: 1) { push in
                    guard isEncrypted else {
                        start = ChangelogKey.encode(push, due: due, into: &value)
                        return
                    }
                    do throws(CipherFailure) {
                        start = try ChangelogKey.encode(
                            push, due: due, sealedBy: cipher, scratch: &scratch, into: &value)
                    } catch {
                        failure = error
                    }
                }
                if let failure { throw failure }
                batch.put(
                    partition, ItemKey(device: identity.device, offset: identity.offset), due: due,
                    replacingDue: nil, value: UnsafeRawBufferPointer(rebasing: value.bytes[start...]))
            }
            gate.enter()
            store.submit(batch) { [gate] result in gate.leave(result.error) }
            item = end
        }
        gate.waitUntilEmpty()
        if let error = wait({ [store] done in store.sync { done($0) } }) { throw error }
        if let error = gate.error { throw error }
    }

    private mutating func load(_ partition: StorePartition) throws {
        var found = 0
        for first in stride(from: 0, to: jobs.devices, by: Self.devicesAtOnce) {
            var batch = store.makeBatch()
            for device in first..<min(first + Self.devicesAtOnce, jobs.devices) {
                batch.load(partition, jobs.deviceKey(device))
            }
            let answer = BlockingAnswer<BatchResult>()
            store.submit(batch) { answer.set($0) }
            let result = answer.wait()
            if let error = result.error { throw error }
            for item in result.items {
                try decode(result.push(item), offset: item.offset)
                found += 1
            }
        }
        guard found == jobs.items else {
            throw LoadError(description: "\(found) items of \(jobs.items) were loaded")
        }
    }

    private mutating func decode(_ bytes: UnsafeRawBufferPointer, offset: Int64) throws {
        var plain = bytes
        if SealedValue.isSealed(bytes) {
            scratch.removeAll()
            try cipher.open(bytes, at: .item(partition: 0, offset: offset), into: &scratch)
            plain = scratch.bytes
        }
        let isRight = try withUnsafeTemporaryAllocation(byteCount: StoredPush.longestToken, alignment: 1) {
            try StoredPush(decoding: plain, tokenText: $0).offset == offset
        }
        guard isRight else { throw LoadError(description: "a push belongs to another record") }
    }

    /// Encrypts and decrypts a push of the usual size. Returns nanoseconds of processor time of both.
    mutating func cipherAlone(_ count: Int) throws -> (seal: Double, open: Double) {
        value.removeAll()
        jobs.withPush(1, jobs.key(1), attempts: 1) { $0.encode(into: &value) }
        var sealed = ByteWriter(minimumCapacity: 1024)
        var plain = ByteWriter(minimumCapacity: 1024)
        let place = ValuePlace.item(partition: 0, offset: 1)
        let from = ProcessUsage.read().cpuSeconds
        for _ in 0..<count {
            sealed.removeAll()
            try cipher.seal(value.bytes, at: place, into: &sealed)
        }
        let middle = ProcessUsage.read().cpuSeconds
        for _ in 0..<count {
            plain.removeAll()
            try cipher.open(sealed.bytes, at: place, into: &plain)
        }
        let end = ProcessUsage.read().cpuSeconds
        guard plain.bytes.elementsEqual(value.bytes) else {
            throw LoadError(description: "a decrypted push differs")
        }
        return ((middle - from) / Double(count) * 1e9, (end - middle) / Double(count) * 1e9)
    }

    private func wait<Value: Sendable>(
        _ begin: (@escaping @Sendable (Value) -> Void) -> Void
    ) -> Value {
        let answer = BlockingAnswer<Value>()
        begin { answer.set($0) }
        return answer.wait()
    }
}
