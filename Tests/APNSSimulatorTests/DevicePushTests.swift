import DeviceModel
import Synchronization
import TestSupport
import Testing

@testable import APNSSimulator

/// Pushes that reach devices.
@Suite("Devices: pushes")
struct DevicePushTests {
    @Test("a push to a device's token is accepted and appears in the journal with its device")
    func accepted() throws {
        let bed = try DeviceBed()
        let device = try bed.addDevice()
        var push = bed.fixture.good()
        push.device = device.token
        #expect(try bed.fixture.connect().push(push).status == 200)
        let view = try #require(bed.registry.read { world, _ in world.push(1) })
        #expect(view.device == device.id)
        #expect(view.apnsID == "123e4567-e89b-12d3-a456-426614174000")
        #expect(view.collapseID == "order-1")
        #expect(view.priority == 10)
        #expect(view.expiration == 0)
        #expect(view.topic == DeviceBed.app)
    }

    @Test("an unknown token is BadDeviceToken when unknown tokens are refused, and makes a device otherwise")
    func unknownToken() throws {
        let strict = try DeviceBed(settings: { $0.unknownTokens = .refuse })
        let refusal = try strict.fixture.connect().push(strict.fixture.good())
        #expect(refusal.status == 400)
        #expect(refusal.reason == "BadDeviceToken")
        #expect(strict.fixture.simulator.summary.rejected[.badDeviceToken] == 1)
        let open = try DeviceBed()
        #expect(try open.fixture.connect().push(open.fixture.good()).status == 200)
        #expect(open.registry.read { world, now in world.status(now: now).devices } == 1)
    }

    @Test("a token of another topic is DeviceTokenNotForTopic")
    func otherTopic() throws {
        let bed = try DeviceBed(apps: [
            AppDeclaration(bundle: DeviceBed.app), AppDeclaration(bundle: "com.example.other"),
        ])
        let device = try bed.addDevice()
        var push = bed.fixture.good()
        push.device = device.token
        push["apns-topic"] = "com.example.other"
        #expect(try bed.fixture.connect().push(push).reason == "DeviceTokenNotForTopic")
    }

    @Test("an uninstalled app's token loses one push; later ones are 410 with the time of the uninstallation")
    func gone() throws {
        let clock = Moment(1_700_000_000_000)
        let bed = try DeviceBed(settings: { $0.goneDelay = 1_000 }, clock: { clock.now })
        let device = try bed.addDevice()
        clock.now += 60_000
        let end = clock.now
        var action = DeviceAction(.uninstall)
        action.app = DeviceBed.app
        let uninstall = action
        try bed.registry.change { (world, now) throws(DeviceFault) in
            try world.perform(uninstall, on: device.id, now: now)
        }
        clock.now += 5_000
        let client = try bed.fixture.connect()
        var push = bed.fixture.good()
        push.device = device.token
        #expect(try client.push(push).status == 200)
        for _ in 0..<2 {
            let answer = try client.push(push)
            #expect(answer.status == 410)
            #expect(answer.body == "{\"reason\":\"Unregistered\",\"timestamp\":\(end)}")
        }
    }

    @Test("each environment knows its own tokens; both show the same devices")
    func environments() throws {
        var sandboxApp = AppDeclaration(bundle: DeviceBed.app)
        sandboxApp.environment = .sandbox
        let bed = try DeviceBed(apps: [sandboxApp])
        let device = try bed.addDevice()
        var options = bed.fixture.simulator.options
        options.environment = .sandbox
        options.port = 0
        let sandbox = try Simulator(options: options, sibling: bed.fixture.simulator)
        sandbox.start()
        defer { sandbox.stop() }
        var push = bed.fixture.good()
        push.device = device.token
        let wrong = try bed.fixture.connect().push(push)
        #expect(wrong.reason == "BadDeviceToken")
        let client = try PushClient(port: sandbox.port, authority: bed.fixture.simulator.authority)
        #expect(try client.push(push).status == 200)
        #expect(bed.registry.read { world, _ in world.push(2) }?.device == device.id)
    }

    @Test("a push that other checks refuse never reaches a device")
    func otherChecks() throws {
        let bed = try DeviceBed()
        var push = bed.fixture.good()
        push["apns-priority"] = "7"
        #expect(try bed.fixture.connect().push(push).reason == "BadPriority")
        #expect(bed.registry.read { world, now in world.status(now: now).pushes } == 0)
    }
}

/// A clock that a test sets.
final class Moment: Sendable {
    private let value: Mutex<Int64>

    init(_ value: Int64) { self.value = Mutex(value) }

    var now: Int64 {
        get { value.withLock { $0 } }
        set { value.withLock { $0 = newValue } }
    }
}
