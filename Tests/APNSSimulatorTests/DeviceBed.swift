import DeviceModel
import Foundation
import HTTP2
import TestSupport

@testable import APNSSimulator

/// Devices with their API, and an APNs server before them. Ends with this object.
final class DeviceBed: Sendable {
    let registry: DeviceRegistry
    let service: DeviceService
    let fixture: SimulatorFixture
    let port: UInt16

    init(
        apps: [AppDeclaration] = [AppDeclaration(bundle: DeviceBed.app)],
        settings: (inout DeviceSettings) -> Void = { _ in },
        service change: (inout DeviceServiceOptions) -> Void = { _ in },
        simulator: (inout SimulatorOptions) -> Void = { _ in },
        facts completeFacts: (inout SimulatorFacts) -> Void = { _ in },
        clock: @escaping @Sendable () -> Int64 = { Int64(Date().timeIntervalSince1970 * 1_000) }
    ) throws {
        var model = DeviceSettings()
        settings(&model)
        let registry = DeviceRegistry(apps: apps, settings: model, clock: clock)
        self.registry = registry
        fixture = try SimulatorFixture { options, _ in
            options.devices = registry
            simulator(&options)
        }
        var options = DeviceServiceOptions()
        options.port = 0
        change(&options)
        var facts = SimulatorFacts(version: "test")
        facts.productionPort = fixture.simulator.port
        completeFacts(&facts)
        service = try DeviceService(
            registry, options: options, facts: facts, simulators: [fixture.simulator])
        port = service.port ?? 0
        service.start()
    }

    deinit { service.stop() }

    static let app = "com.example.app"

    func client() throws -> HTTPClient { try HTTPClient(port: port) }

    /// Adds a device and returns its number and its token for alerts.
    func addDevice() throws -> (id: UInt32, token: String) {
        let id = try registry.change { (world, now) throws(DeviceFault) in
            try world.addDevice(now: now)
        }
        var query = TokenQuery()
        query.device = id
        let choice = query
        return (id, registry.read { world, _ in world.tokens(choice) }.first?.token ?? "")
    }
}
