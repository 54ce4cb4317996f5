import Configuration
import EventLoop
import Foundation
import KafkaTestSupport
import RetryStore
import SluiceModel
import StoreEncryption
import TestSupport
import Testing

@testable import Gateway

/// Workers whose store and changelog are encrypted.
struct StoreEncryptionWorkerTests {
    private static let keyA = "a " + Data(repeating: 1, count: 32).base64EncodedString()
    private static let keyB = "b " + Data(repeating: 2, count: 32).base64EncodedString()
    private static let otherA = "a " + Data(repeating: 9, count: 32).base64EncodedString()
    private static let secret = "a secret text"

    private func worker(
        _ bed: WorkerBed, _ directory: String, keys: String?, changelog: Configuration.Store.Switch = .on,
        encrypt: Configuration.Store.Switch = .on, log: LogRecorder = LogRecorder()
    ) throws -> Worker {
        let file = try keys.map { try bed.directory.write($0 + "\n", to: "keys-\(directory)") }
        return try bed.worker(log: log) {
            $0.store = .init(
                directory: bed.directory.file(directory), after: .seconds(1), changelog: changelog,
                transactions: .off, encryption: file.map { .init(keyFile: $0, encrypt: encrypt) })
            $0.delivery.shards = 2
        }
    }

    private func devices(_ count: Int, seed: UInt64) -> [String] {
        var random = SeededGenerator(seed: seed)
        return (0..<count).map { _ in random.hexadecimal(bytes: 32) }
    }

    private func hold(_ bed: WorkerBed, _ devices: [String]) throws {
        try bed.produce(
            try devices.map { try event("offline", of: $0) }
                + devices.map { held("\(Self.secret) for \($0.prefix(8))", to: $0) { $0.ttl = 3600 } })
    }

    /// Holds pushes until all are in the store.
    private func store(_ bed: WorkerBed, _ worker: Worker, _ devices: [String], all: Int) throws {
        try hold(bed, devices)
        try bed.waitForOutcomes(all)
        try worker.waitUntilEvicted(devices: all)
    }

    private func has(_ bytes: [UInt8], _ text: String) -> Bool {
        Data(bytes).range(of: Data(text.utf8)) != nil
    }

    /// Returns the names of the items' keys with their numbers; the empty name stands for items in clear.
    private func keys(_ bed: WorkerBed, _ directory: String) throws -> [String: Int] {
        let reader = try StoreInspector(directory: bed.directory.file(directory)).reader
        var names: [String: Int] = [:]
        for partition in reader.partitions {
            try reader.visitItems(of: partition) { item in
                names[item.keyName ?? "", default: 0] += 1
                return true
            }
        }
        return names
    }

    /// Sends the held pushes of all devices, each once.
    private func release(_ bed: WorkerBed, _ worker: Worker, _ devices: [String], outcomes: Int) throws {
        try bed.produce(try devices.map { try event("online", of: $0) })
        let ended = try bed.waitForOutcomes(outcomes + 2 * devices.count)
        let accepted = ended.filter { $0.kind == .accepted }
        #expect(Set(accepted.map(\.deviceToken)).isSuperset(of: devices))
        #expect(worker.snapshot().totals.unaccounted == 0)
        #expect(worker.snapshot().totals.store.undecryptable == 0)
    }

    /// Runs `sluice inspect store` with and without the key file, on a store of 30 devices with one item each.
    private func inspect(_ bed: WorkerBed, _ directory: String, device: String) throws {
        func inspect(_ arguments: String...) throws -> String {
            let result = try ChildProcess.run(
                Executables.sluice, ["inspect", "store", bed.directory.file(directory)] + arguments)
            #expect(result.exit == .status(0), "\(result.standardError)")
            return result.standardOutput
        }
        let file = bed.directory.file("keys-\(directory)")
        let blind = try inspect("--json")
        #expect(blind.contains(#""keys":{"a":60}"#) && blind.contains(#""locked":30"#))
        #expect(!blind.contains(newsTopic))
        #expect(try inspect().contains("30: name the key file with --key-file"))
        #expect(try inspect("--verify").contains("60 encrypted values not checked"))
        let open = try inspect("--json", "--key-file", file)
        #expect(open.contains(#""locked":0"#) && open.contains(#""\#(newsTopic)":30"#))
        #expect(try inspect("--verify", "--key-file", file).hasSuffix("sound\n"))
        #expect(try inspect("--device", device, "--key-file", file).contains("key=a"))
        let wrong = try ChildProcess.run(
            Executables.sluice,
            ["inspect", "store", bed.directory.file(directory), "--key-file", bed.directory.file("none")])
        #expect(wrong.exit != .status(0) && wrong.standardError.contains("does not exist"))
    }

