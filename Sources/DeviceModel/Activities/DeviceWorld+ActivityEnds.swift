import SluiceModel

/// Ends of Live Activities, and what time does to them.
extension DeviceWorld {
    /// Ends an activity, its update token and its subscription.
    mutating func endActivity(
        _ number: UInt64, _ rule: DeviceRule, app: UInt16, device: UInt32, state: JSONValue? = nil,
        dismissAt: Int64? = nil, push: UInt64, isReported: Bool = true, now: Int64
    ) {
        let ended = change(number, app, device) { activity -> Activity? in
            guard activity.isRunning else { return nil }
            activity.end(state: state, dismissAt: dismissAt, now: now)
            return activity
        }
        guard let ended = ended ?? nil else { return }
        note(rule, push, now: now)
        if ended.phase == .dismissed { note(.activityDismissed, push, now: now) }
        release(ended, app: app, device: device, now: now)
        let change = ended.phase == .dismissed ? "dismissed" : "ended"
        if isReported { reportActivity(change, ended, app: app, device: device, push: push, now: now) }
        scheduleActivity(number, app: app, device: device)
        limitEnded(app, device, now: now)
    }

    /// Removes an activity from the screen; a running one ends.
    mutating func dismissActivity(_ number: UInt64, app: UInt16, device: UInt32, now: Int64) {
        guard let activity = installation(device, app)?.activities?.value[number],
            activity.phase != .dismissed
        else { return }
        _ = change(number, app, device) { $0.dismiss(now: now) }
        note(.activityDismissed, activity.push, now: now)
        if activity.isRunning { release(activity, app: app, device: device, now: now) }
        reportActivity("dismissed", activity, app: app, device: device, push: activity.push, now: now)
        limitEnded(app, device, now: now)
    }

    /// Ends token and subscription of an activity that no longer runs.
    private mutating func release(_ activity: Activity, app: UInt16, device: UInt32, now: Int64) {
        if let channel = activity.channel {
            channels.unsubscribe(
                activity.number,
                from: ChannelKey(app: app, environment: activity.environment, channel: channel))
        }
        guard activity.token != TokenTable.none else { return }
        end(activity.token, .expiredToken, now: now)
        unlink(activity.token, app: app, device: device)
        report(
            .token, device: device, app: app, identifier: "\(activity.number)", detail: "expired",
            token: activity.token, now: now)
    }

    /// Removes a token from its installation's list, so that the list has only tokens that are in use.
    private mutating func unlink(_ token: UInt32, app: UInt16, device: UInt32) {
        guard let first = installation(device, app)?.firstToken else { return }
        let next = tokens[token].next
        if first == token {
            _ = with(device, app) { $0.firstToken = next }
        } else {
            var index = first
            while index != TokenTable.none, tokens[index].next != token { index = tokens[index].next }
            if index != TokenTable.none { tokens[index].next = next }
        }
        tokens[token].next = TokenTable.none
    }

    /// Keeps the lists of ended and dismissed activities bounded (assumed).
    private mutating func limitEnded(_ app: UInt16, _ device: UInt32, now: Int64) {
        _ = with(device, app) { $0.activities?.value.forgetDismissed() }
        if let surplus = installation(device, app)?.activities?.value.surplusEnded {
            dismissActivity(surplus, app: app, device: device, now: now)
        }
    }

    // MARK: - Ends of apps

    /// Removes all Live Activities of an app, as a restored backup does.
    mutating func dismissActivities(_ app: UInt16, on device: UInt32, now: Int64) {
        for activity in installation(device, app)?.activities?.value.activities ?? [] {
            dismissActivity(activity.number, app: app, device: device, now: now)
        }
    }

    // MARK: - Time

    /// Schedules an activity's next due time unless an earlier entry is scheduled.
    mutating func scheduleActivity(_ number: UInt64, app: UInt16, device: UInt32) {
        let time = change(number, app, device) { activity -> Int64? in
            guard let next = activity.nextDue, activity.wakeAt.map({ next < $0 }) ?? true else { return nil }
            activity.wakeAt = next
            return next
        }
        if let time = time ?? nil {
            due.schedule(.activity(device: device, app: app, number), at: time)
        }
    }

    mutating func activityIsDue(device: UInt32, app: UInt16, activity number: UInt64, now: Int64) {
        let found = change(number, app, device) { activity -> (activity: Activity, isStale: Bool) in
            if let time = activity.wakeAt, time <= now { activity.wakeAt = nil }
            let isStale = activity.becomeStale(now: now)
            return (activity, isStale)
        }
        guard let (activity, isStale) = found else { return }
        if isStale {
            note(.activityStale, activity.push, now: now)
            reportActivity("stale", activity, app: app, device: device, push: activity.push, now: now)
        }
        if activity.isRunning, activity.startedAt + Activity.longestRun <= now {
            endActivity(number, .activityTooLong, app: app, device: device, push: activity.push, now: now)
        } else if activity.phase == .ended, let time = activity.dismissAt, time <= now {
            dismissActivity(number, app: app, device: device, now: now)
        }
        scheduleActivity(number, app: app, device: device)
    }
}
