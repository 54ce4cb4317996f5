import EventLoop
import SluiceModel

/// Faults in force at a moment, the entries of a timeline joined.
struct ActiveFaults: Equatable {
    /// Answers of all entries; the shares together may exceed 1, then the last ones count less.
    var answers: [SimulatorOptions.Fault] = []
    /// Nil for the simulator's own latency.
    var latency: LatencyDistribution?
    /// Share of the requests.
    var unanswered = 0.0
    /// Stream limit of each connection; the highest number for none.
    var streamLimit = UInt32.max
    /// Share of the connections that are silent.
    var blackHole = 0.0
    /// Bytes that are read in a second, on a share of the connections; nil for no limit.
    var readRate: Int?
    var readRateShare = 0.0
    /// Share of the connections whose windows aren't opened.
    var noWindowUpdates = 0.0
    /// Requests of a device in a second; nil for no limit.
    var perDevice: Int?
    /// Requests of an event loop in a second; nil for no limit.
    var perSecond: Int?
    /// Whether the server presents an expired certificate.
    var hasExpiredServer = false
    /// Whether client certificates count as expired.
    var hasExpiredClients = false
    /// Shares whose environment is mixed up.
    var mixedUpDevices = 0.0
    var mixedUpKeys = 0.0
    var mixedUpCertificates = 0.0
    /// GOAWAYs for connections that open.
    var goAwaysOfNew: [FaultTimeline.GoAway] = []

    /// Whether a request can meet a fault.
    var concernsRequests: Bool {
        !answers.isEmpty || latency != nil || unanswered > 0 || perDevice != nil || perSecond != nil
            || mixedUpDevices > 0 || mixedUpKeys > 0
    }

    mutating func add(_ kind: FaultTimeline.Kind, since start: UInt64, now: UInt64) {
        switch kind {
        case .answers(let faults): answers += faults
        case .latency(let distribution): latency = distribution
        case .unanswered(let share): unanswered = share
        case .goAway(let goAway): if goAway.connections != .open { goAwaysOfNew.append(goAway) }
        case .disconnect: break
        case .streamLimit(let limit):
            let half = limit.period.map { max($0.wholeNanoseconds / 2, 1) }
            let isHigh = half.map { (now - start) / $0 % 2 == 1 } ?? false
            streamLimit = isHigh ? limit.high ?? .max : limit.low
        case .blackHole(let share): blackHole = share
        case .slowReads(let bytes, let share):
            readRate = bytes
            readRateShare = share
        case .noWindowUpdates(let share): noWindowUpdates = share
        case .throttle(let device, let second):
            perDevice = device
            perSecond = second
        case .certificate(.server): hasExpiredServer = true
        case .certificate(.client): hasExpiredClients = true
        case .environment(.deviceTokens, let share): mixedUpDevices = share
        case .environment(.key, let share): mixedUpKeys = share
        case .environment(.certificate, let share): mixedUpCertificates = share
        }
    }
}

/// Plays a timeline. Pure: times are nanoseconds since the start of the timeline.
struct FaultClock {
    /// Consequences of the passing time.
    struct Step: Equatable {
        var active = ActiveFaults()
        /// Entries in force, by their index.
        var entries: [Int] = []
        /// GOAWAYs and disconnections that fall due, in the order of the entries. Each entry at most once.
        var events: [FaultTimeline.Kind] = []
        /// Time of the next change; nil when nothing changes any more.
        var next: UInt64?
    }

    private struct Entry {
        var start: UInt64
        /// Nil when the entry ends with the timeline.
        var end: UInt64?
        var kind: FaultTimeline.Kind
        /// Interval of events; nil for one event, at the start.
        var every: UInt64?
        /// Time between two changes of the stream limit; nil for none.
        var toggle: UInt64?
        var isEvent: Bool
        /// Whether the entry is a single event, which no time is in force.
        var isMoment: Bool
    }

    private let entries: [Entry]
    /// Length of a repetition; nil when the timeline is played once.
    private let cycle: UInt64?
    /// Time of the last step; nil before the first.
    private var last: UInt64?

    init(_ timeline: FaultTimeline) {
        cycle = timeline.repeats.map { max($0.wholeNanoseconds, 1) }
        entries = timeline.entries.map { entry in
            let start = entry.at.wholeNanoseconds
            var toggle: UInt64?
            if case .streamLimit(let limit) = entry.kind {
                toggle = limit.period.map { max($0.wholeNanoseconds / 2, 1) }
            }
            var isEvent = false
            if case .goAway(let goAway) = entry.kind { isEvent = goAway.connections != .new }
            if case .disconnect = entry.kind { isEvent = true }
            var isMoment = isEvent && entry.kind.every == nil
            if case .goAway(let goAway) = entry.kind, goAway.connections == .all { isMoment = false }
            return Entry(
                start: start, end: entry.lasts.map { start + $0.wholeNanoseconds }, kind: entry.kind,
                every: entry.kind.every.map { max($0.wholeNanoseconds, 1) }, toggle: toggle, isEvent: isEvent,
                isMoment: isMoment)
        }
    }

    /// Moves to a time, which is not earlier than the last one.
    mutating func advance(to now: UInt64) -> Step {
        var step = Step()
        let position = cycle.map { now % $0 } ?? now
        for (index, entry) in entries.enumerated() {
            if isActive(entry, at: position) {
                step.entries.append(index)
                step.active.add(entry.kind, since: entry.start, now: position)
            }
            if entry.isEvent,
                events(of: entry, through: now) > (last.map { events(of: entry, through: $0) } ?? 0)
            {
                step.events.append(entry.kind)
            }
        }
        let changes = entries.compactMap { nextChange(of: $0, after: position) }
        var next = changes.min()
        if let cycle, !entries.isEmpty { next = min(next ?? cycle, cycle) }
        step.next = next.map { now - position + $0 }
        last = now
        return step
    }

    private func isActive(_ entry: Entry, at position: UInt64) -> Bool {
        !entry.isMoment && position >= entry.start && entry.end.map { position < $0 } ?? true
    }

    /// Returns the number of an entry's events from the start of the timeline through a time.
    private func events(of entry: Entry, through time: UInt64) -> UInt64 {
        guard let cycle else { return eventsOfCycle(entry, through: time) }
        return time / cycle * eventsOfCycle(entry, through: cycle - 1)
            + eventsOfCycle(entry, through: time % cycle)
    }

    private func eventsOfCycle(_ entry: Entry, through position: UInt64) -> UInt64 {
        guard position >= entry.start else { return 0 }
        guard let every = entry.every else { return 1 }
        let end = min(position, entry.end.map { max($0, entry.start + 1) - 1 } ?? position)
        return 1 + (end - entry.start) / every
    }

    private func nextChange(of entry: Entry, after position: UInt64) -> UInt64? {
        if position < entry.start { return entry.start }
        if let end = entry.end, position >= end { return nil }
        var next = entry.end
        if let interval = entry.isEvent && entry.every != nil ? entry.every : entry.toggle {
            let due = entry.start + ((position - entry.start) / interval + 1) * interval
            next = min(next ?? due, due)
        }
        return next
    }
}
