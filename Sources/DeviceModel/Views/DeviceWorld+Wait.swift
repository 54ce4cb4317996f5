import SluiceModel

/// Conditions that tests wait for.
extension DeviceWorld {
    /// Most entries of each kind in a result.
    static let mostFound = 100
    /// Most devices, texts and pushes that a look visits.
    static let lookedDevices = 2_000
    static let lookedTexts = 200
    static let lookedPushes = 10_000

    /// Looks once at everything.
    public func check(_ condition: WaitCondition, now: Int64) -> WaitResult {
        var watch = ConditionWatch(condition)
        while true {
            switch look(&watch) {
            case .more: continue
            case .nothing: return result(of: watch)
            case .matched(let result): return result
            }
        }
    }

    /// Visits what a condition needs: a portion of everything at first, then what has changed.
    public func look(_ watch: inout ConditionWatch) -> ConditionWatch.Look {
        if watch.resets != resets { begin(&watch) }
        var isDone = visitChanges(&watch)
        isDone = visitDevices(&watch) && isDone
        isDone = visitPushes(&watch) && isDone
        guard isDone || watch.isEarly else { return .more }
        if watch.holds { return .matched(result(of: watch)) }
        return isDone ? .nothing : .more
    }

    /// Findings of a watch so far, at most 100 entries of a kind.
    public func result(of watch: ConditionWatch) -> WaitResult {
        let condition = watch.condition
        var result = WaitResult(
            matches: watch.holds, notifications: [], pushes: [], activities: [], responses: [])
        func add<Entry>(_ entries: some Sequence<Entry>, _ list: inout [Entry]) {
            list += entries.prefix(Self.mostFound - list.count)
        }
        for id in watch.devices.keys.sorted() {
            guard let device = devices.indices.contains(Int(id)) ? devices[Int(id)] : nil,
                let found = watch.devices[id]
            else { continue }
            for installation in device.installations where isChosen(installation, condition) {
                if found.notifications > 0, result.notifications.count < Self.mostFound {
                    add(
                        deliveredViews(installation, on: id).lazy.filter(condition.matches),
                        &result.notifications)
                }
                if found.activities > 0, result.activities.count < Self.mostFound {
                    add(
                        activityViews(installation, on: id).lazy.filter { $0.state == condition.activity },
                        &result.activities)
                }
                if found.responses > 0 {
                    add(
                        installation.responses.lazy.filter { $0.action == condition.response },
                        &result.responses)
                }
            }
        }
        result.pushes = watch.pushes.sorted(by: >).prefix(Self.mostFound).compactMap { push($0) }
        return result
    }

    // MARK: - Visits

    private func begin(_ watch: inout ConditionWatch) {
        let condition = watch.condition
        watch.forget()
        watch.resets = resets
        watch.restOfDevices =
            !condition.asksForDevice
            ? 0..<0
            : condition.device.map { Int($0)..<min(Int($0) + 1, max(Int($0), devices.count)) }
                ?? 0..<devices.count
        watch.pushesBefore = condition.asksForPush ? journal.next : nil
        watch.touched = touched.next
        watch.event = log.next
        watch.push = journal.next
    }

    /// Visits what has changed. Returns whether nothing is left.
    private func visitChanges(_ watch: inout ConditionWatch) -> Bool {
        let condition = watch.condition
        guard touched.oldest <= watch.touched, log.oldest <= watch.event else {
            // Changes were forgotten, because the last look is too long ago.
            begin(&watch)
            return false
        }
        if condition.asksForDevice {
            var seen: Set<UInt32> = []
            while watch.touched < touched.next, seen.count < Self.lookedTexts {
                let device = touched[watch.touched]
                watch.touched += 1
                guard condition.device == nil || condition.device == device, seen.insert(device).inserted
                else { continue }
                watch.set(find(condition, on: device), of: device)
            }
        }
        if condition.asksForPush {
            while watch.push < journal.next {
                visit(watch.push, &watch)
                watch.push += 1
            }
            while watch.event < log.next {
                if let push = log[watch.event]?.push { visit(push, &watch) }
                watch.event += 1
            }
        }
        return !condition.asksForDevice || watch.touched == touched.next
    }

