import Configuration
import DeliveryCore
import Foundation
import Gateway
import Logging
import Testing

@testable import SluiceModel
@testable import sluice

/// Lines of a worker's log.
@Suite("Log lines")
struct LineLogTests {
    private static let time = "2026-11-21T03:12:45.123Z"

    private func line(
        _ format: Configuration.Log.Format, _ metadata: Logger.Metadata, own: Logger.Metadata = [:]
    ) -> String {
        var handler = LineLogHandler(Configuration.Log(level: .info, format: format))
        handler.metadata = own
        let event = LogEvent(
            level: .info, message: "librdkafka", metadata: metadata, source: nil, file: "", function: "",
            line: 1)
        return handler.line(event, at: Self.time)
    }

    /// Returns the keys of an object in their order. JSONSerialization would keep only one of two equal keys.
    private func keys(_ json: String) -> [String] {
        Array(json.utf8).withUnsafeBytes { bytes in
            var members = JSONMembers(bytes)
            var keys: [String] = []
            while let member = members.next() { keys.append(String(decoding: member.name, as: UTF8.self)) }
            return keys
        }
    }

    private func object(_ json: String) throws -> [String: String] {
        try #require(JSONSerialization.jsonObject(with: Data(json.utf8)) as? [String: String], "\(json)")
    }

    @Test func pausedPartitionNamesEveryReason() {
        let report = PartitionReport(
            topic: "jobs", partition: 3, watermark: 1, end: 2, outstanding: 1, outstandingBytes: 100,
            headOfLineAge: .seconds(2), pauseReasons: [.limit, .share, .window, .store], isEnding: false)
        #expect(report.metadata["paused"] == "limit,share,window,store")
        #expect(report.metadata["head-of-line-ms"] == "2000")
    }

    @Test func fieldsNamedLikeTheLinesKeysAreRenamed() throws {
        let line = line(
            .json, ["message": "m", "time": "t", "level": "l", "field.message": "f", "text": "x"])
        let keys = keys(line)
        #expect(Set(keys).count == keys.count, "\(line)")
        #expect(
            try object(line) == [
                "time": Self.time, "level": "info", "message": "librdkafka", "field.message": "m",
                "field.time": "t", "field.level": "l", "field.field.message": "f", "text": "x",
            ])
    }

    @Test func loggerMetadataNamedLikeAKeyIsRenamed() throws {
        let line = line(.json, ["shard": "1"], own: ["message": "m"])
        #expect(keys(line) == ["time", "level", "message", "field.message", "shard"])
    }

    @Test func textLinesKeepTheNamesOfFields() {
        #expect(
            line(.text, ["message": "a b", "text": "x"])
                == #"\#(Self.time) info    librdkafka message="a b" text=x"#)
    }
}
