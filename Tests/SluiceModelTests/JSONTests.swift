import Testing

@testable import SluiceModel

/// Both validators on one text: simdjson with its judge, and the scanner alone.
private func validate(_ bytes: [UInt8]) -> (library: JSONFault?, scanner: JSONFault?) {
    let validator = JSONValidator()
    return bytes.withUnsafeBytes { bytes in
        var library: JSONFault?
        var scanner: JSONFault?
        do throws(JSONFault) { try validator.validateObject(bytes) } catch { library = error }
        do throws(JSONFault) { try JSONScanner.validateObject(bytes) } catch { scanner = error }
        return (library, scanner)
    }
}

@Suite struct JSONTests {
    @Test(arguments: [
        "{}", " \t\r\n{ } \n", #"{"a":1}"#, #"{"a":-0.0e-10,"b":1E5,"c":0}"#,
        #"{"":{"":{}},"x":[[],[[]],{}]}"#,
        #"{"a":"\"\\\/\b\f\n\r\tA\ud83d\udc8c"}"#, #"{"a":true,"b":false,"c":null}"#, #"{"é":"💌","k":""}"#,
        #"{"a":12345678901234567890123456789012345678901234567890}"#, #"{"a":1e400,"b":-1e400}"#,
        #"{"a":"\ud800","b":"\udc00"}"#, #"{"a":1,"a":2}"#,
        "{\"a\":\"\u{7F}\u{80}\u{7FF}\u{FFFF}\u{10FFFF}\"}",
    ])
    func validObjectsAreAccepted(_ text: String) {
        let result = validate(Array(text.utf8))
        #expect(result.library == nil)
        #expect(result.scanner == nil)
    }

