import Glibc

extension HTTPServer {
    /// Address of this machine that the client of a socket has reached; nil when the system does not have it.
    static func localAddress(of descriptor: Int32) -> String? {
        var storage = sockaddr_storage()
        var length = socklen_t(MemoryLayout<sockaddr_storage>.size)
        var host = [CChar](repeating: 0, count: 64)
        let isKnown = withUnsafeMutableBytes(of: &storage) { bytes in
            let name = bytes.baseAddress!.assumingMemoryBound(to: sockaddr.self)
            return getsockname(descriptor, name, &length) == 0
                && getnameinfo(name, length, &host, 64, nil, 0, NI_NUMERICHOST) == 0
        }
        guard isKnown else { return nil }
        return String(decoding: host.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}
