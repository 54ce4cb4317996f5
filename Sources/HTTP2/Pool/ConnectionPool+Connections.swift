import EventLoop

/// Openings, and the events of connections.
extension ConnectionPool: ClientConnectionOwner, AddressLookupOwner {
    /// Looks the name up afresh, so that load spreads over the hosts behind the name, and dials. The look-up gets at
    /// most half of the connect timeout, and the connection gets the rest.
    func open(_ number: UInt32) {
        openingStarted[Int(number)] = loop.now
        let proxy = configuration.connection.proxy
        let lookup = AddressLookup(
            number: number, host: proxy?.host ?? configuration.host,
            port: proxy?.port ?? configuration.port, deadline: configuration.connection.connectTimeout / 2,
            resolver: resolver, loop: loop, owner: self)
        lookups[Int(number)] = lookup
        lookup.start()
    }

    package func lookup(_ lookup: AddressLookup, ended end: LookupEnd) {
        let number = lookup.number
        lookups[Int(number)] = nil
        guard !machine.isClosing else { return }
        guard machine.members[Int(number)].generation == machine.generation else {
            // The credential, and maybe the proxy, were replaced during the look-up.
            machine.ended(number, .ours, now: loop.now.nanoseconds)
            return carryOut()
        }
        let taken = loop.now.nanoseconds(since: openingStarted[Int(number)])
        let step = knownAddresses.apply(
            end, host: configuration.connection.proxy?.host ?? configuration.host,
            afterMilliseconds: taken / 1_000_000)
        if case .addresses = end {} else { counters.lookupsFailed += 1 }
        if let change = step.change { delegate.pool(self, happened: .resolver(change)) }
        if let error = step.error { delegate.pool(self, happened: .resolveFailed(error)) }
        guard !step.addresses.isEmpty else {
            counters.openingsFailed += 1
            machine.ended(number, .failed, now: loop.now.nanoseconds)
            return carryOut()
        }
        let ordered = addressOrder.next(
            step.addresses, inUse: connections.compactMap { $0?.address }, now: loop.now.nanoseconds)
        var configuration = configuration.connection
        let left = configuration.connectTimeout - .nanoseconds(Int64(clamping: taken))
        configuration.connectTimeout = max(left, configuration.connectTimeout / 2)
        let connection = ClientConnection(
            number: number, generation: machine.members[Int(number)].generation, addresses: ordered,
            serverName: self.configuration.host, certificateName: self.configuration.serverName,
            port: self.configuration.port, context: context, fields: fields, configuration: configuration,
            loop: loop, owner: self)
        connections[Int(number)] = connection
        connection.connect()
    }

    private func learnAddresses(of connection: ClientConnection) {
        for address in connection.failedAddresses {
            addressOrder.failed(address, now: loop.now.nanoseconds)
        }
    }

    public func connectionOpened(_ connection: ClientConnection) {
        counters.opened += 1
        learnAddresses(of: connection)
        addressOrder.connected(connection.address)
        knownAddresses.connected(connection.address)
        machine.opened(connection.number, now: loop.now.nanoseconds)
        delegate.pool(
            self,
            happened: .opened(
                connection: connection.number, address: "\(connection.address)",
                tls: connection.tlsDescription,
                handshakeNanoseconds: loop.now.nanoseconds(since: openingStarted[Int(connection.number)])))
        carryOut()
        delegate.poolHasCapacity(self)
    }

    public func connectionAvailabilityChanged(_ connection: ClientConnection) {
        report(connection)
        delegate.poolHasCapacity(self)
    }

    public func connection(
        _ connection: ClientConnection, received events: UnsafeBufferPointer<ClientEvent>
    ) {
        let now = loop.now.nanoseconds
        var judgement = Judgement()
        var unknown = 0
        // The apps' places in flight are free, and the slots idle, before the owner enqueues any slot again.
        // By address, because a loop over the events would copy each.
        guard let first = events.baseAddress else { return }
        for index in events.indices where (first + index).pointee.kind == .response {
            scheduler.prefetch(slot: (first + index).pointee.tag)
        }
        for index in events.indices {
            switch (first + index).pointee.kind {
            case .response:
                ended((first + index).pointee.tag, now: now)
                judgement.note(status: (first + index).pointee.status)
            case .failed:
                let event = events[index]
                if probe == event.tag { (probe, judgement.hasProbe) = (nil, true) }
                scheduler.ended(slot: event.tag, now: now)
                if event.processed == .no { counters.notProcessed += 1 } else { unknown += 1 }
                if event.isStreamError {
                    counters.streamErrors += 1
                    judgement.noteError()
                }
            case .goAway:
                let event = events[index]
                counters.goAways += 1
                counters.lastGoAway = event.code
                counters.lastGoAwayReason = Array(event.body.prefix(256))
                delegate.pool(
                    self,
                    happened: .goAway(
                        connection: connection.number, generation: connection.generation,
                        code: HTTP2ErrorCode(rawValue: event.code),
                        debugData: Array(event.body.prefix(256))))
            case .capacityChanged, .pingAnswered: break
            }
        }
        counters.unknown += unknown
        if judgement.errors > 0 || unknown > 0 || appAnswers.isWatching {
            judgement.leaveOut(errorsOfApps(in: events, isEnding: connection.isEnding, now: now))
        }
        judge(connection, judgement, unknown: unknown, now: now)
        if connection.isEnding { machine.ending(connection.number, now: now) }
        report(connection)
        delegate.pool(self, received: events, on: connection)
        delegate.poolHasCapacity(self)
        if !machine.actions.isEmpty { carryOut() }
    }

