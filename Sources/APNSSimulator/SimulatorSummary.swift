import SluiceModel
import Synchronization

/// Counts of a simulator since its start.
public struct SimulatorSummary: Sendable, Equatable, CustomStringConvertible {
    /// Pushes answered with 200.
    public internal(set) var accepted: UInt64 = 0
    /// Broadcasts answered with 200.
    public internal(set) var broadcasts: UInt64 = 0
    /// Requests of channel management, whatever the answer.
    public internal(set) var managementRequests: UInt64 = 0
    /// Pushes and broadcasts answered with an error, by reason.
    public internal(set) var rejected: [Reason: UInt64] = [:]
    /// Requests that the client cancelled before they were answered.
    public internal(set) var cancelled: UInt64 = 0
    /// Requests left unanswered on purpose.
    public internal(set) var unanswered: UInt64 = 0
    /// Connections whose TLS handshake was completed.
    public internal(set) var connections: UInt64 = 0
    /// Connections that are open now.
    public internal(set) var openConnections: UInt64 = 0
    /// Most connections open at a time. With several threads it is the sum over them, which may exceed the true
    /// maximum.
    public internal(set) var mostConnections: UInt64 = 0
    /// Connections that the simulator ended with GOAWAY for a fault of the client's certificate.
    public internal(set) var refusedConnections: UInt64 = 0

    /// Connections that the simulator ended with GOAWAY because their clients caused too many errors.
    public internal(set) var exhaustedConnections: UInt64 = 0

    /// All pushes and broadcasts that were judged.
    public var requests: UInt64 { accepted + broadcasts + rejected.values.reduce(0, +) }

    public var description: String {
        var text = "requests \(requests): accepted \(accepted)"
        if broadcasts > 0 { text += ", broadcasts \(broadcasts)" }
        for (reason, count) in rejected.sorted(by: {
            $0.value > $1.value || $0.value == $1.value && $0.key.rawValue < $1.key.rawValue
        }) {
            text += ", \(reason.name) \(count)"
        }
        if managementRequests > 0 { text += "; channel management \(managementRequests)" }
        if unanswered > 0 { text += "; unanswered \(unanswered)" }
        text += "; cancelled \(cancelled); connections \(connections), open \(openConnections)"
        if refusedConnections > 0 { text += ", refused \(refusedConnections)" }
        if exhaustedConnections > 0 { text += ", ended for errors \(exhaustedConnections)" }
        return text
    }
}

/// Counters of one shard. Only the shard's loop writes them; any thread may read them at any time.
// Sendable: the memory holds atomics only, is allocated in init and freed in deinit.
final class SimulatorCounters: @unchecked Sendable {
    private let base: UnsafeMutablePointer<Atomic<UInt64>>
    private static let reasons = Int(UInt8.max) + 1
    private static let count = reasons + Event.most.rawValue + 1

    enum Event: Int {
        case cancelled, opened, closed, refused, exhausted, unanswered
        /// Broadcasts accepted; requests of channel management.
        case broadcast, managed
        /// Most open connections so far.
        case most
    }

    init() {
        base = .allocate(capacity: Self.count)
        for index in 0..<Self.count { (base + index).initialize(to: Atomic(0)) }
    }

    deinit {
        base.deinitialize(count: Self.count)
        base.deallocate()
    }

    func add(_ reason: Reason) { increment(Int(reason.rawValue)) }
    func add(_ event: Event) {
        increment(Self.reasons + event.rawValue)
        if event == .opened, openConnections > value(.most) {
            base[Self.reasons + Event.most.rawValue].store(openConnections, ordering: .relaxed)
        }
    }

    /// Increments a counter with a load and a store. There is only one writer, so the bus lock of an atomic addition is
    /// unnecessary.
    private func increment(_ index: Int) {
        let value = base[index].load(ordering: .relaxed)
        base[index].store(value &+ 1, ordering: .relaxed)
    }

    private func value(_ event: Event) -> UInt64 {
        base[Self.reasons + event.rawValue].load(ordering: .relaxed)
    }

    private var openConnections: UInt64 { value(.opened) - min(value(.closed), value(.opened)) }

    func add(to summary: inout SimulatorSummary) {
        for reason in Reason.allCases {
            let count = base[Int(reason.rawValue)].load(ordering: .relaxed)
            if reason == .absent {
                summary.accepted += count
            } else if count > 0 {
                summary.rejected[reason, default: 0] += count
            }
        }
        summary.cancelled += value(.cancelled)
        summary.unanswered += value(.unanswered)
        summary.broadcasts += value(.broadcast)
        summary.managementRequests += value(.managed)
        summary.connections += value(.opened)
        summary.openConnections += openConnections
        summary.mostConnections += value(.most)
        summary.refusedConnections += value(.refused)
        summary.exhaustedConnections += value(.exhausted)
    }
}
