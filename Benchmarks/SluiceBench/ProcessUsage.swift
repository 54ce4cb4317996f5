import Glibc

/// CPU time and memory that this process has used so far.
struct ProcessUsage: Sendable {
    /// User and system time of all threads, in seconds.
    var cpuSeconds: Double
    /// The largest resident size so far, in megabytes.
    var maximumResidentMegabytes: Double

    static func read() -> ProcessUsage {
        var usage = rusage()
        getrusage(RUSAGE_SELF.rawValue, &usage)
        let seconds = { (time: timeval) in Double(time.tv_sec) + Double(time.tv_usec) / 1e6 }
        return ProcessUsage(
            cpuSeconds: seconds(usage.ru_utime) + seconds(usage.ru_stime),
            maximumResidentMegabytes: Double(usage.ru_maxrss) / 1024)
    }
}

extension ProcessUsage {
    /// Processor seconds of each thread of this process so far, by the thread's name and number: `shard-0/4711`.
    static func threadSeconds() -> [String: Double] {
        var seconds: [String: Double] = [:]
        guard let directory = opendir("/proc/self/task") else { return [:] }
        defer { closedir(directory) }
        while let entry = readdir(directory) {
            let number = withUnsafePointer(to: &entry.pointee.d_name) {
                $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
            }
            guard let name = firstLine("/proc/self/task/\(number)/comm"),
                // Nanoseconds on a processor, nanoseconds in the queue, number of turns.
                let statistics = firstLine("/proc/self/task/\(number)/schedstat"),
                let busy = statistics.split(separator: " ").first.flatMap({ Double($0) })
            else { continue }
            seconds["\(name)/\(number)"] = busy / 1e9
        }
        return seconds
    }

    private static func firstLine(_ path: String) -> String? {
        guard let file = fopen(path, "r") else { return nil }
        defer { fclose(file) }
        var line = [CChar](repeating: 0, count: 256)
        guard fgets(&line, Int32(line.count), file) != nil else { return nil }
        let text = line.withUnsafeBufferPointer { String(cString: $0.baseAddress!) }
        return text.hasSuffix("\n") ? String(text.dropLast()) : text
    }
}

/// Current resident size of this process, in bytes.
func residentBytes() -> Int {
    guard let file = fopen("/proc/self/statm", "r") else { return 0 }
    defer { fclose(file) }
    var line = [CChar](repeating: 0, count: 256)
    guard fgets(&line, Int32(line.count), file) != nil else { return 0 }
    // Size and resident set, in pages.
    var cursor: UnsafeMutablePointer<CChar>?
    return line.withUnsafeMutableBufferPointer { text in
        _ = strtol(text.baseAddress!, &cursor, 10)
        return strtol(cursor!, nil, 10) * sysconf(Int32(_SC_PAGESIZE))
    }
}

func writeError(_ text: String) {
    _ = text.withCString { write(2, $0, strlen($0)) }
}
