/// Acts on a device.
extension DeviceWorld {
    /// Carries out an act of the user, of an app's code or of the surroundings.
    public mutating func perform(_ action: DeviceAction, on id: UInt32, now: Int64) throws(DeviceFault) {
        advance(to: now)
        let found = try device(id)
        switch action.action {
        case .power, .network, .airplane, .lowPower, .charging, .lock, .screen, .mute, .backgroundRefresh,
            .dynamicIsland:
            guard let on = action.on else { throw DeviceFault(.invalid, "on: true or false is missing") }
            try turn(action.action, on, id, now: now)
        case .focus, .location, .language:
            try place(action, id, now: now)
        case .timeZone, .summaryTimes: try setTime(action, id, now: now)
        case .reboot:
            try change(id, restarts: true, now: now) { state in
                state.isPoweredOn = true
                state.isLocked = true
                state.wasUnlockedSinceBoot = false
            }
        case .restore:
            for installation in found.installations { restore(installation.app, on: id, now: now) }
        case .install: install(try app(action.app), on: id, now: now)
        case .uninstall: uninstall(try installed(action, id), on: id, now: now)
        case .launch:
            let app = try installed(action, id)
            try needPower(id)
            if state(id).isLocked { try turn(.lock, false, id, now: now) }
            launch(app, on: id, inFront: true, now: now)
        case .home, .forceQuit:
            let app = try installed(action, id)
            guard action.action == .forceQuit || installation(id, app)?.state == .foreground else {
                throw DeviceFault(
                    .impossible, "`\(appTable[app].bundle)` is not in front on device \(id); launch it first")
            }
            _ = with(id, app) { $0.state = action.action == .home ? .background : .forceQuit }
            if action.action == .forceQuit { dropHeld(app, on: id, .forceQuit, now: now) }
            report(.app, device: id, app: app, detail: action.action.rawValue, now: now)
        case .answer, .keep, .settings: try decide(action, id, now: now)
        case .tap, .dismiss, .act, .flick, .expand, .clearGroup, .clearAll, .removeDelivered, .removePending,
            .removeAllDelivered, .removeAllPending, .setBadge, .schedule:
            try actOnNotification(action, id, now: now)
        case .startActivity, .endActivity, .dismissActivity, .tapActivity:
            try actOnActivity(action, id, now: now)
        case .call:
            guard let call = found.call else { throw DeviceFault(.impossible, "there is no incoming call") }
            devices[Int(id)]?.call = nil
            report(
                .call, device: id, app: call.app, push: call.push,
                detail: action.on == true ? "accepted" : "declined", now: now)
        }
    }

    /// App of an action, which must be installed.
    func installed(_ action: DeviceAction, _ id: UInt32) throws(DeviceFault) -> UInt16 {
        let app = try app(action.app)
        guard installation(id, app) != nil else {
            throw DeviceFault(.absent, "`\(action.app ?? "")` is not installed on device \(id)")
        }
        return app
    }

    func needPower(_ id: UInt32) throws(DeviceFault) {
        guard state(id).isPoweredOn else {
            throw DeviceFault(.impossible, "device \(id) is switched off; switch it on first")
        }
    }

    // MARK: - Switches

    private mutating func turn(
        _ kind: DeviceAction.Kind, _ on: Bool, _ id: UInt32, now: Int64
    ) throws(DeviceFault) {
        let wasOn = state(id).isPoweredOn
        try change(id, now: now) { state in
            switch kind {
            case .power:
                state.isPoweredOn = on
                state.isScreenOn = on
                if on, !wasOn {
                    state.isLocked = true
                    state.wasUnlockedSinceBoot = false
                }
            case .network: state.hasNetwork = on
            case .airplane: state.isInAirplaneMode = on
            case .lowPower: state.isInLowPowerMode = on
            case .charging: state.isCharging = on
            case .lock:
                state.isLocked = on
                state.isScreenOn = !on
                if !on { state.wasUnlockedSinceBoot = true }
            case .screen: state.isScreenOn = on
            case .mute: state.isMuted = on
            case .dynamicIsland: state.hasDynamicIsland = on
            default: state.refreshesInBackground = on
            }
        }
    }

