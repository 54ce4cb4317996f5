import CNghttp2
import SluiceModel
import TestSupport
import Testing

@testable import HTTP2

/// Tests our client's session against nghttp2's server session, in memory. Requests, answers, settings and the
/// pieces of the byte streams are random.
@Suite struct RandomConversationTests {
    final class Conversation {
        let server: MemoryServer
        let harness: Harness
        var random: SeededGenerator
        var toServer: [UInt8] = []
        var toClient: [UInt8] = []
        var submitted: UInt32 = 0
        var contents: [UInt32: Int] = [:]
        var ends: [UInt32: [(status: Int, body: [UInt8])]] = [:]
        var goAways = 0
        var now: UInt64 = 0
        var error: HTTP2ConnectionError?

        init(seed: UInt64) {
            server = MemoryServer(seed: seed)
            harness = Harness(waits: false, maximumStreams: 50)
            random = SeededGenerator(seed: seed ^ 0xc11e)
        }

        func number(_ below: Int) -> Int { Int.random(in: 0..<below, using: &random) }

        func step() {
            switch number(12) {
            case 0...3: submit()
            case 4, 5: moveToServer()
            case 6...8: moveToClient()
            case 9: server.answerSome()
            case 10: changeSettings()
            default:
                switch number(6) {
                case 0: harness.session.ping(1)
                case 1: nghttp2_submit_ping(server.session, 0, nil)
                case 2:
                    now += UInt64(number(40))
                    _ = harness.session.expire(now: now)
                default: break
                }
            }
            takeEvents()
        }

        func submit() {
            let size = [0, 1, 300, 300, 4096, 20_000][number(6)]
            for _ in 0..<number(8) {
                guard harness.submit(submitted, bytes: size, deadline: now + 2000) == .submitted else {
                    return
                }
                contents[submitted] = size
                submitted += 1
            }
        }

        func changeSettings() {
            let choices: [(nghttp2_settings_id, [UInt32])] = [
                (NGHTTP2_SETTINGS_HEADER_TABLE_SIZE, [0, 60, 200, 4096, 65_536]),
                (NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, [1, 2, 10, 1000]),
                (NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, [0, 1, 1000, 65_535, 1 << 20]),
                (NGHTTP2_SETTINGS_MAX_FRAME_SIZE, [16_384, 17_000, 100_000]),
            ]
            server.settings(
                (0..<1 + number(2)).map { _ in
                    let (name, values) = choices[number(choices.count)]
                    return (name, values[number(values.count)])
                })
        }

        func moveToServer(all: Bool = false) {
            toServer += Array(harness.session.output.readable)
            harness.session.output.removeAll()
            let count = all ? toServer.count : min(toServer.count, number(20_000))
            toServer.withUnsafeBytes { server.receive(UnsafeRawBufferPointer(rebasing: $0[..<count])) }
            toServer.removeFirst(count)
        }

        func moveToClient(all: Bool = false) {
            toClient += server.output()
            let count = all ? toClient.count : min(toClient.count, number(5000))
            let piece = Array(toClient.prefix(count))
            let used = piece.withUnsafeBytes { bytes in
                // Bodies of events lie in the piece.
                defer { takeEvents() }
                do throws(HTTP2ConnectionError) {
                    return try harness.session.receive(bytes)
                } catch {
                    self.error = error
                    return 0
                }
            }
            toClient.removeFirst(used)
        }

        func takeEvents() {
            for event in harness.session.events.all {
                switch event.kind {
                case .response: ends[event.tag, default: []].append((Int(event.status), Array(event.body)))
                case .failed: ends[event.tag, default: []].append((0, []))
                case .goAway: goAways += 1
                case .capacityChanged, .pingAnswered: break
                }
            }
            harness.session.events.removeAll()
        }
    }

    @Test(arguments: 0..<60 as Range<UInt64>) func everyRequestEndsOnceWithTheServersAnswer(
        seed: UInt64
    ) throws {
        let talk = Conversation(seed: seed)
        let server = talk.server
        server.settings([(NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 20)])
        for _ in 0..<1000 where talk.error == nil {
            talk.step()
            if let broken = talk.harness.session.brokenInvariant() {
                Issue.record("seed \(seed): \(broken)")
                return
            }
        }
        // Finally the server opens its windows and raises its stream limit.
        server.settings([
            (NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 65_535), (NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 50),
        ])
        var rounds = 0
        while talk.harness.session.openStreams > 0, talk.error == nil, rounds < 10_000 {
            server.answerSome()
            talk.moveToClient(all: true)
            talk.moveToServer(all: true)
            rounds += 1
        }
        #expect(talk.error == nil, "seed \(seed)")
        #expect(server.complaints.first == nil, "seed \(seed)")
        #expect(talk.goAways == 0, "seed \(seed)")
        #expect(talk.submitted > 30, "seed \(seed)")
        for tag in 0..<talk.submitted {
            let ends = talk.ends[tag] ?? []
            #expect(ends.count == 1, "seed \(seed), request \(tag)")
            guard let end = ends.first, end.status != 0 else { continue }
            let answer = try #require(server.answers[tag], "seed \(seed), request \(tag)")
            #expect(end.status == answer.status, "seed \(seed), request \(tag)")
            #expect(
                end.body == Array(answer.body.prefix(ClientSession.maximumResponseBody)),
                "seed \(seed), request \(tag)")
        }
        let answered = talk.ends.values.count { $0.first?.status == 200 }
        #expect(answered > Int(talk.submitted) / 4, "seed \(seed)")
    }
}
