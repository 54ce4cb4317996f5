import SluiceModel
import StreamScheduling

/// Stops the pushes of one topic while APNs refuses its credential or the topic itself. It also stops them while APNs
/// takes most of the topic's device tokens for wrong. The pushes then wait for a person instead of failing one by
/// one. Once all keys of a pool are refused, its topics stop without a request of their own.
///
/// With a wrong environment or topic, every token is answered as wrong (`BadDeviceToken`, `DeviceTokenNotForTopic`).
/// ``TokenRounds`` finds that out. Until then pushes with such an answer end as rejected. The push whose answer
/// stops the topic waits, as do pushes that are answered so later.
///
///     closed ── a configuration answer ──▶ open ── after a growing pause ──▶ probing (one push)
///        ▲                                  ▲                                   │
///        │                                  └────── a configuration answer ─────┤
///        └───────────────────────── an answer that recovers ────────────────────┘
struct TopicCircuit: BitwiseCopyable {
    enum State: UInt8, BitwiseCopyable {
        case closed
        case open
        case probing
    }

    var state = State.closed
    /// True while an operator has paused the topic's app, credential or the topic itself. No push is sent, not even a
    /// probe.
    var isPaused = false
    /// Failures in a row: the first configuration answer, and those to probes.
    var failures: UInt32 = 0
    /// Time at which an open circuit lets a probe go, in nanoseconds of the monotonic clock.
    var until: UInt64 = 0
    /// True while pushes of the topic's tenant are parked: those beyond its share, or to read ahead.
    var isParked = false
    /// Index of the topic's tenant; ``noTenant`` when the owner has named none.
    var tenant = TopicCircuit.noTenant
    /// Pushes of the topic that have ended, and requests that were answered.
    var (ended, answered) = (0, 0)
    /// Time of the last accepted push, in nanoseconds of the monotonic clock; 0 before the first.
    var accepted: UInt64 = 0
    /// Slot of the probe; ``DeliveryMachine/noSlot`` when there is none.
    var probe = DeliveryMachine.noSlot
    /// Items that wait for the circuit to close, or are parked.
    var waiting = ItemList()
    /// Pool of the topic's last push; `.max` before the first.
    var pool = UInt16.max
    /// Requests to the store for a probe since the last push that failed.
    var asked: UInt32 = 0
    /// Cause for which the circuit is open.
    var fault = TopicFault.refusal
    /// Pushes begun while the circuit was closed, and the answers about their tokens.
    var tokens = TokenRounds()

    static let noTenant = UInt16.max
    /// Pushes that are asked of the store to find a probe.
    static let probesWanted = 4

    /// True when the topic's pushes wait: APNs has stopped the topic, or an operator has paused it.
    var holdsBack: Bool { state != .closed || isPaused }

    /// True when arriving pushes of the topic may have to wait.
    var isWatched: Bool { holdsBack || isParked }

    /// Counts a push that begins, unless it probes. Returns the number of its round; 0 when it counts in none.
    @inline(__always)
    mutating func begin() -> UInt8 { state == .closed ? tokens.begin() : 0 }

    /// True when APNs takes most tokens for wrong. A push with a wrong token then waits with the topic.
    var holdsWrongTokens: Bool { state != .closed && fault == .tokens || tokens.areMostlyWrong }

    /// Returns true when the answer to a push shows that the circuit's fault is over. The answer of a server in
    /// trouble reports nothing about the credential. With wrong tokens, pushes for good tokens are always in flight,
    /// so that only the probe's answer counts.
    func recovers(after answer: AttemptAnswer, isProbe: Bool) -> Bool {
        switch fault {
        case .refusal:
            answer.class == .token || answer.class == .job || answer.reason == .tooManyRequests
        case .tokens: isProbe && (answer.reason == .unregistered || answer.reason == .expiredToken)
        case .overload: isProbe && (answer.class == .token || answer.class == .job)
        }
    }
}

/// Cause for which a topic stops.
public enum TopicFault: UInt8, BitwiseCopyable, Sendable, Equatable {
    /// APNs refuses the credential or the topic.
    case refusal
    /// APNs takes most of the topic's device tokens for wrong.
    case tokens
    /// APNs asks for a pause (503 with `Retry-After`) for pushes of the topic, and accepts those of another topic of the
    /// pool.
    case overload
}

extension DeliveryMachine {
    func circuit(_ topic: UInt16) -> TopicCircuit.State {
        Int(topic) < circuits.count ? circuits[Int(topic)].state : .closed
    }

