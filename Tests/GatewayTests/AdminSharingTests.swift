import Configuration
import EventLoop
import Foundation
import Gateway
import Synchronization
import TestSupport
import Testing

@testable import Admin

/// Requests share snapshots of a worker's loops, so that frequent polling costs the loops nothing.
struct AdminSharingTests {
    /// A clock that the test sets.
    private final class Clock: Sendable {
        private let instant = Mutex(ContinuousClock.now)

        var now: ContinuousClock.Instant { instant.withLock { $0 } }
        func advance(by duration: Duration) { instant.withLock { $0 += duration } }
    }

    /// The only loop of a worker. It answers when the test releases it.
    private final class Loop: Sendable {
        private struct State {
            var asked = 0
            var isHeld = true
            var waiting: [@Sendable (LoopAnswer) -> Void] = []
        }

        private let state = Mutex(State())

        var asked: Int { state.withLock { $0.asked } }

        func ask(_ answer: @escaping @Sendable (LoopAnswer) -> Void) {
            let isHeld = state.withLock { state in
                state.asked += 1
                if state.isHeld { state.waiting.append(answer) }
                return state.isHeld
            }
            if !isHeld { Self.give(answer) }
        }

        /// Answers all waiting requests, and each later one at once.
        func release() {
            let waiting = state.withLock { state in
                state.isHeld = false
                return exchange(&state.waiting, with: [])
            }
            for answer in waiting { Self.give(answer) }
        }

        private static func give(_ answer: @Sendable (LoopAnswer) -> Void) {
            var snapshot = IntakeSnapshot()
            snapshot.isAssigned = true
            answer(.intake(snapshot))
        }
    }

    private let clock = Clock()
    private let loop = Loop()

    private func endpoint(
        freshness: Duration = .milliseconds(200)
    ) throws -> (AdminEndpoints, AdminTestServer) {
        let endpoints = AdminEndpoints(patience: .seconds(60), freshness: freshness) { [clock] in clock.now }
        let server = try AdminTestServer(endpoints.routes)
        endpoints.attach(AdminSource(loops: ["kafka"]) { [loop] _, answer in loop.ask(answer) })
        return (endpoints, server)
    }

    /// Connects clients that send one request each.
    private func clients(_ count: Int, _ server: AdminTestServer) throws -> [AdminClient] {
        try (0..<count).map { number in
            let client = try server.client()
            client.send(AdminClient.request("GET", ["/livez", "/readyz"][number % 2]))
            return client
        }
    }

    @Test func concurrentRequestsShareOneSnapshot() throws {
        let (endpoints, server) = try endpoint(freshness: .zero)
        let first = try clients(1, server)
        try eventually("the loop is asked") { loop.asked == 1 }
        let others = try clients(9, server)
        try eventually("the other requests wait") { endpoints.probed?.waitingCount == 9 }
        #expect(loop.asked == 1)
        loop.release()
        for client in first + others { #expect(client.answer()?.status == 200) }
        #expect(loop.asked == 1)
        // With a freshness of zero each snapshot is outdated at once.
        #expect(try server.get("/readyz").status == 200)
        #expect(loop.asked == 2)
    }

    @Test func requestsWithinTheFreshnessReuseASnapshot() throws {
        let (_, server) = try endpoint()
        loop.release()
        for client in try clients(30, server) { #expect(client.answer()?.status == 200) }
        #expect(loop.asked == 1)
        clock.advance(by: .milliseconds(199))
        #expect(try server.get("/readyz").status == 200)
        #expect(loop.asked == 1)
        clock.advance(by: .milliseconds(1))
        #expect(try server.get("/livez").status == 200)
        #expect(try server.get("/readyz").status == 200)
        #expect(loop.asked == 2)
        // Probes need no details of apps and pools; a scrape does.
        #expect(try server.get("/metrics").status == 200)
        #expect(try server.get("/store").status == 404)
        #expect(loop.asked == 3)
    }

    @Test func closedConnectionDoesNotAffectOtherWaiters() throws {
        let (endpoints, server) = try endpoint()
        let first = try clients(1, server)
        try eventually("the loop is asked") { loop.asked == 1 }
        let others = try clients(3, server)
        try eventually("the other requests wait") { endpoints.probed?.waitingCount == 3 }
        first[0].leave()
        others[1].leave()
        loop.release()
        #expect(others[0].answer()?.status == 200)
        #expect(others[2].answer()?.status == 200)
        #expect(loop.asked == 1)
    }

    /// Runs tasks on a thread of its own, because other tests block the threads that tasks share.
    private final class QueueExecutor: TaskExecutor {
        private let queue = DispatchQueue(label: "requests")

        func enqueue(_ job: consuming ExecutorJob) {
            let job = UnownedJob(job)
            queue.async { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
        }
    }

    @Test func aSnapshotBegunTooEarlyIsNotShared() throws {
        let source = AdminSource(loops: ["kafka"]) { [loop] _, answer in loop.ask(answer) }
        let cache = SnapshotCache(
            source, isDetailed: true, patience: .seconds(60), freshness: .seconds(3_600)
        ) { [clock] in clock.now }
        let executor = QueueExecutor()
        func snapshot(begunAfter earliest: ContinuousClock.Instant? = nil) -> BlockingAnswer<Bool?> {
            let answer = BlockingAnswer<Bool?>()
            Task(executorPreference: executor) {
                answer.set(await cache.snapshot(begunAfter: earliest).intake?.isAssigned)
            }
            return answer
        }
        let first = snapshot()
        try eventually("the loop is asked") { loop.asked == 1 }
        clock.advance(by: .milliseconds(1))
        let earliest = clock.now
        let later = snapshot(begunAfter: earliest)
        try eventually("the later request waits") { cache.waitingCount == 1 }
        loop.release()
        #expect(first.wait() == true && later.wait() == true)
        #expect(loop.asked == 2)
        // The later snapshot serves requests of the same time, and of any.
        #expect(snapshot(begunAfter: earliest).wait() == true && snapshot().wait() == true)
        #expect(loop.asked == 2)
    }

    @Test func newWorkerIsAskedAgain() throws {
        let (endpoints, server) = try endpoint()
        loop.release()
        #expect(try server.get("/readyz").status == 200)
        endpoints.detach()
        #expect(try server.get("/readyz").status == 503)
        endpoints.attach(AdminSource(loops: ["kafka"]) { [loop] _, answer in loop.ask(answer) })
        #expect(try server.get("/readyz").status == 200)
        #expect(loop.asked == 2)
    }
}
