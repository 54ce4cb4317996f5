import DeliveryCore

/// The transitions that were found, by the state that is left.
extension FleetExpectation {
    static let list: [Row] = [
        Row(.drain, all, "running > draining, endingShards"),
        Row(.drain, all, "draining > endingShards"),
        Row(.drain, plain, "endingShards > lastReports"),
        Row(.drain, all, "endingShards > leaving"),
        Row(.drain, plain, "lastReports > lastCommit, leaving"),
        Row(.drain, plain, "lastCommit > leaving"),
        Row(.drain, all, "leaving > ended"),
        Row(.drain, [.changelog], "lastReports > lastDeletes"),
        Row(.drain, [.changelog], "lastCommit > lastDeletes"),
        Row(.drain, logs, "lastDeletes > leaving"),
        Row(.drain, [.transactions], "endingShards > lastTransaction, lastDeletes"),
        Row(.drain, [.transactions], "lastTransaction > leaving"),
        Row(.cycle, [.transactions], "unstarted > initializing"),
        Row(.cycle, [.transactions], "initializing > beginning, initializingLater"),
        Row(.cycle, [.transactions], "beginning > open, aborting, stopped"),
        Row(.cycle, [.transactions], "open > sendingOffsets, aborting, stopped"),
        Row(.cycle, [.transactions], "sendingOffsets > committing, aborting, failed, sendingOffsetsLater"),
        Row(.cycle, [.transactions], "committing > beginning, committingLater, stopped, failed"),
        Row(.cycle, [.transactions], "aborting > beginning, stopped, failed, beginningLater, abortingLater"),
        Row(.cycle, [.transactions], "beginningLater > beginning"),
        Row(.cycle, [.transactions], "sendingOffsetsLater > sendingOffsets"),
        Row(.cycle, [.transactions], "committingLater > committing"),
        Row(.cycle, [.transactions], "abortingLater > aborting"),
        Row(.cycle, [.transactions], "initializingLater > initializing"),
        Row(.step, [.transactions], "initialize > done, retriable"),
        Row(.step, [.transactions], "begin > done"),
        Row(.step, [.transactions], "sendOffsets > done, retriable, abortable, fatal"),
        Row(.step, [.transactions], "commit > done, retriable, fatal"),
        Row(.step, [.transactions], "abort > done, retriable, fatal"),
        Row(.freeze, [.transactions], "frozen > thawed, ending"),
        Row(.freeze, [.transactions], "thawed > freezing, freezingToAbort, ending"),
        Row(.freeze, [.transactions], "freezing > frozen, freezingToAbort"),
        Row(.freeze, [.transactions], "freezingToAbort > frozen"),
        Row(.commit, [.none], "idle > committing"),
        Row(.commit, plain, "committing > idle"),
        Row(.commit, [.local, .changelog], "idle > flushing"),
        Row(.commit, [.local, .changelog], "flushing > idle, committing"),
        Row(.commit, [.local], "flushing > syncing"),
        Row(.commit, [.local], "syncing > idle, committing"),
        Row(.commit, [.local, .changelog], "committing > flushing"),
        Row(.commit, [.changelog], "flushing > acknowledging"),
        Row(.commit, [.changelog], "acknowledging > committing"),
        Row(.question, plain, "off > on"),
        Row(.question, plain, "on > off"),
        Row(.lease, all, "certain > doubtful"),
        Row(.lease, all, "doubtful > confirmed"),
        Row(.lease, all, "confirmed > certain"),
        Row(.lease, [.transactions], "confirmed > doubtful"),
        Row(.takeOver, [.none], "none > fetching"),
        Row(.takeOver, [.none], "none > fetchingLater"),
        Row(.takeOver, all, "fetching > none"),
        Row(.takeOver, [.none, .changelog, .transactions], "fetching > fetchingLater"),
        Row(.takeOver, [.none, .changelog, .transactions], "fetchingLater > fetching"),
        Row(.takeOver, [.local], "none > restoring"),
        Row(.takeOver, stores, "restoring > fetching"),
        Row(.takeOver, stores, "fetching > restoring"),
        Row(.takeOver, logs, "none > awaitingFormerOwners, awaitingFormerOwnersLater"),
        Row(.takeOver, logs, "awaitingFormerOwners > restoring"),
        Row(.takeOver, [.transactions], "awaitingFormerOwners > awaitingFormerOwnersLater"),
        Row(.takeOver, [.transactions], "awaitingFormerOwnersLater > awaitingFormerOwners"),
        Row(.revocation, all, "none > settling"),
        Row(.revocation, all, "settling > none"),
        Row(.revocation, plain, "settling > awaitingCommit, committing"),
        Row(.revocation, [.local, .changelog], "awaitingCommit > none"),
        Row(.revocation, plain, "committing > none"),
        Row(.revocation, [.local, .changelog], "awaitingCommit > committing"),
        Row(.intake, all, "flowing > stalled"),
        Row(.intake, all, "stalled > flowing, paused"),
        Row(.intake, all, "paused > flowing"),
        Row(.store, all, "off > on"),
        Row(.store, all, "on > off"),
        Row(.copies, logs, "off > on"),
        Row(.copies, logs, "on > off"),
        Row(.partition, all, "none > taking"),
        Row(.partition, all, "taking > none, holding, settling"),
        Row(.partition, all, "holding > taking"),
        Row(.partition, all, "settling > none"),
        Row(.partition, [.changelog], "holding > settling"),
        Row(.restore, stores, "none > opening"),
        Row(.restore, stores, "opening > none"),
        Row(.restore, [.local], "opening > loadingMarks"),
        Row(.restore, stores, "loadingMarks > none, ready"),
        Row(.restore, stores, "ready > none"),
        Row(.restore, logs, "opening > restoring"),
        Row(.restore, logs, "restoring > none, opening, loadingMarks"),
        Row(.limitPause, all, "off > on"),
        Row(.limitPause, all, "on > off"),
        Row(.windowPause, all, "off > on"),
        Row(.windowPause, all, "on > off"),
        Row(.sharePause, all, "off > on"),
        Row(.sharePause, all, "on > off"),
        Row(.storePause, all, "off > on"),
        Row(.storePause, all, "on > off"),
        Row(.due, stores, "none > idle"),
        Row(.due, stores, "idle > none, looking, ending"),
        Row(.due, stores, "looking > none, idle"),
        Row(.due, stores, "ending > none"),
        Row(.due, logs, "looking > ending"),
        Row(.ahead, stores, "off > on"),
        Row(.ahead, stores, "on > off"),
        Row(.scan, stores, "off > on"),
        Row(.scan, stores, "on > off"),
        Row(.order, all, "open > ended"),
        Row(.order, [.transactions], "frozen > open, ended"),
        Row(.order, [.transactions], "open > frozen, freezing, refused"),
        Row(.order, [.transactions], "freezing > frozen"),
        Row(.order, [.transactions], "refused > frozen"),
        Row(.load, stores, "none > queued, loading, loaded, awaitsSlot"),
        Row(.load, stores, "queued > loading, loaded"),
        Row(.load, stores, "loading > queued, loaded"),
        Row(.load, stores, "loaded > none, queued, awaitsSlot"),
        Row(.load, stores, "awaitsSlot > queued, loaded"),
        Row(
            .item, all,
            "free > waiting, blocked, deviceLimited, retrying, scheduled, topicCircuitOpen, poolUnavailable"),
        Row(.item, all, "waiting > inFlight, deviceLimited, retrying, scheduled, topicCircuitOpen, finished"),
        Row(.item, [.none, .changelog, .transactions], "waiting > poolUnavailable"),
        Row(.item, all, "inFlight > waiting, retrying, topicCircuitOpen, finished"),
        Row(.item, all, "blocked > waiting, coalescing, retrying, scheduled, topicCircuitOpen, finished"),
        Row(.item, [.none, .local], "blocked > poolUnavailable"),
        Row(.item, all, "deviceLimited > waiting, retrying, scheduled, topicCircuitOpen, finished"),
        Row(.item, [.none, .local], "deviceLimited > poolUnavailable"),
        Row(.item, all, "coalescing > waiting, deviceLimited, retrying, scheduled, finished"),
        Row(.item, all, "retrying > waiting, deviceLimited, coalescing, scheduled, finished"),
        Row(.item, [.none, .changelog, .transactions], "retrying > topicCircuitOpen"),
        Row(.item, [.none, .local], "retrying > poolUnavailable"),
        Row(.item, all, "scheduled > waiting, deviceLimited, coalescing, retrying"),
        Row(.item, all, "scheduled > topicCircuitOpen, poolUnavailable, finished"),
        Row(.item, all, "topicCircuitOpen > waiting, scheduled, finished"),
        Row(.item, all, "poolUnavailable > waiting, finished"),
        Row(.item, [.none, .local, .transactions], "poolUnavailable > scheduled"),
        Row(.item, all, "finished > free"),
        Row(.item, stores, "free > coalescing, held, confirming, finished"),
        Row(.item, stores, "waiting > held"),
        Row(.item, [.local, .changelog], "waiting > confirming"),
        Row(.item, stores, "inFlight > held, confirming"),
        Row(.item, stores, "blocked > held"),
        Row(.item, [.changelog], "blocked > confirming"),
        Row(.item, stores, "deviceLimited > held"),
        Row(.item, [.local, .changelog], "deviceLimited > confirming"),
        Row(.item, stores, "coalescing > held"),
        Row(.item, stores, "retrying > held"),
        Row(.item, stores, "scheduled > held"),
        Row(.item, stores, "held > waiting, deviceLimited, coalescing, retrying"),
        Row(.item, stores, "held > scheduled, returning, topicCircuitOpen, poolUnavailable, finished"),
        Row(.item, [.local, .changelog], "held > confirming"),
        Row(.item, stores, "returning > waiting, deviceLimited, coalescing, retrying"),
        Row(.item, stores, "returning > scheduled, held, topicCircuitOpen, poolUnavailable, finished"),
        Row(.item, stores, "confirming > waiting, deviceLimited, retrying, scheduled"),
        Row(.item, stores, "confirming > held, topicCircuitOpen, finished"),
        Row(.item, stores, "topicCircuitOpen > held"),
        Row(.item, stores, "poolUnavailable > held"),
        Row(.item, [.changelog], "retrying > confirming"),
        Row(.item, logs, "confirming > poolUnavailable"),
        Row(.admission, all, "record > placed, replaced, deviceFull, expired"),
        Row(.admission, stores, "record > full"),
        Row(.admission, stores, "restored > placed, repeated, expired, full"),
        Row(.admission, [.local, .changelog], "restored > replaced"),
        Row(.admission, [.local], "restored > obsolete"),
        Row(.admission, stores, "adopted > placed, obsolete, expired"),
        Row(.admission, [.local], "adopted > replaced"),
        Row(.circuit, all, "closed > open"),
        Row(.circuit, all, "open > probing"),
        Row(.circuit, all, "probing > closed, open"),
    ]

