import SluiceModel

/// Live Activity pushes on a device.
extension DeviceWorld {
    mutating func arriveActivity(_ push: TransitPush, now: Int64) {
        let message = ActivityMessage(push.payload)
        guard installation(push.device, push.app)?.settings.value.liveActivities ?? false else {
            return drop(push, .activityDisabled, now: now)
        }
        guard let event = message.event else { return drop(push, .activityIncomplete, now: now) }
        // A token that the simulator made a device for stands for start tokens and update tokens.
        let token = tokens.record(TokenMark(index: push.token, serial: push.tokenSerial))
        let isAdopted = token?.isAdopted ?? false
        if event == .start {
            guard push.purpose == .activityStart || isAdopted else {
                return drop(push, .activityWrongEvent, now: now)
            }
            return start(message, push, now: now)
        }
        guard let activity = token?.activity else {
            guard isAdopted else { return drop(push, .activityWrongEvent, now: now) }
            return startAdopted(message, push, now: now)
        }
        if let rule = apply(
            message, to: activity, device: push.device, app: push.app, priority: push.priority,
            push: push.number,
            now: now)
        {
            return drop(push, rule, now: now)
        }
        conclude(.updated, push.number, device: push.device, app: push.app, now: now)
    }

    private mutating func drop(_ push: TransitPush, _ rule: DeviceRule, now: Int64) {
        note(rule, push.number, now: now)
        conclude(.dropped, push.number, device: push.device, app: push.app, now: now)
    }

    // MARK: - Start

    private mutating func start(_ message: ActivityMessage, _ push: TransitPush, now: Int64) {
        guard let time = message.timestamp, let type = message.attributesType, let content = message.content,
            let attributes = message.attributes, message.hasAlert
        else { return drop(push, .activityIncomplete, now: now) }
        let start = ActivityStart(
            type: type, attributes: attributes, content: content, environment: environment(of: push),
            timestamp: time, staleAt: message.staleAt, relevance: message.relevance, channel: message.channel,
            wantsToken: message.wantsToken, hasAlert: true, push: push.number)
        if let rule = refusal(of: start, app: push.app, device: push.device) {
            return drop(push, rule, now: now)
        }
        guard spendStart(push.app, on: push.device, now: now) else {
            return drop(push, .activityStartsUsedUp, now: now)
        }
        let number = begin(start, app: push.app, device: push.device, now: now)
        conclude(
            .updated, push.number, device: push.device, app: push.app, identifier: "\(number)", now: now)
    }

    /// Counts a start by push. Returns whether the hour's budget allows it.
    private mutating func spendStart(_ app: UInt16, on device: UInt32, now: Int64) -> Bool {
        let limit = settings.activityStartsPerHour
        return with(device, app) { installation in
            if installation.activities == nil { installation.activities = Boxed(ActivityList()) }
            return installation.activities!.value.spendStart(limit, now: now)
        } ?? false
    }

    private func environment(of push: TransitPush) -> PushEnvironment {
        tokens.record(TokenMark(index: push.token, serial: push.tokenSerial))?.environment
            ?? appTable[push.app].environment ?? .production
    }

    /// Starts an activity for a made-up token, so that something is seen. The token becomes its update token.
    private mutating func startAdopted(_ message: ActivityMessage, _ push: TransitPush, now: Int64) {
        let declared = appTable[push.app].activities?.first?.type
        let start = ActivityStart(
            type: message.attributesType ?? declared ?? "", attributes: message.attributes ?? .object([:]),
            content: message.content ?? .object([:]), environment: environment(of: push),
            timestamp: message.timestamp ?? 0, staleAt: nil, channel: nil, wantsToken: false,
            hasAlert: message.hasAlert, push: push.number)
        guard message.timestamp != nil, message.event == .end || message.content != nil else {
            return drop(push, .activityIncomplete, now: now)
        }
        if message.content != nil, let rule = refusal(of: start, app: push.app, device: push.device) {
            return drop(push, rule, now: now)
        }
        note(.adopted, push.number, now: now)
        let number = begin(start, app: push.app, device: push.device, now: now)
        tokens[push.token].purpose = .activity
        tokens[push.token].activity = number
        _ = change(number, push.app, push.device) { $0.token = push.token }
        if let rule = apply(
            message, to: number, device: push.device, app: push.app, priority: push.priority,
            push: push.number,
            now: now)
        {
            return drop(push, rule, now: now)
        }
        conclude(.updated, push.number, device: push.device, app: push.app, now: now)
    }

    /// Rule that keeps an activity from starting; nil: none does.
    func refusal(of start: ActivityStart, app: UInt16, device: UInt32) -> DeviceRule? {
        let declared = appTable[app].activities ?? []
        let declaration = declared.first { $0.type == start.type }
        if !declared.isEmpty, declaration == nil { return .activityUnknownType }
        guard Activity.decodes(start.content, declaration?.requires ?? []) else { return .activityNotDecoded }
        guard start.attributes.encodedSize + start.content.encodedSize <= ActivityStart.longest else {
            return .activityTooLarge
        }
        let running = installation(device, app)?.activities?.value.running ?? 0
        guard running < settings.maximumActivities else { return .activityLimit }
        guard let channel = start.channel else { return nil }
        let known = ClosedChannel(
            app: appTable[app].bundle, environment: start.environment, channel: channel)
        return channels.isOpen(known) ? nil : .channelUnknown
    }

