import Glibc

extension Configuration {
    /// Section `admin`.
    public struct Admin: Sendable, Equatable {
        /// Address that the admin endpoint listens at; nil when there is no endpoint.
        public var listen: ListenAddress?
        /// Names and addresses that requests may name as their host, besides the worker's own. `*` allows any.
        public var allowedHosts: [String]
        /// Path of a socket that takes commands, which only the worker's user may open; nil when there is none.
        public var socket: String?
        /// File with the token that commands to ``listen`` present; nil when none are taken there.
        public var tokenFile: String?

        /// Least size of the token in bytes, because whoever guesses it can stop all pushes.
        public static let leastTokenBytes = 16

        public init(
            listen: ListenAddress? = ListenAddress(host: "127.0.0.1", port: 9464),
            allowedHosts: [String] = [],
            socket: String? = nil, tokenFile: String? = nil
        ) {
            self.listen = listen
            self.allowedHosts = allowedHosts
            self.socket = socket
            self.tokenFile = tokenFile
        }
    }
}

/// An address of this machine to listen at.
public struct ListenAddress: Sendable, Equatable, CustomStringConvertible {
    /// An IPv4 or IPv6 address in its usual text form.
    public var host: String
    /// Port; 0 for any free port.
    public var port: UInt16

    public init(host: String, port: UInt16) {
        self.host = host
        self.port = port
    }

    static let grammar = "address:port, such as `127.0.0.1:9464`, `0.0.0.0:9464` or `[::]:9464`, or `off`"

    /// Reads `127.0.0.1:9464`, `[::1]:9464` and `localhost:9464`, which means the first.
    public init?(_ text: String) {
        guard let colon = text.lastIndex(of: ":") else { return nil }
        let digits = text[text.index(after: colon)...]
        guard digits.allSatisfy({ ("0"..."9").contains($0) }), let port = UInt16(digits) else { return nil }
        var host = String(text[..<colon])
        if host.hasPrefix("["), host.hasSuffix("]") {
            host = String(host.dropFirst().dropLast())
            var address = in6_addr()
            guard inet_pton(AF_INET6, host, &address) == 1 else { return nil }
        } else {
            if host == "localhost" { host = "127.0.0.1" }
            var address = in_addr()
            guard inet_pton(AF_INET, host, &address) == 1 else { return nil }
        }
        self.init(host: host, port: port)
    }

    /// Whether the host is an IPv6 address.
    public var isIPv6: Bool { host.contains(":") }

    public var description: String { isIPv6 ? "[\(host)]:\(port)" : "\(host):\(port)" }
}

extension Configuration {
    /// Reads the section `admin` alone. Mistakes of other sections are ignored, and no file that the
    /// configuration names is opened.
    ///
    /// - Parameters:
    ///   - path: A YAML or JSON file; nil when everything comes from the environment.
    ///   - environment: The process's environment.
    /// - Throws: `ConfigurationError` for a file that can't be read, and for mistakes in section `admin`.
    public static func admin(
        path: String?, environment: [String: String]
    ) throws(ConfigurationError) -> Admin {
        let name = path ?? "environment"
        var files = FileNames(directory: directory(of: path), access: .none)
        files.credentialsDirectory = environment["CREDENTIALS_DIRECTORY"]
        let collector = ConfigurationCollector(name: name, files: files)
        let text = if let path { try readText(path) } else { "" }
        let (document, _) = EnvironmentOverrides.apply(
            environment.filter { $0.key.hasPrefix("SLUICE_ADMIN__") },
            to: try ConfigurationValue.parse(text, name: name), problems: &collector.problems)
        let admin = SectionReader(document, path: "", pattern: "", collector: collector)
            .section("admin") { readAdmin($0, files: files) }
        let problems = collector.problems.filter { $0.key == "admin" || $0.key.hasPrefix("admin.") }
        guard problems.isEmpty else { throw ConfigurationError(problems: inOrder(problems)) }
        return admin
    }

    static func readAdmin(_ section: SectionReader, files: FileNames) -> Admin {
        let defaults = Admin()
        let text = section.text(
            "listen", kind: "address:port|off", default: defaults.listen.map { "\($0)" },
            help: "address of the admin endpoint: probes, metrics, the store; port 0: any free port"
        ) { text in
            text == "off" || ListenAddress(text) != nil
                ? nil : "`\(text)` is not \(ListenAddress.grammar)"
        }
        let allowedHosts = section.texts(
            "allowed-hosts", kind: "list of text", required: false, commaSeparated: true,
            help:
                "hosts that requests may name besides the worker's own; `*.example.com`: all subdomains; `*`: any host",
            check: checkAllowedHost)
        let socket = section.text(
            "socket", kind: "path",
            help:
                "socket for commands, such as `sluice ctl pause`, which only the worker's user may open; default: none",
            check: { path in
                let count = files.resolve(path).utf8.count
                return (1...mostSocketBytes).contains(count)
                    ? nil
                    : "has \(count) bytes with its directory; the system accepts 1 to \(mostSocketBytes)"
            })
        let tokenFile = section.text(
            "token-file", kind: "file",
            help:
                "file with the token, of 16 bytes at least, that commands to `listen` present; default: `listen` takes no commands",
            check: files.check)
        return Admin(
            listen: text.flatMap { ListenAddress($0) }, allowedHosts: allowedHosts,
            socket: socket.map(files.resolve), tokenFile: tokenFile.map(files.resolve))
    }

    /// Most bytes of a socket's path.
    public static let mostSocketBytes = 107

    /// Checks a name or address without a port, or a pattern.
    private static func checkAllowedHost(_ text: String) -> String? {
        if text == "*" { return nil }
        let address = text.hasPrefix("[") && text.hasSuffix("]") ? String(text.dropFirst().dropLast()) : text
        var v6 = in6_addr()
        if inet_pton(AF_INET6, address, &v6) == 1 { return nil }
        let name = text.hasPrefix("*.") ? text.dropFirst(2) : text[...]
        let isName =
            !name.isEmpty
            && name.utf8.allSatisfy {
                switch $0 {
                case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                    UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"),
                    UInt8(ascii: "."):
                    true
                default: false
                }
            }
        return isName ? nil : "`\(text)` is not a name or address without a port, `*.` and a name, or `*`"
    }
}
