import Foundation
import Gateway
import LoadTest

/// The machine and the executable of a run.
struct BenchMachine: Sendable {
    /// Operating system, kernel and machine.
    var system: String
    var processor: String
    /// Cores that are online.
    var cores: Int
    var memoryBytes: Int
    /// Load average over a minute.
    var load: Double

    /// Reads the figures. A figure that the system does not have is empty or 0.
    static func read() -> BenchMachine {
        var name = utsname()
        uname(&name)
        let kernel = "\(text(name.sysname)) \(text(name.release)) \(text(name.machine))"
        let release = value("PRETTY_NAME", "=", in: "/etc/os-release")
            .map { $0.trimmingCharacters(in: CharacterSet(charactersIn: "\"")) }
        var load = 0.0
        getloadavg(&load, 1)
        return BenchMachine(
            system: [release, kernel].compactMap { $0 }.joined(separator: ", "),
            processor: value("model name", ":", in: "/proc/cpuinfo") ?? "",
            cores: sysconf(Int32(_SC_NPROCESSORS_ONLN)),
            memoryBytes: sysconf(Int32(_SC_PHYS_PAGES)) * sysconf(Int32(_SC_PAGESIZE)), load: load)
    }

    /// Returns the environment of a run's result.
    /// - Parameter started: start of the first phase, in milliseconds since the epoch.
    func environment(started: Int64, noise: RunResult.Noise) -> RunResult.Environment {
        RunResult.Environment(
            startedMilliseconds: started, version: BuildInfo.version, commit: BuildInfo.commit ?? "",
            system: system, processor: processor, cores: cores, memoryBytes: memoryBytes, loadBefore: load,
            noise: noise)
    }

    private static func value(_ name: String, _ separator: Character, in path: String) -> String? {
        ProcessReadings.text(path)?.split(separator: "\n").first { $0.hasPrefix(name) }
            .flatMap { $0.split(separator: separator, maxSplits: 1).dropFirst().first }
            .map { $0.trimmingCharacters(in: .whitespaces) }
    }

    /// Text in a fixed array of C.
    private static func text<Array>(_ array: Array) -> String {
        withUnsafeBytes(of: array) { bytes in String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self) }
    }
}
