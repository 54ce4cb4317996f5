import APNS
import DeliveryCore
import SluiceModel

/// The app of a bundle identifier, by its number in the configuration, and the pool that carries the app.
struct AppRoute: Sendable, Hashable {
    var pool: UInt16
    var app: UInt16
}

/// Finds the pool of a job's topic without converting the topic to a `String`. Topics seen before are kept in an open
/// hash table of their bytes.
struct RouteTable: ~Copyable {
    struct Route {
        var pool: UInt16
        var app: UInt16
        /// The topic's number, in the order in which topics were first seen.
        var number: UInt16
        var topic: PushRequestEncoder.Topic
    }

    private struct Entry {
        var hash: UInt64
        var name: UnsafeRawBufferPointer
        var route: Route
    }

    /// App by bundle identifier (or whole topic, for MDM).
    private let apps: [String: AppRoute]
    private var entries: [Entry?]
    private var count = 0

    init(apps: [String: AppRoute]) {
        self.apps = apps
        // Each bundle has at most as many topics as there are suffixes. The table is at most half full.
        var size = 64
        while size < 2 * apps.count * PushType.allCases.count { size *= 2 }
        entries = Array(repeating: nil, count: size)
    }

    deinit {
        for case let entry? in entries { entry.name.deallocate() }
    }

    /// Returns the route of a valid job, or nil when no app has the job's topic.
    mutating func route(
        of push: borrowing PushJob, makeTopic: (UInt16, UnsafeRawBufferPointer) -> PushRequestEncoder.Topic
    ) -> Route? {
        let hash = fnv1a(push.topic)
        let index = position(of: push.topic, hash)
        if let entry = entries[index] { return entry.route }
        guard count < min(entries.count / 2, Int(UInt16.max)), let app = app(of: push) else { return nil }
        let name = UnsafeMutableRawBufferPointer.allocate(byteCount: push.topic.count, alignment: 1)
        name.copyMemory(from: push.topic)
        let route = Route(
            pool: app.pool, app: app.app, number: UInt16(count), topic: makeTopic(app.pool, push.topic))
        entries[index] = Entry(hash: hash, name: UnsafeRawBufferPointer(name), route: route)
        count += 1
        return route
    }

    /// Returns the number of a topic that a push has named; nil for any other topic.
    func number(of topic: UnsafeRawBufferPointer) -> UInt16? {
        entries[position(of: topic, fnv1a(topic))]?.route.number
    }

    /// Returns the name of the topic with this number, for people.
    func name(of number: UInt16) -> String {
        for case let entry? in entries where entry.route.number == number {
            return String(decoding: entry.name, as: UTF8.self)
        }
        return "unknown"
    }

    /// Returns the index where the topic is, or would be.
    private func position(of topic: UnsafeRawBufferPointer, _ hash: UInt64) -> Int {
        var index = Int(truncatingIfNeeded: hash) & (entries.count - 1)
        while let entry = entries[index], entry.hash != hash || !entry.name.elementsEqual(topic) {
            index = (index + 1) & (entries.count - 1)
        }
        return index
    }

    private func app(of push: borrowing PushJob) -> AppRoute? {
        let topic = String(decoding: push.topic, as: UTF8.self)
        let suffix = push.pushType.topicSuffix.description
        guard topic.hasSuffix(suffix) else { return nil }
        return apps[String(topic.dropLast(suffix.count))]
    }
}

/// FNV-1a, for tables of short byte strings whose keys come from our own configuration.
func fnv1a(_ bytes: UnsafeRawBufferPointer) -> UInt64 {
    var hash: UInt64 = 0xcbf2_9ce4_8422_2325
    for byte in bytes { hash = (hash ^ UInt64(byte)) &* 0x100_0000_01b3 }
    return hash
}

/// Returns the index of the shard that owns a device.
func shardIndex(of device: DeviceKey, shards: Int) -> Int { shardIndex(ofHash: device.low, shards: shards) }
