import SluiceModel

/// Events and states of a simulated world. Each must happen now and then, or the simulation shows less than it seems
/// to.
public enum Happening: Int, CaseIterable, Sendable {
    // Kafka and the service.
    case push, cancel, online, offline, receipt, tokenChanged, unregistered
    case polled, skippedAsComplete, pausedForSpan, pausedForCapacity, gap
    case commit, commitLost, acknowledged, offsetReset, relieved
    // Admissions.
    case placed, replaced, obsolete, deviceFull, expiredOnArrival, restored, imported
    // Admissions of pushes that had expired on arrival, in three kinds.
    // `expiredReplaces`: in the place of an older push.
    // `expiredAfterCrash`: as before, with an older push that the device had seen before a crash.
    // `expiredBehind`: behind a push in flight.
    case expiredReplaces, expiredAfterCrash, expiredBehind
    // Attempts.
    case sent, notSent, notBegun, accepted, unprocessed, unknown, unknownAvoided
    case rejectedJob, rejectedToken, authentication, configuration, connectionAnswer, tooManyRequests, later
    case poolPaused, poolProbe, poolRests, seenByDevice, repeatedSend
    // Broadcasts and ends of states.
    // `broadcastOvertakes`: sent before an earlier one whose time is to come.
    // `broadcastOutlives`: sent after one that held it up expired or was cancelled.
    // `broadcastOutlivesDropped`: sent after one that held it up was dropped with its partition.
    // `updateAfterFinal`, `updateBehindFinal`: superseded by an end of the state that waits, or is in flight.
    // `updateAfterStoredFinal`: superseded by an end of the state that came back from the store.
    case broadcast, broadcastSent, broadcastHeldUp, broadcastOvertakes, broadcastOutlives,
        broadcastOutlivesDropped
    case finalPush, finalReplaces, updateAfterFinal, updateBehindFinal, updateAfterStoredFinal
    // Store.
    case stored, storeFailed, putOff, removed, offsetDone, evicted, synced, syncFailed, powerLoss
    case putAside, waitsForTwo, loadedTwice, loadsPutOff, loadFailed, noRoomForLoad, awaitedSlot, leftInStore,
        loadedInParts
    case endedFiltered, migrationFiltered, futureFiltered, skipped, alreadyInMemory, repeated
    case presenceKept, presenceRestored, dueFound, dueAhead, suspendedFound, scanned
    case completionWaits, completedAfterRemoval, moveDeferred, markedOffset, completedByMark,
        awaitedTurn, returnedAhead
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
    // Observed states.
    case wasBlocked, wasDeviceLimited, wasCoalescing, wasRetrying, wasScheduled, wasHeld, wasReturning,
        wasConfirming,
        wasSuspended
}

/// Count of each happening.
public struct SimulationCounts: Sendable {
    /// Number of steps: a record, an answer, a timer, a fault, a commit, an acknowledgement, a request and so on.
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

    /// Happenings that never happened.
    public var missing: [Happening] { Happening.allCases.filter { self[$0] == 0 } }
}
