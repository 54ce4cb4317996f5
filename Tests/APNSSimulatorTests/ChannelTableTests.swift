import SluiceModel
import TestSupport
import Testing

@testable import APNSSimulator

/// Rules of channels, with times as arguments.
@Suite struct ChannelTableTests {
    private let app = "com.example.app"
    private let now: Int64 = 1_800_000_000_000

    /// A table behind a reference, because the macros of tests can't call what changes a value.
    private final class Channels {
        private var table: ChannelTable

        init(_ change: (inout ChannelTable.Limits) -> Void) {
            var limits = ChannelTable.Limits()
            change(&limits)
            table = ChannelTable(limits: limits, seed: 1)
        }

        func create(app: String, storage: ChannelStorage) -> String? {
            table.create(app: app, storage: storage)
        }
        func delete(app: String, _ channel: String) -> Bool { table.delete(app: app, channel) }
        func admit(app: String, now: Int64) -> Bool { table.admit(app: app, now: now) }
        func list(app: String) -> [String] { table.list(app: app) }
        func channel(app: String, _ channel: String) -> ChannelTable.Channel? {
            table.channel(app: app, channel)
        }
        func subscribe(app: String, _ channel: String, now: Int64) -> Bool {
            table.subscribe(app: app, channel, now: now)
        }
        func publish(app: String, _ channel: String, expiration: Int64, payload: String, now: Int64) -> Reason
        {
            Array(payload.utf8).withUnsafeBytes {
                table.publish(app: app, channel, expiration: expiration, payload: $0, now: now)
            }
        }
    }

    private func table(_ change: (inout ChannelTable.Limits) -> Void = { _ in }) -> Channels {
        Channels(change)
    }

    private func publish(
        _ table: Channels, _ channel: String, expiration: Int64, payload: String = "x", at time: Int64
    ) -> Reason {
        table.publish(app: app, channel, expiration: expiration, payload: payload, now: time)
    }

    private func stored(_ table: Channels, _ channel: String) -> String? {
        table.channel(app: app, channel)?.stored.map { String(decoding: $0.payload, as: UTF8.self) }
    }

    @Test func identifiersAreBase64AndDifferFromEachOther() throws {
        let table = table()
        var seen: Set<String> = []
        for _ in 0..<1_000 {
            let identifier = try #require(table.create(app: app, storage: .none))
            #expect(Array(identifier.utf8).withUnsafeBytes { ChannelIdentifier.isValid($0) })
            #expect(seen.insert(identifier).inserted)
        }
        #expect(Set(table.list(app: app)) == seen)
    }

    @Test func creationEndsAtTheAppsLimitAndDeletionMakesRoom() throws {
        let table = table { $0.channels = 3 }
        let first = try #require(table.create(app: app, storage: .none))
        let others = (0..<2).compactMap { _ in table.create(app: app, storage: .newest) }
        #expect(table.list(app: app) == [first] + others)
        #expect(table.create(app: app, storage: .none) == nil)
        #expect(table.create(app: "com.example.other", storage: .none) != nil)
        #expect(table.delete(app: app, first))
        #expect(!table.delete(app: app, first))
        #expect(table.create(app: app, storage: .none) != nil)
    }

    @Test func channelOfAnotherAppIsNotRegistered() throws {
        let table = table()
        let channel = try #require(table.create(app: "com.example.other", storage: .newest))
        #expect(publish(table, channel, expiration: 0, at: now) == .channelNotRegistered)
        #expect(!table.subscribe(app: app, channel, now: now))
    }

    @Test func channelWithoutStorageDemandsAnExpirationOfZero() throws {
        let table = table()
        let channel = try #require(table.create(app: app, storage: .none))
        #expect(publish(table, channel, expiration: now / 1_000 + 60, at: now) == .badExpirationDate)
        #expect(publish(table, channel, expiration: 0, at: now) == .absent)
        #expect(stored(table, channel) == nil)
        #expect(table.channel(app: app, channel)?.published == 1)
    }

    @Test func channelKeepsTheNewestMessageUntilItExpires() throws {
        let table = table()
        let channel = try #require(table.create(app: app, storage: .newest))
        #expect(publish(table, channel, expiration: now / 1_000 + 60, payload: "a", at: now) == .absent)
        #expect(publish(table, channel, expiration: now / 1_000 + 90, payload: "b", at: now) == .absent)
        #expect(stored(table, channel) == "b")
        #expect(table.subscribe(app: app, channel, now: now + 89_999))
        #expect(table.channel(app: app, channel)?.replayed == 1)
        #expect(table.subscribe(app: app, channel, now: now + 90_000))
        #expect(table.channel(app: app, channel)?.replayed == 1)
        #expect(table.channel(app: app, channel)?.subscriptions == 2)
        #expect(stored(table, channel) == nil)
    }

    @Test func channelKeepsAMessageForEightHoursAtMost() throws {
        let table = table()
        let channel = try #require(table.create(app: app, storage: .newest))
        let limit: Int64 = 8 * 3_600 * 1_000
        #expect(publish(table, channel, expiration: now / 1_000 + 30 * 86_400, at: now) == .absent)
        #expect(table.subscribe(app: app, channel, now: now + limit - 1))
        #expect(table.channel(app: app, channel)?.replayed == 1)
        #expect(table.subscribe(app: app, channel, now: now + limit))
        #expect(table.channel(app: app, channel)?.replayed == 1)
    }

    @Test(arguments: [0, 1_799_999_999] as [Int64])
    func messageThatIsNotToBeStoredRemovesTheStoredOne(expiration: Int64) throws {
        let table = table()
        let channel = try #require(table.create(app: app, storage: .newest))
        #expect(publish(table, channel, expiration: now / 1_000 + 60, payload: "a", at: now) == .absent)
        #expect(publish(table, channel, expiration: expiration, payload: "b", at: now) == .absent)
        #expect(stored(table, channel) == nil)
    }

    @Test func channelsHaveBudgetsByTheirStorage() throws {
        let table = table {
            $0.perSecond = 2
            $0.perSecondUnstored = 5
        }
        for (storage, budget) in [(ChannelStorage.newest, 2), (.none, 5)] {
            let channel = try #require(table.create(app: app, storage: storage))
            for _ in 0..<budget { #expect(publish(table, channel, expiration: 0, at: now) == .absent) }
            #expect(publish(table, channel, expiration: 0, at: now + 999) == .tooManyRequests)
            #expect(publish(table, channel, expiration: 0, at: now + 1_000) == .absent)
            #expect(table.channel(app: app, channel)?.published == UInt64(budget + 1))
        }
    }

    @Test func managementIsLimitedByAppAndSecond() {
        let table = table { $0.requestsPerSecond = 2 }
        #expect(table.admit(app: app, now: now))
        #expect(table.admit(app: app, now: now + 500))
        #expect(!table.admit(app: app, now: now + 999))
        #expect(table.admit(app: "com.example.other", now: now + 999))
        #expect(table.admit(app: app, now: now + 1_000))
    }

    @Test(
        arguments: [
            ("", false), ("AA==", true), ("AAA=", true), ("AAAA", true), ("AAA", false), ("A===", false),
            ("====", false), ("AA=A", false), ("AA-_", false), ("+/+/", true), ("AA A", false),
            (String(repeating: "A", count: 128), true), (String(repeating: "A", count: 132), false),
        ])
    func identifierIsBase64OfBoundedLength(text: String, isValid: Bool) {
        #expect(Array(text.utf8).withUnsafeBytes { ChannelIdentifier.isValid($0) } == isValid)
    }
}
