import APNS
import APNSSimulator
import Configuration
import SluiceModel
import TestSupport
import Testing

@testable import Gateway

/// A campaign of 3,000 pushes of priority 5 lies in Kafka before 20 alerts of priority 10, for a worker that holds 1,000 jobs
/// and sends 200 a second.
@Suite struct ReadAheadWorkerTests {
    struct Case: CustomTestStringConvertible {
        var name: String
        var readAhead = Configuration.Store.Switch.on
        /// A changelog has transactions.
        var changelog = Configuration.Store.Switch.off
        /// True when the alerts are those of another app, of weight 1,000.
        var hasOwnApp = false
        /// Pushes of the campaign that end before the last alert.
        var before: ClosedRange<Int>

        var testDescription: String { name }
    }

    /// 600 pushes take three seconds.
    static let cases = [
        Case(name: "off", readAhead: .off, before: 1500...3000),
        Case(name: "own app", hasOwnApp: true, before: 0...600),
        Case(name: "same app", before: 0...600),
        // Each commit of a transaction makes room.
        Case(name: "transactions", changelog: .on, before: 0...1500),
    ]

    @Test(arguments: cases) func alertsBehindACampaignLeaveWithinSeconds(_ given: Case) throws {
        let change: (inout SimulatorOptions) -> Void = {
            $0.maximumStreams = 20
            $0.latency = .milliseconds(100)
        }
        try withBed(simulator: change) { bed in
            let worker = try bed.worker { configuration in
                configuration.store = .init(
                    directory: bed.directory.file("store"), changelog: given.changelog)
                configuration.delivery.maxInFlight = 1000
                configuration.delivery.readAhead = given.readAhead
                (configuration.apns.connections, configuration.apns.maxConnections) = (1, 1)
                configuration.apps.append(
                    .init(
                        name: "alerts", topics: ["com.example.alerts"], credentials: ["team"], weight: 1000))
            }
            try bed.produce(1, seed: 9_999)
            try bed.waitForOutcomes(1)
            try bed.produce(3000, seed: 1) { push, _ in push.priority = 5 }
            var alerts: Set<String> = []
            try bed.produce(20, seed: 2) { push, _ in
                push.priority = 10
                if given.hasOwnApp { push.topic = "com.example.alerts" }
                alerts.insert(push.deviceToken)
            }
            var outcomes: [OutcomeSummary] = []
            try eventually("the alerts have ended", timeout: .seconds(60)) {
                bed.outcomes.poll()
                outcomes = bed.readOutcomes()
                return outcomes.count { alerts.contains($0.deviceToken) } == alerts.count
            }
            let last = outcomes.filter { alerts.contains($0.deviceToken) }.map(\.finishedMilliseconds).max()!
            let before = outcomes.count {
                $0.finishedMilliseconds < last && !alerts.contains($0.deviceToken)
            }
            #expect(
                given.before.contains(before), "\(before) pushes of the campaign end before the last alert")
            let totals = worker.snapshot().totals
            #expect((totals.readAheads > 0) == (given.readAhead == .on) && totals.parkings == 0)
            // The campaign goes on, and each push has its outcome once.
            outcomes = try bed.waitForOutcomes(3021)
            #expect(outcomes.count == 3021 && outcomes.allSatisfy { $0.kind == .accepted })
            #expect(WorkerBed.places(outcomes).count == outcomes.count)
            bed.stop(worker)
        }
    }
}
