import EventLoop
import HTTP1
import HTTP2
import Synchronization
import TestSupport
import Testing

@testable import APNSSimulator
@testable import HTTP1

/// Handler of the tests: echoes, streams, waits.
private final class EchoHandler: HTTPHandler {
    final class Numbers: HTTPStreamSource {
        var left: Int
        let isEndless: Bool
        init(_ count: Int) {
            left = count
            isEndless = count == 0
        }
        func fill(_ buffer: inout [UInt8]) -> HTTPStreamState {
            if isEndless { return .idle }
            guard left > 0 else { return .ended }
            left -= 1
            buffer += [UInt8](repeating: UInt8(ascii: "x"), count: 10_000)
            return .more
        }
        func heartbeat(_ buffer: inout [UInt8]) { buffer += Array(": alive\n".utf8) }
    }

    /// Gives a part that no system takes at once, and a further part when there is news.
    final class News: HTTPStreamSource {
        /// Part that waits; nil when there is none.
        var next: [UInt8]? = [UInt8](repeating: UInt8(ascii: "x"), count: 6_000_000)
        func fill(_ buffer: inout [UInt8]) -> HTTPStreamState {
            buffer += next ?? []
            next = nil
            return .idle
        }
        func heartbeat(_ buffer: inout [UInt8]) {}
    }

    final class Steps: HTTPWork {
        var left = 3
        /// Whether each step waits for news.
        let waits: Bool
        init(waits: Bool) { self.waits = waits }
        func step() -> HTTPWorkState {
            left -= 1
            if left < 0 {
                return .ended(HTTPResponse(status: 200, type: "text/plain", body: Array("done".utf8)))
            }
            return waits ? .idle : .more
        }
    }

    final class Wait: HTTPWaiter {
        let deadline: MonotonicTime
        init(_ deadline: MonotonicTime) { self.deadline = deadline }
        func poll() -> HTTPResponse? { nil }
        func expired() -> HTTPResponse { .error(408, "late") }
    }

    let loop: EventLoop
    /// Source of `/news`.
    let news = News()
    init(_ loop: EventLoop) { self.loop = loop }

    func refuse(_ request: HTTPRequest, local: String?) -> HTTPResponse? {
        request.path == "/refused" ? .error(403, "no") : nil
    }

    func answer(_ request: HTTPRequest, of server: HTTPServer) -> HTTPAnswer {
        switch request.path {
        case "/numbers": .stream(HTTPResponse(status: 200, type: "text/plain"), Numbers(200))
        case "/endless": .stream(HTTPResponse(status: 200, type: "text/plain"), Numbers(0))
        case "/news": .stream(HTTPResponse(status: 200, type: "text/plain"), news)
        case "/steps": .work(Steps(waits: false))
        case "/steps-on-news": .work(Steps(waits: true))
        case "/wait": .waiter(Wait(loop.now + .milliseconds(Int(request.query.first?.value ?? "0") ?? 0)))
        default: .response(HTTPResponse(status: 200, type: "text/plain", body: request.body))
        }
    }

    func fault(_ fault: HTTPFault) -> HTTPResponse { .error(fault.status, fault.text) }
}

private final class EchoServer: Sendable {
    let server: HTTPServer
    let loop: EventLoop
    /// Adds a part to the stream `/news`, and reports it. On the loop's thread only.
    let addNews: @Sendable (String) -> Void
    var port: UInt16 { server.port }

    init(_ change: (inout HTTPServer.Limits) -> Void = { _ in }) throws {
        var limits = HTTPServer.Limits()
        change(&limits)
        let loop = try EventLoop(name: "echo")
        // Unsafe only by type: the closure below runs on the loop's thread, as the server does.
        nonisolated(unsafe) let handler = EchoHandler(loop)
        let server = try HTTPServer(
            loop: loop, address: "127.0.0.1", port: 0, limits: limits, handler: handler)
        self.server = server
        addNews = { text in
            handler.news.next = Array(text.utf8)
            server.pump()
        }
        self.loop = loop
        try server.start()
        loop.start()
    }

