import EventLoop
import Glibc

/// One end of a simulated TCP connection, as its system keeps it. A closed end still sends what it was given, unless it
/// was reset.
// Sendable: as `Scheduler`.
public final class SimulatedSocket: @unchecked Sendable {
    /// Result of a system call.
    enum Transfer {
        case bytes(Int)
        /// Nothing is there, or there is no room.
        case none
        /// The peer has ended its stream.
        case ended
        /// The call's `errno`.
        case failed(Int32)
    }

    /// A packet to the peer. Positions count the bytes of a stream from its beginning.
    enum Packet {
        /// Attempt to connect, and its acceptance.
        case open, opened
        case data(start: UInt64, count: Int)
        /// Position through which bytes have arrived, and the end of the window.
        case acknowledgement(UInt64, edge: UInt64)
        /// End of the stream: FIN.
        case end
        case reset
    }

    private let isClient: Bool
    unowned var link: SimulatedLink!
    /// Descriptor while the process has the socket open, else -1.
    var descriptor: Int32 = -1
    /// Process that the socket belongs to; nil for one of the world, or one that no listener has received.
    public internal(set) var process: SimulatedProcess?
    /// Conditions of the packets that this end sends.
    public var path: SimulatedPath { didSet { pathChanged(oldValue) } }

    private(set) var isOpened = false
    /// Whether the process has closed the socket.
    private(set) var isClosed = false
    /// Nanoseconds at which the process has closed the socket; nil: it hasn't.
    public private(set) var closedAt: UInt64?
    /// Whether the connection is over for this system: by a reset, a failure, or a close before it was open.
    private(set) var isGone = false
    /// Error for the next call; 0 for none.
    private var error: Int32 = 0
    /// Whether the peer's stream has ended.
    private var inputEnded = false
    /// Whether no more is written, and whether the peer's system was told.
    private var outputEnded = false
    private var endSent = false
    /// Whether a close drops unsent bytes and resets the connection.
    var resetsOnClose = false
    private var readiness: Readiness = []

    /// Bytes that have arrived and were not read.
    private var input = ByteQueue(capacity: 4096)
    /// Bytes that were written and not acknowledged.
    private var output = ByteQueue(capacity: 4096)
    /// Position through which the output was sent.
    private var sentThrough: UInt64 = 0
    /// Position through which the peer's window lets output be sent.
    private var edge: UInt64
    /// End of the window that the peer knows.
    private var announced: UInt64 = 0

    /// Nanoseconds for which output may stay unacknowledged. By default the system's retries.
    var userTimeout: UInt64 = 924_000_000_000
    /// Time of the last acknowledgement, or of the first unacknowledged byte.
    private var progressAt: UInt64 = 0
    private var isTimeoutPlanned = false

    /// Time at which the last packet arrives.
    private var lastArrival: UInt64 = 0
    /// Number of packets that are on their way.
    private var underWay = 0
    /// Packets that the black hole has swallowed.
    private var held: [Packet] = []

    init(isClient: Bool, _ path: SimulatedPath) {
        self.isClient = isClient
        self.path = path
        edge = UInt64(path.window)
    }

    private var peer: SimulatedSocket { isClient ? link.server : link.client }
    private var window: UInt64 { UInt64(max(peer.path.window, 1)) }

    /// Whether the process may use the connection.
    var isUp: Bool { isOpened && !isGone && !isClosed }
    /// Whether nothing happens here any more.
    var isOver: Bool {
        isClosed && underWay == 0 && (isGone || endSent && output.isEmpty && held.isEmpty)
    }

    // MARK: Calls of the process

    func receive(into buffer: UnsafeMutableRawBufferPointer) -> Transfer {
        guard !isClosed else { return .failed(EBADF) }
        let count = min(buffer.count, input.count)
        guard count > 0 else {
            if error != 0 { return .failed(takeError()) }
            return inputEnded || isGone ? .ended : .none
        }
        buffer.copyMemory(from: UnsafeRawBufferPointer(rebasing: input.readable[..<count]))
        input.consume(count)
        announceWindow()
        updateReadiness()
        return .bytes(count)
    }

    /// Accepts bytes as far as the send buffer has room.
    func send(_ bytes: UnsafeRawBufferPointer) -> Transfer {
        guard !isClosed else { return .failed(EBADF) }
        if error != 0 { return .failed(takeError()) }
        guard !isGone, !outputEnded else { return .failed(EPIPE) }
        let count = min(bytes.count, path.sendBuffer - output.count)
        guard count > 0 else { return .none }
        if output.isEmpty { progressAt = now }
        output.append(UnsafeRawBufferPointer(rebasing: bytes[..<count]))
        transmit()
        updateReadiness()
        return .bytes(count)
    }

    /// Error of the attempt to connect; 0 when there is none.
    func takeError() -> Int32 {
        defer {
            error = 0
            updateReadiness()
        }
        return error
    }

    /// Written bytes that the peer's system has not acknowledged.
    var unacknowledged: Int { output.count }

    func endOutput() {
        guard !outputEnded else { return }
        outputEnded = true
        transmit()
        updateReadiness()
    }

    /// Closes the socket, also in place of a process that has died. Unread input turns the close into a reset.
    func close() {
        guard !isClosed else { return }
        isClosed = true
        closedAt = now
        if descriptor >= 0 { link.network?.closed(descriptor) }
        descriptor = -1
        guard !isGone else { return }
        if !isOpened {
            isGone = true
        } else if resetsOnClose || !input.isEmpty {
            isGone = true
            put(.reset)
        } else {
            outputEnded = true
            transmit()
        }
    }

