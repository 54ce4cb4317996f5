import CNghttp2
import HTTP2
import SluiceModel
import Synchronization
import TestSupport
import Testing

@testable import APNSSimulator

/// Each fault of a script, as a client on a real connection meets it.
@Suite struct ScriptedFaultTests {
    private let fixture: SimulatorFixture

    init() throws { fixture = try SimulatorFixture() }

    private func play(_ kinds: FaultTimeline.Kind...) throws {
        try fixture.simulator.replaceFaults(with: FaultTimeline(entries: kinds.map { .init($0) }))
    }

    /// Connects, and raises the stream limit by a good push.
    private func connect() throws -> PushClient {
        let client = try fixture.connect()
        #expect(try client.push(fixture.good()).status == 200)
        try client.run { client.streamLimit == 1_000 }
        return client
    }

    /// Sends pushes, and waits until the simulator has judged them.
    private func submit(_ count: Int, on client: PushClient) throws -> [Int32] {
        let judged = fixture.simulator.summary.accepted
        let streams = (0..<count).map { _ in client.submit(fixture.good()) }
        try client.send()
        try eventually("the pushes") { fixture.simulator.summary.accepted == judged + UInt64(count) }
        return streams
    }

    /// Lets the simulator's loop turn.
    private func turn() throws {
        for _ in 0..<20 { try fixture.simulator.replaceFaults(with: fixture.simulator.faults.timeline) }
    }

    private func goAway(_ change: (inout FaultTimeline.GoAway) -> Void) -> FaultTimeline.Kind {
        var goAway = FaultTimeline.GoAway()
        change(&goAway)
        return .goAway(goAway)
    }

    // MARK: - Timeline

    @Test func answersChangeAtOnceAndEndWithTheTimeline() throws {
        let client = try connect()
        try play(.answers([.init(reason: .internalServerError, share: 1)]))
        let response = try client.push(fixture.good())
        #expect(response.status == 500)
        #expect(response.reason == "InternalServerError")
        #expect(fixture.simulator.faults.active == [0])
        try fixture.simulator.replaceFaults(with: FaultTimeline())
        #expect(try client.push(fixture.good()).status == 200)
        #expect(fixture.simulator.faults.active.isEmpty)
    }

    @Test func faultBeginsAndEndsByItself() throws {
        let client = try connect()
        let entry = FaultTimeline.Entry(
            at: .milliseconds(100), lasts: .milliseconds(400),
            .answers([.init(reason: .serviceUnavailable, share: 1)]))
        try fixture.simulator.replaceFaults(with: FaultTimeline(entries: [entry]))
        try eventually("the fault") { try client.push(fixture.good()).status == 503 }
        try eventually("its end") { try client.push(fixture.good()).status == 200 }
    }

    @Test func timelineOfTheOptionsStartsWithTheSimulator() throws {
        let fixture = try SimulatorFixture { options, _ in
            options.faultTimeline.entries = [.init(.answers([.init(reason: .shutdown, share: 1)]))]
        }
        #expect(try fixture.connect().push(fixture.good()).reason == "Shutdown")
    }

    @Test func badTimelineIsRefusedAndTheOldOneContinues() throws {
        let client = try connect()
        try play(.answers([.init(reason: .shutdown, share: 1)]))
        #expect(throws: SimulatorError.self) { try play(.unanswered(share: 7)) }
        #expect(try client.push(fixture.good()).reason == "Shutdown")
    }

    @Test func choicesRepeatWithTheSeed() throws {
        let client = try connect()
        func answers(seed: UInt64) throws -> [String?] {
            let mix: [SimulatorOptions.Fault] = [
                .init(reason: .internalServerError, share: 0.3), .init(reason: .tooManyRequests, share: 0.3),
            ]
            try fixture.simulator.replaceFaults(
                with: FaultTimeline(seed: seed, entries: [.init(.answers(mix))]))
            return try (0..<100).map { _ in try client.push(fixture.good()).reason }
        }
        let first = try answers(seed: 1)
        #expect(try answers(seed: 1) == first)
        #expect(try answers(seed: 2) != first)
        #expect((15...45).contains(first.count { $0 == "TooManyRequests" }))
    }

