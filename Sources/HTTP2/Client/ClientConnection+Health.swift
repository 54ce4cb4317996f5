import EventLoop
import Glibc

/// How a connection is watched, and how it ends.
extension ClientConnection {
    // MARK: Health

    func scheduleHealthCheck() {
        // Deadlines are kept to a tenth of the request timeout, at most a second late.
        let tick = min(configuration.requestTimeout / 10, configuration.pingTimeout / 4, .seconds(1))
        timer = loop.schedule(after: max(tick, .milliseconds(10)), handler: self)
    }

    func checkHealth() {
        if let pendingClose { return close(pendingClose) }
        let now = loop.now
        let expired = session.expire(now: now.nanoseconds)
        timeoutsSinceAnswer += expired
        if timeoutsSinceAnswer >= Self.maximumTimeouts { return close(.unresponsive) }
        if pingSentAt == nil {
            let silent = now.nanoseconds(since: lastRead)
            if expired > 0 || silent >= configuration.pingInterval.wholeNanoseconds {
                pingNumber &+= 1
                session.ping(pingNumber)
                pingSentAt = now
            }
        } else if let pingSentAt,
            now.nanoseconds(since: pingSentAt) >= configuration.pingTimeout.wholeNanoseconds
        {
            return close(.unresponsive)
        }
        if !session.output.isEmpty { scheduleFlush() }
        scheduleHealthCheck()
        deliver()
        if state == .open, isEnding, session.openStreams == 0 { close(.drained) }
    }

    // MARK: Closing

    /// Closes from the loop, not from within the caller's call.
    func closeSoon(_ reason: ConnectionCloseReason) {
        guard pendingClose == nil, state != .closed else { return }
        pendingClose = reason
        if let timer { loop.cancel(timer) }
        timer = loop.schedule(at: loop.now, handler: self)
    }

    func close(_ reason: ConnectionCloseReason) {
        guard state != .closed else { return }
        if state == .open, case .drained = reason {
            session.goAway(.noError)
            flush()
            guard state != .closed else { return }
        }
        state = .closed
        if let timer { loop.cancel(timer) }
        if let resumeReading { loop.cancel(resumeReading) }
        timer = nil
        resumeReading = nil
        if let registration { loop.deregister(registration) }
        registration = nil
        transport?.close()
        transport = nil
        if socket >= 0 { Glibc.close(socket) }
        socket = -1
        session.abandonStreams()
        deliver()
        owner.connectionClosed(self, reason: reason)
    }
}
