import DequeModule
import SluiceModel
import StreamScheduling

/// Decides how many connections a pool has, when to open, close or replace a connection, and whether to send at all.
/// The machine does no I/O and reads no clock: the shell passes in events and times (nanoseconds of the monotonic
/// clock). After each call the shell carries out the actions of ``nextAction()``.
///
/// A connection's number moves through these phases:
///
///     free -> opening -> active <-> reserve
///                          |           |
///                       retiring       |    (serves until its successor is open)
///                          |           |
///                          +-> draining -> free
///
/// A number returns to free from any phase when its connection is gone.
struct PoolStateMachine {
    enum Phase: Sendable, Equatable {
        case free, opening, active, reserve, retiring, draining
    }

    /// Orders to the shell.
    enum Action: Equatable {
        /// Look the name up, dial, and report the outcome: ``opened(_:now:)`` or ``ended(_:_:now:)``.
        case open(UInt32)
        /// Send no new requests on the connection, and close the connection when its last request has ended.
        case drain(UInt32)
        /// Report anew to the scheduler how it may use this connection.
        case report(UInt32)
        case reportAll
        case changed(PoolChange)
    }

    /// An open connection as the shell sees it at a tick.
    struct View: Equatable {
        var number: UInt32
        var inFlight = 0
        /// Streams that the connection may have open: the lower of the server's limit and ours.
        var limit = 0
        /// The server accepts our credential. Before that, a connection with provider tokens has one stream.
        var isAuthenticated = true
        /// The send window has no room for more content.
        var isWindowFull = false
        /// The connection accepts no request for another reason: it may be dead, or its socket does not keep up.
        var isBlocked = false
        /// Few stream ids are left on the connection.
        var isNearlyExhausted = false

        /// Nine tenths of the streams are in use, or the window is full.
        var isFull: Bool { isWindowFull || inFlight * 10 >= limit * 9 }
    }

    /// Waiting requests at a tick.
    struct Demand: Equatable {
        /// Some waiting request may be sent now.
        var isWaiting = false
        /// Longest time, in nanoseconds, that the next request to send has waited.
        var age: UInt64 = 0
        /// The most requests in flight since the last tick.
        var peakInFlight = 0
        /// Some waiting request is of an app that is not in trouble, while the circuit is open because of others.
        var hasWitness = false
    }

    /// How a connection ended.
    enum End: Sendable, Equatable {
        /// We ended the connection.
        case ours
        /// Anything else.
        case failed
        /// The connection can't open until someone mends a certificate or a setting, so the pool retries seldom.
        case settings
    }

    struct Member {
        var phase = Phase.free
        var since: UInt64 = 0
        /// Generation of the credential with which the connection was opened.
        var generation: UInt32 = 0
        /// The connection is being replaced because of its generation alone.
        var isOutdated = false
        var rotateAt = UInt64.max
        /// Time since which the connection in reserve has had no request in flight; nil while a request is in flight.
        var idleSince: UInt64?
        /// An answer arrived on the connection, whatever its status.
        var hasAnswered = false
        /// An answer arrived that was about the request, and thus refused neither the credential nor the connection.
        var isAccepted = false
        /// Number of answers that show a working server.
        var goodAnswers = 0
        /// The server has announced its end.
        var isEndedByServer = false
        /// The failure of this connection is already counted, so its end adds none.
        var isCounted = false
        /// Time since which requests have been in flight without an answer on the connection; nil when none is.
        var unansweredSince: UInt64?
        /// The connection hasn't answered its first request for a while, or the circuit opened because no connection answers.
        /// While the circuit is closed, the connection gets no other request.
        var isSuspect = false
        /// The connection was opened because others are suspect.
        var isExtra = false
        /// Time since which the connection has had no request in flight and accepted none, while requests waited; nil
        /// when that is not so.
        var stuckSince: UInt64?
    }

