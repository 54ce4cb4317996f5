import Glibc
import HTTP2

/// Authority of a simulator, and its server's certificate.
struct SimulatorCertificates: Sendable {
    let authority: CertificateAuthority
    let server: IssuedCertificate

    /// Loads the authority from the directory, or creates one, and issues a new server certificate.
    init(directory: String?, names: [String]) throws {
        guard let directory else {
            authority = try CertificateAuthority(commonName: Self.name)
            server = try authority.issueServer(names: names)
            return
        }
        guard mkdir(directory, 0o755) == 0 || errno == EEXIST else {
            throw SimulatorError("directory “\(directory)”: \(String(cString: strerror(errno)))")
        }
        if let certificate = try Self.read("\(directory)/ca.pem"),
            let key = try Self.read("\(directory)/ca-key.pem")
        {
            authority = try CertificateAuthority(certificatePEM: certificate, privateKeyPEM: key)
        } else {
            authority = try CertificateAuthority(commonName: Self.name)
            try Self.write(authority.privateKeyPEM, to: "\(directory)/ca-key.pem", mode: 0o600)
            try Self.write(authority.certificatePEM, to: "\(directory)/ca.pem", mode: 0o644)
        }
        server = try authority.issueServer(names: names)
        try Self.write(server.privateKeyPEM, to: "\(directory)/server-key.pem", mode: 0o600)
        try Self.write(server.chainPEM, to: "\(directory)/server.pem", mode: 0o644)
    }

    private static let name = "Sluice APNs simulator CA"

    /// Returns nil when there is no file. An authority that can't be read must not be replaced by another.
    private static func read(_ path: String) throws(SimulatorError) -> String? {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else {
            if errno == ENOENT { return nil }
            throw SimulatorError("reading “\(path)”: \(String(cString: strerror(errno)))")
        }
        defer { close(descriptor) }
        var bytes = [UInt8](repeating: 0, count: 65_536)
        let count = Glibc.read(descriptor, &bytes, bytes.count)
        return count > 0 ? String(decoding: bytes[..<count], as: UTF8.self) : nil
    }

    /// Replaces the file at once, so that a reader never sees half of it.
    private static func write(_ text: String, to path: String, mode: mode_t) throws {
        let temporary = "\(path).\(getpid())"
        let descriptor = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode)
        guard descriptor >= 0 else {
            throw SimulatorError("writing “\(path)”: \(String(cString: strerror(errno)))")
        }
        let bytes = Array(text.utf8)
        let written = Glibc.write(descriptor, bytes, bytes.count)
        close(descriptor)
        guard written == bytes.count, rename(temporary, path) == 0 else {
            let code = errno
            unlink(temporary)
            throw SimulatorError("writing “\(path)”: \(String(cString: strerror(code)))")
        }
    }
}
