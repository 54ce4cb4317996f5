import Foundation
import TestSupport
import Testing

/// A worker of a ``Bed``, and the facts that its log shows about partitions.
final class WorkerProcess {
    let name: String
    private let process: ChildProcess
    /// Path of a file that exists once the worker has had partitions, until the worker ends.
    let readyFile: String
    /// The test has ended the worker: the bed need not.
    private(set) var isEnded = false

    /// Whether the worker is expected to have partitions.
    var isActive = true
    var owned: Set<Int32> = []
    /// Partitions that the worker gives up or has given up, until another worker has them. The log line is written when
    /// the revocation begins, and its commit follows later.
    var leaving: Set<Int32> = []
    /// Partitions that the worker had when it started over.
    var givenUp: Set<Int32> = []
    /// Lines that ``readLog()`` has returned so far.
    private(set) var lines: [Line] = []
    private var tail: LineTail

    /// A line of a log in JSON.
    struct Line {
        var time: Int64
        var message: String
        var fields: [String: String]

        var partitions: [Int32] {
            (fields["partitions"] ?? "").split(separator: ",").compactMap { Int32($0) }
        }
    }

    init(_ name: String, _ process: ChildProcess, readyFile: String) {
        self.name = name
        self.process = process
        self.readyFile = readyFile
        tail = LineTail(process.standardErrorFile)
    }

    // MARK: Process

    var identifier: pid_t { process.identifier }
    var isRunning: Bool { process.isRunning }
    var log: String { process.standardError }
    /// Nil for a worker that runs, or that needn't.
    var endedEarly: ChildProcess.Exit? { isActive ? process.exitIfEnded() : nil }

    func signal(_ signal: Int32) { process.signal(signal) }

    /// SIGSTOP. Returns when none of the worker's threads runs any more.
    func suspend() { process.suspend() }

    /// Waits for a condition that the worker should bring about while it runs.
    func waits(
        for what: String, timeout: Duration = .seconds(120), _ condition: () throws -> Bool
    ) throws {
        try process.waits(for: what, timeout: timeout, condition)
    }

    func waitForOutput(_ text: String) throws { try process.waitForOutput(text) }

    /// Waits until the worker has partitions, doing `meanwhile`.
    func waitUntilReady(meanwhile: () throws -> Void = {}) throws {
        try waits(for: "the worker has partitions") {
            try meanwhile()
            return FileManager.default.fileExists(atPath: readyFile)
        }
    }

    /// Sends a signal and waits for the end of the worker, which must be as expected.
    func end(
        by signal: Int32 = SIGTERM, with expected: ChildProcess.Exit = .status(0),
        sourceLocation: SourceLocation = #_sourceLocation
    ) throws {
        process.signal(signal)
        let exit = try waitForEnd()
        #expect(exit == expected, "\(name): \(log.suffix(2_000))", sourceLocation: sourceLocation)
    }

    /// Waits for the end of the worker, which the test has brought about.
    func waitForEnd() throws -> ChildProcess.Exit {
        isEnded = true
        isActive = false
        defer { keepLog() }
        return try process.wait()
    }

    /// Adds the log to a file in the directory that SLUICE_TEST_REPLICA_LOGS names, if it names one.
    func keepLog() {
        guard let directory = ProcessInfo.processInfo.environment["SLUICE_TEST_REPLICA_LOGS"] else { return }
        let file = "\(directory)/\(name).log"
        let before = (try? String(contentsOfFile: file, encoding: .utf8)) ?? ""
        try? (before + log).write(toFile: file, atomically: false, encoding: .utf8)
    }

    // MARK: Log

    private static let style = Date.ISO8601FormatStyle(includingFractionalSeconds: true)

    /// Returns the lines logged since the last call, and keeps account of partitions by them.
    func readLog() -> [Line] {
        let new = tail.read().compactMap { line -> Line? in
            guard let fields = try? JSONSerialization.jsonObject(with: line) as? [String: String],
                let message = fields["message"], let text = fields["time"],
                let time = try? Self.style.parse(text)
            else { return nil }
            return Line(
                time: Int64((time.timeIntervalSince1970 * 1_000).rounded()), message: message, fields: fields)
        }
        for line in new {
            switch line.message {
            case "partitions assigned": owned.formUnion(line.partitions)
            case "partitions revoked":
                leaving.formUnion(owned.intersection(line.partitions))
                owned.subtract(line.partitions)
            case "partitions lost":
                // The group has continued without the worker, for instance on a machine that stalls.
                givenUp.formUnion(line.partitions)
                owned.subtract(line.partitions)
            case "the worker stops at once because of a failure":
                givenUp.formUnion(owned)
                owned = []
            default: break
            }
        }
        lines += new
        return new
    }

    /// Number of times that the worker has started over in its process.
    var restarts: Int { lines.count { $0.message == "the worker restarts" } }
}

/// Reads the lines that are appended to a file.
struct LineTail {
    private let path: String
    private var file: FileHandle?
    private var rest = Data()

    init(_ path: String) { self.path = path }

    /// Whole lines that were appended since the last call.
    mutating func read() -> [Data] {
        if file == nil { file = FileHandle(forReadingAtPath: path) }
        guard let new = try? file?.readToEnd(), !new.isEmpty else { return [] }
        rest += new
        var lines = rest.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
        rest = Data(lines.removeLast())
        return lines.map { Data($0) }
    }
}
