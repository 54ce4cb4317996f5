import Foundation
import TestSupport

/// Limits that a small load reaches.
enum ReplicaLimits {
    static let delivery = """
        {max-in-flight: 400, commit-interval: 100ms, shards: 2, return-rate: 5000, drain-deadline: 3s, \
        retry: {initial: 20ms, maximum: 1s, max-attempts: 1000}}
        """
}

/// A worker of several, and what its log says of its partitions.
final class Replica {
    let name: String
    let process: ChildProcess
    private var log: LineTail
    /// It is expected to have partitions.
    var isActive = true
    var owned: Set<Int32> = []
    /// Partitions that the worker gives up or has given up, until another worker has them. The log line is written when the
    /// revocation begins, and its commit comes later.
    var leaving: Set<Int32> = []
    /// Partitions that it had when it started over.
    var givenUp: Set<Int32> = []
    /// How often it has started over.
    var restarts: Int { lines.count { $0.message == "the worker restarts" } }
    private(set) var lines: [Line] = []

    struct Line {
        var time: Int64
        var message: String
        var fields: [String: String]

        var partitions: [Int32] {
            (fields["partitions"] ?? "").split(separator: ",").compactMap { Int32($0) }
        }
    }

    init(_ name: String, _ process: ChildProcess) {
        self.name = name
        self.process = process
        log = LineTail(process.standardErrorFile)
    }

    var endedEarly: ChildProcess.Exit? { isActive ? process.exitIfEnded() : nil }

    private static let style = Date.ISO8601FormatStyle(includingFractionalSeconds: true)

    /// What it has logged since.
    func read() -> [Line] {
        let new = log.read().compactMap { line -> Line? in
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
                // The group has gone on without it, on a machine that stalls for instance.
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
}