    @Test func heldPushesAreEncryptedInStoreAndChangelog() throws {
        try withBed { bed in
            let first = try worker(bed, "first", keys: Self.keyA)
            let devices = devices(30, seed: 3001)
            try store(bed, first, devices, all: 30)
            bed.stop(first)
            #expect(try keys(bed, "first") == ["a": 30])
            try inspect(bed, "first", device: devices[0])

            let changelog = try TopicReader(bed.kafka, "changelog", partitions: WorkerBed.partitions)
            try eventually("the changelog has the items and the devices") {
                changelog.poll()
                return changelog.records.count >= 60
            }
            let values = changelog.records.compactMap(\.value)
            #expect(values.allSatisfy { !has($0, Self.secret) && !has($0, newsTopic) })
            // On a busy machine a push is put again when its wait changes.
            let sealed = changelog.records.filter {
                $0.value.map { $0.count > 8 && $0[8] == SealedValue.version } ?? false
            }
            #expect(Set(sealed.map(\.key)).count == 30)

            // A worker without a copy restores from the changelog.
            let second = try worker(bed, "second", keys: Self.keyA)
            try second.waitUntilEvicted(devices: 30)
            try release(bed, second, devices, outcomes: 30)
            bed.stop(second)
            #expect(try keys(bed, "second") == [:])
            #expect(bed.simulator.summary.requests == 30)
        }
    }

    @Test(arguments: [(otherA, "another key"), (keyB, "which the key file lacks"), (nil, "no key file")])
    func restoreWithoutTheKeyEndsTheWorker(keys: String?, text: String) throws {
        try withBed { bed in
            let first = try worker(bed, "first", keys: Self.keyA)
            let devices = devices(6, seed: 3002)
            try store(bed, first, devices, all: 6)
            bed.stop(first)

            let wrong = try worker(bed, "second", keys: keys)
            let failure = bed.waitUntilStopped(wrong, mayFail: true).failure
            #expect(failure?.reason.contains(text) == true, "\(failure?.reason ?? "no failure")")
            #expect(failure?.startsOver == false)
            // A local copy without its key is restored as well. A key with other bytes is refused before anything is
            // connected.
            if keys == Self.otherA {
                #expect(throws: WorkerError.self) { try worker(bed, "first", keys: keys) }
            } else {
                let copy = bed.waitUntilStopped(try worker(bed, "first", keys: keys), mayFail: true)
                #expect(copy.failure?.reason.contains(text) == true, "\(copy)")
            }

            let right = try worker(bed, "third", keys: Self.keyA)
            try right.waitUntilEvicted(devices: 6)
            try release(bed, right, devices, outcomes: 6)
        }
    }

    /// The topic keeps values of ended pushes until it is compacted. Such values need no key.
    @Test func valuesOfEndedPushesNeedNoKey() throws {
        try withBed { bed in
            let first = try worker(bed, "first", keys: Self.keyA)
            let devices = devices(6, seed: 3007)
            try store(bed, first, devices, all: 6)
            try release(bed, first, devices, outcomes: 6)
            bed.stop(first)
            let second = try worker(bed, "second", keys: Self.keyB)
            try hold(bed, devices)
            try bed.waitForOutcomes(18 + 6)
            try second.waitUntilEvicted(devices: 6)
            bed.stop(second)
            #expect(try keys(bed, "second") == ["b": 6])
        }
    }

