import DeliveryCore
import SluiceModel
import StreamScheduling

/// One stream of pushes with one app and one priority. Slots of the scheduler are its own.
struct LoadSource {
    enum Demand: Sendable {
        /// Every slot always waits or is in flight.
        case saturating
        /// So many pushes a second, evenly spaced, whether the ones before were answered or not. The time of each is
        /// the schedule's: what is begun late, because there was no slot or the loop was busy, has waited since then.
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
    /// When the push in each slot was due.
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

    /// Frees what the source has allocated; it is not used after this.
    func deallocate() {
        free.deallocate()
        dueTimes.deallocate()
    }

    var endSlot: UInt32 { firstSlot + UInt32(configuration.slots) }

    mutating func start(now: UInt64) {
        started = now
        if case .rate = configuration.demand { nextArrival = now }
    }

    /// The slot of the next push that is due now; nil when none is, or no slot is free.
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

    /// A push has ended.
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

    /// Pushes that are due by the schedule and have not ended, begun or not.
    func unfinished(now: UInt64) -> Int {
        switch configuration.demand {
        case .saturating: configuration.slots
        case .rate: now > started ? Int(Double(now - started) / interval) + 1 - finished : 0
        }
    }
}
