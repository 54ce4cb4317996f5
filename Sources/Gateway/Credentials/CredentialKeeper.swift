import APNS
import Configuration
import EventLoop
import Glibc
import HTTP2
import Logging
import SluiceModel
import Synchronization

/// Keeps the credentials of a worker: loads their files, and loads them anew when the files or the settings change.
///
/// A faulty file is reported, and the credential before stays in use. All credentials are looked at together, because a
/// key can belong to several. Any thread but a loop's, because files are read.
final class CredentialKeeper: Sendable {
    private struct Entry {
        /// Settings and content of the files in use.
        var fingerprint: Fingerprint
        var identity: CredentialIdentity
        var status: CredentialStatus
        var notice = ExpiryNotice()
    }

    /// Settings of a credential and hashes of its files' contents.
    private struct Fingerprint: Equatable {
        var credential: Configuration.Credential
        var endpoint: Configuration.Endpoint
        /// Hash of each file's content by its name; nil for a file that can't be read.
        var contents: [String: UInt64?]

        /// A file that can't be read, or that is no regular file; nil when all can be read.
        var unreadable: String? { contents.keys.sorted().first { contents[$0] == .some(nil) } }
    }

    private struct State {
        var configuration: Configuration
        var sources: ProviderTokenSources
        var entries: [String: Entry] = [:]
    }

    private let state: Mutex<State>
    private let hasher: IdentityHasher
    private let tokens: ProviderTokenPolicy.Settings
    private let logger: Logger

    /// Largest file that is read: bundles of authorities have some hundred kilobytes.
    private static let largestFile = 4 << 20

    /// Loads the files of all credentials that an app uses.
    /// - Throws: `WorkerError.credential` with the fault, the setting and the remedy.
    init(
        _ configuration: Configuration, tokens: ProviderTokenPolicy.Settings = .init(), logger: Logger
    ) throws(WorkerError) {
        self.tokens = tokens
        self.logger = logger
        var random = ProcessRandom()
        let hasher = IdentityHasher(key0: random.next(), key1: random.next())
        self.hasher = hasher
        var first = State(
            configuration: configuration, sources: ProviderTokenSources(settings: tokens))
        let loader = CredentialLoader(configuration: configuration, sources: first.sources)
        for credential in Self.used(configuration) {
            // The contents are hashed first, so that a change during the loading is noticed later.
            let fingerprint = Self.fingerprint(of: credential, configuration, hasher)
            let identity = try loader.load(credential)
            let entry = Entry(
                fingerprint: fingerprint, identity: identity,
                status: CredentialStatus(name: credential.name, environment: fingerprint.endpoint.environment)
            )
            Self.noteDates(entry)
            first.entries[credential.name] = entry
        }
        state = Mutex(first)
    }

    /// Returns a loaded credential and its state.
    func loaded(_ credential: Configuration.Credential) -> (CredentialIdentity, CredentialStatus)? {
        state.withLock { state in state.entries[credential.name].map { ($0.identity, $0.status) } }
    }

    /// States of all credentials, by name.
    var reports: [CredentialReport] {
        state.withLock { $0.entries.values.map(\.status.report) }.sorted { $0.name < $1.name }
    }

    /// Names of all files of the credentials.
    var files: Set<String> {
        state.withLock { state in Set(state.entries.values.flatMap { $0.fingerprint.contents.keys }) }
    }

    // MARK: Renewal

    /// Looks at all files, and returns the credentials that changed and are good. Logs each change and each new fault.
    ///
    /// - Parameters:
    ///   - configuration: new settings; nil means those before. Only the credentials' files, keys and proxies are
    ///     taken over.
    ///   - reportsFaults: false while a file may still be being written.
    func renew(
        _ configuration: Configuration? = nil, reportsFaults: Bool = true
    ) -> [String: CredentialIdentity] {
        state.withLock { state in
            var settings = state.configuration
            if let configuration {
                settings = settings.adopting(credentials: configuration.credentials, apns: configuration.apns)
                warn(ofDifferencesTo: configuration, from: settings)
            }
            let sources = ProviderTokenSources(settings: tokens, after: state.sources)
            let loader = CredentialLoader(configuration: settings, sources: sources)
            var renewed: [String: CredentialIdentity] = [:]
            for credential in Self.used(settings) {
                guard let entry = state.entries[credential.name] else { continue }
                let fingerprint = Self.fingerprint(of: credential, settings, hasher)
                if fingerprint == entry.fingerprint {
                    keep(entry, in: sources)
                    _ = entry.status.note(fault: nil)
                    continue
                }
                do {
                    if let file = fingerprint.unreadable {
                        throw WorkerError.credential(
                            "credentials.\(credential.name): cannot read \(file); check that it is a readable file"
                        )
                    }
                    let identity = try load(credential, loader, before: entry)
                    state.entries[credential.name]?.fingerprint = fingerprint
                    state.entries[credential.name]?.identity = identity
                    entry.status.renewed()
                    renewed[credential.name] = identity
                    if let new = state.entries[credential.name] { Self.noteDates(new) }
                    logger.notice(
                        "the credential is renewed; new connections use it",
                        metadata: [
                            "credential": "\(credential.name)",
                            "environment": "\(fingerprint.endpoint.environment.rawValue)",
                        ])
                } catch {
                    keep(entry, in: sources)
                    guard reportsFaults, entry.status.note(fault: "\(error)") else { continue }
                    logger.error(
                        "the credential can't be renewed; the one before stays in use",
                        metadata: ["credential": "\(credential.name)", "error": "\(error)"])
                }
            }
            state.configuration = settings
            state.sources = sources
            return renewed
        }
    }

