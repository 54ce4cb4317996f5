import APNS
import Configuration
import DeliveryCore
import EventLoop
import HTTP2
import Logging
import Metrics
import SluiceModel
import StreamScheduling

/// A credential on one shard: its pool, its header encoders, its provider tokens.
///
/// Connections of a generation before serve until their successors are open, each with the header encoder and the
/// provider token of its own generation.
final class CredentialPool {
    /// Parts that a generation of the credential sends with.
    private struct Access {
        var identity: CredentialIdentity
        var encoder: PushRequestEncoder
        /// Header fields of the generation's connections.
        var fields: StableFields
        /// Index of the generation's key in ``CredentialIdentity/keys``.
        var key: Int
        /// Generation of the provider token in use; 0 before the first token, and with a certificate.
        var tokenGeneration: UInt64 = 0
        /// Time of the token's issue, in seconds since the epoch; nil before the first token.
        var tokenIssued: Int64?

        var tokens: ProviderTokenSource? { identity.keys?.sources[key] }
    }

    let index: UInt16
    let name: String
    let environment: Configuration.APNS.Environment
    let connections: ConnectionPool
    /// Connection for isolated pushes. Nil before the first such push.
    private(set) var isolated: ConnectionPool?
    /// Limits of the apps that send with the credential.
    private var limits: [(app: UInt32, limits: AppLimits)] = []
    private let notifications: NotificationTable
    private let loop: EventLoop
    private unowned let delegate: any ConnectionPoolDelegate
    private let status: CredentialStatus
    private var generations: CredentialGenerations<Access>
    /// Answers other than 200 by ``Reason/rawValue``.
    private(set) var reasons = [Int](repeating: 0, count: Reason.allCases.count)
    /// Times from a request's sending to its answer, in the order of `Priority.allCases`.
    private let latencies = (ExponentialHistogram(), ExponentialHistogram(), ExponentialHistogram())
    /// Time of the next probe after the one that this pool may send, in nanoseconds of the monotonic clock; nil when
    /// this pool has no probe to send.
    private var probeUntil: UInt64?
    /// Connections on which APNs refuses provider tokens as expired.
    private var expiries = ExpiredTokenRuns()
    /// Log of the shard.
    private let notices: NoticeLog

    /// Age below which a connection is replaced when the provider token changes. APNs could take a second token on it as
    /// an update too many.
    private static let youngConnection: Duration = .seconds(20 * 60)

    init(
        index: UInt16, plan: CredentialPoolPlan, notifications: NotificationTable, apps: Int, seed: UInt64,
        loop: EventLoop, notices: NoticeLog, delegate: any ConnectionPoolDelegate
    ) {
        self.index = index
        self.notices = notices
        self.notifications = notifications
        self.loop = loop
        self.delegate = delegate
        name = plan.name
        environment = plan.environment
        status = plan.status
        let fields = StableFields()
        generations = CredentialGenerations(
            hasKeys: plan.identity.keys != nil,
            Access(
                identity: plan.identity,
                encoder: PushRequestEncoder(fields: fields, authority: plan.authority), fields: fields,
                key: plan.identity.keys?.current ?? 0))
        var configuration = plan.pool
        configuration.apps = apps
        configuration.seed = seed
        connections = ConnectionPool(
            configuration: configuration, context: plan.identity.context, fields: fields,
            notifications: notifications, loop: loop, delegate: delegate)
    }

    /// Parts that requests are sent with now.
    private var access: Access { generations.serving.access }

    /// Sets the limits of an app. Returns false when a limit is out of its range.
    func setLimits(app: UInt32, _ limits: AppLimits) -> Bool {
        self.limits.append((app, limits))
        return connections.scheduler.setLimits(app: app, limits, now: loop.now.nanoseconds)
    }

    /// Lets at most so many pushes of an app be in flight, or as many as its own limits allow.
    func limitFlights(app: UInt32, _ most: Int) {
        let own = limits.last { $0.app == app }?.limits.maximumInFlight ?? .max
        connections.scheduler.setMaximumInFlight(app: app, min(own, most))
    }

