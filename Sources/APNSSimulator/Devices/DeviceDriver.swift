import DeviceModel
import EventLoop

/// Lets time pass for the devices: runs what is due and the model's work, and passes news to readers. Used on its loop
/// only, after init.
///
/// A change wakes the driver, which looks a few milliseconds later, so that many changes cost a single look. A look that
/// takes long is followed by a longer rest, so that readers never keep the model from the pushes.
// Sendable: the constants are set in init. Everything else is used on the loop's thread only.
final class DeviceDriver: TimerHandler, @unchecked Sendable {
    private let registry: DeviceRegistry
    private let loop: EventLoop
    private let fetcher: AttachmentFetcher
    private let tap: DeviceEventTap?
    /// Called after changes.
    var onNews: () -> Void = {}
    /// Number of the last event that the tap has received.
    private var tapped: UInt64 = 0
    private var timer: TimerID?
    private var armedFor = MonotonicTime.distantFuture
    private var rest = DeviceDriver.shortestRest
    private var lastLook: MonotonicTime
    private var isStopped = false

    static let shortestRest: Duration = .milliseconds(5)
    /// Longest sleep, because the wall clock may step.
    private static let longestSleep: Int64 = 60_000

    init(registry: DeviceRegistry, loop: EventLoop, fetcher: AttachmentFetcher, tap: DeviceEventTap?) {
        self.registry = registry
        self.loop = loop
        self.fetcher = fetcher
        self.tap = tap
        lastLook = loop.now
    }

    /// Begins to drive. Before the loop's start, or on its thread.
    func start() {
        registry.onChange { [weak self, loop] in loop.execute { [weak self] in self?.wake() } }
        wake()
    }

    func stop() {
        registry.onChange(nil)
        isStopped = true
        if let timer { loop.cancel(timer) }
        timer = nil
        deliverEvents()
    }

    private func wake() { arm(lastLook + rest) }

    private func arm(_ time: MonotonicTime) {
        guard !isStopped, time < armedFor else { return }
        if let timer { loop.cancel(timer) }
        armedFor = time
        timer = loop.schedule(at: time, handler: self)
    }

    func timerFired(_ id: TimerID) {
        timer = nil
        armedFor = .distantFuture
        look()
    }

    private func look() {
        let begin = MonotonicTime.read()
        let (work, nextDue, now) = registry.advance()
        for item in work { run(item) }
        deliverEvents()
        onNews()
        loop.refreshNow()
        lastLook = loop.now
        let duration = Duration.nanoseconds(Int64(clamping: lastLook.nanoseconds(since: begin)))
        rest = max(Self.shortestRest, duration * 4)
        if let nextDue {
            let sleep = min(max(0, nextDue - now), Self.longestSleep)
            arm(max(lastLook + .milliseconds(sleep), lastLook + rest))
        }
        if registry.isChanged { wake() }
    }

    private func run(_ work: DeviceWork) {
        let registry = registry
        switch work.kind {
        case .decrypt(let key, let data):
            let result = MessageDecryption.decrypt(data, key: key)
            registry.change { world, now in world.finish(work.id, result, now: now) }
        case .fetch(let url, let allowedHosts):
            fetcher.fetch(url, allowedHosts: allowedHosts) { result in
                registry.change { world, now in world.finish(work.id, result, now: now) }
            }
        }
    }

    /// Passes the events since the last look to the tap.
    private func deliverEvents() {
        guard let tap else { return }
        while true {
            let after = tapped
            let batch = registry.read { world, _ in world.events(after: after, limit: 1_000) }
            if batch.lost { tap.lost() }
            tapped = batch.next
            guard !batch.events.isEmpty else { return }
            tap.receive(batch.events)
        }
    }
}

/// Receiver of all events of the devices, in their order. Called on the devices' thread, which the calls must not hold
/// up for long.
public struct DeviceEventTap: Sendable {
    /// Receives the next events.
    public var receive: @Sendable ([DeviceEvent]) -> Void
    /// Called when events were dropped, because the tap was too slow.
    public var lost: @Sendable () -> Void

    public init(
        receive: @escaping @Sendable ([DeviceEvent]) -> Void, lost: @escaping @Sendable () -> Void = {}
    ) {
        self.receive = receive
        self.lost = lost
    }
}
