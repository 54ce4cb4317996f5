import Configuration
import Foundation
import Gateway
import Synchronization
import TestSupport
import Testing

@testable import Admin

/// The server of the admin endpoint: requests that it answers or refuses, and clients that try to block it.
struct AdminServerTests {
    private static let anywhere = ListenAddress(host: "127.0.0.1", port: 0)

    private func server(
        _ routes: [String: AdminServer.Handler], _ change: (inout AdminServer.Limits) -> Void = { _ in }
    ) throws -> AdminTestServer {
        var limits = AdminServer.Limits()
        limits.stop = .seconds(60)
        change(&limits)
        return AdminTestServer(try AdminServer(Self.anywhere, routes: routes, limits: limits))
    }

    private static let echo: [String: AdminServer.Handler] = [
        "/echo": { .json(200, $0.query) }, "/other": { _ in .json(200, [:]) },
    ]

    @Test func getRequestReceivesJSONAnswer() throws {
        let server = try server(Self.echo)
        let answer = try server.get("/echo?a=1%202&b=")
        #expect(answer.status == 200)
        #expect(answer.body == #"{"a":"1 2","b":""}"# + "\n")
        #expect(answer.fields["content-type"] == "application/json; charset=utf-8")
        #expect(answer.fields["cache-control"] == "no-store")
        #expect(answer.fields["content-length"] == "\(answer.body.utf8.count)")
    }

    @Test func unknownPathsAndMethodsAreRefused() throws {
        let server = try server(Self.echo)
        #expect(try server.get("/echo?a=1&a=2").status == 400)
        let missing = try server.get("/ech")
        #expect(missing.status == 404)
        #expect(missing.json["paths"] as? [String] == ["/echo", "/other"])
        for method in ["POST", "DELETE", "get"] {
            let client = try server.client()
            client.send("\(method) /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbody")
            let refused = try #require(client.answer())
            #expect(refused.status == 405)
            #expect(refused.fields["allow"] == "GET, HEAD")
        }
    }

    @Test(arguments: [
        "GET\r\n\r\n", "GET /echo\r\n\r\n", "GET /echo HTTP/2\r\nHost: localhost\r\n\r\n",
        "GET echo HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET  /echo HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET /echo?a=%zz HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "\u{16}\u{3}\u{1}\r\n\r\n",
        "GET /echo HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        "GET /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        "GET /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "GET /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
        "GET /echo HTTP/1.1\nHost: localhost\n\n",
        "GET /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0 4\r\n\r\n",
        "GET /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked x\r\n\r\n0\r\n\r\n",
    ])
    func malformedRequestsAnswer400AndEndTheConnection(_ text: String) throws {
        let server = try server(Self.echo)
        let client = try server.client()
        client.send(text + "GET /echo HTTP/1.1\r\nHost: localhost\r\n\r\n")
        let all = client.receiveAll()
        #expect(all.hasPrefix("HTTP/1.1 400 "))
        // A request that follows can't be told from the malformed one's body.
        #expect(all.components(separatedBy: "HTTP/1.1 ").count == 2)
    }

    @Test func secondRequestOfAConnectionIsAnswered() throws {
        let server = try server(Self.echo)
        let client = try server.client()
        for number in 1...3 {
            client.send(AdminClient.request("GET", "/echo?number=\(number)"))
            #expect(client.answer()?.json["number"] as? String == "\(number)")
        }
    }

    @Test func clientThatEndsItsSideReceivesTheAnswerOfAProbe() throws {
        let server = try server(["/livez": { _ in .json(200, [:]) }])
        let client = try server.client()
        client.send(AdminClient.request("GET", "/livez"))
        client.finishSending()
        #expect(client.answer()?.status == 200)
    }

