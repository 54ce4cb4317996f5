import Configuration
import DeliveryCore
import Kafka
import SluiceModel
import Testing

@testable import Gateway

@Suite struct CutRecordTests {
    private typealias Headers = [(name: String, value: [UInt8]?)]
    private static let own: Headers = [
        (name: "sluice-error-field", value: Array("key".utf8)),
        (name: "sluice-device", value: Array("0123456789abcdef".utf8)),
    ]
    /// SHA-256 of "abc" (FIPS 180-2, appendix B.1).
    private static let hashOfABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

    private struct Form {
        var key: [UInt8]?
        var value: [UInt8]?
        var headers: [String: String?]
        var cuts: UInt8
        var bytes: Int
    }

    private func form(
        _ kind: ProduceOrder.Kind = .deadLetter, key: [UInt8]?, value: [UInt8]?,
        _ headers: Headers = Self.own, cuts: UInt8
    ) -> Form {
        (key ?? []).withUnsafeBytes { keyBytes in
            (value ?? []).withUnsafeBytes { valueBytes in
                var record = CutRecord(
                    kind, key: key == nil ? nil : keyBytes, value: value == nil ? nil : valueBytes,
                    headers: headers)
                record.cut(to: cuts, reason: "MSG_SIZE_TOO_LARGE")
                return Form(
                    key: record.key.map { Array($0) }, value: record.value.map { Array($0) },
                    headers: Dictionary(
                        uniqueKeysWithValues: record.headers.map { name, value in
                            (name, value.map { String(decoding: $0, as: UTF8.self) })
                        }), cuts: record.cuts, bytes: record.bytes)
            }
        }
    }

    @Test func eachCutLeavesOutOnePartAndNamesIt() {
        let key = Array(repeating: UInt8(ascii: "k"), count: 1_000)
        let headers: Headers =
            Self.own + [(name: "x", value: Array("abc".utf8)), (name: "y", value: nil)]
        func form(_ cuts: UInt8) -> Form {
            self.form(key: key, value: Array("abc".utf8), headers, cuts: cuts)
        }
        let names = Set(headers.map(\.name))
        let whole = form(0)
        #expect(whole.key == key && whole.value == Array("abc".utf8) && Set(whole.headers.keys) == names)
        #expect(whole.cuts == 0)
        let withoutValue = form(1)
        #expect(withoutValue.key == key && withoutValue.value == nil && withoutValue.cuts == 1)
        #expect(
            Set(withoutValue.headers.keys)
                == names.union(["sluice-error-value-omitted", "sluice-omitted-value"]))
        #expect(withoutValue.headers["sluice-error-value-omitted"] == "MSG_SIZE_TOO_LARGE")
        #expect(withoutValue.headers["sluice-omitted-value"] == "3 \(Self.hashOfABC)")
        let withoutHeaders = form(2)
        #expect(withoutHeaders.key == key && withoutHeaders.cuts == 2)
        #expect(
            Set(withoutHeaders.headers.keys) == [
                "sluice-error-field", "sluice-device", "sluice-error-value-omitted", "sluice-omitted-value",
                "sluice-omitted-headers",
            ])
        #expect(
            withoutHeaders.headers["sluice-omitted-headers"]??.hasPrefix("9 ") == true,
            "x, abc, y, and a zero each")
        let last = form(3)
        #expect(last.key == Array(key.prefix(512)) && last.value == nil && last.cuts == 3)
        #expect(last.headers["sluice-omitted-key"]??.hasPrefix("1000 ") == true)
    }

    @Test func lastFormHasAFewKilobytesWhateverTheRecordWas() {
        let million = Array(repeating: UInt8(ascii: "x"), count: 1_000_000)
        var headers: Headers = DeadLetter.Header.allCases.map { ($0.rawValue, million) }
        for number in 0..<1_000 { headers.append(("x-\(number)", Array(million.prefix(1_000)))) }
        let last = form(key: million, value: million, headers, cuts: 3)
        #expect(last.bytes < 8_192 && last.cuts == 3)
    }

    /// A refused form is never made again: the next one has less.
    @Test func partsThatAreMissingCountAsCut() {
        #expect(form(key: nil, value: nil, cuts: 0).cuts == 3)
        #expect(form(key: nil, value: nil, [(name: "x", value: nil)], cuts: 0).cuts == 1)
        #expect(form(key: Array(repeating: 1, count: 513), value: nil, cuts: 0).cuts == 2)
        #expect(form(key: nil, value: [], cuts: 0).cuts == 0)
        let cut = form(key: nil, value: nil, cuts: 3)
        #expect(Set(cut.headers.keys) == Set(Self.own.map(\.name)), "nothing is named that was not left out")
    }

    @Test func outcomeKeepsItsValueAndLosesTheJobsHeaders() {
        let headers: Headers = [Self.own[1], (name: "traceparent", value: Array("abc".utf8))]
        let whole = form(.outcome, key: [1], value: [2], headers, cuts: 0)
        let cut = form(.outcome, key: [1], value: [2], headers, cuts: 1)
        #expect(whole.cuts == 0 && cut.cuts == 1 && cut.key == [1] && cut.value == [2])
        #expect(Set(cut.headers.keys) == ["sluice-device", "sluice-omitted-headers"])
    }

    @Test func batchesAreNoLargerThanTheSmallestTopicTakes() {
        var configuration = Configuration.Kafka(bootstrapServers: "localhost:9")
        func size(_ largest: [String: Int]) -> String? {
            KafkaSetup(configuration).producer(largestBatches: largest)["batch.size"]
        }
        #expect(size(["outcomes": 1_048_588]) == nil && size([:]) == nil)
        #expect(size(["outcomes": 1_048_588, "letters": 2_000]) == "2000")
        configuration.producerProperties = [.init(name: "batch.size", value: "1000")]
        #expect(size(["letters": 2_000]) == "1000")
    }
}
