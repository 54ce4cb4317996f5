import APNS
import APNSSimulator
import Configuration
import EventLoop
import HTTP2
import SluiceModel
import TestSupport
import Testing

@testable import Gateway

/// Two apps on one worker with a store: `news` sends 50 pushes a second, `sport` is in trouble.
@Suite struct NeighbourTests {
    private static let sport = "com.example.sport"
    private static let perSecond = (news: 50, sport: 100)

    struct Trouble: CustomTestStringConvertible {
        var name: String
        /// Fault of the server of `sport`; nil: the server works.
        var fault: String?
        var app: @Sendable (inout Configuration.App) -> Void = { _ in }
        /// Jobs of `sport` a second.
        var sport = NeighbourTests.perSecond.sport
        /// True when `sport` has the credential of `news`. Its topic alone fails.
        var sharesCredential = false
        /// True when the key of `sport` isn't that of `news`.
        var hasOwnKey = false

        var testDescription: String { name }
    }

    static let troubles = [
        Trouble(name: "503", fault: "status:503:ServiceUnavailable"),
        Trouble(name: "refused streams", fault: "reset:7"),
        Trouble(name: "no streams", fault: "streams"),
        Trouble(name: "no answers", fault: "silent"),
        Trouble(name: "500", fault: "status:500:InternalServerError"),
        Trouble(name: "Retry-After", fault: "status:503:ServiceUnavailable:1.0:60"),
        Trouble(name: "500 of its topic", fault: "status:500:InternalServerError", sharesCredential: true),
        Trouble(
            name: "Retry-After of its topic", fault: "status:503:ServiceUnavailable:1.0:60",
            sharesCredential: true),
        Trouble(name: "rest of its key", fault: "status:429:TooManyProviderTokenUpdates", hasOwnKey: true),
        Trouble(name: "pace", fault: nil, app: { $0.ratePerSecond = 20 }, sport: 60),
        Trouble(name: "max in flight, no answers", fault: "silent", app: { $0.maxInFlight = 5 }),
    ]

