import SluiceModel

@testable import DeviceModel

/// A world that random steps drive: pushes of all kinds, acts of the user, of the apps' code and of the surroundings.
struct RandomWorld {
    static let bundles = ["com.example.news", "com.example.chat"]
    static let identifiers = ["a", "b", "c", "d"]

    var world: DeviceWorld
    var random: SeededGenerator
    var now: Int64 = 1_700_000_000_000
    /// Badges that the apps' code has set: device, app, time and number.
    private(set) var badges: [(device: UInt32, app: String, at: Int64, badge: Int)] = []
    /// Last uninstallation by device and app: its time, and the number of the newest push before.
    private(set) var uninstalled: [String: (at: Int64, push: UInt64)] = [:]

    init(seed: UInt64) throws {
        random = SeededGenerator(seed: seed)
        var settings = DeviceSettings()
        settings.seed = seed
        settings.maximumDelivered = 8
        settings.goodMoment = 5_000
        var news = AppDeclaration(bundle: Self.bundles[0])
        news.addMessageCategory(options: ["custom-dismiss"])
        news.foreground = [.list, .sound]
        news.entitlements = [.timeSensitive]
        var rule = SilentRule()
        rule.removesDelivered = "gone"
        rule.result = "never"
        news.silent = [rule]
        var chat = AppDeclaration(bundle: Self.bundles[1])
        chat.serviceExtension = ServiceExtensionDeclaration()
        chat.serviceExtension?.takes = 10
        chat.serviceExtension?.set = ["body": "{body}!"]
        world = DeviceWorld(apps: [news, chat], settings: settings)
        for _ in 0..<3 { _ = try world.addDevice(now: now) }
    }

    /// Takes a random step. Faults of acts are among the results.
    mutating func step() {
        now += Int64.random(in: 1...20_000, using: &random)
        if chance(2) { now += Int64.random(in: 0...7_200_000, using: &random) }
        if chance(60) { push() } else { act() }
    }

    private mutating func chance(_ percent: Int) -> Bool { Int.random(in: 0..<100, using: &random) < percent }

    private mutating func pick<Choices: RandomAccessCollection>(_ choices: Choices) -> Choices.Element {
        choices.randomElement(using: &random)!
    }

    // MARK: - Pushes

    private mutating func push() {
        // Most pushes go to tokens that are valid now; some go to those that have ended.
        let all = world.tokens(TokenQuery())
        // After a reset there is no token until a device appears.
        guard !all.isEmpty else { return }
        let valid = all.filter(\.isValid)
        let token = pick(valid.isEmpty || chance(5) ? all : valid)
        let isSilent = chance(25)
        var members: [String] = []
        if isSilent || chance(10) { members.append(#""content-available":1"#) }
        if !isSilent {
            if chance(80) { members.append(#""alert":{"title":"T","body":"\#(now)"}"#) }
            if chance(40) { members.append(#""badge":\#(Int.random(in: 0...9, using: &random))"#) }
            if chance(40) { members.append(#""sound":"default""#) }
            if chance(40) { members.append(#""mutable-content":1"#) }
            if chance(30) { members.append(#""category":"message""#) }
            if chance(30) { members.append(#""thread-id":"\#(pick(["t", "u"]))""#) }
            if chance(30) {
                let level = pick(["passive", "time-sensitive", "critical"])
                members.append(#""interruption-level":"\#(level)""#)
            }
        }
        let beside = isSilent && chance(50) ? #","gone":"\#(pick(Self.identifiers))""# : ""
        let expiration: Int64? = chance(30) ? (chance(30) ? 0 : now / 1_000 + pick([1, 30, 600])) : nil
        _ = world.push(
            token: token.token, topic: token.bundle, type: isSilent ? .background : .alert,
            priority: isSilent || chance(30) ? .powerAware : .immediate, expiration: expiration,
            collapseID: chance(50) ? pick(Self.identifiers) : nil,
            payload: "{\"aps\":{\(members.joined(separator: ","))}\(beside)}", now: now)
    }

    // MARK: - Acts

    private mutating func act() {
        let device = UInt32.random(in: 0..<3, using: &random)
        var action = DeviceAction(pick(Self.kinds), app: pick(Self.bundles), on: chance(60))
        let delivered = (world.device(device, now: now)?.apps ?? []).first { $0.bundle == action.app }?
            .delivered
        action.identifier = delivered?.randomElement(using: &random)?.identifier ?? pick(Self.identifiers)
        if chance(10) { action.identifier = nil }
        action.choice = pick(["reply", "open", "unlock", "mark"])
        switch action.action {
        case .act: action.text = action.choice == "reply" ? "Text" : nil
        case .clearGroup: action.text = pick([nil, "t", "u"])
        case .location: action.text = pick([nil, "home", "work"])
        case .setBadge: action.number = Int.random(in: 0...9, using: &random)
        case .focus: if chance(50) { action.focus = FocusState(name: "F", allowedApps: [pick(Self.bundles)]) }
        case .schedule: action.request = request()
        case .settings:
            var settings = NotificationSettings()
            settings.notificationCentre = chance(70)
            settings.lockScreen = chance(70)
            settings.alerts = chance(80)
            settings.badges = chance(80)
            settings.scheduledSummary = chance(30)
            settings.alertStyle = pick([.none, .banner, .alert])
            settings.grouping = pick([.automatic, .byApp, .off])
            action.settings = settings
            action.on = chance(80) ? true : chance(50) ? nil : false
        default: break
        }
        let isDone = (try? world.perform(action, on: device, now: now)) != nil
        guard isDone else { return }
        if action.action == .setBadge {
            badges.append((device, action.app!, now, action.number!))
        }
        if action.action == .uninstall {
            uninstalled["\(device) \(action.app!)"] = (now, world.status(now: now).pushes)
        }
    }

    private mutating func request() -> LocalRequest {
        var request = LocalRequest(identifier: chance(30) ? pick(Self.identifiers) : "local \(now)")
        request.payload = .object(["aps": .object(["alert": .string("Local")])])
        request.trigger = LocalTrigger()
        switch Int.random(in: 0..<4, using: &random) {
        case 0: request.trigger?.interval = Double.random(in: 60...7_200, using: &random)
        case 1: request.trigger?.minuteOfDay = Int.random(in: 0..<1_440, using: &random)
        case 2: request.trigger?.region = pick(["home", "work"])
        default: request.trigger = nil
        }
        if request.trigger != nil { request.trigger?.repeats = chance(40) }
        return request
    }

    /// Acts, with the frequent ones several times.
    private static let kinds: [DeviceAction.Kind] =
        [
            .power, .network, .airplane, .lowPower, .charging, .screen, .mute, .backgroundRefresh, .reboot,
            .restore, .uninstall, .install, .forceQuit, .keep, .removeAllDelivered, .removeAllPending,
            .clearAll,
        ]
        + [DeviceAction.Kind](repeating: .schedule, count: 12)
        + [DeviceAction.Kind](repeating: .install, count: 4)
        + [
            .lock, .lock, .lock, .focus, .focus, .location, .location, .launch, .launch, .launch, .home,
            .home,
        ]
        + [.settings, .settings, .tap, .tap, .dismiss, .dismiss, .act, .act, .act, .flick, .expand]
        + [.clearGroup, .removeDelivered, .removePending, .setBadge, .setBadge]
}
