import CEpoll
import Glibc
import Synchronization

/// Wakes a loop from another thread, at the cost of one `eventfd` write per batch. Further signals cost only an atomic
/// exchange until the loop has handled the first signal.
// Sendable: the descriptor is constant until `deinit`, the flag is atomic, and only the loop's thread touches the
// handler.
public final class Wakeup: ReadinessHandler, @unchecked Sendable {
    private let fileDescriptor: Int32
    private let pending = Atomic<Bool>(false)
    private var handler: (() -> Void)?

    init(handler: @escaping () -> Void) throws(SystemError) {
        fileDescriptor = eventfd(0, Int32(EFD_CLOEXEC | EFD_NONBLOCK))
        guard fileDescriptor >= 0 else { throw SystemError(call: "eventfd") }
        self.handler = handler
    }

    deinit {
        close(fileDescriptor)
    }

    /// Descriptor that accepts an eight-byte 1 as a signal, for C libraries that write by themselves.
    public var signalDescriptor: Int32 { fileDescriptor }

    /// Signals the loop, on any thread. The handler runs later on the loop's thread, once for all signals before it.
    public func signal() {
        guard !pending.exchange(true, ordering: .acquiringAndReleasing) else { return }
        var one: UInt64 = 1
        _ = write(fileDescriptor, &one, 8)
    }

    /// Handles a signal. Called on the loop's thread.
    public func ready(_ readiness: Readiness) {
        var value: UInt64 = 0
        _ = read(fileDescriptor, &value, 8)
        // Exchanges the flag, to synchronise with a signaller that found the flag set.
        _ = pending.exchange(false, ordering: .acquiringAndReleasing)
        handler?()
    }

    func attach(to loop: EventLoop) throws(SystemError) {
        _ = try loop.register(fileDescriptor, interest: .read, handler: self)
    }
}
