import Configuration
import Foundation
import Gateway
import Synchronization
import TestSupport
import Testing

@testable import Admin

/// Requests share observations of a worker's loops, so that polling is no work for these.
struct AdminSharingTests {
    /// A clock that the test sets.
    private final class Clock: Sendable {
        private let instant = Mutex(ContinuousClock.now)

        var now: ContinuousClock.Instant { instant.withLock { $0 } }
        func advance(by duration: Duration) { instant.withLock { $0 += duration } }
    }

    /// A worker's one loop, which answers when the test lets it.
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

        /// From now on it answers at once.
        func release() {
            let waiting = state.withLock { state in
                state.isHeld = false
                return exchange(&state.waiting, with: [])
            }
            for answer in waiting { Self.give(answer) }
        }

        private static func give(_ answer: @Sendable (LoopAnswer) -> Void) {
            var observation = IntakeObservation()
            observation.isAssigned = true
            answer(.intake(observation))
        }
    }

    private let clock = Clock()
    private let loop = Loop()

    private func endpoint(freshness: Duration = .milliseconds(200)) throws -> (AdminEndpoints, AdminServer) {
        let endpoints = AdminEndpoints(patience: .seconds(60), freshness: freshness) { [clock] in clock.now }
        let server = try AdminServer(ListenAddress(host: "127.0.0.1", port: 0))
        server.start(endpoints.routes)
        endpoints.attach(AdminSource(loops: ["kafka"]) { [loop] in loop.ask($0) })
        return (endpoints, server)
    }

    /// Clients that have sent a request each.
    private func clients(_ count: Int, _ server: AdminServer) throws -> [AdminClient] {
        try (0..<count).map { number in
            let client = try AdminClient(server.address.port)
            client.send(AdminClient.request("GET", ["/livez", "/readyz", "/metrics"][number % 3]))
            return client
        }
    }

    @Test func requestsAtOnceShareOneObservation() throws {
        let (endpoints, server) = try endpoint(freshness: .zero)
        defer { server.stop() }
        let first = try clients(1, server)
        try eventually("the loop is asked") { loop.asked == 1 }
        let others = try clients(9, server)
        try eventually("the others wait") { endpoints.worker?.waitingCount == 9 }
        #expect(loop.asked == 1)
        loop.release()
        for client in first + others { #expect(client.answer()?.status == 200) }
        #expect(loop.asked == 1)
        // It is too old at once.
        #expect(try AdminClient.get("/readyz", server.address.port).status == 200)
        #expect(loop.asked == 2)
    }

    @Test func requestsSoonAfterTakeTheSameObservation() throws {
        let (_, server) = try endpoint()
        defer { server.stop() }
        loop.release()
        for client in try clients(30, server) { #expect(client.answer()?.status == 200) }
        #expect(loop.asked == 1)
        clock.advance(by: .milliseconds(199))
        #expect(try AdminClient.get("/metrics", server.address.port).status == 200)
        #expect(loop.asked == 1)
        clock.advance(by: .milliseconds(1))
        #expect(try AdminClient.get("/livez", server.address.port).status == 200)
        #expect(try AdminClient.get("/metrics", server.address.port).status == 200)
        #expect(loop.asked == 2)
    }

    @Test func whoLeavesTakesNothingFromOthers() throws {
        let (endpoints, server) = try endpoint()
        defer { server.stop() }
        let first = try clients(1, server)
        try eventually("the loop is asked") { loop.asked == 1 }
        let others = try clients(3, server)
        try eventually("the others wait") { endpoints.worker?.waitingCount == 3 }
        first[0].leave()
        others[1].leave()
        loop.release()
        #expect(others[0].answer()?.status == 200)
        #expect(others[2].answer()?.status == 200)
        #expect(loop.asked == 1)
    }

    @Test func anotherWorkerIsObservedAnew() throws {
        let (endpoints, server) = try endpoint()
        defer { server.stop() }
        loop.release()
        #expect(try AdminClient.get("/readyz", server.address.port).status == 200)
        endpoints.detach()
        #expect(try AdminClient.get("/readyz", server.address.port).status == 503)
        endpoints.attach(AdminSource(loops: ["kafka"]) { [loop] in loop.ask($0) })
        #expect(try AdminClient.get("/readyz", server.address.port).status == 200)
        #expect(loop.asked == 2)
    }
}