    @Test func clientsThatReadNothingAreDisconnectedBeyondTheLimitOfBytes() throws {
        let large = AdminResponse(status: 200, contentType: "text/plain", body: Data(count: 24 << 20))
        let taken = Atomic<Int>(0)
        let server = try server([
            "/large": { _ in
                taken.add(1, ordering: .relaxed)
                return large
            }, "/livez": { _ in .json(200, [:]) },
        ]) { $0.transfer = .seconds(600) }
        let deaf = try (0..<12).map { _ in try server.client() }
        for client in deaf { client.send(AdminClient.request("GET", "/large")) }
        try eventually("all requests were answered") { taken.load(ordering: .relaxed) == deaf.count }
        #expect(try server.get("/livez").status == 200)
        let whole = deaf.count { $0.receiveAll(atMost: 25 << 20).utf8.count > 24 << 20 }
        #expect((1...4).contains(whole))
    }

    @Test func headRequestReceivesTheHeadAlone() throws {
        let server = try server(Self.echo)
        let client = try server.client()
        client.send("HEAD /echo?a=b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        let all = client.receiveAll()
        #expect(all.hasPrefix("HTTP/1.1 200 ") && all.hasSuffix("\r\n\r\n"))
    }

    @Test func requestSentByteByByteIsAnswered() throws {
        let server = try server(Self.echo)
        let client = try server.client()
        for byte in "GET /echo?x=y HTTP/1.0\r\nA: b\r\n\r\n".utf8 { client.send(String(UnicodeScalar(byte))) }
        #expect(client.answer()?.json["x"] as? String == "y")
    }

    @Test func overlongRequestHeadIsRefused() throws {
        let server = try server(Self.echo)
        let long = try server.client()
        long.send(
            "GET /echo HTTP/1.1\r\nHost: localhost\r\n" + String(repeating: "A: b\r\n", count: 2000) + "\r\n")
        #expect(long.answer()?.status == 431)
        // The server reads only the beginning of a request that never ends.
        let endless = try server.client()
        let part = "GET /" + String(repeating: "x", count: 1 << 20)
        var parts = 0
        while parts < 1000, endless.send(part) { parts += 1 }
        #expect(parts < 1000)
    }

    @Test func unavailableAddressIsNamedWithItsReason() throws {
        let server = try server(Self.echo)
        let error = try #require(throws: AdminError.self) { try AdminServer(server.address, routes: [:]) }
        #expect(error.description.contains("127.0.0.1:\(server.address.port)"))
        #expect(error.description.contains("another process uses the port"))
        let elsewhere = try #require(throws: AdminError.self) {
            try AdminServer(ListenAddress(host: "192.0.2.1", port: 0), routes: [:])
        }
        #expect(elsewhere.description.contains("this machine does not have the address"))
    }

    @Test func stoppedServerReleasesItsAddress() throws {
        let first = try server(Self.echo)
        #expect(try first.get("/echo").status == 200)
        first.stop()
        first.stop()
        #expect(throws: POSIXError.self) { try first.client() }
        let second = AdminTestServer(try AdminServer(first.address, routes: Self.echo))
        #expect(try second.get("/echo").status == 200)
        let unstarted = try AdminServer(Self.anywhere, routes: [:])
        unstarted.stop()
        #expect(throws: POSIXError.self) { try AdminClient(unstarted.address!.port) }
    }

    /// Holds a request until the test releases it or the request's task is cancelled.
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

    @Test func serverStopsWithoutWaitingForClients() throws {
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
        // Clients that send nothing, stop within a request, wait for an answer, or don't read theirs.
        let silent = try server.client()
        let half = try server.client()
        half.send("GET /gate HT")
        let waiting = try server.client()
        waiting.send(AdminClient.request("GET", "/gate"))
        let deaf = try server.client()
        deaf.send(AdminClient.request("GET", "/large"))
        try eventually("two requests are in progress") {
            gate.entered.load(ordering: .relaxed) == 1 && taken.load(ordering: .relaxed) == 1
        }
        #expect(server.stop())
        try eventually("the search is cancelled") { gate.cancelled.load(ordering: .relaxed) == 1 }
        #expect(silent.answer() == nil && half.answer() == nil)
        #expect(deaf.receiveAll().utf8.count < 64 << 20)
        #expect(throws: POSIXError.self) { try server.client() }
    }

