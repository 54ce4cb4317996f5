import SluiceModel

/// Circumstances of a presentation: the app's permission and settings, and the state of the device.
private struct Circumstances {
    var authorization: Authorization
    var settings: NotificationSettings
    /// Whether the app is in front of an unlocked screen.
    var isInFront: Bool
    var isLocked: Bool
    var isMuted: Bool
    var focus: FocusState?
    /// Whether the scheduled summary has a time.
    var hasSummary: Bool
    /// Options that the app has asked for; nil: all.
    var options: [String]?

    func isGranted(_ option: String) -> Bool { options?.contains(option) ?? true }

    var hidesPreviews: Bool { settings.previews.hides(whileLocked: isLocked) }
}

/// Decisions about a notification, in the order of the reference's section 3.2.
private struct Decision {
    /// Surfaces that level, Focus, summary and app leave.
    var wanted: Surfaces = []
    /// Surfaces that the user sees or hears.
    var surfaces: Surfaces = []
    /// Whether the app has chosen silence in the foreground.
    var isLeftToApp = false
    /// Whether mute switch and Focus have no power over the sound.
    var isCriticalSound = false
    var isCriticalLevel = false

    var fate: Fate {
        if surfaces.contains(.summary) { return .held }
        if !surfaces.isDisjoint(with: [.banner, .lockScreen, .sound]) { return .shown }
        if surfaces.contains(.list) { return .silent }
        if surfaces.contains(.badge) { return .updated }
        return isLeftToApp ? .woken : .dropped
    }
}

extension NotificationSettings.Previews {
    func hides(whileLocked isLocked: Bool) -> Bool {
        switch self {
        case .always: false
        case .whenUnlocked: isLocked
        case .never: true
        }
    }
}

/// Presentation of notifications, remote and local.
extension DeviceWorld {
    /// Decides where a notification appears, and lets it appear.
    /// - Returns: the fate of its push.
    mutating func present(
        _ notification: DeliveredNotification, _ facts: AlertFacts, app: UInt16, on device: UInt32, now: Int64
    ) -> Fate {
        let push = notification.push
        guard let circumstances = circumstances(app, on: device) else {
            note(.notInstalled, push, now: now)
            return .dropped
        }
        guard facts.isPresentable else {
            note(.nothingToShow, push, now: now)
            return .dropped
        }
        switch circumstances.authorization {
        case .notDetermined:
            note(.notAuthorized, push, now: now)
            return .dropped
        case .denied:
            note(.denied, push, now: now)
            return .dropped
        case .provisional: note(.provisional, push, now: now)
        case .authorized, .ephemeral: break
        }
        var decision = Decision()
        choose(&decision, facts, circumstances, app: app, push: push, now: now)
        if facts.hasText { decideSurfaces(&decision, circumstances, push: push, now: now) }
        decideSound(&decision, facts, circumstances, push: push, now: now)
        decideBadge(&decision, facts, circumstances, app: app, on: device, push: push, now: now)
        if facts.hasText, !decision.surfaces.isDisjoint(with: .entries) {
            var entry = notification
            entry.surfaces = decision.surfaces
            noteContent(entry, facts, circumstances, app: app, language: device, now: now)
            enlist(entry, app: app, on: device, style: circumstances.settings.alertStyle, now: now)
        }
        return decision.fate
    }

    private func circumstances(_ app: UInt16, on device: UInt32) -> Circumstances? {
        let installed = look(device, app) { ($0.authorization, $0.settings.value, $0.state) }
        guard let (authorization, settings, appState) = installed else { return nil }
        let state = state(device)
        return Circumstances(
            authorization: authorization, settings: settings,
            isInFront: appState == .foreground && !state.isLocked, isLocked: state.isLocked,
            isMuted: state.isMuted, focus: state.focus, hasSummary: !state.summaryTimes.isEmpty,
            options: appTable[app].permission?.options)
    }