    let limits: PoolLimits
    var members: [Member]
    /// Generation of the credential with which connections are opened.
    var generation: UInt32 = 0
    /// An answer on a connection of this generation was about the request, so the server accepts the credential.
    var isGenerationProven = false
    var actions = Deque<Action>()
    /// Set by ``setCircuit(_:)``.
    var circuit = PoolCircuit.closed
    /// Number of connections that the pool aims at.
    var target: Int
    /// Earliest time of the next opening, after failures.
    var notBefore: UInt64 = 0
    /// End of the present stop; nil when the pool is not stopped.
    var stoppedUntil: UInt64?
    /// Number of stops since the server accepted a request on a connection opened after one of them.
    var stops = 0
    /// End of the last stop; 0 before the first.
    var lastStopEnd: UInt64 = 0
    /// Number of openings in a row that failed.
    var failures = 0
    /// Times of the last failed opening, and of the last failure that needs a person to mend a setting.
    var lastFailure: UInt64 = 0
    var lastSettingsFailure: UInt64 = 0
    /// Number of times in a row that the circuit opened because the server answered with errors.
    var serverFailures = 0
    /// True while a request may probe the server on a suspect connection, because a new one may take a while.
    var probesSuspects = false
    private(set) var isClosing = false
    var lastOpening: UInt64?
    var lastGrowth: UInt64?
    var fullSince: UInt64?
    /// Time since which requests have been in flight without an answer on any connection; nil when none is.
    var unansweredSince: UInt64?
    /// Time of the last reason to grow; nil before the first.
    var lastNeed: UInt64?
    /// Number of answers in a row that show a server in trouble, and the time of the first.
    var serverErrors = 0
    var serverErrorsSince: UInt64 = 0
    var answerWindow = AnswerWindow()
    /// Time since which at least half of the window's answers are errors; nil while fewer are.
    var badSince: UInt64?
    /// Limit on requests after the circuit was open because of errors; nil when there is no limit.
    var ramp: StreamRamp?
    /// Number of short-lived connections in a row, the end of the last of them, and the earliest next opening.
    var shortLives = 0
    var lastShortLife: UInt64 = 0
    var shortLifeUntil: UInt64 = 0
    var load: LoadWindow
    var generator: SeededGenerator

    init(_ limits: PoolLimits, seed: UInt64) {
        var limits = limits
        limits.minimum = max(1, limits.minimum)
        limits.maximum = max(limits.minimum, limits.maximum)
        self.limits = limits
        members = Array(repeating: Member(), count: limits.numbers)
        target = limits.minimum
        load = LoadWindow(length: limits.idleTimeout)
        generator = SeededGenerator(seed: seed)
    }

    func count(_ phase: Phase) -> Int {
        members.reduce(0) { $0 + ($1.phase == phase ? 1 : 0) }
    }

    /// Number of connections that accept requests, or soon will, and that stay.
    var live: Int {
        members.reduce(0) {
            switch $1.phase {
            case .opening, .active, .reserve: $0 + 1
            case .free, .retiring, .draining: $0
            }
        }
    }

    /// Connections that may be opened beside suspects. They are at most as many as the pool aims at.
    private var extras: Int {
        guard circuit == .closed else { return 0 }
        return min(target, members.count { $0.phase == .active && $0.isSuspect })
    }

    // MARK: Connections

    mutating func opened(_ number: UInt32, now: UInt64) {
        guard members[Int(number)].phase == .opening else { return }
        guard members[Int(number)].generation == generation else {
            // The credential was renewed meanwhile.
            members[Int(number)].isCounted = true
            drain(Int(number))
            return maintain(now: now)
        }
        members[Int(number)].phase = .active
        members[Int(number)].since = now
        members[Int(number)].rotateAt = limits.maximumAge == 0 ? .max : now + rotationAge()
        actions.append(.report(number))
        drainReplaced()
    }

    /// Drains replaced connections while enough others remain, of which none is suspect.
    private mutating func drainReplaced() {
        while members.count(where: { $0.phase == .active && !$0.isSuspect }) + count(.reserve)
            + count(.retiring) > target,
            let old = members.firstIndex(where: { $0.phase == .retiring })
        {
            drain(old)
        }
    }

