import TestSupport
import Testing

@testable import APNSSimulator

/// A request that differs from a good one, and APNs' documented answer (APNs: HNR).
struct PushCase: Sendable, CustomTestStringConvertible {
    let name: String
    let status: Int
    let reason: String?
    let change: @Sendable (inout PushRequestTemplate) -> Void

    init(
        _ name: String, _ status: Int, _ reason: String? = nil,
        _ change: @escaping @Sendable (inout PushRequestTemplate) -> Void
    ) {
        self.name = name
        self.status = status
        self.reason = reason
        self.change = change
    }

    var testDescription: String { "\(name): \(reason ?? "accepted")" }

    static let unique = "123e4567-e89b-12d3-a456-426614174000"

    static let method: [PushCase] = [
        PushCase("GET", 405, "MethodNotAllowed") { $0.method = "GET" },
        PushCase("DELETE", 405, "MethodNotAllowed") { $0.method = "DELETE" },
        PushCase("other path", 404, "BadPath") { $0.path = "/" },
        PushCase("older path", 404, "BadPath") { $0.path = "/2/device/00" },
        PushCase("path without a token part", 404, "BadPath") { $0.path = "/3/device" },
        PushCase("empty token", 400, "MissingDeviceToken") { $0.device = "" },
        PushCase("path before credential", 404, "BadPath") {
            $0.path = "/x"
            $0["authorization"] = nil
        },
        PushCase("method before path", 405, "MethodNotAllowed") {
            $0.path = "/x"
            $0.method = "PUT"
        },
    ]

    static let device: [PushCase] = [
        PushCase("token not hexadecimal", 400, "BadDeviceToken") {
            $0.device = String(repeating: "xy", count: 32)
        },
        PushCase("half a byte", 400, "BadDeviceToken") { $0.device = String(repeating: "a", count: 63) },
        PushCase("short token", 400, "BadDeviceToken") { $0.device = "00ff" },
        PushCase("endless token", 400, "BadDeviceToken") { $0.device = String(repeating: "a", count: 402) },
        PushCase("token with a query", 400, "BadDeviceToken") { $0.path += "?a=b" },
        PushCase("upper-case token", 200) { $0.device = String(repeating: "0A", count: 32) },
        PushCase("Live Activity token of 80 bytes", 200) { $0.device = String(repeating: "0a", count: 80) },
        PushCase("token of the other environment", 400, "BadDeviceToken") {
            $0.device = "bad0" + String(repeating: "0", count: 60)
        },
        PushCase("unregistered", 410, "Unregistered") {
            $0.device = "DEAD" + String(repeating: "0", count: 60)
        },
        PushCase("expired token", 410, "ExpiredToken") {
            $0.device = "01d0" + String(repeating: "0", count: 60)
        },
        PushCase("token of another topic", 400, "DeviceTokenNotForTopic") {
            $0.device = "0709" + String(repeating: "0", count: 60)
        },
        PushCase("forbidden", 403, "Forbidden") { $0.device = "f0b1" + String(repeating: "0", count: 60) },
    ]

