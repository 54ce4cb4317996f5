/// Wakes a simulated loop, as the real module's wakeup does.
// Sendable: as `Scheduler`.
public final class Wakeup: ReadinessHandler, @unchecked Sendable {
    /// Descriptor that becomes readable with a signal.
    public let signalDescriptor: Int32
    private let scheduler = Scheduler.current
    private let handler: () -> Void

    init(handler: @escaping () -> Void) {
        signalDescriptor = scheduler.openDescriptor()
        self.handler = handler
    }

    deinit { scheduler.closeDescriptor(signalDescriptor) }

    public func signal() { scheduler.setReadiness(.read, of: signalDescriptor) }

    public func ready(_ readiness: Readiness) {
        scheduler.setReadiness([], of: signalDescriptor)
        handler()
    }
}
