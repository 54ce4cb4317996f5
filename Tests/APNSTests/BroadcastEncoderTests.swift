import CNghttp2
import HTTP2
import SluiceModel
import TestSupport
import Testing

@testable import APNS

/// Tests broadcasts as nghttp2's server session reads the frames of our session.
@Suite struct BroadcastEncoderTests {
    private let fields = StableFields()
    private let encoder: PushRequestEncoder
    private let payload = Array(#"{"aps":{"event":"update"}}"#.utf8)

    init() {
        encoder = PushRequestEncoder(fields: fields, authority: "api.push.apple.com")
    }

    private struct Broadcast {
        var channel: String
        var priority = Priority.immediate
        var expiration = Expiration.once
        var identifier = APNSID(high: 0x0123_4567_89ab_8def, low: 0x8123_4567_89ab_cdef)
    }

    private func app(_ name: String) -> PushRequestEncoder.BroadcastApp {
        Array(name.utf8).withUnsafeBytes { encoder.broadcastApp($0) }
    }

    private func open(_ peer: PushRequestEncoderTests.Peer) throws -> ClientSession {
        var configuration = ClientSession.Configuration()
        configuration.waitsForAuthentication = false
        var session = ClientSession(configuration: configuration, fields: fields)
        _ = try peer.output().withUnsafeBytes { try session.receive($0) }
        return session
    }

    private func submit(
        _ broadcast: Broadcast, to app: PushRequestEncoder.BroadcastApp, tag: UInt32,
        on session: inout ClientSession
    ) {
        let channel = Array(broadcast.channel.utf8)
        let result = payload.withUnsafeBytes { payload in
            channel.withUnsafeBytes { channel in
                session.submit(tag: tag, body: payload, deadline: .max) { block in
                    encoder.encodeBroadcast(
                        to: app, channel: channel, priority: broadcast.priority,
                        expiration: broadcast.expiration, identifier: broadcast.identifier, into: &block)
                }
            }
        }
        #expect(result == .submitted)
    }

    @Test func serverReadsEveryHeaderOfABroadcast() throws {
        encoder.setAuthorization(Array("bearer one.two.three".utf8))
        let apps = [app("com.example.scores"), app("com.example.news")]
        let peer = PushRequestEncoderTests.Peer()
        var session = try open(peer)
        let long = String(repeating: "AZaz09+/", count: 16)
        let cases: [(app: Int, Broadcast, expiration: String)] = [
            (0, Broadcast(channel: "dHN0LXNyY2gtY2hubA=="), "0"),
            (0, Broadcast(channel: "dHN0LXNyY2gtY2hubA==", priority: .powerAware), "0"),
            (1, Broadcast(channel: long, priority: .lowPower, expiration: .at(1_900_000_000)), "1900000000"),
            (1, Broadcast(channel: "AA==", expiration: .unspecified), "0"),
        ]
        for (number, broadcast) in cases.enumerated() {
            submit(broadcast.1, to: apps[broadcast.app], tag: UInt32(number), on: &session)
        }
        #expect(peer.receive(session.output.readable) == session.output.count)
        for (number, broadcast) in cases.enumerated() {
            let name = ["com.example.scores", "com.example.news"][broadcast.app]
            let stream = Int32(2 * number + 1)
            #expect(
                peer.fields[stream] == [
                    ":method: POST", ":scheme: https", ":authority: api.push.apple.com",
                    ":path: /4/broadcasts/apps/\(name)", "authorization: bearer one.two.three",
                    "apns-push-type: liveactivity", "apns-priority: \(broadcast.1.priority.rawValue)",
                    "apns-channel-id: \(broadcast.1.channel)", "apns-expiration: \(broadcast.expiration)",
                    "apns-request-id: 01234567-89ab-8def-8123-456789abcdef",
                ])
            #expect(peer.bodies[stream] == payload.count)
        }
    }

    @Test func certificateConnectionSendsNoAuthorization() throws {
        let news = app("com.example.news")
        let peer = PushRequestEncoderTests.Peer()
        var session = try open(peer)
        submit(Broadcast(channel: "AA=="), to: news, tag: 1, on: &session)
        #expect(peer.receive(session.output.readable) == session.output.count)
        #expect(peer.fields[1]?.contains { $0.hasPrefix("authorization") } == false)
        #expect(peer.fields[1]?.contains { $0.hasPrefix("apns-topic") } == false)
    }

