import StreamScheduling

/// Replacement of connections because their credential changes. No such replacement counts as a failure.
///
///     open with the old credential ── renewed ──▶ retiring ── successor open ──▶ draining
///                  ▲                                  │
///                  └───────── renewal undone ─────────┘
extension PoolStateMachine {
    /// Opens connections with another generation of the credential from now on, and replaces the others. Each serves
    /// until its successor is open. With an earlier generation, the renewal is undone: connections of that generation
    /// stay.
    ///
    /// - Parameter atOnce: the others take no further request, because the server refuses their credential.
    mutating func renew(generation new: UInt32, atOnce: Bool, now: UInt64) {
        guard !isClosing, new != generation else { return }
        // An earlier generation has proved itself before.
        isGenerationProven = new < generation
        generation = new
        for index in members.indices {
            let member = members[index]
            if member.generation == new {
                guard member.phase == .retiring, member.isOutdated else { continue }
                members[index].phase = .active
                members[index].isOutdated = false
                actions.append(.report(UInt32(index)))
                continue
            }
            switch member.phase {
            case .active, .reserve:
                if atOnce {
                    drainOutdated(index)
                } else {
                    members[index].isOutdated = true
                    retire(index, .renewal)
                }
            case .retiring where atOnce: drainOutdated(index)
            // A connection that opens too late is noticed as it opens.
            case .opening, .retiring, .draining, .free: break
            }
        }
        maintain(now: now)
    }

    /// Replaces the connections of a generation that are younger than `age`, in nanoseconds, at once. APNs would take the
    /// new provider token on such a connection as an update too many. They stay while no successor may be opened, because
    /// an answer 429 is better than no connection.
    mutating func renewYoung(generation: UInt32, age: UInt64, now: UInt64) {
        guard !isClosing, circuit == .closed, max(notBefore, shortLifeUntil, stoppedUntil ?? 0) <= now else {
            return
        }
        drain(generation: generation, youngerThan: age, now: now)
    }

    /// Replaces a generation's connections at once, because the server refuses its credential.
    /// - Parameter age: age in nanoseconds from which on a connection stays.
    mutating func drain(generation: UInt32, youngerThan age: UInt64 = .max, now: UInt64) {
        for index in members.indices
        where members[index].generation == generation && now - min(now, members[index].since) < age {
            switch members[index].phase {
            case .active, .reserve, .retiring: drainOutdated(index)
            case .opening, .draining, .free: break
            }
        }
        maintain(now: now)
    }

    private mutating func drainOutdated(_ index: Int) {
        let phase = members[index].phase
        members[index].isCounted = true
        actions.append(.changed(.rotates(connection: UInt32(index), .renewal)))
        drain(index)
        if phase == .reserve { target = max(limits.minimum, target - 1) }
        if case .halfOpen = circuit { actions.append(.reportAll) }
    }

    /// Ends a stop of the pool early, because the credential has changed.
    mutating func endStop(now: UInt64) {
        stops = 0
        guard stoppedUntil != nil else { return }
        stoppedUntil = nil
        actions.append(.reportAll)
        maintain(now: now)
    }
}
