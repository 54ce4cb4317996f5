import SluiceModel

/// Devices and the apps on them.
extension DeviceWorld {
    public var apps: [AppDeclaration] { appTable.declarations }

    /// Adds an app, or replaces its declaration on all devices.
    public mutating func declare(_ app: AppDeclaration, now: Int64) throws(DeviceFault) {
        guard !app.bundle.isEmpty, app.bundle.utf8.count <= 200 else {
            throw DeviceFault(.invalid, "bundle: 1 to 200 bytes, not \(app.bundle.utf8.count)")
        }
        guard let index = appTable.declare(app) else {
            throw DeviceFault(
                .limit, "there are \(AppTable.limit) apps already; reset the simulator to begin anew")
        }
        report(.app, device: nil, app: index, now: now)
    }

    /// Adds a device. Its apps are installed and launched once.
    /// - Parameter apps: bundle identifiers; nil: all declared apps.
    public mutating func addDevice(
        name: String? = nil, apps: [String]? = nil, now: Int64
    ) throws(DeviceFault) -> UInt32 {
        guard hasRoom else {
            throw DeviceFault(
                .limit,
                "there are \(settings.maximumDevices) devices already; remove some, or raise maximum-devices")
        }
        if let name, name.utf8.count > 100 { throw DeviceFault(.invalid, "name: at most 100 bytes") }
        var indices: [UInt16] = []
        for bundle in apps ?? self.apps.map(\.bundle) { indices.append(try app(bundle)) }
        let device = makeDevice(name: name, now: now)
        for app in indices {
            install(app, on: device, now: now)
            launch(app, on: device, inFront: false, now: now)
        }
        return device
    }

    /// Removes a device. Its tokens end as at an uninstallation.
    public mutating func removeDevice(_ id: UInt32, now: Int64) throws(DeviceFault) {
        let found = try device(id)
        for installation in found.installations { uninstall(installation.app, on: id, now: now) }
        reportEnds(id, now: now)
        tokens.forgetGenerations(of: id)
        counts.all -= 1
        counts.blocks.remove(id)
        if found.state.value.isReachable { counts.online -= 1 }
        devices[Int(id)] = nil
        report(.device, device: id, detail: "removed", now: now)
    }

    /// Whether another device is possible. Numbers of removed devices are not used again.
    var hasRoom: Bool { counts.all < settings.maximumDevices && devices.count < 4 * settings.maximumDevices }

    /// Index of an app.
    func app(_ bundle: String?) throws(DeviceFault) -> UInt16 {
        guard let bundle else { throw DeviceFault(.invalid, "app: the bundle identifier is missing") }
        guard let index = appTable.find(bundle) else {
            throw DeviceFault(.absent, "there is no app `\(bundle)`; declare it with PUT /api/apps/\(bundle)")
        }
        return index
    }

    func device(_ id: UInt32) throws(DeviceFault) -> Device {
        guard Int(id) < devices.count, let found = devices[Int(id)] else {
            throw DeviceFault(.absent, "there is no device \(id)")
        }
        return found
    }

    mutating func makeDevice(name: String?, now: Int64) -> UInt32 {
        let id = UInt32(devices.count)
        devices.append(Device(name: name, state: sharedState))
        counts.all += 1
        counts.blocks.add(id)
        counts.online += 1
        report(.device, device: id, detail: "new", now: now)
        return id
    }

    // MARK: - Apps on a device

    mutating func install(_ app: UInt16, on device: UInt32, now: Int64) {
        guard devices[Int(device)]?.installation(app) == nil else { return }
        devices[Int(device)]?.installations.append(Installation(app: app, settings: sharedSettings))
        report(.app, device: device, app: app, detail: "installed", now: now)
    }

    mutating func uninstall(_ app: UInt16, on device: UInt32, now: Int64) {
        guard let index = devices[Int(device)]?.installation(app) else { return }
        dismissActivities(app, on: device, now: now)
        endRuns(of: app, on: device, now: now)
        endTokens(app, on: device, now: now)
        _ = takeFormer(app, on: device)
        dropStored(app, on: device, now: now)
        dropHeld(app, on: device, .notInstalled, now: now)
        remove(app, on: device, .notInstalled, .removed, now: now) { _ in true }
        devices[Int(device)]?.installations.remove(at: index)
        if devices[Int(device)]?.banner?.app == app { devices[Int(device)]?.banner = nil }
        if devices[Int(device)]?.call?.app == app { devices[Int(device)]?.call = nil }
        report(.app, device: device, app: app, detail: "uninstalled", now: now)
    }

    /// Drops what APNs stores for an app whose tokens have ended.
    private mutating func dropStored(_ app: UInt16, on device: UInt32, now: Int64) {
        for purpose in TokenPurpose.allCases {
            guard let stored = storage.take(StorageKey(device: device, app: app, purpose: purpose)) else {
                continue
            }
            note(.lostFromStorage, stored.push.number, now: now)
            conclude(.dropped, stored.push.number, device: device, app: app, now: now)
        }
    }

