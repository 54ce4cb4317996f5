// Section `credentials`: identities towards APNs, and the servers they are for.

extension Configuration {
    /// A server with the APNs protocol, and the way to it.
    public struct Endpoint: Sendable, Equatable {
        public var environment: APNS.Environment
        /// Name or address of the server.
        public var host: String
        /// Port of the server, 1 to 65,535.
        public var port: Int
        /// Name of the server in requests and in its certificate; nil means host and port.
        public var authority: String?
        /// PEM file of the certificate authorities to trust; nil means the system's.
        public var caFile: String?
        /// HTTP proxy that connections pass through (`CONNECT`); nil means none.
        public var proxy: APNS.Proxy?

        public init(
            environment: APNS.Environment, host: String, port: Int, authority: String? = nil,
            caFile: String? = nil, proxy: APNS.Proxy? = nil
        ) {
            self.environment = environment
            self.host = host
            self.port = port
            self.authority = authority
            self.caFile = caFile
            self.proxy = proxy
        }
    }

    /// An entry of section `credentials`, or the credential written inside of an app.
    public struct Credential: Sendable, Equatable {
        /// A signing key of a team.
        public struct Key: Sendable, Equatable {
            /// File of the key (.p8).
            public var file: String
            /// Identifier of the key, 10 capital letters and digits.
            public var id: String

            public init(file: String, id: String) {
                self.file = file
                self.id = id
            }
        }

        /// Kind of the credential, with its files.
        public enum Kind: Sendable, Equatable {
            /// Provider tokens signed with a `.p8` key of a team. At least one key, in order of preference: the next
            /// one is used when APNs refuses the one before.
            case token(keys: [Key], teamID: String)
            /// A client certificate, both files PEM.
            case certificate(certificateFile: String, keyFile: String)

            /// Provider tokens of one key.
            public static func token(keyFile: String, keyID: String, teamID: String) -> Kind {
                .token(keys: [Key(file: keyFile, id: keyID)], teamID: teamID)
            }

            /// Files of the credential with their settings' names. Those with secrets come first.
            public var files: [(setting: String, path: String, isSecret: Bool)] {
                switch self {
                case .token(let keys, _):
                    keys.count == 1
                        ? [("key-file", keys[0].file, true)]
                        : keys.enumerated().map { ("keys[\($0.offset)].key-file", $0.element.file, true) }
                case .certificate(let certificateFile, let keyFile):
                    [("key-file", keyFile, true), ("certificate-file", certificateFile, false)]
                }
            }
        }

        /// Name that apps refer to.
        public var name: String
        public var kind: Kind
        /// Server of the credential; nil means that of section `apns`.
        public var endpoint: Endpoint?
        /// Connections that this credential's pool keeps open; nil means `apns.connections`.
        public var connections: Int?
        /// Most connections of the pool; nil means `apns.max-connections`.
        public var maxConnections: Int?

        public init(
            name: String, kind: Kind, endpoint: Endpoint? = nil, connections: Int? = nil,
            maxConnections: Int? = nil
        ) {
            self.name = name
            self.kind = kind
            self.endpoint = endpoint
            self.connections = connections
            self.maxConnections = maxConnections
        }
    }

    private enum CredentialType: String, CaseIterable {
        case token, certificate
    }

    static func readCredential(
        _ section: SectionReader, name: String, apns: APNS, files: FileNames
    ) -> Credential? {
        let type = section.choice(
            "type", of: CredentialType.self, default: nil, required: true,
            help: "a signing key (.p8) or a client certificate")
        let kind: Credential.Kind
        switch type {
        case .token: kind = readToken(section, files: files)
        case .certificate:
            let certificateFile = section.text(
                "certificate-file", kind: "file", required: true,
                help: "for a certificate: its file (PEM), with intermediates if any",
                check: files.check)
            let keyFile = section.text(
                "key-file", kind: "file", required: true, help: keyFileHelp, check: files.check)
            kind = .certificate(
                certificateFile: files.resolve(certificateFile ?? ""), keyFile: files.resolve(keyFile ?? ""))
        case nil:
            // The type decides which keys belong here.
            section.acceptRest()
            return nil
        }
        let endpoint = readEndpoint(section, apns: apns, files: files)
        let connections = section.integer(
            "connections", 1...1_000, help: "connections that this pool keeps open; default: apns.connections"
        )
        let maxConnections = section.integer(
            "max-connections", 1...1_000,
            help: "highest number of connections of this pool; default: apns.max-connections")
        if let maxConnections, maxConnections < connections ?? apns.connections {
            let least = connections.map { "`connections`, \($0)" } ?? "apns.connections, \(apns.connections)"
            section.problem(
                "max-connections", "must not be less than \(least)",
                with: [section.path("connections"), "apns.connections"])
        }
        return Credential(
            name: name, kind: kind, endpoint: endpoint, connections: connections,
            maxConnections: maxConnections)
    }

