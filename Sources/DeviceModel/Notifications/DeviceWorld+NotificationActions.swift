/// Acts of the user on notifications.
extension DeviceWorld {
    /// Longest typed text in bytes.
    static let longestText = 4_096
    /// Responses of an app that are kept.
    static let mostResponses = 50
    /// Actions of a category that a notification shows.
    static let mostActions = 10
    /// Apple's identifiers of the actions that every notification has.
    static let tapAction = "com.apple.UNNotificationDefaultActionIdentifier"
    static let dismissAction = "com.apple.UNNotificationDismissActionIdentifier"

    mutating func actOnNotification(_ action: DeviceAction, _ id: UInt32, now: Int64) throws(DeviceFault) {
        try needPower(id)
        switch action.action {
        case .tap, .dismiss, .act, .expand:
            let app = try installed(action, id)
            try act(action, try find(action, app, id), app, id, now: now)
        case .flick: try flick(action, id, now: now)
        case .clearGroup: try clearGroup(action, id, now: now)
        case .clearAll:
            let chosen = action.app == nil ? nil : try installed(action, id)
            for installation in devices[Int(id)]?.installations ?? []
            where chosen == nil || installation.app == chosen {
                clear(installation.app, id, now: now) { _ in true }
            }
        default: try runCode(action, try installed(action, id), id, now: now)
        }
    }

    /// Notification that an action names.
    private func find(
        _ action: DeviceAction, _ app: UInt16, _ id: UInt32
    ) throws(DeviceFault) -> DeliveredNotification {
        let name = try identifier(action)
        guard let found = installation(id, app)?.centre.notification(name, seed: settings.seed) else {
            throw DeviceFault(
                .absent, "`\(appTable[app].bundle)` has no delivered notification `\(name)` on device \(id)")
        }
        return found
    }

    private func identifier(_ action: DeviceAction) throws(DeviceFault) -> String {
        guard let identifier = action.identifier else {
            throw DeviceFault(.invalid, "identifier: the notification's identifier is missing")
        }
        return identifier
    }

    private mutating func act(
        _ action: DeviceAction, _ entry: DeliveredNotification, _ app: UInt16, _ id: UInt32, now: Int64
    ) throws(DeviceFault) {
        let name = entry.identifier(seed: settings.seed)
        switch action.action {
        case .tap:
            take(name, app, id, .opened, .opened, now: now)
            try open(app, id, now: now)
            respond(entry, Self.tapAction, text: nil, app, id, now: now)
        case .dismiss: dismiss([name], app, id, now: now)
        case .expand:
            // The view is made anew, so that it shows the notification itself.
            _ = with(id, app) { [seed = settings.seed] in $0.centre.setStatus(nil, of: name, seed: seed) }
            report(
                .notification, device: id, app: app, push: entry.push == 0 ? nil : entry.push,
                identifier: entry.identifier, detail: "expanded", now: now)
        default: try choose(action, entry, app, id, now: now)
        }
    }

    /// Removes a notification from its list.
    private mutating func take(
        _ name: String, _ app: UInt16, _ id: UInt32, _ rule: DeviceRule, _ fate: Fate, now: Int64
    ) {
        let seed = settings.seed
        guard let taken = with(id, app, { $0.centre.remove(name, seed: seed) }) ?? nil else { return }
        retire([taken], app: app, on: id, rule, fate, now: now)
    }

    /// Unlocks the device, and brings an app to the front.
    private mutating func open(_ app: UInt16, _ id: UInt32, now: Int64) throws(DeviceFault) {
        try unlock(id, now: now)
        launch(app, on: id, inFront: true, now: now)
    }

    private mutating func unlock(_ id: UInt32, now: Int64) throws(DeviceFault) {
        try change(id, now: now) { state in
            state.isLocked = false
            state.isScreenOn = true
            state.wasUnlockedSinceBoot = true
        }
    }

    // MARK: - Actions of the category

