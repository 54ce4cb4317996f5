import Configuration
import Foundation
import Gateway
import TestSupport
import Testing

@testable import Admin

/// Hosts that the admin endpoint answers for. A web page whose name resolves to this machine must read nothing.
struct AdminHostTests {
    private static let listen = ListenAddress(host: "127.0.0.1", port: 0)

    private static func hosts(_ more: String...) -> AllowedHosts {
        AllowedHosts(
            listen: ListenAddress(host: "192.0.2.7", port: 1), hostName: "Pod-7.news.example", more: more)
    }

    /// Returns the status of the answer to a request with these header fields.
    private func status(_ fields: String, _ server: AdminTestServer) throws -> Int? {
        let client = try server.client()
        client.send("GET /path HTTP/1.1\r\n\(fields)\r\n")
        return client.answer()?.status
    }

    @Test(arguments: [
        "Host: localhost\r\n", "host:LOCALHOST.:9464\r\n", "HOST: \t127.0.0.1:9464 \r\n",
        "Host: 127.8.8.8\r\n", "Accept: */*\r\nHost: [::1]:80\r\n", "Host: [::ffff:127.0.0.1]\r\n",
        "Host: 192.0.2.7\r\n", "Host: pod-7.news.example:9464\r\n", "Host: POD-7\r\n",
        "Host: worker.news.svc:9464\r\n", "Host: worker.news.svc.cluster.local\r\n",
    ])
    func requestsNamingTheWorkersHostAreAnswered(_ fields: String) throws {
        let refused = AdminCounter()
        let server = AdminTestServer(
            try AdminServer(
                Self.listen, routes: ["/path": { _ in .json(200, [:]) }], hosts: Self.hosts(),
                refusedHosts: refused))
        #expect(try status(fields, server) == 200)
        #expect(refused.count == 0)
    }

    @Test(arguments: [
        "evil.example", "evil.example:9464", "localhost.evil.example", "127.0.0.1.evil.example", "pod-7.evil",
        "10.0.0.1", "192.0.2.8:9464", "[2001:db8::1]", "svc", ".svc", "evilsvc", "", "[::1", "localhost:x",
        "localhost:1:2", "local host", "localhost,evil.example", "\u{FFFD}",
    ])
    func requestsNamingOtherHostsAreRefused(_ host: String) throws {
        let refused = AdminCounter()
        let endpoints = AdminEndpoints(refusedHosts: refused)
        var routes = endpoints.routes
        routes["/path"] = { _ in .json(200, [:]) }
        let server = AdminTestServer(
            try AdminServer(Self.listen, routes: routes, hosts: Self.hosts(), refusedHosts: refused))
        let client = try server.client()
        client.send("GET /path HTTP/1.1\r\nHost: \(host)\r\n\r\n")
        let answer = try #require(client.answer())
        #expect(answer.status == 421)
        let error = answer.json["error"] as? String ?? ""
        #expect(error.contains("`\(host)`") && error.contains("admin.allowed-hosts"))
        #expect(refused.count == 1)
    }

    /// Probes and Prometheus name the pod's address, which the pod doesn't know.
    @Test func localAddressOfConnectionIsAllowedAsHost() {
        let hosts = Self.hosts()
        #expect(hosts.allows("10.1.2.3:9464", local: "10.1.2.3"))
        // Sockets that listen at [::] report the address in this form.
        #expect(hosts.allows("10.1.2.3:9464", local: "::ffff:10.1.2.3"))
        #expect(hosts.allows("[FD00:0::7]:9464", local: "fd00::7"))
        #expect(!hosts.allows("10.1.2.4:9464", local: "10.1.2.3"))
        #expect(!hosts.allows("10.1.2.3.evil.example", local: "10.1.2.3"))
        #expect(!hosts.allows("10.1.2.3", local: nil))
    }

    @Test func configuredHostsAndWildcardsAreAllowed() {
        let hosts = Self.hosts("Metrics.example", "*.internal.example", "203.0.113.1", "[2001:db8::1]")
        for host in [
            "metrics.example:1", "a.internal.example", "a.b.INTERNAL.example.", "203.0.113.1",
            "[2001:db8:0::1]:2",
            "localhost",
        ] {
            #expect(hosts.allows(host, local: nil), "\(host)")
        }
        for host in ["example", "a.metrics.example", "internal.example", "xinternal.example", "203.0.113.2"] {
            #expect(!hosts.allows(host, local: nil), "\(host)")
        }
        #expect(Self.hosts("*").allows("evil.example", local: nil))
        #expect(Self.hosts("*").allows("[", local: nil))
    }

    @Test func requestWithoutHostOrWithTwoHostsIsInvalid() throws {
        let server = try AdminTestServer(["/path": { _ in .json(200, [:]) }])
        #expect(try status("", server) == 400)
        #expect(try status("Host: localhost\r\nHost: evil.example\r\n", server) == 400)
        #expect(try status("Host: evil.example\r\n", server) == 421)
        #expect(try status("Host: \(AllowedHosts.hostName)\r\n", server) == 200)
    }

    /// Browsers mark requests that a page of another site makes them send.
    @Test(arguments: [("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)])
    func requestsOfOtherSitesPagesAreRefused(_ site: String, _ expected: Int) throws {
        let server = try AdminTestServer(["/path": { _ in .json(200, [:]) }])
        #expect(try status("Host: localhost\r\nSec-Fetch-Site: \(site)\r\n", server) == expected)
    }

    @Test func metricsCountRefusedHosts() throws {
        var facts = WorkerMetrics.Facts()
        facts.refusedHosts = 3
        let text = String(decoding: WorkerMetrics.response(WorkerSnapshot(), facts).body, as: UTF8.self)
        #expect(text.contains("\nsluice_admin_refused_hosts_total 3\n"))
    }
}
