import EventLoop
import Glibc
import Metrics

/// Figures of this process, from /proc/self.
struct ProcessFigures {
    var cpuSeconds: Double
    var residentBytes: Int
    var virtualBytes: Int
    var openFiles: Int
    /// Most open files that the system allows.
    var mostFiles: Int
    /// Start in seconds since the epoch.
    var startSeconds: Double

    /// Reads the figures; nil when the system does not have them.
    static func read() -> ProcessFigures? {
        guard let stat = text("/proc/self/stat"), let name = stat.lastIndex(of: ")"),
            let boot = text("/proc/stat")?.split(separator: "\n").first(where: { $0.hasPrefix("btime ") }),
            let bootSeconds = Double(boot.dropFirst(6))
        else { return nil }
        // Fields behind the name, which may have blanks; the first is field 3 of proc(5).
        let fields = stat[stat.index(after: name)...].split(separator: " ")
        let ticks = Double(sysconf(Int32(_SC_CLK_TCK)))
        guard fields.count > 21, let user = Double(fields[11]), let system = Double(fields[12]),
            let started = Double(fields[19]), let size = Int(fields[20]), let pages = Int(fields[21]),
            ticks > 0
        else { return nil }
        return ProcessFigures(
            cpuSeconds: (user + system) / ticks, residentBytes: pages * Int(sysconf(Int32(_SC_PAGESIZE))),
            virtualBytes: size, openFiles: openFiles(), mostFiles: ProcessFiles.limit,
            startSeconds: bootSeconds + started / ticks)
    }

    private static func openFiles() -> Int {
        guard let directory = opendir("/proc/self/fd") else { return 0 }
        defer { closedir(directory) }
        var count = 0
        while readdir(directory) != nil { count += 1 }
        // Without `.`, `..` and the descriptor of the directory itself.
        return max(0, count - 3)
    }

    private static func text(_ path: String) -> String? {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 4096)
        while bytes.count < 1 << 20 {
            let count = Glibc.read(descriptor, &buffer, buffer.count)
            guard count > 0 else { break }
            bytes += buffer[..<count]
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    /// Adds the families under the names that Prometheus' client libraries use.
    func add(to metrics: inout MetricFamilies) {
        metrics.append(
            MetricFamily(
                "process_cpu_seconds", .counter, "Processor time of user and system.",
                [.init([], .number(cpuSeconds))]))
        for (name, help, value) in [
            ("process_resident_memory_bytes", "Resident memory.", residentBytes),
            ("process_virtual_memory_bytes", "Virtual memory.", virtualBytes),
            ("process_open_fds", "Open file descriptors.", openFiles),
            ("process_max_fds", "Most file descriptors that may be open.", mostFiles),
        ] {
            metrics.append(MetricFamily(name, .gauge, help, [.init([], .integer(value))]))
        }
        metrics.append(
            MetricFamily(
                "process_start_time_seconds", .gauge, "Start of the process, in seconds since the epoch.",
                [.init([], .number(startSeconds))]))
    }
}
