import SluiceModel

/// Silent pushes.
extension DeviceWorld {
    /// Time of an app's handler, in milliseconds.
    static let handlerTime: Int64 = 30_000

    mutating func arriveSilent(_ push: TransitPush, now: Int64) {
        guard AlertFacts(push.payload, AlertExpectations()).wakesApp else {
            note(.nothingToShow, push.number, now: now)
            return conclude(.dropped, push.number, device: push.device, app: push.app, now: now)
        }
        wake(push, decidesFate: true, now: now)
    }

    /// Lets a push wake its app, holds the push, or drops it.
    /// - Parameter decidesFate: whether nothing else has decided the fate of the push.
    mutating func wake(_ push: TransitPush, decidesFate: Bool, now: Int64) {
        guard let installation = installation(push.device, push.app) else { return }
        let state = state(push.device)
        if installation.state == .foreground, !state.isLocked {
            releaseForeground(push.app, on: push.device, now: now)
            note(.handedToApp, push.number, now: now)
            return handle(push, decidesFate: decidesFate, now: now)
        }
        var refusal: DeviceRule?
        if !(appTable[push.app].backgroundModes?.contains("remote-notification") ?? true) {
            refusal = .noBackgroundMode
        } else if installation.state == .forceQuit {
            refusal = .forceQuit
        } else if !state.refreshesInBackground || !installation.settings.value.backgroundRefresh {
            refusal = .backgroundRefreshOff
        }
        if let refusal {
            note(refusal, push.number, now: now)
            return drop(push, decidesFate: decidesFate, now: now)
        }
        if state.isInLowPowerMode {
            return hold(HeldPush(push: push, decidesFate: decidesFate, rule: .lowPowerMode), now: now)
        }
        guard installation.background.left(settings, now: now) > 0 else {
            return hold(HeldPush(push: push, decidesFate: decidesFate, rule: .heldForBudget), now: now)
        }
        wakeNow(push, decidesFate: decidesFate, now: now)
    }

    private mutating func drop(_ push: TransitPush, decidesFate: Bool, now: Int64) {
        guard decidesFate else { return }
        conclude(.dropped, push.number, device: push.device, app: push.app, now: now)
    }

    private mutating func wakeNow(_ push: TransitPush, decidesFate: Bool, now: Int64) {
        let midnight = LocalTime.midnight(after: now, zone: state(push.device).timeZoneMinutes)
        let former = with(push.device, push.app) { installation -> HeldPush? in
            installation.background.wake(midnight: midnight, now: now)
            if installation.state == .notRunning { installation.state = .background }
            return installation.background.hold(nil)
        }
        if let former = former ?? nil, former.push.number != push.number { replace(former, now: now) }
        note(.wokeApp, push.number, now: now)
        handle(push, decidesFate: decidesFate, now: now)
    }

    // MARK: - Held pushes

    private mutating func hold(_ held: HeldPush, now: Int64) {
        let push = held.push
        let former = with(push.device, push.app) { $0.background.hold(held) }
        if let former = former ?? nil, former.push.number != push.number { replace(former, now: now) }
        note(held.rule, push.number, now: now)
        if held.decidesFate { conclude(.held, push.number, device: push.device, app: push.app, now: now) }
        // A held push with the same rule has scheduled the next chance already.
        if held.rule == .heldForBudget, former??.rule != .heldForBudget {
            scheduleWake(push.app, on: push.device, now: now)
        }
    }

    private mutating func replace(_ held: HeldPush, now: Int64) {
        note(.replacedWhileHeld, held.push.number, now: now)
        guard held.decidesFate else { return }
        conclude(.replaced, held.push.number, device: held.push.device, app: held.push.app, now: now)
    }

    private mutating func scheduleWake(_ app: UInt16, on device: UInt32, now: Int64) {
        guard let chance = chance(app, on: device, now: now) else { return }
        due.schedule(.wake(device: device, app: app), at: max(now + 1, chance.at))
    }

    private func chance(_ app: UInt16, on device: UInt32, now: Int64) -> (at: Int64, isReset: Bool)? {
        guard let installation = installation(device, app) else { return nil }
        let midnight = LocalTime.midnight(after: now, zone: state(device).timeZoneMinutes)
        return installation.background.chance(settings, midnight: midnight, now: now)
    }

    /// Lets the held push of an app wake it, or drops the push at the daily reset.
    mutating func wakeHeld(device: UInt32, app: UInt16, now: Int64) {
        guard let held = installation(device, app)?.background.held, held.rule == .heldForBudget,
            state(device).isPoweredOn
        else { return }
        // At the reset of the day, the time just before has the used budget.
        if let former = chance(app, on: device, now: now - 1), former.isReset, former.at <= now {
            return dropHeld(app, on: device, .droppedAtReset, now: now)
        }
        guard let left = installation(device, app)?.background.left(settings, now: now), left > 0 else {
            return scheduleWake(app, on: device, now: now)
        }
        tryHeld(app, on: device, now: now)
    }

