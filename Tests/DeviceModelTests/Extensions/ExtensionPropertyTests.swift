import SluiceModel
import Testing

@testable import DeviceModel

/// Properties of service extensions over random payloads, results and times.
@Suite struct ExtensionPropertyTests {
    private static func declaration(_ random: inout SeededGenerator) -> ServiceExtensionDeclaration {
        var declaration = ExtensionBed.declaration()
        declaration.takes = [nil, 0, 0.5, 10, 29.99, 31, -1, .infinity, .nan].randomElement(using: &random)!
        declaration.ends = [nil, "done", "crash", "empty", "best-attempt", "other"].randomElement(
            using: &random)!
        declaration.set = [nil, ["body": "{body} {a.b}", "title": "{"]].randomElement(using: &random)!
        if random.next() % 8 == 0 { declaration.key = "0f" }
        return declaration
    }

    private static func payload(_ random: inout SeededGenerator) -> String {
        var members: [String] = []
        if random.next() % 2 == 0 {
            members.append(
                #""encrypted-content":\#([#""\#(ExtensionBed.sealed)""#, "\"!\"", "3"].randomElement(using: &random)!)"#
            )
        }
        if random.next() % 2 == 0 {
            members.append(
                #""attachment-url":\#([#""http://127.0.0.1/a""#, "\"\"", "{}"].randomElement(using: &random)!)"#
            )
        }
        var bytes = Array(
            ExtensionBed.payload(
                members.joined(separator: ","), aps: #""badge":\#(Int64(bitPattern: random.next()))"#
            ).utf8)
        // Some payloads are damaged.
        for _ in 0..<(random.next() % 4 == 0 ? 1 + random.next() % 4 : 0) {
            bytes[Int(random.next() % UInt64(bytes.count))] = UInt8(truncatingIfNeeded: random.next())
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    private static func result(_ random: inout SeededGenerator) -> WorkResult {
        let bytes = (0..<random.next() % 900).map { _ in UInt8(truncatingIfNeeded: random.next()) }
        switch random.next() % 6 {
        case 0: return .failed("failed")
        case 1: return .decrypted(Array(#"{"title":3,"body":"x","attachment-url":"http://[::1]/"}"#.utf8))
        case 2: return .decrypted(bytes)
        default:
            let types = ["image/png", "audio/mp4", "video/mp4", "text/plain", ""]
            return .fetched(type: types.randomElement(using: &random)!, bytes: bytes)
        }
    }

    @Test(arguments: 1...8 as ClosedRange<UInt64>)
    func eachRunEndsByTheLimitAndAttachmentsStayBounded(_ seed: UInt64) throws {
        var random = SeededGenerator(seed: seed)
        var settings = DeviceSettings()
        settings.attachmentRoom = 4_000
        settings.largestAttachment = 800
        settings.maximumExtensionRuns = 8
        settings.maximumDelivered = 5
        var bed = try ExtensionBed(
            Self.declaration(&random), entitlements: random.next() % 2 == 0 ? [.filtering] : [],
            settings: settings)
        /// Time at which a run was seen first, by the number of its push.
        var running: [UInt64: Int64] = [:]
        var works: [DeviceWork] = []
        for _ in 0..<300 {
            bed.now += Int64(random.next() % 3_000)
            switch random.next() % 8 {
            case 0...2:
                ExtensionPresentationTests.push(&bed, Self.payload(&random))
            case 3...5:
                works += bed.world.takeWork()
                guard let work = works.randomElement(using: &random) else { break }
                bed.finish(work, Self.result(&random))
            case 6:
                bed.world.finish(random.next() % 50, Self.result(&random), now: bed.now)
            default:
                var app = try #require(bed.world.apps.first)
                app.serviceExtension = random.next() % 6 == 0 ? nil : Self.declaration(&random)
                try bed.world.declare(app, now: bed.now)
                let kinds: [DeviceAction.Kind] = [.lock, .airplane, .power, .clearAll, .reboot]
                let action = DeviceAction(
                    kinds.randomElement(using: &random)!, app: ExtensionBed.bundle, on: random.next() % 3 != 0
                )
                try? bed.world.perform(action, on: bed.device, now: bed.now)
                guard random.next() % 3 != 0 else { break }
                for (kind, on) in [(DeviceAction.Kind.power, true), (.airplane, false), (.lock, false)] {
                    try bed.world.perform(DeviceAction(kind, on: on), on: bed.device, now: bed.now)
                }
            }
            bed.world.advance(to: bed.now)
            #expect(bed.world.extensions.count <= 8)
            #expect(bed.world.extensions.attachments.bytes <= 4_000)
            for number in bed.world.journal.oldest..<bed.world.journal.next
            where bed.world.journal[number]?.fate == .running {
                #expect(bed.now < running[number, default: bed.now] + 30_000)
                running[number] = min(running[number] ?? bed.now, bed.now)
            }
        }
        bed.pass(30_000)
        #expect(bed.world.extensions.count == 0)
        #expect(bed.world.takeWork().isEmpty)
        #expect(!bed.receipts.isEmpty)
        #expect(!running.isEmpty)
        try bed.world.perform(DeviceAction(.power, on: true), on: bed.device, now: bed.now)
        try? bed.world.perform(
            DeviceAction(.removeAllDelivered, app: ExtensionBed.bundle), on: bed.device, now: bed.now)
        #expect(bed.world.extensions.attachments.bytes == 0)
        #expect(bed.world.extensions.attachments.count == 0)
    }
}
