import CEpoll
import Glibc
import Synchronization

/// Wakes a loop from another thread, at the price of one `eventfd` write per batch: signals that come
/// before the loop has seen the first one cost an atomic exchange only.
// Sendable: the descriptor is constant until `deinit`, the flag is atomic, and the handler is only
// touched on the loop's thread.
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

    /// A descriptor into which an eight-byte 1 may be written to signal, for C libraries that do it themselves.
    public var signalDescriptor: Int32 { fileDescriptor }

    /// Any thread. The handler runs on the loop's thread afterwards, once for all signals before it.
    public func signal() {
        guard !pending.exchange(true, ordering: .acquiringAndReleasing) else { return }
        var one: UInt64 = 1
        _ = write(fileDescriptor, &one, 8)
    }

    public func ready(_ readiness: Readiness) {
        var value: UInt64 = 0
        _ = read(fileDescriptor, &value, 8)
        // An exchange, so that it synchronises with a signaller that found the flag set.
        _ = pending.exchange(false, ordering: .acquiringAndReleasing)
        handler?()
    }

    func attach(to loop: EventLoop) throws(SystemError) {
        _ = try loop.register(fileDescriptor, interest: .read, handler: self)
    }
}
