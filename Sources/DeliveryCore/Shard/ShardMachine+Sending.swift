import SluiceModel

/// Attempts of pushes, and their answers.
extension ShardMachine {
    /// Prefetches the push in this slot, which will soon have its turn or its answer. Affects timing only.
    @inline(__always)
    public mutating func prefetch(_ slot: UInt32) { delivery.prefetch(slot) }

    /// Begins the attempt of a push that has its turn. Returns false when the push isn't sent now.
    public mutating func beginAttempt(_ slot: UInt32, at now: DeliveryTime) -> Bool {
        delivery.beginAttempt(slot, at: now)
    }

    /// Pushes begun since the machine's creation, without those that were not sent after all.
    public var begunPushes: Int { delivery.milestones.sent }
    /// Pushes begun that are not in flight any more.
    public var endedPushes: Int { delivery.milestones.sent - delivery.milestones[.inFlight] }

    /// Returns a begun push to its queue, because its connection had no room.
    public mutating func notSent(_ slot: UInt32, at now: DeliveryTime) { delivery.notSent(slot, at: now) }

    /// Ends a push in flight that can't be sent.
    public mutating func giveUp(
        _ slot: UInt32, _ kind: OutcomeKind, _ cause: OutcomeCause?, at now: DeliveryTime
    ) {
        delivery.giveUp(slot, kind, cause, at: now)
    }

    /// Returns the pushes of a pool that may leave now.
    public func poolGate(_ pool: UInt16, at now: DeliveryTime) -> PoolGate {
        delivery.poolGate(pool, at: now)
    }

    /// Records that the single push was sent that a held pool lets pass.
    public mutating func probed(_ pool: UInt16, at now: DeliveryTime) { delivery.probed(pool, at: now) }

    /// Lets a pool rest until a moment, in nanoseconds of the monotonic clock.
    public mutating func rest(_ pool: UInt16, until: UInt64, at now: DeliveryTime) {
        delivery.rest(pool, until: until, at: now)
    }

    /// Records that APNs answered 2xx.
    public mutating func accepted(_ slot: UInt32, at now: DeliveryTime) { delivery.accepted(slot, at: now) }

    /// Records that APNs answered with another status.
    public mutating func answered(_ slot: UInt32, _ answer: AttemptAnswer, at now: DeliveryTime) {
        delivery.answered(slot, answer, at: now)
    }

    /// Records that a request ended without an answer. `processed` is true when APNs may have the push.
    public mutating func failed(_ slot: UInt32, processed: Bool, at now: DeliveryTime) {
        delivery.failed(slot, processed: processed, at: now)
    }

    /// Records that a GOAWAY that blames the topic has ended the request.
    public mutating func topicRefused(_ slot: UInt32, at now: DeliveryTime) {
        delivery.topicRefused(slot, at: now)
    }

    /// Holds a device as an answer 429 with `Retry-After` does.
    package mutating func pause(_ device: DeviceKey, retryAfterMilliseconds: Int64, at now: DeliveryTime) {
        _ = delivery.pause(device, retryAfterMilliseconds: retryAfterMilliseconds, at: now)
    }

    /// Returns the owner's number of the push's topic.
    public func topic(_ slot: UInt32) -> UInt16 { delivery.info(slot).topic }

    /// Topics that APNs' answers have stopped.
    public var stoppedTopics: Int { delivery.stoppedTopics }
    /// Returns true while the topic's stored pushes wait with it: its circuit is open, an operator has paused it, or its
    /// pool is suspended.
    public func isSuspended(topic: UInt16) -> Bool { delivery.hasSuspended(topic: topic) }

    // MARK: Pauses

    /// Pauses topics, by the owner's numbers, because an operator has paused them.
    public mutating func pause(topics: [UInt16], at now: DeliveryTime) {
        delivery.pause(topics: topics, at: now)
    }

    /// Resumes topics that an operator had paused.
    public mutating func resume(topics: [UInt16], at now: DeliveryTime) {
        delivery.resume(topics: topics, at: now)
    }

    /// Returns whether an operator has paused the topic.
    public func isPaused(topic: UInt16) -> Bool { delivery.isPaused(topic: topic) }

    /// Topics that an operator has paused.
    public var pausedTopics: Int { delivery.pausedTopics }

    // MARK: Pools

    /// Returns true while the pool is suspended: it can send nothing.
    public func isUnavailable(_ pool: UInt16) -> Bool { delivery.isUnavailable(pool) }

    /// Suspends a pool that has been without a connection for a while, when other pools have one.
    public mutating func suspend(pool: UInt16, at now: DeliveryTime) { delivery.suspend(pool: pool, at: now) }

    /// Resumes a pool that has a connection again, or when no pool has one.
    public mutating func resume(pool: UInt16, at now: DeliveryTime) { delivery.resume(pool: pool, at: now) }

    // MARK: Time

    /// Milliseconds between two looks for records that a catch-up awaits.
    private static let catchUpInterval: Int64 = 10

    /// Does all work that is due.
    public mutating func advance(to now: DeliveryTime) {
        if !catchUpEnds.isEmpty { endCatchUps(at: now) }
        delivery.advance(to: now)
    }

    /// Returns when to call ``advance(to:)``, in nanoseconds of the monotonic clock; nil when an event has to come
    /// first.
    public func nextWake(after now: DeliveryTime) -> UInt64? {
        if hasEnded { return nil }
        guard !catchUpEnds.isEmpty else { return delivery.nextWake(after: now) }
        let look = now.monotonic(inMilliseconds: Self.catchUpInterval)
        return min(delivery.nextWake(after: now) ?? look, look)
    }
}
