import SluiceModel

/// Pushes that reach APNs.
extension DeviceWorld {
    /// Takes a push that has passed APNs' other checks: finds its device, and delivers, stores or drops it.
    public mutating func receive(_ push: ArrivedPush, now: Int64) -> PushAnswer {
        advance(to: now)
        let topic = TopicSuffix.split(push.topic)
        let found = tokens.find(push.token)
        // A token that ended long ago is not that of a new device.
        if found == nil, let (reason, since) = tokens.forgotten(push.token) {
            return refuse(
                push, topic, reason, reason == .expiredToken ? .tokenExpired : .tokenGone, token: nil,
                since: since,
                now: now)
        }
        guard let token = found ?? adopt(push, topic, now: now) else {
            return refuse(push, topic, .badDeviceToken, .unknownToken, token: nil, now: now)
        }
        let record = tokens[token]
        if record.environment != push.environment {
            return refuse(push, topic, .badDeviceToken, .otherEnvironment, token: token, now: now)
        }
        guard record.purpose.shares(topic.purpose), appTable.isBundle(record.app, topic.bundle) else {
            return refuse(push, topic, .deviceTokenNotForTopic, .otherTopic, token: token, now: now)
        }
        if let since = record.invalidSince {
            if record.hasLostPush, let goneAt = record.goneAt, goneAt <= now {
                return refuse(
                    push, topic, record.reason, record.reason == .expiredToken ? .tokenExpired : .tokenGone,
                    token: token, since: since, now: now)
            }
            tokens[token].hasLostPush = true
            let number = enter(push, topic, token: token, reason: .absent, fate: .accepted, now: now)
            note(.accepted, number, now: now)
            note(.lostToUninstalled, number, now: now)
            conclude(.dropped, number, device: record.device, app: record.app, now: now)
            return .accepted
        }
        // The journal, the storage and the list share one copy.
        let payload = Array(push.payload)
        let number = enter(push, topic, payload, token: token, reason: .absent, fate: .accepted, now: now)
        note(.accepted, number, now: now)
        devices[Int(record.device)]?.lastPushAt = now
        let latest = now + PushStorage.longest
        // Seconds far from now would overflow as milliseconds.
        let expires = push.expiration.map { $0 > latest / 1_000 ? latest : max($0, 0) * 1_000 } ?? latest
        deliver(
            TransitPush(
                number: number, apnsID: push.apnsID, at: now, device: record.device, app: record.app,
                token: token, tokenSerial: record.serial, purpose: record.purpose, type: push.type,
                priority: push.priority,
                collapseID: push.collapseID.map { String(decoding: $0, as: UTF8.self) }, expires: expires,
                payload: payload),
            now: now)
        return .accepted
    }

    private mutating func refuse(
        _ push: ArrivedPush, _ topic: TopicSuffix.Parts, _ reason: Reason, _ rule: DeviceRule, token: UInt32?,
        since: Int64? = nil,
        now: Int64
    ) -> PushAnswer {
        let number = enter(push, topic, token: token, reason: reason, fate: .rejected, now: now)
        note(rule, number, now: now)
        report(
            .push, device: token.map { tokens[$0].device }, app: token.map { tokens[$0].app }, push: number,
            detail: "\(reason.name)", now: now)
        return .refused(reason, since: since)
    }

    private mutating func enter(
        _ push: ArrivedPush, _ topic: TopicSuffix.Parts, _ payload: [UInt8]? = nil, token: UInt32?,
        reason: Reason, fate: Fate, now: Int64
    ) -> UInt64 {
        let app =
            token.map { tokens[$0].app } ?? appTable.find(String(decoding: topic.bundle, as: UTF8.self))
        return journal.append(
            PushRecord(
                number: 0, at: now, apnsID: push.apnsID, token: token ?? TokenTable.none,
                tokenSerial: token.map { tokens[$0].serial } ?? 0,
                device: token.map { tokens[$0].device }, app: app, purpose: topic.purpose, type: push.type,
                priority: push.priority, environment: push.environment, reason: reason, fate: fate,
                expiration: push.expiration,
                collapseID: push.collapseID.map { String(decoding: $0, as: UTF8.self) },
                payload: payload ?? Array(push.payload)))
    }

