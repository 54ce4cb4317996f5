import DeliveryCore
import DeviceModel
import Foundation
import SluiceModel
import StreamScheduling

/// The demo's jobs: a possible load of a company with four apps on a busy evening. The same seed gives the same jobs.
struct DemoLoad {
    /// Expected end of a job.
    enum Expectation: UInt8 {
        case outcome
        case deadLetter
    }

    struct Job {
        var key: [UInt8]
        var value: [UInt8]
        var headers: [(name: String, value: [UInt8]?)]
        var expectation: Expectation
    }

    struct App {
        var name: String
        var bundle: String
        /// Emoji that stands for the icon.
        var icon: String
        /// Share of the jobs, in percent.
        var share: Int
        var texts: [String]
    }

    static let apps = [
        App(
            name: "news", bundle: "com.example.news", icon: "📰", share: 40,
            texts: [
                "Storm warning for the coast", "Polls have closed", "Tonight: meteor shower over the north",
            ]),
        App(
            name: "chat", bundle: "com.example.chat", icon: "💬", share: 30,
            texts: ["Ada: are you there?", "Grace sent a photo", "Missed call from Alan"]),
        App(
            name: "shop", bundle: "com.example.shop", icon: "🛍️", share: 20,
            texts: ["Your parcel is on its way", "Back in stock: the green one", "Thank you for your order"]),
        App(
            name: "transit", bundle: "com.example.transit", icon: "🚋", share: 10,
            texts: ["Line 7 is delayed by 10 minutes", "Your train leaves from platform 4"]),
    ]

    /// Beginnings of device tokens, and the reasons with which the demo's simulator answers them.
    static let deviceRules = "dead=Unregistered,bad0=BadDeviceToken"
    /// Answers that ask for another attempt. An internal error costs its connection as well, and is rare.
    static let errors = "ServiceUnavailable=0.01,TooManyRequests=0.005,InternalServerError=0.0001"

    /// Declarations of the demo's apps and devices for the simulator.
    static func declarations(devices: Int, seed: UInt64) -> String {
        let apps = apps.map { app in
            """
              - bundle: \(app.bundle)
                name: \(app.name)
                icon: \(app.icon)
                purposes: [alert, voip, activity-start]
                background-modes: [remote-notification, voip]
                activities:
                  - {type: Score, title: "{name}", lines: ["Score {score}"], leading: "{name}", trailing: "{score}"}
            """
        }
        // A tenth of the phones lie locked in a pocket, and some are off.
        let locked = devices / 10
        let off = devices / 50
        var groups = ["  - {count: \(max(1, devices - locked - off)), name: Phone}"]
        if locked > 0 { groups.append("  - {count: \(locked), name: Locked phone, state: {lock: true}}") }
        if off > 0 { groups.append("  - {count: \(off), name: Absent phone, state: {airplane: true}}") }
        return """
            apps:
            \(apps.joined(separator: "\n"))
            devices:
            \(groups.joined(separator: "\n"))
            settings: {seed: \(seed), unknown-tokens: refuse}

            """
    }

    /// The first phone, which a reader of the demo's hints pushes to.
    static func sample(seed: UInt64) -> LocalStage.Sample {
        LocalStage.Sample(
            device: "Phone 1", app: apps[0].name, bundle: apps[0].bundle,
            token: TokenName(seed: seed, device: 0, bundle: apps[0].bundle, purpose: .alert).text)
    }

    /// Token of an app on a device, or of none.
    private enum Recipient {
        /// Number of a device of the simulator.
        case device(UInt32)
        /// Token that the simulator answers by its prefix.
        case none(prefix: String)
    }

    private let seed: UInt64
    private var random: SeededGenerator
    private let recipients: [Recipient]

    init(seed: UInt64, devices count: Int) {
        self.seed = seed
        var random = SeededGenerator(seed: seed)
        recipients = (0..<count).map { index in
            // About one device in sixty has been wiped or sold, and one in two hundred was never right.
            switch Int.random(in: 0..<600, using: &random) {
            case 0..<10: .none(prefix: "dead")
            case 10..<13: .none(prefix: "bad0")
            default: .device(UInt32(index))
            }
        }
        self.random = random
    }