    /// Starts an activity that may start. Returns its number.
    @discardableResult
    mutating func begin(_ start: ActivityStart, app: UInt16, device: UInt32, now: Int64) -> UInt64 {
        activityNumber += 1
        let number = activityNumber
        let activity = Activity(number, start, now: now)
        _ = with(device, app) { installation in
            if installation.activities == nil { installation.activities = Boxed(ActivityList()) }
            installation.activities!.value.add(activity)
        }
        note(.activityStarted, start.push, now: now)
        if activity.phase == .stale { note(.activityStale, start.push, now: now) }
        if start.hasAlert { note(.activityAlerted, start.push, now: now) }
        reportActivity("started", activity, app: app, device: device, push: start.push, now: now)
        giveToken(number, app: app, device: device, now: now)
        scheduleActivity(number, app: app, device: device)
        if let channel = start.channel {
            let key = ChannelKey(app: app, environment: start.environment, channel: channel)
            channels.subscribe(ChannelIndex.Subscriber(device: device, activity: number), to: key)
            note(.channelSubscribed, start.push, now: now)
            replay(key, to: number, app: app, device: device, now: now)
        }
        return number
    }

    /// Gives an activity its update token, which needs the network.
    mutating func giveToken(_ number: UInt64, app: UInt16, device: UInt32, now: Int64) {
        guard let installation = installation(device, app), let list = installation.activities?.value,
            let activity = list[number], activity.wantsToken, state(device).isReachable
        else { return }
        let index = tokens.make(
            TokenRecord(
                bytes: [], device: device, app: app, purpose: .activity, environment: activity.environment,
                next: installation.firstToken, activity: number),
            bundle: appTable[app].bundle)
        _ = with(device, app) { $0.firstToken = index }
        _ = change(number, app, device) { activity in
            activity.token = index
            activity.wantsToken = false
        }
        report(.token, device: device, app: app, identifier: "\(number)", token: index, now: now)
    }

    // MARK: - Changes

    /// Applies a message to an activity. Returns the rule that refuses it; nil when it was applied.
    /// - Parameter isReported: whether the change of the activity is an event.
    mutating func apply(
        _ message: ActivityMessage, to number: UInt64, device: UInt32, app: UInt16, priority: Priority,
        push: UInt64, isReported: Bool = true, now: Int64
    ) -> DeviceRule? {
        guard let installation = installation(device, app),
            let activity = installation.activities?.value[number]
        else { return .activityAlreadyEnded }
        let settings = installation.settings.value
        guard settings.liveActivities else { return .activityDisabled }
        if let rule = activity.refusal(message) { return rule }
        if message.event == .update, priority == .immediate {
            let limit = updateBudget(app, settings)
            let hasRoom = with(device, app) { $0.activities?.value.spend(limit, now: now) ?? false }
            guard hasRoom ?? false else { return .activityOverBudget }
        }
        let requires = appTable[app].activities?.first { $0.type == activity.type }?.requires ?? []
        let fault = message.content.flatMap {
            activity.refusal(state: $0, size: message.contentSize, requires: requires)
        }
        if message.event == .end {
            // An end ends also with a state that does not decode. The former state stays then.
            if let fault { note(fault, push, now: now) }
            _ = change(number, app, device) { $0.ended(by: message, push: push) }
            endActivity(
                number, .activityEnded, app: app, device: device, state: fault == nil ? message.content : nil,
                dismissAt: message.dismissAt, push: push, isReported: isReported, now: now)
        } else {
            if let fault { return fault }
            let updated = change(number, app, device) { activity in
                activity.update(message, push: push, now: now)
                return activity
            }
            note(.activityUpdated, push, now: now)
            if updated?.phase == .stale { note(.activityStale, push, now: now) }
            if isReported, let updated {
                reportActivity("updated", updated, app: app, device: device, push: push, now: now)
            }
            scheduleActivity(number, app: app, device: device)
        }
        if message.hasAlert { note(.activityAlerted, push, now: now) }
        return nil
    }

    /// Updates of priority 10 within an hour. Frequent updates need entitlement and setting.
    private func updateBudget(_ app: UInt16, _ settings: NotificationSettings) -> Int {
        let isFrequent =
            settings.frequentUpdates && (appTable[app].entitlements?.contains(.frequentUpdates) ?? false)
        return isFrequent ? self.settings.frequentUpdatesPerHour : self.settings.activityUpdatesPerHour
    }

    // MARK: - Support

    /// Changes an activity; returns nil without calling when the activity is gone.
    mutating func change<Result>(
        _ number: UInt64, _ app: UInt16, _ device: UInt32, _ body: (inout Activity) -> Result
    ) -> Result? {
        with(device, app) { $0.activities?.value.change(number, body) } ?? nil
    }

    mutating func reportActivity(
        _ change: String, _ activity: Activity, app: UInt16, device: UInt32, push: UInt64, now: Int64
    ) {
        report(
            .activity, device: device, app: app, push: push == 0 ? nil : push,
            identifier: "\(activity.number)", detail: change, now: now)
    }
}
