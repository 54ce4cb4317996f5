import SluiceModel

/// Runs of service extensions.
extension DeviceWorld {
    /// Runs an app's service extension for a push, and presents the result when the run ends.
    mutating func startExtension(_ push: TransitPush, now: Int64) {
        guard let declaration = appTable[push.app].serviceExtension else {
            note(.extensionSkippedNone, push.number, now: now)
            return presentAlert(push, changes: nil, now: now)
        }
        guard extensions.count + extensions.interruptedCount < settings.maximumExtensionRuns else {
            note(.extensionTooMany, push.number, now: now)
            return presentAlert(push, changes: nil, now: now)
        }
        let run = ExtensionRun(push, declaration, limit: settings.extensionTime, now: now)
        proceed(run, extensions.number(), isNew: true, now: now)
    }

    /// Goes on with a run until it waits or ends.
    private mutating func proceed(_ run: ExtensionRun, _ id: UInt64, isNew: Bool, now: Int64) {
        var run = run
        while true {
            let state = state(run.push.device)
            switch run.proceed(canReadKeys: state.wasUnlockedSinceBoot, now: now) {
            case .end(.empty) where appTable[run.push.app].entitlements?.contains(.filtering) ?? false:
                return endExtension(run, .hidden, now: now)
            case .end(let outcome): return endExtension(run, outcome, now: now)
            case .work(.fetch) where !state.isReachable:
                note(.attachmentRefused, run.push.number, now: now)
                run.fetched(nil)
            case .work(let kind):
                run.awaited = extensions.request(kind, for: id)
                return wait(run, id, isNew: isNew, now: now)
            case .time:
                run.awaited = nil
                wait(run, id, isNew: isNew, now: now)
                if let readyAt = run.readyAt { due.schedule(.serviceExtension(id), at: readyAt) }
                return
            }
        }
    }

    private mutating func wait(_ run: ExtensionRun, _ id: UInt64, isNew: Bool, now: Int64) {
        extensions.keep(run, id, isNew: isNew)
        scheduleDeadline()
        conclude(.running, run.push.number, device: run.push.device, app: run.push.app, now: now)
    }

    private mutating func scheduleDeadline() {
        guard let time = extensions.deadlineToSchedule() else { return }
        // Number 0 is no run: the deadlines are in the runs' own order.
        due.schedule(.serviceExtension(0), at: time)
    }

    mutating func extensionIsDue(_ run: UInt64, now: Int64) {
        for late in extensions.takeLate(now: now) {
            endExtension(late.run, late.run.outcomeAtLimit, now: now)
        }
        if run > 0, let found = extensions.take(run) {
            proceed(found, run, isNew: false, now: now)
        }
        scheduleDeadline()
    }

    /// Reports the end of a run, and presents what it has made of the push.
    private mutating func endExtension(_ run: ExtensionRun, _ outcome: ExtensionOutcome, now: Int64) {
        let push = run.push
        reportEnd(of: run, outcome, now: now)
        guard outcome != .hidden else {
            applyHiddenBadge(push, run.changes, now: now)
            return conclude(.dropped, push.number, device: push.device, app: push.app, now: now)
        }
        presentAlert(push, changes: outcome.keepsChanges ? run.changes : nil, now: now)
    }

    /// Notes the end of a run, and frees what the user will not see.
    private mutating func reportEnd(of run: ExtensionRun, _ outcome: ExtensionOutcome, now: Int64) {
        let push = run.push
        note(outcome.rule, push.number, now: now)
        report(
            .receipt, device: push.device, app: push.app, push: push.number, detail: outcome.rawValue,
            token: push.token == TokenTable.none ? nil : push.token, now: now)
        if !outcome.keepsChanges { releaseAttachments(run.changes.attachments) }
    }

