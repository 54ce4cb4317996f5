import StreamScheduling

/// Failures, their back-off, and the circuit.
extension PoolStateMachine {
    // MARK: Answers

    /// Records an answer on the connection, whatever its status: the connection works.
    ///
    /// - Parameter isAccepted: the answer was about the request, and so refused neither the credential nor the
    ///   connection.
    mutating func answered(_ number: UInt32, isAccepted: Bool = true) {
        heard(number)
        let member = members[Int(number)]
        members[Int(number)].hasAnswered = true
        if isAccepted {
            members[Int(number)].isAccepted = true
            if member.generation == generation { isGenerationProven = true }
            // An older connection doesn't show whether the server still accepts the credential.
            if member.since >= lastStopEnd { stops = 0 }
        }
        // An answer to a request from before, on a connection that drains since, shows as much.
        if isAccepted, case .open(_, .noAnswer) = circuit { setCircuit(.closed) }
        switch member.phase {
        case .active, .reserve, .retiring: break
        // The connection accepts no more requests, so its answer changes nothing.
        case .free, .opening, .draining: return
        }
        // The server is reachable after all.
        if case .open(_, .unreachable) = circuit { setCircuit(.closed) }
        guard isAccepted, failures > 0 else { return }
        // Success on an old connection doesn't prove that new ones can open.
        let isNew = member.since >= lastFailure || !member.isAccepted && member.since >= lastSettingsFailure
        guard isNew else { return }
        failures = 0
        notBefore = 0
    }

    /// Records that any answer has arrived on the connection.
    mutating func heard(_ number: UInt32) {
        unansweredSince = nil
        members[Int(number)].unansweredSince = nil
        clear(Int(number))
    }

    /// Ends the suspicion of a connection.
    mutating func clear(_ index: Int) {
        guard members[index].isSuspect else { return }
        (members[index].isSuspect, members[index].isCounted) = (false, false)
        actions.append(.report(UInt32(index)))
    }

    /// Records the answers of one read.
    ///
    /// - Parameters:
    ///   - good: number of answers that show a working server.
    ///   - errors: number of answers that show a server in trouble.
    ///   - last: number of errors after the last good answer; nil means all.
    mutating func answers(good: Int, serverErrors errors: Int, last: Int? = nil, now: UInt64) {
        switch circuit {
        case .open: return
        case .halfOpen(let fault):
            // A good answer closes the circuit. Answers to requests sent before the circuit opened prove nothing about
            // the time since.
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

    /// Records answers; returns true when they are too bad to continue.
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

    /// Limit on the requests that each connection may have in flight; nil when only the server's limit applies.
    var streamShare: Int? { ramp?.share }

    /// Records that the single request of a half-open circuit ended without an answer.
    mutating func probeUnanswered(now: UInt64) {
        guard case .halfOpen(let fault) = circuit else { return }
        switch fault {
        case .unreachable: openCircuit(fault, until: countFailure(now: now))
        case .serverErrors:
            serverFailures += 1
            openCircuit(fault, until: now + probePause(serverFailures))
        case .noProgress, .noAnswer: openCircuit(fault, until: countFailure(now: now))
        }
    }

    // MARK: Lives

    /// Adds `good` to the good answers of a connection.
    mutating func served(_ number: UInt32, _ good: Int) {
        members[Int(number)].goodAnswers += good
    }

    /// Records the end of a useful connection that we didn't intend to end. Connections that end together count once,
    /// because those opened before the last short life ended prove nothing new.
    mutating func noteLife(of member: Member, now: UInt64) {
        guard member.phase != .opening, now < member.since + limits.leastLife,
            member.goodAnswers < limits.leastAnswers, member.since >= lastShortLife || shortLives == 0
        else { return }
        shortLives += 1
        lastShortLife = now
        shortLifeUntil = max(shortLifeUntil, now + shortLifePause())
    }

    /// Delays the next opening while connections are short-lived, so that each new connection proves itself first.
    mutating func pauseAfterOpening(now: UInt64) {
        guard shortLives > 0 else { return }
        shortLifeUntil = max(shortLifeUntil, now + shortLifePause())
    }

    /// Ends the pauses once a connection has lived long enough, or after a long time without a short life.
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

    /// Returns no pause after the first short life, then half a window to a whole window; the window grows fourfold
    /// each time.
    private mutating func shortLifePause() -> UInt64 {
        guard shortLives > 1 else { return 0 }
        let longest = min(limits.shortLifeMaximum, limits.reconnectMaximum * 3 / 2)
        let window = min(limits.reconnectInitial << UInt64(2 * min(shortLives - 2, 12)), longest)
        return UInt64.random(in: window / 2...max(window, 1), using: &generator)
    }

    // MARK: Openings

    /// Records that a connection could not be opened, or was of no use.
    ///
    /// - Parameter hasAnswered: the connection delivered an answer, so the server is not unreachable.
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
            // While another connection exists, the request on that connection decides.
            guard live == 0 else { return }
            openCircuit(fault, until: notBefore)
        case .open: break
        }
    }

    /// Counts a failure and returns the end of its back-off.
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

    /// Returns the pause before the next probe. The server answers, so a probe is one request and costs no connection.
    private mutating func probePause(_ failures: Int) -> UInt64 {
        pause(failures, atMost: min(limits.reconnectMaximum, limits.probeMaximum))
    }

    /// Returns a random pause of a tenth of the window to the whole window, so that a circuit stays open for some time.
    private mutating func pause(_ failures: Int, atMost maximum: UInt64) -> UInt64 {
        let doublings = UInt64(min(failures - 1, 30))
        let window = min(limits.reconnectInitial << doublings, maximum)
        return UInt64.random(in: window / 10...max(window, 1), using: &generator)
    }

    // MARK: Circuit

    /// Removes the limit a minute after the ramp began, because a pool with few pushes would never pass all steps. A
    /// bad window would have ended the ramp before.
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
        unansweredSince = nil
        answerWindow.forget()
        badSince = nil
        ramp = nil
        setCircuit(.open(until: until, fault))
    }

    mutating func setCircuit(_ new: PoolCircuit) {
        guard circuit != new else { return }
        circuit = new
        fullSince = nil
        if new == .closed {
            if ramp == nil { serverFailures = 0 }
            // The server answers, so that connections work that have answered before, unless requests are overdue there.
            for index in members.indices
            where members[index].hasAnswered && members[index].unansweredSince == nil {
                clear(index)
            }
        }
        actions += [.changed(.circuit(new)), .reportAll]
    }

    /// Number of the connection that may carry a request while the circuit is half open; nil when none is active or in
    /// reserve, or a new one is to be opened.
    var probe: UInt32? {
        func first(_ isWanted: (Member) -> Bool) -> Int? {
            members.firstIndex { ($0.phase == .active || $0.phase == .reserve) && isWanted($0) }
        }
        let mayBeSuspect = probesSuspects || !members.contains { $0.phase == .free || $0.phase == .opening }
        return (first { !$0.isSuspect } ?? (mayBeSuspect ? first { _ in true } : nil)).map { UInt32($0) }
    }
}