    @Test func severalLoopsPlayTheSameTimeline() throws {
        let fixture = try SimulatorFixture { options, _ in options.threads = 4 }
        try fixture.simulator.replaceFaults(
            with: FaultTimeline(entries: [.init(.answers([.init(reason: .shutdown, share: 1)]))]))
        for _ in 0..<12 { #expect(try fixture.connect().push(fixture.good()).reason == "Shutdown") }
    }

    // MARK: - Requests

    @Test func latencyDelaysAnswersUntilItEnds() throws {
        let client = try connect()
        try play(.latency(.constant(.seconds(3_600))))
        let late = try submit(1, on: client)[0]
        try fixture.simulator.replaceFaults(with: FaultTimeline())
        #expect(try client.push(fixture.good()).status == 200)
        #expect(client.inbox.closed[late] == nil)
    }

    @Test func unansweredRequestsStayOpen() throws {
        let client = try connect()
        try play(.unanswered(share: 1))
        let stream = client.submit(fixture.good())
        try client.send()
        try eventually("the request") { fixture.simulator.summary.unanswered == 1 }
        try fixture.simulator.replaceFaults(with: FaultTimeline())
        #expect(try client.push(fixture.good()).status == 200)
        #expect(client.inbox.closed[stream] == nil)
    }

    @Test func throttleRefusesRequestsOfADeviceOrOfAll() throws {
        let client = try connect()
        for throttle in [
            FaultTimeline.Kind.throttle(perDevice: 0, perSecond: nil),
            .throttle(perDevice: nil, perSecond: 0),
        ] {
            try play(throttle)
            let response = try client.push(fixture.good())
            #expect(response.status == 429)
            #expect(response.reason == "TooManyRequests")
        }
        try play(.throttle(perDevice: 1, perSecond: nil))
        // At most one of two devices' first pushes can be refused, by neither limit.
        var other = fixture.good()
        other.device = String(repeating: "ab", count: 32)
        #expect(try client.push(other).status == 200)
        try eventually("the limit") { try client.push(other).status == 429 }
    }

    @Test func environmentMixUpConcernsTheSameDevicesEachTime() throws {
        let client = try connect()
        try play(.environment(.deviceTokens, share: 0.5))
        var random = SeededGenerator(seed: 8)
        let devices = (0..<60).map { _ in random.hexadecimal(bytes: 32) }
        func refused() throws -> [String] {
            try devices.filter { device in
                var request = fixture.good()
                request.device = device
                return try client.push(request).reason == "BadDeviceToken"
            }
        }
        let first = try refused()
        #expect((15...45).contains(first.count))
        #expect(try refused() == first)
        try play(.environment(.deviceTokens, share: 1))
        #expect(try refused() == devices)
        try play(.environment(.key, share: 1))
        #expect(try client.push(fixture.good()).reason == "BadEnvironmentKeyIdInToken")
    }

    // MARK: - Connections

    @Test func goAwayReportsTheNextRequestsAsUnprocessedAndAnswersTheOthers() throws {
        let client = try connect()
        try play(.latency(.constant(.seconds(2))))
        let early = try submit(2, on: client)
        try play(goAway { $0.unprocessed = 2 })
        // The last three come before the GOAWAY leaves.
        let streams = early + (0..<5).map { _ in client.submit(fixture.good()) }
        try client.send()
        try client.run { client.isClosed }
        #expect(fixture.simulator.summary.accepted == 3)
        #expect(fixture.simulator.summary.cancelled == 0, "the client has cancelled none")
        let frame = try #require(client.inbox.goAway)
        #expect(frame.errorCode == 0)
        #expect(frame.debugData == #"{"reason":"Shutdown"}"#)
        #expect(frame.lastStream == streams[1])
        #expect(streams.map { client.inbox.responses[$0]?.status } == [200, 200, nil, nil, nil, nil, nil])
        #expect(
            streams[2...].allSatisfy { client.inbox.closed[$0] == UInt32(NGHTTP2_REFUSED_STREAM.rawValue) })
    }

