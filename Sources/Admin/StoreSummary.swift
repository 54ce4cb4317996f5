import Foundation
import RetryStore
import SluiceModel

/// Counts of a store's items by state, app, age and time.
public struct StoreSummary: Sendable {
    /// Reference time of ages and due times, in milliseconds since the epoch.
    public let now: Int64
    /// Items in the store, unreadable items included.
    public private(set) var items = 0
    /// Bytes of all items' pushes.
    public private(set) var bytes = 0
    /// Marks of records whose items have moved to other device tokens.
    public var marks = 0
    /// Items that can't be read as a push.
    public private(set) var unreadable = 0
    /// Items that can't be decrypted, by the reason.
    public private(set) var locked: [String: Int] = [:]
    /// Items and device tokens by the name of their key; the empty name stands for those in clear.
    private var keys: [String: Int] = [:]
    private var waits: [String: Int] = [:]
    private var topics: [String: Int] = [:]
    private var ages: [String: Int] = [:]
    private var due: [String: Int] = [:]
    private var devices: [UInt8: Int] = [:]

    public init(now: Int64) { self.now = now }

    private static let spans: [(Int64, String)] = [
        (60_000, "1 minute"), (3_600_000, "1 hour"), (86_400_000, "1 day"), (604_800_000, "7 days"),
        (.max, "longer"),
    ]

    private static func span(_ milliseconds: Int64) -> String {
        let name = spans.first { milliseconds <= $0.0 }!.1
        return name == "longer" ? name : "up to \(name)"
    }

    /// Milliseconds since the epoch that the calendar accepts: 1970 to 9999. A disk may hold any other value.
    private static let years: ClosedRange<Int64> = 0...253_402_300_799_999

    static func presence(_ code: UInt8) -> String {
        switch code {
        case 0: "online"
        case 1: "offline"
        case 2: "presumed offline"
        default: "unknown"
        }
    }

    static func time(_ milliseconds: Int64) -> String {
        guard years.contains(milliseconds) else { return "\(milliseconds) ms" }
        return Date(timeIntervalSince1970: Double(milliseconds) / 1000).formatted(.iso8601)
    }

    /// Counts an item. An item that can't be read as a push counts as unreadable, too.
    public mutating func add(_ item: StoreReader.Item) {
        items += 1
        bytes += item.push.count
        due[item.due <= now ? "now" : Self.span(item.due - now), default: 0] += 1
        keys[item.keyName ?? "", default: 0] += 1
        if let fault = item.fault {
            locked["\(fault)", default: 0] += 1
            return
        }
        let isRead = withUnsafeTemporaryAllocation(byteCount: StoredPush.longestToken, alignment: 1) {
            text in
            guard let stored = try? StoredPush(decoding: item.push, tokenText: text) else { return false }
            waits["\(stored.progress.wait)", default: 0] += 1
            topics[String(decoding: stored.push.topic, as: UTF8.self), default: 0] += 1
            ages[Self.span(max(0, now - stored.push.createdMilliseconds)), default: 0] += 1
            return true
        }
        if !isRead { unreadable += 1 }
    }

    /// Counts a device's state by its presence.
    public mutating func add(_ device: StoreReader.Device) {
        devices[device.state.presence, default: 0] += 1
        if let name = device.keyName { keys[name, default: 0] += 1 }
    }

    /// Adds the counts of another part of the store.
    mutating func add(_ part: StoreSummary) {
        items += part.items
        bytes += part.bytes
        marks += part.marks
        unreadable += part.unreadable
        locked.merge(part.locked, uniquingKeysWith: +)
        keys.merge(part.keys, uniquingKeysWith: +)
        waits.merge(part.waits, uniquingKeysWith: +)
        topics.merge(part.topics, uniquingKeysWith: +)
        ages.merge(part.ages, uniquingKeysWith: +)
        due.merge(part.due, uniquingKeysWith: +)
        devices.merge(part.devices, uniquingKeysWith: +)
    }

    private static func bySize(_ counts: [String: Int]) -> [(String, Int)] {
        counts.sorted { ($1.value, $0.key) < ($0.value, $1.key) }
    }

    private static func bySpan(_ counts: [String: Int]) -> [(String, Int)] {
        (["now"] + spans.map { $0.1 == "longer" ? $0.1 : "up to \($0.1)" }).compactMap { name in
            counts[name].map { (name, $0) }
        }
    }

    private var areInClear: Bool { keys.keys.allSatisfy(\.isEmpty) }

    /// Tables for people.
    public var tables: [(title: String, counts: [(name: String, count: Int)])] {
        [
            ("waiting for", Self.bySize(waits)), ("by app's topic", Self.bySize(topics)),
            ("by age", Self.bySpan(ages)), ("due", Self.bySpan(due)),
            ("by key", areInClear ? [] : Self.bySize(keys).map { ($0.isEmpty ? "in clear" : $0, $1) }),
            ("devices known", devices.sorted { $0.key < $1.key }.map { (Self.presence($0.key), $0.value) }),
        ]
    }