    /// `news` keeps its rate and its latency, and each job of `sport` has its outcome.
    @Test(arguments: troubles) func neighbourNoticesNothing(_ trouble: Trouble) throws {
        let seconds = 8
        try withBed { bed in
            let server = try trouble.fault.map {
                try FaultyServer(
                    fault: $0, seconds: Double(seconds + 2),
                    topic: trouble.sharesCredential ? Self.sport : nil)
            }
            let key =
                try trouble.hasOwnKey
                ? bed.directory.write(CertificateAuthority(commonName: "key").privateKeyPEM, to: "other.p8")
                : nil
            let worker = try bed.worker { configuration in
                configuration.store = .init(directory: bed.directory.file("store"), changelog: .off)
                configuration.delivery.maxInFlight = 200
                configuration.delivery.retry = .init(initial: .milliseconds(50), maximum: .seconds(1))
                configuration.credentials[0].endpoint = .init(
                    environment: .production, host: "localhost", port: Int(bed.simulator.port),
                    caFile: bed.directory.file("ca.pem"))
                var other = configuration.credentials[0]
                other.name = "other"
                if let key {
                    other.kind = .token(keyFile: key, keyID: "OTHER23456", teamID: "DEF123GHIJ")
                }
                if let server, trouble.sharesCredential {
                    configuration.credentials[0].endpoint = .init(
                        environment: .production, host: "localhost", port: server.port, caFile: server.caFile)
                } else if let server {
                    other.endpoint = .init(
                        environment: .production, host: "localhost", port: server.port, caFile: server.caFile)
                }
                configuration.credentials.append(other)
                var app = Configuration.App(
                    name: "sport", topics: [Self.sport],
                    credentials: [trouble.sharesCredential ? "team" : "other"])
                trouble.app(&app)
                configuration.apps.append(app)
            }
            try bed.produce(1, seed: 9_999)
            try bed.waitForOutcomes(1)
            var produced = (news: 0, sport: 0)
            let begin = ContinuousClock.now
            try eventually("all jobs are produced") {
                let passed = min(Double(seconds), (ContinuousClock.now - begin) / .seconds(1))
                let due = (
                    news: Int(passed * Double(Self.perSecond.news)),
                    sport: Int(passed * Double(trouble.sport))
                )
                try bed.produce(due.sport - produced.sport, seed: UInt64(50_000 + produced.sport)) {
                    push, _ in
                    push.topic = Self.sport
                }
                try bed.produce(due.news - produced.news, seed: UInt64(10_000 + produced.news))
                produced = due
                return passed >= Double(seconds)
            }
            var latencies: [Int64] = []
            try eventually("the neighbour's pushes are accepted", timeout: .seconds(20)) {
                bed.outcomes.poll()
                latencies = bed.readOutcomes().filter { $0.topic == newsTopic && $0.kind == .accepted }
                    .map { $0.finishedMilliseconds - $0.createdMilliseconds }
                return latencies.count == produced.news + 1
            }
            // The first job has waited for the worker's start.
            latencies = latencies.sorted().dropLast()
            #expect(latencies[latencies.count * 99 / 100] < 1000, "\(latencies.suffix(10))")
            // Pushes of a topic that fails alone wait with their topic, or between two attempts.
            if !trouble.sharesCredential { #expect(worker.snapshot().totals.parkings > 0) }
            let outcomes = try bed.waitForOutcomes(1 + produced.news + produced.sport)
            #expect(outcomes.allSatisfy { $0.kind == .accepted })
            #expect(WorkerBed.places(outcomes).count == outcomes.count)
            #expect(outcomes.count == 1 + produced.news + produced.sport)
            bed.stop(worker)
        }
    }

    /// The server cuts each connection that carries one of three pushes. The others notice two cuts.
    @Test func pushesThatEndConnectionsEndAlone() throws {
        let seconds = 6.0
        try withBed { bed in
            let server = try FaultyServer(fault: "kill:dead", seconds: 600)
            let worker = try bed.worker { configuration in
                configuration.delivery.retry = .init(initial: .milliseconds(50), maximum: .seconds(1))
                configuration.credentials[0].endpoint = .init(
                    environment: .production, host: "localhost", port: server.port, caFile: server.caFile)
            }
            try bed.produce(1, seed: 9_999)
            try bed.waitForOutcomes(1)
            var produced = 0
            var killers = 0
            let begin = ContinuousClock.now
            try eventually("all jobs are produced") {
                let passed = min(seconds, (ContinuousClock.now - begin) / .seconds(1))
                let due = Int(passed * Double(Self.perSecond.news))
                try bed.produce(due - produced, seed: UInt64(10_000 + produced))
                produced = due
                if passed > 1, killers == 0 {
                    killers = 3
                    try bed.produce(killers, seed: 77_777) { push, _ in
                        push.deviceToken = "dead" + push.deviceToken.dropFirst(4)
                    }
                }
                return passed >= seconds
            }
            let outcomes = try bed.waitForOutcomes(1 + produced + killers)
            let ended = outcomes.filter { $0.deviceToken.hasPrefix("dead") }
            #expect(ended.map(\.cause) == Array(repeating: "ends-connections", count: killers))
            let others = outcomes.filter { !$0.deviceToken.hasPrefix("dead") }
            #expect(others.count == 1 + produced && others.allSatisfy { $0.kind == .accepted })
            let latencies = others.map { $0.finishedMilliseconds - $0.createdMilliseconds }.sorted()
                .dropLast()
            #expect(latencies[latencies.count * 99 / 100] < 1000, "\(latencies.suffix(10))")
            #expect(ended.allSatisfy { $0.attempts <= 10 })
            bed.stop(worker)
        }
    }

    /// The server acknowledges PINGs and answers nothing for a while. The pool opens few connections, and the pushes are
    /// accepted soon after.
    @Test func silentServerGetsFewConnections() throws {
        let seconds = 30.0
        try withBed { bed in
            let server = try FaultyServer(fault: "silent", seconds: seconds)
            let worker = try bed.worker { configuration in
                configuration.apns.requestTimeout = .seconds(20)
                configuration.credentials[0].endpoint = .init(
                    environment: .production, host: "localhost", port: server.port, caFile: server.caFile)
            }
            try bed.produce(200, seed: 1)
            try eventually("the circuit opens", timeout: .seconds(25)) {
                worker.snapshot().totals.credentials.values.contains { $0.pools.circuitsOpen > 0 }
            }
            let outcomes = try bed.waitForOutcomes(200)
            #expect(outcomes.allSatisfy { $0.kind == .accepted })
            let books = server.books
            #expect(books.connections <= 10, "\(books.connections) connections")
            bed.stop(worker)
        }
    }
}