    @Test func goAwayCanEndTheConnectionAtOnce() throws {
        let client = try connect()
        try play(.latency(.constant(.seconds(3_600))))
        _ = try submit(1, on: client)
        try play(
            goAway {
                $0.reason = "IdleTimeout"
                $0.end = .close
                $0.code = 2
            })
        try client.run { client.isClosed }
        #expect(client.inbox.goAway?.errorCode == 2)
        #expect(client.inbox.goAway?.debugData == #"{"reason":"IdleTimeout"}"#)
        #expect(client.inbox.responses.count == 1)
    }

    @Test func twoGoAwaysFollowEachOther() throws {
        let client = try connect()
        try play(
            goAway {
                $0.end = .twice
                $0.reason = ""
                $0.text = "plain text"
            })
        try client.run { client.isClosed }
        #expect(client.inbox.goAways == 2)
        #expect(client.inbox.goAway?.debugData == "plain text")
        #expect(client.inbox.goAway?.lastStream == 1)
    }

    @Test func newConnectionsAreRefusedWithTheirReasonAndNoStream() throws {
        try play(
            goAway {
                $0.connections = .new
                $0.reason = "BadCertificateEnvironment"
            })
        let client = try fixture.connect()
        try client.run { client.isClosed }
        #expect(client.inbox.goAway?.lastStream == 0)
        #expect(client.inbox.goAway?.debugData == #"{"reason":"BadCertificateEnvironment"}"#)
    }

    @Test func goAwayRepeatsAtItsInterval() throws {
        try play(goAway { $0.every = .milliseconds(50) })
        for _ in 0..<3 {
            let client = try fixture.connect()
            try client.run { client.isClosed }
            #expect(client.inbox.goAway != nil)
        }
    }

    @Test func disconnectionHasNoGoAway() throws {
        let client = try connect()
        try play(.disconnect(share: 1, every: nil))
        try client.run { client.isClosed }
        #expect(client.inbox.goAway == nil)
        #expect(try fixture.connect().push(fixture.good()).status == 200)
    }

    @Test func faultOfAShareConcernsOnlySomeConnections() throws {
        let clients = try (0..<24).map { _ in try connect() }
        try play(.disconnect(share: 0.5, every: nil))
        try eventually("the closed connections") {
            (4...20).contains(Int(fixture.simulator.summary.openConnections))
        }
        let open = try clients.filter { client in
            _ = client.submit(fixture.good())
            let answered = client.inbox.closed.count
            try client.run { client.isClosed || client.inbox.closed.count > answered }
            return !client.isClosed
        }
        #expect((4...20).contains(open.count))
    }

    @Test func streamLimitFlaps() throws {
        let client = try connect()
        try play(.streamLimit(.init(low: 3)))
        try client.run { client.streamLimit == 3 }
        #expect(client.streamLimit == 3)
        try play(.streamLimit(.init(low: 1, high: 70, period: .milliseconds(40))))
        for limit: UInt32 in [1, 70, 1, 70] {
            try client.run { client.streamLimit == limit }
            #expect(client.streamLimit == limit)
        }
        try fixture.simulator.replaceFaults(with: FaultTimeline())
        try client.run { client.streamLimit == 1_000 }
        #expect(try client.push(fixture.good()).status == 200)
    }

    @Test func blackHoleAnswersNothingUntilItEnds() throws {
        let client = try connect()
        try play(.blackHole(share: 1))
        let accepted = fixture.simulator.summary.accepted
        let stream = client.submit(fixture.good())
        try client.send()
        try turn()
        #expect(fixture.simulator.summary.accepted == accepted)
        try fixture.simulator.replaceFaults(with: FaultTimeline())
        try client.run { client.inbox.closed[stream] != nil }
        #expect(client.inbox.responses[stream]?.status == 200)
        #expect(client.inbox.goAway == nil)
    }

