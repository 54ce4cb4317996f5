import SluiceModel

/// Notifications that an app schedules on its device. They need no network and run no service extension.
extension DeviceWorld {
    /// Adds the requests of an app's declaration. Faulty requests are reported as events.
    mutating func scheduleDeclared(_ app: UInt16, on device: UInt32, now: Int64) {
        for request in appTable[app].local ?? [] { tryAdd(request, app: app, on: device, now: now) }
    }

    /// Adds a request of the app's code, whose faults only an event shows.
    mutating func tryAdd(_ request: LocalRequest, app: UInt16, on device: UInt32, now: Int64) {
        do throws(DeviceFault) {
            try add(request, app: app, on: device, now: now)
        } catch {
            report(.app, device: device, app: app, detail: "request refused: \(error)", now: now)
        }
    }

    /// Adds a request: presents it at once, or lets it wait for its trigger.
    mutating func add(
        _ request: LocalRequest, app: UInt16, on device: UInt32, now: Int64
    ) throws(DeviceFault) {
        let (identifier, payload, trigger) = try PendingRequest.check(request)
        guard let installation = installation(device, app) else { return }
        guard installation.authorization != .denied else {
            throw DeviceFault(
                .impossible, "`\(appTable[app].bundle)` may not notify; allow notifications first")
        }
        guard let trigger else {
            if with(device, app, { $0.centre.removePending(identifier) }) ?? false {
                reportRemoval(identifier, app: app, on: device, now: now)
            }
            return fire(identifier, payload, .none, app: app, on: device, now: now)
        }
        let next = trigger.next(after: now, former: nil, zone: state(device).timeZoneMinutes)
        let pending = PendingRequest(
            identifier: identifier, payload: payload, trigger: trigger,
            repeats: request.trigger?.repeats ?? false, next: next)
        guard wait(pending, app: app, on: device, now: now) else { return }
        report(.notification, device: device, app: app, identifier: identifier, detail: "pending", now: now)
    }

    /// Puts a request into the pending list. Returns whether there was room for it.
    @discardableResult
    private mutating func wait(
        _ request: PendingRequest, app: UInt16, on device: UInt32, now: Int64
    ) -> Bool {
        let dropped = with(device, app) { $0.centre.changePending { $0.add(request) } } ?? nil
        if let dropped { reportRemoval(dropped.identifier, app: app, on: device, now: now) }
        guard dropped?.identifier != request.identifier else { return false }
        if let next = request.next {
            due.schedule(.trigger(device: device, app: app, identifier: request.identifier), at: next)
        }
        return true
    }

    mutating func reportRemoval(_ identifier: String, app: UInt16, on device: UInt32, now: Int64) {
        report(
            .notification, device: device, app: app, identifier: identifier, detail: "removed", now: now)
    }

    private mutating func fire(
        _ identifier: String, _ payload: [UInt8], _ trigger: DeliveredNotification.Trigger, app: UInt16,
        on device: UInt32, now: Int64
    ) {
        let entry = DeliveredNotification(
            identifier: identifier, push: 0, apnsID: APNSID(high: 0, low: 0), at: now, trigger: trigger,
            payload: payload)
        _ = present(
            entry, AlertFacts(payload, expectations(app, device)), app: app, on: device, now: now)
        // Without an entry no other event shows that the request is gone.
        let listed = installation(device, app)?.centre.notification(identifier, seed: settings.seed)
        guard listed?.push != 0 || listed?.at != now else { return }
        report(.notification, device: device, app: app, identifier: identifier, detail: "fired", now: now)
    }

    // MARK: - Triggers

    /// Fires a trigger of time, unless the request has left or has another time meanwhile. A device that is off fires at
    /// its return (assumed).
    mutating func fireTrigger(device: UInt32, app: UInt16, identifier: String, now: Int64) {
        guard let installation = installation(device, app), state(device).isPoweredOn,
            let request = installation.centre.pending.first(where: { $0.identifier == identifier }),
            request.next == now
        else { return }
        fire(request, app: app, on: device, now: now)
    }

    private mutating func fire(_ request: PendingRequest, app: UInt16, on device: UInt32, now: Int64) {
        _ = with(device, app) { $0.centre.removePending(request.identifier) }
        if request.repeats {
            var again = request
            again.next = request.trigger.next(
                after: now, former: request.next, zone: state(device).timeZoneMinutes)
            wait(again, app: app, on: device, now: now)
        }
        fire(request.identifier, request.payload, request.trigger.kind, app: app, on: device, now: now)
    }

    /// Fires what was due while the device was off.
    mutating func fireOverdue(_ device: UInt32, now: Int64) {
        for installation in devices[Int(device)]?.installations ?? [] {
            for request in installation.centre.pending where request.next.map({ $0 <= now }) ?? false {
                fire(request, app: installation.app, on: device, now: now)
            }
        }
    }

    /// Reacts to a passed border of a region.
    mutating func moved(_ device: UInt32, from: String?, to: String?, now: Int64) {
        guard state(device).isPoweredOn else { return }
        for installation in devices[Int(device)]?.installations ?? [] {
            for request in installation.centre.pending {
                guard case .region(let region, let onEntry, let onExit) = request.trigger,
                    onEntry && region == to || onExit && region == from
                else { continue }
                fire(request, app: installation.app, on: device, now: now)
            }
        }
    }
}
