import SluiceModel

extension DeliveryMachine {
    /// Records that APNs answered 2xx.
    public mutating func accepted(_ slot: UInt32, at now: DeliveryTime) {
        let item = items + Int(slot)
        if deviceBackoff.count > 0 {
            deviceBackoff.accepted(device: devices.entries[Int(item.pointee.device)].key.low)
        }
        let topic = item.pointee.topic
        circuits[Int(topic)].accepted = now.monotonicNanoseconds
        circuits[Int(topic)].answered &+= 1
        if pausedPools > 0 { endPause(item.pointee.pool) }
        let recovers = openCircuits > 0 && (circuits[Int(topic)].fault == .refusal || isProbe(slot))
        let device = leaveStream(slot, .right)
        if item.pointee.losses > 0 { endIsolation(slot) }
        if item.pointee.delivery == .confirm {
            acceptedUnconfirmed(slot, at: now)
        } else {
            finish(slot, .accepted, at: now)
        }
        if recovers { circuitRecovered(topic: topic, at: now) }
        releaseDeviceLimited(device, at: now)
    }

    private func isProbe(_ slot: UInt32) -> Bool { circuits[Int(items[Int(slot)].topic)].probe == slot }

    private mutating func acceptedUnconfirmed(_ slot: UInt32, at now: DeliveryTime) {
        let item = items + Int(slot)
        if item.pointee.flags.contains(.receiptSeen) { return finish(slot, .confirmed, at: now) }
        // A cancel prevents further attempts, so a receipt has nothing left to decide.
        if item.pointee.flags.contains(.withdrawn) { return finish(slot, .accepted, at: now) }
        // Comes first because the peer can be the same record again, or an older one: the partition may be assigned
        // again already.
        if isEnding(item.pointee.partition) { return drop(slot, at: now) }
        if item.pointee.peer != Self.noSlot {
            return finish(slot, .superseded, successor: item.pointee.peer, at: now)
        }
        item.pointee.failures = 0
        item.pointee.refusals = 0
        // APNs accepted the push for a token that no device has any more; it is sent to the new token.
        if item.pointee.flags.contains(.moves) { return dispatch(slot, at: now, atFront: true) }
        awaitReceipt(slot, at: now)
    }

    /// Records that APNs answered with another status.
    public mutating func answered(_ slot: UInt32, _ answer: AttemptAnswer, at now: DeliveryTime) {
        let item = items + Int(slot)
        item.pointee.refusals = 0
        let topic = item.pointee.topic
        circuits[Int(topic)].answered &+= 1
        let isProbe = openCircuits > 0 && isProbe(slot)
        let isSuspect = answer.reason.suspectsConfigurationInBursts
        let endsToken = answer.reason == .unregistered || answer.reason == .expiredToken
        let device = leaveStream(slot, isSuspect ? .wrong : .right)
        if item.pointee.losses > 0 { endIsolation(slot) }
        let isBurst = isSuspect && circuits[Int(topic)].holdsWrongTokens
        if item.pointee.isOrdered, answer.class == .configuration {
            // Broadcasts don't wait for a person, because the store can't keep them, and waiting holds their partition.
            if isProbe { circuitFailed(slot, .refusal, at: now) }
            countFailure(slot)
            // The refusal of a key may be mistaken, and another key may take over.
            let mayPass = answer.reason.refusesKey && item.pointee.failures <= Self.refusalsOfBroadcast
            retry(slot, .answered(mayPass ? .later : .job), at: now)
        } else if answer.class == .configuration || isBurst {
            // The topic's pushes stop, including this push, which doesn't count as a failed attempt.
            circuitFailed(slot, isBurst ? .tokens : .refusal, at: now)
            if !isBurst, answer.reason.isFinal {
                retry(slot, .answered(.job), at: now)
            } else if item.pointee.flags.contains(.isOnce) {
                retry(slot, .answered(.configuration), at: now)
            } else {
                retryOrEnd(slot, inMilliseconds: 0, at: now)
            }
        } else {
            let recovers = openCircuits > 0 && circuits[Int(topic)].recovers(after: answer, isProbe: isProbe)
            if isProbe, !recovers { probeFailed(slot, at: now) }
            let wait = patience(answer, slot, device, at: now)
            if endsToken {
                // Comes first so that the items blocked behind this item end with the others.
                endPending(of: device, since: answer.invalidSinceMilliseconds, at: now)
            }
            if endsToken, item.pointee.flags.contains(.moves), !item.pointee.flags.contains(.isOnce) {
                // The device's new token was reported meanwhile: the item is sent to the new token.
                retryOrEnd(slot, inMilliseconds: 0, at: now)
            } else {
                countFailure(slot)
                retry(
                    slot, .answered(answer.class), retryAfterMilliseconds: wait, mustWait: answer.mustWait,
                    at: now)
            }
            if recovers { circuitRecovered(topic: topic, at: now) }
        }
        releaseDeviceLimited(device, at: now)
    }