    /// Sets the badge of a notification that the extension hid.
    private mutating func applyHiddenBadge(_ push: TransitPush, _ changes: ContentChanges, now: Int64) {
        let original = NotificationContent.badge(JSONValue(push.payload)?["aps"]?["badge"])
        guard let badge = changes.badge ?? original,
            let installation = installation(push.device, push.app),
            [.authorized, .ephemeral].contains(installation.authorization)
        else { return }
        guard allowsBadge(push.app, push.device) else { return note(.noBadge, push.number, now: now) }
        _ = with(push.device, push.app) { $0.badge = badge }
        note(badge == 0 ? .badgeRemoved : .badge, push.number, now: now)
    }

    // MARK: - Ends of devices and apps

    /// Ends the runs of a device whose processes end. The originals wait until the device is on.
    mutating func interruptRuns(on device: UInt32, now: Int64) {
        for run in extensions.takeAll(of: device) {
            reportEnd(of: run, .crashed, now: now)
            extensions.interrupt(run.push)
            conclude(.held, run.push.number, device: device, app: run.push.app, now: now)
        }
    }

    /// Presents the originals of runs that ended with the device, without sound (assumed).
    mutating func presentInterrupted(on device: UInt32, now: Int64) {
        for push in extensions.takeInterrupted(device) {
            note(.shownAfterStart, push.number, now: now)
            presentAlert(push, changes: nil, isSilent: true, now: now)
        }
    }

    /// Ends the runs of an app that is uninstalled.
    mutating func endRuns(of app: UInt16, on device: UInt32, now: Int64) {
        var pushes = extensions.takeInterrupted(device, app: app)
        for run in extensions.takeAll(of: device, app: app) {
            reportEnd(of: run, .crashed, now: now)
            pushes.append(run.push)
        }
        for push in pushes {
            note(.notInstalled, push.number, now: now)
            conclude(.dropped, push.number, device: device, app: app, now: now)
        }
    }

    // MARK: - Work

    /// Takes the work that waits for effects.
    public mutating func takeWork() -> [DeviceWork] { extensions.takeWork() }

    /// Takes the result of work. Late, double and unknown results are ignored.
    public mutating func finish(_ id: UInt64, _ result: WorkResult, now: Int64) {
        advance(to: now)
        guard let found = extensions.take(work: id) else { return }
        var run = found.run
        switch result {
        case .decrypted(let bytes) where run.isDecrypting:
            guard run.decrypted(bytes) else { return endExtension(run, .notDecrypted, now: now) }
            note(.decrypted, run.push.number, now: now)
        case .fetched(let type, let bytes) where !run.isDecrypting:
            let file = extensions.attachments.add(
                AttachmentStore.File(type: type, bytes: bytes), largest: settings.largestAttachment,
                room: settings.attachmentRoom)
            note(file == nil ? .attachmentRefused : .attachmentAdded, run.push.number, now: now)
            run.fetched(file)
        default:
            // A failure, and a result of the wrong kind.
            if run.isDecrypting { return endExtension(run, .notDecrypted, now: now) }
            note(.attachmentRefused, run.push.number, now: now)
            run.fetched(nil)
        }
        proceed(run, found.id, isNew: false, now: now)
    }

    // MARK: - Attachments

    /// Content of an attachment; nil when it is gone.
    public func attachment(_ id: UInt64) -> (type: String, bytes: [UInt8])? {
        extensions.attachments[id].map { ($0.type, $0.bytes) }
    }

    /// Views of the attachments that are kept.
    func attachmentViews(_ ids: [UInt64]) -> [AttachmentView] {
        ids.compactMap { id in
            extensions.attachments[id].map { AttachmentView(id: id, type: $0.type, bytes: $0.bytes.count) }
        }
    }

    /// Frees the attachments of a notification that has left its list.
    mutating func releaseAttachments(of notification: DeliveredNotification) {
        if let changes = notification.changes?.value { releaseAttachments(changes.attachments) }
    }

    /// Frees attachments by their identifiers.
    mutating func releaseAttachments(_ ids: [UInt64]) {
        for id in ids { extensions.attachments.remove(id) }
    }
}
