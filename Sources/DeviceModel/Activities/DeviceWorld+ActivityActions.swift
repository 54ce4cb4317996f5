import SluiceModel

/// Acts of users and of apps' code on Live Activities.
extension DeviceWorld {
    mutating func actOnActivity(_ action: DeviceAction, _ id: UInt32, now: Int64) throws(DeviceFault) {
        let app = try installed(action, id)
        try needPower(id)
        if action.action == .startActivity { return try startByApp(action, app, id, now: now) }
        let activity = try activity(action, app, id)
        switch action.action {
        case .endActivity:
            guard activity.isRunning else { throw ended(activity, id) }
            let state = action.payload?["content-state"]
            if let state,
                let rule = activity.refusal(
                    state: state, size: state.encodedSize, requires: requires(activity, app))
            {
                throw fault(rule, app)
            }
            endActivity(
                activity.number, .activityEnded, app: app, device: id, state: state,
                dismissAt: action.payload?["dismissal-date"]?.milliseconds, push: activity.push, now: now)
        case .dismissActivity:
            guard activity.phase != .dismissed else { throw ended(activity, id) }
            dismissActivity(activity.number, app: app, device: id, now: now)
        default:
            guard activity.phase != .dismissed else { throw ended(activity, id) }
            try change(id, now: now) { state in
                state.isLocked = false
                state.isScreenOn = true
                state.wasUnlockedSinceBoot = true
            }
            launch(app, on: id, inFront: true, now: now)
            reportActivity("tapped", activity, app: app, device: id, push: activity.push, now: now)
        }
    }

    private func activity(
        _ action: DeviceAction, _ app: UInt16, _ id: UInt32
    ) throws(DeviceFault) -> Activity {
        guard let number = action.number else {
            throw DeviceFault(.invalid, "number: the activity's number is missing")
        }
        guard let activity = UInt64(exactly: number).flatMap({ installation(id, app)?.activities?.value[$0] })
        else {
            throw DeviceFault(
                .absent, "there is no Live Activity \(number) of `\(appTable[app].bundle)` on device \(id)")
        }
        return activity
    }

    private func requires(_ activity: Activity, _ app: UInt16) -> [String] {
        appTable[app].activities?.first { $0.type == activity.type }?.requires ?? []
    }

    private func ended(_ activity: Activity, _ id: UInt32) -> DeviceFault {
        DeviceFault(
            .impossible,
            "Live Activity \(activity.number) on device \(id) is \(activity.phase.rawValue) already")
    }

    // MARK: - Start

    private mutating func startByApp(
        _ action: DeviceAction, _ app: UInt16, _ id: UInt32, now: Int64
    ) throws(DeviceFault) {
        guard let installation = installation(id, app), installation.wasLaunched else {
            throw DeviceFault(.impossible, "`\(appTable[app].bundle)` was never launched; launch it first")
        }
        guard let type = action.text, !type.isEmpty else {
            throw DeviceFault(.invalid, "text: the type of the Live Activity's attributes is missing")
        }
        guard installation.settings.value.liveActivities else { throw fault(.activityDisabled, app) }
        let start = ActivityStart(
            type: type, attributes: action.payload?["attributes"] ?? .object([:]),
            content: action.payload?["content-state"] ?? .object([:]),
            environment: environment(of: installation),
            // Providers send whole seconds. An update in the second of the start is not older.
            timestamp: (Double(now) / 1_000).rounded(.down),
            staleAt: action.payload?["stale-date"]?.milliseconds,
            relevance: action.payload?["relevance-score"]?.double ?? 0, channel: action.choice,
            wantsToken: action.choice == nil, hasAlert: false, push: 0)
        guard start.attributes.members != nil else {
            throw DeviceFault(.invalid, "payload: attributes must be an object")
        }
        if let rule = refusal(of: start, app: app, device: id) { throw fault(rule, app) }
        begin(start, app: app, device: id, now: now)
    }

    /// Fault that an app's code receives where a push is dropped.
    private func fault(_ rule: DeviceRule, _ app: UInt16) -> DeviceFault {
        let bundle = appTable[app].bundle
        return switch rule {
        case .activityDisabled:
            DeviceFault(.impossible, "Live Activities of `\(bundle)` are off; switch them on in its settings")
        case .activityLimit:
            DeviceFault(
                .impossible,
                "`\(bundle)` has its \(settings.maximumActivities) Live Activities already; end one of them")
        case .activityUnknownType:
            DeviceFault(.invalid, "text: `\(bundle)` declares no Live Activity of this type")
        case .activityTooLarge:
            DeviceFault(
                .invalid, "payload: attributes and content-state exceed \(ActivityStart.longest) bytes")
        case .channelUnknown: DeviceFault(.invalid, "choice: the channel was deleted, or is no base64 text")
        default: DeviceFault(.invalid, "payload: content-state lacks members that the type requires")
        }
    }
}
