import SluiceModel
import Testing

@testable import DeviceModel

@Suite struct AttachmentTests {
    static func file(_ type: String, _ count: Int) -> AttachmentStore.File {
        AttachmentStore.File(type: type, bytes: [UInt8](repeating: 7, count: count))
    }

    @Test(arguments: [
        ("image/jpeg", 10 << 20), ("image/gif", 10 << 20), ("IMAGE/PNG; q=1", 10 << 20),
        ("audio/mpeg", 5 << 20),
        ("audio/wav", 5 << 20), ("video/mp4", 50 << 20),
    ])
    func eachTypeHasItsLimit(_ type: String, _ largest: Int) {
        var store = AttachmentStore()
        let room = 200 << 20
        #expect(store.add(Self.file(type, largest), largest: room, room: room) != nil)
        #expect(store.add(Self.file(type, largest + 1), largest: room, room: room) == nil)
        #expect(store.add(Self.file(type, 11), largest: 10, room: room) == nil)
        #expect(store.bytes == largest)
    }

    @Test(arguments: ["text/html", "image/svg+xml", "", ";", "image", "application/octet-stream"])
    func otherTypesAreRefused(_ type: String) {
        var store = AttachmentStore()
        #expect(store.add(Self.file(type, 1), largest: 10, room: 10) == nil)
        #expect(store.count == 0)
    }

    @Test func anEmptyFileIsRefused() {
        var store = AttachmentStore()
        #expect(store.add(Self.file("image/png", 0), largest: 10, room: 10) == nil)
    }

    @Test func theOldestFilesLeaveWhenTheRoomIsUsedUp() {
        var store = AttachmentStore()
        let first = store.add(Self.file("image/png", 4), largest: 10, room: 10)
        let second = store.add(Self.file("image/png", 4), largest: 10, room: 10)
        let third = store.add(Self.file("image/png", 8), largest: 10, room: 10)
        #expect([first, second, third] == [1, 2, 3])
        #expect(store[1] == nil && store[2] == nil)
        #expect(store.bytes == 8)
        #expect(store.add(Self.file("image/png", 11), largest: 20, room: 10) == nil)
        #expect(store.bytes == 8)
        store.remove(3)
        store.remove(3)
        store.remove(99)
        #expect(store.bytes == 0)
        #expect(store.add(Self.file("image/png", 10), largest: 10, room: 10) == 4)
    }

    @Test func aRefusedAttachmentLeavesTheOtherChanges() throws {
        var bed = try ExtensionBed()
        for result in [
            WorkResult.fetched(type: "text/html", bytes: [1]), .failed("404"), .decrypted([1]),
            .fetched(type: "audio/mpeg", bytes: [UInt8](repeating: 0, count: 5 << 20 + 1)),
        ] {
            let push = try bed.run(ExtensionTests.pictured)
            bed.finish(try #require(bed.world.takeWork().first), result)
            #expect(ExtensionTests.ownRules(bed.rules(push)) == ["attachment-refused", "extension-ran"])
        }
        #expect(bed.world.extensions.attachments.bytes == 0)
    }

    @Test func aReleasedAttachmentIsGone() throws {
        var bed = try ExtensionBed()
        try bed.run(ExtensionTests.pictured)
        bed.finish(
            try #require(bed.world.takeWork().first), .fetched(type: "image/png", bytes: [1]))
        #expect(bed.world.attachment(1)?.type == "image/png")
        bed.world.releaseAttachments([1])
        #expect(bed.world.attachment(1) == nil)
        #expect(bed.world.extensions.attachments.bytes == 0)
    }
}
