import APNS
import Configuration
import DeliveryCore
import EventLoop
import HTTP2
import SluiceModel
import StreamScheduling

/// Converts the configuration's credentials and apps into pools, and checks their files.
struct CredentialPoolPlanner {
    private let configuration: Configuration
    private let permit: SendPermit?

    /// - Parameter permit: permit of all pushes; nil when no pushes are sent.
    init(_ configuration: Configuration, permit: SendPermit? = nil) {
        self.configuration = configuration
        self.permit = permit
    }

    /// Returns the pools, and the pools of the apps' bundle identifiers. A pool belongs to a credential that an app uses.
    ///
    /// - Parameter load: returns a credential's checked files and its state.
    func plan(
        _ load: (Configuration.Credential) throws(WorkerError) -> (CredentialIdentity, CredentialStatus)
    ) throws(WorkerError) -> (pools: [CredentialPoolPlan], routes: [String: AppRoute]) {
        var pools: [CredentialPoolPlan] = []
        var indexByCredential: [String: UInt16] = [:]
        var routes: [String: AppRoute] = [:]
        for (number, app) in configuration.apps.enumerated() {
            let credentials = configuration.credentials(of: app)
            guard credentials.count == app.credentials.count, !credentials.isEmpty else {
                let missing =
                    app.credentials.first { name in !credentials.contains { $0.name == name } } ?? ""
                throw .credential(
                    "apps.\(app.name).credential: there is no credential “\(missing)”; add it to credentials")
            }
            var ofEnvironment: [(Configuration.APNS.Environment, UInt16)] = []
            for credential in credentials {
                let index = indexByCredential[credential.name] ?? UInt16(pools.count)
                if Int(index) == pools.count {
                    indexByCredential[credential.name] = index
                    let (identity, status) = try load(credential)
                    pools.append(pool(for: credential, identity, status))
                }
                ofEnvironment.append((configuration.endpoint(of: credential).environment, index))
            }
            let route = AppRoute(
                app: UInt16(number), pool: ofEnvironment[0].1,
                production: ofEnvironment.first { $0.0 == .production }?.1,
                development: ofEnvironment.first { $0.0 == .development }?.1)
            for topic in app.topics { routes[topic] = route }
        }
        return (pools, routes)
    }

    /// Loads all files and returns the plan; for checks.
    func plan() throws(WorkerError) -> (pools: [CredentialPoolPlan], routes: [String: AppRoute]) {
        let loader = CredentialLoader(configuration: configuration, sources: ProviderTokenSources())
        return try plan { credential throws(WorkerError) in (try loader.load(credential), CredentialStatus())
        }
    }

    /// Returns the plan with credentials that are loaded.
    func plan(
        _ keeper: CredentialKeeper
    ) throws(WorkerError) -> (pools: [CredentialPoolPlan], routes: [String: AppRoute]) {
        try plan { credential throws(WorkerError) in
            guard let loaded = keeper.loaded(credential) else {
                throw .credential("credentials.\(credential.name): is not loaded; report this as a bug")
            }
            return loaded
        }
    }

    /// Returns each shard's limits by an app's number: an even share of the worker's limits. A hash of the tokens
    /// spreads devices over the shards, so it spreads an app's load evenly too.
    func appLimits() -> [AppLimits] {
        let shards = configuration.delivery.shards
        return configuration.apps.map { app in
            // The configuration's checks leave at least one push in flight for each shard. A smaller burst is rounded
            // up to that. Without a burst of its own, an app may catch up on a tenth of a second.
            let burst = app.burst ?? Int((app.ratePerSecond ?? 0) / 10)
            return AppLimits(
                weight: app.weight, ratePerSecond: app.ratePerSecond.map { $0 / Double(shards) },
                burst: max(1, burst / shards), maximumInFlight: app.maxInFlight.map { max(1, $0 / shards) })
        }
    }