    // MARK: - The app in front, level, Focus and summary

    private mutating func choose(
        _ decision: inout Decision, _ facts: AlertFacts, _ circumstances: Circumstances, app: UInt16,
        push: UInt64, now: Int64
    ) {
        if circumstances.isInFront {
            if let options = appTable[app].foreground {
                decision.isLeftToApp = true
                for option in options { decision.wanted.insert(option.surface) }
                note(options.isEmpty ? .foregroundSilent : .foregroundShown, push, now: now)
                decideCriticalSound(&decision, facts, circumstances, app: app, push: push, now: now)
                return
            }
            note(.foregroundNoDelegate, push, now: now)
        }
        decision.wanted = [.list, .badge]
        guard circumstances.authorization != .provisional else { return }
        let level = effectiveLevel(facts.level, circumstances, app: app, push: push, now: now)
        decision.isCriticalLevel = level == .critical
        decideCriticalSound(&decision, facts, circumstances, app: app, push: push, now: now)
        if circumstances.settings.scheduledSummary, circumstances.hasSummary, facts.hasText,
            level == .passive || level == .active
        {
            note(.waitsForSummary, push, now: now)
            decision.wanted = [.summary, .badge]
            return
        }
        var isLit = level != .passive
        if isLit, level != .critical, let focus = circumstances.focus {
            isLit = passes(focus, level, facts, app: app, push: push, now: now)
        }
        if isLit { decision.wanted.formUnion([circumstances.isLocked ? .lockScreen : .banner, .sound]) }
        if decision.isCriticalSound { decision.wanted.insert(.sound) }
    }

    /// Level after entitlements and the user's settings.
    private mutating func effectiveLevel(
        _ level: InterruptionLevel, _ circumstances: Circumstances, app: UInt16, push: UInt64, now: Int64
    ) -> InterruptionLevel {
        switch level {
        case .active: return .active
        case .passive:
            note(.passive, push, now: now)
            return .passive
        case .timeSensitive:
            guard appTable[app].entitlements?.contains(.timeSensitive) ?? false else {
                note(.timeSensitiveNotEntitled, push, now: now)
                return .active
            }
            guard circumstances.settings.timeSensitive else {
                note(.timeSensitiveOff, push, now: now)
                return .active
            }
            note(.timeSensitive, push, now: now)
            return .timeSensitive
        case .critical:
            guard allowsCritical(circumstances, app: app) else {
                note(.criticalNotEntitled, push, now: now)
                return .active
            }
            note(.critical, push, now: now)
            return .critical
        }
    }

    private func allowsCritical(_ circumstances: Circumstances, app: UInt16) -> Bool {
        circumstances.settings.critical && circumstances.isGranted("critical")
            && circumstances.authorization != .provisional
            && appTable[app].entitlements?.contains(.critical) ?? false
    }

    private mutating func decideCriticalSound(
        _ decision: inout Decision, _ facts: AlertFacts, _ circumstances: Circumstances, app: UInt16,
        push: UInt64, now: Int64
    ) {
        guard facts.isCriticalSound else { return }
        decision.isCriticalSound = allowsCritical(circumstances, app: app)
        // A critical level without entitlement was noted already.
        if !decision.isCriticalSound, facts.level != .critical || circumstances.isInFront {
            note(.criticalNotEntitled, push, now: now)
        }
    }

    /// Whether a Focus lets a notification light the screen.
    private mutating func passes(
        _ focus: FocusState, _ level: InterruptionLevel, _ facts: AlertFacts, app: UInt16, push: UInt64,
        now: Int64
    ) -> Bool {
        let isUrgent = level == .timeSensitive && focus.allowsTimeSensitive
        let isAllowed = focus.allowedApps.contains(appTable[app].bundle)
        guard isUrgent || isAllowed else {
            note(.silencedByFocus, push, now: now)
            return false
        }
        guard facts.filter != .unknown else {
            note(.filteredByFocus, push, now: now)
            return false
        }
        if isAllowed { note(.allowedByFocus, push, now: now) }
        return true
    }

