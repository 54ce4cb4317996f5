import SluiceModel
import Testing

@testable import DeviceModel

@Suite struct ExtensionTests {
    static let encrypted = ExtensionBed.payload(#""encrypted-content":"\#(ExtensionBed.sealed)""#)
    static let pictured = ExtensionBed.payload(#""attachment-url":"http://127.0.0.1/a.png""#)

    @Test func anExtensionDecryptsAndAttaches() throws {
        var bed = try ExtensionBed()
        let push = try bed.run(
            ExtensionBed.payload(
                #""encrypted-content":"\#(ExtensionBed.sealed)","attachment-url":"http://127.0.0.1/a.png""#))
        #expect(bed.world.push(push)?.fate == "running")
        let decrypt = try #require(bed.world.takeWork().first)
        #expect(bed.world.takeWork().isEmpty)
        bed.finish(decrypt, .decrypted(Array("clear".utf8)))
        let fetch = try #require(bed.world.takeWork().first)
        #expect(fetch.kind == .fetch(url: "http://127.0.0.1/a.png", allowedHosts: []))
        bed.finish(fetch, .fetched(type: "image/png", bytes: [1, 2, 3]))
        #expect(Self.ownRules(bed.rules(push)) == ["decrypted", "attachment-added", "extension-ran"])
        #expect(bed.receipts == ["done"])
        #expect(bed.world.attachment(1)?.bytes == [1, 2, 3])
        #expect(bed.world.attachmentViews([1, 2]) == [AttachmentView(id: 1, type: "image/png", bytes: 3)])
        #expect(bed.world.extensions.count == 0)
    }

    /// Steps that belong to extensions.
    static func ownRules(_ rules: [String]) -> [String] {
        rules.filter { $0.hasPrefix("extension-") || $0.hasPrefix("attachment-") || $0.hasPrefix("decrypt") }
    }

    @Test func anAppWithoutExtensionShowsTheOriginal() throws {
        var bed = try ExtensionBed(nil)
        let push = try bed.run(Self.encrypted)
        #expect(Self.ownRules(bed.rules(push)) == ["extension-skipped-none"])
        #expect(bed.receipts.isEmpty)
    }

    @Test func anExtensionWithoutWorkEndsAtOnce() throws {
        var bed = try ExtensionBed(ServiceExtensionDeclaration())
        let push = try bed.run(Self.encrypted)
        #expect(Self.ownRules(bed.rules(push)) == ["extension-ran"])
        #expect(bed.world.takeWork().isEmpty)
    }

    @Test func failedDecryptionShowsTheOriginal() throws {
        var bed = try ExtensionBed()
        for result in [WorkResult.failed("tag"), .fetched(type: "image/png", bytes: [1])] {
            let push = try bed.run(Self.encrypted)
            bed.finish(try #require(bed.world.takeWork().first), result)
            #expect(Self.ownRules(bed.rules(push)) == ["decryption-failed"])
        }
        #expect(bed.receipts == ["not-decrypted", "not-decrypted"])
    }

    @Test func keysAreUnreadableBeforeTheFirstUnlock() throws {
        var bed = try ExtensionBed()
        try bed.world.perform(DeviceAction(.reboot), on: bed.device, now: bed.now)
        let push = try bed.run(Self.encrypted)
        #expect(Self.ownRules(bed.rules(push)) == ["extension-locked"])
        let plain = try bed.run(ExtensionBed.payload())
        #expect(Self.ownRules(bed.rules(plain)) == ["extension-ran"])
        try bed.world.perform(DeviceAction(.lock, on: false), on: bed.device, now: bed.now)
        try bed.run(Self.encrypted)
        #expect(bed.world.takeWork().count == 1)
        #expect(bed.receipts == ["locked", "done"])
    }

    @Test(arguments: [nil, "best-attempt"] as [String?])
    func anExtensionThatTakesTooLongIsEndedAtTheLimit(_ ends: String?) throws {
        var declaration = ServiceExtensionDeclaration()
        declaration.takes = 45
        declaration.ends = ends
        var bed = try ExtensionBed(declaration)
        let push = try bed.run(ExtensionBed.payload())
        bed.pass(29_999)
        #expect(bed.world.push(push)?.fate == "running")
        bed.pass(1)
        #expect(
            Self.ownRules(bed.rules(push))
                == [ends == nil ? "extension-timed-out" : "extension-best-attempt"])
        #expect(bed.receipts == [ends ?? "timed-out"])
        #expect(bed.world.extensions.count == 0)
    }

    @Test func anExtensionEndsWhenItsOwnWorkIsDone() throws {
        var declaration = ServiceExtensionDeclaration()
        declaration.takes = 2.5
        var bed = try ExtensionBed(declaration)
        let push = try bed.run(ExtensionBed.payload())
        bed.pass(2_499)
        #expect(bed.receipts.isEmpty)
        bed.pass(1)
        #expect(Self.ownRules(bed.rules(push)) == ["extension-ran"])
        bed.pass(60_000)
        #expect(bed.receipts == ["done"])
        #expect(bed.world.nextDue.map { $0 > bed.now } ?? true)
    }

    @Test func aResultBehindTheLimitIsIgnored() throws {
        var bed = try ExtensionBed()
        let push = try bed.run(Self.pictured)
        let fetch = try #require(bed.world.takeWork().first)
        bed.pass(29_999)
        bed.finish(fetch, .fetched(type: "image/png", bytes: [1]))
        #expect(Self.ownRules(bed.rules(push)) == ["extension-timed-out"])
        #expect(bed.world.attachment(1) == nil)
        bed.finish(fetch, .fetched(type: "image/png", bytes: [1]))
        #expect(bed.receipts == ["timed-out"])
    }

    @Test func workOfEndedRunsIsNotHandedOut() throws {
        var bed = try ExtensionBed()
        try bed.run(Self.pictured)
        bed.pass(30_000)
        #expect(bed.world.takeWork().isEmpty)
    }

    @Test func doubleAndUnknownResultsAreIgnored() throws {
        var bed = try ExtensionBed()
        try bed.run(Self.pictured)
        let fetch = try #require(bed.world.takeWork().first)
        bed.finish(DeviceWork(id: fetch.id + 1, kind: fetch.kind), .failed("unknown"))
        #expect(bed.receipts.isEmpty)
        bed.finish(fetch, .fetched(type: "image/png", bytes: [1]))
        bed.finish(fetch, .failed("again"))
        #expect(bed.receipts == ["done"])
        try bed.run(Self.pictured)
        let former = try #require(bed.world.takeWork().first)
        bed.world.reset(now: bed.now)
        bed.finish(former, .fetched(type: "image/png", bytes: [1]))
        #expect(bed.receipts.isEmpty)
        #expect(bed.world.attachment(1) == nil)
    }

    @Test func aCrashShowsTheOriginal() throws {
        var declaration = ServiceExtensionDeclaration()
        declaration.ends = "crash"
        var bed = try ExtensionBed(declaration)
        let push = try bed.run(ExtensionBed.payload())
        #expect(Self.ownRules(bed.rules(push)) == ["extension-crashed"])
        #expect(bed.receipts == ["crashed"])
    }

    @Test func emptyContentHidesTheNotificationWithTheEntitlementOnly() throws {
        var declaration = ServiceExtensionDeclaration()
        declaration.ends = "empty"
        var bed = try ExtensionBed(declaration)
        let shown = try bed.run(ExtensionBed.payload(aps: #""badge":4"#))
        #expect(Self.ownRules(bed.rules(shown)) == ["extension-empty"])
        bed = try ExtensionBed(declaration, entitlements: [.filtering])
        let hidden = try bed.run(ExtensionBed.payload(aps: #""badge":4"#))
        #expect(Self.ownRules(bed.rules(hidden)) == ["extension-hid"])
        #expect(bed.rules(hidden).last == "badge")
        #expect(bed.world.push(hidden)?.fate == "dropped")
        #expect(bed.world.device(bed.device, now: bed.now)?.apps.first?.badge == 4)
        let cleared = try bed.run(ExtensionBed.payload(aps: #""badge":0"#))
        #expect(bed.rules(cleared).last == "badge-removed")
        #expect(bed.world.device(bed.device, now: bed.now)?.apps.first?.badge == 0)
        for badge in ["-1", "1e30", #""3""#, "99999999999999999999"] {
            try bed.run(ExtensionBed.payload(aps: #""badge":\#(badge)"#))
        }
        let large = try bed.run(ExtensionBed.payload(aps: #""badge":9223372036854775807"#))
        #expect(bed.rules(large).last == "badge")
        #expect(bed.world.device(bed.device, now: bed.now)?.apps.first?.badge == Int(Int32.max))
        #expect(bed.receipts.suffix(1) == ["hidden"])
    }

    @Test func aDeviceThatIsSwitchedOffEndsTheRun() throws {
        var bed = try ExtensionBed()
        let push = try bed.run(Self.pictured)
        let fetch = try #require(bed.world.takeWork().first)
        try bed.world.perform(DeviceAction(.power, on: false), on: bed.device, now: bed.now)
        bed.finish(fetch, .fetched(type: "image/png", bytes: [1]))
        #expect(Self.ownRules(bed.rules(push)) == ["extension-crashed"])
        #expect(bed.world.attachment(1) == nil)
        #expect(bed.world.push(push)?.fate == "held")
    }

    @Test func anUninstalledAppShowsNothing() throws {
        var bed = try ExtensionBed()
        ExtensionPresentationTests.push(&bed, Self.pictured)
        let push = bed.world.journal.next - 1
        let fetch = try #require(bed.world.takeWork().first)
        try bed.world.perform(
            DeviceAction(.uninstall, app: ExtensionBed.bundle), on: bed.device, now: bed.now)
        bed.finish(fetch, .fetched(type: "image/png", bytes: [1]))
        #expect(bed.rules(push).last == "not-installed")
        #expect(bed.world.push(push)?.fate == "dropped")
        #expect(bed.world.extensions.attachments.bytes == 0)
    }

    @Test func moreRunsThanTheLimitShowTheOriginal() throws {
        var settings = DeviceSettings()
        settings.maximumExtensionRuns = 3
        var bed = try ExtensionBed(settings: settings)
        for _ in 1...3 { try bed.run(Self.pictured) }
        let push = try bed.run(Self.pictured)
        #expect(Self.ownRules(bed.rules(push)) == ["extension-too-many"])
        #expect(bed.world.takeWork().count == 3)
        bed.pass(30_000)
        try bed.run(Self.pictured)
        #expect(bed.world.takeWork().count == 1)
    }

    @Test func aDeviceWithoutNetworkFetchesNothing() throws {
        var bed = try ExtensionBed()
        try bed.run(Self.encryptedAndPictured)
        let decrypt = try #require(bed.world.takeWork().first)
        try bed.world.perform(DeviceAction(.airplane, on: true), on: bed.device, now: bed.now)
        bed.finish(decrypt, .decrypted([65]))
        #expect(bed.world.takeWork().isEmpty)
        #expect(bed.receipts == ["done"])
    }

    static let encryptedAndPictured = ExtensionBed.payload(
        #""encrypted-content":"\#(ExtensionBed.sealed)","attachment-url":"http://127.0.0.1/a""#)
}
