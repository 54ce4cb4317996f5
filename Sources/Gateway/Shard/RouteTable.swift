import APNS
import DeliveryCore
import Glibc
import SluiceModel

/// The app of a bundle identifier, by its number in the configuration, and the pools that carry the app.
struct AppRoute: Sendable, Hashable {
    var app: UInt16
    /// Pool of jobs that name no environment.
    var pool: UInt16
    /// Pools of jobs that name an environment; nil where the app has no credential for it.
    var production: UInt16?
    var development: UInt16?

    /// Returns the pool of a job; nil when the app has no credential for the environment that the job names.
    func pool(of environment: JobEnvironment?) -> UInt16? {
        switch environment {
        case nil: pool
        case .production: production
        case .development: development
        }
    }

    /// All pools that carry the app.
    var pools: Set<UInt16> { Set([pool, production, development].compactMap { $0 }) }
}

/// Finds the pool of a job's topic without converting the topic to a `String`. Topics seen before are kept in an open
/// hash table of their bytes.
struct RouteTable: ~Copyable {
    struct Route {
        var pool: UInt16
        var app: UInt16
        /// Number of the topic in the pool's environment, in the order in which such pairs were first seen.
        var number: UInt16
        var target: PushRequestEncoder.Target
    }

    /// Properties of jobs, beside their topic, that select the route.
    private struct Form: Equatable {
        /// Environment that the jobs name.
        var environment: JobEnvironment?
        /// True for broadcasts, whose topics stop apart from those of pushes.
        var isBroadcast = false
    }

    private struct Entry {
        var hash: UInt64
        var name: UnsafeRawBufferPointer
        var form: Form
        var route: Route
    }

    /// App by bundle identifier (or whole topic, for MDM).
    private let apps: [String: AppRoute]
    private var entries: [Entry?]
    /// Number of topics with the environments that jobs name for them.
    private(set) var count = 0

    init(apps: [String: AppRoute]) {
        self.apps = apps
        // Each bundle has at most as many topics as there are suffixes, and one of broadcasts. Jobs name one of two
        // environments or none. The table is at most half full.
        var size = 64
        while size < 2 * 3 * apps.count * (PushType.allCases.count + 1) { size *= 2 }
        entries = Array(repeating: nil, count: size)
    }

    deinit {
        for case let entry? in entries { entry.name.deallocate() }
    }

    /// Returns the route of a valid job. Returns nil when no app has the job's topic, or the app has no credential for the
    /// environment that the job names.
    mutating func route(
        of push: borrowing PushJob,
        makeTarget: (UInt16, UnsafeRawBufferPointer, Bool) -> PushRequestEncoder.Target
    ) -> Route? {
        let hash = mixed(push.topic)
        let form = Form(environment: push.environment, isBroadcast: push.isBroadcast)
        let index = position(of: push.topic, form, hash)
        if let entry = entries[index] { return entry.route }
        guard count < min(entries.count / 2, Int(UInt16.max)), let app = app(of: push),
            let pool = app.pool(of: push.environment)
        else { return nil }
        let route: Route
        if let known = known(push.topic, hash, pool, isBroadcast: push.isBroadcast) {
            route = known
        } else {
            route = Route(
                pool: pool, app: app.app, number: UInt16(count),
                target: makeTarget(pool, push.topic, push.isBroadcast))
        }
        let name = UnsafeMutableRawBufferPointer.allocate(byteCount: push.topic.count, alignment: 1)
        name.copyMemory(from: push.topic)
        entries[index] = Entry(
            hash: hash, name: UnsafeRawBufferPointer(name), form: form, route: route)
        count += 1
        return route
    }

    /// Returns the numbers of a topic that pushes have named: one for each environment.
    func numbers(of topic: UnsafeRawBufferPointer) -> Set<UInt16> {
        let hash = mixed(topic)
        let environments = [nil, JobEnvironment.production, .development]
        return Set(
            environments.compactMap {
                entries[position(of: topic, Form(environment: $0), hash)]?.route.number
            })
    }

