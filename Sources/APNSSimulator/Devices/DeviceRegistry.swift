import DeviceModel
import EventLoop
import SluiceModel
import Synchronization

/// Owner of the device model, which all shards, the API and the effects of the model share. Any thread.
///
/// Pushes hold the lock for the model's own work only. Readers, waiters and effects follow later, on a thread of their
/// own: ``DeviceDriver``.
public final class DeviceRegistry: Sendable {
    private let world: Mutex<DeviceWorld>
    private let clock: @Sendable () -> Int64
    /// Whether something has changed since the driver last looked.
    private let hasChanged = Atomic<Bool>(false)
    /// Number of the last event at the driver's last look.
    private let lookedAt = Atomic<UInt64>(0)
    /// Wakes the driver; nil until it runs.
    private let wake = Mutex<(@Sendable () -> Void)?>(nil)

    /// - Parameter clock: returns milliseconds since 1970.
    public init(
        apps: [AppDeclaration] = [], settings: DeviceSettings = DeviceSettings(),
        clock: @escaping @Sendable () -> Int64 = { wallClockMilliseconds() }
    ) {
        world = Mutex(DeviceWorld(apps: apps, settings: settings))
        self.clock = clock
    }

    /// Milliseconds since 1970.
    public var now: Int64 { clock() }

    /// Reads the model.
    public func read<Result, Fault: Error>(
        _ body: (borrowing DeviceWorld, _ now: Int64) throws(Fault) -> sending Result
    ) throws(Fault) -> sending Result {
        let now = clock()
        return try world.withLock { (world) throws(Fault) in try body(world, now) }
    }

    /// Changes the model. What is due happens first.
    public func change<Result, Fault: Error>(
        _ body: (inout DeviceWorld, _ now: Int64) throws(Fault) -> sending Result
    ) throws(Fault) -> sending Result {
        defer { changed() }
        let now = clock()
        return try world.withLock { (world) throws(Fault) in
            world.advance(to: now)
            return try body(&world, now)
        }
    }

    /// Hands a push to its device. The answer replaces that of APNs' other checks.
    func receive(_ push: ArrivedPush) -> PushAnswer {
        let now = clock()
        let answer = world.withLock { $0.receive(push, now: now) }
        changed()
        return answer
    }

    /// Hands a published broadcast to the devices.
    func broadcast(_ broadcast: ArrivedBroadcast) {
        let now = clock()
        world.withLock { $0.broadcast(broadcast, now: now) }
        changed()
    }

    private func changed() {
        guard !hasChanged.exchange(true, ordering: .acquiringAndReleasing) else { return }
        wake.withLock { $0 }?()
    }

    // MARK: - Driver

    /// Sets the closure that wakes the driver, on any thread; nil when the driver ends.
    func onChange(_ wake: (@Sendable () -> Void)?) {
        self.wake.withLock { $0 = wake }
        // A change before the driver came has woken nobody.
        if hasChanged.load(ordering: .acquiring) { wake?() }
    }

    /// Lets happen what is due. Returns the work that needs effects, and the time at which something is due next.
    func advance() -> (work: [DeviceWork], nextDue: Int64?, now: Int64) {
        // Changes from here on wake the driver again.
        _ = hasChanged.exchange(false, ordering: .acquiringAndReleasing)
        let now = clock()
        return world.withLock { world in
            world.advance(to: now)
            lookedAt.store(world.lastEvent, ordering: .relaxed)
            return (world.takeWork(), world.nextDue, now)
        }
    }

    /// Number of the last event that the driver has passed on, or passes on at present.
    var lookedAtEvent: UInt64 { lookedAt.load(ordering: .relaxed) }

    /// Whether something has changed since the last ``advance()``.
    var isChanged: Bool { hasChanged.load(ordering: .acquiring) }
}