    // MARK: Isolation

    /// Returns the connection for isolated pushes, and opens it before the first of them. Nothing that happens there
    /// delays the others' connections.
    func isolate() -> ConnectionPool {
        if let isolated { return isolated }
        var configuration = connections.configuration
        configuration.connections = 1
        configuration.maximumConnections = nil
        // Other isolated pushes wait while a connection that ended is replaced.
        configuration.reconnectMaximum = min(configuration.reconnectMaximum, .seconds(2))
        let pool = ConnectionPool(
            configuration: configuration, context: access.identity.context, fields: access.fields,
            notifications: notifications, loop: loop, delegate: delegate)
        for entry in limits {
            pool.scheduler.setLimits(app: entry.app, entry.limits, now: loop.now.nanoseconds)
        }
        isolated = pool
        renew(pool, atOnce: false)
        pool.start()
        return pool
    }

    /// Returns the pool of one of the credential's connections.
    func owner(of connection: ClientConnection) -> ConnectionPool {
        if let isolated, isolated.has(connection) { isolated } else { connections }
    }

    /// Removes a push from the queue where it waits, if it waits.
    func dequeue(_ slot: UInt32) {
        if !connections.scheduler.remove(slot: slot) { isolated?.scheduler.remove(slot: slot) }
    }

    /// Number of a connection among all of the credential.
    private func number(of connection: UInt32, in pool: ConnectionPool) -> UInt32 {
        pool === connections ? connection : ~connection
    }

    private func number(of connection: ClientConnection) -> UInt32 {
        number(of: connection.number, in: owner(of: connection))
    }

    /// Stops sending for a while, because APNs refuses the credential.
    func stop(reason: String) {
        connections.stop(reason: reason)
        isolated?.stop(reason: reason)
    }

    /// Closes all connections at once.
    func close() {
        connections.close()
        isolated?.close()
    }

    // MARK: Requests

    /// Adds a topic of pushes, or the bundle identifier of an app with broadcasts.
    func target(_ name: UnsafeRawBufferPointer, isBroadcast: Bool) -> PushRequestEncoder.Target {
        // Encoders have the same targets in the same order, so a target's number is the same in all of them.
        for other in generations.earlier { _ = other.access.encoder.target(name, isBroadcast: isBroadcast) }
        return access.encoder.target(name, isBroadcast: isBroadcast)
    }

    /// Header encoder of the credential in use.
    var newestEncoder: PushRequestEncoder { access.encoder }

    /// Returns the header encoder for requests on a connection, and the generation of its provider token.
    @inline(__always)
    func encoder(of connection: ClientConnection) -> (PushRequestEncoder, tokenGeneration: UInt64) {
        if connection.generation == generations.serving.number {
            return (generations.serving.access.encoder, generations.serving.access.tokenGeneration)
        }
        return earlierEncoder(of: connection)
    }

    private func earlierEncoder(
        of connection: ClientConnection
    ) -> (PushRequestEncoder, tokenGeneration: UInt64) {
        let found = generations.generation(connection.generation) ?? generations.serving
        return (found.access.encoder, found.access.tokenGeneration)
    }

    // MARK: Keys

    /// Uses another key when it is time for that, and returns the pushes that the credential's keys let pass.
    /// - Parameter mayProbe: false while no connection could carry a probe.
    func keyGate(at now: MonotonicTime, mayProbe: Bool) -> KeyGate {
        guard let keys = access.identity.keys else { return .open }
        guard mayProbe || !keys.isExhausted else { return .closed(until: now.nanoseconds) }
        switch keys.use(at: now.nanoseconds) {
        case .serve(let key):
            probeUntil = nil
            if key != access.key { use(access.identity, key: key, atOnce: keys.isRefused(access.key)) }
            return .open
        case .probe(let key, let until, let isFirst):
            if isFirst {
                notices.log(
                    .error, .keysRefused, of: Int(index),
                    "APNs refuses all keys of the credential; single pushes try the keys in turn",
                    metadata: metadata([
                        "action": "check the keys on Apple's developer site, or add a valid key"
                    ]))
            }
            if key != access.key { use(access.identity, key: key, atOnce: true) }
            probeUntil = until
            return .probe
        case .wait(let until):
            // A later time belongs to a later probe, maybe of another shard.
            if probeUntil == until { return .probe }
            probeUntil = nil
            return .closed(until: until)
        }
    }

