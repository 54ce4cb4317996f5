/// Timers in the order of their times, then of their creation.
struct KafkaTimers {
    enum Kind: UInt8 {
        // At the brokers.
        case batchArrives, groupRequest, groupDeadline, memberExpires, stepArrives, registerArrives, marker
        case offsetsMarker, transactionExpires
        // At the clients.
        case batchAcknowledged, expireRecords, fetchDone, groupAnswer, heartbeat, stepAnswered, stepTimedOut
        case registered, listed, rejoin, sendSync

        var isOfClient: Bool { rawValue >= Kind.batchAcknowledged.rawValue }
        /// A request or an answer that arrives.
        var isOfNetwork: Bool {
            switch self {
            case .batchArrives, .groupRequest, .stepArrives, .registerArrives, .batchAcknowledged, .fetchDone,
                .groupAnswer, .stepAnswered, .registered, .listed:
                true
            default: false
            }
        }
    }

    struct Timer {
        var time: UInt64
        var serial: UInt64
        var kind: Kind
        var client: Int32
        var place: Int32
        /// Epoch of the timer's subject; a timer of an older epoch has no effect.
        var epoch: Int32
        var subject: Int

        @inline(__always)
        func precedes(_ other: Timer) -> Bool {
            time != other.time ? time < other.time : serial < other.serial
        }
    }

    private var heap: [Timer] = []
    private var nextSerial: UInt64 = 0

    var count: Int { heap.count }
    var firstTime: UInt64? { heap.first?.time }

    mutating func add(
        _ kind: Kind, at time: UInt64, client: Int = -1, place: Int = 0, epoch: Int32 = 0, subject: Int = 0
    ) {
        let timer = Timer(
            time: time, serial: nextSerial, kind: kind, client: Int32(truncatingIfNeeded: client),
            place: Int32(truncatingIfNeeded: place), epoch: epoch, subject: subject)
        nextSerial += 1
        heap.append(timer)
        var index = heap.count - 1
        heap.withUnsafeMutableBufferPointer { heap in
            while index > 0 {
                let parent = (index - 1) >> 1
                guard timer.precedes(heap[parent]) else { break }
                heap[index] = heap[parent]
                index = parent
            }
            heap[index] = timer
        }
    }

    /// Removes and returns the first timer that is due; nil: none is.
    mutating func popDue(_ now: UInt64) -> Timer? {
        guard let first = heap.first, first.time <= now else { return nil }
        let last = heap.removeLast()
        let count = heap.count
        guard count > 0 else { return first }
        heap.withUnsafeMutableBufferPointer { heap in
            var index = 0
            while true {
                var child = 2 * index + 1
                guard child < count else { break }
                if child + 1 < count, heap[child + 1].precedes(heap[child]) { child += 1 }
                guard heap[child].precedes(last) else { break }
                heap[index] = heap[child]
                index = child
            }
            heap[index] = last
        }
        return first
    }
}
