import DeviceModel
import Foundation
import Synchronization
import TestSupport
import Testing

@testable import APNSSimulator

@Suite("Devices: API")
struct DeviceAPITests {
    @Test("devices are added, listed, shown by number and token, and removed")
    func devices() throws {
        let bed = try DeviceBed()
        let client = try bed.client()
        let added = try client.request("POST", "/api/devices", body: #"{"name":"Phone","count":3}"#)
        #expect(added.status == 201)
        #expect(added.json["devices"] as? [Int] == [0, 1, 2])
        let page = try client.request("GET", "/api/devices?offset=1&limit=1")
        #expect(page.json["total"] as? Int == 3)
        let item = try #require((page.json["items"] as? [[String: Any]])?.first)
        #expect(item["name"] as? String == "Phone 2")
        let view = try client.request("GET", "/api/devices/1")
        let apps = try #require(view.json["apps"] as? [[String: Any]])
        let token = try #require((apps.first?["tokens"] as? [[String: Any]])?.first?["token"] as? String)
        #expect(try client.request("GET", "/api/devices/\(token.uppercased())").json["id"] as? Int == 1)
        #expect(try client.request("DELETE", "/api/devices/1").status == 204)
        #expect(try client.request("GET", "/api/devices/1").status == 404)
        #expect(try client.request("GET", "/api/devices/\(token)").status == 404)
        #expect(try client.request("GET", "/api/devices/x").status == 404)
    }

    @Test("many devices are added in portions, between which other requests are answered")
    func manyDevices() throws {
        let bed = try DeviceBed()
        let adding = try bed.client()
        let client = try bed.client()
        try adding.start("POST", "/api/devices", body: #"{"name":"Phone","count":20000}"#)
        var counts: [Int] = []
        try eventually("all devices") {
            let world = try client.request("GET", "/api/status").json["world"] as? [String: Any]
            counts.append(world?["devices"] as? Int ?? -1)
            return counts.last == 20_000
        }
        #expect(counts.contains { (1..<20_000).contains($0) })
        #expect(try adding.answer().json["devices"] as? [Int] == Array(0..<20_000))
        #expect(try client.request("GET", "/api/devices/19999").json["name"] as? String == "Phone 20000")
    }

    @Test("devices that are added by a request drop no event before its reader has seen it")
    func manyDevicesLoseNoEvent() throws {
        let seen = Mutex((devices: 0, isLost: false))
        let tap = DeviceEventTap(
            receive: { events in
                seen.withLock { $0.devices += events.count { $0.kind == .device && $0.detail == "new" } }
            }, lost: { seen.withLock { $0.isLost = true } })
        let bed = try DeviceBed(
            settings: { $0.maximumEvents = 100 }, service: { $0.tap = tap })
        let answer = try bed.client().request("POST", "/api/devices", body: #"{"count":1000}"#)
        #expect(answer.status == 201)
        try eventually("all events") { seen.withLock { $0.devices == 1_000 || $0.isLost } }
        #expect(!seen.withLock { $0.isLost })
    }

    @Test("an addition that meets the limit of devices names what was added")
    func additionMeetsLimit() throws {
        let bed = try DeviceBed(settings: { $0.maximumDevices = 250 })
        let answer = try bed.client().request("POST", "/api/devices", body: #"{"count":300}"#)
        #expect(answer.status == 429)
        #expect(answer.error?.contains("250 of 300 devices were added, from 0 to 249") == true)
    }

    @Test(
        "the status names the environments that are served, whether any key is accepted, and the given hints")
    func status() throws {
        let bed = try DeviceBed()
        let known = try bed.client().request("GET", "/api/status").json
        #expect(known["environments"] as? [String] == ["production"])
        #expect(known["anyKey"] as? Bool == false)
        #expect((known["hints"] as? [String: Any])?.isEmpty == true)
        let any = try DeviceBed(
            simulator: { $0.providerTokens = .anyKey },
            facts: {
                $0.sandboxPort = 1
                $0.bootstrapServers = "127.0.0.1:9092"
            })
        let status = try any.client().request("GET", "/api/status").json
        #expect(status["environments"] as? [String] == ["production", "sandbox"])
        #expect(status["anyKey"] as? Bool == true)
        #expect((status["hints"] as? [String: Any])?["bootstrapServers"] as? String == "127.0.0.1:9092")
    }

    @Test("an action changes the device; a wrong one is refused with its cause")
    func actions() throws {
        let bed = try DeviceBed()
        _ = try bed.addDevice()
        let client = try bed.client()
        let offline = try client.request(
            "POST", "/api/devices/0/actions", body: #"{"action":"airplane","on":true}"#)
        #expect(offline.status == 200)
        #expect(offline.json["isOnline"] as? Bool == false)
        let cases: [(String, Int)] = [
            (#"{"action":"airplane"}"#, 400), (#"{"action":"fly"}"#, 400),
            (#"{"action":"power","onn":true}"#, 400),
            ("[]", 400), ("{", 400), (#"{"action":"launch","app":"com.example.absent"}"#, 404),
            (#"{"action":"call","on":true}"#, 409),
        ]
        for (body, status) in cases {
            let answer = try client.request("POST", "/api/devices/0/actions", body: body)
            #expect(answer.status == status, "\(body): \(answer.text)")
            #expect(answer.error?.isEmpty == false)
        }
        let absent = try client.request(
            "POST", "/api/devices/9/actions", body: #"{"action":"lock","on":true}"#)
        #expect(absent.status == 404)
    }

    @Test("members of settings and focus that a request omits keep their values")
    func partialSettings() throws {
        let bed = try DeviceBed()
        _ = try bed.addDevice()
        let client = try bed.client()
        func settings() throws -> [String: Any] {
            let apps = try client.request("GET", "/api/devices/0").json["apps"] as? [[String: Any]]
            return apps?.first?["settings"] as? [String: Any] ?? [:]
        }
        for member in ["sounds", "badges"] {
            let answer = try client.request(
                "POST", "/api/devices/0/actions",
                body: #"{"action":"settings","app":"\#(DeviceBed.app)","settings":{"\#(member)":false}}"#)
            #expect(answer.status == 200, "\(answer.text)")
        }
        #expect(try settings()["sounds"] as? Bool == false)
        #expect(try settings()["badges"] as? Bool == false)
        #expect(try settings()["alerts"] as? Bool == true)
        let focus = try client.request(
            "POST", "/api/devices/0/actions", body: #"{"action":"focus","focus":{"name":"Work"}}"#)
        #expect(focus.status == 200, "\(focus.text)")
    }

    @Test("an app is declared with PUT; mistakes are named with their keys")
    func apps() throws {
        let bed = try DeviceBed()
        let client = try bed.client()
        let path = "/api/apps/com.example.shop"
        let good = try client.request(
            "PUT", path, body: #"{"name":"Shop","icon":"\ud83d\udecd","categories":[{"identifier":"ORDER"}]}"#
        )
        #expect(good.status == 200, "\(good.text)")
        #expect(try client.request("GET", path).json["icon"] as? String == "🛍")
        let wrong = try client.request(
            "PUT", path, body: #"{"categorys":[],"silent":[{"result":"maybe"}],"bundle":"com.example.x"}"#)
        #expect(wrong.status == 400)
        let error = try #require(wrong.error)
        #expect(error.contains("did you mean `categories`"))
        #expect(error.contains("silent[0].result"))
        #expect(error.contains("com.example.x"))
        #expect(try client.request("GET", "/api/apps/com.example.absent").status == 404)
    }

    @Test("pushes are listed newest first and found by number and apns-id")
    func pushes() throws {
        let bed = try DeviceBed()
        let sender = try bed.fixture.connect()
        var push = bed.fixture.good()
        push["apns-id"] = nil
        let first = try sender.push(push).headers["apns-id"]
        let second = try sender.push(push).headers["apns-id"]
        let client = try bed.client()
        let list =
            try JSONSerialization.jsonObject(
                with: Data(try client.request("GET", "/api/pushes?limit=1").body))
            as? [[String: Any]]
        #expect(list?.count == 1)
        #expect(list?.first?["apnsID"] as? String == second)
        #expect(try client.request("GET", "/api/pushes/1").json["apnsID"] as? String == first)
        #expect(try client.request("GET", "/api/pushes/\(second ?? "")").json["number"] as? Int == 2)
        #expect(try client.request("GET", "/api/pushes/99").status == 404)
        #expect(try client.request("GET", "/api/attachments/99").status == 404)
    }

    @Test("an unknown path, method, parameter or value is refused, and the allowed ones are named")
    func refusals() throws {
        let bed = try DeviceBed()
        let client = try bed.client()
        #expect(try client.request("GET", "/api/nothing").status == 404)
        let method = try client.request("DELETE", "/api/status")
        #expect(method.status == 405)
        #expect(method.fields["allow"] == "GET")
        let parameter = try client.request("GET", "/api/wait?titel=x")
        #expect(parameter.status == 400)
        #expect(parameter.error?.contains("title") == true)
        for query in [
            "devices?limit=501", "devices?offset=-1", "devices?filter=on", "devices?limit=1&limit=2",
            "tokens?purpose=x", "wait?timeout=61", "wait?online=maybe", "pushes?before=x", "events?after=x",
        ] {
            #expect(try client.request("GET", "/api/\(query)").status == 400, "\(query)")
        }
        #expect(try client.request("GET", "/").status == 200)
        #expect(try client.request("GET", "/../etc/passwd").status == 404)
        #expect(try client.request("POST", "/", body: "{}").status == 405)
    }

    @Test("a reset forgets devices and pushes, and its event reaches readers")
    func reset() throws {
        let bed = try DeviceBed()
        _ = try bed.addDevice()
        let client = try bed.client()
        let answer = try client.request("POST", "/api/reset", body: "{}")
        #expect(answer.status == 200)
        #expect((answer.json["world"] as? [String: Any])?["devices"] as? Int == 0)
        #expect(try client.request("GET", "/api/rules").status == 200)
    }

    @Test("the export has a line for the status and for each app, device, token, push and event")
    func export() throws {
        let bed = try DeviceBed()
        for _ in 0..<120 { _ = try bed.addDevice() }
        _ = try bed.fixture.connect().push(bed.fixture.good())
        let text = try bed.client().request("GET", "/api/export").text
        var counts: [String: Int] = [:]
        for line in text.split(separator: "\n") {
            let object = try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any]
            counts[object?["kind"] as? String ?? "", default: 0] += 1
        }
        let events = bed.registry.read { world, _ in world.lastEvent }
        #expect(counts["status"] == 1)
        #expect(counts["app"] == 1)
        #expect(counts["device"] == 121)
        #expect(counts["token"] == 121)
        #expect(counts["push"] == 1)
        #expect(counts["event"] == Int(events))
    }

    // MARK: - Waiting

    @Test("a wait ends when the condition comes true, and not before")
    func wait() throws {
        let bed = try DeviceBed()
        let device = try bed.addDevice()
        let waiting = try bed.client()
        try waiting.start("GET", "/api/wait?device=\(device.token)&online=false&timeout=60")
        let client = try bed.client()
        #expect(try client.request("GET", "/api/wait?device=0&online=true&timeout=0").status == 200)
        _ = try client.request("POST", "/api/devices/0/actions", body: #"{"action":"power","on":false}"#)
        let answer = try waiting.answer()
        #expect(answer.status == 200)
        #expect(answer.json["matches"] as? Bool == true)
    }

    @Test("a wait for a push's apns-id ends when the push arrives, for a device that appears only then")
    func waitForPush() throws {
        let bed = try DeviceBed()
        var push = bed.fixture.good()
        let waiting = try bed.client()
        try waiting.start(
            "GET", "/api/wait?device=\(push.device)&apns-id=123E4567-E89B-12D3-A456-426614174000&timeout=60")
        push["apns-expiration"] = nil
        #expect(try bed.fixture.connect().push(push).status == 200)
        let answer = try waiting.answer()
        #expect(answer.status == 200)
        #expect((answer.json["pushes"] as? [[String: Any]])?.count == 1)
    }

    @Test("a wait that comes to its end has 408 and what was seen")
    func waitExpires() throws {
        let bed = try DeviceBed()
        _ = try bed.addDevice()
        let client = try bed.client()
        let answer = try client.request("GET", "/api/wait?device=0&title=Never&timeout=0.05")
        #expect(answer.status == 408)
        #expect(answer.error?.contains("nothing has matched") == true)
        #expect(answer.json["seen"] is [String: Any])
        let absent = try bed.client().request("GET", "/api/wait?device=7&title=x&timeout=0.05")
        #expect(absent.error?.contains("no such device") == true)
        #expect(try bed.client().request("GET", "/api/wait?device=7&title=x&gone=1&timeout=0").status == 200)
    }

    // MARK: - Time

    @Test("what is due happens without a request, when its time comes")
    func timePasses() throws {
        let clock = Moment(1_700_000_000_000)
        let bed = try DeviceBed(clock: { clock.now })
        let device = try bed.addDevice()
        let client = try bed.client()
        _ = try client.request("POST", "/api/devices/0/actions", body: #"{"action":"network","on":false}"#)
        var push = bed.fixture.good()
        push.device = device.token
        push["apns-expiration"] = "\(clock.now / 1_000 + 1)"
        #expect(try bed.fixture.connect().push(push).status == 200)
        #expect(try client.request("GET", "/api/pushes/1").json["fate"] as? String == "stored")
        let waiting = try bed.client()
        try waiting.start("GET", "/api/wait?fate=expired&timeout=60")
        clock.now += 2_000
        #expect(try waiting.answer().status == 200)
    }

    @Test("a stop ends streams and waits, however long they would last")
    func stop() throws {
        let bed = try DeviceBed()
        let stream = try bed.client()
        try stream.start("GET", "/api/events")
        #expect(try stream.head().status == 200)
        let waiting = try bed.client()
        try waiting.start("GET", "/api/wait?title=x&timeout=60")
        _ = try bed.client().request("GET", "/api/status")
        bed.service.stop()
        // The client gives up after 20 seconds without a byte, before the wait's own end.
        try stream.waitForEnd()
        try waiting.waitForEnd()
    }
}
