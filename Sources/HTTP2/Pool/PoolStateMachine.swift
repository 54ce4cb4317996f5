import StreamScheduling

/// Decides which connections a pool has: how many, when one more, when one less, when another one in its place, and
/// whether to send at all. Without I/O and clock: events and times (nanoseconds of the monotonic clock) come in, the
/// shell takes ``actions`` after each call and carries them out.
///
/// A connection's number goes through
///
///     free -> opening -> active <-> reserve
///                          |           |
///                       retiring       |    (serves until its successor is open)
///                          |           |
///                          +-> draining -> free
///
/// and to free from anywhere, when the connection is gone.
struct PoolStateMachine {
    enum Phase: Sendable, Equatable {
        case free, opening, active, reserve, retiring, draining
    }

    /// What the shell is to do.
    enum Action: Equatable {
        /// Look the name up, dial, and tell how it ended: ``opened(_:now:)`` or ``ended(_:_:now:)``.
        case open(UInt32)
        /// Take no more requests on it and close it when it has none.
        case drain(UInt32)
        /// The scheduler is to be told anew of what this connection may be used for.
        case report(UInt32)
        case reportAll
        case changed(PoolChange)
    }

    /// One open connection as the shell sees it at a tick.
    struct View: Equatable {
        var number: UInt32
        var inFlight = 0
        /// Streams that it may have open: the server's limit and ours.
        var limit = 0
        /// The server takes our credential; before, a token connection has one stream (CON).
        var isAuthenticated = true
        /// Its window takes no more content.
        var isWindowFull = false
        /// It takes no request for another reason: suspected of being dead, or its socket does not keep up.
        var isBlocked = false
        /// Its stream ids come to an end.
        var isNearlyExhausted = false

        /// Nine tenths of the streams are taken.
        var isFull: Bool { isWindowFull || inFlight * 10 >= limit * 9 }
    }

    /// What waits at a tick.
    struct Demand: Equatable {
        /// Something waits that may go.
        var isWaiting = false
        /// How long the next has waited.
        var age: UInt64 = 0
        /// The most requests in flight since the last tick.
        var peakInFlight = 0
    }

    /// How a connection ended.
    enum End: Sendable, Equatable {
        /// We ended it.
        case ours
        /// Anything else.
        case failed
        /// It can't come about until someone mends a certificate or the like: tried again seldom.
        case settings
    }

    struct Member {
        var phase = Phase.free
        var since: UInt64 = 0
        var rotateAt = UInt64.max
        /// Since when it has had nothing in flight, in reserve.
        var idleSince: UInt64?
        /// An answer came on it, whatever it said.
        var hasAnswered = false
        /// An answer came that was about the request, and so not against the credential or the connection.
        var isAccepted = false
        /// Answers of a server that works.
        var goodAnswers = 0
        /// The server has announced its end.
        var isEndedByServer = false
        /// Its failure has been counted: its end adds none.
        var isCounted = false
        /// Since when it has had nothing in flight and taken nothing, while requests waited.
        var stuckSince: UInt64?
    }

    let limits: PoolLimits
    var members: [Member]
    var actions: [Action] = []
    /// Set by ``setCircuit(_:)``.
    var circuit = PoolCircuit.closed
    /// Connections that there should be.
    var target: Int
    /// No opening before this.
    var notBefore: UInt64 = 0
    var stoppedUntil: UInt64?
    /// Openings that failed in a row.
    var failures = 0
    /// When the last opening failed, and the last one that failed for want of a person to mend something.
    var lastFailure: UInt64 = 0
    var lastSettingsFailure: UInt64 = 0
    /// How often in a row the circuit opened for errors of the server.
    var serverFailures = 0
    private(set) var isClosing = false
    var lastOpening: UInt64?
    var lastGrowth: UInt64?
    var fullSince: UInt64?
    /// When there was last a reason to grow.
    var lastNeed: UInt64?
    /// Answers in a row that speak of a server in trouble, and since when.
    var serverErrors = 0
    var serverErrorsSince: UInt64 = 0
    var answerWindow = AnswerWindow()
    /// Since when half of the window's answers are errors; nil: they aren't.
    var badSince: UInt64?
    /// Limits requests after the circuit was open for errors; nil: there is no limit.
    var ramp: StreamRamp?
    /// Connections in a row that were short-lived, when the last of them ended, and no opening before when.
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

