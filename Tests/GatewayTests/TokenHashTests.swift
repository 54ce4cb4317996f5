import APNS
import Foundation
import Gateway
import Kafka
import KafkaTestSupport
import RetryStore
import SluiceModel
import TestSupport
import Testing

/// Outcomes and dead letters with a keyed hash in the place of device tokens.
@Suite("Hashed device tokens")
struct TokenHashTests {
    private static let key = (0..<32).map { UInt8($0 * 7) }
    private let hash = DeviceTokenHash(key: key)

    /// Whether any part of a record has the token's bytes, in either case.
    private func holds(_ record: ReadRecord, _ token: String) -> Bool {
        let parts =
            [record.key, record.value].compactMap { $0 }
            + record.headers.flatMap { [Array($0.name.utf8), $0.value ?? []] }
        return parts.contains { String(decoding: $0, as: UTF8.self).lowercased().contains(token) }
    }

    @Test func noRecordHoldsADeviceToken() throws {
        try withBed { bed in
            let worker = try bed.worker {
                $0.outcomes = .init(deviceToken: .hash, hashKey: Self.key)
            }
            var random = SeededGenerator(seed: 11)
            let tokens = (0..<9).map { _ in random.hexadecimal(bytes: 32) }
            let others = (0..<5).map { _ in random.hexadecimal(bytes: 32) }
            let alert = #"{"aps":{"alert":"Hi"}}"#
            let headers = [("apns-topic", newsTopic), ("apns-push-type", "alert")]
            try bed.produce(
                [
                    push("accepted", to: tokens[0]), push("upper case", to: tokens[1].uppercased()),
                    push("no credential", to: tokens[2]) { $0.topic = "org.example.unknown" },
                    try job(
                        #"{"kind":"push","device-token":"\#(tokens[3])","topic":"\#(newsTopic)","push-type":"alert","payload":{}}"#
                    ),
                    try event("offline", of: tokens[4]), try event("online", of: tokens[4]),
                    try job(
                        #"{"kind":"device","device-token":"\#(tokens[5])","event":"token-changed","new-device-token":"\#(tokens[6])"}"#
                    ),
                    try job(
                        #"{"kind":"cancel","device-token":"\#(tokens[7])","topic":"\#(newsTopic)","collapse-id":"x"}"#
                    ),
                    push("traced", to: tokens[8]),
                    try job(
                        #"{"kind":"broadcast","channel-id":"dGVzdA==","topic":"\#(newsTopic)","ttl":60,"payload":{"aps":{"event":"update"}}}"#
                    ),
                ])
            let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
            func malformed(_ key: String, _ value: String, _ more: [(String, String)] = []) -> NewRecord {
                NewRecord(
                    key: key, value: value, headers: headers.map { ($0.0, $0.1) } + more.map { ($0.0, $0.1) })
            }
            try bed.kafka.produce(
                to: "jobs",
                [
                    malformed(
                        others[0], "not JSON",
                        [("traceparent", trace), ("x-to", "for \(others[0].uppercased())")]),
                    NewRecord(
                        key: others[1], value: #"{"kind":"push","device-token":"\#(others[1])"}"#,
                        headers: [("content-type", "application/json")]),
                    NewRecord(
                        key: others[2], value: "device-token:\(others[2])\napns-topic:\(newsTopic)\nttl\n"),
                    malformed("\"\(others[3])\"", "[]", [("device-token", others[3])]),
                    NewRecord(
                        value: alert, headers: [("apns-topic", newsTopic), ("device-token", others[4])]),
                ])
            let outcomes = try bed.waitForOutcomes(10)
            try eventually("there are five dead letters") {
                bed.deadLetters.poll()
                return bed.deadLetters.records.count == 5
            }
            for record in bed.outcomes.records + bed.deadLetters.records {
                for token in tokens + others {
                    #expect(!holds(record, token), "a record has the token \(token)")
                }
            }
            for outcome in outcomes {
                let record = try #require(
                    bed.outcomes.records.first { $0.valueText?.contains(outcome.apnsID.description) == true })
                if outcome.job == "broadcast" {
                    #expect(record.keyText == "dGVzdA==" && outcome.deviceToken == "dGVzdA==")
                    #expect(!outcome.isTokenHashed)
                } else {
                    #expect(outcome.isTokenHashed && record.keyText == outcome.deviceToken)
                    // The header of reports is needed with a store only.
                    #expect(record.header("sluice-device") == nil)
                }
            }
            let hashes = Set(outcomes.map(\.deviceToken))
            for token in tokens[0..<6] + tokens[7...] { #expect(hashes.contains(hash.text(of: token))) }
            let letters = bed.deadLetters.records
            for letter in letters {
                #expect(letter.value == nil)
                #expect(letter.header(DeadLetter.valueOmittedHeader) == DeadLetter.hashedReason)
            }
            let keys = Set(letters.compactMap(\.keyText))
            #expect(keys == Set(others[0..<4].map { hash.text(of: $0) }))
            let traced = try #require(letters.first { $0.keyText == hash.text(of: others[0]) })
            #expect(traced.header("traceparent") == trace && traced.header("apns-topic") == newsTopic)
            #expect(traced.header("x-to") == nil)
            bed.stop(worker)
            #expect(try bed.committed() == 15)
        }
    }

    /// The store removes a push by its device, which the key doesn't show.
    @Test(arguments: [1, 3])
    func storedPushesAreRemovedAfterTheirOutcomes(shards: Int) throws {
        try withBed { bed in
            let directory = bed.directory.file("store")
            let worker = try bed.worker {
                $0.outcomes = .init(deviceToken: .hash, hashKey: Self.key)
                $0.store = .init(directory: directory, after: .seconds(1), changelog: .off)
                $0.delivery.shards = shards
            }
            var random = SeededGenerator(seed: 12)
            let devices = (0..<20).map { _ in random.hexadecimal(bytes: 32) }
            try bed.produce(
                try devices.map { try event("offline", of: $0) } + devices.map { held("held", to: $0) })
            try worker.waitUntilEvicted(devices: 20)
            try bed.produce(try devices.map { try event("online", of: $0) })
            let outcomes = try bed.waitForOutcomes(60)
            #expect(
                Set(outcomes.filter { $0.kind == .accepted }.map(\.deviceToken))
                    == Set(devices.map { hash.text(of: $0) }))
            for record in bed.outcomes.records {
                #expect(record.header("sluice-device")?.count == 16)
                for device in devices { #expect(!holds(record, device)) }
            }
            try eventually("all offsets are committed") { try bed.committed() == 60 }
            bed.stop(worker)
            let store = try StoreInspector(directory: directory)
            var items = 0
            for partition in store.reader.partitions {
                try store.reader.visitItems(of: partition) { _ in
                    items += 1
                    return true
                }
            }
            #expect(items == 0)
        }
    }
}
