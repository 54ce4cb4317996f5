import SluiceModel

/// Alerts that reach a device.
extension DeviceWorld {
    /// Takes an alert: its service extension runs first if the payload asks for it and the rules allow it.
    mutating func arriveAlert(_ push: TransitPush, now: Int64) {
        let expected = expectations(push.app, push.device)
        let facts = AlertFacts(push.payload, expected)
        if facts.asksForExtension {
            guard let obstacle = extensionObstacle(push, facts) else { return startExtension(push, now: now) }
            note(obstacle, push.number, now: now)
        }
        finishAlert(push, facts, changes: nil, now: now)
    }

    /// Presents an alert after its service extension.
    /// - Parameters:
    ///   - changes: content that the extension has changed; nil: the original is shown.
    ///   - isSilent: whether the sound is left out.
    mutating func presentAlert(
        _ push: TransitPush, changes: ContentChanges?, isSilent: Bool = false, now: Int64
    ) {
        let expected = expectations(push.app, push.device)
        var facts = AlertFacts(push.payload, expected)
        if let changes {
            facts.apply(changes, expected)
            keepLine(push, changes)
        }
        if isSilent {
            facts.sound = .absent
            facts.isCriticalSound = false
        }
        finishAlert(push, facts, changes: changes, now: now)
        if let changes, !changes.attachments.isEmpty, !isListed(push) {
            releaseAttachments(changes.attachments)
        }
    }

    /// Keeps the texts of the service extension for searches and the list of pushes.
    private mutating func keepLine(_ push: TransitPush, _ changes: ContentChanges) {
        guard changes.title != nil || changes.subtitle != nil || changes.body != nil else { return }
        var content = NotificationContent(
            push.payload, strings: appTable[push.app].strings, language: state(push.device).language)
        content.apply(changes)
        if let line = content.line { journal.set(line: line, of: push.number) }
    }

    private func isListed(_ push: TransitPush) -> Bool {
        installation(push.device, push.app)?.centre.delivered.contains { $0.push == push.number } ?? false
    }

    /// Rule that keeps the service extension from running; nil: the extension runs.
    private func extensionObstacle(_ push: TransitPush, _ facts: AlertFacts) -> DeviceRule? {
        guard facts.hasText else { return .extensionSkippedNoAlert }
        guard let installation = installation(push.device, push.app),
            installation.authorization != .denied, installation.authorization != .notDetermined,
            installation.settings.value.alerts,
            appTable[push.app].permission?.options?.contains("alert") ?? true
        else { return .extensionSkippedAlertsOff }
        return appTable[push.app].serviceExtension == nil ? .extensionSkippedNone : nil
    }

    /// Presents an alert, and wakes the app if the payload asks for it.
    private mutating func finishAlert(
        _ push: TransitPush, _ facts: AlertFacts, changes: ContentChanges?, now: Int64
    ) {
        let identifier = push.collapseID.flatMap { $0.isEmpty ? nil : $0 }
        if let identifier { replacePending(identifier, by: push, now: now) }
        var fate: Fate?
        if facts.isPresentable || !facts.wakesApp {
            let entry = DeliveredNotification(
                identifier: identifier, push: push.number, apnsID: push.apnsID, at: now,
                payload: push.payload, changes: changes.map { Boxed($0) })
            fate = present(entry, facts, app: push.app, on: push.device, now: now)
        }
        let isUnseen = fate == nil || fate == .dropped
        if let fate, !(isUnseen && facts.wakesApp) {
            conclude(fate, push.number, device: push.device, app: push.app, now: now)
        }
        if facts.wakesApp { wake(push, decidesFate: isUnseen, now: now) }
    }

    /// A request with the identifier of a pending one takes its place, so that the pending one never fires.
    private mutating func replacePending(_ identifier: String, by push: TransitPush, now: Int64) {
        guard with(push.device, push.app, { $0.centre.removePending(identifier) }) ?? false else { return }
        note(.replacedPending, push.number, now: now)
        report(
            .notification, device: push.device, app: push.app, identifier: identifier, detail: "removed",
            now: now)
    }

    /// Names that the payloads of an app are compared with.
    func expectations(_ app: UInt16, _ device: UInt32) -> AlertExpectations {
        AlertExpectations(
            categories: appTable[app].categories, sounds: appTable[app].sounds,
            filter: state(device).focus?.filter)
    }
}
