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
            health.answered(now: loop.now.nanoseconds)
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
        if session.output.count >= Self.outputLimit { isOutputFull = true }
        writeOutput()
        // Perhaps no other event on the connection would make the owner look again.
        if isOutputFull, session.output.count < Self.outputLimit / 2, state == .open {
            isOutputFull = false
            owner.connectionAvailabilityChanged(self)
        }
    }

    private func writeOutput() {
        guard let transport, state == .open || state == .negotiating else { return }
        transport.sendDeadline =
            hasUnsentRequests ? configuration.permit?.until.nanoseconds ?? .max : .max
        transport.willWrite(session.output.count)
        while !session.output.isEmpty {
            let waiting = session.output.readable
            let record = UnsafeRawBufferPointer(rebasing: waiting.prefix(TLSTransport.maximumRecordSize))
            switch transport.write(record) {
            case .bytes(let count):
                session.output.consume(count)
                counters.writes &+= 1
                counters.bytesSent &+= UInt64(count)
                counters.bytesPerWrite.record(count)
            case .wantWrite:
                want([.read, .write])
                return
            case .wantRead:
                want(.read)
                return
            case .failed(let error): return outputFailed(error, on: transport)
            }
        }
        switch transport.flushOutput() {
        case .done, .wantRead:
            hasUnsentRequests = false
            want(.read)
        case .wantWrite: want([.read, .write])
        case .failed(let error): outputFailed(error, on: transport)
        }
    }

    /// Closes TLS and the socket. Returns the position up to which the system has the output, even in part.
    func endTransport() -> UInt64 {
        let taken = session.output.frontPosition
        guard let transport else { return taken }
        // The `close_notify` would carry along requests whose answers nobody waits for any more.
        if hasUnsentRequests { transport.sendDeadline = 0 }
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
