import Foundation

/// Returns a port of 127.0.0.1 that nothing listens on now. The port is below those that Linux gives for port 0, so
/// that no other test's server takes it. Prefer port 0 where the server reports its port.
public func freePort() throws -> UInt16 {
    let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
    guard descriptor >= 0 else { throw POSIXError(.EMFILE) }
    defer { close(descriptor) }
    for _ in 0..<100 {
        let port = UInt16.random(in: 10_000..<32_768)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr = in_addr(s_addr: UInt32(0x7f00_0001).bigEndian)
        address.sin_port = port.bigEndian
        let isFree = withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size)) == 0
            }
        }
        if isFree { return port }
    }
    throw POSIXError(.EADDRINUSE)
}