    @Test(arguments: [
        ("", 0), ("{", 1), ("}", 0), (#"{"a"}"#, 4), (#"{"a":}"#, 5), (#"{"a":1,}"#, 7),
        (#"{"a":1 "b":2}"#, 7),
        ("{a:1}", 1), (#"{"a":tru}"#, 5), (#"{"a":+1}"#, 5), (#"{"a":.5}"#, 5), (#"{"a":1.}"#, 7),
        (#"{"a":1e}"#, 7),
        (#"{"a":-}"#, 5), (#"{"a":00}"#, 6), (#"{"a":"\x"}"#, 7), (#"{"a":"\u12g4"}"#, 10), (#"{"a":"x}"#, 8),
        (#"{"a":[1,]}"#, 8), (#"{"a":[1 2]}"#, 8), (#"{"a":[1}"#, 7), (#"{"a":1]"#, 6), ("{}x", 2),
        ("{} {}", 3),
        (#"{"a":Infinity}"#, 5), (#"{"a":'x'}"#, 5), ("{\"a\":\"\t\"}", 6), ("nul", 0),
    ])
    func syntaxErrorsReportTheirByteOffset(_ text: String, _ offset: Int) {
        let result = validate(Array(text.utf8))
        guard case .syntax(let found, _) = result.library else {
            Issue.record("\(String(describing: result.library))")
            return
        }
        #expect(found == offset)
        #expect(result.scanner == result.library)
    }

    @Test(
        arguments: [
            [0x80], [0xC0, 0xAF], [0xC3], [0xE0, 0x80, 0x80], [0xED, 0xBF, 0xBF], [0xF0, 0x80, 0x80, 0x80],
            [0xF4, 0x90, 0x80, 0x80], [0xF5, 0x80, 0x80, 0x80], [0xFF], [0xE2, 0x82], [0xF0, 0x9F, 0x92],
        ] as [[UInt8]])
    func invalidUTF8IsReported(_ sequence: [UInt8]) {
        let prefix = Array(#"{"a":"x"#.utf8)
        for suffix in [
            "\"}", "", "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\"}",
        ] {
            let result = validate(prefix + sequence + Array(suffix.utf8))
            #expect(result.library == .utf8(offset: prefix.count))
            #expect(result.scanner == result.library)
        }
    }

    @Test func rootMustBeAnObject() {
        for text in ["[]", "1", #""{}""#, "true", "null", "[{}]"] {
            #expect(validate(Array(text.utf8)).library == .notAnObject)
        }
    }

    @Test func depthIsBounded() {
        for levels in [1, 2, 64, 127, 128] {
            #expect(validate(Array(JobRuleTests.nested(levels).utf8)).library == nil)
        }
        for levels in [129, 130, 1000, 9000] {
            let result = validate(Array(JobRuleTests.nested(levels).utf8))
            guard case .depth = result.library else {
                Issue.record("\(levels) levels: \(String(describing: result.library))")
                continue
            }
            #expect(result.scanner == result.library)
        }
        let arrays = Array((#"{"a":"# + String(repeating: "[", count: 30_000)).utf8)
        #expect(validate(arrays).library != nil)
    }

    @Test func documentSizeLimitIsExact() {
        #expect(validate(Array(JobRuleTests.sized(65_536).utf8)).library == nil)
        #expect(validate(Array(JobRuleTests.sized(65_537).utf8)).library == .size(limit: 65_536))
    }

    /// The library and the scanner agree about mutated documents. Small changes keep most documents nearly valid.
    @Test func libraryAndScannerAgree() {
        var random = SeededGenerator(seed: 20_240_601)
        let validator = JSONValidator()
        let seeds = [
            TestRecord.payload, JobRuleTests.document(#""ttl":60"#),
            #"{"a":[1,-2.5e3,true,false,null,"\u00e9\n💌"],"b":{"c":{}},"d":[]}"#,
        ].map { Array($0.utf8) }
        let alphabet =
            Array(#"{}[]:,"\ tfn0123456789.eE+-aubx"#.utf8) + [0, 0x1F, 0x7F, 0x80, 0xC3, 0xED, 0xF0, 0xFF]
        var valid = 0
        for _ in 0..<20_000 {
            var text = seeds.randomElement(using: &random)!
            for _ in 0..<Int.random(in: 1...3, using: &random) where !text.isEmpty {
                let index = Int.random(in: 0..<text.count, using: &random)
                switch Int.random(in: 0..<4, using: &random) {
                case 0: text[index] = alphabet.randomElement(using: &random)!
                case 1: text.remove(at: index)
                case 2: text.insert(alphabet.randomElement(using: &random)!, at: index)
                default: text.removeSubrange(index...)
                }
            }
            text.withUnsafeBytes { bytes in
                var library: JSONFault?
                var scanner: JSONFault?
                do throws(JSONFault) { try validator.validateObject(bytes) } catch { library = error }
                do throws(JSONFault) { try JSONScanner.validateObject(bytes) } catch { scanner = error }
                if library == nil { valid += 1 }
                #expect(library == scanner, "\(String(decoding: text, as: UTF8.self))")
            }
        }
        #expect(valid > 1000 && valid < 19_000, "\(valid) of the mutations are valid")
    }

    @Test func randomBytesNeverTrap() {
        var random = SeededGenerator(seed: 7)
        let decoder = TestDecoder()
        for _ in 0..<5000 {
            let bytes = (0..<Int.random(in: 0..<120, using: &random)).map { _ in
                UInt8.random(in: 0...255, using: &random)
            }
            #expect(
                decoder.error(TestRecord(key: Array(TestRecord.token.utf8), value: bytes, headers: [])) != nil
            )
            let structured = TestRecord(
                key: Array(TestRecord.token.utf8), value: bytes,
                headers: [(name: "content-type", value: Array("application/json".utf8))])
            #expect(decoder.error(structured) != nil)
            bytes.withUnsafeBytes { bytes in
                _ = ReasonBody(bytes)
                #expect(OutcomeSummary(json: bytes) == nil)
                _ = APNSID(canonical: bytes)
                var writer = ByteWriter()
                writer.append(jsonString: bytes)
                let text = Array("{\"a\":".utf8) + Array(writer.bytes) + Array("}".utf8)
                #expect(validate(text).library == nil)
            }
        }
    }

    /// Mutated documents never trap the decoder, and an accepted document meets its rules.
    @Test func mutatedDocumentsKeepTheRules() {
        var random = SeededGenerator(seed: 99)
        let decoder = TestDecoder()
        let seed = Array(
            JobRuleTests.document(
                #""ttl":60,"collapse-id":"a\u0042c","priority":5,"deliver-at":1700000000000"#
            ).utf8)
        var accepted = 0
        for _ in 0..<10_000 {
            var text = seed
            let index = Int.random(in: 0..<text.count, using: &random)
            if Bool.random(using: &random) {
                text[index] = UInt8.random(in: 0...255, using: &random)
            } else {
                text.remove(at: index)
            }
            var record = TestRecord(document: "")
            record.value = text
            guard let push = decoder.push(record) else { continue }
            accepted += 1
            #expect(push.deviceToken == TestRecord.token)
            #expect(
                push.payload.utf8.first == UInt8(ascii: "{") && push.payload.utf8.last == UInt8(ascii: "}"))
            #expect(push.collapseIdentifier?.utf8.allSatisfy { (0x20...0x7E).contains($0) } ?? true)
        }
        #expect(accepted > 100)
    }

    @Test(
        arguments: [
            ("0", 0), ("-0", 0), ("0.000", 0), ("0e99999999", 0), ("7", 7), ("-7.0", -7), ("1e3", 1000),
            ("1.5e1", 15),
            ("1200e-2", 12), ("1e-1", nil), ("0.5", nil), ("1e-99999999999", nil),
            ("1e99999999999", Int64.max),
            ("-1e99", Int64.min), ("123456789012345678", 123_456_789_012_345_678),
            ("99999999999999999999999999", Int64.max), ("1.00000000000000000000000000000", 1),
        ] as [(String, Int64?)])
    func jsonNumbersConvertToIntegers(_ text: String, _ value: Int64?) {
        #expect(text.withBytes { jsonInteger($0) } == value)
    }
}
