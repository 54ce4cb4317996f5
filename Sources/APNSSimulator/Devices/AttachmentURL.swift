import Configuration

/// Address of an attachment: `http://host[:port]/path`. Other schemes are not fetched.
struct AttachmentURL: Equatable {
    /// Lower-case name or address, without brackets.
    var host: String
    var port: UInt16
    /// Path with its query.
    var target: String

    /// Longest text in bytes.
    static let longest = 2_048

    /// Cause why a text is no address that is fetched.
    struct Fault: Error, Equatable {
        var text: String
    }

    init(_ text: String) throws(Fault) {
        guard text.utf8.count <= Self.longest, text.utf8.allSatisfy({ (0x21...0x7E).contains($0) }) else {
            throw Fault(text: "the URL has spaces or other letters than ASCII, or more than 2,048 bytes")
        }
        guard text.lowercased().hasPrefix("http://") else {
            throw Fault(text: "only http:// is fetched; real apps need https://, the simulator does not")
        }
        let rest = text.dropFirst(7).prefix { $0 != "#" }
        let authority = rest.prefix { $0 != "/" && $0 != "?" }
        let path = rest[authority.endIndex...]
        target = path.hasPrefix("/") ? String(path) : "/" + path
        guard let (host, port) = Self.split(authority), !authority.contains("@") else {
            throw Fault(text: "the URL has no host of the form NAME, NAME:PORT or [ADDRESS]:PORT")
        }
        self.host = host
        self.port = port ?? 80
    }

    /// Splits a host and its optional port; nil for another form.
    private static func split(_ text: Substring) -> (host: String, port: UInt16?)? {
        var host = text
        var port: UInt16?
        let end = text.hasPrefix("[") ? text.firstIndex(of: "]") : nil
        if text.hasPrefix("["), end == nil { return nil }
        let from = end ?? text.startIndex
        if let colon = text[from...].lastIndex(of: ":") {
            guard let number = UInt16(text[text.index(after: colon)...]), number > 0 else { return nil }
            port = number
            host = text[..<colon]
        }
        if host.hasPrefix("[") {
            guard host.hasSuffix("]") else { return nil }
            host = host.dropFirst().dropLast()
        }
        guard !host.isEmpty, host.utf8.allSatisfy({ isHostByte($0) }) else { return nil }
        return (host.lowercased(), port)
    }

    private static func isHostByte(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "-"), UInt8(ascii: "_"),
            UInt8(ascii: ":"):
            true
        default: false
        }
    }

    /// Whether an entry of `allowed-hosts` is a host, with an optional port.
    static func isHost(_ text: String) -> Bool { split(text[...]) != nil }

    /// Whether a list names this host. An entry without a port allows each port.
    func isListed(in allowed: [String]) -> Bool {
        allowed.contains { entry in
            guard let (host, port) = Self.split(entry[...]) else { return false }
            return host == self.host && (port == nil || port == self.port)
        }
    }

    /// Value of the field `Host`.
    var field: String {
        let name = host.contains(":") ? "[\(host)]" : host
        return port == 80 ? name : "\(name):\(port)"
    }

    /// Whether an address that the host's name has may be connected to. A name that is not listed must be this machine's.
    static func allows(_ address: String, isListed: Bool) -> Bool {
        // The zone of a link-local address is no part of it.
        guard let ip = IPAddress(String(address.prefix { $0 != "%" })) else { return false }
        if ip.isLoopback { return true }
        return isListed && !ip.isSpecial
    }
}