    /// Records that the server announced the connection's end, or that its stream ids are used up. The connection
    /// accepts no more requests.
    mutating func ending(_ number: UInt32, now: UInt64) {
        let phase = members[Int(number)].phase
        switch phase {
        case .active, .reserve, .retiring: members[Int(number)].phase = .draining
        case .free, .opening, .draining: return
        }
        members[Int(number)].isEndedByServer = true
        if members[Int(number)].isAccepted, !members[Int(number)].isCounted {
            members[Int(number)].isCounted = true
            noteLife(of: members[Int(number)], now: now)
        }
        lost(phase)
        maintain(now: now)
    }

    /// Records that the connection is gone, or could not be opened.
    mutating func ended(_ number: UInt32, _ end: End, now: UInt64) {
        let member = members[Int(number)]
        members[Int(number)] = Member()
        guard !isClosing else { return }
        // The pool must not dial again and again a server that accepts connections and ends them unused.
        let isYoung = member.phase == .opening || now < member.since + 60_000_000_000
        // An opening with a credential that was replaced meanwhile proves nothing about the present one.
        let end = member.phase == .opening && member.generation != generation ? End.ours : end
        if end != .ours || member.isEndedByServer, !member.isCounted {
            if isYoung, !member.isAccepted {
                if end == .settings {
                    notBefore = max(notBefore, now + limits.reconnectMaximum * 3 / 2)
                    lastSettingsFailure = now
                }
                openingFailed(hasAnswered: member.hasAnswered, now: now)
            } else {
                noteLife(of: member, now: now)
            }
        }
        lost(member.phase)
        maintain(now: now)
    }

    /// Fills the place of a lost connection from the reserve before anything is opened.
    private mutating func lost(_ phase: Phase) {
        switch phase {
        case .reserve: target = max(limits.minimum, target - 1)
        case .active:
            guard target > limits.minimum, recall() else { break }
            target -= 1
        case .free, .opening, .retiring, .draining: return
        }
        // Another connection may be the probe now.
        if case .halfOpen = circuit { actions.append(.reportAll) }
    }

    /// Puts a connection in reserve back into use; returns false when there is none.
    mutating func recall() -> Bool {
        guard let index = members.firstIndex(where: { $0.phase == .reserve }) else { return false }
        members[index].phase = .active
        members[index].idleSince = nil
        actions += [.report(UInt32(index)), .changed(.recalled(connection: UInt32(index)))]
        return true
    }

    private mutating func rotationAge() -> UInt64 {
        let tenth = limits.maximumAge / 10
        return UInt64.random(in: limits.maximumAge - tenth...limits.maximumAge + tenth, using: &generator)
    }

    // MARK: Orders

    /// Stops opening and sending, because the server refuses the credential. The length doubles with each stop in a
    /// row. A time of the longest length without a stop ends the row.
    /// - Returns: the end of the stop; nil when the pool is stopped already.
    mutating func stop(now: UInt64) -> UInt64? {
        if let stoppedUntil, now < stoppedUntil { return nil }
        if stoppedUntil == nil { actions.append(.reportAll) }
        if now >= lastStopEnd + limits.stopMaximum { stops = 0 }
        let end = now + min(limits.stopInitial << UInt64(min(stops, 10)), limits.stopMaximum)
        stops += 1
        lastStopEnd = end
        stoppedUntil = end
        return end
    }

    mutating func close() {
        isClosing = true
    }

    /// Drains a connection at once and opens another. If the connection never was of use, its successor would fail for
    /// the same cause, such as a refused provider token. Such a replacement counts as a failure, and the next opening
    /// waits for the back-off.
    mutating func replaceNow(_ number: UInt32, now: UInt64) {
        let member = members[Int(number)]
        switch member.phase {
        case .active, .reserve, .retiring: drain(Int(number))
        case .free, .opening, .draining: return
        }
        members[Int(number)].isCounted = true
        if member.isAccepted {
            noteLife(of: member, now: now)
        } else {
            countFailure(now: now)
        }
        lost(member.phase)
        maintain(now: now)
    }