    private func visitDevices(_ watch: inout ConditionWatch) -> Bool {
        var texts = 0
        let end = min(watch.restOfDevices.lowerBound + Self.lookedDevices, watch.restOfDevices.upperBound)
        while let index = watch.restOfDevices.first, index < end, texts < Self.lookedTexts {
            let id = UInt32(index)
            watch.restOfDevices.removeFirst()
            guard let device = devices[index] else { continue }
            if watch.condition.asksForNotification {
                for installation in device.installations { texts += installation.centre.delivered.count }
            }
            watch.set(find(watch.condition, on: id), of: id)
        }
        return watch.restOfDevices.isEmpty
    }

    private func visitPushes(_ watch: inout ConditionWatch) -> Bool {
        guard let before = watch.pushesBefore else { return true }
        var left = Self.lookedPushes
        var last = before
        var found: [UInt64] = []
        journal.visit(before: before) { record in
            last = record.number
            left -= 1
            if matches(record, watch) { found.append(record.number) }
            return left > 0
        }
        for number in found { watch.set(true, push: number) }
        watch.pushesBefore = last == before || last <= journal.oldest ? nil : last
        return watch.pushesBefore == nil
    }

    private func visit(_ number: UInt64, _ watch: inout ConditionWatch) {
        watch.set(journal[number].map { matches($0, watch) } ?? false, push: number)
    }

    private func matches(_ record: borrowing PushRecord, _ watch: ConditionWatch) -> Bool {
        let condition = watch.condition
        return (condition.apnsID == nil || watch.apnsID == record.apnsID)
            && (condition.device == nil || record.device == condition.device)
            && (condition.fate == nil || record.fate.name == condition.fate)
            && isApp(record.app, condition.app)
    }

    /// Whether an app has the chosen bundle identifier; nil chooses all apps.
    func isApp(_ app: UInt16?, _ bundle: String?) -> Bool {
        guard let bundle else { return true }
        return app.map { appTable[$0].bundle == bundle } ?? false
    }

    private func isChosen(_ installation: Installation, _ condition: WaitCondition) -> Bool {
        isApp(installation.app, condition.app)
    }

    /// Matches on a device.
    private func find(_ condition: WaitCondition, on id: UInt32) -> ConditionWatch.Found {
        var found = ConditionWatch.Found()
        guard devices.indices.contains(Int(id)), let device = devices[Int(id)] else { return found }
        let state = device.state.value
        if let isOnline = condition.isOnline, state.isReachable == isOnline { found.online = 1 }
        for installation in device.installations where isChosen(installation, condition) {
            if condition.count != nil { found.apps += 1 }
            if let badge = condition.badge, installation.badge == badge { found.badges += 1 }
            if condition.asksForNotification {
                found.notifications += installation.centre.delivered.count { entry in
                    matches(entry, condition, app: installation.app, language: state.language)
                }
            }
            if let state = condition.activity, let list = installation.activities?.value {
                found.activities += list.activities.count { $0.phase.rawValue == state }
            }
            if let action = condition.response {
                found.responses += installation.responses.count { $0.action == action }
            }
        }
        return found
    }

    private func matches(
        _ entry: DeliveredNotification, _ condition: WaitCondition, app: UInt16, language: String
    ) -> Bool {
        if let identifier = condition.identifier, entry.identifier(seed: settings.seed) != identifier {
            return false
        }
        guard condition.asksForText else { return true }
        let content = content(of: entry, app: app, language: language)
        return condition.matches(
            title: content.title, subtitle: content.subtitle, body: content.body,
            level: "\(content.level.name)")
    }
}

extension WaitCondition {
    /// Whether a notification must match. A condition without any member asks for one, too.
    var asksForNotification: Bool {
        let asksForOther =
            asksForPush || badge != nil || activity != nil || isOnline != nil || response != nil
        return identifier != nil || asksForText || count != nil || !asksForOther
    }

    /// Whether a notification's text or level must be known.
    var asksForText: Bool { title != nil || body != nil || text != nil || level != nil }

    var asksForPush: Bool { apnsID != nil || fate != nil }

    func matches(_ view: NotificationView) -> Bool {
        (identifier == nil || view.identifier == identifier)
            && matches(title: view.title, subtitle: view.subtitle, body: view.body, level: view.level)
    }

    func matches(title: String, subtitle: String, body: String, level: String) -> Bool {
        (self.title == nil || title == self.title) && (self.body == nil || body == self.body)
            && (self.level == nil || level == self.level)
            && (text.map { title.contains($0) || subtitle.contains($0) || body.contains($0) } ?? true)
    }
}
