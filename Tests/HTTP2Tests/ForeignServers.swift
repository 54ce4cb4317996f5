import Foundation
import HTTP2
import TestSupport
import Testing

/// A third-party server with a certificate for localhost, and a client for the server.
final class ForeignServer {
    let directory: TemporaryDirectory
    let authority: CertificateAuthority
    let port: UInt16
    private(set) var process: ChildProcess!

    var certificate: String { directory.file("server.pem") }
    var key: String { directory.file("server.key") }

    /// - Parameter start: Writes the program's files and returns its arguments.
    init(_ program: String, start: (ForeignServer) throws -> [String]) throws {
        // Deploy/install-dependencies.sh --test installs the programs, so a missing program fails the test.
        guard
            Executables.find(program) != nil
                || ["/usr/sbin", "/usr/local/sbin"].contains(where: {
                    FileManager.default.isExecutableFile(atPath: "\($0)/\(program)")
                })
        else {
            Issue.record("\(program) is not installed: run Deploy/install-dependencies.sh --test")
            throw POSIXError(.ENOENT)
        }
        let path = Executables.find(program) ?? "/usr/sbin/\(program)"
        directory = try TemporaryDirectory(program)
        authority = try CertificateAuthority(commonName: "test")
        let server = try authority.issueServer(names: ["localhost"])
        port = try freePort()
        try directory.write(server.chainPEM, to: "server.pem")
        try directory.write(server.privateKeyPEM, to: "server.key")
        process = try ChildProcess(path, try start(self))
    }

    func client(
        _ change: @escaping (inout ConnectionPool.Configuration) -> Void = { _ in }
    ) throws -> PoolClient {
        var options = ClientTLSOptions()
        options.trust = .authorities(.text(authority.certificatePEM))
        return try PoolClient(port: port, context: .client(options), change)
    }

    /// A function that sends the program a signal, from any thread.
    func signals(_ signal: Int32) -> @Sendable () -> Void {
        let identifier = process.identifier
        return { kill(identifier, signal) }
    }

    func stop() throws {
        process.signal(SIGTERM)
        try process.wait()
    }

    // MARK: The programs

    /// Serves a file for every even number, whatever the method.
    static func nghttpd(files: Int, tls: Bool = true) throws -> ForeignServer {
        try ForeignServer("nghttpd") { server in
            try FileManager.default.createDirectory(
                atPath: server.directory.file("www/3/device"), withIntermediateDirectories: true)
            for number in stride(from: 0, to: files, by: 2) {
                try server.directory.write("x", to: "www/3/device/\(number)")
            }
            let options = ["--address=127.0.0.1", "-d", server.directory.file("www")]
            return tls
                ? options + ["\(server.port)", server.key, server.certificate]
                : options + ["--no-tls", "\(server.port)"]
        }
    }

    /// A proxy in front of nghttpd. SIGHUP starts a new process that reads the configuration again.
    static func nghttpx(backend: ForeignServer) throws -> ForeignServer {
        try ForeignServer("nghttpx") { server in
            try server.directory.write(
                """
                frontend=127.0.0.1,\(server.port)
                backend=127.0.0.1,\(backend.port);;proto=h2
                private-key-file=\(server.key)
                certificate-file=\(server.certificate)
                frontend-http2-max-concurrent-streams=8
                no-ocsp=yes
                workers=1
                accesslog-file=/dev/null
                errorlog-file=/dev/stderr

                """, to: "nghttpx.conf")
            return ["--conf=\(server.directory.file("nghttpx.conf"))"]
        }
    }

    /// Reads the whole content before answering: 200 for even numbers, 410 for odd ones, 400 when content is
    /// missing. SIGHUP reloads the configuration.
    static func nginx(requestsPerConnection: Int) throws -> ForeignServer {
        try ForeignServer("nginx") { server in
            let directory = server.directory
            let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
                .map { "\($0)_temp_path \(directory.file("temp"));" }.joined(separator: " ")
            try directory.write(
                """
                daemon off; worker_processes 1; error_log stderr notice; pid \(directory.file("pid"));
                \(geteuid() == 0 ? "user root;" : "")
                events { worker_connections 200; }
                http {
                  access_log off; \(temporary)
                  server {
                    listen 127.0.0.1:\(server.port) ssl http2;
                    ssl_certificate \(server.certificate); ssl_certificate_key \(server.key);
                    http2_max_concurrent_streams 8;
                    keepalive_requests \(requestsPerConnection);
                    location / { proxy_pass http://unix:\(directory.file("backend")); }
                  }
                  server {
                    listen unix:\(directory.file("backend"));
                    if ($content_length != 250) { return 400; }
                    location ~ [02468]$ { return 200; }
                    location / { return 410 '{"reason":"Unregistered"}'; }
                  }
                }

                """, to: "nginx.conf")
            return ["-c", directory.file("nginx.conf"), "-e", "stderr"]
        }
    }

    /// Answers every request with a redirection, up to 100 at once per connection. SIGTERM ends the server
    /// gracefully.
    static func h2o() throws -> ForeignServer {
        try ForeignServer("h2o") { server in
            try server.directory.write(
                """
                num-threads: 1
                error-log: /dev/stderr
                pid-file: \(server.directory.file("pid"))
                \(geteuid() == 0 ? "user: root" : "")
                listen:
                  host: 127.0.0.1
                  port: \(server.port)
                  ssl:
                    certificate-file: \(server.certificate)
                    key-file: \(server.key)
                hosts:
                  default:
                    paths:
                      "/":
                        redirect:
                          status: 308
                          url: "https://localhost/elsewhere/"

                """, to: "h2o.conf")
            return ["--conf", server.directory.file("h2o.conf")]
        }
    }
}
