// Settings with a server: `kafka.bootstrap-servers`, and each `host`.

extension Configuration {
    /// librdkafka's names of protocols, which it accepts before `://` in any case.
    private static let protocols = ["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"]

    /// Returns the fault of a server, or nil.
    static func checkServer(_ text: String) -> String? {
        let wrong = "`\(text)` is not host:port"
        var address = text[...]
        if let scheme = scheme(of: text) {
            guard protocols.contains(scheme) else {
                let rest = text.dropFirst(scheme.count + 3).prefix { $0 != "/" && $0 != "?" }
                let isServer = rest.contains(":") && checkServer(String(rest)) == nil
                return "`\(text)` is a URL, but Kafka's brokers have no URL; write "
                    + (isServer ? "`\(rest)`" : "host:port, such as `kafka.example.com:9092`")
            }
            address = text.dropFirst(scheme.count + 3)
        }
        // An IPv6 address in brackets has its own colons.
        let afterHost =
            address.hasPrefix("[") ? address.drop { $0 != "]" }.dropFirst() : address.drop { $0 != ":" }
        let host = address.dropLast(afterHost.count)
        let isAddress = isAddressInBrackets(host)
        guard isAddress || !host.isEmpty && host.utf8.allSatisfy(isOfHost) else { return wrong }
        if afterHost.isEmpty { return nil }
        guard afterHost.hasPrefix(":"), let port = Int(afterHost.dropFirst()), (1...65_535).contains(port)
        else { return wrong }
        return nil
    }

    /// Checks that a server's protocol is the clients' own, because librdkafka ignores any other server.
    static func checkProtocols(of servers: [String], _ kafka: Kafka, _ section: SectionReader) {
        let name = "security.protocol"
        let sections = [
            ("producer-properties", kafka.producerProperties),
            ("consumer-properties", kafka.consumerProperties),
        ]
        for (index, server) in servers.enumerated() {
            guard let scheme = scheme(of: server) else { continue }
            for (key, own) in sections {
                let property = (kafka.properties + own).last { $0.name == name }
                let used = property?.value.lowercased() ?? protocols[0]
                guard used != scheme else { continue }
                let hint =
                    "set it to \(scheme.uppercased()), or leave out `\(server.prefix(scheme.count))://`"
                section.problem(
                    "bootstrap-servers",
                    "`\(server)` has another protocol than kafka.properties.\(name), \(used.uppercased()): \(hint)",
                    with: [
                        "kafka.bootstrap-servers[\(index)]", "kafka.properties.\(name)",
                        "kafka.\(key).\(name)",
                    ])
                break
            }
        }
    }

    /// Returns the part before `://` in small letters; nil without that part.
    private static func scheme(of server: String) -> String? {
        guard let range = server.firstRange(of: "://") else { return nil }
        return server[..<range.lowerBound].lowercased()
    }

    private static func isOfHost(_ byte: UInt8) -> Bool {
        switch byte {
        case 0x30...0x39, 0x41...0x5a, 0x61...0x7a, 0x80...0xff: true
        default: "-._".utf8.contains(byte)
        }
    }

    private static func isAddressInBrackets(_ text: Substring) -> Bool {
        text.hasPrefix("[") && text.hasSuffix("]") && isIPv6(text.dropFirst().dropLast())
    }

    /// Returns whether the text is an IPv6 address, with its scope if any.
    private static func isIPv6(_ text: Substring) -> Bool {
        let address = text.prefix { $0 != "%" }
        let scope = text.dropFirst(address.count)
        return address.contains(":") && IPAddress(String(address)) != nil
            && (scope.isEmpty || scope.count > 1 && scope.dropFirst().utf8.allSatisfy(isOfHost))
    }

    /// Returns the fault of a host's name or address, or nil.
    static func checkHost(_ text: String) -> String? {
        if isIPv6(text[...]) { return nil }
        var rest = text[...]
        if let scheme = scheme(of: text) {
            rest = text.dropFirst(scheme.count + 3).prefix { !"/?#".contains($0) }
        }
        var host = rest
        var port = rest[rest.endIndex...]
        if let colon = rest.lastIndex(of: ":"), !isAddressInBrackets(rest) {
            host = rest[..<colon]
            port = rest[colon...].dropFirst()
        }
        if isAddressInBrackets(host) { host = host.dropFirst().dropLast() }
        let isName =
            host.utf8.count <= 253 && !host.isEmpty && !host.hasPrefix(".") && !host.contains("..")
            && host.utf8.allSatisfy { $0 < 0x80 && isOfHost($0) }
        guard isName || isIPv6(host), port.isEmpty || Int(port).map((1...65_535).contains) == true else {
            return "\(ConfigurationValue.quoted(text)) is not the name or address of a host, such as "
                + "`host.example.com`"
        }
        if host == text[...] { return nil }
        return "\(ConfigurationValue.quoted(text)) must be a name or address alone; write `\(host)`"
            + (port.isEmpty ? "" : ", and set `port` to \(port)")
    }
}
