import Foundation
import TestSupport
import Testing

/// The clock that a process reads: a preloaded library sets it ahead, made from `Tests/FakeClock`.
enum FakeClock {
    /// Starts `sluice` with its clock `offset` seconds ahead.
    ///
    /// - Parameter directory: where the library is made, unless it is there.
    static func start(
        _ arguments: [String], offset: Int64, _ directory: TemporaryDirectory,
        environment: [String: String] = [:]
    ) throws -> ChildProcess {
        var environment = environment
        if offset != 0 {
            environment["LD_PRELOAD"] = try library(directory)
            environment["SLUICE_TEST_CLOCK_OFFSET"] = "\(offset)"
        }
        return try ChildProcess(Executables.sluice, arguments, environment: environment)
    }

    private static func library(_ directory: TemporaryDirectory) throws -> String {
        let library = directory.file("clock.so")
        if !FileManager.default.fileExists(atPath: library) {
            let source = "\(Repository.root)/Tests/FakeClock/clock.c"
            let made = try ChildProcess.run(
                compiler ?? "cc", ["-shared", "-fPIC", "-o", library, source, "-ldl"])
            try #require(made.exit == .status(0), "\(made.standardError)")
        }
        return library
    }

    /// Path of a C compiler: that of Swift's toolchain, or another. Nil: there is none.
    static let compiler = Executables.find("clang") ?? Executables.find("cc")
}
