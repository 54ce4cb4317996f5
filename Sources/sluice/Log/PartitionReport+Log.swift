import DeliveryCore
import Gateway
import Logging

extension PartitionReport {
    /// Logs a line on a partition: on info level when it is paused, else on debug level.
    func log(to logger: Logger) {
        logger.log(level: pauseReasons.isEmpty ? .debug : .info, "partition statistics", metadata: metadata)
    }

    /// Fields of the partition's log line.
    var metadata: Logger.Metadata {
        var metadata: Logger.Metadata = [
            "partition": "\(topic)[\(partition)]", "watermark": "\(watermark)", "end": "\(end)",
            "outstanding": "\(outstanding)", "bytes": "\(outstandingBytes)",
            "head-of-line-ms": "\(headOfLineMilliseconds)",
        ]
        if isEnding { metadata["ending"] = "true" }
        let reasons: [(IntakeGate.Reason, String)] = [
            (.limit, "limit"), (.share, "share"), (.window, "window"), (.store, "store"),
            (.allPaused, "paused"), (.refused, "refused"),
        ]
        let names = reasons.filter { pauseReasons.contains($0.0) }.map(\.1)
        if !names.isEmpty { metadata["paused"] = "\(names.joined(separator: ","))" }
        return metadata
    }

    var headOfLineMilliseconds: Int64 {
        headOfLineAge.components.seconds * 1000 + headOfLineAge.components.attoseconds / 1_000_000_000_000_000
    }
}
