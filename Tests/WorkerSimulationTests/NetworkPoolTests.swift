import SimulatedEventLoop
import SimulatedHTTP2
import Testing

/// A real pool and a real server over the simulated network.
struct NetworkPoolTests {
    private func expectEnds(_ bed: NetworkBed, _ count: Int) {
        #expect(bed.ends.count == count)
        #expect(bed.ends.values.allSatisfy { $0.count == 1 })
    }

    private func unknown(_ bed: NetworkBed) -> Int { bed.ends.values.count { $0 == [0] } }

    @Test func allPushesAreAnswered() throws {
        let bed = try NetworkBed(seed: 1) { $0.connections = 3 }
        bed.send(0..<3000)
        bed.run(milliseconds: 3000)
        expectEnds(bed, 3000)
        #expect(bed.ends.values.allSatisfy { $0 == [200] })
        #expect(Set(bed.received.map(\.path)).count == 3000)
        #expect(bed.received.count == 3000)
        #expect(bed.pool.openConnections == 3)
        bed.stop()
    }

    @Test func slowPathsAndSmallWindowsCarryEverything() throws {
        let bed = try NetworkBed(seed: 2)
        bed.network.route.toServer.bytesPerSecond = 200_000
        bed.network.route.toServer.window = 1000
        bed.network.route.toServer.sendBuffer = 5000
        bed.network.route.toClient.packet = 7
        bed.send(0..<1000)
        bed.run(milliseconds: 1000)
        #expect(bed.received.count > 100 && bed.received.count < 1000)
        bed.run(milliseconds: 10_000)
        expectEnds(bed, 1000)
        #expect(bed.ends.values.allSatisfy { $0 == [200] })
        #expect(bed.received.count == 1000)
        bed.stop()
    }

    @Test func aCutEndsStreamsAndThePoolReconnects() throws {
        let bed = try NetworkBed(seed: 3)
        var isCut = false
        bed.answer = { [unowned bed] request, connection in
            if bed.received.count == 300, !isCut {
                isCut = true
                bed.network.links[0].cut()
            }
            connection.respond(stream: request.stream, status: 200)
        }
        bed.send(0..<5000)
        bed.run(milliseconds: 5000)
        expectEnds(bed, 5000)
        #expect(unknown(bed) > 0)
        #expect(bed.dials.count == 2)
        #expect(bed.received.count + bed.refusals >= 5000)
        bed.stop()
    }

    @Test func aBlackHoleLeadsToSuspicionAndReplacement() throws {
        let bed = try NetworkBed(seed: 4)
        bed.run(milliseconds: 1000)
        bed.network.links[0].isBlackHole = true
        bed.send(0..<10)
        bed.run(milliseconds: 5000)
        // The PING has no answer: the connection takes no more requests, and is not closed yet. Another is open beside it.
        #expect(bed.received.isEmpty && bed.ends.isEmpty)
        #expect(bed.pool.snapshot().connections.map(\.state) == [.suspected, .active])
        bed.run(milliseconds: 10_000)
        #expect(bed.trace.contains { $0.contains("closed 0 unresponsive: nothing was received") })
        #expect(bed.pool.openConnections == 1)
        expectEnds(bed, 10)
        #expect(unknown(bed) == 10)
        bed.send(100..<200)
        bed.run(milliseconds: 1000)
        expectEnds(bed, 110)
        // The client's reset was lost, and nobody sends its pushes again.
        bed.network.links[0].isBlackHole = false
        bed.run(milliseconds: 5000)
        #expect(bed.received.count == 100)
        bed.stop()
    }

    @Test func aShortBlackHoleDeliversEverythingLater() throws {
        let bed = try NetworkBed(seed: 5)
        bed.run(milliseconds: 1000)
        bed.network.links[0].isBlackHole = true
        bed.send(0..<100)
        bed.run(milliseconds: 1500)
        #expect(bed.received.isEmpty)
        bed.network.links[0].isBlackHole = false
        bed.run(milliseconds: 1000)
        expectEnds(bed, 100)
        #expect(bed.ends.values.allSatisfy { $0 == [200] })
        #expect(bed.dials.count == 1)
        bed.stop()
    }

    @Test func goAwayLosesNoPush() throws {
        let bed = try NetworkBed(seed: 6) { $0.connection.session.maximumStreams = 50 }
        bed.answer = { [unowned bed] request, connection in
            connection.respond(stream: request.stream, status: 200)
            if bed.received.count % 200 == 0 { connection.goAway(debugData: "{\"reason\":\"Shutdown\"}") }
        }
        bed.send(0..<1000)
        bed.run(milliseconds: 20_000)
        expectEnds(bed, 1000)
        #expect(bed.ends.values.allSatisfy { $0 == [200] })
        #expect(bed.trace.contains { $0.contains("goaway") })
        #expect(bed.dials.count >= 5)
        bed.stop()
    }