    /// Returns a document for scripts.
    /// - Parameter copies: partitions that were left, of a closed store.
    public func document(topic: String, partitions: [Int32], copies: [LocalCopy] = []) -> [String: Any] {
        var document: [String: Any] = [
            "topic": topic, "partitions": partitions.map { Int($0) }, "items": items, "push-bytes": bytes,
            "marks": marks, "unreadable": unreadable, "waits": waits, "app-topics": topics, "ages": ages,
            "due": due,
            "devices": Dictionary(
                devices.map { (Self.presence($0.key), $0.value) }, uniquingKeysWith: +),
        ]
        if !areInClear {
            document["keys"] = keys.filter { !$0.key.isEmpty }
            document["in-clear"] = keys[""] ?? 0
            document["locked"] = locked.values.reduce(0, +)
        }
        if !copies.isEmpty {
            document["copies"] = copies.compactMap { copy in
                copy.position.map { position in
                    [
                        "partition": Int(copy.partition), "changelog-offset": Int(position.offset),
                        "age-seconds": age(of: position),
                    ]
                }
            }
        }
        return document
    }

    /// Returns text for people about a copy that was left.
    public func describe(_ copy: LocalCopy) -> String? {
        copy.position.map {
            let age = age(of: $0)
            return
                "partition \(copy.partition): a copy of the changelog up to offset \($0.offset), \(age) second\(age == 1 ? "" : "s") old"
        }
    }

    private func age(of position: ChangelogCheckpoint) -> Int {
        Int(max(0, now - position.reachedMilliseconds) / 1000)
    }
}

/// A store's items and states of one device, without its token and payloads.
public struct StoredDevice: Sendable {
    /// Values of one item or state by name, as they are shown.
    public enum Value: Sendable, CustomStringConvertible {
        case text(String)
        case number(Int)

        public var description: String {
            switch self {
            case .text(let text): text
            case .number(let number): "\(number)"
            }
        }

        fileprivate var json: Any {
            switch self {
            case .text(let text): text
            case .number(let number): number
            }
        }
    }

    /// Items of the device; each has its values by name.
    public private(set) var items: [[String: Value]] = []
    /// States of the device, at most one for each partition.
    public private(set) var states: [[String: Value]] = []

    public init() {}

    /// Whether the store has nothing of the device.
    public var isEmpty: Bool { items.isEmpty && states.isEmpty }

    /// Reads all items and states of a device token.
    /// - Parameter counted: partitions to look into; nil for all.
    public mutating func read(
        _ token: String, from reader: StoreReader, partitions counted: Set<Int32>? = nil
    ) throws(RetryStoreError) {
        let token = Array(token.utf8)
        for partition in reader.partitions where counted?.contains(partition) != false {
            let failure: RetryStoreError? = token.withUnsafeBytes { token in
                do throws(RetryStoreError) {
                    try reader.visitItems(of: partition, token: token) { item in
                        items.append(Self.show(item, partition))
                        return true
                    }
                    if let state = try reader.device(of: partition, token: token) {
                        var shown: [String: Value] = [
                            "partition": .number(Int(partition)),
                            "presence": .text(StoreSummary.presence(state.presence)),
                        ]
                        // A presumed presence need not follow a report.
                        if state.learnedMilliseconds > 0 {
                            shown["learned"] = .text(StoreSummary.time(state.learnedMilliseconds))
                        }
                        states.append(shown)
                    }
                    return nil
                } catch {
                    return error
                }
            }
            if let failure { throw failure }
        }
    }

    private static func show(_ item: StoreReader.Item, _ partition: Int32) -> [String: Value] {
        var shown: [String: Value] = [
            "partition": .number(Int(partition)), "offset": .number(Int(item.key.offset)),
            "due": .text(StoreSummary.time(item.due)), "bytes": .number(item.push.count),
        ]
        if let name = item.keyName { shown["key"] = .text(name) }
        if let fault = item.fault {
            shown["problem"] = .text("\(fault)")
            return shown
        }
        withUnsafeTemporaryAllocation(byteCount: StoredPush.longestToken, alignment: 1) { text in
            guard let stored = try? StoredPush(decoding: item.push, tokenText: text) else {
                shown["problem"] = .text("can't be read")
                return
            }
            shown["apns-id"] = .text("\(stored.push.apnsID)")
            shown["topic"] = .text(String(decoding: stored.push.topic, as: UTF8.self))
            if let identifier = stored.push.collapseIdentifier {
                shown["collapse-id"] = .text(String(decoding: identifier, as: UTF8.self))
            }
            shown["created"] = .text(StoreSummary.time(stored.push.createdMilliseconds))
            shown["waits"] = .text("\(stored.progress.wait)")
            shown["attempts"] = .number(Int(stored.progress.attempts))
            if let expiry = stored.progress.expiryMilliseconds {
                shown["expires"] = .text(StoreSummary.time(expiry))
            }
        }
        return shown
    }

    /// Document for scripts.
    public var document: [String: Any] {
        ["items": items.map { $0.mapValues(\.json) }, "device": states.map { $0.mapValues(\.json) }]
    }
}
