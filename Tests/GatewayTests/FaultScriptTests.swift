import APNSSimulator
import Configuration
import Gateway
import SluiceModel
import TestSupport
import Testing

/// Workers against the simulator, whose faults follow a script and then end.
///
/// Every job has one outcome, and no job ends before its expiration.
@Suite struct FaultScriptTests {
    /// Results of a worker's run against a simulator that failed and recovered.
    private struct Run {
        var outcomes: [OutcomeSummary]
        var summary: SimulatorSummary
        var counters: ShardCounters

        func count(_ kind: OutcomeKind) -> Int { outcomes.count { $0.kind == kind } }
    }

    /// - Parameters:
    ///   - entries: faults, from the first job on. The jobs are produced during the first three seconds.
    ///   - jobs: number of jobs.
    private func run(_ entries: [FaultTimeline.Entry], jobs: Int = 400, payload: Int = 100) throws -> Run {
        try withBed { bed in
            let worker = try bed.worker {
                $0.apns.requestTimeout = .seconds(2)
                $0.apns.progressTimeout = .seconds(1)
                $0.delivery.retry = .init(initial: .milliseconds(50), maximum: .seconds(1))
            }
            // The script starts when the worker is connected.
            try bed.produce(1, seed: 7_999)
            try bed.waitForOutcomes(1)
            try bed.simulator.replaceFaults(with: FaultTimeline(entries: entries))
            var produced = 0
            let begin = ContinuousClock.now
            try eventually("all jobs are produced") {
                let due = min(1, (ContinuousClock.now - begin) / .seconds(3))
                let next = max(1, Int(Double(jobs) * due))
                if next > produced {
                    let first = produced
                    try bed.produce(next - first, seed: UInt64(8_000 + first)) { push, _ in
                        push.ttl = 3 * 86_400
                        let text = String(repeating: "x", count: payload)
                        push.payload = Array(#"{"aps":{"alert":"\#(text)"}}"#.utf8)
                    }
                    produced = next
                }
                return produced == jobs
            }
            let outcomes = try bed.waitForOutcomes(jobs + 1)
            let counters = worker.snapshot().totals
            bed.stop(worker)
            bed.outcomes.poll()
            #expect(bed.readOutcomes().count == jobs + 1, "each job has one outcome")
            #expect(WorkerBed.places(outcomes).count == jobs + 1)
            return Run(outcomes: outcomes, summary: bed.simulator.summary, counters: counters)
        }
    }

    @Test func silentServerDelaysPushesAndLosesNone() throws {
        let run = try run([.init(lasts: .seconds(3), .unanswered(share: 1))])
        #expect(run.count(.accepted) == run.outcomes.count)
        #expect(run.summary.unanswered > 0)
        #expect(run.summary.accepted == UInt64(run.outcomes.count), "no push is accepted twice")
    }

    /// Packets of all connections are lost: neither requests nor pings are answered.
    @Test func blackHoleDelaysPushesAndLosesNone() throws {
        let run = try run([.init(at: .milliseconds(500), lasts: .seconds(4), .blackHole(share: 1))])
        #expect(run.count(.accepted) == run.outcomes.count)
        #expect(run.counters.unanswered > 0)
    }

    /// APNs refuses every token, as it does in the wrong environment.
    @Test func wrongEnvironmentDeletesNoTokens() throws {
        let run = try run([.init(lasts: .seconds(3), .environment(.deviceTokens, share: 1))])
        let rejected = run.outcomes.filter { $0.kind == .rejected }
        #expect(rejected.count + run.count(.accepted) == run.outcomes.count)
        #expect(!rejected.isEmpty)
        #expect(rejected.count <= 200)
        #expect(rejected.allSatisfy { $0.reason == "BadDeviceToken" && $0.suspectToken && !$0.deleteToken })
        #expect(run.counters.tokenStops == 1)
    }

    /// GOAWAYs of all kinds and a flapping stream limit, while connections end without one, too.
    @Test func endsOfConnectionsLoseNoPush() throws {
        var shutdown = FaultTimeline.GoAway()
        shutdown.unprocessed = 3
        shutdown.every = .milliseconds(700)
        var twice = FaultTimeline.GoAway()
        twice.end = .twice
        twice.every = .milliseconds(900)
        twice.share = 0.5
        var close = FaultTimeline.GoAway()
        close.end = .close
        close.reason = "IdleTimeout"
        close.every = .milliseconds(1_100)
        close.share = 0.5
        let run = try run([
            .init(lasts: .seconds(4), .latency(.uniform(from: .milliseconds(1), to: .milliseconds(200)))),
            .init(lasts: .seconds(4), .streamLimit(.init(low: 1, high: 20, period: .milliseconds(500)))),
            .init(at: .milliseconds(300), lasts: .seconds(4), .goAway(shutdown)),
            .init(at: .milliseconds(400), lasts: .seconds(4), .goAway(twice)),
            .init(at: .milliseconds(500), lasts: .seconds(4), .goAway(close)),
            .init(at: .seconds(2), .disconnect(share: 0.5, every: nil)),
        ])
        #expect(run.count(.accepted) == run.outcomes.count)
        #expect(run.summary.connections > 2)
    }
}
