import Foundation

/// Processes of a local stage. Each writes a file `NAME.ready` into the stage's directory when it is ready.
extension LocalProcess {
    /// Path of the file that a process writes when it is ready.
    static func readyFile(_ name: String, _ files: LocalFiles) -> String { files.path("\(name).ready") }

    /// Starts an embedded Kafka cluster.
    /// - Parameter topics: names of topics with their partitions.
    static func kafka(
        port: UInt16 = 0, topics: [(name: String, partitions: Int)], files: LocalFiles
    ) throws(CommandFailure) -> LocalProcess {
        try start(
            "kafka",
            ["kafka", "--port", "\(port)"] + topics.flatMap { ["--topic", "\($0.name):\($0.partitions)"] },
            files)
    }

    /// Starts a simulator of APNs. Its authority is `ca.pem`, and its counts are written to `simulator.json`.
    static func simulator(
        port: UInt16, arguments: [String], files: LocalFiles
    ) throws(CommandFailure) -> LocalProcess {
        try start(
            "simulator",
            [
                "simulator", "--port", "\(port)", "--directory", files.directory, "--summary-file",
                files.path("simulator.json"),
            ] + arguments, files)
    }

    /// Starts a worker, whose configuration is `NAME.yaml`.
    static func worker(_ name: String = "worker", files: LocalFiles) throws(CommandFailure) -> LocalProcess {
        try start(name, ["run", "--config", files.path("\(name).yaml")], files)
    }

    private static func start(
        _ name: String, _ arguments: [String], _ files: LocalFiles
    ) throws(CommandFailure) -> LocalProcess {
        let ready = readyFile(name, files)
        // A killed process leaves its file.
        unlink(ready)
        return try LocalProcess(
            name, arguments + ["--stop-with-input", "--ready-file", ready], files: files)
    }

    /// Waits until the process is ready.
    /// - Returns: the lines of its ready file, at least one.
    /// - Throws: when the process ends, is not ready in time, or a stop is requested meanwhile.
    func waitUntilReady(_ files: LocalFiles, stop: StopSignals) throws(CommandFailure) -> [String] {
        try waitUntilReady(Self.readyFile(name, files), stop: stop)
    }
}
