import Foundation
import HTTP2
import TestSupport
import Testing

/// `Tests/FaultyServer/faulty_apns.py`, a server with an independent HTTP/2 implementation, in its own process.
final class FaultyServer {
    let port: Int
    let caFile: String
    private let directory: TemporaryDirectory
    private let process: ChildProcess

    private static let program = URL(filePath: #filePath).deletingLastPathComponent()
        .deletingLastPathComponent().appending(path: "FaultyServer/faulty_apns.py").path

    /// - Parameter topic: topic whose requests fail; nil: all.
    init(fault: String, seconds: Double, topic: String? = nil) throws {
        let directory = try TemporaryDirectory("faulty")
        let authority = try CertificateAuthority(commonName: "faulty")
        let server = try authority.issueServer(names: ["localhost"])
        try directory.write(server.chainPEM, to: "server.pem")
        try directory.write(server.privateKeyPEM, to: "server.key")
        try directory.write(authority.certificatePEM, to: "ca.pem")
        // Debian's python3 has Debian's h2: Deploy/install-dependencies.sh --test.
        process = try ChildProcess(
            "/usr/bin/python3",
            [
                Self.program, "--certificate", directory.file("server.pem"), "--key",
                directory.file("server.key"), "--ready", directory.file("ready"), "--log",
                directory.file("log"), "--fault", fault, "--seconds", "\(seconds)",
            ] + (topic.map { ["--topic", $0] } ?? []))
        try process.waits(for: "the faulty server is ready") {
            directory.read("ready")?.hasSuffix("\n") == true
        }
        port = Int((directory.read("ready") ?? "").trimmingCharacters(in: .whitespacesAndNewlines)) ?? 0
        caFile = directory.file("ca.pem")
        self.directory = directory
    }

    /// Requests and answers of the server so far.
    struct Books {
        var connections = 0
        /// By device token.
        var requests: [String: Int] = [:]
        var accepted: [String: Int] = [:]
        /// Arrival of each request, in seconds after the first.
        var times: [Double] = []

        var allRequests: Int { requests.values.reduce(0, +) }
    }

    var books: Books {
        var books = Books()
        for line in (directory.read("log") ?? "").split(separator: "\n") {
            let words = line.split(separator: " ")
            switch words[0] {
            case "C": books.connections += 1
            case "R":
                books.requests[String(words[1]), default: 0] += 1
                books.times.append(Double(words[2]) ?? 0)
            case "A": books.accepted[String(words[1]), default: 0] += 1
            default: break
            }
        }
        return books
    }
}
