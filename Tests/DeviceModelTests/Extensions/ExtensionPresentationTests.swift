import SluiceModel
import Testing

@testable import DeviceModel

/// Service extensions from the arrival of a push to the notification that the user sees.
@Suite struct ExtensionPresentationTests {
    static func push(_ bed: inout ExtensionBed, _ payload: String, collapseID: String? = nil) {
        bed.now += 1
        _ = bed.world.push(
            token: bed.token, topic: ExtensionBed.bundle, collapseID: collapseID, payload: payload,
            now: bed.now)
    }

    static func views(_ bed: ExtensionBed) -> [NotificationView] {
        bed.world.device(bed.device, now: bed.now)?.apps.first?.delivered ?? []
    }

    @Test func theChangedTextsAreShownAndTheOriginalIsKnown() throws {
        var bed = try ExtensionBed()
        Self.push(&bed, ExtensionTests.encrypted)
        #expect(Self.views(bed).isEmpty)
        #expect(bed.world.push(1)?.fate == "running")
        bed.finish(try #require(bed.world.takeWork().first), .decrypted(Array(#"{"body":"Clear"}"#.utf8)))
        let view = try #require(Self.views(bed).first)
        #expect(view.title == "T")
        #expect(view.body == "Clear")
        #expect(view.original?.body == "B")
        #expect(bed.world.push(1)?.fate == "shown")
    }

    @Test func theOriginalIsShownWhenTheTimeRunsOut() throws {
        var declaration = ServiceExtensionDeclaration()
        declaration.takes = 60
        declaration.set = ["body": "changed"]
        var bed = try ExtensionBed(declaration)
        Self.push(&bed, ExtensionBed.payload())
        bed.pass(30_000)
        #expect(Self.views(bed).map(\.body) == ["B"])
        declaration.ends = "best-attempt"
        bed = try ExtensionBed(declaration)
        Self.push(&bed, ExtensionBed.payload())
        bed.pass(30_000)
        #expect(Self.views(bed).map(\.body) == ["changed"])
    }

    @Test func aHiddenNotificationIsNotInTheList() throws {
        var declaration = ServiceExtensionDeclaration()
        declaration.ends = "empty"
        var bed = try ExtensionBed(declaration, entitlements: [.filtering])
        Self.push(&bed, ExtensionBed.payload())
        #expect(Self.views(bed).isEmpty)
        #expect(bed.world.push(1)?.fate == "dropped")
        bed = try ExtensionBed(declaration)
        Self.push(&bed, ExtensionBed.payload())
        #expect(Self.views(bed).map(\.body) == ["B"])
    }

    @Test func anAttachmentIsFreedWhenItsNotificationLeavesTheList() throws {
        var bed = try ExtensionBed()
        func attach(_ identifier: String) throws {
            Self.push(&bed, ExtensionTests.pictured, collapseID: identifier)
            bed.finish(try #require(bed.world.takeWork().first), .fetched(type: "image/gif", bytes: [1, 2]))
        }
        try attach("a")
        #expect(Self.views(bed).first?.attachments == [AttachmentView(id: 1, type: "image/gif", bytes: 2)])
        try attach("a")
        #expect(bed.world.attachment(1) == nil)
        try attach("b")
        #expect(bed.world.extensions.attachments.bytes == 4)
        try bed.world.perform(
            DeviceAction(.dismiss, app: ExtensionBed.bundle, identifier: "a"), on: bed.device, now: bed.now)
        #expect(bed.world.extensions.attachments.bytes == 2)
        try bed.world.perform(
            DeviceAction(.uninstall, app: ExtensionBed.bundle), on: bed.device, now: bed.now)
        #expect(bed.world.extensions.attachments.bytes == 0)
    }

    @Test func anAttachmentOfANotificationThatIsNotListedIsFreed() throws {
        var bed = try ExtensionBed()
        Self.push(&bed, ExtensionTests.pictured)
        let fetch = try #require(bed.world.takeWork().first)
        try bed.world.perform(
            DeviceAction(.settings, app: ExtensionBed.bundle, on: false), on: bed.device, now: bed.now)
        bed.finish(fetch, .fetched(type: "image/gif", bytes: [1, 2]))
        #expect(Self.views(bed).isEmpty)
        #expect(bed.world.extensions.attachments.bytes == 0)
    }

    @Test func aHiddenNotificationsBadgeObeysTheOptionsOfThePermission() throws {
        var declaration = ServiceExtensionDeclaration()
        declaration.ends = "empty"
        var app = AppDeclaration(bundle: ExtensionBed.bundle)
        app.serviceExtension = declaration
        app.entitlements = [.filtering]
        app.permission = PermissionRequest()
        app.permission?.options = ["alert", "sound"]
        var bed = try ExtensionBed(app)
        Self.push(&bed, ExtensionBed.payload(aps: #""badge":4"#))
        #expect(bed.world.device(bed.device, now: bed.now)?.apps.first?.badge == 0)
        #expect(bed.rules(1).last == "no-badge")
    }

    @Test func pushesAreListedAndFoundByTheTextsOfTheExtension() throws {
        var bed = try ExtensionBed()
        Self.push(&bed, ExtensionTests.encrypted)
        bed.finish(
            try #require(bed.world.takeWork().first), .decrypted(Array(#"{"body":"Clear text"}"#.utf8)))
        #expect(bed.world.push(1)?.text == "T: Clear text")
        var query = PushQuery()
        query.query = "clear"
        #expect(bed.world.pushes(query).map(\.number) == [1])
        #expect(bed.world.devices(DeviceQuery()).items.first?.lastText == "T: Clear text")
        try bed.world.perform(DeviceAction(.clearAll), on: bed.device, now: bed.now)
        #expect(bed.world.push(1)?.text == "T: Clear text")
    }

    @Test(arguments: ["x", "\u{1F468}\u{200D}\u{1F469}", "a\u{301}\u{302}"])
    func theTextThatTheJournalKeepsIsBounded(_ unit: String) throws {
        var bed = try ExtensionBed()
        Self.push(&bed, ExtensionTests.encrypted)
        let text = String(repeating: unit, count: ExtensionRun.longestClearText / unit.utf8.count)
        bed.finish(try #require(bed.world.takeWork().first), .decrypted(Array(text.utf8)))
        let line = try #require(bed.world.push(1)?.text)
        #expect(line.hasPrefix("T: \(unit)"))
        #expect(line.utf8.count <= PushJournal.longestLine)
    }

    @Test func aDecryptedObjectChangesBadgeLevelAndRelevance() throws {
        var bed = try ExtensionBed()
        Self.push(&bed, ExtensionTests.encrypted)
        let clear = #"{"badge":7,"interruption-level":"passive","relevance-score":0.25}"#
        bed.finish(try #require(bed.world.takeWork().first), .decrypted(Array(clear.utf8)))
        let view = try #require(Self.views(bed).first)
        #expect(view.badge == 7)
        #expect(view.level == "passive")
        #expect(view.relevance == 0.25)
        #expect(bed.world.device(bed.device, now: bed.now)?.apps.first?.badge == 7)
        #expect(bed.world.device(bed.device, now: bed.now)?.banner == nil)
        #expect(bed.rules(1).contains("passive"))
    }

    @Test func setChangesBadgeLevelAndRelevance() throws {
        var declaration = ServiceExtensionDeclaration()
        declaration.set = ["badge": "{unread}", "level": "passive", "relevance": "2"]
        var bed = try ExtensionBed(declaration)
        Self.push(&bed, ExtensionBed.payload(#""unread":3"#, aps: #""badge":1"#))
        let view = try #require(Self.views(bed).first)
        #expect(view.badge == 3)
        #expect(view.level == "passive")
        #expect(view.relevance == 1)
        // Values that are none leave the payload's own.
        declaration.set = ["badge": "-1", "level": "loud", "relevance": "nan"]
        bed = try ExtensionBed(declaration)
        Self.push(&bed, ExtensionBed.payload(aps: #""badge":1,"relevance-score":0.5"#))
        #expect(Self.views(bed).first?.badge == 1)
        #expect(Self.views(bed).first?.level == "active")
        #expect(Self.views(bed).first?.relevance == 0.5)
    }

    @Test func aHiddenNotificationHasTheBadgeOfTheExtension() throws {
        var declaration = ServiceExtensionDeclaration()
        declaration.ends = "empty"
        declaration.set = ["badge": "9"]
        var bed = try ExtensionBed(declaration, entitlements: [.filtering])
        Self.push(&bed, ExtensionBed.payload(aps: #""badge":4"#))
        #expect(bed.world.device(bed.device, now: bed.now)?.apps.first?.badge == 9)
    }
}