    /// The key file changes while pushes are stored and sent. Each push is sent once.
    @Test(arguments: [Configuration.Store.Switch.on, .off])
    func keysRotateUnderLoad(changelog: Configuration.Store.Switch) throws {
        try withBed { bed in
            let log = LogRecorder()
            let first = try worker(bed, "store", keys: Self.keyA, changelog: changelog, log: log)
            let devices = devices(90, seed: 3003)
            try store(bed, first, Array(devices[..<30]), all: 30)

            try bed.directory.write("b not-a-key\n", to: "keys-store")
            first.renewCredentials()
            #expect(log.messages.count(containing: "line 1 needs the Base64 text") == 1)
            #expect(first.storeKeyReport?.fault != nil && first.storeKeyReport?.names == ["a"])
            try bed.directory.write("\(Self.otherA)\n", to: "keys-store")
            first.renewCredentials()
            #expect(first.storeKeyReport?.fault?.contains("other bytes than before") == true)

            try hold(bed, Array(devices[30..<60]))
            try bed.directory.write("\(Self.keyB)\n\(Self.keyA)\n", to: "keys-store")
            first.renewCredentials()
            let report = try #require(first.storeKeyReport)
            #expect(report.names == ["b", "a"] && report.fault == nil && report.renewals == 1)
            try store(bed, first, Array(devices[60...]), all: 90)

            // A key that leaves the file decrypts until the end of the worker.
            try bed.directory.write("\(Self.keyB)\n", to: "keys-store")
            try eventually("the worker has noticed the change by itself") {
                first.storeKeyReport?.kept == ["a"]
            }
            try release(bed, first, Array(devices[..<10]), outcomes: 90)
            bed.stop(first)
            let names = try keys(bed, "store")
            #expect((names["a"] ?? 0) >= 20 && (names["b"] ?? 0) >= 30)
            #expect((names["a"] ?? 0) + (names["b"] ?? 0) == 80)

            if changelog == .off {
                #expect(throws: WorkerError.self) {
                    try worker(bed, "store", keys: Self.keyB, changelog: changelog)
                }
            } else {
                let ended = bed.waitUntilStopped(
                    try worker(bed, "store", keys: Self.keyB, changelog: changelog), mayFail: true)
                #expect(ended.failure?.reason.contains("which the key file lacks") == true, "\(ended)")
            }
            let second = try worker(bed, "store", keys: "\(Self.keyB)\n\(Self.keyA)", changelog: changelog)
            try release(bed, second, Array(devices[10...]), outcomes: 110)
            bed.stop(second)
            #expect(bed.simulator.summary.requests == 90)
            #expect(try keys(bed, "store") == [:])
        }
    }

    /// Six keys follow each other while pushes are stored, loaded and sent without a pause.
    @Test func keysRotateAtFullSpeed() throws {
        try withBed { bed in
            let worker = try worker(bed, "store", keys: Self.keyA)
            var (lines, random) = ([Self.keyA], SeededGenerator(seed: 3008))
            let (rounds, size) = (6, 500)
            let devices = devices(rounds * size, seed: 3009)
            for round in 0..<rounds {
                let own = Array(devices[(round * size)..<((round + 1) * size)])
                try hold(bed, own)
                lines.insert(
                    "key-\(round) "
                        + Data((0..<32).map { _ in UInt8.random(in: 0...255, using: &random) })
                        .base64EncodedString(), at: 0)
                try bed.directory.write(lines.joined(separator: "\n") + "\n", to: "keys-store")
                worker.renewCredentials()
                #expect(worker.storeKeyReport?.names.count == round + 2)
                // The store has pushes of the round before, under an older key. Pushes of this round follow.
                if round > 0 {
                    try eventually("pushes are stored") {
                        worker.snapshot().totals.evictedDevices >= size / 2
                    }
                    let before = devices[((round - 1) * size)..<(round * size)]
                    try bed.produce(before.map { try event("online", of: $0) })
                }
            }
            try worker.waitUntilEvicted(devices: size)
            try release(bed, worker, Array(devices.suffix(size)), outcomes: (3 * rounds - 2) * size)
            let outcomes = bed.readOutcomes()
            let accepted = outcomes.filter { $0.kind == .accepted }.map(\.deviceToken)
            #expect(accepted.count == devices.count && Set(accepted) == Set(devices))
            #expect(worker.storeKeyReport?.renewals == rounds && worker.storeKeyReport?.fault == nil)
            bed.stop(worker)
            #expect(try keys(bed, "store") == [:])
            #expect(bed.simulator.summary.requests == devices.count)
        }
    }

    /// Another worker writes under a key that this worker gets later. The restore reads the key file anew.
    @Test func restoreReadsTheKeyFileAnew() throws {
        try withBed { bed in
            let first = try worker(bed, "first", keys: Self.keyA)
            let devices = devices(6, seed: 3004)
            try store(bed, first, devices, all: 6)
            bed.stop(first)

            let second = try worker(bed, "second", keys: Self.keyB)
            // Written before the worker has joined the group.
            try bed.directory.write("\(Self.keyB)\n\(Self.keyA)\n", to: "keys-second")
            try second.waitUntilEvicted(devices: 6)
            #expect(second.storeKeyReport?.names == ["b", "a"])
            try release(bed, second, devices, outcomes: 6)
        }
    }

    @Test func encryptionIsTurnedOnAndOffOverAStore() throws {
        try withBed { bed in
            let devices = devices(20, seed: 3005)
            let first = try worker(bed, "store", keys: nil, changelog: .off)
            try store(bed, first, Array(devices[..<10]), all: 10)
            bed.stop(first)

            let second = try worker(bed, "store", keys: Self.keyA, changelog: .off)
            try store(bed, second, Array(devices[10...]), all: 20)
            bed.stop(second)
            #expect(try keys(bed, "store") == ["": 10, "a": 10])
            #expect(throws: WorkerError.self) { try worker(bed, "store", keys: nil, changelog: .off) }

            // The keys only decrypt: what is written from now on is in clear.
            let third = try worker(bed, "store", keys: Self.keyA, changelog: .off, encrypt: .off)
            try release(bed, third, Array(devices[10...]), outcomes: 20)
            try hold(bed, Array(devices[10...]))
            try bed.waitForOutcomes(20 + 20 + 10)
            try third.waitUntilEvicted(devices: 20)
            bed.stop(third)
            #expect(try keys(bed, "store") == ["": 20])
            let last = try worker(bed, "store", keys: nil, changelog: .off)
            try release(bed, last, devices, outcomes: 50)
            bed.stop(last)
            #expect(bed.simulator.summary.requests == 30)
        }
    }

    /// A value that can't be decrypted stays in the store, is counted, and affects no other push.
    @Test func damagedValueStaysInTheStore() throws {
        try withBed { bed in
            let devices = devices(4, seed: 3006)
            let first = try worker(bed, "store", keys: Self.keyA, changelog: .off)
            try store(bed, first, devices, all: 4)
            bed.stop(first)
            try damage(bed, devices[0])

            let log = LogRecorder()
            let second = try worker(bed, "store", keys: Self.keyA, changelog: .off, log: log)
            try bed.produce(try devices.map { try event("online", of: $0) })
            let outcomes = try bed.waitForOutcomes(4 + 4 + 3)
            #expect(Set(outcomes.filter { $0.kind == .accepted }.map(\.deviceToken)) == Set(devices[1...]))
            #expect(second.snapshot().totals.store.undecryptable > 0)
            #expect(log.messages.count(containing: "can't be decrypted; it stays in the store") > 0)
            bed.stop(second)
            #expect(try keys(bed, "store") == ["a": 1])
        }
    }

    /// Flips a bit of a device's item.
    private func damage(_ bed: WorkerBed, _ device: String) throws {
        var settings = RetryStore.Settings(
            directory: bed.directory.file("store"), sourceTopic: bed.kafka.topic("jobs"))
        settings.keyring = try StoreKeyFile.read(bed.directory.file("keys-store"))
        let store = try RetryStore(settings)
        defer { store.close() }
        var token = device
        let key = token.withUTF8 { store.hasher.device(UnsafeRawBufferPointer($0)) }
        for partition in store.partitions {
            let isDone = BlockingFlag()
            var batch = store.makeBatch()
            batch.load(partition, key)
            store.submit(batch) { result in
                var changes = store.makeBatch()
                for item in result.items {
                    var bytes = Array(result.push(item))
                    bytes[bytes.count - 20] ^= 1
                    bytes.withUnsafeBytes {
                        changes.put(
                            partition, ItemKey(device: key, offset: item.offset), due: item.due,
                            replacingDue: item.due, value: $0)
                    }
                }
                store.submit(changes) { _ in isDone.set() }
            }
            isDone.wait()
        }
    }
}