    /// Replaces a connection that the server wants to end, unless openings wait for their back-off or the circuit is
    /// not closed.
    mutating func replaceIfAllowed(_ number: UInt32, now: UInt64) {
        let member = members[Int(number)]
        guard member.phase == .active || member.phase == .reserve, earliestOpening <= now,
            circuit == .closed
        else { return }
        members[Int(number)].isCounted = true
        retire(Int(number), .doubt)
        maintain(now: now)
        // The pause applies to the next opening, not to this successor.
        noteLife(of: member, now: now)
    }

    /// Replaces a connection that may be worn out, unless it is young, because a fresh connection was no better then.
    mutating func replaceWhenSuccessorIsOpen(_ number: UInt32, now: UInt64) {
        let member = members[Int(number)]
        guard member.phase == .active || member.phase == .reserve,
            now >= member.since + limits.leastAgeToReplace
        else { return }
        retire(Int(number), .doubt)
        maintain(now: now)
    }

    /// Marks a connection that serves until its successor is open. A connection in reserve needs no successor and
    /// drains at once.
    mutating func retire(_ index: Int, _ cause: PoolRotationCause) {
        actions.append(.changed(.rotates(connection: UInt32(index), cause)))
        if members[index].phase == .reserve {
            drain(index)
            lost(.reserve)
        } else {
            members[index].phase = .retiring
            // Another connection may be the probe now.
            if case .halfOpen = circuit { actions.append(.reportAll) }
            // A connection in reserve is a successor that is open already.
            if target > limits.minimum, recall() { target -= 1 }
        }
    }

    mutating func drain(_ index: Int) {
        members[index].phase = .draining
        actions.append(.drain(UInt32(index)))
    }

    // MARK: Opening

    var earliestOpening: UInt64 {
        let paced = lastOpening.map { $0 + limits.openInterval } ?? 0
        return max(paced, notBefore, shortLifeUntil, stoppedUntil ?? 0)
    }

    /// Whether a connection is missing that may be opened as soon as ``earliestOpening`` has passed.
    var mayOpen: Bool {
        guard !isClosing, members.contains(where: { $0.phase == .free }) else { return false }
        return switch circuit {
        case .closed: live < target + extras
        // A single connection is enough to find out.
        case .halfOpen:
            !members.contains {
                ($0.phase == .opening || $0.phase == .active || $0.phase == .reserve) && !$0.isSuspect
            }
        case .open: false
        }
    }

    /// Drains a connection that was opened beside suspects, once there are enough others and nothing waits.
    mutating func drainExtra(_ demand: Demand) {
        guard circuit == .closed, !demand.isWaiting || live > limits.maximum + extras,
            live > target + extras, count(.opening) == 0,
            let extra = members.firstIndex(where: { $0.phase == .active && $0.isExtra && !$0.isSuspect })
        else { return }
        drain(extra)
        actions.append(.changed(.shrank(to: target)))
    }

    /// Returns the next action, which the owner carries out; nil when there is none.
    mutating func nextAction() -> Action? { actions.popFirst() }

    /// Opens missing connections at the permitted pace.
    mutating func maintain(now: UInt64) {
        if let until = stoppedUntil, until <= now {
            stoppedUntil = nil
            actions.append(.reportAll)
        }
        if !isClosing { drainReplaced() }
        while mayOpen, earliestOpening <= now {
            guard let free = members.firstIndex(where: { $0.phase == .free }) else { return }
            let isExtra = live >= target
            members[free] = Member(
                phase: .opening, since: now, generation: generation, isExtra: isExtra)
            lastOpening = now
            pauseAfterOpening(now: now)
            actions.append(.open(UInt32(free)))
        }
    }
}