    static let headers: [PushCase] = [
        PushCase("good", 200) { _ in },
        PushCase("nothing but topic and token", 200) { request in
            for name in ["push-type", "priority", "expiration", "id", "collapse-id"] {
                request["apns-\(name)"] = nil
            }
        },
        PushCase("header twice", 400, "DuplicateHeaders") { $0.headers.append(("apns-priority", "10")) },
        PushCase("topic twice", 400, "DuplicateHeaders") {
            $0.headers.append(("apns-topic", "com.example.app"))
        },
        PushCase("unknown header twice", 400, "DuplicateHeaders") {
            $0.headers += [("x-a", "1"), ("x-b", "1"), ("x-a", "2")]
        },
        PushCase("unknown headers", 200) {
            $0.headers += [("x-a", "1"), ("content-type", "application/json")]
        },
        PushCase("identifier without hyphens", 400, "BadMessageId") {
            $0["apns-id"] = unique.replacing("-", with: "")
        },
        PushCase("identifier in upper case", 400, "BadMessageId") { $0["apns-id"] = unique.uppercased() },
        PushCase("empty identifier", 400, "BadMessageId") { $0["apns-id"] = "" },
        PushCase("no number as expiration", 400, "BadExpirationDate") { $0["apns-expiration"] = "tomorrow" },
        PushCase("negative expiration", 400, "BadExpirationDate") { $0["apns-expiration"] = "-1" },
        PushCase("fraction as expiration", 400, "BadExpirationDate") { $0["apns-expiration"] = "1.5" },
        PushCase("expiration in the past", 200) { $0["apns-expiration"] = "1000000000" },
        PushCase("priority 7", 400, "BadPriority") { $0["apns-priority"] = "7" },
        PushCase("priority high", 400, "BadPriority") { $0["apns-priority"] = "high" },
        PushCase("priority 5", 200) { $0["apns-priority"] = "5" },
        PushCase("priority 1", 200) { $0["apns-priority"] = "1" },
        PushCase("collapse identifier of 65 bytes", 400, "BadCollapseId") {
            $0["apns-collapse-id"] = String(repeating: "c", count: 65)
        },
        PushCase("collapse identifier of 64 bytes", 200) {
            $0["apns-collapse-id"] = String(repeating: "c", count: 64)
        },
    ]

    static let topics: [PushCase] = [
        PushCase("no topic", 400, "MissingTopic") { $0["apns-topic"] = nil },
        PushCase("topic with a blank", 400, "BadTopic") { $0["apns-topic"] = "com.example app" },
        PushCase("empty topic", 400, "BadTopic") { $0["apns-topic"] = "" },
        PushCase("unknown app", 400, "TopicDisallowed") { $0["apns-topic"] = "com.example.other" },
        PushCase("similar app", 400, "TopicDisallowed") { $0["apns-topic"] = "com.example.apple" },
        PushCase("unknown push type", 400, "InvalidPushType") { $0["apns-push-type"] = "shout" },
        PushCase("push type in upper case", 400, "InvalidPushType") { $0["apns-push-type"] = "Alert" },
        PushCase("voip without suffix", 400, "BadTopic") { $0["apns-push-type"] = "voip" },
        PushCase("suffix alone", 400, "BadTopic") {
            $0["apns-push-type"] = "voip"
            $0["apns-topic"] = ".voip"
        },
        PushCase("background with priority 10", 400, "BadPriority") { $0["apns-push-type"] = "background" },
        PushCase("background with the default priority", 400, "BadPriority") {
            $0["apns-push-type"] = "background"
            $0["apns-priority"] = nil
        },
        PushCase("background with priority 5", 200) {
            $0["apns-push-type"] = "background"
            $0["apns-priority"] = "5"
        },
        PushCase("Live Activity with priority 1", 400, "BadPriority") {
            $0["apns-push-type"] = "liveactivity"
            $0["apns-topic"] = "com.example.app.push-type.liveactivity"
            $0["apns-priority"] = "1"
        },
        PushCase("mdm with an app's topic", 400, "BadTopic") { $0["apns-push-type"] = "mdm" },
    ]

    static let suffixes: [PushCase] = [
        ("voip", ".voip"), ("complication", ".complication"), ("fileprovider", ".pushkit.fileprovider"),
        ("location", ".location-query"), ("liveactivity", ".push-type.liveactivity"),
        ("pushtotalk", ".voip-ptt"),
        ("widgets", ".push-type.widgets"), ("controls", ".push-type.controls"),
    ].flatMap { (type: String, suffix: String) in
        [
            PushCase("\(type) with its suffix", 200) {
                $0["apns-push-type"] = type
                $0["apns-topic"] = "com.example.app\(suffix)"
            },
            PushCase("\(type) without its suffix", 400, "BadTopic") { $0["apns-push-type"] = type },
            PushCase("alert with the suffix of \(type)", 400, "BadTopic") {
                $0["apns-topic"] = "com.example.app\(suffix)"
            },
            PushCase("background with the suffix of \(type)", 400, "BadTopic") {
                $0["apns-push-type"] = "background"
                $0["apns-priority"] = "5"
                $0["apns-topic"] = "com.example.app\(suffix)"
            },
            PushCase("no push type with the suffix of \(type)", 200) {
                $0["apns-push-type"] = nil
                $0["apns-topic"] = "com.example.app\(suffix)"
            },
        ]
    }

