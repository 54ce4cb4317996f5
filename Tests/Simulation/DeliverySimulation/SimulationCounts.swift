import SluiceModel

/// What can happen in a simulated world; each must happen now and then, or the simulation shows less than it seems to.
public enum Happening: Int, CaseIterable, Sendable {
    // Kafka and the service.
    case push, cancel, online, offline, receipt, tokenChanged, unregistered
    case polled, skippedAsComplete, pausedForSpan, pausedForCapacity, gap
    case commit, commitLost, acknowledged, offsetReset, relieved
    // Admissions.
    case placed, replaced, obsolete, deviceFull, expiredOnArrival, restored, imported
    // Of these, pushes that had expired when they came: in the place of an older one, among them some that their device
    // had before a crash, and behind one in flight.
    case expiredReplaces, expiredAfterCrash, expiredBehind
    // Attempts.
    case sent, notSent, notBegun, accepted, unprocessed, unknown, unknownAvoided
    case rejectedJob, rejectedToken, authentication, configuration, connectionAnswer, tooManyRequests, later
    case laneHeld, laneProbe, seenByDevice, repeatedSend
    // Store.
    case stored, storeFailed, putOff, removed, offsetDone, evicted, synced, syncFailed, powerLoss
    case putAside, waitsForTwo, loadedTwice, loadsPutOff, loadFailed, noRoomForLoad, awaitedSlot, leftInStore,
        loadedInParts
    case endedFiltered, migrationFiltered, futureFiltered, skipped, alreadyInMemory, repeated
    case presenceKept, presenceRestored, dueFound, dueAhead, parkedFound, scanned
    case completionWaits, completedAfterRemoval, moveDeferred, markedOffset, completedByMark,
        awaitedTurn
    // Actions.
    case requeue, drop, noteMove, readdress, depart, alert, alertOfTokens, recovered, tooLate
    // Faults and time.
    case timer, clockForward, clockBack, connectionLost, goAway, limitFlap, crash, handOver, lossOfPartition,
        stop
    case healthy, healthyPause
    // Outcomes.
    case endAccepted, endConfirmed, endRejected, endExpired, endSuperseded, endCancelled, endUndeliverable
    case endAnswerLost, endAttemptsExhausted, endDeviceLimit, endDeviceUnregistered
    case secondOutcome
    // States that were seen.
    case wasBlocked, wasDeviceLimited, wasCoalescing, wasRetrying, wasScheduled, wasHeld, wasReturning,
        wasConfirming,
        wasParked
}

/// How often each happened.
public struct SimulationCounts: Sendable {
    /// Steps: a record, an answer, a timer, a fault, a commit, an acknowledgement, a request…
    public internal(set) var events = 0
    private var values = [Int](repeating: 0, count: Happening.allCases.count)

    public init() {}

    public internal(set) subscript(what: Happening) -> Int {
        get { values[what.rawValue] }
        set { values[what.rawValue] = newValue }
    }

    public mutating func add(_ other: SimulationCounts) {
        events += other.events
        for index in values.indices { values[index] += other.values[index] }
    }

    /// What never happened.
    public var missing: [Happening] { Happening.allCases.filter { self[$0] == 0 } }
}
