import EventLoop
import Glibc
import Synchronization

/// Looks names up, afresh each time, so that load spreads over the hosts behind a name. All pools of a process share
/// the resolver, on any thread. ``LookupPlan`` decides which look-ups run.
public final class AddressResolver: Sendable {
    typealias Answer = Result<[SocketAddress], ResolverError>
    typealias Completion = @Sendable (Answer) -> Void

    /// The system's resolver.
    public static let system = AddressResolver(lookUp: resolveBlocking)

    private struct State: Sendable {
        var plan = LookupPlan()
        var completions: [LookupPlan.Ticket: Completion] = [:]
    }
    private let state = Mutex(State())
    private let lookUp: @Sendable (_ host: String, _ port: UInt16) -> Answer

    /// - Parameter lookUp: runs on a thread of its own and may block for any time.
    init(lookUp: @escaping @Sendable (_ host: String, _ port: UInt16) -> Answer) {
        self.lookUp = lookUp
    }

    /// Begins a look-up. `completion` is called at most once, on any thread, even within this call. After
    /// ``withdraw(_:)`` it is not called any more, unless the two cross.
    func resolve(host: String, port: UInt16, completion: @escaping Completion) -> LookupPlan.Ticket {
        let asked = state.withLock { state in
            let asked = state.plan.ask(.init(host: host, port: port), now: MonotonicTime.read().nanoseconds)
            if asked.addresses == nil { state.completions[asked.ticket] = completion }
            return asked
        }
        if let addresses = asked.addresses { completion(.success(addresses)) }
        if let start = asked.start { launch(start) }
        return asked.ticket
    }

    /// Withdraws a ticket, because nobody waits for its answer any more.
    func withdraw(_ ticket: LookupPlan.Ticket) {
        state.withLock { state in
            state.plan.withdraw(ticket)
            state.completions[ticket] = nil
        }
    }

    /// Number of threads that look a name up.
    var running: Int { state.withLock { $0.plan.running } }
    /// Number of look-ups that are neither answered nor withdrawn.
    var waiting: Int { state.withLock { $0.plan.waiting } }

    private func launch(_ first: LookupPlan.Start) {
        final class Box: Sendable {
            let resolver: AddressResolver
            let start: LookupPlan.Start
            init(_ resolver: AddressResolver, _ start: LookupPlan.Start) {
                self.resolver = resolver
                self.start = start
            }
        }
        var start = first
        while true {
            var thread = pthread_t()
            let box = Unmanaged.passRetained(Box(self, start))
            let created = pthread_create(
                &thread, nil,
                { context in
                    let box = Unmanaged<Box>.fromOpaque(context!).takeRetainedValue()
                    box.resolver.run(box.start)
                    return nil
                }, box.toOpaque())
            if created == 0 {
                pthread_detach(thread)
                return
            }
            box.release()
            let error = ResolverError(
                host: start.name.host, reason: "cannot start a thread: \(String(cString: strerror(created)))",
                isTemporary: true)
            guard let next = finish(start, .failure(error)) else { return }
            start = next
        }
    }

    /// Looks names up until none waits for this thread.
    private func run(_ first: LookupPlan.Start) {
        var start = first
        while let next = finish(start, lookUp(start.name.host, start.name.port)) { start = next }
    }

    private func finish(_ start: LookupPlan.Start, _ answer: Answer) -> LookupPlan.Start? {
        let (completions, next) = state.withLock { state in
            let (answered, next) = state.plan.ended(
                start.number, try? answer.get(), now: MonotonicTime.read().nanoseconds)
            return (answered.compactMap { state.completions.removeValue(forKey: $0) }, next)
        }
        for completion in completions { completion(answer) }
        return next
    }

    private static func isNumeric(_ host: String) -> Bool {
        host.utf8.allSatisfy { $0 == UInt8(ascii: ".") || ($0 >= 0x30 && $0 <= 0x39) }
            || host.utf8.contains(0x3A)
    }

    private static func resolveBlocking(host: String, port: UInt16) -> Answer {
        var hints = addrinfo()
        hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
        // Only families of which this host has an address are looked up. Loopback does not count for that, and
        // "localhost" is on it.
        hints.ai_flags = AI_NUMERICSERV
        if !isNumeric(host), host != "localhost" { hints.ai_flags |= AI_ADDRCONFIG }
        var list: UnsafeMutablePointer<addrinfo>?
        let result = getaddrinfo(host, String(port), &hints, &list)
        guard result == 0 else {
            return .failure(
                ResolverError(
                    host: host, reason: String(cString: gai_strerror(result)),
                    isTemporary: result == EAI_AGAIN))
        }
        defer { freeaddrinfo(list) }
        var addresses: [SocketAddress] = []
        var next = list
        while let info = next {
            var address = SocketAddress()
            memcpy(&address.storage, info.pointee.ai_addr, Int(info.pointee.ai_addrlen))
            address.length = info.pointee.ai_addrlen
            addresses.append(address)
            next = info.pointee.ai_next
        }
        return addresses.isEmpty
            ? .failure(ResolverError(host: host, reason: "the name has no address")) : .success(addresses)
    }
}