    /// Records that the push of ``KeyGate/probe`` was sent. Returns the pushes that may pass from now on.
    func keyProbed() -> KeyGate {
        defer { probeUntil = nil }
        return .closed(until: probeUntil ?? 0)
    }

    /// Handles answers on a connection that accept its credential.
    @inline(__always)
    func accepted(on connection: ClientConnection) {
        if !expiries.isEmpty { expiries.ended(number(of: connection)) }
        if generations.serving.access.identity.keys?.isExhausted == true {
            keyAccepted(on: connection.generation)
        }
    }

    private func keyAccepted(on connectionGeneration: UInt32) {
        // A generation before a renewal may have other keys.
        guard let keys = access.identity.keys,
            let proven = generations.generation(connectionGeneration)?.access, proven.identity.keys === keys,
            let probes = keys.accepted(proven.key), probes > 0
        else { return }
        notices.log(
            .notice, .keyServes, of: Int(index),
            "APNs accepts a key of the credential again; the key serves",
            metadata: metadata([
                "key": "\(keys.sources[proven.key].credential.keyID)", "probes": "\(probes)",
            ]))
    }

    // MARK: Provider tokens

    /// Replaces the provider token when there is a new one. Returns false while there is no token to send with.
    func refreshToken(at now: ClockReading) -> Bool {
        guard access.identity.keys != nil else { return true }
        if !generations.earlier.isEmpty { forgetEarlier() }
        var renewed: [UInt32] = []
        generations.update { if refresh(&$1, at: now) { renewed.append($0) } }
        for generation in renewed {
            connections.renewYoung(generation: generation, age: Self.youngConnection)
            isolated?.renewYoung(generation: generation, age: Self.youngConnection)
        }
        return access.tokenGeneration != 0
    }

    /// Returns whether another token has taken the place of one.
    private func refresh(_ access: inout Access, at now: ClockReading) -> Bool {
        guard let tokens = access.tokens else { return false }
        do throws(SigningKeyError) {
            guard let token = try tokens.renewed(since: access.tokenGeneration, at: now) else { return false }
            let isFirst = access.tokenGeneration == 0
            access.tokenGeneration = token.generation
            access.tokenIssued = token.issuedAtSeconds
            access.encoder.setAuthorization(token.authorization)
            return !isFirst
        } catch {
            notices.log(
                .error, .tokenUnsigned, of: Int(index),
                "provider token can't be signed; without a token nothing is sent with this credential",
                metadata: metadata(["error": "\(error)"]))
            return false
        }
    }

    /// End of the rest of the credential's key, in nanoseconds of the monotonic clock; nil without a rest.
    func rest(at now: ClockReading) -> UInt64? {
        access.tokens?.rest(at: now).map { UInt64(clamping: $0) &* 1_000_000_000 }
    }

    /// Handles ExpiredProviderToken for a request with the token of `tokenGeneration`. The push is sent again at
    /// once, on this connection too, with the newest token. The connection is replaced only if APNs goes on refusing
    /// there.
    func tokenExpired(
        on connection: ClientConnection, tokenGeneration: UInt64, sentAt: UInt64, at now: MonotonicTime
    ) {
        let isFresh = isFresh(tokenGeneration, on: connection.generation)
        if expiries.refused(number(of: connection), isFresh: isFresh, sentAt: sentAt, at: now.nanoseconds) {
            replace(connection)
        }
    }

    /// Handles a read that ends requests without an answer. APNs may reset the streams of a connection on which it
    /// has refused a provider token.
    func unanswered(on connection: ClientConnection) {
        if !expiries.isEmpty, expiries.failed(number(of: connection)) { replace(connection) }
    }

