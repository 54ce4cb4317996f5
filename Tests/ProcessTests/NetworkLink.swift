import Foundation
import TestSupport

/// A link to a network namespace, whose packets a test can drop in both directions. Removed with this object.
///
/// The link drops packets because each end knows a wrong hardware address of the other.
final class NetworkLink {
    /// Name of the namespace.
    let namespace: String
    /// Addresses of both ends, of the range for benchmarks (RFC 2544).
    let near: String
    let far: String
    private let nearDevice: String
    private let farDevice: String

    private static let nearHardware = "02:00:00:00:00:01"
    private static let farHardware = "02:00:00:00:00:02"
    private static let nobody = "02:00:00:00:00:03"

    /// Whether this process may make namespaces. Without root or `ip` it may not.
    static let isPermitted: Bool = {
        let name = "sluice-probe-\(getpid())"
        guard let result = try? ChildProcess.run("ip", ["netns", "add", name]), result.exit == .status(0)
        else { return false }
        _ = try? ChildProcess.run("ip", ["netns", "del", name])
        return true
    }()

    /// - Parameter number: distinguishes links of this process, below 16.
    init(_ number: Int) throws {
        // Processes at the same time have different links.
        let block = Int(getpid()) % 1_000 * 16 + number
        namespace = "sluice-\(getpid())-\(number)"
        (nearDevice, farDevice) = ("sn\(block)", "sf\(block)")
        let network = "198.\(18 + block / 16_384).\(block / 64 % 256)"
        (near, far) = ("\(network).\(block % 64 * 4 + 1)", "\(network).\(block % 64 * 4 + 2)")
        try ip("netns", "add", namespace)
        try ip(
            "link", "add", nearDevice, "address", Self.nearHardware, "type", "veth", "peer", "name",
            farDevice,
            "address", Self.farHardware, "netns", namespace)
        try ip("addr", "add", "\(near)/30", "dev", nearDevice)
        try ip("link", "set", nearDevice, "up")
        try ip("-n", namespace, "addr", "add", "\(far)/30", "dev", farDevice)
        try ip("-n", namespace, "link", "set", farDevice, "up")
        try setHardware(near: Self.nearHardware, far: Self.farHardware)
    }

    deinit {
        _ = try? ip("link", "del", nearDevice)
        _ = try? ip("netns", "del", namespace)
    }

    /// Drops all packets from now on.
    func cut() throws { try setHardware(near: Self.nobody, far: Self.nobody) }

    /// Passes packets again.
    func mend() throws { try setHardware(near: Self.nearHardware, far: Self.farHardware) }

    private func setHardware(near nearHardware: String, far farHardware: String) throws {
        try ip("neigh", "replace", far, "lladdr", farHardware, "dev", nearDevice, "nud", "permanent")
        try ip(
            "-n", namespace, "neigh", "replace", near, "lladdr", nearHardware, "dev", farDevice, "nud",
            "permanent")
    }

    /// Bytes for the far end that the system has still to send, or to see acknowledged, also of closed sockets.
    func waitingBytes() throws -> Int {
        let digits = far.split(separator: ".").reversed().map { String(format: "%02X", Int($0) ?? 0) }
            .joined()
        // Foundation's readers by path take one page of such a file.
        let table = try FileHandle(forReadingFrom: URL(filePath: "/proc/net/tcp")).readToEnd() ?? Data()
        return String(decoding: table, as: UTF8.self).split(separator: "\n").reduce(0) {
            let fields = $1.split(separator: " ")
            guard fields.count > 4, fields[2].hasPrefix(digits) else { return $0 }
            return $0 + (Int(fields[4].prefix { $0 != ":" }, radix: 16) ?? 0)
        }
    }

    struct Failure: Error {
        var text: String
    }

    private func ip(_ arguments: String...) throws {
        let result = try ChildProcess.run("ip", arguments)
        guard result.exit == .status(0) else {
            throw Failure(text: "ip \(arguments.joined(separator: " ")): \(result.standardError)")
        }
    }
}
