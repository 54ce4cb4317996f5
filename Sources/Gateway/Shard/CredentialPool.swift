import APNS
import DeliveryCore
import EventLoop
import HTTP2
import Logging
import SluiceModel
import StreamScheduling

/// A credential on one shard: its pool, its header encoder, its provider token.
final class CredentialPool {
    let index: UInt16
    let name: String
    let connections: ConnectionPool
    let encoder: PushRequestEncoder
    private let tokens: ProviderTokenSource?
    private(set) var tokenGeneration: UInt64 = 0
    /// Answers other than 200 by ``Reason/rawValue``.
    private(set) var reasons = [Int](repeating: 0, count: Reason.allCases.count)
    /// Time since which the pool has had no connection; nil while it has one.
    private(set) var downSince: MonotonicTime?
    private var tokenFailureLogged = false
    private var lastClockWarning: MonotonicTime?

    init(
        index: UInt16, plan: CredentialPoolPlan, notifications: NotificationTable, apps: Int, seed: UInt64,
        loop: EventLoop,
        delegate: any ConnectionPoolDelegate
    ) {
        self.index = index
        name = plan.name
        tokens = plan.tokens
        let fields = StableFields()
        encoder = PushRequestEncoder(fields: fields, authority: plan.authority)
        var configuration = plan.pool
        configuration.apps = apps
        configuration.seed = seed
        connections = ConnectionPool(
            configuration: configuration, context: plan.context, fields: fields,
            notifications: notifications, loop: loop, delegate: delegate)
    }

    /// Replaces the provider token when there is a new one. Returns false while there is no token to send with.
    func refreshToken(logger: Logger) -> Bool {
        guard let tokens else { return true }
        do throws(SigningKeyError) {
            if let token = try tokens.renewed(since: tokenGeneration, at: .now()) {
                tokenGeneration = token.generation
                encoder.setAuthorization(token.authorization)
                tokenFailureLogged = false
            }
        } catch {
            if !tokenFailureLogged {
                tokenFailureLogged = true
                logger.error(
                    "provider token can't be signed; without a token nothing is sent with this credential",
                    metadata: ["credential": "\(name)", "error": "\(error)"])
            }
        }
        return tokenGeneration != 0
    }

    /// Handles ExpiredProviderToken for a request with the token of `generation`. The source decides whether there may
    /// be a new token. Logs at most once a minute, because every request may get this answer.
    func tokenExpired(generation: UInt64, now: MonotonicTime, logger: Logger) {
        guard let tokens, case .tooYoung(let seconds) = tokens.expired(generation: generation, at: .now())
        else { return }
        if let last = lastClockWarning, now.nanoseconds(since: last) <= 60_000_000_000 { return }
        lastClockWarning = now
        logger.error(
            "APNs reports a new provider token as expired; check this machine's clock",
            metadata: ["credential": "\(name)", "renewed-in-seconds": "\(seconds)"])
    }

    /// Counts an answer other than 200.
    func count(_ reason: Reason) { reasons[Int(reason.rawValue)] += 1 }

    /// Notes whether the pool has a connection.
    func watchConnections(at now: MonotonicTime) {
        downSince = connections.openConnections > 0 ? nil : downSince ?? now
    }

    func tooManyTokenUpdates() {
        tokens?.tooManyUpdates(at: .now())
    }
}

/// A pool's plan, shared by all shards.
struct CredentialPoolPlan: Sendable {
    var name: String
    var authority: String
    var pool: ConnectionPool.Configuration
    var context: TLSContext
    var tokens: ProviderTokenSource?
}