    // MARK: The system

    private var now: UInt64 { link.network?.scheduler.now ?? 0 }

    func opened() {
        isOpened = true
        announced = window
        updateReadiness()
    }

    func refuse() {
        isGone = true
        isClosed = true
        put(.reset)
    }

    private func transmit() {
        guard isOpened, !isGone else { return }
        while sentThrough < min(output.endPosition, edge) {
            let count = min(Int(min(output.endPosition, edge) - sentThrough), max(path.packet, 1))
            put(.data(start: sentThrough, count: count))
            sentThrough += UInt64(count)
        }
        if outputEnded, !endSent, sentThrough == output.endPosition {
            endSent = true
            put(.end)
        }
        planTimeout()
    }

    /// Sends a packet.
    func put(_ packet: Packet) {
        guard let scheduler = link.network?.scheduler else { return }
        var delay = path.latency
        if path.jitter > 0 { delay += scheduler.below(path.jitter + 1) }
        lastArrival = max(lastArrival, scheduler.now + delay)
        if let rate = path.bytesPerSecond, case .data(_, let count) = packet {
            lastArrival += UInt64(count) * 1_000_000_000 / max(rate, 1)
        }
        underWay += 1
        scheduler.schedule(at: lastArrival) { [link] in
            withExtendedLifetime(link) { self.arrived(packet) }
        }
    }

    private func arrived(_ packet: Packet) {
        underWay -= 1
        guard path.isBlackHole || !held.isEmpty else { return peer.accept(packet) }
        // Nobody sends a reset again.
        if case .reset = packet { return }
        held.append(packet)
    }

    private func pathChanged(_ old: SimulatedPath) {
        if path.sendBuffer != old.sendBuffer { updateReadiness() }
        if path.window > old.window, peer.isOpened { peer.announceWindow() }
        guard old.isBlackHole, !path.isBlackHole, let scheduler = link.network?.scheduler else { return }
        // The systems send again what was lost, after a pause that depends on their last attempt.
        scheduler.schedule(after: path.latency + scheduler.below(200_000_000)) { [link] in
            withExtendedLifetime(link) { self.sendAgain() }
        }
    }

    private func sendAgain() {
        guard !path.isBlackHole else { return }
        let packets = held
        held = []
        if !isGone { for packet in packets { peer.accept(packet) } }
    }

    /// Receives a packet of the peer.
    func accept(_ packet: Packet) {
        switch packet {
        case .open: link.network?.arrived(link)
        case .opened:
            guard !isGone else { return put(.reset) }
            opened()
            transmit()
        case .data(let start, let count):
            guard !isGone, !isClosed, !inputEnded else {
                // Nobody will read this. The system of a process that has closed gives its own output up, too.
                if isClosed { isGone = true }
                return put(.reset)
            }
            peer.copy(from: start, count, to: &input)
            acknowledge()
            updateReadiness()
        case .acknowledgement(let position, let edge):
            guard !isGone else { return }
            if position > output.frontPosition {
                output.consume(Int(position - output.frontPosition))
                progressAt = now
            }
            self.edge = max(self.edge, edge)
            transmit()
            updateReadiness()
        case .end:
            inputEnded = true
            updateReadiness()
        case .reset: fail(isOpened ? ECONNRESET : ECONNREFUSED)
        }
    }

    private func copy(from start: UInt64, _ count: Int, to queue: inout ByteQueue) {
        let offset = Int(start - output.frontPosition)
        queue.append(UnsafeRawBufferPointer(rebasing: output.readable[offset..<offset + count]))
    }

    private func acknowledge() {
        announced = max(announced, input.frontPosition + window)
        put(.acknowledgement(input.endPosition, edge: announced))
    }

    /// Tells the peer's system of the room that reading has made, once that is worth a packet.
    private func announceWindow() {
        let edge = input.frontPosition + window
        if !isGone, edge > announced, edge - announced >= window / 2 { acknowledge() }
    }

    private func fail(_ code: Int32) {
        guard !isGone else { return }
        isGone = true
        error = code
        updateReadiness()
    }

    private func planTimeout() {
        guard !isTimeoutPlanned, !output.isEmpty, let scheduler = link.network?.scheduler else { return }
        isTimeoutPlanned = true
        scheduler.schedule(at: progressAt + userTimeout) { [weak self, weak link] in
            guard let self, link != nil else { return }
            isTimeoutPlanned = false
            guard !isGone, !output.isEmpty else { return }
            if now >= progressAt + userTimeout { fail(ETIMEDOUT) } else { planTimeout() }
        }
    }

    func updateReadiness() {
        guard descriptor >= 0 else { return }
        var current: Readiness = []
        if isGone {
            current = error == 0 ? [.read, .write, .hangup] : [.read, .write, .hangup, .error]
        } else if isOpened {
            // The end of the peer's stream alone is reported to those who read.
            if !input.isEmpty || inputEnded { current.insert(.read) }
            // As the real system, which reports room once a third of the buffer is free.
            if output.count * 3 <= path.sendBuffer * 2 { current.insert(.write) }
            if inputEnded, outputEnded { current.insert(.hangup) }
        }
        guard current != readiness else { return }
        readiness = current
        link.network?.scheduler.setReadiness(current, of: descriptor)
    }
}
