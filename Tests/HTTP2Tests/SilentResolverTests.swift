import EventLoop
import Synchronization
import TestSupport
import Testing

@testable import HTTP2

/// Tests pools whose resolver hangs, as when a name server is gone.
@Suite struct SilentResolverTests {
    /// A resolver that answers with one address, and can hang for `localhost`.
    private final class Names: Sendable {
        private let hanging: Mutex<BlockingFlag?>
        private let asked = Mutex<[String: Int]>([:])
        private let port: UInt16

        init(port: UInt16, hangs: Bool = false) {
            self.port = port
            hanging = Mutex(hangs ? BlockingFlag() : nil)
        }

        deinit { answer() }

        func hang() { hanging.withLock { $0 = $0 ?? BlockingFlag() } }
        func answer() {
            hanging.withLock {
                $0?.set()
                $0 = nil
            }
        }
        func count(_ host: String) -> Int { asked.withLock { $0[host] ?? 0 } }

        func lookUp(_ host: String) -> Result<[SocketAddress], ResolverError> {
            asked.withLock { $0[host, default: 0] += 1 }
            if host == "localhost" { hanging.withLock { $0 }?.wait() }
            return .success([SocketAddress("127.0.0.1", port: port)!])
        }
    }

    private func resolver(_ names: Names) -> AddressResolver {
        AddressResolver { host, _ in names.lookUp(host) }
    }

    /// A server whose connections serve one request each, so that each request needs a new connection.
    private func server() throws -> FaultServer {
        try FaultServer { peer in
            peer.limit(1)
            if let request = peer.request() { peer.accept(request) }
        }
    }

    private func changes(_ client: PoolClient) -> [String] {
        client.read { $0.happened }.filter { $0.hasPrefix("resolver") }
    }

    @Test func hangingResolverFallsBackToKnownAddress() throws {
        let server = try server()
        let names = Names(port: server.port)
        let resolver = resolver(names)
        let client = try PoolClient(
            port: server.port, context: .client(server.tls.clientOptions), resolver: resolver
        ) {
            $0.connection.connectTimeout = .milliseconds(600)
        }
        defer {
            names.answer()
            client.stop()
            server.stop()
        }
        client.send(0..<3)
        try eventually("3 answers") { client.read { $0.ends.count } == 3 }
        #expect(changes(client).isEmpty)
        names.hang()
        client.send(3..<8)
        try eventually("5 answers without a resolver") { client.read { $0.ends.count } == 8 }
        let silent = changes(client)
        #expect(silent.count == 1)
        #expect(silent.first?.contains("silent(host: \"localhost\"") == true, "\(silent)")
        #expect(silent.first?.contains("known: 1") == true, "\(silent)")
        #expect(resolver.running <= LookupPlan.threadsPerName)
        names.answer()
        client.send(8..<11)
        try eventually("3 more answers") { client.read { $0.ends.count } == 11 }
        try eventually("the resolver's answer is reported") { changes(client).count == 2 }
        #expect(changes(client).last?.contains("answers") == true)
        #expect(client.read { $0.ends.values.allSatisfy { $0 == [200] } })
    }

    /// Without a known address the pool can only retry the look-up.
    @Test func hangingNameDoesNotDelayOtherNames() throws {
        let server = try server()
        let names = Names(port: server.port, hangs: true)
        let resolver = resolver(names)
        let stuck = try PoolClient(
            port: server.port, context: .client(server.tls.clientOptions), resolver: resolver
        ) {
            $0.connections = 4
            $0.connection.connectTimeout = .milliseconds(200)
        }
        defer {
            names.answer()
            stuck.stop()
            server.stop()
        }
        try eventually("many openings have failed") { stuck.snapshot.counters.lookupsFailed >= 8 }
        #expect(resolver.running == 1)
        #expect(resolver.waiting <= 4)
        #expect(names.count("localhost") == 1)
        #expect(changes(stuck).count == 1)
        let fine = try PoolClient(
            port: server.port, context: .client(server.tls.clientOptions), resolver: resolver
        ) { $0.host = "fine.example.com" }
        defer { fine.stop() }
        fine.send(0..<2)
        try eventually("2 answers of the other pool") { fine.read { $0.ends.count } == 2 }
        // The pool connects once the resolver answers.
        names.answer()
        stuck.send(0..<2)
        try eventually("2 answers") { stuck.read { $0.ends.count } == 2 }
    }

    @Test func lateResolverAnswerServesTheNextOpening() throws {
        let server = try server()
        let names = Names(port: server.port, hangs: true)
        let resolver = resolver(names)
        let client = try PoolClient(
            port: server.port, context: .client(server.tls.clientOptions), resolver: resolver
        ) {
            $0.connection.connectTimeout = .milliseconds(10)
            $0.reconnectInitial = .seconds(1)
            $0.reconnectMaximum = .seconds(1)
            $0.connection.session.maximumStreams = 1
        }
        defer {
            client.stop()
            server.stop()
        }
        try eventually("an opening has failed") { client.snapshot.counters.lookupsFailed >= 1 }
        try eventually("no opening waits for the look-up") { resolver.waiting == 0 }
        names.answer()
        try eventually("the look-up has ended") { resolver.running == 0 }
        let asked = names.count("localhost")
        try eventually("the answer is used") { changes(client).count == 2 }
        #expect(names.count("localhost") >= asked)
    }
}
