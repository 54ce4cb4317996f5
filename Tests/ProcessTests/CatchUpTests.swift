import Foundation
import SluiceModel
import TestSupport
import Testing

/// Pushes that were sent, and not committed, before a worker died.
@Suite("Catch-up of a worker, as a process")
struct CatchUpTests {
    /// Nothing is committed while the test runs, unless a worker stops.
    private static let options = WorkerOptions(
        delivery: "{commit-interval: 5m, retry: {initial: 50ms, maximum: 200ms}}")

    private static func push(
        _ alert: String, ttl: Int64? = nil, device: Character = "a", collapse: String = "score"
    ) -> EncodedJob {
        var push = PushDescription(
            deviceToken: String(repeating: device, count: 64), topic: "com.example.news",
            payload: Array(#"{"aps":{"alert":"\#(alert)"}}"#.utf8))
        push.collapseIdentifier = collapse
        push.ttl = ttl
        return JobEncoder.binary(push)
    }

    private func accept(_ job: EncodedJob, _ bed: Bed, _ worker: WorkerProcess) throws {
        let count = bed.pushes().count
        try bed.produce([job])
        try worker.waits(for: "the push is accepted") { bed.pushes().count == count + 1 }
    }

    private func waitForOutcomes(_ count: Int, _ bed: Bed, _ worker: WorkerProcess) throws {
        try worker.waits(for: "\(count) outcomes") {
            bed.outcomes.poll()
            return bed.outcomes.outcomes.count >= count
        }
    }

    private func outcomes(_ bed: Bed, after count: Int) -> [String] {
        bed.outcomes.poll()
        return bed.outcomes.outcomes.dropFirst(count).map(\.headline).sorted()
    }

    /// The newer push has reached the device, and has expired since. The older push must not follow it.
    @Test func expiredPushKeepsTheDeviceFromAnOlderPush() throws {
        try withBed { bed in
            let first = try bed.start(Self.options)
            try accept(Self.push("older"), bed, first)
            try accept(Self.push("newer", ttl: 3), bed, first)
            let expiry = bed.now + 3_500
            try bed.outcomes.wait(for: 2, of: first)
            try first.end(by: SIGKILL, with: .signal(SIGKILL))
            let count = bed.outcomes.outcomes.count
            try eventually("the newer push has expired", timeout: .seconds(20)) { bed.now > expiry }
            let second = try bed.start(Self.options)
            try waitForOutcomes(count + 2, bed, second)
            #expect(outcomes(bed, after: count) == ["expired", "superseded"])
            try second.end()
            #expect(bed.pushes().count == 2, "nothing was sent again")
        }
    }

    /// The newest push of each identity is repeated, because nobody has committed it.
    @Test func olderPushIsNotRepeatedBeforeTheNewer() throws {
        try withBed { bed in
            let first = try bed.start(Self.options)
            try accept(Self.push("older"), bed, first)
            try accept(Self.push("newer"), bed, first)
            try accept(Self.push("other", collapse: "weather"), bed, first)
            try bed.outcomes.wait(for: 3, of: first)
            try first.end(by: SIGKILL, with: .signal(SIGKILL))
            let count = bed.outcomes.outcomes.count
            let second = try bed.start(Self.options)
            try waitForOutcomes(count + 3, bed, second)
            try second.end()
            let repeated = bed.pushes().dropFirst(3).map(\.apnsID)
            let sent = bed.pushes().prefix(3).map(\.apnsID)
            #expect(repeated.sorted() == sent.dropFirst().sorted(), "the newest of each identity is repeated")
        }
    }
}
