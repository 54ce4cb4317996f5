import DeliveryCore

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

    /// Answers of one read: how many were below 500, and how many of the last ones were not.
    mutating func answers(good: Int, serverErrors errors: Int, now: UInt64) {
        if good > 0 {
            serverErrors = 0
            // What was sent before the circuit opened says nothing of the time since.
            if case .halfOpen = circuit {
                setCircuit(.closed)
                maintain(now: now)
            }
        }
        guard errors > 0 else { return }
        if serverErrors == 0 { serverErrorsSince = now }
        serverErrors += errors
        switch circuit {
        case .closed:
            guard serverErrors >= limits.circuitServerErrors,
                now >= serverErrorsSince + limits.circuitErrorTime
            else { return }
        case .halfOpen: break
        case .open: return
        }
        serverFailures += 1
        openCircuit(.serverErrors, until: now + backoff(serverFailures))
    }

    /// The one request that was let through has ended without an answer.
    mutating func probeUnanswered(now: UInt64) {
        guard case .halfOpen(let fault) = circuit else { return }
        switch fault {
        case .unreachable: openCircuit(fault, until: countFailure(now: now))
        case .serverErrors:
            serverFailures += 1
            openCircuit(fault, until: now + backoff(serverFailures))
        }
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

    /// Full jitter, but at least a tenth of the window, so that a circuit is open for some time.
    private mutating func backoff(_ failures: Int) -> UInt64 {
        let doublings = UInt64(min(failures - 1, 30))
        let window = min(limits.reconnectInitial << doublings, limits.reconnectMaximum)
        return UInt64.random(in: window / 10...max(window, 1), using: &generator)
    }

    // MARK: Circuit

    private mutating func openCircuit(_ fault: PoolFault, until: UInt64) {
        serverErrors = 0
        setCircuit(.open(until: until, fault))
    }

    mutating func setCircuit(_ new: PoolCircuit) {
        guard circuit != new else { return }
        circuit = new
        fullSince = nil
        if new == .closed { serverFailures = 0 }
        actions += [.changed(.circuit(new)), .reportAll]
    }

    /// The one connection that may carry a request while the circuit is half open.
    var probe: UInt32? {
        members.firstIndex { $0.phase == .active || $0.phase == .reserve }.map { UInt32($0) }
    }
}