    private mutating func choose(
        _ action: DeviceAction, _ entry: DeliveredNotification, _ app: UInt16, _ id: UInt32, now: Int64
    ) throws(DeviceFault) {
        let content = content(of: entry, app: app, language: state(id).language)
        guard let choice = action.choice else {
            throw DeviceFault(.invalid, "choice: the action's identifier is missing")
        }
        guard let found = actions(of: content, app: app).first(where: { $0.identifier == choice }) else {
            throw DeviceFault(
                .absent,
                "the notification has no action `\(choice)`; its category is `\(content.category ?? "")`")
        }
        let text = try typed(action, found)
        let name = entry.identifier(seed: settings.seed)
        let drawn = contentExtension(for: content, app: app) != nil
        if drawn, found.shows != nil || found.then == "stay" {
            let status = found.shows.map { shows in
                Template.fill(shows) { $0 == "text" ? text : content.member($0) }
            }
            _ = with(id, app) { [seed = settings.seed] in $0.centre.setStatus(status, of: name, seed: seed) }
        }
        if drawn, found.then == "stay" {
            note(.actionChosen, entry.push, now: now)
            return report(
                .notification, device: id, app: app, push: entry.push == 0 ? nil : entry.push,
                identifier: entry.identifier, detail: "shown", now: now)
        }
        take(name, app, id, .actionChosen, .opened, now: now)
        if drawn, found.then == "dismiss" { return }
        if found.options?.contains("foreground") ?? false {
            try open(app, id, now: now)
        } else {
            if found.options?.contains("authentication") ?? false, state(id).isLocked {
                try unlock(id, now: now)
            }
            launchInBackground(app, id)
        }
        respond(entry, choice, text: text, app, id, now: now)
    }

    /// Text that the user has typed; nil for an action without a field.
    private func typed(_ action: DeviceAction, _ found: ActionDeclaration) throws(DeviceFault) -> String? {
        guard found.input != nil else {
            guard action.text == nil else {
                throw DeviceFault(.invalid, "text: the action `\(found.identifier)` has no text field")
            }
            return nil
        }
        guard let text = action.text else {
            throw DeviceFault(
                .invalid, "text: the action `\(found.identifier)` needs the text that the user types")
        }
        guard text.utf8.count <= Self.longestText else {
            throw DeviceFault(.invalid, "text: at most \(Self.longestText) bytes, not \(text.utf8.count)")
        }
        return text
    }

    /// Runs an app in the background for a response, also after its end by the user (observed, reports differ).
    private mutating func launchInBackground(_ app: UInt16, _ id: UInt32) {
        _ = with(id, app) { installation in
            if installation.state != .foreground { installation.state = .background }
        }
    }

    /// Hands a response to the app.
    private mutating func respond(
        _ entry: DeliveredNotification, _ action: String, text: String?, _ app: UInt16, _ id: UInt32,
        now: Int64
    ) {
        let name = entry.identifier(seed: settings.seed)
        _ = with(id, app) { installation in
            if installation.responses.count >= Self.mostResponses { installation.responses.removeFirst() }
            installation.responses.append(
                ResponseView(
                    at: now, identifier: name, action: action, userText: text, appState: installation.state))
        }
        report(
            .response, device: id, app: app, push: entry.push == 0 ? nil : entry.push, identifier: name,
            detail: action, now: now)
    }

    // MARK: - Dismissal

    /// Dismisses notifications of an app, which learns of those whose category asks for it.
    private mutating func dismiss(_ names: [String], _ app: UInt16, _ id: UInt32, now: Int64) {
        let seed = settings.seed
        for name in names {
            guard let entry = with(id, app, { $0.centre.remove(name, seed: seed) }) ?? nil else { continue }
            let content = content(of: entry, app: app, language: state(id).language)
            guard category(of: content, app: app)?.options?.contains("custom-dismiss") ?? false else {
                note(.dismissalNotReported, entry.push, now: now)
                retire([entry], app: app, on: id, .removedByUser, .removed, now: now)
                continue
            }
            retire([entry], app: app, on: id, .dismissed, .dismissed, now: now)
            launchInBackground(app, id)
            respond(entry, Self.dismissAction, text: nil, app, id, now: now)
        }
    }

    /// Clears the notifications of an app that `isCleared` accepts.
    private mutating func clear(
        _ app: UInt16, _ id: UInt32, now: Int64, where isCleared: (DeliveredNotification) -> Bool
    ) {
        let names = (installation(id, app)?.centre.delivered ?? []).filter(isCleared).reversed().map {
            $0.identifier(seed: settings.seed)
        }
        dismiss(names, app, id, now: now)
    }

