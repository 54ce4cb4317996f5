import SluiceModel
import TestSupport
import Testing

@testable import DeviceModel

/// Payloads that are damaged or hostile. Nothing may trap, and the limits hold.
@Suite struct ActivityFuzzTests {
    private static let values = [
        "null", "true", "0", "-1", "1", "9223372036854775807", "-9223372036854775808", "1e308", "-1e308",
        "1e-320",
        "99999999999999999999", "0.1", "\"\"", "\"AAAA\"", "[]", "{}", #"{"home":1,"away":1}"#, "[[[{}]]]",
        #""start""#, #""update""#, #""end""#, #"{"title":"x"}"#,
    ]
    private static let names = [
        "event", "timestamp", "content-state", "stale-date", "dismissal-date", "relevance-score", "alert",
        "attributes-type", "attributes", "input-push-channel", "input-push-token",
    ]

    private static func payload(_ random: inout SeededGenerator) -> [UInt8] {
        var members: [String: String?] = [:]
        for name in names where random.next() % 5 == 0 {
            members[name] = values.randomElement(using: &random)!
        }
        let base =
            switch random.next() % 4 {
            case 0: ActivityBed.start(members)
            case 1: ActivityBed.end(at: 200, members)
            default: ActivityBed.update(3, at: 150, members)
            }
        var bytes = Array(base.utf8)
        switch random.next() % 4 {
        case 0:
            for _ in 0..<(1 + random.next() % 6) {
                bytes[Int(random.next() % UInt64(bytes.count))] = UInt8(truncatingIfNeeded: random.next())
            }
        case 1 where random.next() % 4 == 0:
            bytes = (0..<random.next() % 200).map { _ in UInt8(truncatingIfNeeded: random.next()) }
        default: break
        }
        return bytes
    }

    @Test(arguments: 1...4 as ClosedRange<UInt64>)
    func damagedPayloadsNeitherTrapNorPassTheLimits(_ seed: UInt64) throws {
        var random = SeededGenerator(seed: seed)
        var bed = try ActivityBed()
        let listening = try bed.started(ChannelTests.listens)
        let updated = try bed.started()
        let targets = [bed.startToken, try #require(updated.token), Tokens.first, Tokens.second]
        for number in 0..<1_000 {
            bed.now += Int64(random.next() % 200_000)
            // Damaged UTF-8 reaches the model as it is.
            let payload = Self.payload(&random)
            if number % 5 == 0 {
                Self.broadcast(payload, &bed, &random)
            } else {
                Self.push(payload, to: targets.randomElement(using: &random)!, &bed)
            }
            for index in bed.world.devices.indices where number % 10 == 0 {
                guard let view = bed.world.device(UInt32(index), now: bed.now) else { continue }
                for app in view.apps {
                    #expect(app.activities.count { ["active", "stale"].contains($0.state) } <= 5)
                }
            }
        }
        _ = listening
        bed.pass(24 * 3_600_000)
        #expect(bed.world.status(now: bed.now).activities == 0)
        #expect(bed.world.channels.count == 0)
    }

    private static func push(_ payload: [UInt8], to token: String, _ bed: inout ActivityBed) {
        Array(token.utf8).withUnsafeBytes { token in
            Array(ActivityBed.topic.utf8).withUnsafeBytes { topic in
                payload.withUnsafeBytes { payload in
                    _ = bed.world.receive(
                        ArrivedPush(
                            token: token, environment: .production, topic: topic, type: .liveActivity,
                            priority: .immediate, expiration: nil, collapseID: nil,
                            apnsID: APNSID(high: 1, low: 1), payload: payload), now: bed.now)
                }
            }
        }
    }

    private static func broadcast(
        _ payload: [UInt8], _ bed: inout ActivityBed, _ random: inout SeededGenerator
    ) {
        let expirations = [Int64.min, -1, 0, 1, Int64.max, bed.now / 1_000 + 60]
        let channel = ["AAAA", "", "\u{0}", "AAA"].randomElement(using: &random)!
        Array(ActivityBed.bundle.utf8).withUnsafeBytes { app in
            Array(channel.utf8).withUnsafeBytes { channel in
                payload.withUnsafeBytes { payload in
                    bed.world.broadcast(
                        ArrivedBroadcast(
                            app: app, channel: channel, environment: .production, priority: .immediate,
                            expiration: expirations.randomElement(using: &random)!,
                            isStored: random.next() % 2 == 0, apnsID: APNSID(high: 1, low: 1),
                            payload: payload),
                        now: bed.now)
                }
            }
        }
    }
}