    @Test func closedConnectionCancelsItsRequest() throws {
        let gate = Gate()
        let server = try server(["/gate": { _ in await gate.wait() }])
        let client = try server.client()
        client.send(AdminClient.request("GET", "/gate"))
        try eventually("the request has arrived") { gate.entered.load(ordering: .relaxed) == 1 }
        client.leave()
        try eventually("the request is cancelled") { gate.cancelled.load(ordering: .relaxed) == 1 }
    }

    @Test func slowClientsAreDisconnected() throws {
        let server = try server(Self.echo) { $0.transfer = .milliseconds(100) }
        let half = try server.client()
        half.send("GET /echo HTTP/1.1\r\n")
        #expect(half.receiveAll().hasPrefix("HTTP/1.1 408 "))
        #expect(try server.get("/echo").status == 200)
    }

    @Test func idleClientsAreDisconnectedForNewOnes() throws {
        let server = try server(Self.echo) {
            $0.connections = 4
            $0.patience = .milliseconds(20)
            $0.transfer = .seconds(600)
        }
        let slow = try (0..<40).map { _ in try server.client() }
        for client in slow { client.send("GET /") }
        #expect(try server.get("/echo").status == 200)
        // The server disconnected the oldest clients.
        #expect(slow[0].receiveAll() == "")
    }

    @Test func clientsBeyondTheLimitWaitForTheirTurn() throws {
        let gates = [Gate(), Gate()]
        let server = try server([
            "/0": { _ in await gates[0].wait() }, "/1": { _ in await gates[1].wait() },
            "/echo": { .json(200, $0.query) },
        ]) {
            $0.connections = 2
            $0.patience = .seconds(600)
        }
        let first = try (0..<2).map { _ in try server.client() }
        for (index, client) in first.enumerated() { client.send(AdminClient.request("GET", "/\(index)")) }
        try eventually("both requests are in progress") {
            gates.allSatisfy { $0.entered.load(ordering: .relaxed) == 1 }
        }
        let others = try (0..<20).map { _ in try server.client() }
        for client in others { client.send(AdminClient.request("GET", "/echo?a=b")) }
        // The waiting clients cause no disconnection.
        first[0].leave()
        for client in others { #expect(client.answer()?.status == 200) }
        try eventually("the request is cancelled") { gates[0].cancelled.load(ordering: .relaxed) == 1 }
        gates[1].reply.give(())
        #expect(first[1].answer()?.status == 200)
    }

    /// Clients that send nothing, stop within a request, or wait for long answers take all there is for them.
    @Test func probesAreAnsweredWhileOtherRequestsAndConnectionsAreAtTheirLimits() throws {
        let gate = Gate()
        let server = try server([
            "/livez": { _ in .json(200, [:]) }, "/readyz": { _ in .json(200, [:]) },
            "/gate": { _ in await gate.wait() },
        ]) {
            $0.connections = 64
            $0.others = 4
            $0.patience = .milliseconds(20)
            $0.transfer = .seconds(600)
        }
        let waiting = try (0..<4).map { _ in try server.client() }
        for client in waiting { client.send(AdminClient.request("GET", "/gate")) }
        try eventually("the other requests are in progress") { gate.entered.load(ordering: .relaxed) == 4 }
        let idle = try (0..<400).map { _ in try server.client() }
        for client in idle.prefix(200) { client.send("GET /livez HTT") }
        let probes = try (0..<32).map { _ in try server.client() }
        for (index, client) in probes.enumerated() {
            client.send(AdminClient.request("GET", index.isMultiple(of: 2) ? "/livez" : "/readyz"))
        }
        for client in probes { #expect(client.answer()?.status == 200) }
        let refused = try server.get("/gate")
        #expect(refused.status == 503)
        #expect(refused.fields["retry-after"] == "1")
        #expect(gate.cancelled.load(ordering: .relaxed) == 0)
        waiting[0].leave()
        try eventually("a place is free again") {
            try server.get("/livez").status == 200 && gate.cancelled.load(ordering: .relaxed) == 1
        }
        let further = try server.client()
        further.send(AdminClient.request("GET", "/gate"))
        try eventually("the further request is in progress") { gate.entered.load(ordering: .relaxed) == 5 }
    }
}