    /// Makes a device for an unknown token, as far as the settings allow it.
    private mutating func adopt(
        _ push: ArrivedPush, _ topic: TopicSuffix.Parts, now: Int64
    ) -> UInt32? {
        guard settings.unknownTokens == .adopt, hasRoom,
            let bytes = Hexadecimal.decode(push.token)
        else { return nil }
        let name = String(decoding: topic.bundle, as: UTF8.self)
        guard let app = appTable.find(name) ?? appTable.declare(AppDeclaration(bundle: name)) else {
            return nil
        }
        let device = makeDevice(name: nil, now: now)
        var installation = Installation(app: app, settings: sharedSettings)
        installation.wasLaunched = true
        installation.authorization = .authorized
        installation.environment = push.environment
        let index = tokens.add(
            TokenRecord(
                bytes: bytes, device: device, app: app, purpose: topic.purpose, environment: push.environment,
                isAdopted: true),
            text: push.token)
        installation.firstToken = index
        devices[Int(device)]?.installations.append(installation)
        report(.token, device: device, app: app, token: index, now: now)
        return index
    }

    // MARK: - From APNs to the device

    /// Delivers a push, or stores it for a device that is not reachable or rests.
    /// - Parameter resting: entries of the place that the push had in the storage; nil for a new push.
    mutating func deliver(_ push: TransitPush, resting: PushStorage.Entries? = nil, now: Int64) {
        let key = StorageKey(device: push.device, app: push.app, purpose: push.purpose.slot)
        guard let rule = obstacle(push, now: now) else {
            if push.priority == .immediate { wakeForImmediate(push.device, now: now) }
            note(.deliveredNow, push.number, now: now)
            return arrive(push, now: now)
        }
        note(rule, push.number, now: now)
        guard push.expires > now else {
            note(.notStored, push.number, now: now)
            return conclude(.dropped, push.number, device: push.device, app: push.app, now: now)
        }
        let entries = schedule(push, key, rule, resting ?? storage[key]?.entries, now: now)
        if let former = storage.store(push, at: key, rule: rule, entries: entries, now: now) {
            note(.replacedInStorage, former.push.number, now: now)
            conclude(.replaced, former.push.number, device: push.device, app: push.app, now: now)
        }
        conclude(.stored, push.number, device: push.device, app: push.app, now: now)
    }

    /// Schedules what a place of the storage needs beyond its former entries. Returns all entries.
    private mutating func schedule(
        _ push: TransitPush, _ key: StorageKey, _ rule: DeviceRule, _ former: PushStorage.Entries?, now: Int64
    ) -> PushStorage.Entries {
        var entries = former ?? PushStorage.Entries()
        if entries.expiry.map({ push.expires < $0 }) ?? true {
            entries.expiry = push.expires
            due.schedule(.stored(key), at: push.expires)
        }
        // The moment is the device's, so that a newer push has the moment of the push before.
        if rule == .storedForPower, entries.moment == nil {
            let moment = now + 1 + Int64(random.next() % UInt64(max(1, settings.goodMoment)))
            entries.moment = moment
            due.schedule(.goodMoment(key), at: moment)
        }
        return entries
    }

    /// Rule that keeps a push from its device; nil: none does.
    private func obstacle(_ push: TransitPush, now: Int64) -> DeviceRule? {
        let state = state(push.device)
        if !state.isPoweredOn { return .storedPoweredOff }
        if !state.isReachable { return .storedOffline }
        // Priority 5 and 1 spare a device that rests. The moment is assumed.
        let rests = !state.isScreenOn && !state.isCharging
        return push.priority != .immediate && rests ? .storedForPower : nil
    }

