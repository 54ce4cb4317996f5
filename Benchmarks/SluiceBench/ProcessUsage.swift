import Glibc

/// What this process has used so far.
struct ProcessUsage: Sendable {
    /// User and system time, all threads.
    var cpuSeconds: Double
    /// The largest resident size until now.
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

func writeError(_ text: String) {
    _ = text.withCString { write(2, $0, strlen($0)) }
}