    /// Returns true when the item's topic lets the item go. While the circuit probes, the first item that asks is the
    /// probe.
    mutating func circuitAdmits(_ slot: UInt32) -> Bool {
        let topic = Int(items[Int(slot)].topic)
        if circuits[topic].isPaused { return false }
        switch circuits[topic].state {
        case .closed: return true
        case .open: return false
        case .probing:
            if circuits[topic].probe == Self.noSlot { circuits[topic].probe = slot }
            return circuits[topic].probe == slot
        }
    }

    mutating func waitForCircuit(_ slot: UInt32, at now: DeliveryTime) {
        setState(slot, .topicCircuitOpen)
        circuits[Int(items[Int(slot)].topic)].waiting.append(slot, items)
        store(slot, at: now)
    }

    /// Releases the probe because the item leaves without an answer for its topic: the next item is the probe.
    mutating func probeLeft(_ slot: UInt32) {
        let topic = Int(items[Int(slot)].topic)
        if circuits[topic].probe == slot { circuits[topic].probe = Self.noSlot }
    }

    /// Opens the circuit. APNs blamed the credential or topic for this request, or takes most of the topic's tokens
    /// for wrong.
    mutating func circuitFailed(_ slot: UInt32, _ fault: TopicFault, at now: DeliveryTime) {
        let topic = Int(items[Int(slot)].topic)
        let wasClosed = circuits[topic].state == .closed
        if circuits[topic].state == .open { return }
        if circuits[topic].state == .probing, circuits[topic].probe != slot { return }
        circuits[topic].failures += 1
        let isNew = wasClosed || circuits[topic].fault == .overload && fault != .overload
        // A refusal lasts, and an overload doesn't.
        if wasClosed || fault != .overload { circuits[topic].fault = fault }
        circuits[topic].state = .open
        circuits[topic].probe = Self.noSlot
        circuits[topic].asked = 0
        let attempt = circuits[topic].failures
        let pause =
            circuits[topic].fault == .overload
            ? ExponentialBackoff.configuration.window(attempt: attempt)
            : limits.retry.configuration.wait(attempt: attempt, using: &generator)
        circuits[topic].until = now.monotonic(inMilliseconds: pause)
        guard isNew else { return }
        if fault != .overload { milestones.stops += 1 }
        actions.append(.alert(topic: items[Int(slot)].topic, slot: slot, fault))
        guard wasClosed else { return }
        if !circuits[topic].isPaused, !circuits[topic].isParked { openCircuits += 1 }
        suspended(topic: UInt16(topic))
    }

    /// Opens the circuit without a request, because APNs has refused all keys of the pool. The item's turn then makes
    /// the item wait with its topic. A broadcast doesn't wait: it is sent, and its own answer ends it.
    /// - Parameter probeAt: time of the next probe of the keys, in nanoseconds of the monotonic clock. The topic has a
    ///   push for that probe.
    public mutating func keysRefused(_ slot: UInt32, probeAt: UInt64, at now: DeliveryTime) {
        let topic = Int(items[Int(slot)].topic)
        guard !items[Int(slot)].isOrdered else { return }
        if circuits[topic].state == .probing, circuits[topic].probe == Self.noSlot {
            circuits[topic].probe = slot
        }
        let fault = circuits[topic].state == .closed ? .refusal : circuits[topic].fault
        circuitFailed(slot, fault, at: now)
        guard circuits[topic].state == .open else { return }
        circuits[topic].until = min(circuits[topic].until, max(now.monotonicNanoseconds, probeAt))
    }

    /// Closes the circuit because APNs answered without blaming the topic: all waiting items continue.
    mutating func circuitRecovered(topic: UInt16, at now: DeliveryTime) {
        guard circuits[Int(topic)].state != .closed else { return }
        circuits[Int(topic)].state = .closed
        circuits[Int(topic)].failures = 0
        circuits[Int(topic)].tokens.startOver()
        circuits[Int(topic)].probe = Self.noSlot
        actions.append(.recovered(topic: topic))
        guard !circuits[Int(topic)].isWatched else { return endReadingAhead(topic, at: now) }
        openCircuits -= 1
        resumed(topic: topic)
        releaseWaiting(topic, at: now)
    }

