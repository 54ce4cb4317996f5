import DeliveryCore
import Foundation
import Testing
import WorkerSimulation

/// Worlds of the workers that ship.
@Suite struct WorkerWorldTests {
    private func run(
        _ mode: StoreMode, seeds: ClosedRange<UInt64>, events: Int, withoutFaults: Bool = false
    ) throws -> WorkerCounts {
        let directory = FileManager.default.temporaryDirectory
            .appending(path: "sluice-worlds-\(UInt64.random(in: .min ... .max))")
        try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: directory) }
        let files = try SimulationFiles(directory: directory.path(percentEncoded: false))
        var counts = WorkerCounts()
        for seed in seeds {
            let violation = try WorkerSimulation.run(
                seed: seed, events: events, mode: mode, withoutFaults: withoutFaults, files: files,
                counts: &counts)
            #expect(violation == nil, "\(violation.map { "\($0)" } ?? "")")
        }
        return counts
    }

    @Test(arguments: StoreMode.allCases)
    func aWorldWithoutFaultsHasOnePushAndOneOutcomeForEachJob(_ mode: StoreMode) throws {
        let counts = try run(mode, seeds: 1...3, events: 100, withoutFaults: true)
        #expect(counts.outcomes == counts.jobs)
        #expect(counts.repeatedPushes == 0)
        #expect(counts.faults == 0)
        #expect(counts.pushes > counts.jobs / 3)
    }

    /// Ends that worlds of every mode reach.
    private static let kinds: Set = [
        "accepted", "applied", "cancelled", "cancelled, device-erased", "confirmed", "expired", "not-found",
        "rejected", "rejected, device-unregistered", "superseded", "undeliverable, device-limit",
    ]

    @Test(arguments: StoreMode.allCases)
    func promisesHoldUnderFaults(_ mode: StoreMode) throws {
        let counts = try run(mode, seeds: 451...463, events: 250)
        // A log may lose a few records before a worker reads them.
        #expect(counts.outcomes > counts.jobs * 9 / 10)
        #expect(counts.faults > 10)
        #expect(counts.starts > 0)
        #expect(counts.promptChecks > 0, "no world is calm")
        #expect((counts.parkings > 0) == mode.hasStore)
        #expect((counts.shareChecks > 0) == mode.hasStore, "no app is in trouble")
        let missing = Self.kinds.subtracting(counts.kinds.keys)
        #expect(missing.isEmpty, "the worlds reach no outcome \(missing.sorted())")
    }
}