    /// Milestones, and the modes in which they are reached.
    static let milestoneList: [(modes: [StoreMode], milestones: [FleetMilestone])] = [
        (stores, [.topicSuspended, .topicResumed, .probeWanted, .suspendedHanded]),
        (
            all,
            [
                .handed, .replayed, .heldBack, .pausedForWindow, .pausedForShare, .pausedForLimit,
                .storeFailed, .storeWorks, .membershipInDoubt, .drainDeadline, .stopsAtOnce,
                .partitionLost, .logWentBack, .armTimer, .resumed, .retried, .dropped, .stored, .requeued,
                .alert,
                .recovered, .accepted, .rejected, .expired, .superseded, .cancelled, .undeliverable,
            ]
        ),
        (
            plain,
            [
                .producedAgain, .producedWithoutValue, .commitFailed, .lastCommitFailed, .membershipAsked,
                .commitHeld,
            ]
        ),
        (
            [.none, .changelog, .transactions],
            [
                .takeOverFailed, .gaveBack,
            ]
        ),
        (
            stores,
            [
                .relieved, .dueHanded, .removedFromStore, .proceed, .refuse, .takeOver, .letGo, .load,
                .removeMark, .removed, .deferred, .waitedForTwo, .reloaded, .shortOfRoom, .partial,
                .awaitedSlot, .skipped, .putOff, .future, .stale, .repeated, .evicted, .departed, .offsetDone,
                .moveNoted, .readdressed, .presenceKept, .presenceExpired,
                .presenceForgotten, .awaitsTurn, .confirmed,
            ]
        ),
        (
            logs,
            [
                .restoreInterrupted, .checkpoint, .released,
            ]
        ),
        (
            [.changelog],
            [
                .lastOffsetsUnsafe, .droppedChange,
            ]
        ),
        (
            [.transactions],
            [
                .transactionAborted, .lastTransactionOpen, .refused,
            ]
        ),
    ]