    private mutating func clearGroup(_ action: DeviceAction, _ id: UInt32, now: Int64) throws(DeviceFault) {
        let app = try installed(action, id)
        let thread = action.text ?? ""
        guard let installation = installation(id, app) else { return }
        let names = groupViews(installation).filter { $0.thread == thread }.flatMap(\.identifiers)
        guard !names.isEmpty else {
            throw DeviceFault(
                .absent, "`\(appTable[app].bundle)` has no group `\(thread)` on device \(id)")
        }
        dismiss(names, app, id, now: now)
    }

    /// Flicks the banner away. The notification stays in the list, and the app learns nothing.
    private mutating func flick(_ action: DeviceAction, _ id: UInt32, now: Int64) throws(DeviceFault) {
        guard let banner = devices[Int(id)]?.banner, banner.until.map({ $0 > now }) ?? true else {
            throw DeviceFault(.impossible, "device \(id) shows no banner now")
        }
        if let name = action.identifier {
            let shown = banner.identifier ?? GeneratedIdentifier.text(banner.push, seed: settings.seed)
            guard name == shown else {
                throw DeviceFault(.absent, "the banner of device \(id) is `\(shown)`, not `\(name)`")
            }
        }
        closeBanner(id, now: now)
        report(.device, device: id, app: banner.app, identifier: banner.identifier, detail: "flick", now: now)
    }

    // MARK: - Code of the app

    private mutating func runCode(
        _ action: DeviceAction, _ app: UInt16, _ id: UInt32, now: Int64
    ) throws(DeviceFault) {
        switch action.action {
        case .removeDelivered: removeDelivered(try identifier(action), app: app, on: id, now: now)
        case .removePending: removePending(try identifier(action), app: app, on: id, now: now)
        case .removeAllDelivered: remove(app, on: id, .removedByApp, .removed, now: now) { _ in true }
        case .removeAllPending:
            for request in installation(id, app)?.centre.pending ?? [] {
                removePending(request.identifier, app: app, on: id, now: now)
            }
        case .setBadge:
            guard let number = action.number, let badge = Int32(exactly: number), badge >= 0 else {
                throw DeviceFault(.invalid, "number: the badge, 0 to \(Int32.max), is missing")
            }
            guard allowsBadge(app, id) else {
                throw DeviceFault(
                    .impossible, "badges of `\(appTable[app].bundle)` are off; allow them in its settings")
            }
            setBadge(badge, app: app, on: id, now: now)
        default:
            guard let request = action.request else {
                throw DeviceFault(.invalid, "request: the notification to schedule is missing")
            }
            try add(request, app: app, on: id, now: now)
        }
    }

    /// Removes a delivered notification by the app's code. Unknown identifiers are ignored, as the framework does.
    mutating func removeDelivered(_ name: String, app: UInt16, on device: UInt32, now: Int64) {
        take(name, app, device, .removedByApp, .removed, now: now)
    }

    /// Removes a pending request by the app's code. Unknown identifiers are ignored, as the framework does.
    mutating func removePending(_ name: String, app: UInt16, on device: UInt32, now: Int64) {
        guard with(device, app, { $0.centre.removePending(name) }) ?? false else { return }
        reportRemoval(name, app: app, on: device, now: now)
    }

    func allowsBadge(_ app: UInt16, _ device: UInt32) -> Bool {
        guard let installation = installation(device, app) else { return false }
        let isAllowed = installation.authorization == .authorized || installation.authorization == .ephemeral
        return isAllowed && installation.settings.value.badges
            && appTable[app].permission?.options?.contains("badge") ?? true
    }

    /// Sets the badge by the app's code. The badge 0 also clears the delivered list (observed).
    mutating func setBadge(_ badge: Int32, app: UInt16, on device: UInt32, now: Int64) {
        guard allowsBadge(app, device) else { return }
        _ = with(device, app) { $0.badge = badge }
        report(.app, device: device, app: app, detail: "badge \(badge)", now: now)
        if badge == 0 { remove(app, on: device, .removedByApp, .removed, now: now) { _ in true } }
    }
}
