import DeviceModel
import EventLoop
import Foundation
import TestSupport
import Testing

@testable import APNSSimulator

/// `Schemas/simulator.openapi.yaml` against the routes and a running server.
@Suite("Devices: OpenAPI document")
struct OpenAPITests {
    private static func validate(_ argument: String, input: String = "") throws -> String {
        let directory = try TemporaryDirectory("openapi")
        try directory.write(input, to: "input")
        let command = "exec python3 '\(Repository.root)/Schemas/validate.py' \(argument)"
        let result = try ChildProcess.run("/bin/sh", ["-c", "\(command) < '\(directory.file("input"))'"])
        #expect(result.exit == .status(0), "\(result.standardError)")
        return result.standardOutput
    }

    @Test("each route is in the document with its parameters, and the document has no other")
    func routesMatch() throws {
        let bed = try DeviceBed()
        let loop = try EventLoop(name: "routes")
        let api = DeviceAPI(
            registry: bed.registry, loop: loop,
            access: APIAccess(
                hosts: .init(listen: .init(host: "127.0.0.1", port: 1), hostName: ""), token: nil),
            facts: SimulatorFacts(version: "test"),
            more: FaultRoutes(simulators: [bed.fixture.simulator]).routes)
        var routes: [String: Set<String>] = [:]
        for route in api.routes { routes["\(route.method) \(route.template)"] = Set(route.parameters) }
        let document = try #require(
            try JSONSerialization.jsonObject(with: Data(Self.validate("openapi").utf8)) as? [String: Any])
        let paths = try #require(document["paths"] as? [String: [String: [String: Any]]])
        var documented: [String: Set<String>] = [:]
        for (path, operations) in paths where path != "/" {
            for (method, operation) in operations {
                let parameters = operation["parameters"] as? [[String: Any]] ?? []
                let names = parameters.filter { $0["in"] as? String == "query" }.compactMap {
                    $0["name"] as? String
                }
                documented["\(method.uppercased()) \(path)"] = Set(names)
                let inPath = parameters.filter { $0["in"] as? String == "path" }.compactMap {
                    $0["name"] as? String
                }
                for name in inPath { #expect(path.contains("{\(name)}")) }
                #expect(inPath.count == path.count(where: { $0 == "{" }), "\(path)")
            }
        }
        #expect(documented == routes)
        let schemas = (document["components"] as? [String: Any])?["schemas"] as? [String: [String: Any]]
        let kinds = schemas?["DeviceActionKind"]?["enum"] as? [String]
        #expect(kinds == DeviceAction.Kind.allCases.map(\.rawValue))
        let members = schemas?["DeviceAction"]?["properties"] as? [String: Any]
        #expect(Set(members?.keys.map { $0 } ?? []) == Set(DeviceAPI.actionMembers))
        let events = schemas?["DeviceEventKind"]?["enum"] as? [String]
        #expect(events == DeviceEvent.Kind.allCases.map(\.rawValue))
    }

