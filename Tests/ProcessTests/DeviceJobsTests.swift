import Foundation
import SluiceModel
import TestSupport
import Testing

/// The simulator's devices report events as jobs, which a worker obeys.
@Suite("Simulator's devices as producers")
struct DeviceJobsTests {
    private static let apps = """
        apps:
          - bundle: com.example.news
            service-extension: {set: {subtitle: shown}}
        devices: [{name: Phone}]
        settings: {unknown-tokens: refuse, gone-delay: 0}
        """

    private struct API {
        let address: String

        /// The page's address has a slash at its end.
        init(_ bed: Bed) throws { address = String(try #require(bed.page).dropLast()) }

        func call(_ method: String, _ path: String, _ body: String? = nil) throws -> [String: Any] {
            var arguments = ["-sS", "-X", method, "\(address)\(path)"]
            if let body { arguments += ["-H", "Content-Type: application/json", "-d", body] }
            let result = try ChildProcess.run("/usr/bin/env", ["curl"] + arguments)
            let object = try JSONSerialization.jsonObject(with: Data(result.standardOutput.utf8))
            return try #require(object as? [String: Any], "\(result.standardOutput)")
        }

        func act(_ body: String) throws { _ = try call("POST", "/api/devices/0/actions", body) }

        /// The valid token of the device.
        func token() throws -> String {
            let apps = try call("GET", "/api/devices/0")["apps"] as? [[String: Any]]
            let tokens = apps?.first?["tokens"] as? [[String: Any]]
            return try #require(tokens?.first { $0["isValid"] as? Bool == true }?["token"] as? String)
        }
    }

    private static func push(_ token: String, delivery: String) -> EncodedJob {
        var push = PushDescription(
            deviceToken: token, topic: "com.example.news",
            payload: Array(
                #"{"aps":{"alert":{"title":"\#(delivery)"},"mutable-content":\#(delivery == "confirm" ? 1 : 0)}}"#
                    .utf8))
        push.delivery = delivery
        return JobEncoder.binary(push)
    }

    @Test(
        "a push waits for a device that has left, is delivered at its return, and confirmed by its extension")
    func offlineOnlineReceipt() throws {
        try withBed(BedOptions(devices: Self.apps)) { bed in
            let worker = try bed.start()
            let api = try API(bed)
            let token = try api.token()
            try api.act(#"{"action":"airplane","on":true}"#)
            try bed.outcomes.wait(for: 1, of: worker)
            #expect(bed.outcomes.outcomes.map(\.kind) == [.applied])
            try bed.produce([
                Self.push(token, delivery: "hold-while-offline"), Self.push(token, delivery: "confirm"),
            ])
            try api.act(#"{"action":"airplane","on":false}"#)
            try bed.outcomes.wait(for: 5, of: worker)
            let outcomes = bed.outcomes.outcomes
            #expect(outcomes.count { $0.kind == .accepted } == 1)
            #expect(outcomes.count { $0.kind == .confirmed } == 1)
            // The return has released both pushes, so that neither was sent before; the receipt has confirmed its push.
            #expect(outcomes.filter { $0.kind == .applied }.compactMap(\.count).sorted() == [0, 1, 2])
            #expect(bed.pushes().map(\.status) == [200, 200])
            let wait = try api.call("GET", "/api/wait?device=0&title=confirm&timeout=30")
            #expect(wait["matches"] as? Bool == true)
        }
    }

    @Test("pushes that wait for a device move to its new token, and end when the app is uninstalled")
    func tokenChangeAndRemoval() throws {
        try withBed(BedOptions(devices: Self.apps)) { bed in
            let worker = try bed.start()
            let api = try API(bed)
            let former = try api.token()
            var late = PushDescription(
                deviceToken: former, topic: "com.example.news", payload: Array(#"{"aps":{"alert":"x"}}"#.utf8)
            )
            late.deliverAtMilliseconds = bed.now + 86_400_000
            try bed.produce([JobEncoder.binary(late)])
            try api.act(#"{"action":"restore"}"#)
            try bed.outcomes.wait(for: 1, of: worker)
            #expect(bed.outcomes.outcomes[0].count == 1, "\(bed.outcomes.outcomes[0].headline)")
            let token = try api.token()
            #expect(token != former)
            try api.act(#"{"action":"uninstall","app":"com.example.news"}"#)
            try bed.outcomes.wait(for: 3, of: worker)
            let push = try #require(bed.outcomes.outcomes.first { $0.topic == "com.example.news" })
            #expect(push.deviceToken == token)
            #expect(bed.pushes().isEmpty)
        }
    }
}
