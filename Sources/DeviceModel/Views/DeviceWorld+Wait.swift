import SluiceModel

/// Conditions that tests wait for.
extension DeviceWorld {
    /// Most entries of each kind in a result.
    static let mostFound = 100

    public func check(_ condition: WaitCondition, now: Int64) -> WaitResult {
        var result = WaitResult(matches: false, notifications: [], pushes: [], activities: [], responses: [])
        let app = condition.app.map { appTable.find($0) }
        var isEverythingElse = true
        var count = 0
        for (id, device) in chosen(condition.device) {
            if let isOnline = condition.isOnline, device.state.value.isReachable != isOnline {
                isEverythingElse = false
            }
            for installation in device.installations where app == nil || installation.app == app! {
                if let badge = condition.badge, installation.badge != badge { isEverythingElse = false }
                if condition.asksForNotification {
                    for view in deliveredViews(installation, on: id) where condition.matches(view) {
                        count += 1
                        if result.notifications.count < Self.mostFound { result.notifications.append(view) }
                    }
                }
                if let state = condition.activity {
                    result.activities += activityViews(installation, on: id).filter { $0.state == state }
                }
                if let action = condition.response {
                    result.responses += installation.responses.filter { $0.action == action }
                }
            }
        }
        if condition.asksForPush {
            var query = PushQuery()
            query.query = condition.apnsID
            query.device = condition.device
            query.app = condition.app
            query.fate = condition.fate
            query.limit = Self.mostFound
            result.pushes = pushes(query)
        }
        var matches = isEverythingElse
        if condition.asksForNotification {
            matches = matches && (condition.count.map { count == $0 } ?? (count > 0))
        }
        if condition.asksForPush { matches = matches && !result.pushes.isEmpty }
        if condition.activity != nil { matches = matches && !result.activities.isEmpty }
        if condition.response != nil { matches = matches && !result.responses.isEmpty }
        result.matches = matches != (condition.isAbsent ?? false)
        return result
    }

    private func chosen(_ id: UInt32?) -> [(UInt32, Device)] {
        if let id {
            guard Int(id) < devices.count, let device = devices[Int(id)] else { return [] }
            return [(id, device)]
        }
        return devices.indices.compactMap { index in devices[index].map { (UInt32(index), $0) } }
    }
}

extension WaitCondition {
    /// Whether a notification must match. A condition without any member asks for one, too.
    var asksForNotification: Bool {
        let asksForOther =
            asksForPush || badge != nil || activity != nil || isOnline != nil || response != nil
        return identifier != nil || title != nil || body != nil || text != nil || level != nil || count != nil
            || !asksForOther
    }

    var asksForPush: Bool { apnsID != nil || fate != nil }

    func matches(_ view: NotificationView) -> Bool {
        (identifier == nil || view.identifier == identifier) && (title == nil || view.title == title)
            && (body == nil || view.body == body) && (level == nil || view.level == level)
            && (text.map { view.title.contains($0) || view.subtitle.contains($0) || view.body.contains($0) }
                ?? true)
    }
}
