import Configuration
import Foundation
import Gateway
import Synchronization
import TestSupport
import Testing

@testable import Admin

/// The server of the admin endpoint: what it takes, what it refuses, and that nobody can hold it.
struct AdminServerTests {
    private static let anywhere = ListenAddress(host: "127.0.0.1", port: 0)

    private func server(
        _ routes: [String: AdminServer.Handler], _ change: (inout AdminServer.Limits) -> Void = { _ in }
    ) throws -> AdminServer {
        var limits = AdminServer.Limits()
        limits.stop = .seconds(60)
        change(&limits)
        let server = try AdminServer(Self.anywhere, limits: limits)
        server.start(routes)
        return server
    }

    private static let echo: [String: AdminServer.Handler] = [
        "/echo": { .json(200, $0.query) }, "/other": { _ in .json(200, [:]) },
    ]

    @Test func anAnswer() throws {
        let server = try server(Self.echo)
        defer { server.stop() }
        let answer = try AdminClient.get("/echo?a=1%202&b=", server.address.port)
        #expect(answer.status == 200)
        #expect(answer.body == #"{"a":"1 2","b":""}"# + "\n")
        #expect(answer.fields["content-type"] == "application/json; charset=utf-8")
        #expect(answer.fields["cache-control"] == "no-store")
        #expect(answer.fields["content-length"] == "\(answer.body.utf8.count)")
        #expect(answer.fields["connection"] == "close")
    }

    @Test func otherPathsAndMethods() throws {
        let server = try server(Self.echo)
        defer { server.stop() }
        let missing = try AdminClient.get("/ech", server.address.port)
        #expect(missing.status == 404)
        #expect(missing.json["paths"] as? [String] == ["/echo", "/other"])
        for method in ["POST", "HEAD", "DELETE", "get"] {
            let client = try AdminClient(server.address.port)
            client.send("\(method) /echo HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody")
            let refused = try #require(client.answer())
            #expect(refused.status == 405)
            #expect(refused.fields["allow"] == "GET")
        }
    }

    @Test(arguments: [
        "GET\r\n\r\n", "GET /echo\r\n\r\n", "GET /echo HTTP/2\r\n\r\n", "GET echo HTTP/1.1\r\n\r\n",
        "GET  /echo HTTP/1.1\r\n\r\n", "GET /echo?a=%zz HTTP/1.1\r\n\r\n",
        "GET /echo?a=1&a=2 HTTP/1.1\r\n\r\n", "\r\n", "\n", "\u{16}\u{3}\u{1}\r\n\r\n",
    ])
    func whatIsNoRequest(_ text: String) throws {
        let server = try server(Self.echo)
        defer { server.stop() }
        let client = try AdminClient(server.address.port)
        client.send(text)
        #expect(client.answer()?.status == 400)
    }

    @Test func aRequestInPieces() throws {
        let server = try server(Self.echo)
        defer { server.stop() }
        let client = try AdminClient(server.address.port)
        for character in "GET /echo?x=y HTTP/1.0\nA: b\n\n" { client.send(String(character)) }
        #expect(client.answer()?.json["x"] as? String == "y")
    }

    @Test func aLongHeadIsRefused() throws {
        let server = try server(Self.echo)
        defer { server.stop() }
        let long = try AdminClient(server.address.port)
        long.send("GET /echo HTTP/1.1\r\n" + String(repeating: "A: b\r\n", count: 2000) + "\r\n")
        #expect(long.answer()?.status == 431)
        // One that never ends, too: however much it is, no more than a bit is read.
        let endless = try AdminClient(server.address.port)
        let part = "GET /" + String(repeating: "x", count: 1 << 20)
        var parts = 0
        while parts < 1000, endless.send(part) { parts += 1 }
        #expect(parts < 1000)
    }