    @Test func repeatedBroadcastHasOnlyItsOwnValuesAsTexts() throws {
        encoder.setAuthorization(Array(("bearer " + String(repeating: "eyJhbGciOiJ", count: 18)).utf8))
        let news = app("com.example.a-rather-long-bundle-identifier")
        let peer = PushRequestEncoderTests.Peer()
        var session = try open(peer)
        var sizes: [Int] = []
        for number in 0..<3 {
            let before = session.output.count
            submit(Broadcast(channel: "dHN0LXNyY2gtY2hubA=="), to: news, tag: UInt32(number), on: &session)
            sizes.append(session.output.count - before - 2 * 9 - payload.count)
        }
        #expect(sizes[0] > 200)
        // Channel, expiration and identifier are texts, the other seven fields are a byte or two each.
        #expect(sizes[1] <= 70, "\(sizes)")
        #expect(sizes[2] <= 70, "\(sizes)")
    }

    @Test func pushesAndBroadcastsShareAConnectionsTable() throws {
        encoder.setAuthorization(Array("bearer one".utf8))
        let topic = Array("com.example.news".utf8).withUnsafeBytes { encoder.topic($0) }
        let news = app("com.example.news")
        let peer = PushRequestEncoderTests.Peer()
        var session = try open(peer)
        let token = Array(String(repeating: "0a", count: 32).utf8)
        for number in 0..<6 {
            if number == 3 { encoder.setAuthorization(Array("bearer two".utf8)) }
            guard number % 2 == 0 else {
                submit(Broadcast(channel: "AA=="), to: news, tag: UInt32(number), on: &session)
                continue
            }
            token.withUnsafeBytes { token in
                payload.withUnsafeBytes { payload in
                    let push = PushJob(
                        deviceToken: token, topic: token, pushType: .alert, priority: .immediate,
                        apnsID: APNSID(high: 1, low: 2), expiration: .once, payload: payload,
                        createdMilliseconds: 0)
                    _ = session.submit(tag: UInt32(number), body: payload, deadline: .max) { block in
                        encoder.encode(push, topic: topic, into: &block)
                    }
                }
            }
        }
        #expect(peer.receive(session.output.readable) == session.output.count)
        for number in 0..<6 {
            let fields = try #require(peer.fields[Int32(2 * number + 1)])
            #expect(fields.contains("authorization: bearer \(number < 3 ? "one" : "two")"))
            let path = number % 2 == 0 ? ":path: /3/device/0a" : ":path: /4/broadcasts/apps/com.example.news"
            #expect(fields.contains { $0.hasPrefix(path) })
            #expect(fields.contains("apns-push-type: \(number % 2 == 0 ? "alert" : "liveactivity")"))
        }
    }

    /// A credential that was exchanged has an encoder of its own, for the apps of the one before.
    @Test func copyOfAnEncoderServesItsApps() throws {
        encoder.setAuthorization(Array("bearer old".utf8))
        let apps = [app("com.example.scores"), app("com.example.news")]
        let copiedFields = StableFields()
        let copy = PushRequestEncoder(copying: encoder, fields: copiedFields)
        copy.setAuthorization(Array("bearer new".utf8))
        let peer = PushRequestEncoderTests.Peer()
        var configuration = ClientSession.Configuration()
        configuration.waitsForAuthentication = false
        var session = ClientSession(configuration: configuration, fields: copiedFields)
        _ = try peer.output().withUnsafeBytes { try session.receive($0) }
        let channel = Array("AA==".utf8)
        for (number, app) in apps.enumerated() {
            channel.withUnsafeBytes { channel in
                _ = session.submit(tag: UInt32(number), body: channel, deadline: .max) { block in
                    copy.encodeBroadcast(
                        to: app, channel: channel, priority: .immediate, expiration: .once,
                        identifier: APNSID(high: 1, low: 2), into: &block)
                }
            }
        }
        #expect(peer.receive(session.output.readable) == session.output.count)
        for (number, name) in ["com.example.scores", "com.example.news"].enumerated() {
            let fields = try #require(peer.fields[Int32(2 * number + 1)])
            #expect(fields.contains(":path: /4/broadcasts/apps/\(name)"))
            #expect(fields.contains("authorization: bearer new"))
        }
    }
}