    /// Refused keys after which a broadcast ends.
    private static let refusalsOfBroadcast = 3

    /// Waits before the next probe of an overloaded topic, because this one shows no recovery.
    private mutating func probeFailed(_ slot: UInt32, at now: DeliveryTime) {
        guard circuits[Int(items[Int(slot)].topic)].fault == .overload else { return }
        circuitFailed(slot, .overload, at: now)
    }

    /// Returns the wait that the answer asks for, in milliseconds. A wait for a device or a whole pool is recorded
    /// there.
    private mutating func patience(
        _ answer: AttemptAnswer, _ slot: UInt32, _ device: UInt32, at now: DeliveryTime
    ) -> Int64 {
        let retryAfter = max(0, answer.retryAfterMilliseconds)
        if answer.reason == .tooManyRequests {
            let key = devices.entries[Int(device)].key
            let until = pause(key, retryAfterMilliseconds: retryAfter, at: now)
            return Int64((until - now.monotonicNanoseconds) / 1_000_000) + 1
        }
        if answer.reason == .serviceUnavailable, retryAfter > 0 {
            let item = items[Int(slot)]
            let wait = min(retryAfter, limits.retry.retryAfterLimitMilliseconds)
            if isOverloadedAlone(item.topic, at: now) {
                overloaded(slot, milliseconds: wait, at: now)
            } else {
                pause(item.pool, milliseconds: wait, isUrgent: item.priority == .immediate, at: now)
            }
            // The pool's pause may end early. A push that expires before the end has an attempt in between.
            let left = lastMoment(slot) - now.wallMilliseconds
            return min(wait, max(1, left / 2))
        }
        return retryAfter
    }

    private func countFailure(_ slot: UInt32) {
        items[Int(slot)].failures = min(items[Int(slot)].failures, .max - 1) + 1
    }

    /// Records that APNs asks for a pause for one device token (429). All other pushes to the token wait as well.
    /// Returns the end of the pause, in nanoseconds of the monotonic clock.
    @discardableResult
    public mutating func pause(
        _ device: DeviceKey, retryAfterMilliseconds: Int64, at now: DeliveryTime
    ) -> UInt64 {
        deviceBackoff.refused(
            device: device.low, now: now.monotonicNanoseconds,
            retryAfter: UInt64(max(0, min(retryAfterMilliseconds, 1 << 40))) * 1_000_000, using: &generator)
    }

    /// Records that the request ended without an answer. `processed` is false when APNs can't have processed it: the
    /// stream was refused, or lies above GOAWAY's last stream (RFC 9113 §6.8, §8.7).
    /// - Parameter isLoss: the other side has ended the connection, and the request may be the cause.
    public mutating func failed(
        _ slot: UInt32, processed: Bool, isLoss: Bool = false, at now: DeliveryTime
    ) {
        let item = items + Int(slot)
        if openCircuits > 0, isProbe(slot) { probeFailed(slot, at: now) }
        let wasAlone = isLoss && isAloneOnConnection(slot)
        // An answer may be lost more often for good tokens.
        let device = leaveStream(slot, processed ? .right : .unknown)
        if isLoss, noteLoss(slot, wasAlone: wasAlone), !endsOtherwise(slot) {
            finish(slot, .undeliverable, .endsConnections, at: now)
        } else if processed {
            countFailure(slot)
            retry(slot, .unknownOutcome(item.pointee.duplicates), at: now)
        } else {
            item.pointee.attempts -= 1
            item.pointee.refusals += 1
            retry(slot, .notProcessed, at: now)
        }
        releaseDeviceLimited(device, at: now)
    }