    private func replace(_ connection: ClientConnection) {
        if connection.isOpen { owner(of: connection).replace(connection.number, .now) }
    }

    /// Records that a connection is gone, so that its number may be used again.
    func connectionClosed(_ connection: UInt32, of pool: ConnectionPool) {
        expiries.ended(number(of: connection, in: pool))
    }

    /// Handles ExpiredProviderToken in a GOAWAY.
    func tokenExpired(on connectionGeneration: UInt32) {
        let tokenGeneration = generations.generation(connectionGeneration)?.access.tokenGeneration ?? 0
        _ = isFresh(tokenGeneration, on: connectionGeneration)
    }

    /// Reports a token that APNs has refused as expired to its source, which decides whether there may be a new
    /// token. Returns whether there may not, because the token is fresh.
    private func isFresh(_ tokenGeneration: UInt64, on connectionGeneration: UInt32) -> Bool {
        guard let tokens = generations.generation(connectionGeneration)?.access.tokens,
            case .tooYoung(let seconds) = tokens.expired(generation: tokenGeneration, at: .now())
        else { return false }
        notices.log(
            .error, .tokenExpired, of: Int(index),
            "APNs reports a new provider token as expired; check this machine's clock",
            metadata: metadata(["renewed-in-seconds": "\(seconds)"]))
        return true
    }

    /// Handles TooManyProviderTokenUpdates. Everything that sends with the key rests. Returns the rest that is left, in
    /// milliseconds. Logs once for all pools of the key.
    func tooManyTokenUpdates(on connectionGeneration: UInt32) -> Int64 {
        let now = ClockReading.now()
        guard let tokens = generations.generation(connectionGeneration)?.access.tokens else { return 0 }
        let rest = tokens.tooManyUpdates(at: now)
        let seconds = max(0, rest.until - now.monotonicSeconds)
        if rest.isNew {
            status.countRest()
            notices.log(
                .error, .keyRests, of: Int(index),
                "APNs counts too many provider tokens of the key; everything that sends with the key rests",
                metadata: metadata([
                    "key": "\(tokens.credential.keyID)", "seconds": "\(seconds)",
                    "action": "look for other senders with this key whose tokens differ from Sluice's",
                ]))
        }
        return seconds * 1000
    }

    // MARK: Renewal

    /// Uses a renewed credential. Its connections replace the others as they open.
    func renew(_ identity: CredentialIdentity) {
        probeUntil = nil
        use(identity, key: identity.keys?.current ?? 0, atOnce: false)
    }

    private func use(_ identity: CredentialIdentity, key: Int, atOnce: Bool) {
        let fields = StableFields()
        generations.replace(
            hasKeys: identity.keys != nil,
            by: Access(
                identity: identity, encoder: PushRequestEncoder(copying: access.encoder, fields: fields),
                fields: fields, key: key))
        apply(atOnce: atOnce)
    }

    private func apply(atOnce: Bool) {
        renew(connections, atOnce: atOnce)
        if let isolated { renew(isolated, atOnce: atOnce) }
        forgetEarlier()
    }

    private func renew(_ pool: ConnectionPool, atOnce: Bool) {
        pool.renew(
            .init(context: access.identity.context, fields: access.fields, proxy: access.identity.proxy),
            generation: generations.serving.number, atOnce: atOnce)
    }

    private func forgetEarlier() {
        generations.forget {
            connections.hasConnection(ofGeneration: $0) || isolated?.hasConnection(ofGeneration: $0) == true
        }
    }

    /// Handles an answer, a GOAWAY or a TLS alert on a connection of the generation. Returns true when the reason
    /// refuses the credential, and another key, or the certificate before its renewal, takes over: the request may
    /// then be sent again.
    func isReplaced(
        after reason: Reason, on connectionGeneration: UInt32, _ text: String, now: MonotonicTime
    ) -> Bool {
        switch generations.judge(reason, on: connectionGeneration, isProven: connections.isGenerationProven) {
        case .none: return false
        case .isReplaced:
            // Otherwise pushes would meet the refusal again, as long as no new connection opens.
            connections.drain(generation: connectionGeneration)
            isolated?.drain(generation: connectionGeneration)
            return access.identity.keys?.isExhausted != true
        case .refusesKey: return useNextKey(text, now: now)
        case .undoesRenewal:
            undoRenewal(text)
            return true
        }
    }

