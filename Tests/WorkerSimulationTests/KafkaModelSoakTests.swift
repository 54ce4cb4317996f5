import Testing

@testable import SimulatedKafka

/// Random histories of the simulated Kafka, and the rules that hold in all of them.
struct KafkaModelSoakTests {
    @Test func randomEventsBreakNoRule() {
        var counts: [String: Int] = [:]
        for seed in UInt64(1)...30 {
            let soak = KafkaSoak(seed: seed)
            soak.run(steps: 4_000)
            guard soak.broken == nil else {
                Issue.record("seed \(seed): \(soak.broken!)")
                return
            }
            counts.merge(soak.counts, uniquingKeysWith: +)
        }
        let expected = [
            "assigned", "revoked", "lost", "instance fenced", "report", "report timedOut", "report purged",
            "report tooLarge", "report fenced", "commit done", "commit retriable", "commit abortable",
            "commit fatal", "abort done", "abort retriable", "abort fatal", "sendOffsets done",
            "sendOffsets retriable", "sendOffsets abortable", "sendOffsets fatal", "initialize done",
            "initialize retriable", "producer failed", "committed", "committed illegalGeneration",
            "committed unknownMember", "committed rebalanceInProgress", "committed coordinatorAway",
            "committed timedOut", "committed metadataTooLarge", "fetched", "fetched unstableOffsets",
            "fetched coordinatorAway", "listed", "listed leaderAway", "out of range", "crash", "recreated",
        ]
        #expect(expected.filter { counts[$0] == nil } == [])
    }

    @Test func equalSeedsGiveEqualRuns() {
        let lives = (0..<2).map { _ in
            let soak = KafkaSoak(seed: 7)
            soak.run(steps: 3_000)
            return (soak.kafka.now, soak.kafka.feed.map(\.payload), soak.counts)
        }
        #expect(lives[0] == lives[1])
    }
}
