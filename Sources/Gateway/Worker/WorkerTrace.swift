import DeliveryCore
import EventLoop
import SluiceModel

/// Search for pushes in a worker. Pushes with all of the given properties are found.
public struct TraceQuery: Sendable, Equatable {
    /// Identifier of the push; nil for any.
    public var notification: APNSID?
    /// Hexadecimal digits of the push's device token; nil for any.
    public var deviceToken: [UInt8]?
    /// Partition of the job's record; nil for any.
    public var partition: Int32?
    /// Offset of the job's record in ``partition``; nil for any.
    public var offset: Int64?

    public init(
        notification: APNSID? = nil, deviceToken: [UInt8]? = nil, partition: Int32? = nil,
        offset: Int64? = nil
    ) {
        self.notification = notification
        self.deviceToken = deviceToken
        self.partition = partition
        self.offset = offset
    }

    /// Returns true for a push with this identifier and place.
    public func matches(_ id: APNSID, partition: Int32, offset: Int64) -> Bool {
        notification.map { $0 == id } ?? true && isPlace(partition, offset)
    }

    /// Returns true for the place of a record that the query doesn't leave out.
    public func isPlace(_ partition: Int32, _ offset: Int64) -> Bool {
        self.partition.map { $0 == partition } ?? true && self.offset.map { $0 == offset } ?? true
    }
}

/// A push that a worker has, without its device token, its collapse identifier and its payload.
public struct TracedPush: Sendable, Equatable {
    /// Store or thread that has the push.
    public enum Holder: Sendable, Equatable {
        case shard(Int)
        case store
    }

    /// State of the push.
    public enum State: Sendable, Equatable {
        case pending(PendingCause)
        /// The push waits until the store's pushes of its device are in memory.
        case awaitingDevice
        /// The push waits in the store, because of this.
        case stored(StoredPush.Wait)
    }

    public var holder: Holder
    public var state: State
    /// End of the wait in milliseconds since the epoch; nil when no clock ends it.
    public var untilMilliseconds: Int64?
    /// The push in flight that the push waits for; nil when it waits for none.
    public var blockedBehind: APNSID?
    public var apnsID: APNSID
    /// Partition of the job's record.
    public var partition: Int32
    /// Offset of the job's record.
    public var offset: Int64
    /// App, credential and environment; nil when no app has the topic.
    public var route: TracedRoute?
    /// Value of `apns-topic`.
    public var topic: String
    public var pushType: PushType
    public var isBroadcast: Bool
    public var priority: Priority
    public var delivery: DeliveryMode
    public var hasCollapseIdentifier: Bool
    /// Creation in milliseconds since the epoch.
    public var createdMilliseconds: Int64
    /// Time at which the worker polled the record, in milliseconds since the epoch; nil when it isn't known.
    public var polledMilliseconds: Int64?
    /// `deliver-at` in milliseconds since the epoch; nil without.
    public var deliverAtMilliseconds: Int64?
    /// Expiry in milliseconds since the epoch; nil when nothing limits the push's life.
    public var expiryMilliseconds: Int64?
    /// Attempts so far, the present one included.
    public var attempts = 0
    /// Attempts that count towards the maximum.
    public var failures = 0
    /// Time of the first attempt in milliseconds since the epoch; nil before.
    public var firstSentMilliseconds: Int64?
    /// Time of the last attempt in milliseconds since the epoch; nil before, and after a restart.
    public var lastSentMilliseconds: Int64?
    /// Status of APNs' last answer; nil without an answer, and after a restart.
    public var lastStatus: Int?
    /// Reason of that answer; nil when it had none, or an unknown one.
    public var lastReason: Reason?
    /// True when the store has the push.
    public var isStored = false
    /// True when the store was asked to keep the push and hasn't answered.
    public var isStoreAsked = false
    /// Time at which the store brings the push back, in milliseconds since the epoch; nil when the store hasn't it, or no
    /// clock brings it back.
    public var storedUntilMilliseconds: Int64?

    /// - Parameters:
    ///   - push: borrowed; texts are copied.
    ///   - place: place of the job's record.
    init(
        _ push: borrowing PushJob, _ holder: Holder, _ state: State, place: (partition: Int32, offset: Int64),
        polledMilliseconds: Int64?, route: TracedRoute?
    ) {
        self.holder = holder
        self.state = state
        apnsID = push.apnsID
        partition = place.partition
        offset = place.offset
        self.route = route
        topic = String(decoding: push.topic, as: UTF8.self)
        pushType = push.pushType
        isBroadcast = push.isBroadcast
        priority = push.priority
        delivery = push.delivery
        hasCollapseIdentifier = push.collapseIdentifier != nil
        createdMilliseconds = push.createdMilliseconds
        self.polledMilliseconds = polledMilliseconds
        deliverAtMilliseconds = push.deliverAtMilliseconds
        if case .at(let seconds) = push.expiration { expiryMilliseconds = Int64(seconds) * 1000 }
    }

