/// Delivered lists and the surfaces that show their entries.
extension DeviceWorld {
    /// Puts a notification on top of an app's list, and on the screen.
    mutating func enlist(
        _ entry: DeliveredNotification, app: UInt16, on device: UInt32,
        style: NotificationSettings.AlertStyle,
        now: Int64
    ) {
        let (limit, seed) = (settings.maximumDelivered, settings.seed)
        guard
            let (replaced, dropped) = with(device, app, { $0.centre.insert(entry, limit: limit, seed: seed) })
        else { return }
        arrivals.append(ArrivalOrder.Entry(at: entry.at, device: device, app: app))
        if let replaced {
            note(.replacedInPlace, entry.push, now: now)
            conclude(.replaced, replaced.push, device: device, app: app, now: now)
            clearBanner(of: replaced, app: app, on: device)
            releaseAttachments(of: replaced)
        }
        report(
            .notification, device: device, app: app, push: entry.push == 0 ? nil : entry.push,
            identifier: entry.identifier, detail: replaced == nil ? "shown" : "replaced", now: now)
        if let dropped {
            retire([dropped], app: app, on: device, .droppedFromList, .removed, now: now)
        }
        if entry.surfaces.contains(.banner) {
            showBanner(of: entry, app: app, on: device, stays: style == .alert, now: now)
        }
        if entry.surfaces.contains(.summary) { scheduleSummary(device, now: now) }
    }

    /// Follows up the removal of entries from a list.
    mutating func retire(
        _ entries: [DeliveredNotification], app: UInt16, on device: UInt32, _ rule: DeviceRule, _ fate: Fate,
        now: Int64
    ) {
        for entry in entries {
            note(rule, entry.push, now: now)
            conclude(fate, entry.push, device: device, app: app, now: now)
            clearBanner(of: entry, app: app, on: device)
            releaseAttachments(of: entry)
            report(
                .notification, device: device, app: app, push: entry.push == 0 ? nil : entry.push,
                identifier: entry.identifier, detail: "removed", now: now)
        }
    }

    /// Removes entries from an app's list.
    mutating func remove(
        _ app: UInt16, on device: UInt32, _ rule: DeviceRule, _ fate: Fate, now: Int64,
        where isRemoved: (DeliveredNotification) -> Bool
    ) {
        guard let removed = with(device, app, { $0.centre.remove(where: isRemoved) }) else { return }
        retire(removed, app: app, on: device, rule, fate, now: now)
    }

    // MARK: - Banner

    private mutating func showBanner(
        of entry: DeliveredNotification, app: UInt16, on device: UInt32, stays: Bool, now: Int64
    ) {
        let former = devices[Int(device)]?.banner
        devices[Int(device)]?.banner = Device.Surface(
            app: app, identifier: entry.identifier, push: entry.push,
            until: stays ? nil : now + settings.bannerTime)
        if let former { dropHidden(former.app, on: device, now: now) }
        // Without the list the notification ends with its banner.
        if !stays, entry.surfaces.isDisjoint(with: .lasting) {
            due.schedule(.banner(device: device), at: now + settings.bannerTime)
        }
    }

    /// Ends a banner whose time is over.
    mutating func bannerIsDue(_ device: UInt32, now: Int64) {
        guard let banner = devices[Int(device)]?.banner, let until = banner.until, until <= now else {
            return
        }
        closeBanner(device, now: now)
    }

    /// Ends the banner of a device.
    mutating func closeBanner(_ device: UInt32, now: Int64) {
        guard let found = devices[Int(device)] else { return }
        devices[Int(device)]!.banner = nil
        for installation in found.installations { dropHidden(installation.app, on: device, now: now) }
    }

    private mutating func clearBanner(of entry: DeliveredNotification, app: UInt16, on device: UInt32) {
        guard let banner = devices[Int(device)]?.banner, banner.shows(entry, of: app) else { return }
        devices[Int(device)]!.banner = nil
    }

    /// Removes entries that no surface shows any more.
    private mutating func dropHidden(_ app: UInt16, on device: UInt32, now: Int64) {
        // Rare, so that an ordinary push visits no entry.
        guard look(device, app, { $0.centre.hasFleetingEntry }) == true else { return }
        let banner = devices[Int(device)]?.banner
        remove(app, on: device, .noList, .removed, now: now) { entry in
            entry.surfaces.isDisjoint(with: .lasting) && !(banner?.shows(entry, of: app) ?? false)
        }
    }

