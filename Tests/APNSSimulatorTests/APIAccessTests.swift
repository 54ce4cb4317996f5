import Configuration
import TestSupport
import Testing

@testable import APNSSimulator

@Suite("Devices: access to the API")
struct APIAccessTests {
    private static let secret = "0123456789abcdef0123456789abcdef"

    @Test("a host that is not this machine's is refused, as after DNS rebinding")
    func rebinding() throws {
        let bed = try DeviceBed(service: { $0.hosts = ["simulator.test"] })
        let client = try bed.client()
        for host in ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:80", "simulator.test:8080"] {
            #expect(
                try client.request("GET", "/api/status", fields: ["Host: \(host)"]).status == 200, "\(host)")
        }
        for host in ["evil.example", "localhost.evil.example", "10.0.0.1", "127.0.0.1.evil.example", ""] {
            #expect(
                try client.request("GET", "/api/status", fields: ["Host: \(host)"]).status == 421, "\(host)")
            #expect(try client.request("GET", "/", fields: ["Host: \(host)"]).status == 421, "\(host)")
        }
        try client.send("GET http://evil.example/api/status HTTP/1.1\r\nHost: localhost\r\n\r\n")
        #expect(try client.answer().status == 421)
    }

    @Test("a change needs JSON and the own origin, whatever the path")
    func changes() throws {
        let bed = try DeviceBed()
        let client = try bed.client()
        let own = "Origin: http://127.0.0.1:\(bed.port)"
        #expect(try client.request("POST", "/api/reset", fields: [own], body: "{}").status == 200)
        for type in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""] {
            let answer = try bed.client().request("POST", "/api/reset", body: "{}", type: type)
            #expect(answer.status == 415, "\(type)")
        }
        #expect(try bed.client().request("POST", "/api/reset").status == 415)
        for origin in ["http://evil.example", "null", "https://127.0.0.1:1", "http://127.0.0.1:1"] {
            for (method, body) in [("POST", "{}"), ("DELETE", nil), ("PUT", "{}")] as [(String, String?)] {
                let answer = try bed.client().request(
                    method, "/api/reset", fields: ["Origin: \(origin)"], body: body)
                #expect(answer.status == 403, "\(method) \(origin)")
            }
        }
        let utf8 = try bed.client().request(
            "POST", "/api/reset", body: "{}", type: "application/json; charset=utf-8")
        #expect(utf8.status == 200)
    }

    @Test("behind a proxy that adds TLS the own origin has https; a scheme's own port may be absent")
    func originBehindProxy() throws {
        let bed = try DeviceBed(service: { $0.hosts = ["simulator.test"] })
        let cases = [
            ("https://simulator.test", "simulator.test", 200),
            ("https://simulator.test", "simulator.test:443", 200),
            ("https://simulator.test:443", "simulator.test", 200),
            ("https://SIMULATOR.test:8443", "Simulator.test:8443", 200),
            ("http://simulator.test", "simulator.test:80", 200),
            ("http://simulator.test:80", "simulator.test", 200),
            ("https://[::1]:8443", "[::1]:8443", 200), ("https://[::1]", "[::1]:443", 200),
            ("https://simulator.test", "simulator.test:80", 403),
            ("http://simulator.test", "simulator.test:443", 403),
            ("https://simulator.test:8443", "simulator.test", 403),
            ("https://simulator.test:80", "simulator.test", 403),
            ("https://evil.example", "simulator.test", 403),
            ("https://simulator.test.evil.example", "simulator.test", 403),
            ("https://", "simulator.test", 403), ("simulator.test", "simulator.test", 403),
            ("ftp://simulator.test", "simulator.test", 403),
        ]
        for (origin, host, status) in cases {
            let answer = try bed.client().request(
                "POST", "/api/reset", fields: ["Host: \(host)", "Origin: \(origin)"], body: "{}")
            #expect(answer.status == status, "\(origin) \(host)")
        }
    }

    @Test("a request that a browser marks as another site's is refused")
    func otherSite() throws {
        let bed = try DeviceBed()
        let client = try bed.client()
        for site in ["cross-site", "same-site"] {
            // The path's spelling doesn't matter, as it doesn't for the routes.
            for path in [
                "/api/events", "//api/events", "/%61pi/wait", "/./api/status", "/api//status", "/api",
            ] {
                let answer = try client.request("GET", path, fields: ["Sec-Fetch-Site: \(site)"])
                #expect(answer.status == (path.hasPrefix("/.") ? 404 : 403), "\(path)")
            }
        }
        for site in ["same-origin", "none"] {
            #expect(
                try client.request("GET", "/api/status", fields: ["Sec-Fetch-Site: \(site)"]).status == 200)
        }
    }

    @Test("the page's policy allows no other origin, and an answer of the API runs nothing")
    func policies() throws {
        let bed = try DeviceBed()
        let client = try bed.client()
        let page = try client.request("GET", "/")
        let policy = try #require(page.fields["content-security-policy"])
        #expect(policy.contains("default-src 'none'"))
        #expect(!policy.contains("unsafe"))
        #expect(!policy.contains("http"))
        let status = try client.request("GET", "/api/status")
        #expect(status.fields["access-control-allow-origin"] == nil)
        #expect(status.fields["x-content-type-options"] == "nosniff")
        #expect(status.fields["cache-control"] == "no-store")
    }

    @Test("with a token each request needs it: as a bearer, or as the cookie that a query gives once")
    func token() throws {
        let bed = try DeviceBed(service: { $0.token = try? APIToken(Self.secret) })
        let client = try bed.client()
        for path in ["/", "/api/status", "/api/nothing"] {
            let answer = try client.request("GET", path)
            #expect(answer.status == 401)
            #expect(answer.fields["www-authenticate"]?.hasPrefix("Bearer") == true)
        }
        let bearer = "Authorization: Bearer \(Self.secret)"
        #expect(try client.request("GET", "/api/status", fields: [bearer]).status == 200)
        #expect(
            try client.request("GET", "/api/status", fields: [bearer, "Host: proxy.example"]).status == 200)
        for wrong in ["Bearer x", "Bearer \(Self.secret)0", "Basic \(Self.secret)", "Bearer"] {
            #expect(
                try client.request("GET", "/api/status", fields: ["Authorization: \(wrong)"]).status == 401)
        }
        let exchange = try client.request("GET", "/?token=\(Self.secret)")
        #expect(exchange.status == 303)
        #expect(exchange.fields["location"] == "/")
        let cookie = try #require(exchange.fields["set-cookie"])
        #expect(cookie.contains("HttpOnly"))
        #expect(cookie.contains("SameSite=Strict"))
        #expect(!cookie.contains(Self.secret))
        let pair = cookie.prefix { $0 != ";" }
        #expect(try client.request("GET", "/", fields: ["Cookie: a=b; \(pair)"]).status == 200)
        #expect(
            try client.request("GET", "/", fields: ["Cookie: \(pair)", "Host: evil.example"]).status == 421)
        #expect(try client.request("GET", "/", fields: ["Cookie: \(pair)0"]).status == 401)
        #expect(try client.request("GET", "/?token=wrong").status == 401)
        #expect(try client.request("POST", "/api/reset?token=\(Self.secret)", body: "{}").status == 401)
    }

    @Test("a refusal comes before the body is read")
    func refusalBeforeBody() throws {
        let bed = try DeviceBed(service: { $0.token = try? APIToken(Self.secret) })
        let client = try bed.client()
        try client.send(
            "PUT /api/apps/x HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                + "Content-Length: 1000000\r\n\r\n")
        #expect(try client.answer().status == 401)
    }

    @Test("an address that others reach needs a token")
    func otherAddress() throws {
        #expect(throws: SimulatorError.self) {
            try DeviceBed(service: { $0.address = "0.0.0.0" })
        }
        let bed = try DeviceBed(service: {
            $0.address = "0.0.0.0"
            $0.token = try? APIToken(Self.secret)
        })
        #expect(try bed.client().request("GET", "/api/status").status == 401)
    }

    @Test("a token of a file is read without its line break; a short or absent one is refused with the path")
    func tokenFile() throws {
        let directory = try TemporaryDirectory()
        let path = directory.file("token")
        try directory.write("\(Self.secret)\n", to: "token")
        #expect(try APIToken(file: path).matches(Self.secret))
        try directory.write("short\n", to: "token")
        for file in [path, directory.file("absent")] {
            let error = try #require(throws: SimulatorError.self) { try APIToken(file: file) }
            #expect(error.description.contains(file))
            #expect(!error.description.contains("short"))
        }
        #expect(try APIToken.random() != APIToken.random())
    }
}
