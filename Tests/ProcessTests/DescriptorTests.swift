import Foundation
import SluiceModel
import TestSupport
import Testing

/// Processes with few file descriptors.
@Suite("Few descriptors")
struct DescriptorTests {
    private func start(
        _ limit: Int, _ arguments: [String], _ environment: [String: String] = [:]
    ) throws
        -> ChildProcess
    {
        try ChildProcess(
            "bash", ["-c", "ulimit -n \(limit) && exec \"$@\"", "bash", try Executables.sluice] + arguments,
            environment: environment)
    }

    /// Each start succeeds, or ends with an error.
    @Test(arguments: [false, true]) func workerNeverAbortsForLackOfDescriptors(hasStore: Bool) throws {
        try withBed { bed in
            let path = try bed.directory.write(bed.configuration(), to: "few.yaml")
            let limits = stride(from: hasStore ? 13 : 12, through: 68, by: 2)
            let workers = try limits.map { limit in
                let store = bed.storeEnvironment("store-\(limit)", hasChangelog: true)
                return (
                    limit,
                    try start(limit, ["run", "-c", path, "--stop-with-input"], hasStore ? store : [:])
                )
            }
            for (limit, worker) in workers {
                try eventually("the worker with \(limit) descriptors starts or ends") {
                    worker.standardError.contains("worker started") || !worker.isRunning
                }
                worker.signal(SIGTERM)
                guard case .status(let status) = try worker.wait() else {
                    Issue.record("\(limit): \(worker.exitIfEnded()!) \(worker.standardError.suffix(2_000))")
                    continue
                }
                #expect(
                    status == 0 || !worker.standardError.isEmpty,
                    "\(limit): status \(status) without an error")
            }
        }
    }

    /// Connections to the admin endpoint leave descriptors for APNs.
    @Test func adminConnectionsLeaveDescriptorsForAPNs() throws {
        try withBed { bed in
            let path = try bed.directory.write(bed.configuration(), to: "flooded.yaml")
            let ready = bed.directory.file("flooded.ready")
            let worker = try start(
                256, ["run", "-c", path, "--stop-with-input", "--ready-file", ready],
                ["SLUICE_APNS__CONNECTIONS": "1", "SLUICE_APNS__MAX_CONNECTIONS": "1"])
            try worker.waits(for: "the worker has partitions") {
                FileManager.default.fileExists(atPath: ready)
            }
            let text = try String(contentsOfFile: ready, encoding: .utf8)
            let port = try #require(text.split(separator: ":").last.flatMap { UInt16($0.dropLast()) })
            let sockets = (0..<400).map { _ in connect(to: port) }
            defer { for socket in sockets { close(socket) } }
            // All connections to APNs are new after this.
            try bed.restartSimulator(with: SIGKILL)
            var random = SeededGenerator(seed: 2)
            try bed.produce([Bed.job(&random, number: 1)])
            try worker.waits(for: "a push arrives") { !bed.pushes().isEmpty }
            worker.signal(SIGTERM)
            #expect(try worker.wait() == .status(0))
        }
    }

    private func connect(to port: UInt16) -> Int32 {
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        _ = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                Glibc.connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
        return descriptor
    }
}
