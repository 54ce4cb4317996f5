import Foundation
import KafkaTestSupport
import TestSupport
import Testing

/// The timelines of APNs' faults that `make chaos` plays.
@Suite("Chaos: timelines of APNs' faults")
struct ChaosTimelineTests {
    @Test func sameSeedGivesTheSameTimelineAndAnotherSeedAnother() {
        #expect(ChaosTimeline(seed: 7).document == ChaosTimeline(seed: 7).document)
        #expect(ChaosTimeline(seed: 7).document != ChaosTimeline(seed: 8).document)
    }

    @Test(arguments: 1...8 as ClosedRange<UInt64>)
    func simulatorTakesTheTimelineOfEachSeed(_ seed: UInt64) throws {
        let directory = try TemporaryDirectory("chaos")
        let file = try directory.write(ChaosTimeline(seed: seed, entries: 60).document, to: "faults.yaml")
        let process = try ChildProcess(
            Executables.sluice,
            [
                "simulator", "--port", "0", "--stop-with-input", "--ready-file", directory.file("ready"),
                "--faults", file,
            ])
        try process.waits(for: "the simulator is ready") { directory.read("ready")?.contains(":") == true }
        process.closeInput()
        #expect(try process.wait() == .status(0))
    }

    @Test func lossesRepeatWithThePeriodAndEndWithTheRun() throws {
        // About a twelfth of the seeds has an end of connections that loses answers.
        let timeline = try #require(
            (1...12 as ClosedRange<UInt64>).map { ChaosTimeline(seed: $0, entries: 12) }
                .first { !$0.lossInstants(start: 0...0, until: $0.period).isEmpty })
        let once = timeline.lossInstants(start: 0...0, until: timeline.period)
        let thrice = timeline.lossInstants(start: 0...0, until: 3 * timeline.period)
        #expect(Set(once.map { $0 + timeline.period }).isSubset(of: thrice))
        #expect(thrice.allSatisfy { $0 <= 3 * timeline.period })
        #expect(timeline.lossInstants(start: 0...0, until: 0).isEmpty)
    }

    /// The same load, faults and judge as in `make chaos`, with one worker on the embedded cluster.
    @Test func workerUnderATimelineKeepsItsPromises() throws {
        let seed: UInt64 = 21
        let timeline = ChaosTimeline(seed: seed, entries: 9, spacing: 600...1_200)
        var load = ReplicaLoad(seed: seed, live: 60, absent: 20)
        try withBed(BedOptions(partitions: 2, faults: timeline.document)) { bed in
            let group = try ReplicaGroup(bed)
            try group.start(["worker"])
            try group.produce(load.hold())
            let end = group.now + timeline.period
            try group.wait(
                for: "the timeline has been played", timeout: .seconds(120),
                meanwhile: { try load.tick(group) }
            ) { group.now >= end }
            try group.produce(load.bringBack())
            try group.finish(timeout: .seconds(120))
            group.history.simulatorDeaths += timeline.lossInstants(
                start: bed.simulatorStart, until: group.now)
            try group.judge("timeline of faults", seed: seed)
            #expect(group.history.arrivals.contains { $0.status >= 500 }, "the timeline was played")
        }
    }
}