    var connections: Int { loop.runBlocking { [server] in server.connectionCount } }

    func stop() {
        _ = loop.runBlockingIfRunning { [server] in server.stop() }
        loop.stop()
        loop.join()
    }

    deinit { stop() }
}

@Suite("HTTP server")
struct HTTPServerTests {
    @Test("a connection carries several requests, also sent at once, and their answers keep the order")
    func pipeline() throws {
        let server = try EchoServer()
        let client = try HTTPClient(port: server.port)
        for text in ["one", "two"] {
            let answer = try client.request("POST", "/", body: text)
            #expect(answer.status == 200)
            #expect(answer.text == text)
        }
        for text in ["three", "four"] { try client.start("POST", "/", body: text) }
        #expect(try client.answer().text == "three")
        #expect(try client.answer().text == "four")
        #expect(server.connections == 1)
    }

    @Test(
        "requests sent at once are all answered, more than a turn handles or the output holds, and before an end"
    )
    func longPipeline() throws {
        let server = try EchoServer { $0.head = .seconds(3_600) }
        let client = try HTTPClient(port: server.port)
        let request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
        try client.send(String(repeating: request, count: 200))
        for _ in 0..<200 { #expect(try client.answer().status == 200) }
        let body = String(repeating: "b", count: 20_000)
        let large = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)"
        // The client reads nothing before the last byte is sent, as far as the systems' buffers allow.
        try client.send(String(repeating: large, count: 30))
        for _ in 0..<30 { #expect(try client.answer().body.count == body.utf8.count) }
        try client.send(String(repeating: request, count: 100))
        client.finishSending()
        for _ in 0..<100 { #expect(try client.answer().status == 200) }
        try client.waitForEnd()
    }

    @Test("work in steps is answered at its end, also when each step waits for news")
    func work() throws {
        let server = try EchoServer()
        let client = try HTTPClient(port: server.port)
        #expect(try client.request("GET", "/steps").text == "done")
        try client.start("GET", "/steps-on-news")
        try eventually("the first step") { server.loop.runBlocking { server.server.isExpectingNews } }
        try eventually("the last step") {
            server.loop.runBlocking { [server = server.server] in
                server.pump()
                return !server.isExpectingNews
            }
        }
        #expect(try client.answer().text == "done")
        #expect(try client.request("POST", "/", body: "next").text == "next")
    }

    @Test("news that come while a stream's output is full reach the client once it reads")
    func newsBehindFullOutput() throws {
        let server = try EchoServer {
            $0.heartbeat = .seconds(3_600)
            $0.stall = .seconds(3_600)
        }
        let client = try HTTPClient(port: server.port, receiveBuffer: 64 << 10)
        try client.start("GET", "/news")
        #expect(try client.head().status == 200)
        server.loop.runBlocking { server.addNews("news") }
        #expect(try client.chunk()?.count == 6_000_000)
        #expect(try client.chunk() == Array("news".utf8))
    }

    @Test("a client that expects 100 gets it before the body; a refusal comes without the body")
    func expectation() throws {
        let server = try EchoServer()
        let client = try HTTPClient(port: server.port)
        let head = "HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
        try client.send("POST / \(head)")
        #expect(try client.head().status == 100)
        try client.send("hello")
        #expect(try client.answer().text == "hello")
        try client.send("POST /refused \(head)")
        let refusal = try client.answer()
        #expect(refusal.status == 403)
        #expect(refusal.fields["connection"] == "close")
        try client.waitForEnd()
    }

    @Test("HEAD has the head alone; HTTP/1.0 ends a stream with the connection")
    func oldAndHead() throws {
        let server = try EchoServer()
        let client = try HTTPClient(port: server.port)
        #expect(try client.request("HEAD", "/").fields["content-length"] == "0")
        #expect(try client.request("POST", "/", body: "still there").text == "still there")
        let old = try HTTPClient(port: server.port)
        try old.send("GET /numbers HTTP/1.0\r\n\r\n")
        let answer = try old.answer()
        #expect(answer.fields["transfer-encoding"] == nil)
        #expect(answer.body.count == 2_000_000)
        #expect(old.sawEnd)
    }

    @Test("a malformed request is answered with its status, and the connection ends")
    func malformed() throws {
        let server = try EchoServer()
        let cases = [
            ("BAD\r\n\r\n", 400), ("GET / HTTP/3.0\r\nHost: x\r\n\r\n", 505),
            ("GET / HTTP/1.1\r\n\r\n", 400), ("GET / HTTP/1.1\nHost: x\n\n", 400),
            (
                "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0 7\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
                400
            ),
            ("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2 zz\r\nab\r\n0\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\nabc", 413),
            ("GET / HTTP/1.1\r\nHost: x\r\nA: \(String(repeating: "y", count: 20_000))\r\n\r\n", 431),
        ]
        for (text, status) in cases {
            let client = try HTTPClient(port: server.port)
            try client.send(text)
            #expect(try client.answer().status == status)
            try client.waitForEnd()
        }
        try eventually("all connections are gone") { server.connections == 0 }
    }

    @Test("random bytes never keep the server from other clients")
    func randomBytes() throws {
        let server = try EchoServer()
        var random = SeededBytes(seed: 3)
        for _ in 0..<100 {
            let client = try HTTPClient(port: server.port)
            try? client.send(random.next(400) + Array("\r\n\r\n".utf8))
        }
        let client = try HTTPClient(port: server.port)
        #expect(try client.request("POST", "/", body: "ok").text == "ok")
    }

    @Test("a head that arrives byte by byte is read; one that never ends is answered with 408")
    func slowHead() throws {
        let patient = try EchoServer { $0.head = .seconds(3_600) }
        let client = try HTTPClient(port: patient.port)
        for byte in "GET / HTTP/1.1\r\nHost: x\r\n\r\n".utf8 { try client.send([byte]) }
        #expect(try client.answer().status == 200)
        let impatient = try EchoServer { $0.head = .milliseconds(300) }
        let slow = try HTTPClient(port: impatient.port)
        try slow.send("GET / HTT")
        #expect(try slow.answer().status == 408)
        try slow.waitForEnd()
    }

    @Test("a body that never comes is answered with 408, and an idle connection is closed")
    func slowBody() throws {
        let server = try EchoServer {
            $0.body = .milliseconds(200)
            $0.idle = .milliseconds(200)
        }
        let client = try HTTPClient(port: server.port)
        try client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab")
        #expect(try client.answer().status == 408)
        let idle = try HTTPClient(port: server.port)
        try idle.waitForEnd()
    }

    @Test("a client that does not read its stream is closed, and holds no more than its buffers")
    func stalledReader() throws {
        let server = try EchoServer { $0.stall = .milliseconds(300) }
        let client = try HTTPClient(port: server.port, receiveBuffer: 4_096)
        // Many streams fill the buffers of both systems.
        for _ in 0..<10 { try client.start("GET", "/numbers") }
        try eventually("the connection is closed") { server.connections == 0 }
    }

    @Test("a slow reader receives the whole stream")
    func slowReader() throws {
        let server = try EchoServer()
        let client = try HTTPClient(port: server.port, receiveBuffer: 4_096)
        let answer = try client.request("GET", "/numbers")
        #expect(answer.body.count == 2_000_000)
        #expect(try client.request("POST", "/", body: "next").text == "next")
    }

    @Test("at the limit of connections the oldest idle one gives way to a new one")
    func connectionLimit() throws {
        let server = try EchoServer { $0.connections = 4 }
        let idle = try (0..<4).map { _ in try HTTPClient(port: server.port) }
        try eventually("all are accepted") { server.connections == 4 }
        let client = try HTTPClient(port: server.port)
        #expect(try client.request("POST", "/", body: "room").text == "room")
        try idle[0].waitForEnd()
        #expect(server.connections == 4)
    }

    @Test("busy connections are not replaced: a further one waits until another ends")
    func busyConnections() throws {
        let server = try EchoServer { $0.connections = 2 }
        var busy = try (0..<2).map { _ in try HTTPClient(port: server.port) }
        for client in busy {
            try client.start("GET", "/endless")
            #expect(try client.head().status == 200)
        }
        let late = try HTTPClient(port: server.port)
        try late.start("POST", "/", body: "late")
        #expect(server.connections == 2)
        busy.removeLast()
        #expect(try late.answer().text == "late")
    }

    @Test("streams and waits beyond their limits are answered with 503")
    func streamLimit() throws {
        let server = try EchoServer {
            $0.streams = 1
            $0.waiters = 1
        }
        let first = try HTTPClient(port: server.port)
        try first.start("GET", "/endless")
        #expect(try first.head().status == 200)
        let second = try HTTPClient(port: server.port)
        let refusal = try second.request("GET", "/endless")
        #expect(refusal.status == 503)
        #expect(refusal.fields["retry-after"] == "1")
        let waiting = try HTTPClient(port: server.port)
        try waiting.start("GET", "/wait?ms=30000")
        try eventually("the request waits") { server.loop.runBlocking { server.server.isExpectingNews } }
        #expect(try second.request("GET", "/wait?ms=30000").status == 503)
    }

    @Test("a wait ends at its deadline; a client that leaves frees its place")
    func waits() throws {
        let server = try EchoServer { $0.waiters = 1 }
        let client = try HTTPClient(port: server.port)
        #expect(try client.request("GET", "/wait?ms=50").status == 408)
        var leaving: HTTPClient? = try HTTPClient(port: server.port)
        try leaving?.start("GET", "/wait?ms=60000")
        try eventually("the request waits") { server.connections == 2 }
        leaving = nil
        try eventually("the connection is gone") { server.connections == 1 }
        #expect(try client.request("GET", "/wait?ms=10").status == 408)
    }

    @Test("a client that ends its sending side still gets answers and streams, but no answer that is to come")
    func halfClosed() throws {
        let server = try EchoServer()
        let client = try HTTPClient(port: server.port)
        try client.start("POST", "/", body: "last")
        try client.start("GET", "/numbers")
        client.finishSending()
        #expect(try client.answer().text == "last")
        #expect(try client.answer().body.count == 2_000_000)
        try client.waitForEnd()
        let waiting = try HTTPClient(port: server.port)
        try waiting.start("GET", "/wait?ms=60000")
        waiting.finishSending()
        try waiting.waitForEnd()
    }

    @Test("an idle stream gets signs of life")
    func heartbeat() throws {
        let server = try EchoServer { $0.heartbeat = .milliseconds(50) }
        let client = try HTTPClient(port: server.port)
        try client.start("GET", "/endless")
        #expect(try client.head().status == 200)
        for _ in 0..<3 { #expect(try client.chunk() == Array(": alive\n".utf8)) }
    }

    @Test("a stop ends streams and waits at once")
    func stop() throws {
        let server = try EchoServer()
        let stream = try HTTPClient(port: server.port)
        try stream.start("GET", "/endless")
        #expect(try stream.head().status == 200)
        let waiting = try HTTPClient(port: server.port)
        try waiting.start("GET", "/wait?ms=60000")
        let idle = try HTTPClient(port: server.port)
        try eventually("all are connected") { server.connections == 3 }
        server.stop()
        try stream.waitForEnd()
        #expect(try waiting.answer().status == 503)
        try idle.waitForEnd()
        #expect(throws: HTTPClient.Failure.self) { try HTTPClient(port: server.port) }
    }
}

/// Random bytes of a fixed seed.
struct SeededBytes {
    private var state: UInt64

    init(seed: UInt64) { state = seed }

    mutating func next(_ count: Int) -> [UInt8] {
        (0..<count).map { _ in
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            return UInt8(truncatingIfNeeded: state >> 33)
        }
    }
}
