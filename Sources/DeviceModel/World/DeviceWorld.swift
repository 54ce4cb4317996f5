import SluiceModel

/// Devices, their apps, and APNs' view of them. Pure: pushes, actions and times are arguments; answers, events and work
/// for effects are results. All times are milliseconds since 1970.
public struct DeviceWorld: Sendable {
    public let settings: DeviceSettings
    var appTable: AppTable
    var devices: [Device?] = []
    var tokens: TokenTable
    var storage = PushStorage()
    var journal: PushJournal
    var log: EventLog
    var due = DueQueue()
    var random: SeededGenerator
    var extensions = ExtensionRuns()
    var channels = ChannelIndex()
    /// Notifications in the order of their arrival in a list.
    var arrivals = ArrivalOrder()
    /// Devices that were changed lately.
    var touched = TouchLog()
    /// Resets since the start.
    private(set) var resets: UInt64 = 0
    /// Number of the Live Activity that was started last; 0: none yet.
    var activityNumber: UInt64 = 0
    /// Devices that exist, and those of them that APNs reaches.
    var counts = DeviceCounts()
    private let initialApps: [AppDeclaration]
    let sharedState = Boxed(DeviceState())
    let sharedSettings = Boxed(NotificationSettings())

    public init(apps: [AppDeclaration] = [], settings: DeviceSettings = DeviceSettings()) {
        self.settings = settings
        initialApps = apps
        appTable = AppTable(apps)
        tokens = TokenTable(seed: settings.seed)
        journal = PushJournal(limit: settings.maximumPushes, room: settings.journalRoom)
        log = EventLog(limit: settings.maximumEvents)
        random = SeededGenerator(seed: settings.seed)
    }

    /// Forgets devices, tokens and pushes. Apps are those of the start. Numbers of events go on.
    public mutating func reset(now: Int64) {
        resets += 1
        appTable = AppTable(initialApps)
        devices = []
        tokens.removeAll()
        storage.removeAll()
        journal.removeAll()
        log.removeAll()
        due.removeAll()
        arrivals.removeAll()
        extensions.removeAll()
        channels.removeAll()
        activityNumber = 0
        counts = DeviceCounts()
        log.append(EventRecord(at: now, kind: .reset))
    }

    // MARK: - Time

    /// Time at which something is due; nil: nothing ever.
    public var nextDue: Int64? { due.next }

    /// Lets happen what is due until a time, each at its own time.
    public mutating func advance(to now: Int64) {
        touched.endCall()
        while let (time, due) = due.take(until: now) {
            happen(due, now: time)
            makeRoom(now: time)
        }
        makeRoom(now: now)
        if due.isCrowded { compactDue() }
    }

    private mutating func happen(_ due: Due, now: Int64) {
        switch due {
        case .stored(let key): expireStored(key, now: now)
        case .goodMoment(let key): goodMoment(key, now: now)
        case .serviceExtension(let run): extensionIsDue(run, now: now)
        case .banner(let device): bannerIsDue(device, now: now)
        case .summary(let device): showSummary(device: device, now: now)
        case .trigger(let device, let app, let identifier):
            fireTrigger(device: device, app: app, identifier: identifier, now: now)
        case .wake(let device, let app): wakeHeld(device: device, app: app, now: now)
        case .handler(let device, let app, let push, let launch):
            endHandler(device, app, push: push, launch: launch, now: now)
        case .activity(let device, let app, let activity):
            activityIsDue(device: device, app: app, activity: activity, now: now)
        case .broadcast(let key): expireBroadcast(key, now: now)
        }
    }

    // MARK: - Journal and events

    /// Adds a step to a push's fate.
    mutating func note(_ rule: DeviceRule, _ push: UInt64, now: Int64) {
        guard push > 0 else { return }
        journal.add(rule, to: push, now: now)
    }

    /// Sets the state of a push, and reports the change.
    mutating func conclude(
        _ fate: Fate, _ push: UInt64, device: UInt32?, app: UInt16?, identifier: String? = nil, now: Int64
    ) {
        guard push > 0, journal.set(fate, of: push) else { return }
        if let device { touched.append(device) }
        log.append(
            EventRecord(
                at: now, kind: .push, device: device, app: app, push: push, identifier: identifier, fate: fate
            ))
    }

    mutating func report(
        _ kind: DeviceEvent.Kind, device: UInt32?, app: UInt16? = nil, push: UInt64? = nil,
        identifier: String? = nil, detail: String? = nil, token: UInt32? = nil, formerToken: UInt32? = nil,
        now: Int64
    ) {
        if let device { touched.append(device) }
        log.append(
            EventRecord(
                at: now, kind: kind, device: device, app: app, push: push, identifier: identifier, fate: nil,
                detail: detail, token: token.map { tokens.mark($0) },
                formerToken: formerToken.map { tokens.mark($0) }))
    }

    // MARK: - Devices and apps by number

    /// State of a device that exists.
    func state(_ device: UInt32) -> DeviceState { devices[Int(device)]?.state.value ?? DeviceState() }

    /// Calls `body` with an installed app; returns nil without calling when the device or the app is gone.
    mutating func with<Result>(
        _ device: UInt32, _ app: UInt16, _ body: (inout Installation) -> Result
    ) -> Result? {
        guard Int(device) < devices.count, let index = devices[Int(device)]?.installation(app) else {
            return nil
        }
        touched.append(device)
        let former = devices[Int(device)]!.installations[index].numbers
        let result = body(&devices[Int(device)]!.installations[index])
        counts.lists.change(from: former, to: devices[Int(device)]!.installations[index].numbers)
        return result
    }

    /// Reads an installed app without a copy; returns nil when the device or the app is gone.
    func look<Result>(
        _ device: UInt32, _ app: UInt16, _ body: (borrowing Installation) -> Result
    ) -> Result? {
        guard Int(device) < devices.count, let index = devices[Int(device)]?.installation(app) else {
            return nil
        }
        return body(devices[Int(device)]!.installations[index])
    }

    /// Returns a copy of an installed app; nil when the device or the app is gone. A copy that is alive while the app's
    /// list changes makes the change copy the whole list: ``look(_:_:_:)``.
    func installation(_ device: UInt32, _ app: UInt16) -> Installation? {
        guard Int(device) < devices.count, let found = devices[Int(device)],
            let index = found.installation(app)
        else { return nil }
        return found.installations[index]
    }
}

/// Numbers of devices, and of what their apps show.
struct DeviceCounts: Sendable {
    var all = 0
    var online = 0
    var lists = ListCounts()
    var blocks = DeviceBlocks()
}

/// Numbers of what apps show.
struct ListCounts: Sendable, Equatable {
    var delivered = 0
    /// Bytes of the delivered notifications.
    var bytes = 0
    /// Live Activities that are not dismissed.
    var activities = 0

    /// Takes over the change of an app's numbers.
    mutating func change(from former: ListCounts, to new: ListCounts) {
        delivered += new.delivered - former.delivered
        bytes += new.bytes - former.bytes
        activities += new.activities - former.activities
    }
}

extension Installation {
    var numbers: ListCounts {
        ListCounts(
            delivered: centre.delivered.count, bytes: centre.bytes,
            activities: activities?.value.visible ?? 0)
    }
}
