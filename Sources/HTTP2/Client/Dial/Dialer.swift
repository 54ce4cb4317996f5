import EventLoop

/// Receives the outcome of a dialing, on the loop's thread. Exactly one method is called, once, unless the dialing is
/// cancelled before.
protocol DialerOwner: AnyObject {
    /// Receives a connected, non-blocking socket, owned by the receiver from here on. The call is never within
    /// ``Dialer/start()``.
    func dialer(_ dialer: Dialer, connected socket: Int32, to address: SocketAddress)
    /// Receives the failure, perhaps within ``Dialer/start()``.
    func dialer(_ dialer: Dialer, failed error: DialError)
}

/// Opens a TCP connection to one of several addresses, as ``DialPlan`` decides. Use on the loop's thread only.
final class Dialer: TimerHandler {
    private let addresses: [SocketAddress]
    private let proxy: String?
    private let loop: EventLoop
    private let userTimeoutMilliseconds: Int32
    private unowned let owner: any DialerOwner
    private var plan: DialPlan
    private var attempts: [DialAttempt?]
    private var causes: [DialError.Cause]
    private var timer: TimerID?

    /// - Parameters:
    ///   - addresses: the addresses in the order to try them; at least one.
    ///   - proxy: name of the proxy in errors, when the addresses are the proxy's; nil for the server's own.
    ///   - userTimeoutMilliseconds: TCP_USER_TIMEOUT of the socket (RFC 5482). Bytes that stay unacknowledged for so
    ///     long end the connection, whatever the system's retries.
    init(
        addresses: [SocketAddress], proxy: String?, userTimeoutMilliseconds: Int32, loop: EventLoop,
        owner: any DialerOwner
    ) {
        precondition(!addresses.isEmpty, "dialing needs an address")
        self.addresses = addresses
        self.proxy = proxy
        self.loop = loop
        self.userTimeoutMilliseconds = userTimeoutMilliseconds
        self.owner = owner
        plan = DialPlan(attempts: addresses.count)
        attempts = Array(repeating: nil, count: addresses.count)
        causes = Array(repeating: .notTried, count: addresses.count)
    }

    deinit {
        if let timer { loop.cancel(timer) }
    }

    func start() {
        advance(.tick)
    }

    /// Closes all attempts under way; nothing is reported.
    func cancel() {
        if let timer { loop.cancel(timer) }
        timer = nil
        for index in attempts.indices { attempts[index]?.close() }
    }

    /// State of every attempt, for an opening whose time is up.
    var error: DialError {
        DialError(
            attempts: zip(addresses, causes).map { DialError.Attempt(address: $0, cause: $1) }, proxy: proxy)
    }

    /// Returns addresses that failed, or that an address tried later overtook. When the time is up (`timedOut`),
    /// addresses that have not answered count too.
    func unsuccessful(timedOut: Bool) -> [SocketAddress] {
        plan.attempts.indices.compactMap { index in
            switch plan.attempts[index] {
            case .failed: addresses[index]
            case .trying: timedOut || plan.attempts[index...].contains(.connected) ? addresses[index] : nil
            case .waiting, .connected: nil
            }
        }
    }

    func timerFired(_ timer: TimerID) {
        self.timer = nil
        advance(.tick)
    }

    fileprivate func ended(_ index: Int, code: Int32) {
        guard code == 0 else {
            attempts[index]?.close()
            causes[index] = .system(SystemError(call: "connect", code: code))
            return advance(.failed(index))
        }
        advance(.connected(index))
    }

    private func advance(_ first: DialPlan.Event) {
        var event = first
        while true {
            switch plan.handle(event, now: loop.now.nanoseconds) {
            case .wait: return armTimer()
            case .start(let index):
                guard let error = open(index) else { return armTimer() }
                causes[index] = .system(error)
                event = .failed(index)
            case .connected(let index):
                guard let socket = attempts[index]?.take() else { return }
                cancel()
                return owner.dialer(self, connected: socket, to: addresses[index])
            case .failed:
                cancel()
                return owner.dialer(self, failed: error)
            }
        }
    }

    private func armTimer() {
        if let timer { loop.cancel(timer) }
        timer = plan.nextStart.map { loop.schedule(at: MonotonicTime(nanoseconds: $0), handler: self) }
    }

    /// Begins an attempt; returns the error of an immediate failure.
    private func open(_ index: Int) -> SystemError? {
        let attempt: DialAttempt
        do throws(SystemError) {
            let socket = try ClientSocket.connect(
                to: addresses[index], userTimeoutMilliseconds: userTimeoutMilliseconds)
            attempt = DialAttempt(socket: socket, index: index, loop: loop, dialer: self)
            // Whether connected at once or not, the loop reports the result, so that the owner never receives it within
            // its own call.
            try attempt.watch()
        } catch {
            return error
        }
        attempts[index] = attempt
        causes[index] = .noAnswer
        return nil
    }
}

/// A connecting socket. The attempt owns the socket until the socket is handed over.
private final class DialAttempt: ReadinessHandler {
    private var socket: Int32
    private let index: Int
    private let loop: EventLoop
    private unowned let dialer: Dialer
    private var registration: Registration?

    init(socket: Int32, index: Int, loop: EventLoop, dialer: Dialer) {
        self.socket = socket
        self.index = index
        self.loop = loop
        self.dialer = dialer
    }

    deinit { close() }

    func watch() throws(SystemError) {
        registration = try loop.register(socket, interest: .write, handler: self)
    }

    func ready(_ readiness: Readiness) {
        dialer.ended(index, code: ClientSocket.error(of: socket))
    }

    func take() -> Int32? {
        unwatch()
        defer { socket = -1 }
        return socket >= 0 ? socket : nil
    }

    func close() {
        unwatch()
        if socket >= 0 { ClientSocket.close(socket) }
        socket = -1
    }

    private func unwatch() {
        if let registration { loop.deregister(registration) }
        registration = nil
    }
}
