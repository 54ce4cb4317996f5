import Glibc

/// A socket address in the system's form.
public struct SocketAddress: Sendable, Hashable, CustomStringConvertible {
    var storage = sockaddr_storage()
    var length: socklen_t = 0

    init() {}

    /// Parses a numeric IPv4 or IPv6 address; nil if the text is neither.
    public init?(_ text: String, port: UInt16) {
        var v4 = sockaddr_in()
        var v6 = sockaddr_in6()
        if inet_pton(AF_INET, text, &v4.sin_addr) == 1 {
            v4.sin_family = sa_family_t(AF_INET)
            v4.sin_port = port.bigEndian
            length = socklen_t(MemoryLayout<sockaddr_in>.size)
            withUnsafeMutableBytes(of: &storage) { $0.storeBytes(of: v4, as: sockaddr_in.self) }
        } else if inet_pton(AF_INET6, text, &v6.sin6_addr) == 1 {
            v6.sin6_family = sa_family_t(AF_INET6)
            v6.sin6_port = port.bigEndian
            length = socklen_t(MemoryLayout<sockaddr_in6>.size)
            withUnsafeMutableBytes(of: &storage) { $0.storeBytes(of: v6, as: sockaddr_in6.self) }
        } else {
            return nil
        }
    }

    var family: Int32 { Int32(storage.ss_family) }

    func withPointer<Result>(_ body: (UnsafePointer<sockaddr>, socklen_t) -> Result) -> Result {
        withUnsafePointer(to: storage) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { body($0, length) }
        }
    }

    /// Returns the port that a socket is bound to; nil when the system refuses the question.
    static func port(of descriptor: Int32) -> UInt16? {
        var storage = sockaddr_storage()
        var length = socklen_t(MemoryLayout<sockaddr_storage>.size)
        return withUnsafeMutableBytes(of: &storage) { bytes -> UInt16? in
            let name = bytes.baseAddress!.assumingMemoryBound(to: sockaddr.self)
            guard getsockname(descriptor, name, &length) == 0 else { return nil }
            // The port lies at the same place in both families.
            return UInt16(bigEndian: bytes.load(fromByteOffset: 2, as: UInt16.self))
        }
    }

    /// Number of bytes that make up the address. An IPv4 address ends with padding, which has no meaning.
    private var significantLength: Int {
        family == AF_INET ? min(Int(length), 8) : Int(length)
    }

    public static func == (left: SocketAddress, right: SocketAddress) -> Bool {
        let count = left.significantLength
        guard count == right.significantLength else { return false }
        return withUnsafeBytes(of: left.storage) { a in
            withUnsafeBytes(of: right.storage) { b in memcmp(a.baseAddress!, b.baseAddress!, count) == 0 }
        }
    }

    public func hash(into hasher: inout Hasher) {
        withUnsafeBytes(of: storage) { hasher.combine(bytes: .init(rebasing: $0.prefix(significantLength))) }
    }

    /// Numeric address and port.
    public var description: String {
        var host = [CChar](repeating: 0, count: Int(NI_MAXHOST))
        var service = [CChar](repeating: 0, count: 32)
        let result = withPointer {
            getnameinfo(
                $0, $1, &host, socklen_t(host.count), &service, socklen_t(service.count),
                NI_NUMERICHOST | NI_NUMERICSERV)
        }
        guard result == 0 else { return "unknown address" }
        let text = { (bytes: [CChar]) in
            String(decoding: bytes.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
        }
        return family == AF_INET6 ? "[\(text(host))]:\(text(service))" : "\(text(host)):\(text(service))"
    }
}

enum SocketAddressText {
    /// Whether the text is an IPv4 or IPv6 address.
    static func isAddress(_ text: String) -> Bool {
        var storage = in6_addr()
        return inet_pton(AF_INET, text, &storage) == 1 || inet_pton(AF_INET6, text, &storage) == 1
    }
}
