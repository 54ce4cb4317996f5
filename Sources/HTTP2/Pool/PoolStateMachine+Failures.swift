import StreamScheduling

/// Failures, the back-off that they bring, and the circuit.
extension PoolStateMachine {
    // MARK: Answers

    /// An answer came on the connection, whatever it says: it works.
    ///
    /// - Parameter isAccepted: The answer was about the request, and so neither the credential nor the connection was
    ///   refused.
    mutating func answered(_ number: UInt32, isAccepted: Bool = true) {
        let member = members[Int(number)]
        members[Int(number)].hasAnswered = true
        if isAccepted { members[Int(number)].isAccepted = true }
        switch member.phase {
        case .active, .reserve, .retiring: break
        // It takes no more requests, so what it says is of no use.
        case .free, .opening, .draining: return
        }
        // Not dead after all.
        if case .open(_, .unreachable) = circuit { setCircuit(.closed) }
        guard isAccepted, failures > 0 else { return }
        // One that has served for long tells nothing of those that fail to open beside it.
        let isNew = member.since >= lastFailure || !member.isAccepted && member.since >= lastSettingsFailure
        guard isNew else { return }
        failures = 0
        notBefore = 0
    }

    /// Answers of one read.
    ///
    /// - Parameters:
    ///   - good: Answers that speak of a server that works.
    ///   - errors: Those of a server in trouble.
    ///   - last: How many of the errors came after the last good one; nil: all.
    mutating func answers(good: Int, serverErrors errors: Int, last: Int? = nil, now: UInt64) {
        switch circuit {
        case .open: return
        case .halfOpen(let fault):
            // Answers to requests of before the circuit opened say nothing of the time since.
            if good > 0 { return closeCircuit(after: fault, now: now) }
            guard errors > 0 else { return }
        case .closed:
            guard isBeyondMeasure(good: good, errors: errors, last: last ?? errors, now: now) else { return }
        }
        serverFailures += 1
        openCircuit(.serverErrors, until: now + probePause(serverFailures))
    }

    private mutating func closeCircuit(after fault: PoolFault, now: UInt64) {
        if fault == .serverErrors { ramp = StreamRamp(begin: now) }
        setCircuit(.closed)
        maintain(now: now)
    }

    /// Notes answers; true when they are too bad to go on.
    private mutating func isBeyondMeasure(good: Int, errors: Int, last: Int, now: UInt64) -> Bool {
        if good == 0, errors == 0 { return false }
        if serverErrors == 0 { serverErrorsSince = now }
        serverErrors = good > 0 ? last : serverErrors + errors
        if good > 0 { serverErrorsSince = now }
        if ramp != nil {
            switch ramp!.note(good: good, errors: errors, now: now) {
            case .stays: break
            case .fails: return true
            case .ends: endRamp()
            case .grows: actions.append(.reportAll)
            }
            return false
        }
        answerWindow.note(good: good, errors: errors, now: now)
        if answerWindow.all == good + errors { badSince = nil }
        if !answerWindow.isBad {
            badSince = nil
        } else if badSince == nil {
            badSince = now
        }
        let inRow =
            serverErrors >= limits.circuitServerErrors && now >= serverErrorsSince + limits.circuitErrorTime
        let byShare =
            answerWindow.all >= limits.circuitServerErrors
            && badSince.map { now >= $0 + limits.circuitErrorTime } ?? false
        return inRow || byShare
    }

    /// Requests that each connection may have in flight; nil: as many as the server lets it.
    var streamShare: Int? { ramp?.share }

    /// The one request that was let through has ended without an answer.
    mutating func probeUnanswered(now: UInt64) {
        guard case .halfOpen(let fault) = circuit else { return }
        switch fault {
        case .unreachable: openCircuit(fault, until: countFailure(now: now))
        case .serverErrors:
            serverFailures += 1
            openCircuit(fault, until: now + probePause(serverFailures))
        case .noProgress: openCircuit(fault, until: countFailure(now: now))
        }
    }

    // MARK: Lives

    /// So many good answers came on a connection.
    mutating func served(_ number: UInt32, _ good: Int) {
        members[Int(number)].goodAnswers += good
    }

    /// A connection that was of use has ended, and we didn't want it to. Connections that end together count once: those
    /// that were open before the last short life ended say nothing new.
    mutating func noteLife(of member: Member, now: UInt64) {
        guard member.phase != .opening, now < member.since + limits.leastLife,
            member.goodAnswers < limits.leastAnswers, member.since >= lastShortLife || shortLives == 0
        else { return }
        shortLives += 1
        lastShortLife = now
        shortLifeUntil = max(shortLifeUntil, now + shortLifePause())
    }