    /// A push that the store has.
    /// - Parameter due: time at which the store brings the push back, in milliseconds since the epoch.
    public init(_ stored: borrowing StoredPush, due: Int64, routes: TraceRoutes) {
        self.init(
            stored.push, .store, .stored(stored.progress.wait), place: (stored.partition, stored.offset),
            polledMilliseconds: stored.polledMilliseconds, route: routes.route(of: stored.push))
        untilMilliseconds =
            stored.progress.wait == .none
            ? stored.push.deliverAtMilliseconds : stored.progress.wakeMilliseconds
        attempts = Int(stored.progress.attempts)
        failures = Int(stored.progress.failures)
        firstSentMilliseconds = stored.progress.firstSentMilliseconds
        if let expiry = stored.progress.expiryMilliseconds { expiryMilliseconds = expiry }
        isStored = true
        storedUntilMilliseconds = due
    }
}

/// App, credential and environment of a push.
public struct TracedRoute: Sendable, Equatable {
    /// Name of the app in the configuration.
    public var app: String
    /// Name of the credential in the configuration.
    public var credential: String
    /// APNs environment of the credential.
    public var environment: String
}

/// Names of apps, credentials and environments by topic.
public struct TraceRoutes: Sendable {
    private let apps: [String: AppRoute]
    private let appNames: [String]
    private let pools: [(name: String, environment: String)]

    init(_ plan: ShardPlan) {
        apps = plan.routes
        appNames = plan.appNames
        pools = plan.pools.map { ($0.name, $0.environment.rawValue) }
    }

    /// Routes of a worker without apps.
    public init() {
        apps = [:]
        appNames = []
        pools = []
    }

    func route(of push: borrowing PushJob) -> TracedRoute? {
        guard let app = RouteTable.app(of: push, in: apps), let pool = app.pool(of: push.environment) else {
            return nil
        }
        return route(app: app.app, pool: pool)
    }

    func route(app: UInt16, pool: UInt16) -> TracedRoute? {
        guard Int(app) < appNames.count, Int(pool) < pools.count else { return nil }
        return TracedRoute(
            app: appNames[Int(app)], credential: pools[Int(pool)].name,
            environment: pools[Int(pool)].environment)
    }
}

/// Part of a worker's answer to a ``TraceQuery``.
public enum TraceAnswer: Sendable {
    /// Progress of the query's record; nil when the query names no record.
    case intake(RecordStage?)
    case shard(Int, ShardTrace)
    /// The loop has ended with the worker.
    case ended(String)
}

/// A shard's answer to a ``TraceQuery``.
public struct ShardTrace: Sendable {
    /// Pushes found, at most ``mostPushes``.
    public var pushes: [TracedPush] = []
    /// Slots that were looked at.
    public var slots = 0
    /// False when pushes were left out.
    public var isComplete = true
    /// Topics whose pushes wait.
    public var stops: [TopicStop] = []
    /// Credentials without a connection, whose pushes wait.
    public var unavailable: [String] = []

    /// Most pushes of one answer.
    public static let mostPushes = 256

    public init() {}

    /// Adds a push. A push that was found waiting, and has a slot now, is one push.
    mutating func add(_ push: TracedPush) {
        if let index = pushes.firstIndex(where: { ($0.partition, $0.offset) == (push.partition, push.offset) }
        ) {
            pushes[index] = push
            return
        }
        guard pushes.count < Self.mostPushes else {
            isComplete = false
            return
        }
        pushes.append(push)
    }
}

/// A topic whose pushes wait.
public struct TopicStop: Sendable, Equatable {
    /// Value of `apns-topic`.
    public var topic: String
    public var cause: PendingCause
    /// Time of the next probe in milliseconds since the epoch; nil while one is under way.
    public var probeMilliseconds: Int64?

    public init(topic: String, cause: PendingCause, probeMilliseconds: Int64?) {
        self.topic = topic
        self.cause = cause
        self.probeMilliseconds = probeMilliseconds
    }
}

extension Worker {
    /// Identifier of the worker's consumer group.
    public var group: String { configuration.kafka.groupID }
    /// Name of the jobs topic.
    public var jobsTopic: String { configuration.kafka.topics.jobs }

    /// Names of apps, credentials and environments by topic.
    public var traceRoutes: TraceRoutes { TraceRoutes(shards[0].plan) }

    /// Searches the loops' memory, and returns at once. Each loop calls `answer` once, on its own thread. A stuck loop
    /// never calls it. For an ended loop, `answer` is called on any thread.
    public func trace(_ query: TraceQuery, _ answer: @escaping @Sendable (TraceAnswer) -> Void) {
        for (index, shard) in shards.enumerated() {
            let accepted = shard.loop.execute { shard.trace(query) { answer($0) } }
            if !accepted { answer(.ended(shards[index].loop.name)) }
        }
        let accepted = intake.loop.execute { [intake] in
            guard let partition = query.partition, let offset = query.offset else {
                return answer(.intake(nil))
            }
            answer(.intake(intake.stage(ofPartition: partition, offset: offset)))
        }
        if !accepted { answer(.ended(intake.loop.name)) }
    }
}
