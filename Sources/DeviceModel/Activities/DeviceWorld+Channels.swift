import SluiceModel

/// Broadcasts to channels.
extension DeviceWorld {
    /// Live Activities of a broadcast that have an event each; further ones are counted in one event.
    static let mostBroadcastEvents = 1_000

    /// Hands a broadcast to all Live Activities that listen to its channel on devices that are reachable.
    public mutating func broadcast(_ broadcast: ArrivedBroadcast, now: Int64) {
        advance(to: now)
        let payload = Array(broadcast.payload)
        let app = appTable.find(String(decoding: broadcast.app, as: UTF8.self))
        let number = journal.append(
            PushRecord(
                number: 0, at: now, apnsID: broadcast.apnsID, token: TokenTable.none, device: nil, app: app,
                purpose: .activityStart, type: .liveActivity, priority: broadcast.priority,
                environment: broadcast.environment, fate: .accepted, expiration: broadcast.expiration,
                payload: payload))
        note(.accepted, number, now: now)
        let message = ActivityMessage(payload)
        guard let app else {
            note(.broadcastUnheard, number, now: now)
            return conclude(.dropped, number, device: nil, app: nil, now: now)
        }
        guard let event = message.event, event != .start else {
            note(message.event == nil ? .activityIncomplete : .activityWrongEvent, number, now: now)
            return conclude(.dropped, number, device: nil, app: app, now: now)
        }
        let key = ChannelKey(
            app: app, environment: broadcast.environment,
            channel: String(decoding: broadcast.channel, as: UTF8.self))
        let seconds = min(max(broadcast.expiration, 0), Milliseconds.largest / 1_000)
        let expires = min(seconds * 1_000, now + ChannelIndex.longest)
        let isStored = broadcast.isStored && expires > now
        store(
            isStored
                ? ChannelIndex.StoredBroadcast(
                    number: number, priority: broadcast.priority, expires: expires, message: message) : nil,
            for: key, now: now)
        spread(message, key, number, priority: broadcast.priority, isStored: isStored, now: now)
    }

    private mutating func spread(
        _ message: ActivityMessage, _ key: ChannelKey, _ number: UInt64, priority: Priority, isStored: Bool,
        now: Int64
    ) {
        let listeners = channels.listeners(key)
        if listeners.isEmpty { note(.broadcastUnheard, number, now: now) }
        var reached = 0
        var missed = 0
        for (count, listener) in listeners.enumerated() {
            guard state(listener.device).isReachable else {
                missed += 1
                continue
            }
            let rule = hand(
                message, number, priority, to: listener.activity, app: key.app, device: listener.device,
                isReported: count < Self.mostBroadcastEvents, now: now)
            if let rule { note(rule, number, now: now) } else { reached += 1 }
        }
        if missed > 0 { note(isStored ? .storedOffline : .notStored, number, now: now) }
        report(
            .activity, device: nil, app: key.app, push: number,
            detail: "broadcast reached \(reached) of \(listeners.count) Live Activities", now: now)
        let fate: Fate = reached > 0 ? .updated : missed > 0 && isStored ? .stored : .dropped
        conclude(fate, number, device: nil, app: key.app, now: now)
    }

    /// Hands a broadcast to an activity. Returns the rule that refuses it; nil when it was applied.
    private mutating func hand(
        _ message: ActivityMessage, _ number: UInt64, _ priority: Priority, to activity: UInt64, app: UInt16,
        device: UInt32, isReported: Bool = true, now: Int64
    ) -> DeviceRule? {
        _ = change(activity, app, device) { $0.broadcast = number }
        return apply(
            message, to: activity, device: device, app: app, priority: priority, push: number,
            isReported: isReported, now: now)
    }

    // MARK: - Storage

    /// Stores a channel's newest broadcast, and concludes the one that leaves.
    private mutating func store(
        _ broadcast: ChannelIndex.StoredBroadcast?, for key: ChannelKey, now: Int64
    ) {
        let (former, surplus, expiryAt) = channels.store(broadcast, for: key)
        for leaving in [former, surplus] {
            if let leaving { leave(leaving, .replacedInStorage, .replaced, now: now) }
        }
        if let expiryAt { due.schedule(.broadcast(key), at: expiryAt) }
    }

    /// Concludes a broadcast that leaves the storage. A broadcast that reached an activity keeps its fate.
    private mutating func leave(
        _ broadcast: ChannelIndex.StoredBroadcast, _ rule: DeviceRule, _ fate: Fate, now: Int64
    ) {
        guard let record = journal[broadcast.number], record.fate == .stored else { return }
        note(rule, broadcast.number, now: now)
        conclude(fate, broadcast.number, device: nil, app: record.app, now: now)
    }

    /// Drops a channel's broadcast whose time is over.
    mutating func expireBroadcast(_ key: ChannelKey, now: Int64) {
        let (expired, next) = channels.expire(key, now: now)
        if let expired { leave(expired, .expiredInStorage, .expired, now: now) }
        if let next { due.schedule(.broadcast(key), at: next) }
    }

    /// Delivers the stored broadcast of each channel that the device listens to, and makes missing update tokens.
    mutating func replayBroadcasts(_ device: UInt32, now: Int64) {
        guard Int(device) < devices.count, let found = devices[Int(device)] else { return }
        for installation in found.installations {
            for activity in installation.activities?.value.activities ?? [] where activity.isRunning {
                giveToken(activity.number, app: installation.app, device: device, now: now)
                guard let channel = activity.channel else { continue }
                replay(
                    ChannelKey(app: installation.app, environment: activity.environment, channel: channel),
                    to: activity.number, app: installation.app, device: device, now: now)
            }
        }
    }

    /// Delivers a channel's stored broadcast to an activity that has not received it.
    mutating func replay(_ key: ChannelKey, to number: UInt64, app: UInt16, device: UInt32, now: Int64) {
        guard let stored = channels.stored(key, now: now), state(device).isReachable,
            let activity = installation(device, app)?.activities?.value[number],
            activity.broadcast < stored.number
        else { return }
        note(.broadcastReplayed, stored.number, now: now)
        let rule = hand(
            stored.message, stored.number, stored.priority, to: number, app: app, device: device, now: now)
        if let rule { return note(rule, stored.number, now: now) }
        conclude(.updated, stored.number, device: nil, app: app, now: now)
    }

    /// Remembers that a channel was deleted, so that no Live Activity starts with it.
    public mutating func closeChannel(
        app bundle: String, channel: String, environment: PushEnvironment, now: Int64
    ) {
        advance(to: now)
        channels.close(ClosedChannel(app: bundle, environment: environment, channel: channel))
    }
}