    // MARK: - Settings

    private mutating func decideSurfaces(
        _ decision: inout Decision, _ circumstances: Circumstances, push: UInt64, now: Int64
    ) {
        let settings = circumstances.settings
        let isProvisional = circumstances.authorization == .provisional
        let showsAlerts = settings.alerts && circumstances.isGranted("alert") && !isProvisional
        let lit = decision.wanted.intersection([.banner, .lockScreen])
        if !lit.isEmpty, !showsAlerts, !isProvisional { note(.noAlerts, push, now: now) }
        if showsAlerts, lit.contains(.banner) {
            if settings.alertStyle == .none {
                note(.noBanner, push, now: now)
            } else {
                note(.banner, push, now: now)
                decision.surfaces.insert(.banner)
            }
        }
        if showsAlerts, lit.contains(.lockScreen) {
            note(settings.lockScreen ? .lockScreen : .noLockScreen, push, now: now)
            if settings.lockScreen { decision.surfaces.insert(.lockScreen) }
        }
        if decision.wanted.contains(.list) {
            note(settings.notificationCentre ? .list : .noList, push, now: now)
            if settings.notificationCentre { decision.surfaces.insert(.list) }
        }
        if decision.wanted.contains(.summary) { decision.surfaces.insert(.summary) }
    }

    private mutating func decideSound(
        _ decision: inout Decision, _ facts: AlertFacts, _ circumstances: Circumstances, push: UInt64,
        now: Int64
    ) {
        guard facts.sound != .absent, decision.wanted.contains(.sound),
            circumstances.authorization != .provisional
        else { return }
        guard circumstances.settings.sounds, circumstances.isGranted("sound") else {
            return note(.noSound, push, now: now)
        }
        if facts.sound == .unknown { note(.unknownSound, push, now: now) }
        if decision.isCriticalSound {
            note(.criticalSound, push, now: now)
        } else if circumstances.isMuted, !decision.isCriticalLevel {
            return note(.muted, push, now: now)
        } else {
            note(.sound, push, now: now)
        }
        decision.surfaces.insert(.sound)
    }

    private mutating func decideBadge(
        _ decision: inout Decision, _ facts: AlertFacts, _ circumstances: Circumstances, app: UInt16,
        on device: UInt32, push: UInt64, now: Int64
    ) {
        guard let badge = facts.badge, decision.wanted.contains(.badge),
            circumstances.authorization != .provisional
        else { return }
        guard circumstances.settings.badges, circumstances.isGranted("badge") else {
            return note(.noBadge, push, now: now)
        }
        note(badge == 0 ? .badgeRemoved : .badge, push, now: now)
        _ = with(device, app) { $0.badge = badge }
        // The fate of a push shows its badge.
        if push == 0 { report(.app, device: device, app: app, detail: "badge \(badge)", now: now) }
        decision.surfaces.insert(.badge)
    }

    /// Notes what of the content has no effect.
    private mutating func noteContent(
        _ entry: DeliveredNotification, _ facts: AlertFacts, _ circumstances: Circumstances, app: UInt16,
        language device: UInt32, now: Int64
    ) {
        if facts.category == .unknown { note(.unknownCategory, entry.push, now: now) }
        if facts.isLocalized, content(of: entry, app: app, language: state(device).language).lacksString {
            note(.unknownString, entry.push, now: now)
        }
        if circumstances.hidesPreviews, !entry.surfaces.isDisjoint(with: [.banner, .lockScreen]) {
            note(.previewsHidden, entry.push, now: now)
        }
    }
}

extension PresentationOption {
    var surface: Surfaces {
        switch self {
        case .banner: .banner
        case .list: .list
        case .sound: .sound
        case .badge: .badge
        }
    }
}
