import Configuration
import EventLoop
import Glibc

/// Gathers facts about this machine. Writes and removes a small file in the store's directory. Blocks.
struct MachineCheck {
    let configuration: Configuration

    func facts(clocks: [String: Int64]) -> MachineFacts {
        let delivery = configuration.delivery
        let used = Set(configuration.apps.flatMap(\.credentials))
        let connections = configuration.credentials.filter { used.contains($0.name) }
            .map { credential in
                max(
                    credential.connections ?? configuration.apns.connections,
                    credential.maxConnections ?? configuration.apns.maxConnections)
            }.reduce(0, +)
        return MachineFacts(
            directory: configuration.store.map { directory($0.directory) },
            openFiles: ProcessFiles.limit, connections: connections * delivery.shards, clocks: clocks)
    }

    private func directory(_ path: String) -> MachineFacts.Directory {
        var tried = path
        var status = stat()
        while stat(tried, &status) != 0, errno == ENOENT, tried.count > 1 {
            let end = tried.lastIndex(of: "/") ?? tried.startIndex
            tried = end == tried.startIndex ? "/" : String(tried[..<end])
        }
        var facts = MachineFacts.Directory(path: path, tried: tried)
        var space = statvfs()
        if statvfs(tried, &space) == 0 {
            let (bytes, overflow) = UInt64(space.f_bavail).multipliedReportingOverflow(
                by: UInt64(space.f_frsize))
            facts.freeBytes = overflow ? .max : Int64(clamping: bytes)
        }
        let file = "\(tried)/.sluice-check-\(getpid())"
        let descriptor = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else {
            facts.error = String(cString: strerror(errno))
            return facts
        }
        defer {
            close(descriptor)
            unlink(file)
        }
        let bytes = [UInt8](repeating: 0, count: 4_096)
        for _ in 0..<5 {
            let began = ContinuousClock.now
            guard write(descriptor, bytes, bytes.count) == bytes.count, fdatasync(descriptor) == 0 else {
                facts.error = String(cString: strerror(errno))
                return facts
            }
            facts.sync = max(facts.sync ?? .zero, ContinuousClock.now - began)
        }
        return facts
    }
}
