import Foundation
import Synchronization
import TestSupport
import Testing

@testable import Admin
@testable import sluice

/// `sluice ctl purge --wait` as a process against a scripted worker in the test's process.
struct PurgeCommandTests {
    /// Answer of the worker to one look at `/store`.
    private struct Look {
        var opening = "a"
        /// Partitions that the worker has.
        var assigned = [0, 1, 2]
        /// Partitions whose requested purge hasn't ended.
        var requested: [Int] = []
        /// Partitions that need a purge, which nobody has requested.
        var needed: [Int] = []
        /// Partitions that need a purge, because theirs has failed.
        var failing: [Int] = []
        /// Whether the answer has no name of the store's opening, as that of an earlier version.
        var isOld = false
        /// Whether the worker is starting, and answers 503.
        var isStarting = false

        var response: AdminResponse {
            if isStarting { return .error(503, "the worker is starting, or has ended") }
            func need(_ partition: Int, isRequested: Bool = false, failures: Int = 0) -> [String: Any] {
                [
                    "partition": partition, "since": "x", "requested": isRequested, "failures": failures,
                ]
            }
            let pending =
                requested.map { need($0, isRequested: true) } + needed.map { need($0) }
                + failing.map { need($0, failures: 1) }
            var purges: [String: Any] = [
                "opening": opening, "pending": pending, "completed": 0, "failed": failing.count,
                "dropped": [Any](),
            ]
            if isOld { purges["opening"] = nil }
            if let last = failing.last {
                purges["last"] = ["partition": last, "error": "no space left"] as [String: Any]
            }
            return .json(
                200,
                [
                    "partitions": assigned.map { ["partition": $0, "estimated-items": 1] }, "purges": purges,
                ])
        }
    }

    /// Runs the command against a worker that purges partitions 0 and 1. The worker gives these answers, and then the last
    /// one for ever.
    private func purge(
        _ looks: Look..., options: [String] = ["--wait"]
    ) throws -> (exit: ChildProcess.Exit, standardOutput: String, standardError: String) {
        let directory = try TemporaryDirectory("purge")
        let socket = directory.file("admin.sock")
        let next = Mutex(0)
        let server = AdminTestServer(
            try AdminServer(
                socket: socket,
                routes: [
                    "/store": { _ in
                        let number = next.withLock { number in
                            defer { number += 1 }
                            return number
                        }
                        return looks[min(number, looks.count - 1)].response
                    }
                ],
                commands: ["/store/purge": { _ in .json(202, ["partitions": [0, 1], "state": "purging"]) }]
            ))
        return try withExtendedLifetime(server) {
            try ChildProcess.run(Executables.sluice, ["ctl", "purge", "--socket", socket] + options)
        }
    }

    private static let begun = "purging 2 partitions\n"

    @Test func endIsThatOfTheRequestedPurges() throws {
        // Purges of others, and needs of later erasures, have no part in it.
        let result = try purge(
            Look(needed: [0, 1]), Look(requested: [0, 1]), Look(requested: [1, 2]),
            Look(requested: [2], needed: [0]))
        #expect(result.exit == .status(0), "\(result.standardError)")
        #expect(result.standardOutput == Self.begun + "purged\n")
    }

    @Test func aWorkerThatStartedAnewHasNotPurged() throws {
        for (between, after) in [
            (Look(isStarting: true), Look(opening: "b", needed: [0, 1])),
            (Look(requested: [1]), Look(opening: "b")),
        ] {
            let result = try purge(Look(), Look(requested: [0, 1]), between, after)
            #expect(result.exit == .status(75), "\(result.standardError)")
            #expect(result.standardOutput == Self.begun)
            #expect(result.standardError.contains("the worker has started anew"), "\(result.standardError)")
            #expect(result.standardError.contains("repeat the command"), "\(result.standardError)")
        }
    }

    @Test func aPartitionOfAnotherWorkerIsNotPurged() throws {
        let result = try purge(
            Look(), Look(requested: [0, 1]), Look(assigned: [0, 2], requested: [1]),
            Look(assigned: [0, 2]))
        #expect(result.exit == .status(75), "\(result.standardError)")
        #expect(result.standardOutput == Self.begun)
        #expect(result.standardError.contains("partition 1 has left this worker"), "\(result.standardError)")
    }

    @Test func aFailureIsReported() throws {
        let result = try purge(Look(), Look(requested: [0, 1]), Look(needed: [1], failing: [0]))
        #expect(result.exit == .status(1))
        #expect(result.standardError.contains("no space left; the worker tries again later"))
    }

    @Test func onlyAWaitNeedsAWorkerThatNamesItsOpening() throws {
        let plain = try purge(Look(isOld: true), options: [])
        #expect(plain.exit == .status(0), "\(plain.standardError)")
        #expect(plain.standardOutput == Self.begun)
        let waiting = try purge(Look(isOld: true))
        #expect(waiting.exit == .status(1))
        #expect(waiting.standardOutput == "", "nothing was requested")
        #expect(waiting.standardError.contains("update the worker"), "\(waiting.standardError)")
    }
}
