import ArgumentParser
import Configuration
import Foundation

/// Address of a worker's admin endpoint.
struct AdminAddress: Sendable, Hashable, CustomStringConvertible {
    /// A name, or an IPv4 or IPv6 address without brackets.
    let host: String
    let port: UInt16

    /// Port where the text names none, and where the configuration names none.
    static let defaultPort: UInt16 = 9464
    /// Endpoint of a configuration without section `admin`.
    static let standard = AdminAddress(host: "127.0.0.1", port: defaultPort)

    init(host: String, port: UInt16) {
        self.host = host
        self.port = port
    }

    /// Reads `host:port`, `host`, `:port`, `[::1]:9464` and `http://host:port/`. Returns nil for other texts.
    init?(_ text: String) {
        var rest = Substring(text)
        if rest.hasPrefix("http://") { rest = rest.dropFirst("http://".count) }
        if rest.hasSuffix("/") { rest = rest.dropLast() }
        var digits: Substring?
        let name: Substring
        if rest.hasPrefix("[") {
            guard let end = rest.firstIndex(of: "]") else { return nil }
            name = rest[rest.index(after: rest.startIndex)..<end]
            let tail = rest[rest.index(after: end)...]
            guard tail.isEmpty || tail.hasPrefix(":") else { return nil }
            if !tail.isEmpty { digits = tail.dropFirst() }
            var address = in6_addr()
            guard inet_pton(AF_INET6, String(name), &address) == 1 else { return nil }
        } else {
            let parts = rest.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
            guard let first = parts.first, !rest.isEmpty else { return nil }
            name = first.isEmpty ? "127.0.0.1" : first
            if parts.count > 1 { digits = parts[1] }
            let isName = name.utf8.allSatisfy {
                switch $0 {
                case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                    UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"),
                    UInt8(ascii: "."):
                    true
                default: false
                }
            }
            guard isName, name.utf8.count <= 253 else { return nil }
        }
        var port = Self.defaultPort
        if let digits {
            guard digits.utf8.allSatisfy({ (0x30...0x39).contains($0) }), let number = UInt16(digits),
                number > 0
            else { return nil }
            port = number
        }
        self.init(host: String(name), port: port)
    }

    /// Address at which a worker that listens at `listen` is reached from its own machine.
    init(reaching listen: ListenAddress) {
        let host =
            switch listen.host {
            case "0.0.0.0": "127.0.0.1"
            case "::": "::1"
            default: listen.host
            }
        self.init(host: host, port: listen.port)
    }

    /// Value of a request's `Host` field, too.
    var description: String { host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)" }

    static let grammar = "host:port, such as `127.0.0.1:9464`, `worker-0.sluice:9464` or `[::1]:9464`"

    /// Finds the endpoint of the worker on this machine.
    ///
    /// - Parameters:
    ///   - option: text of the command line, which wins.
    ///   - config: the worker's configuration file; nil when everything comes from the environment.
    ///   - environment: the process's environment, in which `SLUICE_ADMIN__LISTEN` overrides the file.
    /// - Throws: `CommandFailure` for a wrong configuration, and for one without a fixed endpoint.
    static func ofThisMachine(
        option: String?, config: String?, environment: [String: String]
    ) throws -> AdminAddress {
        if let option {
            guard let address = AdminAddress(option) else {
                throw ValidationError("--admin: `\(option)` is not \(grammar)")
            }
            return address
        }
        let admin: Configuration.Admin
        do throws(ConfigurationError) {
            admin = try Configuration.admin(path: config, environment: environment)
        } catch {
            throw CommandFailure(.configuration, "\(error)")
        }
        return try reaching(admin)
    }

    /// Returns the address of a configured endpoint.
    /// - Throws: `CommandFailure` for a configuration without a fixed endpoint.
    static func reaching(_ admin: Configuration.Admin) throws -> AdminAddress {
        guard let listen = admin.listen else {
            throw CommandFailure(
                .configuration, "admin.listen is `off`, so the worker has no endpoint; set an address")
        }
        guard listen.port > 0 else {
            throw CommandFailure(
                .configuration,
                "admin.listen has port 0, any free port; set a port, or name the worker's with --admin")
        }
        return AdminAddress(reaching: listen)
    }
}
