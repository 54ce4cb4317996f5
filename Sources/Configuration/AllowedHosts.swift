import Foundation

/// Decides by a request's `Host` field whether the request is meant for this process.
///
/// Any web page can have its name resolve to an address of this machine (DNS rebinding). The browser then takes the
/// answers for the page's own. `Host` still has the name that the browser asked for, so foreign names are refused.
public struct AllowedHosts: Sendable {
    /// Lower-case names without a final period.
    private var names: Set<String> = ["localhost"]
    /// Ends of names, each with a leading period.
    private var suffixes = [".svc", ".svc.cluster.local"]
    private var addresses: Set<IPAddress> = []
    private var allowsAll = false

    /// - Parameters:
    ///   - listen: address that the endpoint listens at.
    ///   - hostName: name of this machine, or of the pod.
    ///   - more: settings of `admin.allowed-hosts`.
    public init(listen: ListenAddress, hostName: String, more: [String] = []) {
        if let address = IPAddress(listen.host) { addresses.insert(address) }
        let hostName = Self.normalized(hostName)
        if !hostName.isEmpty { names.insert(hostName) }
        if let label = hostName.split(separator: ".").first { names.insert(String(label)) }
        for entry in more {
            if entry == "*" {
                allowsAll = true
            } else if let address = IPAddress(Self.withoutBrackets(entry)) {
                addresses.insert(address)
            } else if entry.hasPrefix("*.") {
                suffixes.append(Self.normalized(String(entry.dropFirst())))
            } else {
                names.insert(Self.normalized(entry))
            }
        }
    }

    /// Name of this machine as the system has it, without asking a name server; empty when there is none.
    public static var hostName: String {
        var name = [CChar](repeating: 0, count: 256)
        guard gethostname(&name, name.count - 1) == 0 else { return "" }
        return String(decoding: name.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    /// Returns whether a request is meant for this process.
    /// - Parameters:
    ///   - host: value of the field; nil when the request has none. Browsers always send the field.
    ///   - local: address of this machine that the connection reached.
    public func allows(_ host: String?, local: String?) -> Bool {
        guard !allowsAll, let host else { return true }
        guard let name = Self.name(of: host) else { return false }
        if let address = IPAddress(name) {
            return address.isLoopback || addresses.contains(address)
                || local.flatMap { IPAddress($0) } == address
        }
        let normalized = Self.normalized(name)
        return names.contains(normalized)
            || suffixes.contains { normalized.hasSuffix($0) && normalized.count > $0.count }
    }

    /// Separates the name from the port (RFC 9110, 7.2). Returns nil for a text that isn't a name or address.
    private static func name(of host: String) -> String? {
        if host.hasPrefix("[") {
            guard let end = host.firstIndex(of: "]") else { return nil }
            return isPort(host[host.index(after: end)...]) ? String(host[..<end].dropFirst()) : nil
        }
        let colon = host.firstIndex(of: ":") ?? host.endIndex
        return isPort(host[colon...]) && colon > host.startIndex ? String(host[..<colon]) : nil
    }

    /// Returns whether the text is empty, or a colon and digits.
    private static func isPort(_ text: Substring) -> Bool {
        text.isEmpty || (text.first == ":" && text.dropFirst().utf8.allSatisfy { (0x30...0x39).contains($0) })
    }

    private static func normalized(_ name: String) -> String {
        let name = name.lowercased()
        return name.hasSuffix(".") ? String(name.dropLast()) : name
    }

    private static func withoutBrackets(_ text: String) -> String {
        text.hasPrefix("[") && text.hasSuffix("]") ? String(text.dropFirst().dropLast()) : text
    }
}

/// An IP address, whatever its spelling. An IPv4 address equals its IPv6 form (RFC 4291, 2.5.5.2).
package struct IPAddress: Hashable, Sendable {
    /// Sixteen bytes of the IPv6 form.
    private let bytes: [UInt8]

    /// Nil when the text is a name.
    package init?(_ text: String) {
        var (v4, v6) = (in_addr(), in6_addr())
        if inet_pton(AF_INET, text, &v4) == 1 {
            bytes = Self.mapped + withUnsafeBytes(of: &v4) { Array($0) }
        } else if inet_pton(AF_INET6, text, &v6) == 1 {
            bytes = withUnsafeBytes(of: &v6) { Array($0) }
        } else {
            return nil
        }
    }

    private static let mapped: [UInt8] = Array(repeating: 0, count: 10) + [0xFF, 0xFF]

    package var isLoopback: Bool {
        bytes.starts(with: Self.mapped + [127]) || bytes == Array(repeating: 0, count: 15) + [1]
    }

    /// Whether the address is unspecified, link-local or multicast: none of them is a server's own address.
    package var isSpecial: Bool {
        if bytes.starts(with: Self.mapped) {
            return bytes[12] == 0 || bytes[12] >= 224 || (bytes[12] == 169 && bytes[13] == 254)
        }
        return bytes.allSatisfy { $0 == 0 } || bytes[0] == 0xFF
            || (bytes[0] == 0xFE && bytes[1] & 0xC0 == 0x80)
    }
}
