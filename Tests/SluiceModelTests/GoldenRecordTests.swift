import Foundation
import TestSupport
import Testing

@testable import SluiceModel

/// The records of Schemas/examples decode as their files say.
@Suite struct GoldenRecordTests {
    private static let directory = "\(Repository.root)/Schemas/examples"

    static let files: [String] = {
        let names = try? FileManager.default.contentsOfDirectory(atPath: directory)
        return (names ?? []).filter { $0.hasSuffix(".json") }.sorted()
    }()

    @Test func thereAreExamplesOfTheUsualProducers() {
        for name in [
            "cloudevents", "confluent-kafka-python", "java-client", "kafka-connect", "kafka-python", "kcat",
            "ksqldb", "mistakes", "rest-proxy", "spring-cloud-stream", "spring-kafka",
        ] {
            #expect(Self.files.contains("\(name).json"))
        }
    }

    @Test(arguments: files)
    func recordsOfTheProducerDecodeAsExpected(_ file: String) throws {
        let example = try JSON(Data(contentsOf: URL(filePath: "\(Self.directory)/\(file)")))
        #expect(example["producer"].text?.isEmpty == false)
        #expect(!example["records"].elements.isEmpty)
        let decoder = TestDecoder()
        for entry in example["records"].elements {
            let name = try #require(entry["name"].text)
            let record = try record(entry["record"])
            let expected = entry["expect"]
            switch decoder.decode(record) {
            case .success(.push(let push)):
                try expect(push, expected, "\(file), \(name)")
            case .success(.control): Issue.record("\(file), \(name): no push")
            case .failure(let error):
                let letter = expected["dead-letter"]
                #expect(error.field == letter["field"].text, "\(file), \(name): \(error)")
                #expect(error.rule.rawValue == letter["rule"].text, "\(file), \(name): \(error)")
                if let text = letter["mentions"].text {
                    #expect(error.message.contains(text), "\(file), \(name): \(error)")
                }
            }
        }
    }

    /// Compares a push with the document that describes it.
    private func expect(_ push: OwnedJob.Push, _ expected: JSON, _ name: String) throws {
        #expect(expected["job"].exists, "\(name): accepted")
        guard expected["job"].exists else { return }
        let document = try expected["job"].data
        var same = try #require(
            TestDecoder().push(golden(TestRecord(document: String(decoding: document, as: UTF8.self)))),
            "\(name)")
        let payload = try JSON(Data(push.payload.utf8))
        #expect(
            (payload.value as? NSDictionary) == (expected["job", "payload"].value as? NSDictionary), "\(name)"
        )
        #expect(
            push.headers.map { String($0.prefix { $0 != ":" }) }
                == expected["passes"].elements.compactMap(\.text), "\(name)")
        let adjusted = JobAdjustments.names.filter { push.adjustments.contains($0.0) }.map(\.1.text)
        #expect(adjusted == expected["adjusted"].elements.compactMap(\.text), "\(name)")
        (same.payload, same.headers, same.adjustments) = (push.payload, push.headers, push.adjustments)
        #expect(push == same, "\(name)")
    }

    private func golden(_ record: TestRecord) -> TestRecord {
        var record = record
        record.timestamp = 1_700_000_000_000
        return record
    }

    private func record(_ json: JSON) throws -> TestRecord {
        func bytes(_ name: String) throws -> [UInt8]? {
            if let text = json[name].text { return Array(text.utf8) }
            guard let text = json["\(name)-hex"].text else { return nil }
            let digits = Array(text.utf8)
            return try stride(from: 0, to: digits.count, by: 2).map { index in
                let high = try #require(hexValue(digits[index]))
                return high << 4 | (try #require(hexValue(digits[index + 1])))
            }
        }
        return golden(
            TestRecord(
                key: try bytes("key"), value: try bytes("value"),
                headers: try json["headers"].elements.map { header in
                    (
                        name: try #require(header["name"].text),
                        value: header["value"].text.map { Array($0.utf8) }
                    )
                }))
    }
}