    @Test func aTakenAddress() throws {
        let server = try server(Self.echo)
        defer { server.stop() }
        let error = try #require(throws: AdminError.self) { try AdminServer(server.address) }
        #expect(error.description.contains("127.0.0.1:\(server.address.port)"))
        #expect(error.description.contains("another process has this port"))
        let elsewhere = try #require(throws: AdminError.self) {
            try AdminServer(ListenAddress(host: "192.0.2.1", port: 0))
        }
        #expect(elsewhere.description.contains("this machine has no such address"))
    }

    @Test func aStoppedServerGivesItsAddressBack() throws {
        let first = try server(Self.echo)
        #expect(try AdminClient.get("/echo", first.address.port).status == 200)
        first.stop()
        first.stop()
        #expect(throws: POSIXError.self) { try AdminClient(first.address.port) }
        let second = try AdminServer(first.address)
        second.start(Self.echo)
        #expect(try AdminClient.get("/echo", second.address.port).status == 200)
        second.stop()
        let unstarted = try AdminServer(Self.anywhere)
        unstarted.stop()
        #expect(throws: POSIXError.self) { try AdminClient(unstarted.address.port) }
    }

    /// Held until it is released or its task is cancelled.
    private final class Gate: Sendable {
        let reply = Reply<Void>()
        let entered = Atomic<Int>(0)
        let cancelled = Atomic<Int>(0)

        func wait() async -> AdminResponse {
            entered.add(1, ordering: .relaxed)
            if await reply.waitUnlessCancelled() == nil { cancelled.add(1, ordering: .relaxed) }
            return .json(200, [:])
        }
    }

    @Test func theEndDoesNotWaitForClients() throws {
        let gate = Gate()
        let large = AdminResponse(status: 200, contentType: "text/plain", body: Data(count: 64 << 20))
        let taken = Atomic<Int>(0)
        let server = try server([
            "/gate": { _ in await gate.wait() },
            "/large": { _ in
                taken.add(1, ordering: .relaxed)
                return large
            },
        ])
        // One says nothing, one stops in the middle, one waits for an answer, one doesn't read its own.
        let silent = try AdminClient(server.address.port)
        let half = try AdminClient(server.address.port)
        half.send("GET /gate HT")
        let waiting = try AdminClient(server.address.port)
        waiting.send(AdminClient.request("GET", "/gate"))
        let deaf = try AdminClient(server.address.port)
        deaf.send(AdminClient.request("GET", "/large"))
        try eventually("two requests are being answered") {
            gate.entered.load(ordering: .relaxed) == 1 && taken.load(ordering: .relaxed) == 1
        }
        #expect(server.stop())
        #expect(gate.cancelled.load(ordering: .relaxed) == 1)
        #expect(silent.answer() == nil && half.answer() == nil)
        #expect(deaf.receiveAll().utf8.count < 64 << 20)
        #expect(throws: POSIXError.self) { try AdminClient(server.address.port) }
    }

    @Test func aClientThatLeavesCancelsItsRequest() throws {
        let gate = Gate()
        let server = try server(["/gate": { _ in await gate.wait() }])
        defer { server.stop() }
        let client = try AdminClient(server.address.port)
        client.send(AdminClient.request("GET", "/gate"))
        try eventually("the request has come") { gate.entered.load(ordering: .relaxed) == 1 }
        client.leave()
        try eventually("it is cancelled") { gate.cancelled.load(ordering: .relaxed) == 1 }
    }

    @Test func slowClientsAreLeft() throws {
        let server = try server(Self.echo) { $0.transfer = .milliseconds(100) }
        defer { server.stop() }
        let silent = try AdminClient(server.address.port)
        #expect(silent.receiveAll() == "")
        let half = try AdminClient(server.address.port)
        half.send("GET /echo HTTP/1.1\r\n")
        #expect(half.receiveAll() == "")
        #expect(try AdminClient.get("/echo", server.address.port).status == 200)
    }

    @Test func manyClientsCanNotKeepOthersOut() throws {
        let server = try server(Self.echo) {
            $0.connections = 4
            $0.patience = .milliseconds(20)
            $0.transfer = .seconds(600)
        }
        defer { server.stop() }
        let slow = try (0..<40).map { _ in try AdminClient(server.address.port) }
        for client in slow { client.send("GET /") }
        #expect(try AdminClient.get("/echo", server.address.port).status == 200)
        // The first ones had to go.
        #expect(slow[0].receiveAll() == "")
    }

    @Test func moreClientsThanFitWaitForTheirTurn() throws {
        let gates = [Gate(), Gate()]
        let server = try server([
            "/0": { _ in await gates[0].wait() }, "/1": { _ in await gates[1].wait() },
            "/echo": { .json(200, $0.query) },
        ]) {
            $0.connections = 2
            $0.patience = .seconds(600)
        }
        defer { server.stop() }
        let first = try (0..<2).map { _ in try AdminClient(server.address.port) }
        for (index, client) in first.enumerated() { client.send(AdminClient.request("GET", "/\(index)")) }
        try eventually("both are being answered") {
            gates.allSatisfy { $0.entered.load(ordering: .relaxed) == 1 }
        }
        let others = try (0..<20).map { _ in try AdminClient(server.address.port) }
        for client in others { client.send(AdminClient.request("GET", "/echo?a=b")) }
        // Nobody is sent away for them.
        first[0].leave()
        for client in others { #expect(client.answer()?.status == 200) }
        #expect(gates[0].cancelled.load(ordering: .relaxed) == 1)
        gates[1].reply.give(())
        #expect(first[1].answer()?.status == 200)
    }
}