    /// Logs certificates that expire soon, each time that the rest of their life passes a limit.
    ///
    /// - Parameter now: seconds since 1970.
    func warnOfExpiries(at now: Int64) {
        state.withLock { state in
            for name in state.entries.keys.sorted() {
                guard let expires = state.entries[name]?.status.report.expires,
                    let days = state.entries[name]?.notice.due(expires: expires, now: now)
                else { continue }
                let isExpired = expires <= now
                logger.log(
                    level: isExpired || days < 7 ? .error : .warning,
                    isExpired ? "the certificate has expired" : "the certificate expires soon",
                    metadata: [
                        "credential": "\(name)", "days": "\(days)",
                        "expires": "\(CertificateVerdict.date(expires))",
                        "action":
                            "request a new certificate from Apple's developer site, and put it into the file",
                    ])
            }
        }
    }

    /// Loads a changed credential. A renewed certificate must not have expired. The key in use before serves as a last
    /// resort, in case that APNs doesn't know the new key.
    private func load(
        _ credential: Configuration.Credential, _ loader: CredentialLoader, before: Entry
    ) throws(WorkerError) -> CredentialIdentity {
        var identity = try loader.load(credential)
        if case .certificate(let file, _) = credential.kind {
            let now = Int64(ClockReading.now().wallSeconds)
            if let facts = try? CertificateFile(reading: .file(file)), facts.notAfter <= now {
                throw .credential(
                    "credentials.\(credential.name).certificate-file: \(file) expired on "
                        + "\(CertificateVerdict.date(facts.notAfter)); request a new certificate")
            }
        }
        if let new = identity.keys, let old = before.identity.keys {
            let last = old.sources[old.current]
            let isKnown = new.sources.contains { $0 === last }
            let isSameTeam = new.sources.first?.credential.teamID == last.credential.teamID
            if !isKnown, isSameTeam { identity.keys = ProviderKeyring(new.sources + [last]) }
        }
        return identity
    }

    /// Registers the keys of an unchanged credential.
    private func keep(_ entry: Entry, in sources: ProviderTokenSources) {
        for source in entry.identity.keys?.sources ?? [] { _ = try? sources.source(for: source.credential) }
    }

    private func warn(ofDifferencesTo new: Configuration, from applied: Configuration) {
        guard new != applied else { return }
        logger.warning(
            "the configuration has changed beyond the credentials' files and keys; restart the worker to apply the rest"
        )
    }

    // MARK: Files

    /// Credentials that an app uses, each once.
    private static func used(_ configuration: Configuration) -> [Configuration.Credential] {
        let names = Set(configuration.apps.flatMap(\.credentials))
        return configuration.credentials.filter { names.contains($0.name) }
    }

    private static func fingerprint(
        of credential: Configuration.Credential, _ configuration: Configuration, _ hasher: IdentityHasher
    ) -> Fingerprint {
        let endpoint = configuration.endpoint(of: credential)
        var contents: [String: UInt64?] = [:]
        let others = [endpoint.caFile, endpoint.proxy?.passwordFile].compactMap { $0 }
        for file in credential.kind.files.map(\.path) + others {
            let bytes = try? BoundedFile.read(file, limit: largestFile)
            contents[file] = .some(bytes.map { $0.withUnsafeBytes { hasher.bytes($0) } })
        }
        return Fingerprint(credential: credential, endpoint: endpoint, contents: contents)
    }

    private static func noteDates(_ entry: Entry) {
        var expires: Int64?
        if case .certificate(let file, _) = entry.fingerprint.credential.kind {
            expires = (try? CertificateFile(reading: .file(file)))?.notAfter
        }
        var facts = stat()
        let key = entry.fingerprint.credential.kind.files.first { $0.isSecret }?.path
        let isKnown = key.map { stat($0, &facts) == 0 } ?? false
        entry.status.note(expires: expires, keyModified: isKnown ? Int64(facts.st_mtim.tv_sec) : nil)
    }
}

extension Configuration {
    /// Returns these settings with the files, keys and proxies of other credentials of the same names. Servers and
    /// numbers of connections stay.
    func adopting(credentials others: [Credential], apns: APNS) -> Configuration {
        var adopted = self
        for index in adopted.credentials.indices {
            guard let other = others.first(where: { $0.name == adopted.credentials[index].name }) else {
                continue
            }
            switch (adopted.credentials[index].kind, other.kind) {
            case (.token, .token), (.certificate, .certificate): adopted.credentials[index].kind = other.kind
            // A pool's connections are made for one kind.
            default: break
            }
            if adopted.credentials[index].endpoint != nil, let endpoint = other.endpoint {
                adopted.credentials[index].endpoint?.caFile = endpoint.caFile
                adopted.credentials[index].endpoint?.proxy = endpoint.proxy
            }
        }
        adopted.apns.caFile = apns.caFile
        adopted.apns.proxy = apns.proxy
        return adopted
    }
}
