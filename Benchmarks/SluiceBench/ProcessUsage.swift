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