    /// Counts the answers of a read by app, and returns the number of errors that concern their apps alone.
    private func errorsOfApps(
        in events: UnsafeBufferPointer<ClientEvent>, isEnding: Bool, now: UInt64
    ) -> Int {
        var failed: [UInt32] = []
        for event in events {
            let isError: Bool
            switch event.kind {
            case .response: isError = Judgement.isError(status: event.status)
            case .failed where event.isStreamError: isError = true
            // The other requests of a connection that we end may have been answered later.
            case .failed where event.isExpired && !isEnding:
                appAnswers.noteExpired(scheduler.lastApp(slot: event.tag), now: now)
                continue
            case .failed, .capacityChanged, .goAway, .pingAnswered: continue
            }
            let app = scheduler.lastApp(slot: event.tag)
            appAnswers.note(app, isError: isError, now: now)
            if isError { failed.append(app) }
        }
        appAnswers.advance(to: now)
        return failed.count { appAnswers.concernsAppAlone($0) }
    }

    /// Answers of one read, and how they reflect on the server.
    private struct Judgement {
        /// Numbers of answers from a working server, and from a server in trouble.
        var good = 0
        var errors = 0
        /// Number of errors after the last good answer.
        var last = 0
        /// Whether a good answer was about the push.
        var isAccepted = false
        /// A readable answer arrived.
        var isAnswered = false
        /// The request that probes ended without an answer.
        var hasProbe = false

        mutating func note(status: UInt16) {
            isAnswered = true
            guard !Self.isError(status: status) else { return noteError() }
            good += 1
            last = 0
            if ClientEvent.isAboutPush(status: status) { isAccepted = true }
        }

        mutating func noteError() {
            errors += 1
            last += 1
        }

        /// Leaves out errors that say nothing about the server.
        mutating func leaveOut(_ others: Int) {
            errors -= others
            last = min(last, errors)
        }

        /// True when an answer shows a server in trouble. APNs sends only 2xx, 4xx and 5xx: another sender answers in its
        /// place.
        static func isError(status: UInt16) -> Bool { status / 100 != 2 && status / 100 != 4 }
    }

    /// Reports to the machine how a read reflects on the server.
    private func judge(
        _ connection: ClientConnection, _ judgement: Judgement, unknown: Int, now: UInt64
    ) {
        machine.served(connection.number, judgement.good)
        if judgement.isAnswered { machine.heard(connection.number) }
        let member = machine.members[Int(connection.number)]
        if judgement.isAnswered,
            !member.hasAnswered || judgement.isAccepted && (!member.isAccepted || machine.failures > 0)
        {
            machine.answered(connection.number, isAccepted: judgement.isAccepted)
            machine.maintain(now: now)
        }
        // While the circuit is half open, only failures of the connection with the probe count.
        var isJudged = true
        if case .halfOpen = machine.circuit { isJudged = connection.number == machine.probe }
        let errors = isJudged ? judgement.errors : 0
        if judgement.good + errors > 0 {
            machine.answers(
                good: judgement.good, serverErrors: errors, last: isJudged ? judgement.last : 0, now: now)
        } else if unknown > 0, isJudged, !member.isSuspect || judgement.hasProbe {
            // Earlier requests on a suspect connection say nothing new.
            machine.probeUnanswered(now: now)
        }
    }

    public func connectionClosed(_ connection: ClientConnection, reason: ConnectionCloseReason) {
        learnAddresses(of: connection)
        connections[Int(connection.number)] = nil
        scheduler.connectionRemoved(connection.number)
        counters.add(connection.statistics, endedBy: reason.kind)
        let end: PoolStateMachine.End =
            switch reason.kind {
            case .endedByUs: .ours
            // The owner judges a refused certificate, and may stop the pool.
            case .settings: reason.refusesCertificate ? .failed : .settings
            case .network, .protocolBreach, .endedByServer: .failed
            }
        machine.ended(connection.number, end, now: loop.now.nanoseconds)
        delegate.pool(
            self,
            happened: .closed(
                connection: connection.number, generation: connection.generation, reason: reason))
        carryOut()
    }
}

/// Carries a value that belongs to one event loop through a `@Sendable` closure that runs on that loop.
// Sendable: the value is only used on the loop that it was taken from.
package struct LoopConfined<Value>: @unchecked Sendable {
    package let value: Value
    package init(_ value: Value) { self.value = value }
}
