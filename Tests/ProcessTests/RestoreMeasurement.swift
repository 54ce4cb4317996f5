import Foundation
import Kafka
import KafkaTestSupport
import SluiceModel
import TestSupport
import Testing

/// How long a worker takes to restore many held pushes from the changelog.
@Suite("Restoring, measured")
struct RestoreMeasurement {
    private static let items = ProcessInfo.processInfo.environment["SLUICE_TEST_RESTORE_ITEMS"].flatMap {
        Int($0)
    }

    /// SLUICE_TEST_RESTORE_ITEMS=1000000, and SLUICE_TEST_RESTORE_SLUICE=…/release/sluice: a debug build says little. The
    /// embedded cluster keeps 5 MB of a partition, so the changelog has many, and is compressed.
    @Test(.enabled(if: items != nil, "a measurement: SLUICE_TEST_RESTORE_ITEMS=1000000"))
    func measure() throws {
        let items = Self.items!
        let partitions = max(4, items / 25_000)
        let bed = try ReplicaBed(partitions: partitions)
        if let path = ProcessInfo.processInfo.environment["SLUICE_TEST_RESTORE_SLUICE"] {
            bed.executable = path
        }
        let began = ContinuousClock.now
        let bytes = try produce(items, bed)
        print(
            "\(items) items, \(bytes / items) bytes each, in \(ContinuousClock.now - began) in the changelog")
        let read = try read(items, bed)
        print("reading them alone: \(read.formatted()) items/s")
        try bed.start(["one"])
        let lines = bed.replicas["one"]!.lines
        let start = try #require(lines.first { $0.message == "worker started" }).time
        let restored = lines.filter { $0.message == "restored" }
        let end = try #require(restored.last).time
        #expect(restored.count == partitions)
        if let begin = lines.first(where: { $0.message.hasPrefix("partitions come") })?.time {
            let rate = items * 1_000 / max(1, Int(end - begin))
            print(
                """
                restored in \(end - begin) ms, \(rate) items/s, the opening of \(partitions) partitions included; the \
                first of them after \(restored[0].time - begin) ms
                """)
        }
        for line in lines where line.message.hasPrefix("restor") && line.fields["remaining"] != nil {
            print("  +\(line.time - start) ms \(line.fields)")
        }
        try bed.stopAll()
    }

    private func produce(_ items: Int, _ bed: ReplicaBed) throws -> Int {
        let kafka = bed.installation.kafka
        var properties = KafkaProperties(bootstrapServers: kafka.bootstrapServers)
        properties["compression.type"] = "lz4"
        properties["linger.ms"] = "50"
        properties["batch.size"] = "1000000"
        let producer = try KafkaProducer(properties: properties)
        let topic = try producer.topic(kafka.topic("changelog"))
        var random = SeededRandom(seed: 7)
        var bytes = 0
        let partitions = bed.installation.partitions
        let value = try value(now: bed.now)
        for number in 0..<items {
            let token = random.hexadecimal(bytes: 32)
            let offset = Int64(number / partitions)
            var key: [UInt8] = [1]
            withUnsafeBytes(of: offset.bigEndian) { key += $0 }
            key += token.utf8
            bytes += key.count + value.count
            while true {
                let result = key.withUnsafeBytes { key in
                    value.withUnsafeBytes { value in
                        producer.produce(
                            topic, key: key, value: value, opaque: 0, partition: Int32(number % partitions))
                    }
                }
                if case .queued = result { break }
                if case .failed(let error) = result { throw error }
                producer.pollDeliveryReports(timeoutMilliseconds: 20) { _ in }
            }
            if number % 1_000 == 0 { producer.pollDeliveryReports { _ in } }
        }
        try producer.flush(timeoutMilliseconds: 120_000) { _ in }
        producer.close()
        return bytes
    }

    /// What a worker writes for a push that is held for a day. Restoring copies it as it is, so one does for all items.
    private func value(now: Int64) throws -> [UInt8] {
        let token = String(repeating: "a1b2", count: 16)
        let job = Array(
            """
            {"kind":"push","device-token":"\(token)","topic":"com.example.news",\
            "push-type":"alert","collapse-id":"kept","delivery":"hold-while-offline",\
            "expiration":\(now / 1_000 + 86_400),"payload":{"aps":{"alert":"Hi"}}}
            """.utf8)
        var decoder = JobDecoder()
        var writer = ByteWriter()
        withUnsafeBytes(of: (now + 86_400_000).bigEndian) { writer.append($0) }
        // For the length of the decoding and encoding.
        func copy(_ text: some Sequence<UInt8>) -> UnsafeRawBufferPointer {
            let text = Array(text)
            let bytes = UnsafeMutableRawBufferPointer.allocate(byteCount: text.count, alignment: 1)
            bytes.copyBytes(from: text)
            return UnsafeRawBufferPointer(bytes)
        }
        let (key, value) = (copy(token.utf8), copy(job))
        let (name, type) = (copy("content-type".utf8), copy("application/json".utf8))
        defer { for bytes in [key, value, name, type] { bytes.deallocate() } }
        try [RecordHeader(name: name, value: type)].withUnsafeBufferPointer { headers in
            let decoded = try decoder.decode(
                JobRecord(
                    key: key, value: value, headers: headers,
                    topic: UnsafeRawBufferPointer(start: nil, count: 0), partition: 0, offset: 0,
                    timestampMilliseconds: now), nowMilliseconds: now)
            guard case .push(let push) = decoded else { throw POSIXError(.EINVAL) }
            StoredPush(push: push, partition: 0, offset: 0, polledMilliseconds: now).encode(into: &writer)
            push.release()
        }
        return Array(writer.bytes)
    }

    private func read(_ items: Int, _ bed: ReplicaBed) throws -> Int {
        let reader = try TopicReader(
            bed.installation.kafka, "changelog", partitions: bed.installation.partitions)
        try eventually("the first") {
            reader.poll()
            return !reader.records.isEmpty
        }
        let began = ContinuousClock.now
        try eventually("all of it") {
            reader.poll()
            return reader.records.count >= items
        }
        let seconds = (ContinuousClock.now - began) / .seconds(1)
        return Int(Double(items) / seconds)
    }
}
