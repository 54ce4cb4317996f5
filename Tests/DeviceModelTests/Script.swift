import SluiceModel

@testable import DeviceModel

/// A world with one device and one app, driven step by step. Each step takes a second.
struct Script {
    static let bundle = "com.example.news"
    static let start: Int64 = 1_700_000_000_000
    /// Text of an alert with title and body.
    static let alert = #"{"aps":{"alert":{"title":"T","body":"B"}}}"#

    var world: DeviceWorld
    var now = Script.start
    let device: UInt32
    private let token: String

    /// - Parameters:
    ///   - app: changes the app's declaration, which allows notifications at the first launch.
    ///   - settings: changes the model's settings.
    init(
        _ app: (inout AppDeclaration) -> Void = { _ in }, settings: (inout DeviceSettings) -> Void = { _ in }
    ) throws {
        var chosen = DeviceSettings()
        settings(&chosen)
        var declaration = AppDeclaration(bundle: Self.bundle)
        declaration.name = "News"
        app(&declaration)
        world = DeviceWorld(apps: [declaration], settings: chosen)
        device = try world.addDevice(now: now)
        token = world.tokens(TokenQuery())[0].token
    }

    /// Pushes a payload, and returns the number of the push.
    @discardableResult
    mutating func push(
        _ payload: String = Script.alert, type: PushType = .alert, priority: Priority = .immediate,
        collapseID: String? = nil
    ) -> UInt64 {
        now += 1_000
        _ = world.push(
            token: token, topic: Self.bundle, type: type, priority: priority, collapseID: collapseID,
            payload: payload, now: now)
        return world.status(now: now).pushes
    }

    /// Pushes the members of `aps`.
    @discardableResult
    mutating func push(aps members: String, collapseID: String? = nil) -> UInt64 {
        push("{\"aps\":{\(members)}}", collapseID: collapseID)
    }

    /// Pushes a silent push with members beside `aps`.
    mutating func silent(_ members: String = "") -> UInt64 {
        push(
            "{\"aps\":{\"content-available\":1}\(members.isEmpty ? "" : ",")\(members)}", type: .background)
    }

    /// Carries out an action on the app.
    mutating func act(
        _ kind: DeviceAction.Kind, _ identifier: String? = nil, on: Bool? = nil,
        _ body: (inout DeviceAction) -> Void = { _ in }
    ) throws(DeviceFault) {
        now += 1_000
        var action = DeviceAction(kind, app: Self.bundle, identifier: identifier, on: on)
        body(&action)
        try world.perform(action, on: device, now: now)
    }

    mutating func set(_ body: (inout NotificationSettings) -> Void) throws(DeviceFault) {
        var settings = app.settings
        body(&settings)
        try act(.settings) { $0.settings = settings }
    }

    mutating func focus(
        allows apps: [String] = [], timeSensitive: Bool = true, filter: String? = nil
    ) throws(DeviceFault) {
        let focus = FocusState(
            name: "Work", allowedApps: apps, allowsTimeSensitive: timeSensitive, filter: filter)
        try act(.focus) { $0.focus = focus }
    }

    mutating func wait(_ milliseconds: Int64) {
        now += milliseconds
        world.advance(to: now)
    }

    func rules(_ push: UInt64) -> [DeviceRule] {
        (world.push(push)?.steps ?? []).compactMap { DeviceRule(rawValue: $0.rule) }
    }

    func fate(_ push: UInt64) -> String { world.push(push)?.fate ?? "" }

    /// Pushes, and returns the fate of the push.
    mutating func fate(_ push: (inout Script) -> UInt64) -> String {
        let number = push(&self)
        return fate(number)
    }

    var view: DeviceView { world.device(device, now: now)! }
    var app: InstalledAppView { view.apps[0] }
    var delivered: [NotificationView] { app.delivered }

    /// Details of the events of a kind.
    func details(_ kind: DeviceModel.DeviceEvent.Kind) -> [String] {
        world.events(after: 0, limit: 10_000).events.filter { $0.kind == kind }.compactMap(\.detail)
    }
}

extension AppDeclaration {
    /// Adds a category with the actions `Reply` (text), `Open`, `Unlock` and `Mark`.
    mutating func addMessageCategory(options: [String] = []) {
        var category = CategoryDeclaration(identifier: "message")
        var reply = ActionDeclaration(identifier: "reply", title: "Reply")
        reply.input = ActionDeclaration.TextInput(button: "Send")
        var open = ActionDeclaration(identifier: "open", title: "Open")
        open.options = ["foreground"]
        var unlock = ActionDeclaration(identifier: "unlock", title: "Unlock")
        unlock.options = ["authentication", "destructive"]
        category.actions = [reply, open, unlock, ActionDeclaration(identifier: "mark", title: "Mark")]
        category.options = options
        category.hiddenBody = "%u messages"
        category.summary = "%u further messages"
        categories = [category]
    }
}

/// Fault that an action must end with; nil: the action succeeded.
func fault(_ body: () throws(DeviceFault) -> Void) -> DeviceFault? {
    do throws(DeviceFault) {
        try body()
        return nil
    } catch {
        return error
    }
}
