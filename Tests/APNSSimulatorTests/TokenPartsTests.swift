import Testing

@testable import APNSSimulator

@Suite struct TokenPartsTests {
    @Test(arguments: [
        (#"{}"#, true), (#" { "a" : "b" , "c" : 1.5e3 } "#, true), (#"{"a":true,"b":null,"c":-1}"#, true),
        (#"{"a":"\"\\\/\n"}"#, true), ("", false), ("{", false), (#"{"a"}"#, false), (#"{"a":}"#, false),
        (#"{"a":1,}"#, false), (#"{"a":1}x"#, false), (#"{"a":[1]}"#, false), (#"{"a":{}}"#, false),
        (#"{"a":1,"a":2}"#, false), (#"{a:1}"#, false), (#"{"a":nope}"#, false), (#"{"a":"b}"#, false),
        (#"["a"]"#, false), (#"{"a":1-}"#, false), ("{\"a\":\"\u{1}\"}", false),
    ])
    func onlyFlatJSONObjectsAreParsed(text: String, isGood: Bool) {
        #expect((FlatJSON.parse(Array(text.utf8)) != nil) == isGood)
    }

    @Test func objectValuesAreReadAsTextOrSeconds() throws {
        let object = try #require(
            FlatJSON.parse(Array(#"{"a":"x\ty","b":17,"c":"18","d":1.9,"e":true}"#.utf8)))
        #expect(object["a"] == .text("x\ty"))
        #expect(object["b"]?.seconds(orText: false) == 17)
        #expect(object["c"]?.seconds(orText: false) == nil)
        #expect(object["c"]?.seconds(orText: true) == 18)
        #expect(object["d"]?.seconds(orText: false) == 1)
        #expect(object["e"]?.seconds(orText: true) == nil)
        #expect(object["f"] == nil)
    }

    @Test(
        arguments: [
            ("", []), ("AA", [0]), ("AAA", [0, 0]), ("_-8", [255, 239]), ("aGVsbG8", Array("hello".utf8)),
            ("A", nil),
            ("AA==", nil), ("A+", nil), ("A/", nil), ("A A", nil), ("AAAAA", nil),
        ] as [(String, [UInt8]?)])
    func base64URLIsDecodedOrRefused(text: String, bytes: [UInt8]?) {
        Array(text.utf8).withUnsafeBytes { #expect(Base64URL.decode($0[...]) == bytes) }
    }

    @Test func testKeysBase64URLDecodesToTheSameBytes() {
        for count in 0..<50 {
            let bytes = (0..<count).map { UInt8($0 &* 37 & 255) }
            Array(TestKey.base64(bytes).utf8).withUnsafeBytes { #expect(Base64URL.decode($0[...]) == bytes) }
        }
    }
}
