import EventLoop
import Foundation
import Gateway
import KafkaTestSupport
import RetryStore
import SluiceModel
import TestSupport
import Testing

/// Expired presences of devices are removed from the store and the changelog.
struct ForgottenDeviceTests {
    /// With encryption the store's copy of the token is decrypted.
    @Test(arguments: [false, true])
    func expiredPresenceIsRemovedFromTheChangelog(isEncrypted: Bool) throws {
        try withBed { bed in
            let key = "a " + Data(repeating: 5, count: 32).base64EncodedString()
            let file = try bed.directory.write(key, to: "store.keys")
            func worker() throws -> Worker {
                try bed.worker {
                    $0.store = .init(
                        directory: bed.directory.file("store"), after: .seconds(1), changelog: .on,
                        transactions: .off, encryption: isEncrypted ? .init(keyFile: file) : nil)
                }
            }
            let device = SeededGenerator.hexadecimal(seed: 1_117)
            let other = SeededGenerator.hexadecimal(seed: 1_118)
            let first = try worker()
            // Presences expire after 30 days, because no push lives longer.
            let longAgo = wallClockMilliseconds() - 31 * 86_400_000
            try bed.produce([
                event("offline", of: device, #","occurred-at":\#(longAgo)"#), event("offline", of: other),
            ])
            try bed.waitForOutcomes(2)
            bed.stop(first)

            let changelog = try TopicReader(bed.kafka, "changelog", partitions: WorkerBed.partitions)
            func states(_ device: String) -> [Bool] {
                changelog.poll()
                return changelog.records.filter { $0.keyText == "\u{2}\(device)" }.map { $0.value != nil }
            }
            try eventually("the changelog has both devices") {
                states(device) == [true] && states(other) == [true]
            }

            // The second worker knows neither device, so it asks the store.
            let second = try worker()
            try bed.produce([held("a", to: device), held("b", to: other)])
            let outcomes = try bed.waitForOutcomes(3)
            #expect(outcomes.map(\.kind).sorted { "\($0)" < "\($1)" } == [.accepted, .applied, .applied])
            try eventually("the changelog has removed the device") { states(device) == [true, false] }
            #expect(states(other) == [true])
            #expect(second.snapshot().totals.store.forgotten == 1)
            #expect(second.snapshot().totals.store.undecryptable == 0)
        }
    }
}