    /// Returns false if APNs has refused all keys.
    private func useNextKey(_ reason: String, now: MonotonicTime) -> Bool {
        guard let keys = access.identity.keys else { return false }
        let refused = keys.sources[access.key].credential.keyID
        switch keys.refused(access.key, at: now.nanoseconds) {
        case .exhausted: return false
        case .replaced(let next):
            status.countRefusal()
            notices.log(
                .error, .keyReplaced, of: Int(index),
                "APNs refuses the key; the next key takes over",
                metadata: metadata([
                    "key": "\(refused)", "next-key": "\(keys.sources[next].credential.keyID)",
                    "reason": "\(reason)", "action": "remove the key from the credential, or mend it",
                ]))
        case .known: break
        }
        use(access.identity, key: keys.current, atOnce: true)
        return true
    }

    /// Returns whether the pool stops because of a GOAWAY or a TLS alert that refuses the credential, when nothing
    /// has taken over.
    func stops(after reason: Reason) -> Bool { generations.stopsPool(after: reason) }

    private func undoRenewal(_ reason: String) {
        status.countRefusal()
        notices.log(
            .error, .renewalUndone, of: Int(index),
            "APNs refuses the renewed certificate; the one before stays in use",
            metadata: metadata([
                "reason": "\(reason)", "action": "put a valid certificate into the credential's file",
            ]))
        generations.undoRenewal()
        apply(atOnce: true)
    }

    // MARK: Observation

    /// Adds the names of the credential and its environment to a log line's metadata.
    func metadata(_ others: Logger.Metadata = [:]) -> Logger.Metadata {
        others.merging(["credential": "\(name)", "environment": "\(environment.rawValue)"]) { own, _ in own }
    }

    /// Figures of the pool and the state of its credential.
    var figures: CredentialFigures {
        var figures = CredentialFigures(report: status.report)
        figures.pools = PoolFigures(connections.snapshot())
        if let isolated {
            var others = PoolFigures(isolated.snapshot())
            // A push that ends its connections is no fault of APNs.
            others.circuitsOpen = 0
            figures.pools = figures.pools + others
        }
        figures.pools.reasons = reasons.map { $0 }
        figures.pools.latencies = [latencies.0.snapshot(), latencies.1.snapshot(), latencies.2.snapshot()]
        figures.pools.tokenIssued = access.tokenIssued
        figures.pools.resting = rest(at: .now()) == nil ? 0 : 1
        return figures
    }

    /// Records the time from a request's sending to its answer.
    @inline(__always)
    func answered(_ priority: Priority, after nanoseconds: UInt64) {
        switch priority {
        case .immediate: latencies.0.record(nanoseconds: nanoseconds)
        case .powerAware: latencies.1.record(nanoseconds: nanoseconds)
        case .lowPower: latencies.2.record(nanoseconds: nanoseconds)
        }
    }

    /// Counts an answer other than 200.
    func count(_ reason: Reason) { reasons[Int(reason.rawValue)] += 1 }
}

/// Pushes that the keys of a credential let pass.
enum KeyGate: Equatable {
    /// All pushes.
    case open
    /// A single push, which tries a key; ``CredentialPool/keyProbed()`` follows.
    case probe
    /// None, because APNs has refused all keys. `until`: time of the next probe, in nanoseconds of the monotonic clock.
    case closed(until: UInt64)
}

/// A pool's plan, shared by all shards.
struct CredentialPoolPlan: Sendable {
    /// Name of the credential.
    var name: String
    var environment: Configuration.APNS.Environment
    /// `:authority` of the requests.
    var authority: String
    var pool: ConnectionPool.Configuration
    var identity: CredentialIdentity
    /// State of the credential for operators, shared by all shards.
    var status: CredentialStatus
}