    /// While connections are short-lived, each opening waits for the one before to prove itself.
    mutating func pauseAfterOpening(now: UInt64) {
        guard shortLives > 0 else { return }
        shortLifeUntil = max(shortLifeUntil, now + shortLifePause())
    }

    /// A connection that has lived for long enough, or a long time without a short life, ends the pauses.
    mutating func forgetShortLives(now: UInt64) {
        guard shortLives > 0 else { return }
        let isProven = members.contains {
            ($0.phase == .active || $0.phase == .reserve) && $0.isAccepted && $0.since >= lastShortLife
                && now >= $0.since + limits.leastLife
        }
        guard isProven || now >= lastShortLife + 4 * limits.shortLifeMaximum else { return }
        shortLives = 0
        shortLifeUntil = 0
    }

    /// Nothing after the first; then from half a window to a window, which grows fourfold.
    private mutating func shortLifePause() -> UInt64 {
        guard shortLives > 1 else { return 0 }
        let longest = min(limits.shortLifeMaximum, limits.reconnectMaximum * 3 / 2)
        let window = min(limits.reconnectInitial << UInt64(2 * min(shortLives - 2, 12)), longest)
        return UInt64.random(in: window / 2...max(window, 1), using: &generator)
    }

    // MARK: Openings

    /// A connection did not come about, or was of no use.
    ///
    /// - Parameter hasAnswered: It did answer, so that the server is not unreachable.
    mutating func openingFailed(hasAnswered: Bool, now: UInt64) {
        // Openings that were under way as the circuit opened add nothing to its back-off.
        if case .open = circuit { return }
        countFailure(now: now)
        guard !hasAnswered else { return }
        switch circuit {
        case .closed:
            let serves = members.contains {
                $0.hasAnswered && ($0.phase == .active || $0.phase == .reserve || $0.phase == .retiring)
            }
            guard failures >= limits.circuitFailures, !serves else { return }
            openCircuit(.unreachable, until: notBefore)
        case .halfOpen(let fault):
            // With another one there, that one's request decides.
            guard live == 0 else { return }
            openCircuit(fault, until: notBefore)
        case .open: break
        }
    }

    /// Returns when its back-off is over.
    @discardableResult
    mutating func countFailure(now: UInt64) -> UInt64 {
        failures += 1
        lastFailure = now
        let end = now + backoff(max(failures, serverFailures))
        notBefore = max(notBefore, end)
        return end
    }

    private mutating func backoff(_ failures: Int) -> UInt64 {
        pause(failures, atMost: limits.reconnectMaximum)
    }

    /// The server answers: a probe is one request, and costs no connection.
    private mutating func probePause(_ failures: Int) -> UInt64 {
        pause(failures, atMost: min(limits.reconnectMaximum, limits.probeMaximum))
    }

    /// Full jitter, but at least a tenth of the window, so that a circuit is open for some time.
    private mutating func pause(_ failures: Int, atMost maximum: UInt64) -> UInt64 {
        let doublings = UInt64(min(failures - 1, 30))
        let window = min(limits.reconnectInitial << doublings, maximum)
        return UInt64.random(in: window / 10...max(window, 1), using: &generator)
    }

    // MARK: Circuit

    /// Without a bad window for a minute, there is no limit either: a pool with few pushes would never get through the steps.
    mutating func endOldRamp(now: UInt64) {
        if let ramp, now >= ramp.begin + StreamRamp.longest { endRamp() }
    }

    private mutating func endRamp() {
        ramp = nil
        serverFailures = 0
        actions.append(.reportAll)
    }

    mutating func openCircuit(_ fault: PoolFault, until: UInt64) {
        serverErrors = 0
        answerWindow.forget()
        badSince = nil
        ramp = nil
        setCircuit(.open(until: until, fault))
    }

    mutating func setCircuit(_ new: PoolCircuit) {
        guard circuit != new else { return }
        circuit = new
        fullSince = nil
        if new == .closed, ramp == nil { serverFailures = 0 }
        actions += [.changed(.circuit(new)), .reportAll]
    }

    /// The one connection that may carry a request while the circuit is half open.
    var probe: UInt32? {
        members.firstIndex { $0.phase == .active || $0.phase == .reserve }.map { UInt32($0) }
    }
}
