import APNS
import Configuration
import DeliveryCore
import EventLoop
import Foundation
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

    /// Returns the pools, and the pools of the apps' bundle identifiers.
    func plan() throws(WorkerError) -> (pools: [CredentialPoolPlan], routes: [String: AppRoute]) {
        var pools: [CredentialPoolPlan] = []
        var indexByCredential: [String: UInt16] = [:]
        var routes: [String: AppRoute] = [:]
        let sources = ProviderTokenSources()
        for (number, app) in configuration.apps.enumerated() {
            guard let credential = configuration.credential(of: app) else {
                throw .credential(
                    "apps.\(app.name).credential: there is no credential “\(app.credential)”; add it to credentials"
                )
            }
            let index: UInt16
            if let known = indexByCredential[credential.name] {
                index = known
            } else {
                index = UInt16(pools.count)
                indexByCredential[credential.name] = index
                pools.append(try pool(for: credential, sources))
            }
            let route = AppRoute(pool: index, app: UInt16(number))
            for topic in app.topics { routes[topic] = route }
        }
        return (pools, routes)
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
        for credential: Configuration.Credential, _ sources: ProviderTokenSources
    ) throws(WorkerError) -> CredentialPoolPlan {
        let apns = configuration.apns
        var options = ClientTLSOptions()
        if let file = apns.caFile { options.trust = .authorities(.file(file)) }
        options.minimumVersion = apns.tlsMinimum == .tls13 ? .tls13 : .tls12
        var tokens: ProviderTokenSource?
        do {
            switch credential.kind {
            case .token(let keyFile, let keyID, let teamID):
                let key = try TokenCredential(
                    keyID: KeyID(keyID), teamID: TeamID(teamID), key: SigningKey(path: keyFile))
                tokens = try sources.source(for: key)
            case .certificate(let certificateFile, let keyFile):
                options.identity = TLSIdentity(
                    certificateChain: .file(certificateFile), privateKey: .file(keyFile))
            }
            var pool = ConnectionPool.Configuration(host: apns.host, port: UInt16(apns.port))
            pool.connections = credential.connections ?? apns.connections
            pool.maximumConnections = max(
                pool.connections, credential.maxConnections ?? apns.maxConnections)
            pool.growthInterval = apns.growthInterval
            pool.idleTimeout = apns.idleTimeout
            pool.maximumAge = apns.maxConnectionAge
            pool.connection.permit = permit
            pool.connection.proxy = try proxy()
            pool.connection.connectTimeout = apns.connectTimeout
            pool.connection.requestTimeout = apns.requestTimeout
            pool.progressTimeout = apns.progressTimeout
            pool.connection.pingInterval = apns.pingInterval
            pool.connection.session.waitsForAuthentication = tokens != nil
            return CredentialPoolPlan(
                name: credential.name, authority: Self.authority(host: apns.host, port: apns.port),
                pool: pool, context: try TLSContext.client(options), tokens: tokens)
        } catch {
            throw .credential("credentials.\(credential.name): \(error)")
        }
    }

    /// Returns the `:authority` of requests (RFC 9113 §8.3.1). An IPv6 address is put in brackets, and the scheme's own
    /// port is left out (RFC 9110 §4.2.2, §7.2).
    static func authority(host: String, port: Int) -> String {
        let host = host.utf8.contains(UInt8(ascii: ":")) ? "[\(host)]" : host
        return port == 443 ? host : "\(host):\(port)"
    }

    private func proxy() throws(WorkerError) -> ProxyConfiguration? {
        guard let proxy = configuration.apns.proxy else { return nil }
        var password: String?
        if let file = proxy.passwordFile {
            do {
                let text = try String(contentsOfFile: file, encoding: .utf8)
                password = text.split(whereSeparator: \.isNewline).first.map(String.init)
            } catch {
                throw .credential(
                    "apns.proxy.password-file: cannot read \(file); check that it exists and is readable")
            }
            guard password != nil else {
                throw .credential(
                    "apns.proxy.password-file: \(file) is empty; write the password into its first line")
            }
        }
        return ProxyConfiguration(
            host: proxy.host, port: UInt16(proxy.port), user: proxy.user, password: password)
    }

    /// Returns one shard's limits and retry settings. The worker's rates and tables are shared out evenly.
    func limits(capacity: Int) throws(WorkerError) -> DeliveryLimits {
        let delivery = configuration.delivery
        return DeliveryLimits(
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
    }

    /// Returns the windows in milliseconds, by an app's number.
    func coalesceWindows() -> [UInt32] {
        configuration.apps.map { UInt32(clamping: Int64($0.coalesceWindow / .milliseconds(1))) }
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
