import Testing

@testable import SluiceModel

@Suite struct StoredPushTests {
    @Test func randomPushesRoundTrip() throws {
        for seed in UInt64(1)...2000 {
            let original = StoredDraft(seed: seed)
            let bytes = original.encoded()
            let decoded = try #require(StoredDraft(decoding: bytes), "seed \(seed)")
            try #require(decoded == original, "seed \(seed)")
            try #require(decoded.encoded() == bytes, "seed \(seed)")
        }
    }

    /// Instants may be far apart or implausible.
    @Test(arguments: [
        StoredPush.instants.lowerBound, -1, 0, 1, 1_700_000_000_000, StoredPush.instants.upperBound,
    ])
    func extremeValuesRoundTrip(_ created: Int64) throws {
        for instant in [
            StoredPush.instants.lowerBound, -1, 0, 1, 1_700_000_000_000, StoredPush.instants.upperBound,
        ] {
            var draft = StoredDraft(seed: 1)
            draft.created = created
            draft.expiration = .at(.max)
            (draft.deliverAt, draft.registeredAt, draft.polled, draft.offset) = (
                instant, instant, instant, instant
            )
            draft.receiptTimeout = .max
            draft.partition = instant < 0 ? .min : .max
            draft.offset = instant < 0 ? .min : .max
            draft.progress = StoredPush.Progress(
                attempts: .max, failures: .max, firstSentMilliseconds: instant, expiryMilliseconds: instant,
                wait: .held, wakeMilliseconds: instant, storeVersion: .max)
            #expect(StoredDraft(decoding: draft.encoded()) == draft)
        }
    }

    /// Differences of instants beyond the bounds could overflow in later computations.
    @Test func instantsBeyondTheBoundsAreRefused() {
        for instant in [
            Int64.min, StoredPush.instants.lowerBound - 1, StoredPush.instants.upperBound + 1, .max,
        ] {
            func error(_ change: (inout StoredDraft) -> Void) -> StoredPushError? {
                var draft = StoredDraft(seed: 1)
                draft.expiration = .unspecified
                change(&draft)
                return StoredDraft.error(decoding: draft.encoded())
            }
            #expect(error { $0.created = instant } == .invalid(.created))
            #expect(error { $0.polled = instant } == .invalid(.polled))
            #expect(error { $0.deliverAt = instant } == .invalid(.deliverAt))
            #expect(error { $0.registeredAt = instant } == .invalid(.registeredAt))
            #expect(error { $0.progress.firstSentMilliseconds = instant } == .invalid(.firstSent))
            #expect(error { $0.progress.expiryMilliseconds = instant } == .invalid(.expiry))
            #expect(error { $0.progress.wakeMilliseconds = instant } == .invalid(.wake))
        }
    }

    /// A newer version may have other limits. Such a push is read for its outcome, but not sent.
    @Test func pushBeyondALimitIsReadButUnsendable() throws {
        func unsendable(_ change: (inout StoredDraft) -> Void) throws -> StoredPushError.Part? {
            var draft = StoredDraft(seed: 3)
            (draft.type, draft.payload, draft.collapse) = (.alert, "{}", "c")
            change(&draft)
            #expect(StoredDraft(decoding: draft.encoded()) == draft)
            return try draft.encoded().withUnsafeBytes { bytes in
                try withUnsafeTemporaryAllocation(byteCount: StoredPush.longestToken, alignment: 1) { text in
                    try StoredPush(decoding: bytes, tokenText: text).unsendablePart
                }
            }
        }
        func payload(_ count: Int) -> String { String(repeating: " ", count: count) }
        #expect(try unsendable { _ in } == nil)
        for type in PushType.allCases {
            let most = type.maximumPayloadSize
            #expect(try unsendable { ($0.type, $0.payload) = (type, payload(most)) } == nil)
            #expect(try unsendable { ($0.type, $0.payload) = (type, payload(most + 1)) } == .payload)
        }
        #expect(try unsendable { $0.payload = payload(65_535) } == .payload)
        #expect(try unsendable { $0.payload = "" } == .payload)
        for token in ["00", String(repeating: "a", count: 402), String(repeating: "aB", count: 255)] {
            #expect(try unsendable { $0.token = token } == .deviceToken)
        }
        for topic in ["", "a..b", "a b", "a\nb", String(repeating: "a", count: 254) + "."] {
            #expect(try unsendable { $0.topic = topic } == .topic)
        }
        for identifier in [" a", "a\r\n", String(repeating: "a", count: 65), "é"] {
            #expect(try unsendable { $0.collapse = identifier } == .collapseIdentifier)
        }
    }

