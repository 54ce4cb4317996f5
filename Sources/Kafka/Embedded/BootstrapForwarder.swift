import Glibc

/// Makes the embedded cluster reachable under a fixed port: a small TCP forwarder on 127.0.0.1 with its own thread.
///
/// Kafka clients use the bootstrap address only to query the brokers' addresses. Afterwards they connect to the
/// advertised addresses, so the forwarder carries little traffic. The forwarder itself answers requests that the cluster
/// garbles (``VersionNegotiation``). At most 256 connections at a time; further
/// connections wait in the listen queue.
final class BootstrapForwarder: Sendable {
    let port: UInt16
    private let state: ForwarderLoop

    /// Starts listening and forwarding.
    /// - Parameters:
    ///   - port: 0: the system chooses a port.
    ///   - target: A port of 127.0.0.1.
    init(port: UInt16, target: UInt16) throws(KafkaError) {
        let listener = try LoopbackSocket.listen(port)
        var wake: [Int32] = [-1, -1]
        guard pipe(&wake) == 0 else {
            let reason = systemError()
            close(listener)
            throw .system("bootstrap forwarder: pipe: \(reason)")
        }
        self.port = LoopbackSocket.port(of: listener)
        state = ForwarderLoop(listener: listener, wakeReader: wake[0], wakeWriter: wake[1], target: target)
        do throws(KafkaError) {
            try state.start()
        } catch {
            state.closeAll()
            throw error
        }
    }

    /// Ends the thread and closes all connections. Call once.
    func stop() { state.stop() }
}

/// The forwarder's thread: a `poll(2)` over the listener and both ends of every connection.
// Sendable (@unchecked): the descriptors and `target` never change. The forwarder's thread alone uses `connections`.
// Start writes `thread` before any other call, and stop reads it.
private final class ForwarderLoop: @unchecked Sendable {
    private static let maximumConnections = 256

    private let listener: Int32
    /// Pipe that stops the thread: `stop` closes nothing before the thread has seen a byte and was joined.
    private let wakeReader: Int32
    private let wakeWriter: Int32
    private let target: UInt16
    private var thread = pthread_t()
    private var connections: [ForwardedConnection] = []

    init(listener: Int32, wakeReader: Int32, wakeWriter: Int32, target: UInt16) {
        self.listener = listener
        self.wakeReader = wakeReader
        self.wakeWriter = wakeWriter
        self.target = target
    }

    func start() throws(KafkaError) {
        thread = try startThread(for: "bootstrap forwarder") { self.run() }
    }

    func stop() {
        var one: UInt8 = 1
        _ = write(wakeWriter, &one, 1)
        pthread_join(thread, nil)
        closeAll()
    }

    func closeAll() {
        for descriptor in [listener, wakeReader, wakeWriter] { close(descriptor) }
    }

    private func run() {
        while true {
            var entries: [pollfd] = [
                pollfd(fd: wakeReader, events: Int16(POLLIN), revents: 0),
                pollfd(
                    fd: connections.count < Self.maximumConnections ? listener : -1, events: Int16(POLLIN),
                    revents: 0),
            ]
            for connection in connections {
                entries.append(connection.client.interest(peer: connection.broker))
                entries.append(connection.broker.interest(peer: connection.client))
            }
            guard poll(&entries, nfds_t(entries.count), -1) >= 0 || errno == EINTR else { break }
            if entries[0].revents != 0 { break }
            for (index, connection) in connections.enumerated() {
                connection.forward(
                    clientReady: entries[2 + 2 * index].revents, brokerReady: entries[3 + 2 * index].revents)
            }
            connections.removeAll { connection in
                guard connection.isFinished else { return false }
                connection.closeBoth()
                return true
            }
            if entries[1].revents & Int16(POLLIN) != 0 { accept() }
        }
        for connection in connections { connection.closeBoth() }
        connections.removeAll()
    }

    private func accept() {
        let client = Glibc.accept(listener, nil, nil)
        guard client >= 0 else { return }
        _ = fcntl(client, F_SETFL, O_NONBLOCK)
        _ = fcntl(client, F_SETFD, FD_CLOEXEC)
        guard let broker = LoopbackSocket.connect(target) else {
            close(client)
            return
        }
        connections.append(ForwardedConnection(client: ForwardedEnd(client), broker: ForwardedEnd(broker)))
    }
}

/// A client's connection and the matching connection to the broker.
private final class ForwardedConnection {
    let client: ForwardedEnd
    let broker: ForwardedEnd
    private var negotiation = VersionNegotiation()

    init(client: ForwardedEnd, broker: ForwardedEnd) {
        self.client = client
        self.broker = broker
    }

    var isFinished: Bool {
        client.hasFailed || broker.hasFailed || (client.hasForwardedEnd && broker.hasForwardedEnd)
    }

