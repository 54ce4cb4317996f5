import DeliveryCore
import Kafka
import SluiceModel

/// Positions of the reading by partition, beyond those of the machine, for the lag.
struct ReadPositions {
    private struct Position {
        /// Timestamp of the last polled record, in milliseconds since the epoch; nil before the first.
        var timestamp: Int64?
        /// End of the log that the reading has reached; 0 before.
        var end: Int64 = 0
        /// Last time at which no record lay ahead, in milliseconds since the epoch; nil before the first.
        var caughtUpAt: Int64?
    }

    private var positions: [Int32: Position] = [:]

    /// Forgets a partition, because it is assigned anew.
    mutating func assigned(_ partition: Int32) { positions[partition] = nil }

    /// Records the timestamp of a polled record. Producers choose timestamps: one out of range counts as `now`, in
    /// milliseconds since the epoch.
    mutating func polled(_ partition: Int32, timestamp: Int64, now: @autoclosure () -> Int64) {
        positions[partition, default: Position()].timestamp =
            JobLimits.instant.contains(timestamp) ? timestamp : now()
    }

    /// Records that the reading has reached the log's end.
    mutating func reachedEnd(_ partition: Int32, _ offset: Int64, now: Int64) {
        positions[partition, default: Position()].end = offset
        positions[partition]!.caughtUpAt = now
    }

    /// Looks whether records lie ahead of a partition's reading. To be called every second, so that the time without
    /// records counts as no lag once a record comes.
    mutating func look(_ report: PartitionReport, _ watermarks: Watermarks?, now: Int64) {
        guard watermarks != nil, lag(of: report, watermarks, now: now).records == 0 else { return }
        positions[report.partition, default: Position()].caughtUpAt = now
    }

    /// Returns the distance of a partition's reading from the end of its log, as of the last fetch.
    /// - Parameters:
    ///   - watermarks: bounds of the log; nil before the first fetch.
    ///   - now: milliseconds since the epoch.
    func lag(of report: PartitionReport, _ watermarks: Watermarks?, now: Int64) -> PartitionLag {
        guard let watermarks else {
            return PartitionLag(partition: report.partition, records: nil, uncommitted: nil, seconds: 0)
        }
        let position = positions[report.partition] ?? Position()
        let first = max(report.watermark, watermarks.low)
        let records = max(0, watermarks.high - max(report.end, first, position.end))
        // The reading is at the end, and nothing is outstanding: no record lies between.
        let isDone = records == 0 && report.outstanding == 0
        var seconds = 0.0
        // Records ahead are younger than the last polled record, and than the last time without records ahead.
        if records > 0, let timestamp = position.timestamp {
            seconds = Double(max(0, now - max(timestamp, position.caughtUpAt ?? timestamp))) / 1e3
        }
        return PartitionLag(
            partition: report.partition, records: records,
            uncommitted: isDone ? 0 : max(0, watermarks.high - first), seconds: seconds)
    }
}
