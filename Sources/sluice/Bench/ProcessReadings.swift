import Foundation

/// Figures of a process on this machine, from the kernel.
enum ProcessReadings {
    /// Returns the processor time of a process in seconds, to the nanosecond; nil when there is no such process.
    static func cpuSeconds(_ process: pid_t) -> Double? {
        var clock = clockid_t()
        var time = timespec()
        guard clock_getcpuclockid(process, &clock) == 0, clock_gettime(clock, &time) == 0 else { return nil }
        return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
    }

    /// Returns the resident bytes of a process and the most so far; nil when there is no such process.
    static func residentBytes(_ process: pid_t) -> (now: Int, most: Int)? {
        guard let text = text("/proc/\(process)/status"), let now = kilobytes("VmRSS:", text) else {
            return nil
        }
        return (now * 1_024, max(now, kilobytes("VmHWM:", text) ?? 0) * 1_024)
    }

    private static func kilobytes(_ name: String, _ text: String) -> Int? {
        text.split(separator: "\n").first { $0.hasPrefix(name) }
            .flatMap { $0.split(whereSeparator: { $0 == " " || $0 == "\t" }).dropFirst().first }
            .flatMap { Int($0) }
    }

    /// Returns the content of a file of the kernel; nil when it can't be read.
    static func text(_ path: String) -> String? {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 16_384)
        while bytes.count < 1 << 20 {
            let count = read(descriptor, &buffer, buffer.count)
            guard count > 0 else { break }
            bytes += buffer[..<count]
        }
        return String(decoding: bytes, as: UTF8.self)
    }
}

/// Processor time of the whole machine since its start, in seconds.
struct MachineReading: Sendable, Equatable {
    var total = 0.0
    /// Time in which a process or the kernel ran.
    var busy = 0.0
    /// Time that the hypervisor gave to others.
    var stolen = 0.0

    /// Reads `/proc/stat`; nil when the system does not have it.
    static func read() -> MachineReading? { ProcessReadings.text("/proc/stat").flatMap(MachineReading.init) }

    /// - Parameter text: text of `/proc/stat`, whose first line has the sums of all processors.
    init?(_ text: String) {
        guard let line = text.split(separator: "\n").first, line.hasPrefix("cpu ") else { return nil }
        let ticks = line.split(separator: " ").dropFirst().map { Double($0) ?? 0 }
        let perSecond = Double(sysconf(Int32(_SC_CLK_TCK)))
        // user, nice, system, idle, iowait, irq, softirq, steal; guest time is a part of user time.
        guard ticks.count >= 8, perSecond > 0 else { return nil }
        total = ticks[..<8].reduce(0, +) / perSecond
        stolen = ticks[7] / perSecond
        busy = total - (ticks[3] + ticks[4] + ticks[7]) / perSecond
    }
}
