import EventLoop
import HTTP2

/// Answers every request with 200, at once or after a fixed delay.
final class NullHandler: ServerRequestHandler {
    private let counters: SimulatorCounters
    private let delay: NullDelay?
    /// Nil once the connection is closed. Until then the connection owns this handler.
    private var connection: ServerConnection?
    /// The handler's place in ``NullDelay``.
    private var index: UInt32 = 0

    init(counters: SimulatorCounters, delay: NullDelay?, connection: ServerConnection) {
        self.counters = counters
        self.delay = delay
        self.connection = connection
    }

    func connectionOpened(_ connection: ServerConnection) {
        counters.add(.opened)
        if let delay { index = delay.add(self) }
    }

    func requestReceived(_ request: ServerRequest, on connection: ServerConnection) {
        counters.add(.absent)
        if let delay {
            delay.add(stream: request.stream, of: index)
        } else {
            connection.respond(stream: request.stream, status: 200)
        }
    }

    func connectionClosed(_ connection: ServerConnection, reason: ServerCloseReason) {
        self.connection = nil
        guard connection.wasOpened else { return }
        counters.add(.closed)
        delay?.remove(index)
    }

    func answer(_ stream: Int32) {
        connection?.respond(stream: stream, status: 200)
    }
}

/// Answers that wait for a fixed delay, in null mode. Equal delays fall due in the order of the requests, so a ring
/// behind one timer is enough. Nothing is allocated per request.
///
/// Due times are rounded up to 131 µs, so that answers due together leave in full TLS records. An answer is late by at
/// most that much, by half on average, plus the delay of a busy loop. Loop's thread only.
final class NullDelay: TimerHandler {
    private struct Entry {
        var due: UInt64
        var stream: Int32
        var handler: UInt32
    }

    /// A connection's place stays taken until its last answer has left the ring, so that no answer reaches another
    /// connection.
    private struct Place {
        var handler: NullHandler?
        var waiting = 0
    }

    private let loop: EventLoop
    private let delay: UInt64
    private var ring: UnsafeMutableBufferPointer<Entry>
    /// Positions that only rise. The ring's size is a power of two.
    private var head = 0
    private var tail = 0
    private var places: [Place] = []
    private var freePlaces: [UInt32] = []
    private var timer: TimerID?

    private static let grid: UInt64 = 1 << 17

    /// - Parameter delay: delay in nanoseconds.
    init(loop: EventLoop, delay: UInt64) {
        self.loop = loop
        self.delay = delay
        ring = .allocate(capacity: 1 << 17)
    }

    deinit { ring.deallocate() }

    func add(_ handler: NullHandler) -> UInt32 {
        let index = freePlaces.popLast() ?? UInt32(places.count)
        if Int(index) == places.count { places.append(Place()) }
        places[Int(index)].handler = handler
        return index
    }

    func remove(_ index: UInt32) {
        places[Int(index)].handler = nil
        if places[Int(index)].waiting == 0 { freePlaces.append(index) }
    }

    func add(stream: Int32, of handler: UInt32) {
        if tail - head == ring.count { grow() }
        // The time is read anew, because a turn that reads many requests takes as long as some of them wait.
        let due = (MonotonicTime.read().nanoseconds + delay + Self.grid - 1) & ~(Self.grid - 1)
        ring[tail & (ring.count - 1)] = Entry(due: due, stream: stream, handler: handler)
        tail += 1
        places[Int(handler)].waiting += 1
        if timer == nil { arm() }
    }

    /// Drops all answers, when no client is left to receive them.
    func removeAll() {
        if let timer { loop.cancel(timer) }
        timer = nil
        head = tail
    }

    private func arm() {
        guard head < tail else { return }
        let due = ring[head & (ring.count - 1)].due
        timer = loop.schedule(at: MonotonicTime(nanoseconds: due), handler: self)
    }

    func timerFired(_ id: TimerID) {
        timer = nil
        while head < tail {
            let entry = ring[head & (ring.count - 1)]
            guard entry.due <= loop.now.nanoseconds else { break }
            head += 1
            let index = Int(entry.handler)
            places[index].waiting -= 1
            if let handler = places[index].handler {
                handler.answer(entry.stream)
            } else if places[index].waiting == 0 {
                freePlaces.append(entry.handler)
            }
        }
        arm()
    }

    private func grow() {
        let grown = UnsafeMutableBufferPointer<Entry>.allocate(capacity: 2 * ring.count)
        for number in head..<tail { grown[number & (grown.count - 1)] = ring[number & (ring.count - 1)] }
        ring.deallocate()
        ring = grown
    }
}
