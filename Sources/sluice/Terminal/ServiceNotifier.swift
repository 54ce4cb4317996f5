import Foundation

/// Reports to the service manager that started the process: systemd's protocol of NOTIFY_SOCKET. Each report is a datagram
/// that nobody answers. All functions may be called from any thread.
struct ServiceNotifier: Sendable {
    /// Socket's path; a name that begins with `@` is in Linux's abstract namespace.
    let address: String
    /// Time within which the manager expects a sign of life; nil when it expects none.
    let watchdog: Duration?

    /// - Parameter environment: The process's variables. Nil without NOTIFY_SOCKET, because no manager listens.
    init?(environment: [String: String] = ProcessInfo.processInfo.environment) {
        guard let address = environment["NOTIFY_SOCKET"], let first = address.first,
            first == "/" || first == "@"
        else { return nil }
        self.address = address
        // WATCHDOG_PID is another process's when a wrapper has inherited the variables.
        let isForThis = environment["WATCHDOG_PID"].map { $0 == "\(getpid())" } ?? true
        watchdog =
            isForThis
            ? environment["WATCHDOG_USEC"].flatMap { Int64($0) }.flatMap { $0 > 0 ? .microseconds($0) : nil }
            : nil
    }

    /// Reports the states, one on each line, such as `READY=1`. A lost report has no effect on the process. Returns false
    /// when the socket takes no report.
    @discardableResult
    func report(_ states: String...) -> Bool {
        var name = sockaddr_un()
        name.sun_family = sa_family_t(AF_UNIX)
        var path = Array(address.utf8)
        guard path.count < MemoryLayout.size(ofValue: name.sun_path) else { return false }
        if path[0] == UInt8(ascii: "@") { path[0] = 0 }
        withUnsafeMutableBytes(of: &name.sun_path) { $0.copyBytes(from: path) }
        let length = socklen_t(MemoryLayout<sockaddr_un>.offset(of: \.sun_path)! + path.count)
        let type = Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue) | Int32(SOCK_NONBLOCK.rawValue)
        let descriptor = socket(AF_UNIX, type, 0)
        guard descriptor >= 0 else { return false }
        defer { close(descriptor) }
        let text = Array(states.joined(separator: "\n").utf8)
        let sent = withUnsafePointer(to: name) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                sendto(descriptor, text, text.count, Int32(MSG_NOSIGNAL), $0, length)
            }
        }
        return sent == text.count
    }

    /// Reports a sign of life twice in each of the manager's intervals, for as long as the process is alive. Without an
    /// interval nothing is reported.
    /// - Parameter isLive: Whether the process works. While it doesn't, the manager's time runs out.
    func reportLife(while isLive: @escaping @Sendable () async -> Bool) {
        guard let watchdog else { return }
        Task {
            while !Task.isCancelled {
                if await isLive() { report("WATCHDOG=1") }
                try? await Task.sleep(for: watchdog / 2)
            }
        }
    }
}
