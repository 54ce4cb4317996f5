import Foundation
import HTTP2
import TestSupport
import Testing

/// Our client against a server that no one here wrote: nghttpd (Debian: nghttp2-server).
@Suite struct ForeignServerTests {
    @Test(.enabled(if: Executables.find("nghttpd") != nil, "nghttpd is not installed"))
    func nghttpdAcceptsOurRequests() throws {
        let directory = try TemporaryDirectory("nghttpd")
        let authority = try CertificateAuthority(commonName: "test")
        let server = try authority.issueServer(names: ["localhost"])
        try directory.write(server.chainPEM, to: "server.pem")
        try directory.write(server.privateKeyPEM, to: "server.key")
        // It serves files, whatever the method: half of the requests are for one that exists.
        try FileManager.default.createDirectory(
            atPath: directory.file("www/3/device"), withIntermediateDirectories: true)
        for number in stride(from: 0, to: 2000, by: 2) {
            try directory.write("x", to: "www/3/device/\(number)")
        }
        let port = try Self.freePort()
        let child = try ChildProcess(
            "nghttpd",
            [
                "--address=127.0.0.1", "-d", directory.file("www"), "\(port)", directory.file("server.key"),
                directory.file("server.pem"),
            ])
        var options = ClientTLSOptions()
        options.trust = .authorities(.text(authority.certificatePEM))
        let client = try PoolClient(port: port, context: .client(options)) { $0.connections = 2 }
        client.send(0..<2000)
        try child.waits(for: "2000 answers") { client.read { $0.ends.count } == 2000 }
        let ends = client.read { $0.ends }
        #expect(ends.allSatisfy { number, statuses in statuses == [number % 2 == 0 ? 200 : 404] })
        #expect(client.read { $0.refusals } == 0)
        client.stop()
        child.signal(SIGTERM)
        try child.wait()
    }

    /// A port that was free a moment ago; nghttpd can't choose one itself.
    private static func freePort() throws -> UInt16 {
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        defer { close(descriptor) }
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let result = withUnsafeMutablePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { pointer in
                bind(descriptor, pointer, length) == 0 ? getsockname(descriptor, pointer, &length) : -1
            }
        }
        try #require(result == 0)
        return UInt16(bigEndian: address.sin_port)
    }
}