    /// Tries the held pushes of a device again, because a switch has changed.
    mutating func releaseHeld(_ device: UInt32, now: Int64) {
        guard let found = devices[Int(device)], found.state.value.isPoweredOn else { return }
        for installation in found.installations {
            guard let held = installation.background.held else { continue }
            if held.rule == .heldForBudget {
                // Its time may have passed while the device was off.
                scheduleWake(installation.app, on: device, now: now)
            } else if !found.state.value.isInLowPowerMode {
                tryHeld(installation.app, on: device, now: now)
            }
        }
    }

    private mutating func tryHeld(_ app: UInt16, on device: UInt32, now: Int64) {
        guard let held = with(device, app, { $0.background.hold(nil) }) ?? nil else { return }
        wake(held.push, decidesFate: held.decidesFate, now: now)
    }

    mutating func dropHeld(_ app: UInt16, on device: UInt32, _ rule: DeviceRule, now: Int64) {
        guard let held = with(device, app, { $0.background.hold(nil) }) ?? nil else { return }
        note(rule, held.push.number, now: now)
        drop(held.push, decidesFate: held.decidesFate, now: now)
    }

    /// Reacts to a launch by the user, or to the first launch.
    mutating func launched(_ app: UInt16, on device: UInt32, inFront: Bool, now: Int64) {
        if inFront { releaseForeground(app, on: device, now: now) }
    }

    /// Hands the held push to an app that the user has launched.
    private mutating func releaseForeground(_ app: UInt16, on device: UInt32, now: Int64) {
        guard let held = with(device, app, { $0.background.hold(nil) }) ?? nil else { return }
        note(.handedToApp, held.push.number, now: now)
        handle(held.push, decidesFate: held.decidesFate, now: now)
    }

    // MARK: - Code of the app

    /// Runs the app's code for a silent push.
    private mutating func handle(_ push: TransitPush, decidesFate: Bool, now: Int64) {
        if decidesFate {
            conclude(.woken, push.number, device: push.device, app: push.app, now: now)
        }
        guard let rules = appTable[push.app].silent, let members = JSONValue(push.payload),
            let rule = rules.first(where: { $0.matches(members) })
        else {
            return report(
                .wake, device: push.device, app: push.app, push: push.number, detail: "new-data", now: now)
        }
        let result = rule.result ?? "new-data"
        report(.wake, device: push.device, app: push.app, push: push.number, detail: result, now: now)
        for identifier in rule.removesDelivered.map({ members.texts($0) }) ?? [] {
            removeDelivered(identifier, app: push.app, on: push.device, now: now)
        }
        for identifier in rule.removesPending.map({ members.texts($0) }) ?? [] {
            removePending(identifier, app: push.app, on: push.device, now: now)
        }
        if let member = rule.setsBadge, let badge = NotificationContent.badge(members[member]) {
            setBadge(badge, app: push.app, on: push.device, now: now)
        }
        if let request = rule.posts { tryAdd(request, app: push.app, on: push.device, now: now) }
        if result == "never" {
            let launch = installation(push.device, push.app)?.launches ?? 0
            due.schedule(
                .handler(device: push.device, app: push.app, push: push.number, launch: launch),
                at: now + Self.handlerTime)
        }
    }

    /// Ends an app that has not called the handler of a silent push, unless that process has ended meanwhile.
    /// - Parameter launch: number of the process, as in ``Installation/launches``.
    mutating func endHandler(_ device: UInt32, _ app: UInt16, push: UInt64, launch: UInt16, now: Int64) {
        let isEnded = with(device, app) { installation -> Bool in
            guard installation.state.isRunning, installation.launches == launch else { return false }
            installation.state = .notRunning
            return true
        }
        guard isEnded ?? false else { return }
        note(.handlerNotCalled, push, now: now)
        dropHeld(app, on: device, .handlerNotCalled, now: now)
        report(.app, device: device, app: app, push: push, detail: "ended", now: now)
    }
}

extension DeviceWorld {
    /// Wakes that are left within this hour.
    func wakesLeft(_ installation: Installation, now: Int64) -> Int {
        installation.background.left(settings, now: now)
    }

    func holdsSilentPush(_ installation: Installation) -> Bool { installation.background.held != nil }
}

extension SilentRule {
    /// Whether the rule concerns a payload.
    fileprivate func matches(_ payload: JSONValue) -> Bool {
        guard let member else { return true }
        guard let value = payload[member] else { return false }
        return equals.map { $0 == value.plainText } ?? true
    }
}

extension JSONValue {
    /// Texts of a member, which is a text or an array of texts.
    fileprivate func texts(_ member: String) -> [String] {
        switch self[member] {
        case .string(let text): [text]
        case .array(let elements): elements.compactMap(\.string)
        default: []
        }
    }
}