    /// Returns the route with this number; nil when there is none.
    func route(of number: UInt16) -> Route? {
        for case let entry? in entries where entry.route.number == number { return entry.route }
        return nil
    }

    /// Returns the name of the topic with this number, for people.
    func name(of number: UInt16) -> String {
        for case let entry? in entries where entry.route.number == number {
            return String(decoding: entry.name, as: UTF8.self)
        }
        return "unknown"
    }

    /// Calls `body` with each route and the name of its topic. A route that several forms of jobs share comes several
    /// times.
    func forEachRoute(_ body: (Route, UnsafeRawBufferPointer) -> Void) {
        for case let entry? in entries { body(entry.route, entry.name) }
    }

    /// Calls `body` with the topic's name, and with each environment that pushes of this number name. Leaves out
    /// broadcasts, which the store never has.
    func forEachForm(of number: UInt16, _ body: (UnsafeRawBufferPointer, JobEnvironment?) -> Void) {
        for case let entry? in entries where entry.route.number == number && !entry.form.isBroadcast {
            body(entry.name, entry.form.environment)
        }
    }

    /// Returns the topic's route on the pool, which jobs with another form of the environment have made.
    private func known(
        _ topic: UnsafeRawBufferPointer, _ hash: UInt64, _ pool: UInt16, isBroadcast: Bool
    ) -> Route? {
        for environment in [nil, JobEnvironment.production, .development] {
            let form = Form(environment: environment, isBroadcast: isBroadcast)
            if let route = entries[position(of: topic, form, hash)]?.route, route.pool == pool {
                return route
            }
        }
        return nil
    }

    /// Returns the index where the topic is, or would be.
    private func position(
        of topic: UnsafeRawBufferPointer, _ form: Form, _ hash: UInt64
    ) -> Int {
        var index = Int(truncatingIfNeeded: hash) & (entries.count - 1)
        while let entry = entries[index],
            entry.hash != hash || entry.form != form || !isEqual(entry.name, topic)
        {
            index = (index + 1) & (entries.count - 1)
        }
        return index
    }

    private func app(of push: borrowing PushJob) -> AppRoute? { Self.app(of: push, in: apps) }

    /// Returns the route of the app whose topic a job names; nil when no app has it.
    static func app(of push: borrowing PushJob, in apps: [String: AppRoute]) -> AppRoute? {
        let topic = String(decoding: push.topic, as: UTF8.self)
        let suffix = push.isBroadcast ? "" : push.pushType.topicSuffix.description
        guard topic.hasSuffix(suffix) else { return nil }
        return apps[String(topic.dropLast(suffix.count))]
    }
}

/// Mixes eight bytes at a time, for tables of short byte strings whose keys come from our own configuration.
func mixed(_ bytes: UnsafeRawBufferPointer) -> UInt64 {
    var hash = UInt64(truncatingIfNeeded: bytes.count)
    func mix(_ word: UInt64) {
        hash = (hash ^ word) &* 0x9e37_79b9_7f4a_7c15
        hash ^= hash &>> 32
    }
    var index = 0
    while index &+ 8 <= bytes.count {
        mix(bytes.loadUnaligned(fromByteOffset: index, as: UInt64.self))
        index &+= 8
    }
    var rest: UInt64 = 0
    while index < bytes.count {
        rest = rest &<< 8 | UInt64(bytes[index])
        index &+= 1
    }
    mix(rest)
    return hash
}

/// Returns the index of the shard that owns a device.
func shardIndex(of device: DeviceKey, shards: Int) -> Int { shardIndex(ofHash: device.low, shards: shards) }

@inline(__always)
private func isEqual(_ first: UnsafeRawBufferPointer, _ second: UnsafeRawBufferPointer) -> Bool {
    guard first.count == second.count else { return false }
    guard let left = first.baseAddress, let right = second.baseAddress else { return true }
    return memcmp(left, right, first.count) == 0
}