    /// Records that APNs ended a connection, blamed a topic, and did not process this push of the topic. The topic
    /// stops, as after an answer that blames it. The attempt doesn't count.
    ///
    /// - Parameter slot: slot of a push in flight.
    public mutating func topicRefused(_ slot: UInt32, at now: DeliveryTime) {
        circuitFailed(slot, .refusal, at: now)
        failed(slot, processed: false, at: now)
    }

    private mutating func retry(
        _ slot: UInt32, _ failure: AttemptFailure, retryAfterMilliseconds: Int64 = 0, mustWait: Bool = false,
        at now: DeliveryTime
    ) {
        let item = items + Int(slot)
        if item.pointee.flags.contains(.receiptSeen) { return finish(slot, .confirmed, at: now) }
        var policy = limits.retry
        if mustWait { policy.attemptsAtOnce = 0 }
        let decision = policy.decide(
            failure, attempt: UInt32(item.pointee.failures), refusals: UInt32(item.pointee.refusals),
            isOnce: item.pointee.flags.contains(.isOnce),
            retryAfterMilliseconds: retryAfterMilliseconds > 0 ? retryAfterMilliseconds : nil,
            expirationMilliseconds: lastMoment(slot), nowMilliseconds: now.wallMilliseconds,
            using: &generator)
        switch decision {
        case .giveUp(let reason): finish(slot, reason.outcome, reason.cause, at: now)
        case .now: retryOrEnd(slot, inMilliseconds: 0, at: now)
        case .after(let milliseconds):
            // The store doesn't know that the push is isolated.
            let most = item.pointee.isIsolated ? limits.storeAfterMilliseconds : .max
            retryOrEnd(slot, inMilliseconds: min(milliseconds, most), at: now)
        }
    }

    /// Returns true when an item isn't retried whatever its attempt's failure, as ``retryOrEnd(_:inMilliseconds:isRetry:at:)``
    /// decides.
    private func endsOtherwise(_ slot: UInt32) -> Bool {
        let item = items[Int(slot)]
        return !item.flags.isDisjoint(with: [.receiptSeen, .withdrawn]) || item.peer != Self.noSlot
            || isEnding(item.partition)
    }

    /// Retries an item after a failed attempt, unless a newer push or a cancel has come meanwhile.
    mutating func retryOrEnd(
        _ slot: UInt32, inMilliseconds wait: Int64, isRetry: Bool = true, at now: DeliveryTime
    ) {
        let item = items + Int(slot)
        let notBefore = now.monotonic(inMilliseconds: wait)
        if item.pointee.flags.contains(.receiptSeen) { return finish(slot, .confirmed, at: now) }
        if isEnding(item.pointee.partition) { return drop(slot, at: now) }
        if item.pointee.peer != Self.noSlot {
            // The newer push mustn't be sent earlier than the server asked.
            let successor = item.pointee.peer
            if items[Int(successor)].notBefore < notBefore {
                items[Int(successor)].notBefore = notBefore
                items[Int(successor)].flags.insert(.changed)
            }
            return finish(slot, .superseded, successor: successor, at: now)
        }
        if item.pointee.flags.contains(.withdrawn) { return finish(slot, .cancelled, at: now) }
        item.pointee.notBefore = notBefore
        if isRetry { milestones.retried += 1 }
        dispatch(slot, at: now, atFront: true)
    }

    /// Ends items in flight that must not be sent twice, because the worker ends and their answers won't be received.
    /// Kafka would deliver their records again. O(slots).
    public mutating func giveUpUnanswered(at now: DeliveryTime) {
        for slot in 0..<UInt32(highWater)
        where items[Int(slot)].state == .inFlight
            && !items[Int(slot)].flags.isDisjoint(with: [.isOnce, .avoidsDuplicates])
        {
            giveUp(slot, .undeliverable, .answerLost, at: now)
        }
    }

    /// Ends an item in flight at once, whatever answer may come: it can't be sent at all, or the owner ends.
    public mutating func giveUp(
        _ slot: UInt32, _ kind: OutcomeKind, _ cause: OutcomeCause?, at now: DeliveryTime
    ) {
        let device = leaveStream(slot)
        finish(slot, kind, cause, at: now)
        releaseDeviceLimited(device, at: now)
    }
}
