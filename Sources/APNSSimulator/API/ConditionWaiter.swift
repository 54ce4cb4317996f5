import DeviceModel
import EventLoop
import HTTP1

/// A request that waits until the devices show something.
final class ConditionWaiter: HTTPWaiter {
    let deadline: MonotonicTime
    private let registry: DeviceRegistry
    private let condition: WaitCondition
    /// Findings so far of the condition with its device; nil while there is no such device.
    private var watch: ConditionWatch?
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
        guard let resolved = registry.read({ world, _ in resolve(condition, world) }) else {
            // A device that does not exist shows nothing.
            watch = nil
            return condition.isAbsent == true ? .json(200, WaitResult.nothing(matches: true)) : nil
        }
        if watch?.condition != resolved { watch = ConditionWatch(resolved) }
        return look().map { .json(200, $0) }
    }

    /// Looks at what has changed since the last look. Returns the result when the condition holds.
    private func look() -> WaitResult? {
        guard var next = watch.take() else { return nil }
        defer { watch = next }
        return registry.look(&next)
    }

    func expired() -> HTTPResponse {
        var others = WaitCondition()
        others.app = condition.app
        let wide = others
        let resolved = registry.read { world, _ in resolve(wide, world) }
        var seen = WaitResult.nothing(matches: false)
        if let resolved {
            var all = ConditionWatch(resolved)
            seen = registry.look(&all) ?? seen
            seen.matches = false
        }
        let cause = resolved == nil ? "there is no such device" : "nothing has matched"
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
