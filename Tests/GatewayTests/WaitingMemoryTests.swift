import APNSSimulator
import Configuration
import SluiceModel
import TestSupport
import Testing

@testable import Gateway

/// Memory that jobs keep while they wait.
@Suite struct WaitingMemoryTests {
    /// Waits in which a push can be.
    enum Wait: CaseIterable {
        case rateLimit, inFlightLimit, unreachable, unanswered
    }

    /// Jobs in binary and in packed mode, with a long header that no outcome passes on.
    private func jobs(_ count: Int) throws -> [EncodedJob] {
        var random = SeededGenerator(seed: 118)
        return try (0..<count).map { number in
            let binary = push("number \(number)", to: random.hexadecimal(bytes: 32))
            var job = try number % 2 == 0 ? binary : JobEncoder.packed(binary)
            job.headers.append((name: "x-long", value: [UInt8](repeating: 120, count: 50_000)))
            return job
        }
    }

    @Test(arguments: Wait.allCases) func waitingJobKeepsItsOwnBytesAlone(_ wait: Wait) throws {
        let count = 30
        try withBed(simulator: {
            if wait == .unanswered || wait == .inFlightLimit { $0.latency = .seconds(6) }
        }) { bed in
            let worker = try bed.worker { configuration in
                configuration.apns.requestTimeout = .seconds(60)
                switch wait {
                case .rateLimit:
                    configuration.apps[0].ratePerSecond = 0.001
                    configuration.apps[0].burst = 1
                case .inFlightLimit: configuration.apps[0].maxInFlight = 1
                case .unreachable: configuration.apns.port = 1
                case .unanswered: break
                }
            }
            try bed.produce(jobs(count))
            try eventually("the worker has the jobs") { worker.snapshot().totals.records == count }
            try eventually("no waiting job keeps a response") { worker.jobsInResponses == 0 }
            let bytes = worker.snapshot().intake?.bytesInFlight ?? 0
            #expect(bytes > 0 && bytes <= count * 1_000)
            guard wait == .unanswered else { return }
            #expect(try bed.waitForOutcomes(count).allSatisfy { $0.kind == .accepted })
            #expect(worker.snapshot().intake?.bytesInFlight == 0)
        }
    }
}

extension Worker {
    /// Jobs that keep a fetch response of Kafka.
    var jobsInResponses: Int {
        shards.reduce(0) { count, shard in
            count
                + (shard.loop.runBlockingIfRunning {
                    var count = 0
                    shard.jobs.forEachWithRecord { _, job in
                        if job.pointee.record?.keepsResponse == true { count += 1 }
                    }
                    return count
                } ?? 0)
        }
    }
}
