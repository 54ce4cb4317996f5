import DeliveryCore
import SluiceModel
import StreamScheduling

/// A source of pushes with an app, a priority and scheduler slots of its own.
struct LoadSource {
    enum Demand: Sendable {
        /// Each slot always waits or is in flight.
        case saturating
        /// Pushes per second, evenly spaced, whether earlier pushes were answered or not. Latency counts from
        /// the scheduled time. It includes the wait for a free slot or a busy loop.
        case rate(Double)
    }

    struct Configuration: Sendable {
        var app: UInt32 = 0
        var weight = 1
        var priority = Priority.immediate
        var demand = Demand.saturating
        var slots: Int
        var recordsLatency = false
    }

    let configuration: Configuration
    let firstSlot: UInt32
    let latencies: LatencyHistogram?
    private(set) var finished = 0
    private(set) var accepted = 0
    private(set) var otherAnswers = 0
    private(set) var unanswered = 0

    private let free: UnsafeMutablePointer<UInt32>
    private var freeCount: Int
    /// Due time of the push in each slot, in nanoseconds.
    private let dueTimes: UnsafeMutablePointer<UInt64>
    private var started: UInt64 = 0
    private var arrivals: UInt64 = 0
    private var nextArrival = UInt64.max
    private let interval: Double

    init(_ configuration: Configuration, firstSlot: UInt32) {
        self.configuration = configuration
        self.firstSlot = firstSlot
        latencies = configuration.recordsLatency ? LatencyHistogram() : nil
        freeCount = configuration.slots
        free = .allocate(capacity: freeCount)
        for index in 0..<freeCount { free[index] = firstSlot + UInt32(freeCount - 1 - index) }
        dueTimes = .allocate(capacity: freeCount)
        dueTimes.initialize(repeating: 0, count: freeCount)
        if case .rate(let rate) = configuration.demand { interval = 1e9 / rate } else { interval = 0 }
    }

    /// Frees the source's memory; the source must not be used afterwards.
    func deallocate() {
        free.deallocate()
        dueTimes.deallocate()
    }

    var endSlot: UInt32 { firstSlot + UInt32(configuration.slots) }

    mutating func start(now: UInt64) {
        started = now
        if case .rate = configuration.demand { nextArrival = now }
    }

    /// The slot of the next due push; nil when no push is due or no slot is free.
    @inline(__always)
    mutating func nextDue(now: UInt64) -> UInt32? {
        guard freeCount > 0 else { return nil }
        var due = now
        switch configuration.demand {
        case .saturating: break
        case .rate:
            guard nextArrival <= now else { return nil }
            due = nextArrival
            arrivals += 1
            nextArrival = started + UInt64(Double(arrivals) * interval)
        }
        freeCount -= 1
        let slot = free[freeCount]
        dueTimes[Int(slot - firstSlot)] = due
        return slot
    }

    /// Records the end of a push.
    @inline(__always)
    mutating func ended(_ slot: UInt32, status: UInt16?, now: UInt64, isMeasuring: Bool) {
        finished += 1
        switch status {
        case 200: accepted += 1
        case nil: unanswered += 1
        default: otherAnswers += 1
        }
        if isMeasuring, let latencies {
            let due = dueTimes[Int(slot - firstSlot)]
            latencies.record(nanoseconds: now > due ? now - due : 0)
        }
        free[freeCount] = slot
        freeCount += 1
    }

    /// Number of pushes that are due by the schedule and haven't ended, begun or not.
    func unfinished(now: UInt64) -> Int {
        switch configuration.demand {
        case .saturating: configuration.slots
        case .rate: now > started ? Int(Double(now - started) / interval) + 1 - finished : 0
        }
    }
}
