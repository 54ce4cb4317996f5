// Setting `kafka.bootstrap-servers`.

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
        guard !host.isEmpty, host.utf8.allSatisfy(isOfHost) else { return wrong }
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
        default: "-._:%[]".utf8.contains(byte)
        }
    }
}
