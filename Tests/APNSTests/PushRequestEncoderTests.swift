import CNghttp2
import HTTP2
import SluiceModel
import TestSupport
import Testing

@testable import APNS

/// Tests requests as nghttp2's server session reads the frames of our session.
@Suite struct PushRequestEncoderTests {
    /// nghttp2's server session in memory, which collects the header fields of each request.
    final class Peer {
        var session: OpaquePointer?
        var fields: [Int32: [String]] = [:]
        var bodies: [Int32: Int] = [:]

        init() {
            var callbacks: OpaquePointer?
            nghttp2_session_callbacks_new(&callbacks)
            nghttp2_session_callbacks_set_on_header_callback(callbacks) {
                _, frame, name, nameLength, value, length, _, peer in
                let text = { (bytes: UnsafePointer<UInt8>?, count: Int) in
                    String(decoding: UnsafeBufferPointer(start: bytes, count: count), as: UTF8.self)
                }
                let peer = Unmanaged<Peer>.fromOpaque(peer!).takeUnretainedValue()
                peer.fields[frame!.pointee.hd.stream_id, default: []]
                    .append("\(text(name, nameLength)): \(text(value, length))")
                return 0
            }
            nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks) {
                _, _, stream, _, count, peer in
                Unmanaged<Peer>.fromOpaque(peer!).takeUnretainedValue().bodies[stream, default: 0] += count
                return 0
            }
            nghttp2_session_server_new(&session, callbacks, Unmanaged.passUnretained(self).toOpaque())
            nghttp2_session_callbacks_del(callbacks)
            nghttp2_submit_settings(session, UInt8(NGHTTP2_FLAG_NONE.rawValue), nil, 0)
        }

        deinit { nghttp2_session_del(session) }

        /// The server's pending output.
        func output() -> [UInt8] {
            var bytes: [UInt8] = []
            var data: UnsafePointer<UInt8>?
            while true {
                let count = nghttp2_session_mem_send(session, &data)
                guard count > 0 else { return bytes }
                bytes += UnsafeBufferPointer(start: data, count: count)
            }
        }

        func receive(_ bytes: UnsafeRawBufferPointer) -> Int {
            nghttp2_session_mem_recv(session, bytes.bindMemory(to: UInt8.self).baseAddress, bytes.count)
        }
    }

    private func withPush<Result>(
        token: String, collapse: String?, expiration: Expiration, priority: Priority, type: PushType,
        _ body: (PushJob) throws -> Result
    ) rethrows -> Result {
        let token = Array(token.utf8)
        let topic = Array("com.example.news".utf8)
        let collapseBytes = collapse.map { Array($0.utf8) } ?? []
        let payload = Array(#"{"aps":{"alert":"x"}}"#.utf8)
        return try token.withUnsafeBytes { token in
            try topic.withUnsafeBytes { topic in
                try collapseBytes.withUnsafeBytes { collapseBytes in
                    try payload.withUnsafeBytes { payload in
                        try body(
                            PushJob(
                                deviceToken: token, topic: topic, pushType: type, priority: priority,
                                apnsID: APNSID(high: 0x0123_4567_89ab_8def, low: 0x8123_4567_89ab_cdef),
                                expiration: expiration,
                                collapseIdentifier: collapse == nil ? nil : collapseBytes,
                                payload: payload, createdMilliseconds: 0))
                    }
                }
            }
        }
    }

    @Test func serverReadsEveryHeaderOfAPush() {
        let fields = StableFields()
        let encoder = PushRequestEncoder(fields: fields, authority: "api.push.apple.com")
        encoder.setAuthorization(Array("bearer one.two.three".utf8))
        let topic = Array("com.example.news".utf8).withUnsafeBytes { encoder.topic($0) }
        var configuration = ClientSession.Configuration()
        configuration.waitsForAuthentication = false
        var session = ClientSession(configuration: configuration, fields: fields)
        let peer = Peer()
        _ = try? peer.output().withUnsafeBytes { try session.receive($0) }

        var random = SeededGenerator(seed: 3)
        let long = random.hexadecimal(bytes: 100)
        let cases: [(String, String?, Expiration, Priority, PushType)] = [
            ("00ff", nil, .unspecified, .immediate, .alert),
            (random.hexadecimal(bytes: 32), "score", .once, .powerAware, .background),
            (long, "a collapse identifier: ~!@#$%", .at(1_900_000_000), .lowPower, .alert),
            (
                random.hexadecimal(bytes: 32).uppercased(), String(repeating: "z", count: 64),
                .at(4_294_967_295), .immediate, .voip
            ),
        ]
        for (number, push) in cases.enumerated() {
            let result = withPush(
                token: push.0, collapse: push.1, expiration: push.2, priority: push.3, type: push.4
            ) { job in
                session.submit(tag: UInt32(number), body: job.payload, deadline: .max) { block in
                    encoder.encode(job, topic: topic, into: &block)
                }
            }
            #expect(result == .submitted)
        }
        #expect(peer.receive(session.output.readable) == session.output.count)
        for (number, push) in cases.enumerated() {
            var expected = [
                ":method: POST", ":scheme: https", ":authority: api.push.apple.com",
                ":path: /3/device/\(push.0)",
                "authorization: bearer one.two.three", "apns-topic: com.example.news",
                "apns-push-type: \(push.4.headerValue)", "apns-priority: \(push.3.rawValue)",
                "apns-id: 01234567-89ab-8def-8123-456789abcdef",
            ]
            if let seconds = push.2.headerSeconds { expected.append("apns-expiration: \(seconds)") }
            if let collapse = push.1 { expected.append("apns-collapse-id: \(collapse)") }
            let stream = Int32(2 * number + 1)
            #expect(peer.fields[stream] == expected)
            #expect(peer.bodies[stream] == 21)
        }
        // The server reports no error: its output is only SETTINGS and acknowledgements.
        #expect(peer.output().enumerated().filter { $0.offset == 3 }.allSatisfy { $0.element == 4 })
    }

    @Test func repeatedPushTakesAtMost130HeaderBytes() {
        let fields = StableFields()
        let encoder = PushRequestEncoder(fields: fields, authority: "api.push.apple.com")
        encoder.setAuthorization(
            Array(("bearer " + String(repeating: "eyJhbGciOiJFUzI1NiIs", count: 10)).utf8))
        let topic = Array("com.example.news".utf8).withUnsafeBytes { encoder.topic($0) }
        var configuration = ClientSession.Configuration()
        configuration.waitsForAuthentication = false
        var session = ClientSession(configuration: configuration, fields: fields)
        let peer = Peer()
        _ = try? peer.output().withUnsafeBytes { try session.receive($0) }
        var random = SeededGenerator(seed: 4)
        var sizes: [Int] = []
        for number in 0..<3 {
            let before = session.output.count
            withPush(
                token: random.hexadecimal(bytes: 32), collapse: "score-update-123",
                expiration: .at(1_900_000_000),
                priority: .immediate, type: .alert
            ) { job in
                _ = session.submit(tag: UInt32(number), body: job.payload, deadline: .max) { block in
                    encoder.encode(job, topic: topic, into: &block)
                }
            }
            sizes.append(session.output.count - before - 2 * 9 - 21)
        }
        #expect(sizes[0] > 200)
        // Device token, apns-id, expiration and collapse identifier are the push's own; the rest is six bytes.
        #expect(sizes[1] <= 130, "\(sizes)")
        #expect(sizes[2] <= 130, "\(sizes)")
    }
}
