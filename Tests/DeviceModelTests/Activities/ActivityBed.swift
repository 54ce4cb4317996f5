import SluiceModel
import Testing

@testable import DeviceModel

/// World with a device whose app has Live Activities.
struct ActivityBed {
    static let bundle = "com.example.game"
    static let topic = "com.example.game.push-type.liveactivity"
    static let type = "Match"

    var world: DeviceWorld
    let device: UInt32
    /// Start token of the app on the device.
    let startToken: String
    /// Time of the last call in milliseconds since 1970.
    var now: Int64 = 1_000_000_000

    /// App with a declared activity that requires `home` and `away`.
    static func app() -> AppDeclaration {
        var app = AppDeclaration(bundle: bundle)
        app.name = "Game"
        app.purposes = [.alert, .activityStart]
        var activity = ActivityDeclaration(type: type)
        activity.requires = ["home", "away"]
        activity.title = "{team.name} live"
        activity.lines = ["{home}:{away}", "{missing}"]
        activity.leading = "{home}"
        activity.trailing = "{away}"
        activity.progress = "part"
        app.activities = [activity]
        return app
    }

    /// - Parameter startsPerHour: starts by push; many by default, because most tests are about other limits.
    init(
        _ app: AppDeclaration = ActivityBed.app(), settings: DeviceSettings = DeviceSettings(),
        startsPerHour: Int = 1_000_000
    ) throws {
        var settings = settings
        settings.goneDelay = 0
        settings.activityStartsPerHour = startsPerHour
        world = DeviceWorld(apps: [app], settings: settings)
        device = try world.addDevice(now: now)
        var query = TokenQuery()
        query.purpose = .activityStart
        startToken = try #require(world.tokens(query).first?.token)
    }

    // MARK: - Pushes

    /// Members of `aps` for a start, as JSON; nil removes a member.
    static func start(_ changes: [String: String?] = [:]) -> String {
        var members: [String: String?] = [
            "event": #""start""#, "timestamp": "100", "content-state": #"{"home":0,"away":0}"#,
            "attributes-type": #""Match""#, "attributes": #"{"team":{"name":"Reds"}}"#,
            "alert": #"{"title":"Kick-off","body":"Now"}"#,
        ]
        for (name, value) in changes { members[name] = value }
        return payload(members)
    }

    static func update(_ home: Int, at timestamp: Int, _ changes: [String: String?] = [:]) -> String {
        var members: [String: String?] = [
            "event": #""update""#, "timestamp": "\(timestamp)",
            "content-state": #"{"home":\#(home),"away":0}"#,
        ]
        for (name, value) in changes { members[name] = value }
        return payload(members)
    }

    static func end(at timestamp: Int, _ changes: [String: String?] = [:]) -> String {
        var members: [String: String?] = ["event": #""end""#, "timestamp": "\(timestamp)"]
        for (name, value) in changes { members[name] = value }
        return payload(members)
    }

    private static func payload(_ members: [String: String?]) -> String {
        let texts = members.sorted { $0.key < $1.key }.compactMap { name, value in
            value.map { "\"\(name)\":\($0)" }
        }
        return "{\"aps\":{\(texts.joined(separator: ","))}}"
    }

    /// Sends a push a millisecond later. Returns its rules.
    @discardableResult
    mutating func push(
        _ payload: String, to token: String? = nil, priority: Priority = .powerAware
    ) -> [String] {
        now += 1
        _ = world.push(
            token: token ?? startToken, topic: Self.topic, type: .liveActivity, priority: priority,
            payload: payload,
            now: now)
        return rules
    }

    /// Sends a push for an unknown token of an app, for which a device is made.
    mutating func adopt(_ app: String, _ payload: String = ActivityBed.start()) {
        now += 1
        let token = Hexadecimal.encode(app.utf8)
        _ = world.push(
            token: token, topic: "\(app).push-type.liveactivity", type: .liveActivity,
            priority: .powerAware, payload: payload, now: now)
    }

    /// Starts an activity and returns it.
    mutating func started(_ changes: [String: String?] = [:]) throws -> ActivityView {
        push(Self.start(changes))
        return try #require(activities.max { $0.id < $1.id })
    }

    @discardableResult
    mutating func broadcast(
        _ payload: String, channel: String = "AAAA", isStored: Bool = true, expiration: Int64 = 4_000_000_000,
        environment: PushEnvironment = .production, priority: Priority = .powerAware,
        app: String = ActivityBed.bundle
    ) -> [String] {
        now += 1
        Array(app.utf8).withUnsafeBytes { app in
            Array(channel.utf8).withUnsafeBytes { channel in
                Array(payload.utf8).withUnsafeBytes { payload in
                    world.broadcast(
                        ArrivedBroadcast(
                            app: app, channel: channel, environment: environment, priority: priority,
                            expiration: expiration, isStored: isStored,
                            apnsID: APNSID(high: 7, low: UInt64(now)),
                            payload: payload), now: now)
                }
            }
        }
        return rules
    }

    mutating func perform(_ action: DeviceAction, on device: UInt32? = nil) throws {
        now += 1
        var action = action
        if action.app == nil { action.app = Self.bundle }
        try world.perform(action, on: device ?? self.device, now: now)
    }

    mutating func act(_ kind: DeviceAction.Kind, _ activity: ActivityView) throws {
        var action = DeviceAction(kind)
        action.number = Int(activity.id)
        try perform(action)
    }

    mutating func pass(_ milliseconds: Int64) {
        now += milliseconds
        world.advance(to: now)
    }

    // MARK: - Views

    /// Rules of the last push.
    var rules: [String] { last?.steps.map(\.rule) ?? [] }
    var fate: String? { last?.fate }

    private var last: PushView? {
        var query = PushQuery()
        query.limit = 1
        return world.pushes(query).first
    }

    func app(on device: UInt32? = nil) -> InstalledAppView? {
        world.device(device ?? self.device, now: now)?.apps.first { $0.bundle == Self.bundle }
    }

    var activities: [ActivityView] { app()?.activities ?? [] }

    func activity(_ id: UInt64) throws -> ActivityView { try #require(activities.first { $0.id == id }) }

    func details(_ kind: DeviceModel.DeviceEvent.Kind) -> [String] {
        world.events(after: 0, limit: 100_000).events.filter { $0.kind == kind }.compactMap(\.detail)
    }
}