    /// Pushes without further parts are in version 1, which earlier versions of Sluice read after a roll-back.
    @Test func onlyAPushWithAnEnvironmentIsExtended() throws {
        var draft = StoredDraft(seed: 4)
        (draft.environment, draft.adjustments, draft.headers) = (nil, [], [])
        let plain = draft.encoded()
        #expect(plain[0] == StoredPush.plainVersion)
        draft.headers = StoredDraft.row([("traceparent", "00-1-2-01"), ("x-tenant", nil)])
        #expect(draft.encoded()[0] == StoredPush.extendedVersion)
        #expect(draft.encoded().count == plain.count + 2 + draft.headers.count)
        draft.headers = []
        for environment in JobEnvironment.allCases {
            draft.environment = environment
            let extended = draft.encoded()
            #expect(extended[0] == StoredPush.extendedVersion)
            #expect(extended.count == plain.count + 1)
            #expect(StoredDraft(decoding: extended) == draft)
        }
    }

    /// The format is on disks, so these bytes must be readable as long as version 1 is.
    @Test func storedFormatIsFixed() throws {
        let bytes: [UInt8] =
            [
                1,  // version
                0x09, 0x71,  // lower-case token, expiration, attempts, wake, held
                0x51,  // background, 5, hold-while-offline
                16, 3, 2, 2, 0,  // lengths
                8, 7, 6, 5, 4, 3, 2, 1, 16, 15, 14, 13, 12, 11, 10, 9,  // apns-id
                0x80, 0xA0, 0xAB, 0xFE, 0xF9, 0x62,  // created at 1,700,000,000,000
                0x08,  // polled 4 ms later
                0x06, 0x54,  // partition 3, offset 42
                0xA0, 0x38,  // expires 3,600 s after
                2, 1,  // attempts, failures
                0xE0, 0xD4, 0x03,  // tries again 30 s after
            ] + (0..<16).map { 0xA0 + $0 } + Array("a.bcd{}".utf8)
        let draft = try #require(StoredDraft(decoding: bytes))
        var expected = StoredDraft(seed: 1)
        expected.token = "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf"
        (expected.topic, expected.collapse, expected.payload) = ("a.b", "cd", "{}")
        (expected.type, expected.priority, expected.delivery) = (.background, .powerAware, .holdWhileOffline)
        expected.apnsID = APNSID(high: 0x0102_0304_0506_0708, low: 0x090A_0B0C_0D0E_0F10)
        expected.expiration = .at(1_700_003_600)
        (expected.deliverAt, expected.registeredAt, expected.duplicates) = (nil, nil, .allow)
        (expected.environment, expected.adjustments, expected.headers) = (nil, [], [])
        expected.receiptTimeout = JobLimits.defaultReceiptTimeout
        (expected.created, expected.polled) = (1_700_000_000_000, 1_700_000_000_004)
        (expected.partition, expected.offset) = (3, 42)
        expected.progress = StoredPush.Progress(
            attempts: 2, failures: 1, wait: .held, wakeMilliseconds: 1_700_000_030_000)
        #expect(draft == expected)
        #expect(expected.encoded() == bytes)

        // Version 2 has the flags of further parts before the device token.
        let tokenStart = bytes.count - 16 - 7
        let extended = [2] + bytes[1..<tokenStart] + [0x02] + bytes[tokenStart...]
        expected.environment = .development
        #expect(StoredDraft(decoding: extended) == expected)
        #expect(expected.encoded() == extended)
        for flags: [UInt8] in [[0x00], [0x03], [0x40], [0x80, 0x80, 0x01]] {
            let damaged = [2] + bytes[1..<tokenStart] + flags + bytes[tokenStart...]
            #expect(StoredDraft.error(decoding: damaged) == .invalid(.extendedFlags))
        }
        // A passed header, behind the flags of all adjusted times.
        let header: [UInt8] = [3, 1, 0] + Array("x-yz".utf8)
        let withHeader = [2] + bytes[1..<tokenStart] + [0x3C, 7] + header + bytes[tokenStart...]
        (expected.environment, expected.adjustments) = (nil, [.createdAt, .registeredAt, .timestamp])
        expected.headers = header
        #expect(StoredDraft(decoding: withHeader) == expected)
        #expect(expected.encoded() == withHeader)
        for row: [UInt8] in [[0], [3, 2, 2, 0], [4, 0, 0, 0, 1]] {
            let damaged = [2] + bytes[1..<tokenStart] + [0x20] + row + bytes[tokenStart...]
            #expect(StoredDraft.error(decoding: damaged) == .invalid(.passedHeaders))
        }
    }

