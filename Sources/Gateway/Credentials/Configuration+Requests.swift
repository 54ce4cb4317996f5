import APNS
import Configuration

extension Configuration {
    /// Returns a client for single requests with a credential: its key or certificate, authorities and proxy.
    ///
    /// - Parameters:
    ///   - host: name or address of the server, which need not be the one that pushes are sent to.
    ///   - port: port of the server, 1 to 65,535.
    /// - Throws: `WorkerError.credential` with the fault, the setting and the remedy.
    public func requestClient(
        for credential: Credential, host: String, port: Int
    ) throws(WorkerError) -> RequestClient {
        let loader = CredentialLoader(configuration: self, sources: ProviderTokenSources())
        let identity = try loader.load(credential)
        var client = RequestClient(host: host, port: UInt16(clamping: port), proxy: identity.proxy)
        client.context = identity.context
        do {
            // The preferred key; a worker alone finds out that APNs has revoked a key.
            client.authorization = try identity.keys?.sources[0].current(at: .now()).authorization
        } catch {
            throw .credential("credentials.\(credential.name): \(error)")
        }
        return client
    }
}
