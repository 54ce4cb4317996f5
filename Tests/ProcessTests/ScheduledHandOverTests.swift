import Foundation
import SluiceModel
import TestSupport
import Testing

/// An orderly stop during a long window, in which many jobs have finished above others that still wait.
@Suite("Worker: a stop with scheduled jobs among many")
struct ScheduledHandOverTests {
    enum Store: String, CaseIterable, CustomTestStringConvertible {
        case none, local, changelog

        var testDescription: String { rawValue }

        func environment(_ bed: Bed) -> [String: String] {
            self == .none ? [:] : bed.storeEnvironment(hasChangelog: self == .changelog)
        }
    }

    /// A tenth of the jobs is scheduled, for sooner than `store.after`. Commit metadata that were too small would
    /// repeat thousands of the others.
    @Test(arguments: Store.allCases)
    func stopAmongScheduledJobsRepeatsNothing(_ store: Store) throws {
        // The embedded cluster keeps five megabytes of a partition, so only real brokers can fill the window.
        let count = Bed.hasTransactions ? 40_000 : 10_000
        try withBed(BedOptions(partitions: 1)) { bed in
            let options = WorkerOptions(delivery: "{}", environment: store.environment(bed))
            var random = SeededGenerator(seed: 23)
            let due = (Int64(Date().timeIntervalSince1970) + 25) * 1_000
            let jobs = (0..<count).map { number -> EncodedJob in
                var push = PushDescription(
                    deviceToken: random.hexadecimal(bytes: 32), topic: "com.example.news",
                    payload: Array(#"{"aps":{"alert":"number \#(number)"}}"#.utf8))
                if number % 10 == 0 { push.deliverAtMilliseconds = due }
                return JobEncoder.binary(push)
            }
            try bed.produce(jobs)
            let first = try bed.launch(options)
            try first.waits(for: "half of the jobs have outcomes") {
                bed.outcomes.poll()
                return bed.outcomes.outcomes.count >= count / 2
            }
            try first.end()
            let second = try bed.launch(options)
            try bed.outcomes.wait(for: count, of: second)
            try second.end()
            bed.outcomes.poll()
            #expect(bed.outcomes.outcomes.count == count, "each job has one outcome")
            #expect(bed.outcomes.jobs.count == count)
            let pushes = bed.pushes()
            #expect(
                pushes.count == count && Set(pushes.map(\.apnsID)).count == count, "each job was pushed once")
        }
    }
}
