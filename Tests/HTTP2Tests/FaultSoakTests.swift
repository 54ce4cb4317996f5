import EventLoop
import Glibc
import SluiceModel
import TestSupport
import Testing

@testable import HTTP2

/// Tests an elastic pool under load against random faults, by seed. Requests that end as unknown are sent
/// again, as a sender does that prefers repetition to loss.
@Suite struct FaultSoakTests {
    private static let requests: UInt32 = 2000

    /// Serves a connection with random faults.
    private static func misbehave(_ peer: FaultPeer, seed: UInt64, calm: BlockingFlag) {
        var random = SeededGenerator(seed: seed &* 10_007 &+ UInt64(peer.number))
        func chance(_ of: Int) -> Bool { Int.random(in: 0..<of, using: &random) == 0 }
        var held: [FaultPeer.Request] = []
        peer.limit([1, 10, 100, 1000].randomElement(using: &random)!)
        peer.replenishes = !chance(10)
        while true {
            if held.isEmpty || chance(2), let request = held.isEmpty ? peer.request() : peer.requestAtHand() {
                held.append(request)
            } else if held.isEmpty {
                return
            } else {
                let request = held.remove(at: Int.random(in: 0..<held.count, using: &random))
                if chance(40) {
                    peer.refuse(request)
                    if chance(2) { peer.write(Raw.reset(request.stream, 5)) }
                } else if chance(200) {
                    // The server may have acted on the request before the reset.
                    if chance(2) { peer.record.change { $0.accepted[request.number, default: 0] += 1 } }
                    peer.refuse(request, code: 2)
                } else {
                    peer.accept(request, inSingleBytes: chance(50))
                }
            }
            if chance(60) { peer.limit([0, 1, 2, 20, 200, 1000].randomElement(using: &random)!) }
            // Keeps the limit from staying at 0.
            if held.isEmpty { peer.limit(50) }
            if chance(100) { peer.write(Raw.frame(6, [1, 2, 3, 4, 5, 6, 7, 8])) }
            guard chance(150) else { continue }
            switch Int.random(in: 0..<8, using: &random) {
            case 0, 1:
                // The last requests aren't processed.
                held.sort { $0.stream < $1.stream }
                if chance(2) { peer.write(Raw.goAway(0x7fff_ffff, 0)) }
                let kept = held.prefix(Int.random(in: 0...held.count, using: &random))
                // The last stream covers all answered requests.
                let last = max(peer.lastAnswered, kept.last?.stream ?? 0)
                peer.write(Raw.goAway(last, 0, chance(2) ? "{\"reason\":\"Shutdown\"}" : ""))
                for request in held where request.stream <= last { peer.accept(request) }
                while let request = peer.request() { if request.stream <= last { peer.accept(request) } }
                return
            case 2: return peer.cut(FaultPeer.Cut.allCases.randomElement(using: &random)!)
            case 3:
                if let request = held.first {
                    peer.write(Array(Raw.ok(request.stream).prefix(Int.random(in: 1...9, using: &random))))
                }
                return peer.cut(FaultPeer.Cut.allCases.randomElement(using: &random)!)
            case 4:
                peer.write(HostileServerTests.blocks.randomElement(using: &random)!.bytes)
                peer.awaitEnd()
                return
            case 5:
                // Silent until the client closes the connection.
                if chance(2) {
                    calm.wait()
                } else {
                    peer.answersPings = false
                    peer.awaitEnd()
                }
                return
            default: usleep(UInt32.random(in: 0..<30_000, using: &random))
            }
        }
    }

    @Test(arguments: 1...10 as ClosedRange<UInt64>) func randomFaultsLoseAndRepeatNoRequest(
        seed: UInt64
    ) throws {
        let calm = BlockingFlag()
        let server = try FaultServer { Self.misbehave($0, seed: seed, calm: calm) }
        // Releases scripts that wait for calm, also when the test throws.
        defer { calm.set() }
        let bed = try FaultBed(server) {
            $0.connections = 1 + Int(seed % 3)
            $0.maximumConnections = 6
            $0.growthInterval = .milliseconds(10)
            $0.growthPatience = .milliseconds(5)
            $0.queueAgeTarget = .milliseconds(50)
            $0.idleTimeout = .milliseconds(300)
            $0.connection.suspicionInterval = .milliseconds(100)
            $0.connection.pingTimeout = .milliseconds(300)
            $0.connection.requestTimeout = .seconds(2)
            $0.connection.session.maximumStreams = 200
            $0.connection.session.waitsForAuthentication = seed % 2 == 0
            $0.seed = seed
        }
        let all = 0..<Self.requests
        bed.client.send(all)
        // Number of repetitions after an unknown end, by request number.
        var again: [UInt32: Int] = [:]
        while true {
            try eventually("all ends, seed \(seed)") {
                let ends = bed.client.read { $0.ends }
                return all.allSatisfy { (ends[$0]?.count ?? 0) == 1 + again[$0, default: 0] }
            }
            let unknown = bed.client.read { $0.ends }.filter { $0.value.last == 0 }.keys.sorted()
            if unknown.isEmpty { break }
            for number in unknown { again[number, default: 0] += 1 }
            bed.client.send(unknown)
        }
        let ends = bed.client.read { $0.ends }
        let record = server.record.now
        for number in all {
            let unknown = again[number, default: 0]
            // Any number of unknown ends, then a single answer.
            #expect(ends[number] == Array(repeating: 0, count: unknown) + [200], "\(number), seed \(seed)")
            let accepted = record.accepted[number, default: 0]
            #expect((1...1 + unknown).contains(accepted), "\(number), seed \(seed)")
        }
        #expect(record.violations.isEmpty, "seed \(seed)")
        // An unknown end needs a cause by the server: a reset or the end of a connection.
        #expect(again.isEmpty || record.opened > 1, "seed \(seed)")
        #expect(bed.client.read { $0.pool.inFlight } == 0, "seed \(seed)")
        #expect(bed.client.read { $0.pool.scheduler.waiting } == 0, "seed \(seed)")
        let counters = bed.counters
        #expect(counters.notProcessed == bed.client.read { $0.refusals }, "seed \(seed)")
        #expect(counters.unknown == again.values.reduce(0, +), "seed \(seed)")
        #expect(counters.answers2xx == UInt64(Self.requests), "seed \(seed)")
        #expect(
            counters.requests == UInt64(Self.requests) + UInt64(counters.unknown + counters.notProcessed),
            "seed \(seed)")
    }
}