    private static let keyFileHelp = "file of the signing key (.p8); for a certificate: its private key (PEM)"

    private static func readToken(_ section: SectionReader, files: FileNames) -> Credential.Kind {
        let keys =
            section.contains("keys")
            ? section.sections(
                "keys", help: "several signing keys of the team, in order of preference"
            ) { readKey($0, isRequired: true, files: files) } : []
        let own = readKey(section, isRequired: !section.contains("keys"), files: files)
        let teamID = section.text(
            "team-id", required: true,
            help: "for a signing key: the team's identifier, 10 letters and digits",
            check: checkIdentifier)
        if section.contains("keys"), section.contains("key-file") || section.contains("key-id") {
            section.problem("keys", "stands beside `key-file` or `key-id`; move that key into the list")
        }
        var ids: Set<String> = []
        for key in keys where !key.id.isEmpty && !ids.insert(key.id).inserted {
            section.problem("keys", "lists key `\(key.id)` twice")
        }
        return .token(keys: keys.isEmpty ? [own] : keys, teamID: teamID ?? "")
    }

    /// Reads a key's file and identifier. The identifier may be left out when the file has Apple's name for it.
    private static func readKey(
        _ section: SectionReader, isRequired: Bool, files: FileNames
    ) -> Credential.Key {
        let file = section.text(
            "key-file", kind: "file", required: isRequired, help: keyFileHelp, check: files.check)
        let named = file.flatMap(keyID(ofFile:))
        let id = section.text(
            "key-id", required: isRequired && named == nil,
            help:
                "for a signing key: the key's identifier, 10 letters and digits; default: from a file name AuthKey_<key-id>.p8",
            check: checkIdentifier)
        return Credential.Key(file: files.resolve(file ?? ""), id: id ?? named ?? "")
    }

    /// Returns the identifier in a file name as Apple gives it, `AuthKey_ABC123DEFG.p8`; nil for another name.
    static func keyID(ofFile path: String) -> String? {
        let name = path.split(separator: "/").last ?? ""
        guard name.hasPrefix("AuthKey_"), name.hasSuffix(".p8") else { return nil }
        let id = String(name.dropFirst("AuthKey_".count).dropLast(".p8".count))
        return checkIdentifier(id) == nil ? id : nil
    }

    /// Reads the server of a credential; nil when the credential names none of its settings.
    private static func readEndpoint(
        _ section: SectionReader, apns: APNS, files: FileNames
    ) -> Endpoint? {
        let isOwn = ["environment", "host", "port", "authority", "ca-file", "proxy"].contains {
            section.contains($0)
        }
        let named = section.choice(
            "environment", of: APNS.Environment.self, default: nil, required: false,
            help: "environment of this credential; default: apns.environment")
        let environment = named ?? apns.environment
        // Host and authorities of another environment would be wrong.
        let isOfSection = environment == apns.environment
        let host = section.text(
            "host", required: environment == .custom && !isOfSection,
            help: "server of this credential; default: Apple's server of the environment, or apns.host",
            check: checkHost)
        if let host, let wrong = checkEnvironment(of: host, environment) {
            section.problem("host", wrong, with: [section.path("environment"), "apns.environment"])
        }
        let port = section.integer(
            "port", 1...65_535, help: "port of this credential's server; default: apns.port")
        let authority = section.text(
            "authority",
            help:
                "name of this credential's server in requests and in its certificate; default: host and port",
            check: checkAuthority)
        let caFile = section.text(
            "ca-file", kind: "file", help: "authorities to trust with this credential; default: apns.ca-file",
            check: files.check
        ).map(files.resolve)
        let proxy = readProxy(section, files: files)
        guard isOwn else { return nil }
        return Endpoint(
            environment: environment,
            host: host ?? (isOfSection ? apns.host : environment.host ?? ""),
            port: port ?? (isOfSection || apns.environment != .custom ? apns.port : 443),
            authority: authority ?? (isOfSection && host == nil ? apns.authority : nil),
            caFile: caFile ?? (isOfSection ? apns.caFile : nil), proxy: proxy ?? apns.proxy)
    }

    /// Returns the fault of a server in an environment, or nil: the server of Apple's other environment is a mistake.
    static func checkEnvironment(of host: String, _ environment: APNS.Environment) -> String? {
        for other in APNS.Environment.allCases where other != environment && other.host == host {
            return
                "is Apple's server of environment `\(other.rawValue)`; set environment to `\(other.rawValue)`"
        }
        return nil
    }

    static func checkAuthority(_ text: String) -> String? {
        checkServer(text) == nil && !text.contains("/") ? nil : "`\(text)` is not a host name, or host:port"
    }
}

extension Configuration.APNS {
    /// Server of the credentials that name none of their own.
    public var endpoint: Configuration.Endpoint {
        Configuration.Endpoint(
            environment: environment, host: host, port: port, authority: authority, caFile: caFile,
            proxy: proxy)
    }
}