    @Test func nothingIsSentAfterThePermitsEnd() throws {
        let end = MonotonicTime(nanoseconds: 3_000_000_000)
        let permit = SendPermit(until: end)
        let bed = try NetworkBed(seed: 7) { $0.connection.permit = permit }
        bed.run(milliseconds: 1000)
        bed.send(0..<100)
        bed.run(milliseconds: 500)
        expectEnds(bed, 100)
        // The process stops while its socket takes no more, and runs again after the end of its permit.
        bed.network.links[0].client.path.sendBuffer = 20_000
        bed.network.links[0].client.path.bytesPerSecond = 100_000
        bed.send(100..<400)
        bed.run(milliseconds: 100)
        bed.clientProcess.suspend(until: end.nanoseconds + 1_000_000_000)
        bed.run(milliseconds: 2000)
        let before = bed.received.count
        bed.run(milliseconds: 5000)
        #expect(bed.trace.contains { $0.contains("closed 0 closed with unsent requests") })
        #expect(before > 100 && before < 400)
        #expect(bed.received.count == before)
        // The pool opened again, but no push may be sent.
        #expect(bed.dials.count >= 2)
        bed.stop()
    }

    @Test func refusedDialsBackOff() throws {
        let bed = try NetworkBed(seed: 8, listens: false)
        bed.send(0..<10)
        bed.run(milliseconds: 60_000)
        let gaps = zip(bed.dials.dropFirst(), bed.dials).map { $0 - $1 }
        #expect(bed.dials.count > 5 && bed.dials.count < 40)
        #expect(gaps[0] < 1_000_000_000)
        #expect(gaps.max()! > 4_000_000_000)
        #expect(bed.trace.contains { $0.contains("Connection refused") })
        #expect(bed.trace.contains { $0.contains("circuit(open") })
        try bed.scheduler.run { try bed.listen() }
        bed.run(milliseconds: 20_000)
        expectEnds(bed, 10)
        #expect(bed.ends.values.allSatisfy { $0 == [200] })
        bed.stop()
    }

    @Test(arguments: [
        SimulatedRoute.Handshake.hanging, .failing(.hostnameMismatch), .failing(.noCommonParameters),
        .failing(.certificateRefused),
    ])
    func handshakesThatFailAreTriedAgain(_ handshake: SimulatedRoute.Handshake) throws {
        let bed = try NetworkBed(seed: 9)
        bed.network.route.handshake = handshake
        bed.send(0..<10)
        bed.run(milliseconds: 15_000)
        #expect(bed.ends.isEmpty)
        let text = handshake == .hanging ? "waiting for the TLS handshake" : "simulated fault"
        #expect(bed.trace.contains { $0.contains("closed 0") && $0.contains(text) })
        bed.network.route.handshake = .completed
        bed.run(milliseconds: 120_000)
        expectEnds(bed, 10)
        bed.stop()
    }

    @Test func nameThatIsUnknownOrSilent() throws {
        let bed = try NetworkBed(seed: 10)
        bed.network.names["push.example"] = .failing(isTemporary: false)
        bed.send(0..<10)
        bed.run(milliseconds: 3000)
        #expect(bed.dials.isEmpty && bed.trace.contains { $0.contains("resolveFailed") })
        bed.network.names["push.example"] = .addresses(["10.0.0.2", "10.0.0.1"])
        bed.network.routes[SocketAddress("10.0.0.2", port: 443)!] = {
            var route = SimulatedRoute()
            route.opening = .unanswered
            return route
        }()
        bed.run(milliseconds: 20_000)
        expectEnds(bed, 10)
        // Without name servers the pool dials the address that worked.
        bed.network.names["push.example"] = .silent
        bed.network.links.first { $0.isOpen }?.cut()
        bed.run(milliseconds: 10_000)
        #expect(bed.pool.openConnections == 1)
        bed.stop()
    }

    @Test func deathOfTheServerIsSeenByTheClient() throws {
        let bed = try NetworkBed(seed: 11)
        bed.answer = { _, _ in }
        bed.run(milliseconds: 1000)
        bed.send(0..<10)
        bed.run(milliseconds: 100)
        bed.scheduler.run { bed.serverProcess.kill() }
        bed.run(milliseconds: 100)
        expectEnds(bed, 10)
        #expect(unknown(bed) == 10)
        #expect(bed.pool.openConnections == 0)
        #expect(bed.trace.contains { $0.contains("closed 0 cut by the server without close_notify") })
        bed.stop()
    }

    /// Runs a world with faults, and returns its trace.
    private func trace(seed: UInt64) throws -> [String] {
        let bed = try NetworkBed(seed: seed) { $0.connections = 2 }
        bed.network.whenDialled = { [unowned bed] link in
            let delay = 1_000_000_000 + bed.scheduler.below(3_000_000_000)
            bed.scheduler.schedule(after: delay) { link.cut(server: bed.scheduler.below(2) == 0) }
        }
        for round in 0..<20 {
            bed.send(UInt32(round) * 100..<UInt32(round) * 100 + 100)
            bed.run(milliseconds: 300)
        }
        bed.run(milliseconds: 5000)
        bed.stop()
        return bed.trace + ["\(bed.scheduler.steps) steps, \(bed.received.count) received"]
    }

    @Test func theSameSeedGivesTheSameTrace() throws {
        let first = try trace(seed: 12)
        let second = try trace(seed: 12)
        let third = try trace(seed: 13)
        #expect(first.count > 1000)
        #expect(first == second)
        #expect(first != third)
    }
}
