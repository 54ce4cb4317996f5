import EventLoop
import Glibc
import HTTP2
import SluiceModel

/// The credential that a connection is bound to, and the provider tokens that the connection has presented.
///
/// Each connection has one team. After a team's key, no topic-specific key is accepted. After a topic-specific key,
/// only that key and its one related key are accepted. A token that is new on the connection must be at least 20
/// minutes later than the one before. The keys of a related pair are counted apart, all others together. Other ways of
/// counting look at all connections (``TokenUpdates``).
struct ConnectionCredential {
    /// Token that was accepted on this connection.
    private struct Seen {
        var bytes: [UInt8]
        var token: VerifiedToken
        var acceptedAt: MonotonicTime
    }

    private var seen: [Seen] = []
    private static let remembered = 8

    /// Whether a token was accepted.
    var isBound: Bool { !seen.isEmpty }

    /// Checks the `authorization` of a request. Returns `absent` for a good one.
    mutating func check(
        _ authorization: UnsafeRawBufferPointer?, topic: UnsafeRawBufferPointer?, shard: SimulatorShard
    ) -> Reason {
        guard let authorization, !authorization.isEmpty else { return .missingProviderToken }
        guard let bytes = authorization.droppingBearer else { return .invalidProviderToken }
        if let index = seen.lastIndex(where: { entry in entry.bytes.withUnsafeBytes { $0.equals(bytes) } }) {
            let token = seen[index].token
            return checkAge(token, shard) ?? checkTopic(topic, token, shard) ?? .absent
        }
        return checkNew(bytes, topic, shard)
    }

    private mutating func checkNew(
        _ bytes: UnsafeRawBufferPointer, _ topic: UnsafeRawBufferPointer?, _ shard: SimulatorShard
    ) -> Reason {
        guard let token = shard.verify(bytes) else { return .invalidProviderToken }
        if let reason = checkAge(token, shard) ?? checkKey(token, shard) ?? checkTopic(topic, token, shard) {
            return reason
        }
        if isTooSoon(token, bytes, shard) { return .tooManyProviderTokenUpdates }
        if seen.count == Self.remembered { seen.removeFirst() }
        seen.append(Seen(bytes: Array(bytes), token: token, acceptedAt: shard.loop.now))
        return .absent
    }

    private func isTooSoon(
        _ token: VerifiedToken, _ bytes: UnsafeRawBufferPointer, _ shard: SimulatorShard
    ) -> Bool {
        let now = shard.loop.now
        guard shard.tokenUpdates.isByConnection else {
            return !shard.tokenUpdates.admit(token, bytes, now: now.nanoseconds)
        }
        let key = shard.key(of: token)
        return seen.contains { entry in
            let isCountedApart = key?.topics.isEmpty == false && entry.token.keyID != token.keyID
            return !isCountedApart && now.nanoseconds(since: entry.acceptedAt) < shard.tokenUpdateInterval
        }
    }

    private func checkAge(_ token: VerifiedToken, _ shard: SimulatorShard) -> Reason? {
        let age = wallClockMilliseconds() / 1_000 - token.issuedAt
        if age > shard.maximumTokenAge { return .expiredProviderToken }
        if -age > shard.futureTolerance { return .invalidProviderToken }
        return nil
    }

    private func checkKey(_ token: VerifiedToken, _ shard: SimulatorShard) -> Reason? {
        let key = shard.key(of: token)
        if let environment = key?.environment, environment != shard.options.environment {
            return .badEnvironmentKeyIdInToken
        }
        guard let first = seen.first?.token else { return nil }
        if first.teamID != token.teamID { return .invalidProviderToken }
        guard first.keyID != token.keyID else { return nil }
        let firstKey = shard.key(of: first)
        let bindsToTopics = firstKey?.topics.isEmpty == false
        let isTopicSpecific = key?.topics.isEmpty == false
        if bindsToTopics {
            let isRelated = firstKey?.relatedKeyID == token.keyID || key?.relatedKeyID == first.keyID
            return isRelated ? nil : .unrelatedKeyIdInToken
        }
        return isTopicSpecific ? .unrelatedKeyIdInToken : nil
    }

    /// Returns nil when the token's key is good for the topic. A topic-specific key is good for its topics, with every
    /// suffix.
    private func checkTopic(
        _ topic: UnsafeRawBufferPointer?, _ token: VerifiedToken, _ shard: SimulatorShard
    ) -> Reason? {
        guard let topic, let topics = shard.key(of: token)?.topics, !topics.isEmpty else { return nil }
        return topics.contains { topic.isTopic(of: $0) } ? nil : .topicDisallowed
    }
}

extension UnsafeRawBufferPointer {
    /// Bytes after `bearer `, whose case does not matter; nil without that prefix.
    fileprivate var droppingBearer: UnsafeRawBufferPointer? {
        let scheme: StaticString = "bearer "
        guard count > 7 else { return nil }
        for index in 0..<7 where self[index] | 0x20 != scheme.utf8Start[index] { return nil }
        return UnsafeRawBufferPointer(rebasing: self[7...])
    }

    /// Whether this is the bundle identifier, or one of its suffixed topics.
    func isTopic(of bundle: String) -> Bool {
        var bundle = bundle
        return bundle.withUTF8 { name in
            guard count >= name.count,
                UnsafeRawBufferPointer(rebasing: self[..<name.count]).equals(UnsafeRawBufferPointer(name))
            else { return false }
            return count == name.count || self[name.count] == UInt8(ascii: ".")
        }
    }
}