    func forward(clientReady: Int16, brokerReady: Int16) {
        let readable = Int16(POLLIN | POLLHUP | POLLERR)
        if clientReady & readable != 0, client.read(), !negotiation.isDone {
            let (forward, answer) = negotiation.take(client.takePending())
            client.keepPending(forward)
            broker.keepPending(answer)
        }
        if brokerReady & readable != 0 { broker.read() }
        client.flush(into: broker)
        broker.flush(into: client)
    }

    func closeBoth() {
        close(client.descriptor)
        close(broker.descriptor)
    }
}

/// An end of a connection, with bytes that were read from it and are not yet written to the other end.
private final class ForwardedEnd {
    private static let capacity = 65_536

    let descriptor: Int32
    private var pending: [UInt8] = []
    private var hasEnded = false
    private(set) var hasFailed = false
    /// Whether the end of this direction has been forwarded (TCP half-close).
    private(set) var hasForwardedEnd = false

    init(_ descriptor: Int32) { self.descriptor = descriptor }

    func interest(peer: ForwardedEnd) -> pollfd {
        var events: Int32 = 0
        if !hasEnded, pending.isEmpty { events |= POLLIN }
        if !peer.pending.isEmpty { events |= POLLOUT }
        // A descriptor without interest would still report a hang-up, again and again.
        return pollfd(fd: events == 0 ? -1 : descriptor, events: Int16(events), revents: 0)
    }

    /// Returns whether bytes were read.
    @discardableResult
    func read() -> Bool {
        guard !hasEnded, pending.isEmpty else { return false }
        var failed = false
        var ended = false
        pending = [UInt8](unsafeUninitializedCapacity: Self.capacity) { buffer, count in
            let received = recv(descriptor, buffer.baseAddress, buffer.count, 0)
            count = max(0, received)
            ended = received == 0
            failed = received < 0 && errno != EAGAIN && errno != EINTR
        }
        if ended { hasEnded = true }
        if failed { hasFailed = true }
        return !pending.isEmpty
    }

    /// Removes the bytes that are not yet written to the other end.
    func takePending() -> [UInt8] {
        defer { pending = [] }
        return pending
    }

    /// Adds bytes for the other end, as if they had been read from this one.
    func keepPending(_ bytes: [UInt8]) { pending += bytes }

    func flush(into peer: ForwardedEnd) {
        while !pending.isEmpty {
            let sent = pending.withUnsafeBytes {
                send(peer.descriptor, $0.baseAddress, $0.count, Int32(truncatingIfNeeded: Int(MSG_NOSIGNAL)))
            }
            if sent > 0 {
                pending.removeFirst(sent)
            } else {
                if errno != EAGAIN && errno != EINTR { hasFailed = true }
                return
            }
        }
        if hasEnded, !hasForwardedEnd {
            hasForwardedEnd = true
            shutdown(peer.descriptor, Int32(SHUT_WR))
        }
    }
}

/// Sockets on 127.0.0.1.
private enum LoopbackSocket {
    static let flags = Int32(SOCK_NONBLOCK.rawValue | SOCK_CLOEXEC.rawValue)

    static func listen(_ port: UInt16) throws(KafkaError) -> Int32 {
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | flags, 0)
        guard descriptor >= 0 else { throw .system("bootstrap forwarder: socket: \(systemError())") }
        var one: Int32 = 1
        setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &one, socklen_t(MemoryLayout<Int32>.size))
        let bound = withAddress(port) { bind(descriptor, $0, $1) }
        guard bound == 0, Glibc.listen(descriptor, 64) == 0 else {
            let taken = errno == EADDRINUSE
            let reason =
                taken
                ? "the port is in use; choose another port, or stop the process that uses it" : systemError()
            close(descriptor)
            throw .system("cannot listen on 127.0.0.1:\(port): \(reason)")
        }
        return descriptor
    }

    /// Connects without blocking. On loopback the connection is made or refused before the call returns, or completes
    /// while data is queued.
    static func connect(_ port: UInt16) -> Int32? {
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | flags, 0)
        guard descriptor >= 0 else { return nil }
        guard withAddress(port, { Glibc.connect(descriptor, $0, $1) }) == 0 || errno == EINPROGRESS else {
            close(descriptor)
            return nil
        }
        return descriptor
    }

    static func port(of descriptor: Int32) -> UInt16 {
        var address = sockaddr_in()
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        _ = withUnsafeMutablePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { getsockname(descriptor, $0, &length) }
        }
        return UInt16(bigEndian: address.sin_port)
    }

    private static func withAddress(
        _ port: UInt16, _ body: (UnsafePointer<sockaddr>, socklen_t) -> Int32
    )
        -> Int32
    {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr = in_addr(s_addr: UInt32(0x7F00_0001).bigEndian)
        return withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                body($0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
    }
}

private func systemError() -> String { String(cString: strerror(errno)) }
