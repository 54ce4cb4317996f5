import SluiceModel
import Testing

@testable import DeviceModel

@Suite struct ExtensionRunTests {
    @Test func aDecryptedObjectReplacesTheTextsThatItHas() {
        var run = ExtensionBed.bare(
            ExtensionBed.declaration(),
            ExtensionBed.payload(#""encrypted-content":"\#(ExtensionBed.sealed)""#))
        let need = run.proceed(canReadKeys: true, now: 0)
        #expect(
            need
                == .work(
                    .decrypt(key: [UInt8](repeating: 15, count: 32), data: [UInt8](repeating: 0, count: 32))))
        #expect(run.isDecrypting)
        let isTaken = run.decrypted(
            Array(#"{"title":"Clear","body":"Text","thread-id":"t","sound":"s","category":"c"}"#.utf8))
        #expect(isTaken)
        #expect(run.proceed(canReadKeys: true, now: 0) == .end(.done))
        #expect(run.changes.title == "Clear")
        #expect(run.changes.subtitle == nil)
        #expect(run.changes.body == "Text")
        #expect(run.changes.thread == "t")
        #expect(run.changes.sound == "s")
        #expect(run.changes.category == "c")
    }

    @Test func aDecryptedTextIsTheBody() {
        for text in ["Hello, world", "12", #"["a"]"#] {
            var run = ExtensionBed.bare(ExtensionBed.declaration(), ExtensionBed.payload())
            let isTaken = run.decrypted(Array(text.utf8))
            #expect(isTaken)
            #expect(run.changes.body == text)
            #expect(run.changes.title == nil)
        }
    }

    @Test func aClearTextBeyondTheLimitIsRefused() {
        var run = ExtensionBed.bare(ExtensionBed.declaration(), ExtensionBed.payload())
        let isTaken = run.decrypted([UInt8](repeating: 65, count: ExtensionRun.longestClearText + 1))
        #expect(!isTaken)
    }

    @Test func setTextsSeeTheFormerTextsAndTheMembers() {
        var declaration = ExtensionBed.declaration()
        declaration.set = [
            "title": "{body}", "body": "{title} from {sender.name}", "subtitle": "{subtitle}!",
            "category": "c", "thread": "{sender.id}", "sound": "{ not a name }", "ignored": "x",
        ]
        var run = ExtensionBed.bare(
            declaration, ExtensionBed.payload(#""sender":{"name":"Ann","id":7}"#))
        #expect(run.proceed(canReadKeys: true, now: 0) == .end(.done))
        #expect(run.changes.title == "B")
        #expect(run.changes.body == "T from Ann")
        #expect(run.changes.subtitle == "S!")
        #expect(run.changes.category == "c")
        #expect(run.changes.thread == "7")
        #expect(run.changes.sound == "{ not a name }")
    }

    @Test func aTextThatNeedsAnAbsentMemberIsNotSet() {
        var declaration = ServiceExtensionDeclaration()
        declaration.set = ["title": "{title} {sender}", "subtitle": "{sender.name}", "body": "{body}!"]
        var run = ExtensionBed.bare(declaration, #"{"aps":{"alert":"B","mutable-content":1}}"#)
        #expect(run.proceed(canReadKeys: true, now: 0) == .end(.done))
        #expect(run.changes.title == nil)
        #expect(run.changes.subtitle == nil)
        #expect(run.changes.body == "B!")
    }

    @Test func setTextsSeeDecryptedMembersBeforeThoseOfThePayload() {
        var declaration = ExtensionBed.declaration()
        declaration.set = ["body": "{body} {sender}", "title": "Mail: {title}"]
        var run = ExtensionBed.bare(
            declaration,
            ExtensionBed.payload(#""encrypted-content":"\#(ExtensionBed.sealed)","sender":"outer""#))
        _ = run.proceed(canReadKeys: true, now: 0)
        let isTaken = run.decrypted(Array(#"{"body":"inner text","sender":"inner"}"#.utf8))
        #expect(isTaken)
        #expect(run.proceed(canReadKeys: true, now: 0) == .end(.done))
        #expect(run.changes.body == "inner text inner")
        #expect(run.changes.title == "Mail: T")
    }

    @Test func anAttachmentsURLMayBeDecrypted() {
        var declaration = ExtensionBed.declaration()
        declaration.allowedHosts = ["files.example.com"]
        var run = ExtensionBed.bare(
            declaration,
            ExtensionBed.payload(
                #""encrypted-content":"\#(ExtensionBed.sealed)","attachment-url":"http://a/""#))
        _ = run.proceed(canReadKeys: true, now: 0)
        let isTaken = run.decrypted(Array(#"{"attachment-url":"http://b/"}"#.utf8))
        #expect(isTaken)
        #expect(
            run.proceed(canReadKeys: true, now: 0)
                == .work(.fetch(url: "http://b/", allowedHosts: ["files.example.com"])))
        run.fetched(4)
        #expect(run.proceed(canReadKeys: true, now: 0) == .end(.done))
        #expect(run.changes.attachments == [4])
    }

    @Test(arguments: [
        ("!!!", ExtensionBed.key), ("AAAA", ExtensionBed.key), (ExtensionBed.sealed, "0f0f"),
        (ExtensionBed.sealed, "xy"), (ExtensionBed.sealed, ""),
    ])
    func dataOrKeyThatCannotBeUsedEndsWithTheOriginal(_ data: String, _ key: String) {
        var declaration = ExtensionBed.declaration()
        declaration.key = key
        var run = ExtensionBed.bare(declaration, ExtensionBed.payload(#""encrypted-content":"\#(data)""#))
        #expect(run.proceed(canReadKeys: true, now: 0) == .end(.notDecrypted))
    }

    @Test(
        arguments: [
            (nil, 0), (0.0, 0), (-5, 0), (12.5, 12_500), (29.999, 29_999), (30, nil), (1e300, nil),
            (.infinity, nil),
            (-.infinity, 0), (.nan, 0),
        ] as [(Double?, Int64?)])
    func theOwnWorkLastsAsDeclaredUnlessTheTimeRunsOut(_ takes: Double?, _ ready: Int64?) {
        var declaration = ServiceExtensionDeclaration()
        declaration.takes = takes
        var run = ExtensionBed.bare(declaration, ExtensionBed.payload(), now: 1_000)
        #expect(run.deadline == 31_000)
        #expect(run.readyAt == ready.map { 1_000 + $0 })
        #expect(run.proceed(canReadKeys: true, now: 1_000) == (ready == 0 ? .end(.done) : .time))
        guard let ready, ready > 0 else { return }
        #expect(run.proceed(canReadKeys: true, now: 999 + ready) == .time)
        #expect(run.proceed(canReadKeys: true, now: 1_000 + ready) == .end(.done))
    }
}