    @Test func clientThatLeavesABlackHoleLeavesNoConnection() throws {
        do {
            let client = try connect()
            try play(.blackHole(share: 1))
            _ = client.submit(fixture.good())
            try client.send()
        }
        try eventually("the end") { fixture.simulator.summary.openConnections == 0 }
        #expect(fixture.simulator.summary.accepted == 1)
    }

    @Test func blackHoleAcceptsConnectionsAndServesThemAfterItsEnd() throws {
        try play(.blackHole(share: 1))
        let status = Mutex(0)
        let connecting = Stopper { [fixture] in
            // The client waits for the server's SETTINGS.
            let answer = try? fixture.connect().push(fixture.good()).status
            status.withLock { $0 = answer ?? -1 }
        }
        try eventually("the handshake") { fixture.simulator.summary.connections == 1 }
        try turn()
        #expect(fixture.simulator.summary.accepted == 0)
        #expect(status.withLock { $0 } == 0)
        try fixture.simulator.replaceFaults(with: FaultTimeline())
        connecting.wait()
        #expect(status.withLock { $0 } == 200)
    }

    @Test func slowReadsHoldRequestsBackUntilTheyEnd() throws {
        let client = try connect()
        try play(.slowReads(bytesPerSecond: 1, share: 1))
        let accepted = fixture.simulator.summary.accepted
        let stream = client.submit(fixture.good())
        try client.send()
        try turn()
        #expect(fixture.simulator.summary.accepted == accepted)
        try play(.slowReads(bytesPerSecond: 1_000_000, share: 1))
        try client.run { client.inbox.closed[stream] != nil }
        #expect(client.inbox.responses[stream]?.status == 200)
    }

    @Test func windowIsCreditedOnlyAfterTheFault() throws {
        let client = try connect()
        try play(.noWindowUpdates(share: 1))
        var request = fixture.good()
        request.body = String(repeating: " ", count: 4_096)
        while client.sendWindow >= 4_096 { #expect(try client.push(request).status == 200) }
        let stream = client.submit(request)
        try client.send()
        try turn()
        #expect(client.inbox.closed[stream] == nil)
        try fixture.simulator.replaceFaults(with: FaultTimeline())
        try client.run { client.inbox.closed[stream] != nil }
        #expect(client.inbox.responses[stream]?.status == 200)
        #expect(client.sendWindow > 32_768)
    }

    // MARK: - Certificates

    private func identity() throws -> IssuedCertificate {
        try fixture.simulator.authority.issueClient(
            commonName: "Apple Push Services: com.example.app", userID: "com.example.app")
    }

    @Test func expiredServerCertificateFailsHandshakesUntilItEnds() throws {
        let client = try connect()
        try play(.certificate(.server))
        let error = #expect(throws: TLSError.self) { try fixture.connect() }
        #expect("\(error!)".contains("expired"))
        // Open connections continue.
        #expect(try client.push(fixture.good()).status == 200)
        try fixture.simulator.replaceFaults(with: FaultTimeline())
        #expect(try fixture.connect().push(fixture.good()).status == 200)
    }

    @Test(arguments: [
        (FaultTimeline.Kind.certificate(.client), "BadCertificate"),
        (.environment(.certificate, share: 1), "BadCertificateEnvironment"),
    ])
    func refusedClientCertificatesEndOldAndNewConnections(
        kind: FaultTimeline.Kind, reason: String
    ) throws {
        let withToken = try connect()
        let old = try fixture.connect(identity: identity())
        #expect(try old.push(.good(token: nil)).status == 200)
        try play(kind)
        for client in [old, try fixture.connect(identity: identity())] {
            try client.run { client.isClosed }
            #expect(client.inbox.goAway?.debugData == "{\"reason\":\"\(reason)\"}")
        }
        #expect(try withToken.push(fixture.good()).status == 200)
    }
}
