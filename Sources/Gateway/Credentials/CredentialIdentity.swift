import APNS
import Configuration
import HTTP2

/// A credential's identity towards APNs, loaded from its files and checked.
struct CredentialIdentity: Sendable {
    var context: TLSContext
    /// Settings that ``context`` was made of.
    var tls: ClientTLSOptions
    /// Keys of provider tokens; nil with a certificate.
    var keys: ProviderKeyring?
    /// Proxy to dial through; nil means none.
    var proxy: ProxyConfiguration?
}

/// Loads credentials' files.
struct CredentialLoader {
    let configuration: Configuration
    /// Registry of provider tokens, so that credentials with the same key share its tokens.
    let sources: ProviderTokenSources

    /// Loads and checks the files of a credential.
    /// - Throws: `WorkerError.credential` with the fault, the setting and the remedy.
    func load(_ credential: Configuration.Credential) throws(WorkerError) -> CredentialIdentity {
        let endpoint = configuration.endpoint(of: credential)
        var options = ClientTLSOptions()
        if let file = endpoint.caFile { options.trust = .authorities(.file(file)) }
        options.minimumVersion = configuration.apns.tlsMinimum == .tls13 ? .tls13 : .tls12
        do {
            var keys: ProviderKeyring?
            switch credential.kind {
            case .token(let files, let teamID):
                keys = ProviderKeyring(
                    try files.map { file in
                        try sources.source(
                            for: TokenCredential(
                                keyID: KeyID(file.id), teamID: TeamID(teamID),
                                key: SigningKey(path: file.file)))
                    })
            case .certificate(let certificateFile, let keyFile):
                options.identity = TLSIdentity(
                    certificateChain: .file(certificateFile), privateKey: .file(keyFile))
            }
            return CredentialIdentity(
                context: try TLSContext.client(options), tls: options, keys: keys,
                proxy: try Self.proxy(endpoint.proxy, of: credential, configuration))
        } catch let error as WorkerError {
            throw error
        } catch {
            throw .credential("credentials.\(credential.name): \(error)")
        }
    }

    private static func proxy(
        _ proxy: Configuration.APNS.Proxy?, of credential: Configuration.Credential,
        _ configuration: Configuration
    ) throws(WorkerError) -> ProxyConfiguration? {
        guard let proxy else { return nil }
        let isOwn = proxy != configuration.apns.proxy
        let setting = isOwn ? "credentials.\(credential.name).proxy" : "apns.proxy"
        var password: String?
        if let file = proxy.passwordFile {
            switch SecretFile.read(file) {
            case .success(let text): password = text.split(whereSeparator: \.isNewline).first.map(String.init)
            case .failure(let fault): throw .credential("\(setting).password-file: \(fault.text)")
            }
            guard password != nil else {
                throw .credential(
                    "\(setting).password-file: \(file) is empty; write the password into its first line")
            }
        }
        return ProxyConfiguration(
            host: proxy.host, port: UInt16(proxy.port), user: proxy.user, password: password)
    }
}
