import Synchronization

/// The provider token sources of a process: a shared source per key and team. Two apps or pools that use the same key
/// never sign two tokens, because APNs counts the updates of a team together.
public final class ProviderTokenSources: Sendable {
    private struct Name: Hashable {
        var keyID: KeyID
        var teamID: TeamID
    }

    private let settings: ProviderTokenPolicy.Settings
    private let sources = Mutex<[Name: ProviderTokenSource]>([:])
    /// Sources of the keys before a renewal, which an unchanged key keeps.
    private let previous: [Name: ProviderTokenSource]

    /// - Parameter previous: the registry before a renewal of credentials; nil at the start.
    public init(settings: ProviderTokenPolicy.Settings = .init(), after previous: ProviderTokenSources? = nil)
    {
        self.settings = settings
        self.previous = previous.map { $0.sources.withLock { $0 } } ?? [:]
    }

    /// Returns the source for a credential. Throws when the same key id and team id already stand for another key.
    public func source(for credential: TokenCredential) throws(CredentialError) -> ProviderTokenSource {
        let name = Name(keyID: credential.keyID, teamID: credential.teamID)
        let source = sources.withLock { sources -> ProviderTokenSource in
            if let known = sources[name] { return known }
            if let old = previous[name], old.credential.key.isSameKey(as: credential.key) {
                sources[name] = old
                return old
            }
            let new = ProviderTokenSource(credential, settings: settings)
            sources[name] = new
            return new
        }
        guard source.credential.key.isSameKey(as: credential.key) else {
            throw CredentialError(
                field: "key id",
                requirement:
                    "\(name.keyID) of team \(name.teamID) stands for two different keys; check the .p8 files")
        }
        return source
    }
}