    private func token(_ recipient: Recipient, _ bundle: String, _ purpose: TokenPurpose) -> String {
        switch recipient {
        case .device(let number):
            return TokenName(seed: seed, device: number, bundle: bundle, purpose: purpose).text
        case .none(let prefix):
            let name = TokenName(seed: seed, device: 0, bundle: prefix, purpose: purpose)
            return prefix + name.text.dropFirst(prefix.count)
        }
    }

    mutating func next(number: Int) -> Job {
        // About every two-hundredth job is produced by a service with a bug.
        if Int.random(in: 0..<200, using: &random) == 0 { return malformed(number) }
        let push = push(number)
        let job =
            Int.random(in: 0..<100, using: &random) < 15
            ? JobEncoder.structured(push) : JobEncoder.binary(push)
        return Job(
            key: job.key, value: job.value, headers: job.headers.map { ($0.name, $0.value) },
            expectation: .outcome)
    }

    private mutating func push(_ number: Int) -> PushDescription {
        var choice = Int.random(in: 0..<100, using: &random)
        let app =
            DemoLoad.apps.first { app in
                choice -= app.share
                return choice < 0
            } ?? DemoLoad.apps[0]
        let text = app.texts.randomElement(using: &random) ?? ""
        let recipient = recipients.randomElement(using: &random) ?? .device(0)
        var push = PushDescription(
            deviceToken: token(recipient, app.bundle, .alert), topic: app.bundle,
            payload: Array(
                #"{"aps":{"alert":{"title":"\#(app.name)","body":"\#(text)"},"sound":"default"},"n":\#(number)}"#
                    .utf8))
        switch Int.random(in: 0..<100, using: &random) {
        case 0..<55: push.priority = 10
        case 55..<80: push.priority = 5
        case 80..<88: push.priority = 1
        case 88..<95:
            push.pushType = "background"
            push.priority = 5
            push.payload = Array(#"{"aps":{"content-available":1},"n":\#(number)}"#.utf8)
        case 95..<98:
            push.pushType = "liveactivity"
            push.topic = app.bundle + ".push-type.liveactivity"
            push.priority = 10
            push.deviceToken = token(recipient, app.bundle, .activityStart)
            push.payload = Array(
                (#"{"aps":{"timestamp":\#(time(nil)),"event":"start","attributes-type":"Score","attributes":{"name":"\#(app.name)"},"#
                    + #""content-state":{"score":\#(number)},"alert":{"title":"\#(app.name)","body":"\#(text)"}}}"#)
                    .utf8)
        default:
            push.pushType = "voip"
            push.topic = app.bundle + ".voip"
            push.deviceToken = token(recipient, app.bundle, .voip)
            push.priority = 10
            push.expiration = 0
        }
        if push.pushType == "alert", Int.random(in: 0..<100, using: &random) < 35 {
            push.collapseIdentifier = "\(app.name)-\(Int.random(in: 0..<20, using: &random))"
        }
        switch Int.random(in: 0..<200, using: &random) {
        // This push was stuck somewhere for too long, so it has expired before the worker reads it.
        case 0 where push.expiration == nil: push.expiration = Int64(time(nil)) - 60
        case 1..<80 where push.expiration == nil: push.ttl = 3_600
        default: break
        }
        return push
    }

    /// Returns a job with a typical mistake.
    private mutating func malformed(_ number: Int) -> Job {
        var push = push(number)
        push.pushType = "alert"
        push.topic = DemoLoad.apps[0].bundle
        push.priority = 10
        switch Int.random(in: 0..<8, using: &random) {
        case 0: push.deviceToken = "not a token"
        case 1: push.payload = Array(#"{"aps":{"alert":"cut off"#.utf8)
        case 2: push.pushType = "allert"
        case 3: push.priority = 7
        case 4: push.collapseIdentifier = String(repeating: "x", count: 65)
        case 5: push.payload = Array(#"{"aps":{"alert":"\#(String(repeating: "long ", count: 900))"}}"#.utf8)
        case 6:
            push.pushType = "background"
            push.priority = 10
        default: push.apnsID = "42"
        }
        let job = JobEncoder.binary(push)
        return Job(
            key: job.key, value: job.value, headers: job.headers.map { ($0.name, $0.value) },
            expectation: .deadLetter)
    }
}