    private mutating func place(_ action: DeviceAction, _ id: UInt32, now: Int64) throws(DeviceFault) {
        let region = state(id).region
        try change(id, now: now) { state in
            switch action.action {
            case .focus: state.focus = action.focus
            case .location: state.region = action.text
            default: state.language = action.text ?? "en"
            }
        }
        if action.action == .location, region != action.text {
            moved(id, from: region, to: action.text, now: now)
        }
    }

    /// Changes a device's state, and lets follow what depends on it.
    /// - Parameter restarts: whether the device restarts. A device that is switched on starts in any case.
    mutating func change(
        _ id: UInt32, restarts: Bool = false, now: Int64, _ body: (inout DeviceState) -> Void
    ) throws(DeviceFault) {
        let former = try device(id).state.value
        var state = former
        body(&state)
        let restarts = restarts || state.isPoweredOn && !former.isPoweredOn
        guard state != former || restarts else { return }
        devices[Int(id)]!.state = Boxed(state)
        report(.device, device: id, detail: restarts ? "started" : nil, now: now)
        // Apps end before pushes reach the device, so that none reaches a process of before.
        if restarts { restart(id) }
        if restarts || !state.isPoweredOn { interruptRuns(on: id, now: now) }
        if state.isPoweredOn { presentInterrupted(on: id, now: now) }
        if state.isReachable != former.isReachable {
            counts.online += state.isReachable ? 1 : -1
            report(state.isReachable ? .online : .offline, device: id, now: now)
        }
        if !state.isPoweredOn {
            devices[Int(id)]!.banner = nil
            devices[Int(id)]!.call = nil
        }
        if state.isReachable {
            if !former.isReachable { becameReachable(id, now: now) }
            let rested = !former.isScreenOn && !former.isCharging
            if rested, state.isScreenOn || state.isCharging { deliverStored(id, forPower: true, now: now) }
        }
        stateChanged(id, from: former, to: state, now: now)
    }

    /// Lets follow what a device does when APNs reaches it again.
    private mutating func becameReachable(_ id: UInt32, now: Int64) {
        reportEnds(id, now: now)
        for installation in devices[Int(id)]?.installations ?? []
        where installation.wasLaunched && installation.firstToken == TokenTable.none {
            register(installation.app, on: id, now: now)
        }
        deliverStored(id, now: now)
        replayBroadcasts(id, now: now)
    }

    /// Ends the apps at a restart. Lists and badges stay (assumed).
    private mutating func restart(_ id: UInt32) {
        guard let found = devices[Int(id)] else { return }
        for index in found.installations.indices {
            devices[Int(id)]!.installations[index].state = .notRunning
        }
        devices[Int(id)]!.banner = nil
        devices[Int(id)]!.call = nil
    }

    // MARK: - Permission

    private mutating func decide(_ action: DeviceAction, _ id: UInt32, now: Int64) throws(DeviceFault) {
        let app = try installed(action, id)
        switch action.action {
        case .answer:
            guard let on = action.on else { throw DeviceFault(.invalid, "on: true or false is missing") }
            let isAsking = with(id, app) { installation -> Bool in
                guard installation.isAsking else { return false }
                installation.isAsking = false
                installation.authorization = on ? .authorized : .denied
                return true
            }
            guard isAsking == true else {
                throw DeviceFault(.impossible, "`\(appTable[app].bundle)` asks for no permission now")
            }
        case .keep:
            guard let on = action.on else { throw DeviceFault(.invalid, "on: true or false is missing") }
            let isProvisional = with(id, app) { installation -> Bool in
                guard installation.authorization == .provisional else { return false }
                installation.authorization = on ? .authorized : .denied
                return true
            }
            guard isProvisional == true else {
                throw DeviceFault(.impossible, "`\(appTable[app].bundle)` has no provisional permission")
            }
        default:
            if let settings = action.settings {
                _ = with(id, app) { $0.settings = Boxed(settings) }
                settingsChanged(app, on: id, now: now)
            }
            if let on = action.on {
                _ = with(id, app) { installation in
                    installation.authorization = on ? .authorized : .denied
                    installation.isAsking = false
                }
            }
            guard action.settings != nil || action.on != nil else {
                throw DeviceFault(
                    .invalid, "settings: the app's settings are missing; on: allows or denies notifications")
            }
        }
        report(.app, device: id, app: app, detail: action.action.rawValue, now: now)
    }
}
