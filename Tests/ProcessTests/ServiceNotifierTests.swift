import Foundation
import TestSupport
import Testing

@testable import sluice

@Suite("Reports to the service manager")
struct ServiceNotifierTests {
    /// Socket on which a service manager listens.
    private final class Manager {
        let address: String
        private let descriptor: Int32

        /// - Parameter address: Path; with `@` first, a name of the abstract namespace.
        init(_ address: String) throws {
            self.address = address
            var name = sockaddr_un()
            name.sun_family = sa_family_t(AF_UNIX)
            var path = Array(address.utf8)
            if path[0] == UInt8(ascii: "@") { path[0] = 0 }
            withUnsafeMutableBytes(of: &name.sun_path) { $0.copyBytes(from: path) }
            let length = socklen_t(MemoryLayout<sockaddr_un>.offset(of: \.sun_path)! + path.count)
            let type =
                Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue) | Int32(SOCK_NONBLOCK.rawValue)
            descriptor = socket(AF_UNIX, type, 0)
            let bound = withUnsafePointer(to: name) {
                $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(descriptor, $0, length) }
            }
            guard bound == 0 else { throw POSIXError(POSIXErrorCode(rawValue: errno) ?? .EIO) }
        }

        deinit { close(descriptor) }

        /// The next report that has arrived; nil when there is none.
        func next() -> String? {
            var buffer = [UInt8](repeating: 0, count: 4096)
            let count = recv(descriptor, &buffer, buffer.count, 0)
            return count < 0 ? nil : String(decoding: buffer[..<count], as: UTF8.self)
        }
    }

    @Test func withoutSocketThereIsNoNotifier() {
        #expect(ServiceNotifier(environment: [:]) == nil)
        #expect(ServiceNotifier(environment: ["NOTIFY_SOCKET": ""]) == nil)
        #expect(ServiceNotifier(environment: ["NOTIFY_SOCKET": "vsock:2:1234"]) == nil)
    }

    @Test func reportReachesASocketWithPathAndAnAbstractOne() throws {
        let directory = try TemporaryDirectory("notify")
        for address in [
            directory.file("socket"), "@sluice-notify-\(getpid())-\(UInt32.random(in: 0...UInt32.max))",
        ] {
            let manager = try Manager(address)
            let notifier = try #require(ServiceNotifier(environment: ["NOTIFY_SOCKET": address]))
            #expect(notifier.report("READY=1", "STATUS=runs"))
            #expect(manager.next() == "READY=1\nSTATUS=runs")
        }
    }

    @Test func reportToAnAddressThatNobodyListensOnOrThatIsTooLongReturnsFalse() throws {
        let directory = try TemporaryDirectory("notify")
        for address in [directory.file("nobody"), "/" + String(repeating: "a", count: 200)] {
            let notifier = try #require(ServiceNotifier(environment: ["NOTIFY_SOCKET": address]))
            #expect(!notifier.report("READY=1"))
        }
    }

    @Test func watchdogTimeOfAnotherProcessOrThatIsNoNumberIsIgnored() {
        func watchdog(_ variables: [String: String]) -> Duration? {
            ServiceNotifier(environment: variables.merging(["NOTIFY_SOCKET": "/s"]) { $1 })?.watchdog
        }
        #expect(watchdog(["WATCHDOG_USEC": "3000000"]) == .seconds(3))
        #expect(watchdog(["WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "\(getpid())"]) == .seconds(3))
        #expect(watchdog(["WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"]) == nil)
        #expect(watchdog(["WATCHDOG_USEC": "soon"]) == nil)
        #expect(watchdog(["WATCHDOG_USEC": "0"]) == nil)
        #expect(watchdog([:]) == nil)
    }

    @Test func workerReportsReadinessLifeAndItsStop() throws {
        let directory = try TemporaryDirectory("notify")
        let manager = try Manager(directory.file("socket"))
        try withBed { bed in
            let worker = try bed.start(
                WorkerOptions(environment: [
                    "NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "200000",
                ]))
            var reports: [String] = []
            func collect() { while let report = manager.next() { reports.append(report) } }
            try worker.waits(for: "readiness and two signs of life are reported") {
                collect()
                return reports.contains { $0.hasPrefix("READY=1\n") }
                    && reports.count { $0 == "WATCHDOG=1" } >= 2
            }
            #expect(!reports.contains { $0.hasPrefix("STOPPING=1") })
            try worker.end()
            collect()
            #expect(reports.contains { $0.hasPrefix("STOPPING=1\n") })
        }
    }
}
