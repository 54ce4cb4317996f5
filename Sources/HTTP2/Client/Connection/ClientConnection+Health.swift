import EventLoop

/// Supervision and end of a connection. ``ConnectionHealth`` decides when each act is due.
extension ClientConnection {
    // MARK: Health

    func checkHealth() {
        readBeforeExpiring()
        guard state == .open else { return }
        // The clock is read afresh instead of the turn's time, because a PING's round trip begins here.
        let now = MonotonicTime.read().nanoseconds
        if let deadline = session.oldestDeadline, deadline <= now {
            let expired = session.expire(
                now: now, above: health.lastAnswer &+ requestTimeoutNanoseconds,
                arrivedThrough: arrivedThrough)
            counters.expired &+= UInt64(expired.all)
            // A connection that ends closes with its last request in any case.
            health.requestsExpired(isEnding ? 0 : expired.suspect, underWay: expired.underWay)
        }
        switch health.tick(now: now, openStreams: session.openStreams) {
        case .none: break
        case .suspend: break
        case .ping(let number):
            counters.pings &+= 1
            session.ping(number)
        case .close(let cause): return close(.unresponsive(cause))
        }
        if !session.output.isEmpty { scheduleFlush() }
        scheduleHealthCheck()
        deliver()
        noteAvailability()
        if state == .open, isEnding, session.openStreams == 0 { close(.drained) }
    }

    /// Reads before requests expire. After a pause of the whole process many unread answers may have arrived, whose
    /// requests are not late.
    private func readBeforeExpiring() {
        guard let deadline = session.oldestDeadline, deadline <= MonotonicTime.read().nanoseconds else {
            return
        }
        for _ in 0..<Self.catchUpTurns {
            if readAll() { return }
        }
    }

    private func scheduleHealthCheck() {
        let now = loop.now.nanoseconds
        var due = health.nextTick(openStreams: session.openStreams)
        if let deadline = session.oldestDeadline {
            // Deadlines close together are handled at once.
            let batch = min(configuration.requestTimeout.wholeNanoseconds / 20, 100_000_000)
            due = min(due, max(deadline, now &+ batch))
        }
        armTimer(at: max(due, now &+ 1_000_000))
    }

    /// Reports that the first of the open requests was sent: silence counts from here on.
    func watchFirstStream() {
        let now = loop.now.nanoseconds
        health.streamsOpened(now: now)
        let due = min(
            now &+ configuration.suspicionInterval.wholeNanoseconds,
            now &+ configuration.requestTimeout.wholeNanoseconds)
        if due < timerDue, pendingClose == nil { armTimer(at: due) }
    }

    private func armTimer(at due: UInt64) {
        guard pendingClose == nil else { return }
        if let timer { loop.cancel(timer) }
        timerDue = due
        timer = loop.schedule(at: MonotonicTime(nanoseconds: due), handler: self)
    }

    /// Reports to the owner when requests may no longer, or again, be placed here.
    func noteAvailability() {
        guard state == .open, health.isSuspended != wasSuspended else { return }
        wasSuspended.toggle()
        if wasSuspended { counters.suspensions &+= 1 }
        owner.connectionAvailabilityChanged(self)
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
        if state == .open, session.isSettled, case .drained = reason {
            session.goAway(.noError)
            flush()
            guard state != .closed else { return }
        }
        if state != .open, reason.kind != .endedByUs {
            // The address was of no use, whatever the cause: others are tried first for a while.
            if let dialer {
                failedAddresses = dialer.unsuccessful(timedOut: true)
            } else if !failedAddresses.contains(address) {
                failedAddresses.append(address)
            }
        }
        state = .closed
        dialer?.cancel()
        dialer = nil
        tunnel = nil
        if let timer { loop.cancel(timer) }
        if let resumeReading { loop.cancel(resumeReading) }
        timer = nil
        resumeReading = nil
        if let registration { loop.deregister(registration) }
        registration = nil
        let leftThrough = endTransport()
        if socket >= 0 { ClientSocket.close(socket) }
        socket = -1
        session.abandonStreams(
            leftThrough: leftThrough, code: reason.isOfServer ? .connectError : .cancel)
        deliver()
        owner.connectionClosed(self, reason: reason)
    }
}