    // MARK: - Changes of the device and of settings

    /// Reacts to a change of switches.
    mutating func stateChanged(_ device: UInt32, from: DeviceState, to: DeviceState, now: Int64) {
        if !to.isPoweredOn || to.isLocked && !from.isLocked { closeBanner(device, now: now) }
        if from.isLocked, !to.isLocked { leaveLockScreen(device, now: now) }
        if to.timeZoneMinutes != from.timeZoneMinutes || to.summaryTimes != from.summaryTimes {
            localTimeChanged(device, now: now)
        }
        if to.isPoweredOn, !from.isPoweredOn {
            fireOverdue(device, now: now)
            resumeSummary(device, now: now)
            releaseHeld(device, now: now)
        } else if from.isInLowPowerMode, !to.isInLowPowerMode {
            releaseHeld(device, now: now)
        }
    }

    /// Moves the entries of the lock screen to the notification centre.
    private mutating func leaveLockScreen(_ device: UInt32, now: Int64) {
        for installation in devices[Int(device)]?.installations ?? [] {
            let app = installation.app
            _ = with(device, app) { installation in
                installation.centre.move { $0.remove(.lockScreen) }
            }
            dropHidden(app, on: device, now: now)
        }
    }

    mutating func settingsChanged(_ app: UInt16, on device: UInt32, now: Int64) {
        guard let installation = installation(device, app) else { return }
        if !installation.settings.value.scheduledSummary { releaseSummary(app, on: device, now: now) }
    }

    // MARK: - Scheduled summary

    /// Time of the next summary; nil: the device has none.
    func summaryTime(_ device: UInt32, after now: Int64) -> Int64? {
        let state = state(device)
        return state.summaryTimes.map {
            LocalTime.next(minute: $0, after: now, zone: state.timeZoneMinutes)
        }.min()
    }

    /// Schedules the next summary unless it is scheduled already.
    private mutating func scheduleSummary(_ device: UInt32, now: Int64) {
        guard let found = devices[Int(device)], found.summaryAt <= now,
            let time = summaryTime(device, after: now)
        else { return }
        devices[Int(device)]!.summaryAt = time
        due.schedule(.summary(device: device), at: time)
    }

    /// Schedules the next summary of a device that is back, if an entry waits for it.
    mutating func resumeSummary(_ device: UInt32, now: Int64) {
        let isWaiting = devices[Int(device)]?.installations.contains { installation in
            installation.centre.delivered.contains { $0.surfaces.contains(.summary) }
        }
        if isWaiting ?? false { scheduleSummary(device, now: now) }
    }

    mutating func showSummary(device: UInt32, now: Int64) {
        guard Int(device) < devices.count, let found = devices[Int(device)], found.state.value.isPoweredOn,
            found.summaryAt == now
        else { return }
        for installation in found.installations { releaseSummary(installation.app, on: device, now: now) }
    }

    /// Moves the entries that wait for the summary to the list, and to the lock screen of a locked device.
    mutating func releaseSummary(_ app: UInt16, on device: UInt32, now: Int64) {
        guard let installation = installation(device, app) else { return }
        let waiting = installation.centre.delivered.filter { $0.surfaces.contains(.summary) }
        guard !waiting.isEmpty else { return }
        let settings = installation.settings.value
        var places: Surfaces = settings.notificationCentre ? .list : []
        if state(device).isLocked, settings.lockScreen, settings.alerts { places.insert(.lockScreen) }
        _ = with(device, app) { installation in
            installation.centre.move { surfaces in
                guard surfaces.contains(.summary) else { return }
                surfaces.remove(.summary)
                surfaces.formUnion(places)
            }
        }
        for entry in waiting where !places.isEmpty {
            note(.shownInSummary, entry.push, now: now)
            conclude(.shown, entry.push, device: device, app: app, now: now)
            report(
                .notification, device: device, app: app, push: entry.push == 0 ? nil : entry.push,
                identifier: entry.identifier, detail: "shown", now: now)
        }
        dropHidden(app, on: device, now: now)
    }
}

extension Device.Surface {
    /// Whether the surface shows an entry of an app's list.
    func shows(_ entry: DeliveredNotification, of app: UInt16) -> Bool {
        self.app == app && push == entry.push && identifier == entry.identifier
    }
}