    /// Restores an app from a backup: its tokens change at the next registration.
    mutating func restore(_ app: UInt16, on device: UInt32, now: Int64) {
        dismissActivities(app, on: device, now: now)
        let former = endTokens(app, on: device, isReported: false, now: now)
        dropStored(app, on: device, now: now)
        guard installation(device, app)?.wasLaunched ?? false else { return }
        changeEnds(of: device) { $0.former += former }
        register(app, on: device, now: now)
    }

    /// Launches an app. The first launch registers tokens, asks for permission and schedules local notifications.
    /// - Parameter inFront: whether the app stays in front.
    mutating func launch(_ app: UInt16, on device: UInt32, inFront: Bool, now: Int64) {
        guard let installation = installation(device, app) else { return }
        if inFront, let found = devices[Int(device)] {
            for index in found.installations.indices
            where found.installations[index].state == .foreground && found.installations[index].app != app {
                devices[Int(device)]!.installations[index].state = .background
            }
        }
        _ = with(device, app) { installation in
            installation.state = inFront ? .foreground : .background
            installation.wasLaunched = true
        }
        if !installation.wasLaunched {
            register(app, on: device, now: now)
            askPermission(app, on: device, now: now)
            scheduleDeclared(app, on: device, now: now)
        } else if installation.firstToken == TokenTable.none {
            register(app, on: device, now: now)
        }
        report(.app, device: device, app: app, detail: inFront ? "foreground" : "launched", now: now)
        launched(app, on: device, inFront: inFront, now: now)
    }

    private mutating func askPermission(_ app: UInt16, on device: UInt32, now: Int64) {
        let request = appTable[app].permission
        guard request?.ask ?? .launch == .launch else { return }
        let isProvisional = request?.options?.contains("provisional") ?? false
        _ = with(device, app) { installation in
            guard installation.authorization == .notDetermined else { return }
            if isProvisional {
                installation.authorization = .provisional
                return
            }
            switch request?.answer ?? .allow {
            case .allow: installation.authorization = .authorized
            case .deny: installation.authorization = .denied
            case .wait: installation.isAsking = true
            }
        }
    }

    // MARK: - Tokens

    /// Gives an app its tokens. Registration needs the network.
    mutating func register(_ app: UInt16, on device: UInt32, now: Int64) {
        guard let installation = installation(device, app), installation.firstToken == TokenTable.none else {
            return
        }
        guard state(device).isReachable else {
            return report(
                .token, device: device, app: app, detail: "registration failed: no network", now: now)
        }
        let declaration = appTable[app]
        let former = takeFormer(app, on: device)
        var first = TokenTable.none
        for purpose in (declaration.purposes ?? [.alert]).reversed() where purpose != .activity {
            let index = tokens.make(
                TokenRecord(
                    bytes: [], device: device, app: app, purpose: purpose,
                    environment: environment(of: installation), next: first),
                bundle: declaration.bundle)
            first = index
            let earlier = former.first { tokens[$0].purpose == purpose }
            report(.token, device: device, app: app, token: index, formerToken: earlier, now: now)
        }
        _ = with(device, app) { $0.firstToken = first }
    }

    /// Ends all tokens of an app on a device. Returns them.
    @discardableResult
    mutating func endTokens(_ app: UInt16, on device: UInt32, isReported: Bool = true, now: Int64) -> [UInt32]
    {
        guard let installation = installation(device, app) else { return [] }
        var ended: [UInt32] = []
        var index = installation.firstToken
        while index != TokenTable.none {
            end(index, .unregistered, now: now)
            if isReported {
                report(.token, device: device, app: app, detail: "unregistered", token: index, now: now)
            }
            ended.append(index)
            index = tokens[index].next
        }
        _ = with(device, app) { $0.firstToken = TokenTable.none }
        return ended
    }

    /// Ends a token. 410 starts a random time after the device has reported the end, and after a lost push.
    mutating func end(_ token: UInt32, _ reason: Reason, now: Int64) {
        guard tokens[token].invalidSince == nil else { return }
        tokens[token].invalidSince = now
        tokens[token].reason = reason
        let device = tokens[token].device
        if state(device).isReachable {
            scheduleGone(token, now: now)
        } else {
            changeEnds(of: device) { $0.unreported.append(token) }
        }
        tokens.retire(token)
    }

    /// Tokens of an installation.
    func tokens(of installation: Installation) -> [UInt32] {
        var found: [UInt32] = []
        var index = installation.firstToken
        while index != TokenTable.none {
            found.append(index)
            index = tokens[index].next
        }
        return found
    }
}