    @Test("the answers of a running server fit the document's schemas")
    func answersFit() throws {
        let file = try AppsFile.load("\(Repository.root)/Schemas/examples/simulator-apps.yaml")
        let bed = try DeviceBed(apps: file.apps)
        try bed.registry.add(file.devices)
        let client = try bed.client()
        var lines: [String] = []
        func call(
            _ method: String, _ template: String, _ target: String? = nil, _ body: String? = nil
        ) throws
            -> HTTPClient.Answer
        {
            let answer = try HTTPClient(port: bed.port).request(method, target ?? template, body: body)
            let type = (answer.fields["content-type"] ?? "-").prefix { $0 != ";" }
            lines.append("\(method) \(template) \(answer.status) \(type) \(hexadecimal(answer.body))")
            return answer
        }
        // A device with notifications, responses, pending requests, a stored push and a Live Activity.
        let sender = try bed.fixture.connect()
        var push = bed.fixture.good()
        push["apns-topic"] = "com.example.news"
        push["apns-expiration"] = nil
        func token(_ device: Int, _ purpose: String) throws -> String {
            let apps = try client.request("GET", "/api/devices/\(device)").json["apps"] as? [[String: Any]]
            let tokens = apps?.first { $0["bundle"] as? String == "com.example.news" }?["tokens"]
            return (tokens as? [[String: Any]])?.first { $0["purpose"] as? String == purpose }?["token"]
                as? String ?? ""
        }
        push.device = try token(0, "alert")
        for category in ["ARTICLE", "INVITATION"] {
            push["apns-id"] = nil
            push["apns-collapse-id"] = category
            push.body =
                #"{"aps":{"alert":{"title":"Title","body":"Text"},"category":"\#(category)","badge":2,"sound":"default"},"when":"today"}"#
            #expect(try sender.push(push).status == 200)
        }
        push.device = try token(1, "alert")
        #expect(try sender.push(push).status == 200)
        push.device = try token(0, "activity-start")
        push["apns-topic"] = "com.example.news.push-type.liveactivity"
        push["apns-push-type"] = "liveactivity"
        push["apns-collapse-id"] = nil
        let now = bed.registry.now / 1_000
        push.body =
            #"{"aps":{"event":"start","timestamp":\#(now),"attributes-type":"MatchAttributes","attributes":{"home":"A","away":"B"},"content-state":{"score":"1:0"},"alert":{"title":"x","body":"y"}}}"#
        #expect(try sender.push(push).status == 200)
        _ = try client.request(
            "POST", "/api/devices/0/actions",
            body: #"{"action":"act","app":"com.example.news","identifier":"ARTICLE","choice":"LATER"}"#)

        for path in ["/api/status", "/api/rules", "/api/apps", "/api/devices", "/api/tokens", "/api/pushes"] {
            #expect(try call("GET", path).status == 200)
        }
        #expect(try call("GET", "/").status == 200)
        #expect(try call("GET", "/api/apps/{bundle}", "/api/apps/com.example.news").status == 200)
        #expect(try call("GET", "/api/apps/{bundle}", "/api/apps/com.example.x").status == 404)
        #expect(try call("PUT", "/api/apps/{bundle}", "/api/apps/com.example.x", "{}").status == 200)
        #expect(try call("PUT", "/api/apps/{bundle}", "/api/apps/com.example.x", #"{"a":1}"#).status == 400)
        #expect(try call("POST", "/api/devices", nil, #"{"count":2}"#).status == 201)
        #expect(try call("POST", "/api/devices", nil, #"{"apps":["com.example.y"]}"#).status == 404)
        for device in ["0", "1", "2", "x"] {
            _ = try call("GET", "/api/devices/{id}", "/api/devices/\(device)")
        }
        let actions = "/api/devices/{id}/actions"
        for body in [
            #"{"action":"lock","on":true}"#, #"{"action":"call"}"#, #"{"action":"power"}"#,
            #"{"action":"focus","focus":{"name":"Work","allowedApps":["com.example.news"]}}"#,
        ] { _ = try call("POST", actions, "/api/devices/0/actions", body) }
        #expect(try call("GET", "/api/devices/{id}", "/api/devices/0").status == 200)
        #expect(try call("DELETE", "/api/devices/{id}", "/api/devices/3").status == 204)
        #expect(try call("GET", "/api/pushes/{push}", "/api/pushes/1").status == 200)
        #expect(try call("GET", "/api/pushes/{push}", "/api/pushes/999").status == 404)
        #expect(try call("GET", "/api/attachments/{id}", "/api/attachments/999").status == 404)
        #expect(try call("GET", "/api/wait", "/api/wait?device=0&timeout=0").status == 200)
        #expect(try call("GET", "/api/wait", "/api/wait?device=0&title=no&timeout=0").status == 408)
        #expect(try call("GET", "/api/wait", "/api/wait?x=1").status == 400)
        #expect(try call("GET", "/api/events", "/api/events?after=x").status == 400)
        #expect(try call("GET", "/api/export").status == 200)
        #expect(try call("GET", "/api/faults").status == 200)
        #expect(try call("PUT", "/api/faults", nil, #"{"faults":[{"unanswered":0.5}]}"#).status == 200)
        #expect(try call("PUT", "/api/faults", nil, #"{"faults":[{"unanswered":2}]}"#).status == 400)
        // The timeline that the simulator shows can be handed in again, as the page's editor does.
        let timeline = try #require(try call("GET", "/api/faults").json["timeline"])
        let text = String(decoding: try JSONSerialization.data(withJSONObject: timeline), as: UTF8.self)
        #expect(text.contains("unanswered"))
        #expect(try call("PUT", "/api/faults", nil, text).status == 200)
        #expect(try call("POST", "/api/reset", nil, "{}").status == 200)
        let verdicts = try Self.validate("answers", input: lines.joined(separator: "\n") + "\n").split(
            separator: "\n")
        #expect(verdicts.count == lines.count)
        for (line, verdict) in zip(lines, verdicts) {
            #expect(verdict == "valid", "\(line.prefix(60)): \(verdict)")
        }
    }
}
