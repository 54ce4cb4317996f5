import SluiceModel

/// End of an attempt that APNs hasn't accepted.
public enum AttemptEnd: Sendable {
    /// APNs answered with another status.
    case answered(AttemptAnswer)
    /// The request ended without an answer. `processed`: APNs may have the push.
    case unanswered(processed: Bool)
    /// The other side has ended the connection, and APNs may have the push.
    case connectionLost
    /// A GOAWAY that blames the topic has ended the request.
    case topicRefused
    /// The connection had no room.
    case notSent
    /// The push can't be sent on any connection.
    case unsendable
}

/// Attempts of pushes, and what holds them back.
extension ShardMachine {
    /// Prefetches the push in this slot, which will soon have its turn or its answer. Affects timing only.
    @inline(__always)
    public mutating func prefetch(_ slot: UInt32) { delivery.prefetch(slot) }

    // MARK: Attempts

    /// Stops the topic of a push that has its turn, because APNs has refused all keys of its pool.
    /// ``beginAttempt(_:at:)`` follows.
    /// - Parameter probeAt: time of the next probe of the keys, in nanoseconds of the monotonic clock.
    public mutating func keysRefused(_ slot: UInt32, probeAt: UInt64, at now: DeliveryTime) {
        delivery.keysRefused(slot, probeAt: probeAt, at: now)
    }

    /// Begins the attempt of a push that has its turn. Returns false when the push isn't sent now.
    public mutating func beginAttempt(_ slot: UInt32, at now: DeliveryTime) -> Bool {
        delivery.beginAttempt(slot, at: now)
    }

    /// Ends the attempt of a push, because APNs answered 2xx.
    public mutating func accepted(_ slot: UInt32, at now: DeliveryTime) { delivery.accepted(slot, at: now) }

    /// Ends the attempt of a push in another way.
    public mutating func attemptEnded(_ slot: UInt32, _ end: AttemptEnd, at now: DeliveryTime) {
        switch end {
        case .answered(let answer): delivery.answered(slot, answer, at: now)
        case .unanswered(let processed): delivery.failed(slot, processed: processed, at: now)
        case .connectionLost: delivery.failed(slot, processed: true, isLoss: true, at: now)
        case .topicRefused: delivery.topicRefused(slot, at: now)
        case .notSent: delivery.notSent(slot, at: now)
        case .unsendable: delivery.giveUp(slot, .undeliverable, .notSupported, at: now)
        }
    }

    /// Names the tenant of a topic: an app on a pool. To be called before the topic's first push.
    /// - Parameter isLimited: true when the tenant has a pace or a maximum in flight of its own.
    public mutating func setTenant(_ number: UInt32, ofTopic topic: UInt16, weight: Int, isLimited: Bool) {
        delivery.setTenant(number, ofTopic: topic, weight: weight, isLimited: isLimited)
    }

    /// Returns true when a push is sent on a connection for isolated pushes.
    public func isIsolated(_ slot: UInt32) -> Bool { delivery.isIsolated(slot) }

    /// Returns how many more isolated pushes of a pool may begin.
    public func isolationRoom(_ pool: UInt16) -> Int { delivery.isolationRoom(pool) }

    /// Pushes begun since the machine's creation, without those that were not sent after all.
    public var begunPushes: Int { delivery.milestones.sent }
    /// Pushes begun that are not in flight any more.
    public var endedPushes: Int { delivery.milestones.sent - delivery.milestones[.inFlight] }

    /// Returns the owner's number of the push's topic.
    public func topic(_ slot: UInt32) -> UInt16 { delivery.info(slot).topic }

    /// Holds a device as an answer 429 with `Retry-After` does.
    package mutating func pause(_ device: DeviceKey, retryAfterMilliseconds: Int64, at now: DeliveryTime) {
        _ = delivery.pause(device, retryAfterMilliseconds: retryAfterMilliseconds, at: now)
    }

    // MARK: Pools

    /// Returns the pushes of a pool that may leave now.
    /// - Parameter restsUntil: moment until which the pool's key rests, in nanoseconds of the monotonic clock; nil when it
    ///   doesn't rest.
    public mutating func poolGate(_ pool: UInt16, restsUntil: UInt64?, at now: DeliveryTime) -> PoolGate {
        if let restsUntil { delivery.rest(pool, until: restsUntil, at: now) } else { delivery.endRest(pool) }
        return delivery.poolGate(pool, at: now)
    }

    /// Records that the single push was sent that a held pool lets pass. Returns the pushes that may leave from now on.
    public mutating func probed(_ pool: UInt16, at now: DeliveryTime) -> PoolGate {
        delivery.probed(pool, at: now)
        return delivery.poolGate(pool, at: now)
    }

    /// Suspends pools that have had no connection for a while, and resumes the others. Their pushes wait in the store
    /// meanwhile.
    /// - Returns: true when actions follow.
    public mutating func watchPools(at now: DeliveryTime, isConnected: (Int) -> Bool) -> Bool {
        guard hasStore, !hasEnded, poolWatch.isDue(at: now.monotonicNanoseconds) else { return false }
        var watch = poolWatch
        let changes = watch.look(
            at: now.monotonicNanoseconds, hasConnection: isConnected,
            isSuspended: { delivery.isUnavailable(UInt16($0)) })
        poolWatch = watch
        for (index, change) in changes {
            let pool = UInt16(index)
            switch change {
            case .suspend:
                followers.append(.poolSuspended(pool))
                delivery.suspend(pool: pool, at: now)
            case .resume(let isConnected):
                followers.append(.poolResumed(pool, isConnected: isConnected))
                delivery.resume(pool: pool, at: now)
            }
        }
        return !changes.isEmpty
    }

    // MARK: Topics

    /// Takes an operator's pauses: of all sending, and of the topics with these numbers. Pushes in flight end as usual.
    public mutating func setPauses(all: Bool, topics: Set<UInt16>, at now: DeliveryTime) {
        isAllPaused = all
        let before = delivery.pausedTopics
        delivery.pause(topics: topics.subtracting(before).sorted(), at: now)
        delivery.resume(topics: before.filter { !topics.contains($0) }, at: now)
    }

    /// Returns true while the topic's stored pushes wait with it: its circuit is open, an operator has paused it, or its
    /// pool is suspended.
    public func isSuspended(topic: UInt16) -> Bool { delivery.hasSuspended(topic: topic) }

    // MARK: Time

    /// Milliseconds between two looks for records that a catch-up awaits.
    private static let catchUpInterval: Int64 = 10

    /// Does all work that is due.
    public mutating func advance(to now: DeliveryTime) {
        if !catchUpEnds.isEmpty { endCatchUps(at: now) }
        let restored = settings.residency.restored
        if hasStore, residency.restoredItems > restored - restored / 4 {
            delivery.makeRoomForRestored(at: now)
        }
        delivery.advance(to: now)
    }

    /// Returns when to call ``advance(to:)``, in nanoseconds of the monotonic clock; nil when an event has to come
    /// first.
    public func nextWake(after now: DeliveryTime) -> UInt64? {
        if hasEnded { return nil }
        var next = delivery.nextWake(after: now) ?? .max
        if !catchUpEnds.isEmpty { next = min(next, now.monotonic(inMilliseconds: Self.catchUpInterval)) }
        if retryLoadsAt > now.monotonicNanoseconds { next = min(next, retryLoadsAt) }
        return next == .max ? nil : next
    }
}