    static let payloads: [PushCase] = [
        PushCase("no payload", 400, "PayloadEmpty") { $0.body = "" },
        PushCase("4,096 bytes", 200) { $0.body = String(repeating: " ", count: 4_096) },
        PushCase("4,097 bytes", 413, "PayloadTooLarge") { $0.body = String(repeating: " ", count: 4_097) },
        PushCase("voip of 5,120 bytes", 200) {
            $0.body = String(repeating: " ", count: 5_120)
            $0["apns-push-type"] = "voip"
            $0["apns-topic"] = "com.example.app.voip"
        },
        PushCase("voip of 5,121 bytes", 413, "PayloadTooLarge") {
            $0.body = String(repeating: " ", count: 5_121)
            $0["apns-push-type"] = "voip"
            $0["apns-topic"] = "com.example.app.voip"
        },
        PushCase("100,000 bytes", 413, "PayloadTooLarge") {
            $0.body = String(repeating: " ", count: 100_000)
        },
    ]

    static let credentials: [PushCase] = [
        PushCase("no provider token", 403, "MissingProviderToken") { $0["authorization"] = nil },
        PushCase("empty authorization", 403, "MissingProviderToken") { $0["authorization"] = "" },
        PushCase("other scheme", 403, "InvalidProviderToken") { $0["authorization"] = "basic abcdef" },
        PushCase("no token at all", 403, "InvalidProviderToken") { $0["authorization"] = "bearer x.y.z" },
        PushCase("scheme in capitals", 200) {
            $0["authorization"] = $0["authorization"]!.replacing("bearer", with: "Bearer")
        },
    ]
}

@Suite struct PushRulesTests {
    private func check(_ row: PushCase) throws {
        let fixture = try SimulatorFixture { options, _ in
            options.topics = ["com.example.app"]
            options.deviceRules = try! SimulatorOptions.parseDeviceRules(
                "dead=Unregistered,01d0=ExpiredToken,bad0=BadDeviceToken,0709=DeviceTokenNotForTopic,f0b1=Forbidden"
            )
        }
        let client = try fixture.connect()
        var request = fixture.good()
        row.change(&request)
        let response = try client.push(request)
        #expect(response.status == row.status)
        #expect(response.reason == row.reason)
        if let reason = row.reason {
            #expect(response.headers["content-type"] == "application/json")
            if row.status == 410 {
                let timestamp = response.body.split(separator: ":").last.flatMap { Int64($0.dropLast()) }
                #expect(try #require(timestamp) > 1_600_000_000_000)
            } else {
                #expect(response.body == "{\"reason\":\"\(reason)\"}")
            }
        } else {
            #expect(response.body.isEmpty)
        }
        // The answer repeats the identifier or has a new one.
        let identifier = try #require(response.headers["apns-id"])
        if request["apns-id"] == PushCase.unique {
            #expect(identifier == PushCase.unique)
        } else {
            #expect(identifier.utf8.count == 36)
        }
        // No rejection ends the connection.
        #expect(try client.push(fixture.good()).status == 200)
    }

    @Test(arguments: PushCase.method) func methodAndPathDecideTheAnswer(row: PushCase) throws {
        try check(row)
    }
    @Test(arguments: PushCase.device) func deviceTokenDecidesTheAnswer(row: PushCase) throws {
        try check(row)
    }
    @Test(arguments: PushCase.headers) func headersDecideTheAnswer(row: PushCase) throws { try check(row) }
    @Test(arguments: PushCase.topics) func topicAndPushTypeDecideTheAnswer(row: PushCase) throws {
        try check(row)
    }
    @Test(arguments: PushCase.suffixes) func topicSuffixMustMatchThePushType(row: PushCase) throws {
        try check(row)
    }
    @Test(arguments: PushCase.payloads) func payloadSizeDecidesTheAnswer(row: PushCase) throws {
        try check(row)
    }
    @Test(arguments: PushCase.credentials) func credentialDecidesTheAnswer(row: PushCase) throws {
        try check(row)
    }
}