    private func pool(
        for credential: Configuration.Credential, _ identity: CredentialIdentity, _ status: CredentialStatus
    ) -> CredentialPoolPlan {
        let apns = configuration.apns
        let endpoint = configuration.endpoint(of: credential)
        var pool = ConnectionPool.Configuration(host: endpoint.host, port: UInt16(endpoint.port))
        pool.serverName = endpoint.authority.map(Self.host(ofAuthority:))
        pool.connections = credential.connections ?? apns.connections
        pool.maximumConnections = max(pool.connections, credential.maxConnections ?? apns.maxConnections)
        pool.growthInterval = apns.growthInterval
        pool.idleTimeout = apns.idleTimeout
        pool.maximumAge = apns.maxConnectionAge
        pool.connection.permit = permit
        pool.connection.proxy = identity.proxy
        pool.connection.connectTimeout = apns.connectTimeout
        pool.connection.requestTimeout = apns.requestTimeout
        pool.progressTimeout = apns.progressTimeout
        pool.connection.pingInterval = apns.pingInterval
        pool.connection.session.waitsForAuthentication = identity.keys != nil
        return CredentialPoolPlan(
            name: credential.name, environment: endpoint.environment,
            authority: endpoint.authority ?? Self.authority(host: endpoint.host, port: endpoint.port),
            pool: pool, identity: identity, status: status)
    }

    /// Returns the host of an authority: without port, and without the brackets of an IPv6 address.
    static func host(ofAuthority authority: String) -> String {
        if authority.hasPrefix("[") { return String(authority.dropFirst().prefix { $0 != "]" }) }
        return String(authority.prefix { $0 != ":" })
    }

    /// Returns the `:authority` of requests (RFC 9113 §8.3.1). An IPv6 address is put in brackets, and the scheme's own
    /// port is left out (RFC 9110 §4.2.2, §7.2).
    static func authority(host: String, port: Int) -> String {
        let host = host.utf8.contains(UInt8(ascii: ":")) ? "[\(host)]" : host
        return port == 443 ? host : "\(host):\(port)"
    }

    /// Returns one shard's limits and retry settings. The worker's rates and tables are shared out evenly.
    func limits(capacity: Int) throws(WorkerError) -> DeliveryLimits {
        let delivery = configuration.delivery
        var limits = DeliveryLimits(
            capacity: capacity, pendingPerDevice: delivery.maxPendingPerDevice,
            inFlightPerDevice: delivery.maxInFlightPerDevice,
            knownDevices: max(1, delivery.knownDevices / delivery.shards),
            maximumExpirationMilliseconds: Int64(delivery.maxExpiration / .milliseconds(1)),
            defaultLifeMilliseconds: Int64(delivery.defaultTTL / .milliseconds(1)),
            retry: try Self.retry(delivery.retry),
            returnsPerSecond: max(1, delivery.returnRate / delivery.shards),
            returnBurst: max(1, min(100, delivery.returnRate / delivery.shards)),
            storeAfterMilliseconds: configuration.store.map { Int64($0.after / .milliseconds(1)) } ?? 30_000,
            storeIsDurable: configuration.store != nil)
        limits.isolatedAttempts = delivery.retry.isolatedAttempts
        limits.room = max(1, delivery.maxInFlight / delivery.shards)
        if configuration.apps.count > 1 || configuration.apps.contains(where: { $0.credentials.count > 1 }) {
            limits.unanswered = max(
                1, IntakeGate.jobsToKeep(of: limits.room, share: delivery.partitionShare))
        }
        limits.readsAhead = delivery.readAhead == .on
        if let store = configuration.store { limits.parkedPushes = store.parkedLimit / delivery.shards }
        return limits
    }

    /// Returns the windows in milliseconds, by an app's number.
    func coalesceWindows() -> [UInt32] {
        configuration.apps.map { UInt32(clamping: Int64($0.coalesceWindow / .milliseconds(1))) }
    }

    /// Returns the push types whose states supersede each other, as bits by ``PushType/rawValue``, by an app's number.
    func supersededStates() -> [UInt16] {
        configuration.apps.map { app in
            app.supersede.reduce(into: 0) { bits, type in
                let type: PushType =
                    switch type {
                    case .liveActivity: .liveActivity
                    case .widgets: .widgets
                    case .controls: .controls
                    }
                bits |= 1 << UInt16(type.rawValue)
            }
        }
    }

    static func retry(_ retry: Configuration.Delivery.Retry) throws(WorkerError) -> RetryBackoff {
        do throws(RetryPolicyError) {
            let initial = Int64(retry.initial / .milliseconds(1))
            let maximum = Int64(retry.maximum / .milliseconds(1))
            return RetryBackoff(
                later: try ExponentialBackoff(
                    baseMilliseconds: initial, capMilliseconds: maximum, multiplier: retry.multiplier),
                maximumAttempts: UInt32(clamping: retry.maxAttempts ?? 0),
                retryAfterLimitMilliseconds: Int64(retry.retryAfterLimit / .milliseconds(1)))
        } catch {
            throw .credential("delivery.retry: \(error)")
        }
    }
}