    /// Connections that take requests, or soon will, and stay.
    var live: Int {
        members.reduce(0) {
            switch $1.phase {
            case .opening, .active, .reserve: $0 + 1
            case .free, .retiring, .draining: $0
            }
        }
    }

    // MARK: Connections

    mutating func opened(_ number: UInt32, now: UInt64) {
        guard members[Int(number)].phase == .opening else { return }
        members[Int(number)].phase = .active
        members[Int(number)].since = now
        members[Int(number)].rotateAt = limits.maximumAge == 0 ? .max : now + rotationAge()
        actions.append(.report(number))
        drainReplaced()
    }

    /// One that was to be replaced has done its service when there are enough without it.
    private mutating func drainReplaced() {
        while count(.active) + count(.reserve) + count(.retiring) > target,
            let old = members.firstIndex(where: { $0.phase == .retiring })
        {
            drain(old)
        }
    }

    /// The server announced the connection's end, or its stream ids are used up: it takes no more.
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

    /// The connection is gone, or did not come about.
    mutating func ended(_ number: UInt32, _ end: End, now: UInt64) {
        let member = members[Int(number)]
        members[Int(number)] = Member()
        guard !isClosing else { return }
        // A server that takes connections and ends them unused must not be called again and again.
        let isYoung = member.phase == .opening || now < member.since + 60_000_000_000
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

    /// One connection less takes requests: what was more than needed fills its place before anything is opened.
    private mutating func lost(_ phase: Phase) {
        switch phase {
        case .reserve: target = max(limits.minimum, target - 1)
        case .active:
            guard target > limits.minimum, recall() else { break }
            target -= 1
        case .free, .opening, .retiring, .draining: return
        }
        // Another one may be the probe now.
        if case .halfOpen = circuit { actions.append(.reportAll) }
    }

    /// Puts a connection in reserve back into use; false when there is none.
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

    /// Neither opening nor sending would help for the time being.
    mutating func stop(until: UInt64) {
        if stoppedUntil == nil { actions.append(.reportAll) }
        stoppedUntil = until
    }

    mutating func close() {
        isClosing = true
    }

    /// Takes a connection out at once and opens another. If it never was of use, its successor won't be for the same
    /// cause (a provider token that is refused): then this is a failure, and the next opening waits for its back-off.
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

    /// Replaces a connection that the server wants to end, unless openings wait for their back-off.
    mutating func replaceIfAllowed(_ number: UInt32, now: UInt64) {
        let member = members[Int(number)]
        guard member.phase == .active || member.phase == .reserve, earliestOpening <= now,
            circuit == .closed
        else { return }
        members[Int(number)].isCounted = true
        retire(Int(number), .doubt)
        maintain(now: now)
        // For the next one.
        noteLife(of: member, now: now)
    }

    /// Replaces a connection that may be worn out, unless it is young: a fresh one was no better then.
    mutating func replaceWhenSuccessorIsOpen(_ number: UInt32, now: UInt64) {
        let member = members[Int(number)]
        guard member.phase == .active || member.phase == .reserve,
            now >= member.since + limits.leastAgeToReplace
        else { return }
        retire(Int(number), .doubt)
        maintain(now: now)
    }

    /// Marks a connection that is to serve until its successor is open. One in reserve needs no successor.
    mutating func retire(_ index: Int, _ cause: PoolRotationCause) {
        actions.append(.changed(.rotates(connection: UInt32(index), cause)))
        if members[index].phase == .reserve {
            drain(index)
            lost(.reserve)
        } else {
            members[index].phase = .retiring
            // Another one may be the probe now.
            if case .halfOpen = circuit { actions.append(.reportAll) }
            // One in reserve is a successor that is open already.
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

    /// Whether a connection is missing that may be opened when its time has come.
    var mayOpen: Bool {
        guard !isClosing, live < target, members.contains(where: { $0.phase == .free }) else { return false }
        return switch circuit {
        case .closed: true
        // One connection is enough to find out.
        case .halfOpen: live == 0
        case .open: false
        }
    }

    /// Opens what is missing, at its pace.
    mutating func maintain(now: UInt64) {
        if let until = stoppedUntil, until <= now {
            stoppedUntil = nil
            actions.append(.reportAll)
        }
        if !isClosing { drainReplaced() }
        while mayOpen, earliestOpening <= now {
            guard let free = members.firstIndex(where: { $0.phase == .free }) else { return }
            members[free] = Member(phase: .opening, since: now)
            lastOpening = now
            pauseAfterOpening(now: now)
            actions.append(.open(UInt32(free)))
        }
    }
}