    /// Seeds that together enter all of the list, with ``steps`` each.
    public static func seeds(_ mode: StoreMode) -> [UInt64] {
        switch mode {
        case .none:
            [
                55, 174, 329, 380, 424, 453, 871, 887, 1161, 1190, 1780, 1963, 2306, 2400, 2614, 3033, 3166,
            ]
        case .local:
            [
                49, 92, 97, 156, 163, 185, 202, 208, 229, 272, 374, 476, 483, 648, 655, 853, 902, 969, 976,
                992, 998, 1042, 1062, 1330, 1451, 1522, 1889, 2174, 2178, 2253, 2423,
            ]
        case .changelog:
            [
                99, 400, 648, 787, 990, 1053, 1482, 1732, 1818, 2299, 2455, 2668, 3154, 3292, 3506, 3509,
                3554, 3624, 3982, 4023, 4311, 4458, 4498, 4569, 4759, 5888, 6429, 6527, 6655, 7684, 8190,
                8306, 8421, 8469, 8533,
            ]
        case .transactions:
            [
                19, 129, 270, 380, 414, 573, 789, 960, 967, 989, 1036, 1147, 1158, 1201, 1277, 1438, 1499,
                1790, 1996, 2101, 2439, 2517, 2634, 2725, 2786, 2824, 2957, 3031, 3190, 3301, 3451, 3498,
            ]
        }
    }
}
