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

    public init(settings: ProviderTokenPolicy.Settings = .init()) {
        self.settings = settings
    }

    /// Returns the source for a credential. Throws when the same key id and team id already stand for another key.
    public func source(for credential: TokenCredential) throws(CredentialError) -> ProviderTokenSource {
        let name = Name(keyID: credential.keyID, teamID: credential.teamID)
        let source = sources.withLock { sources -> ProviderTokenSource in
            if let known = sources[name] { return known }
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
