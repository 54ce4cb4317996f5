import DeviceModel
import EventLoop

/// A request that waits until the devices show something.
final class ConditionWaiter: HTTPWaiter {
    let deadline: MonotonicTime
    private let registry: DeviceRegistry
    private let condition: WaitCondition
    /// Number or token of a device; nil for any device. The device may appear during the wait.
    private let device: String?
    private let seconds: Double

    /// Answer at the deadline.
    struct Expiry: Codable {
        var error: String
        /// Notifications of the device and app at the deadline, whatever else the condition asks for.
        var seen: WaitResult
    }

    init(
        registry: DeviceRegistry, condition: WaitCondition, device: String?, seconds: Double,
        deadline: MonotonicTime
    ) {
        self.registry = registry
        self.condition = condition
        self.device = device
        self.seconds = seconds
        self.deadline = deadline
    }

    func poll() -> HTTPResponse? {
        let result: WaitResult? = registry.read { world, now in
            guard let condition = resolve(condition, world) else { return nil }
            let result = world.check(condition, now: now)
            return result.matches ? result : nil
        }
        if let result { return .json(200, result) }
        // A device that does not exist shows nothing.
        guard condition.isAbsent == true, registry.read({ world, _ in resolve(condition, world) == nil })
        else {
            return nil
        }
        return .json(200, WaitResult.nothing(matches: true))
    }

    func expired() -> HTTPResponse {
        var others = WaitCondition()
        others.app = condition.app
        let wide = others
        let (seen, isKnown): (WaitResult, Bool) = registry.read { world, now in
            guard let condition = resolve(wide, world) else {
                return (WaitResult.nothing(matches: false), false)
            }
            var seen = world.check(condition, now: now)
            seen.matches = false
            return (seen, true)
        }
        let cause = isKnown ? "nothing has matched" : "there is no such device"
        var response = HTTPResponse.json(408, Expiry(error: "\(cause) within \(seconds) s", seen: seen))
        // Some clients repeat a request after this status on a connection that persists.
        response.closes = true
        return response
    }

    /// Returns the condition with its device; nil when there is no such device.
    private func resolve(_ condition: WaitCondition, _ world: borrowing DeviceWorld) -> WaitCondition? {
        guard let device else { return condition }
        var condition = condition
        let found = device.utf8.count <= 10 ? UInt32(device) : world.device(ofToken: device.lowercased())
        guard let found, world.hasDevice(found) else { return nil }
        condition.device = found
        return condition
    }
}
