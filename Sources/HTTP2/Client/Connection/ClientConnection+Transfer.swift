import EventLoop

/// Transfer of bytes between TLS and the session, and of events to the owner.
extension ClientConnection {
    // MARK: Reading

    /// Reads the received bytes, up to a limit per turn. Returns true when there is no more for now.
    @discardableResult
    func readAll() -> Bool {
        guard let transport, state == .open || state == .negotiating else { return true }
        for _ in 0..<Self.readsPerTurn {
            let room = input.prepare(Self.readSize)
            switch transport.read(into: room) {
            case .bytes(let count):
                input.commit(count)
                counters.reads &+= 1
                counters.bytesReceived &+= UInt64(count)
                health.bytesRead(now: loop.now.nanoseconds)
                guard process() else { return true }
            case .wantRead: return true
            case .wantWrite:
                want([.read, .write])
                return true
            case .closed(let clean):
                close(.closedByServer(clean: clean))
                return true
            case .failed(let error):
                close(.tls(error))
                return true
            }
        }
        // More bytes may wait in TLS, which the socket does not report.
        if transport.hasBufferedInput, resumeReading == nil {
            resumeReading = loop.schedule(at: loop.now + .nanoseconds(1), handler: self)
        }
        return false
    }

    /// Passes the received bytes to the session and its events to the owner. Returns false when the connection has
    /// ended.
    private func process() -> Bool {
        let waitsForWindow = session.hasBlockedStreams
        do throws(HTTP2ConnectionError) {
            let before = session.lateAnswers
            let used = try session.receive(input.readable)
            input.consume(used)
            if session.lateAnswers != before { health.answered(now: loop.now.nanoseconds) }
        } catch {
            deliver()
            flush()
            close(.http2(error))
            return false
        }
        if state == .negotiating, session.peerMaximumStreams != nil { opened() }
        if !session.output.isEmpty {
            // The new output may include the rest of a request.
            if waitsForWindow { hasUnsentRequests = true }
            scheduleFlush()
        }
        deliver()
        noteAvailability()
        if state == .open, isEnding, session.openStreams == 0 { closeSoon(.drained) }
        return state != .closed
    }

    func deliver() {
        guard !isDelivering else { return }
        isDelivering = true
        while session.events.count > 0 {
            swap(&session.events, &delivering)
            if let first = delivering.all.baseAddress {
                for index in delivering.all.indices { count(first + index) }
            }
            owner.connection(self, received: delivering.all)
            delivering.removeAll()
        }
        isDelivering = false
    }

    /// By address, because an event is large.
    private func count(_ event: UnsafePointer<ClientEvent>) {
        switch event.pointee.kind {
        case .response:
            hasAnswered = true
            // The end of a cut answer shows nothing: its status came earlier.
            if !event.pointee.isCut { health.answered(now: loop.now.nanoseconds) }
            counters.count(status: event.pointee.status)
        case .goAway: counters.goAwaysReceived &+= 1
        case .pingAnswered: health.pingAnswered(number: event.pointee.code, now: loop.now.nanoseconds)
        case .failed, .capacityChanged: break
        }
    }

    // MARK: Writing

    func scheduleFlush() {
        guard !flushScheduled, state == .open || state == .negotiating else { return }
        flushScheduled = true
        loop.atTurnEnd(self)
    }

    func flush() {
        guard let transport, state == .open || state == .negotiating else { return }
        let wasBlocked = isBlocked
        if let error = writeFailure ?? writeOutput(to: transport) {
            return outputFailed(error, on: transport)
        }
        // Perhaps no other event on the connection would make the owner look again.
        if wasBlocked, !isBlocked, state == .open { owner.connectionAvailabilityChanged(self) }
    }

    /// Sends the full records of the output, so that the socket shows in time when it takes no more. The owner is in
    /// the middle of its requests, and learns of a fault at the end of the turn.
    func sendFullRecords() {
        guard let transport, !isBlocked else { return }
        writeFailure = writeOutput(to: transport, onlyFullRecords: true)
    }

    /// Returns the error of a write that failed.
    private func writeOutput(to transport: TLSTransport, onlyFullRecords: Bool = false) -> TLSError? {
        transport.sendDeadline =
            hasUnsentRequests ? configuration.permit?.until.nanoseconds ?? .max : .max
        let record = TLSTransport.maximumRecordSize
        let least = onlyFullRecords ? record : 1
        transport.willWrite(session.output.count)
        isBlocked = true
        while session.output.count >= least {
            let waiting = session.output.readable
            switch transport.write(UnsafeRawBufferPointer(rebasing: waiting.prefix(record))) {
            case .bytes(let count):
                session.output.consume(count)
                counters.writes &+= 1
                counters.bytesSent &+= UInt64(count)
                counters.bytesPerWrite.record(count)
            case .wantWrite:
                want([.read, .write])
                return nil
            case .wantRead:
                want(.read)
                return nil
            case .failed(let error): return error
            }
        }
        switch transport.flushOutput() {
        case .done, .wantRead:
            isBlocked = false
            hasUnsentRequests = hasUnsentRequests && !session.output.isEmpty
            want(.read)
        case .wantWrite: want([.read, .write])
        case .failed(let error): return error
        }
        return nil
    }

    /// Position up to which the server's system certainly has the output. Makes a system call.
    var arrivedThrough: UInt64 {
        let taken = session.output.frontPosition
        return taken - min(taken, UInt64(transport?.unacknowledged ?? 0))
    }

    /// Closes TLS and the socket. Returns the position up to which the system has the output, even in part.
    func endTransport() -> UInt64 {
        let taken = session.output.frontPosition
        guard let transport else { return taken }
        // Otherwise the system would go on sending requests whose answers nobody waits for any more.
        transport.resetsOnClose = !session.isSettled
        let backlog = transport.close()
        self.transport = nil
        return taken &- UInt64(backlog.untouched) &+ UInt64(backlog.begun)
    }

    private func outputFailed(_ error: TLSError, on transport: TLSTransport) {
        // A server that closed may have sent its reason, and which requests it has not processed.
        readLastInput(from: transport)
        let isPermitted = !hasUnsentRequests || configuration.permit?.isValid ?? true
        close(isPermitted ? .tls(error) : .permitEnded)
    }

    private func readLastInput(from transport: TLSTransport) {
        for _ in 0..<Self.lastReads {
            let room = input.prepare(Self.readSize)
            guard case .bytes(let count) = transport.read(into: room) else { break }
            input.commit(count)
        }
        if let used = try? session.receive(input.readable) { input.consume(used) }
    }
}