    /// Dispatches the items that wait for their topic. Only those that wait now: a placed item may wait for another
    /// cause, but not for the topic.
    mutating func releaseWaiting(_ topic: UInt16, at now: DeliveryTime) {
        while circuits[Int(topic)].waiting.count > 0 {
            let slot = circuits[Int(topic)].waiting.first
            withdraw(slot)
            dispatch(slot, at: now)
        }
    }

    /// Releases the probes whose time has come.
    mutating func advanceCircuits(at now: DeliveryTime) {
        for topic in circuits.indices where circuits[topic].state != .closed && !circuits[topic].isPaused {
            if circuits[topic].state == .open {
                guard circuits[topic].until <= now.monotonicNanoseconds else { continue }
                circuits[topic].state = .probing
            }
            // Each pass takes one item from the list: an item that is placed elsewhere isn't the probe.
            while circuits[topic].state == .probing, circuits[topic].probe == Self.noSlot,
                circuits[topic].waiting.count > 0
            {
                let slot = nextProbe(topic)
                // A good push may be in the store behind many wrong tokens.
                if circuits[topic].fault == .tokens, items[Int(slot)].attempts > 0 {
                    askForProbe(topic, at: now)
                }
                withdraw(slot)
                dispatch(slot, at: now)
            }
            if circuits[topic].state == .probing, circuits[topic].probe == Self.noSlot {
                askForProbe(topic, at: now)
            }
        }
    }

    /// Requests a few of the topic's pushes from the store, at intervals, because none is in memory.
    private mutating func askForProbe(_ topic: Int, at now: DeliveryTime) {
        guard limits.storeIsDurable, circuits[topic].until <= now.monotonicNanoseconds else { return }
        circuits[topic].asked += 1
        // The store may have none, and has to search all due items to find out.
        let pause = limits.retry.configuration.wait(attempt: circuits[topic].failures, using: &generator)
        let times = Int64(min(circuits[topic].asked, Self.mostPauses))
        circuits[topic].until = now.monotonic(inMilliseconds: pause * times)
        actions.append(.pushesWanted(topic: UInt16(topic), count: TopicCircuit.probesWanted))
    }

    // MARK: In the store

    /// Returns true when the topic's pushes wait for a cause that no clock ends.
    func isSuspended(_ topic: UInt16) -> Bool {
        circuits[Int(topic)].isWatched || isUnavailable(circuits[Int(topic)].pool)
    }

    /// Returns true when pushes of the topic wait in the store with it; false for a topic that no push has had.
    public func hasSuspended(topic: UInt16) -> Bool {
        limits.storeIsDurable && Int(topic) < circuits.count && isSuspended(topic)
    }

    /// Topics whose pushes wait because APNs refuses the credential, the topic or most device tokens.
    public var stoppedTopics: Int { circuits.count { $0.state != .closed && $0.fault != .overload } }

    /// Topics whose pushes wait because APNs has asked for a pause for them.
    public var overloadedTopics: Int { circuits.count { $0.state != .closed && $0.fault == .overload } }

    mutating func suspended(topic: UInt16) {
        if limits.storeIsDurable { actions.append(.suspended(topic: topic)) }
    }

    mutating func resumed(topic: UInt16) {
        if limits.storeIsDurable, !isSuspended(topic) { actions.append(.resumed(topic: topic)) }
    }

    /// Returns the suspended push that probes next. Behind many wrong tokens a good push would wait for hours. Every
    /// other probe is therefore the newest push that was never tried.
    private func nextProbe(_ topic: Int) -> UInt32 {
        let circuit = circuits[topic]
        guard circuit.fault == .tokens, circuit.failures % 2 == 1 else { return circuit.waiting.first }
        var slot = circuit.waiting.last
        for _ in 0..<Self.probesLookedAt where slot != Self.noSlot {
            if items[Int(slot)].attempts == 0 { return slot }
            slot = items[Int(slot)].queuePrevious
        }
        return circuit.waiting.first
    }

    private static let probesLookedAt = 64
    /// Longest time between two requests to a store that has no probe, in pauses of the back-off.
    private static let mostPauses: UInt32 = 20

    /// Time at which a circuit next has work; `.max` when none has.
    var nextCircuitWake: UInt64 {
        var wake = UInt64.max
        for circuit in circuits
        where circuit.state != .closed && !circuit.isPaused && circuit.probe == Self.noSlot {
            if circuit.waiting.count == 0, !limits.storeIsDurable { continue }
            wake = min(wake, circuit.state == .probing && circuit.waiting.count > 0 ? 0 : circuit.until)
        }
        return wake
    }
}
