import Configuration
import Foundation
import KafkaTestSupport
import Logging
import SluiceModel
import TestSupport
import Testing

@testable import sluice

/// Control characters of producers and servers reach no terminal, and lines of JSON are always JSON.
@Suite("Foreign text")
struct ForeignOutputTests {
    private static let evil = "\u{1b}[2J\u{9b}31m\u{2028}\u{202e}\u{7f}"

    private func isPlain(_ text: String) -> Bool {
        text.unicodeScalars.allSatisfy { $0 == "\n" || !ForeignText.isObeyed($0) }
    }

    private func outcome(topic: String) -> String {
        """
        {"outcome":"rejected",\n"device-token":"\(topic)","topic":"\(topic)","push-type":"alert",
        "apns-id":"123e4567-e89b-12d3-a456-426614174000","status":400,"reason":"bad 0a1b 2c3d",
        "attempts":1,"source":{"topic":"\(topic)","partition":3,"offset":17},
        "created-at":1795231185422,"polled-at":1795231185423,"finished-at":1795231185450}
        """
    }

    @Test func outcomesShowsNoControlCharacter() throws {
        let kafka = try TestKafka([("outcomes", 1), ("dead-letters", 1)])
        var invalid = NewRecord()
        invalid.value = [0x7b, 0x22, 0xff, 0x1b, 0x22, 0x3a, 0x31, 0x7d]
        let evil = Self.evil.replacing("\u{1b}", with: "\\u001b")
        try kafka.produce(
            to: "outcomes",
            [
                NewRecord(value: outcome(topic: evil + "\\n")), NewRecord(value: outcome(topic: "a.b")),
                NewRecord(value: Self.evil), NewRecord(), invalid,
            ])
        try kafka.produce(
            to: "dead-letters",
            [
                NewRecord(
                    key: Self.evil, value: "\u{0}",
                    headers: [("sluice-error-message", Self.evil + "\n"), ("sluice-source-topic", Self.evil)])
            ])
        for options in [
            ["--from", kafka.topic("outcomes")], ["--dead-letters", "--from", kafka.topic("dead-letters")],
        ] {
            for json in [false, true] {
                let shown = try ChildProcess.run(
                    Executables.sluice,
                    ["outcomes", "-b", kafka.bootstrapServers, "--until-end"] + options
                        + (json ? ["--json"] : []))
                #expect(shown.exit == .status(0), "\(shown.standardError)")
                #expect(isPlain(shown.standardOutput), "\(shown.standardOutput)")
                let lines = shown.standardOutput.split(separator: "\n")
                #expect(lines.count == (options.count == 2 ? 5 : 1), "\(shown.standardOutput)")
                #expect(json || !shown.standardOutput.contains("0a1b"))
                guard json else { continue }
                for line in lines { _ = try JSONSerialization.jsonObject(with: Data(line.utf8)) }
            }
        }
    }

    @Test(arguments: [Configuration.Log.Format.text, .json])
    func logLinesHaveNoControlCharacter(_ format: Configuration.Log.Format) throws {
        let handler = LineLogHandler(Configuration.Log(level: .info, format: format))
        let text = Self.evil + "\n"
        let event = LogEvent(
            level: .info, message: "\(text)", metadata: ["key\(text)": "\(text)"], source: nil, file: "",
            function: "", line: 1)
        let line = handler.line(event, at: "2026-11-21T03:12:45.123Z")
        #expect(isPlain(line) && !line.contains("\n"), "\(line)")
        guard format == .json else { return }
        let read = try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: String]
        #expect(read?["message"] == text && read?["key\(text)"] == text)
    }

    /// An error of a line has the producer's name of a field, and one of a file the file's name.
    @Test func errorsShowNoControlCharacter() throws {
        let kafka = try TestKafka([("jobs", 1)])
        let produced = try sluice(
            "produce", "-b", kafka.bootstrapServers, "--jobs-topic", kafka.topic("jobs"), "--file", "-",
            input: #"{"device-token":"\#(deviceToken)","topic":"a.b","\u{9b}\u{2028}":1}"# + "\n")
        #expect(produced.exit == .status(65) && isPlain(produced.standardError), "\(produced)")
        let file = try sluice("produce", "-b", "127.0.0.1:9", "--file", "/none\(Self.evil)")
        #expect(file.exit == .status(65) && isPlain(file.standardError), "\(file)")
    }

    /// Other files write through functions that escape what they are given. A ready file is read by scripts.
    @Test func unescapedTextIsWrittenByTheScreenAlone() throws {
        let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().appending(path: "Sources/sluice")
        let files = try #require(FileManager.default.enumerator(at: root, includingPropertiesForKeys: nil))
        var writers: Set<String> = []
        for case let file as URL in files where file.pathExtension == "swift" {
            let text = try String(contentsOf: file, encoding: .utf8)
            let isWriter = [
                "Terminal.write(", " print(", "fputs(", "FileHandle.standard", "Glibc.write(",
            ].contains { text.contains($0) }
            if isWriter { writers.insert(file.lastPathComponent) }
        }
        #expect(writers == ["Progress.swift", "ReadyFile.swift", "Terminal.swift", "TopTerminal.swift"])
    }
}