    @Test func storedCodesRoundTrip() {
        for type in PushType.allCases { #expect(PushType(storedCode: type.storedCode) == type) }
        for priority in Priority.allCases {
            #expect(Priority(storedCode: priority.storedCode) == priority)
        }
        for mode in DeliveryMode.allCases { #expect(DeliveryMode(storedCode: mode.storedCode) == mode) }
        for wait in StoredPush.Wait.allCases {
            #expect(StoredPush.Wait(storedCode: wait.storedCode) == wait)
            #expect(StoredPush.Flags.wait(wait).wait == wait)
        }
        #expect(Set(PushType.allCases.map(\.storedCode)).count == PushType.allCases.count)
    }

    /// The store finds pushes behind an open circuit by topic, without decoding the push.
    @Test func topicBehindOpenCircuitIsReadWithoutDecoding() throws {
        for seed in UInt64(1)...500 {
            var draft = StoredDraft(seed: seed)
            let bytes = draft.encoded()
            let topic = bytes.withUnsafeBytes { StoredPush.suspendedTopic(of: $0) }
            var name = draft.topic
            let environment = draft.environment
            let hash = name.withUTF8 { StoredPush.topicHash(UnsafeRawBufferPointer($0), environment) }
            #expect(topic == (draft.progress.wait == .suspended ? hash : nil), "seed \(seed)")
            draft.progress.wait = .suspended
            let suspended = draft.encoded()
            for count in 0..<min(26, suspended.count) {
                // Nothing is read past the end of truncated bytes.
                _ = suspended.prefix(count).withUnsafeBytes { StoredPush.suspendedTopic(of: $0) }
            }
        }
        #expect([UInt8](repeating: 1, count: 25).withUnsafeBytes { StoredPush.suspendedTopic(of: $0) } == nil)
    }

    @Test func typicalPushIsSmall() throws {
        var draft = StoredDraft(seed: 7)
        draft.token = TestRecord.token
        (draft.topic, draft.collapse) = ("com.example.shop", "order-4711")
        draft.expiration = .at(1_700_003_600)
        (draft.deliverAt, draft.registeredAt) = (nil, nil)
        draft.receiptTimeout = JobLimits.defaultReceiptTimeout
        (draft.created, draft.polled) = (1_700_000_000_000, 1_700_000_000_250)
        (draft.partition, draft.offset) = (11, 1_000_000)
        draft.progress = StoredPush.Progress()
        (draft.environment, draft.adjustments, draft.headers) = (nil, [], [])
        let content = 32 + draft.topic.utf8.count + "order-4711".utf8.count + draft.payload.utf8.count
        #expect(draft.encoded().count - content == 39)
        // A retry after a day, with a time limit of the worker's own.
        draft.progress = StoredPush.Progress(
            attempts: 5, failures: 5, firstSentMilliseconds: 1_700_000_000_300,
            expiryMilliseconds: 1_700_086_400_000, wait: .retrying, wakeMilliseconds: 1_700_000_060_000,
            storeVersion: 100_000)
        #expect(draft.encoded().count - content == 53)
        // Everything but the topic, with an unpacked token.
        let text = content + 32 - draft.topic.utf8.count
        #expect(draft.encoded().count - text < 48)
    }

    @Test func slicesPointIntoTheBuffer() throws {
        for token in [TestRecord.token, String(repeating: "aB", count: 32)] {
            var draft = StoredDraft(seed: 5)
            (draft.token, draft.collapse) = (token, "c")
            try draft.encoded().withUnsafeBytes { bytes in
                let isPacked = token == TestRecord.token
                #expect(try StoredPush.tokenTextLength(of: bytes) == (isPacked ? 64 : 0))
                try withUnsafeTemporaryAllocation(byteCount: 64, alignment: 1) { text in
                    let push = try StoredPush(decoding: bytes, tokenText: text).push
                    func isInside(_ slice: UnsafeRawBufferPointer?, _ whole: UnsafeRawBufferPointer) -> Bool {
                        guard let slice, let start = slice.baseAddress, let first = whole.baseAddress else {
                            return false
                        }
                        return start >= first && start + slice.count <= first + whole.count
                    }
                    #expect(isInside(push.topic, bytes))
                    #expect(isInside(push.collapseIdentifier, bytes))
                    #expect(isInside(push.payload, bytes))
                    #expect(isInside(push.deviceToken, isPacked ? UnsafeRawBufferPointer(text) : bytes))
                    #expect(push.storage == nil)
                }
            }
        }
    }

    @Test(arguments: ["0", "a", "A", "9f", "9F", "aF", "Fa", "0f1E"])
    func tokensKeepTheirCase(_ pattern: String) throws {
        for length in [32, 34, 36, 38, 64, 160, 398, 400] {
            var draft = StoredDraft(seed: 3)
            draft.token = String(String(repeating: pattern, count: 400).prefix(length))
            let bytes = draft.encoded()
            #expect(StoredDraft(decoding: bytes) == draft)
            let isMixed = draft.token.lowercased() != draft.token && draft.token.uppercased() != draft.token
            draft.token = String(repeating: "0", count: length)
            #expect(bytes.count - draft.encoded().count == (isMixed ? length / 2 : 0))
        }
    }

    @Test func faultsAreReported() throws {
        let bytes = StoredDraft(seed: 9).encoded()
        func error(_ bytes: [UInt8], room: Int = StoredPush.longestToken) -> StoredPushError? {
            StoredDraft.error(decoding: bytes, room: room)
        }
        #expect(error(bytes) == nil)
        for length in 0..<bytes.count { #expect(error(Array(bytes[..<length])) == .truncated, "\(length)") }
        #expect(error(bytes + [0]) == .trailing(1))
        func changed(_ index: Int, _ value: UInt8) -> [UInt8] {
            var copy = bytes
            copy[index] = value
            return copy
        }
        #expect(error(changed(0, 3)) == .version(3))
        #expect(StoredPushError.version(3).description.contains("format 3"))
        #expect(error(changed(StoredPush.Place.flags, bytes[1] | 0b11)) == .invalid(.flags))
        #expect(error(changed(StoredPush.Place.flags, bytes[1] | 0b1100)) == .invalid(.flags))
        #expect(error(changed(StoredPush.Place.flags + 1, 0xa0)) == .invalid(.flags))
        #expect(error(changed(StoredPush.Place.codes, 0x0B)) == .invalid(.pushType))
        #expect(error(changed(StoredPush.Place.codes, 0x30)) == .invalid(.priority))
        #expect(error(changed(StoredPush.Place.codes, 0xC0)) == .invalid(.delivery))
        // `created` ends in its eleventh byte, or exceeds 64 bits.
        for last: UInt8 in [0x02, 0x80] {
            let long = Array(bytes[..<StoredPush.Place.end]) + Array(repeating: 0xFF, count: 9) + [last]
            #expect(error(long + Array(repeating: 0, count: 400)) == .invalid(.created))
        }

        var plain = StoredDraft(seed: 9)
        (plain.token, plain.topic, plain.collapse, plain.payload) = (TestRecord.token, "a.b", "cd", "{}")
        let end = plain.encoded().count
        func broken(_ indexFromEnd: Int, _ byte: UInt8) -> StoredPushError? {
            var copy = plain.encoded()
            copy[end - indexFromEnd] = byte
            return error(copy)
        }
        #expect(error(plain.encoded(), room: 63) == .tokenText(needed: 64))
        plain.token = String(repeating: "aB", count: 32)
        #expect(broken(8, UInt8(ascii: "g")) == .invalid(.deviceToken))
        #expect(error(plain.encoded(), room: 0) == nil)
    }

    /// Nothing read from a disk may stop a worker. Bytes are changed, cut, repeated and swapped at random, each
    /// result in a block of exactly its size. An accepted push is stored and read again unchanged.
    @Test func damagedBytesNeverTrap() throws {
        var random = SeededGenerator(seed: 11)
        var errors: Set<StoredPushError> = []
        var taken = 0
        for round in 0..<10_000 {
            var bytes = StoredDraft(seed: UInt64(round % 50)).encoded()
            for _ in 0..<Int.random(in: 1...4, using: &random) {
                let index = Int.random(in: 0..<max(1, bytes.count), using: &random)
                switch Int.random(in: 0..<8, using: &random) {
                case 0: bytes = Array(bytes.prefix(index))
                case 1: bytes.insert(UInt8(truncatingIfNeeded: random.next()), at: min(index, bytes.count))
                case 2: bytes += bytes.prefix(index)
                case 3: if index < bytes.count { bytes.remove(at: index) }
                // The header, where a byte decides much.
                case 4, 5:
                    let place = index % StoredPush.Place.end
                    if place < bytes.count { bytes[place] ^= 1 << UInt8.random(in: 0..<8, using: &random) }
                default: if index < bytes.count { bytes[index] = UInt8(truncatingIfNeeded: random.next()) }
                }
            }
            if let error = StoredDraft.error(decoding: bytes) {
                errors.insert(error)
            } else {
                taken += 1
                let draft = try #require(StoredDraft(decoding: bytes), "round \(round)")
                try #require(StoredDraft(decoding: draft.encoded()) == draft, "round \(round)")
            }
        }
        #expect(taken > 1000)
        for error: StoredPushError in [
            .truncated, .trailing(1), .invalid(.flags), .invalid(.pushType), .invalid(.deviceToken),
            .invalid(.priority), .invalid(.delivery), .invalid(.created),
        ] {
            #expect(errors.contains(error), "no damage produced \(error)")
        }
    }

    @Test func randomBytesNeverTrap() {
        var random = SeededGenerator(seed: 12)
        for _ in 0..<5_000 {
            let count = Int.random(in: 0...120, using: &random)
            var bytes = (0..<count).map { _ in UInt8(truncatingIfNeeded: random.next()) }
            if count > 3 {
                bytes[0] = count & 1 == 0 ? StoredPush.plainVersion : StoredPush.extendedVersion
                bytes[2] &= 0x7F
            }
            #expect(StoredDraft.error(decoding: bytes) != nil)
        }
    }
}
