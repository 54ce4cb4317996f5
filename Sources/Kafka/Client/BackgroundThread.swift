import Glibc

/// Runs `body` on a new thread, which blocks all signals. The thread keeps what `body` captures until `body` returns.
/// - Parameter purpose: part of the library that needs the thread, for the error's text.
/// - Returns: the thread, which the caller joins or detaches.
func startThread(
    for purpose: String, _ body: @escaping @Sendable () -> Void
) throws(KafkaError) -> pthread_t {
    final class Box: Sendable {
        let body: @Sendable () -> Void
        init(_ body: @escaping @Sendable () -> Void) { self.body = body }
    }
    // The thread holds a counted reference, released when it ends.
    let unmanaged = Unmanaged.passRetained(Box(body))
    // Other threads wait for signals; a new thread inherits the mask.
    var all = sigset_t()
    var previous = sigset_t()
    sigfillset(&all)
    pthread_sigmask(SIG_SETMASK, &all, &previous)
    defer { pthread_sigmask(SIG_SETMASK, &previous, nil) }
    var thread = pthread_t()
    let code = pthread_create(
        &thread, nil,
        { argument in
            guard let argument else { return nil }
            Unmanaged<Box>.fromOpaque(argument).takeRetainedValue().body()
            return nil
        }, unmanaged.toOpaque())
    guard code == 0 else {
        unmanaged.release()
        throw .system("\(purpose): cannot start a thread (error \(code))")
    }
    return thread
}