    /// Delivers what is stored for a device, oldest first.
    /// - Parameter forPower: whether only pushes that wait for a good moment are delivered.
    mutating func deliverStored(_ device: UInt32, forPower: Bool = false, now: Int64) {
        guard let found = devices[Int(device)], state(device).isReachable else { return }
        var waiting: [PushStorage.Stored] = []
        for installation in found.installations {
            for purpose in TokenPurpose.allCases {
                let key = StorageKey(device: device, app: installation.app, purpose: purpose)
                guard let stored = storage[key], !forPower || stored.rule == .storedForPower,
                    let taken = storage.take(key)
                else { continue }
                waiting.append(taken)
            }
        }
        // A push of priority 10 wakes the device for all.
        let wakes = waiting.contains { $0.push.priority == .immediate && $0.push.expires > now }
        for stored in waiting.sorted(by: { $0.order < $1.order }) {
            guard stored.push.expires > now else {
                note(.expiredInStorage, stored.push.number, now: now)
                conclude(.expired, stored.push.number, device: device, app: stored.push.app, now: now)
                continue
            }
            if !forPower, !wakes, obstacle(stored.push, now: now) != nil {
                deliver(stored.push, resting: stored.entries, now: now)
                continue
            }
            note(.deliveredFromStorage, stored.push.number, now: now)
            arrive(stored.push, now: now)
        }
    }

    /// A push of priority 10 wakes a resting device, so that what waits for a good moment arrives too.
    private mutating func wakeForImmediate(_ device: UInt32, now: Int64) {
        guard storage.count > 0, !state(device).isScreenOn else { return }
        deliverStored(device, forPower: true, now: now)
    }

    /// Drops a push whose time is over. A newer push with a later end has its own look at that end.
    mutating func expireStored(_ key: StorageKey, now: Int64) {
        guard let stored = storage[key], stored.entries.expiry == now else { return }
        let push = stored.push
        guard push.expires <= now else {
            storage.schedule(key) { $0.expiry = push.expires }
            return due.schedule(.stored(key), at: push.expires)
        }
        _ = storage.take(key)
        let isOld = now >= push.at + PushStorage.longest
        note(isOld ? .storedTooLong : .expiredInStorage, push.number, now: now)
        conclude(.expired, push.number, device: key.device, app: key.app, now: now)
    }

    mutating func goodMoment(_ key: StorageKey, now: Int64) {
        guard let stored = storage[key], stored.entries.moment == now else { return }
        guard stored.rule == .storedForPower, state(key.device).isReachable else {
            return storage.schedule(key) { $0.moment = nil }
        }
        _ = storage.take(key)
        note(.deliveredFromStorage, stored.push.number, now: now)
        arrive(stored.push, now: now)
    }

    /// Hands a push to its lane on the device.
    private mutating func arrive(_ push: TransitPush, now: Int64) {
        // No copy of the app stays alive, because a change of its list would copy the whole list then.
        guard let wasLaunched = look(push.device, push.app, { $0.wasLaunched }) else {
            note(.notInstalled, push.number, now: now)
            return conclude(.dropped, push.number, device: push.device, app: push.app, now: now)
        }
        guard wasLaunched else {
            note(.neverLaunched, push.number, now: now)
            return conclude(.dropped, push.number, device: push.device, app: push.app, now: now)
        }
        switch push.purpose {
        case .alert:
            push.type == .background ? arriveSilent(push, now: now) : arriveAlert(push, now: now)
        case .activity, .activityStart: arriveActivity(push, now: now)
        case .voip: arriveCall(push, now: now)
        case .widgets, .controls:
            note(.reloaded, push.number, now: now)
            conclude(.updated, push.number, device: push.device, app: push.app, now: now)
        case .location, .complication, .fileprovider, .pushtotalk:
            note(.handedToApp, push.number, now: now)
            conclude(.woken, push.number, device: push.device, app: push.app, now: now)
        }
    }
}

extension TokenPurpose {
    /// Purpose that names the place in APNs' storage: the places are separate for each topic (assumed).
    var slot: TokenPurpose { self == .activity ? .activityStart : self }
}
