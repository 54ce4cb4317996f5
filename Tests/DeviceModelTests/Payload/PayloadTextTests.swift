import SluiceModel
import TestSupport
import Testing

@testable import DeviceModel

@Suite struct PayloadTextTests {
    @Test(
        arguments: [
            ("", []), ("TQ==", [77]), ("TQ", [77]), ("TWE=", [77, 97]), ("TWFu", [77, 97, 110]),
            ("-_8=", [251, 255]),
            ("+/8=", [251, 255]),
        ] as [(String, [UInt8])])
    func base64IsDecoded(_ text: String, _ bytes: [UInt8]) {
        #expect(Base64.decode(text.utf8) == bytes)
    }

    @Test(arguments: ["A", "AAAAA", "A===", "AA=A", "AA=", "====", "A A=", "AAA\n", "ÄÄÄÄ"])
    func aTextThatIsNotBase64IsRefused(_ text: String) {
        #expect(Base64.decode(text.utf8) == nil)
    }

    @Test func base64OfRandomBytesReturnsThem() {
        var random = SeededGenerator(seed: 20)
        let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)
        for _ in 0..<500 {
            let bytes = (0..<Int(random.next() % 40)).map { _ in UInt8(truncatingIfNeeded: random.next()) }
            var text: [UInt8] = []
            var bits = bytes.flatMap { byte in (0..<8).map { byte >> (7 - $0) & 1 } }
            while bits.count % 6 != 0 { bits.append(0) }
            for start in stride(from: 0, to: bits.count, by: 6) {
                text.append(alphabet[bits[start..<start + 6].reduce(0) { $0 << 1 | Int($1) }])
            }
            #expect(Base64.decode(text) == bytes)
        }
    }

    @Test(arguments: [
        ("{a}-{b}", "1-"), ("{a", "{a"), ("a}", "a}"), ("{}", "{}"), ("{{a}}", "{1}"), ("{a b}", "{a b}"),
        ("{ä}", "ü"),
        ("", ""),
    ])
    func placeholdersAreFilled(_ template: String, _ text: String) {
        #expect(Template.fill(template) { ["a": "1", "ä": "ü"][$0] } == text)
    }

    @Test func aFilledTextIsBounded() {
        let long = String(repeating: "é", count: 5_000)
        let text = Template.fill(String(repeating: "{a}", count: 1_000)) { _ in long }
        #expect(text.utf8.count <= Template.longest)
        #expect(text.allSatisfy { $0 == "é" })
    }

    @Test(arguments: [
        "{}", "[]", #"{"a":[1,-2,true,false,null,"x\n\"y\""],"bc":{"d":"é"}}"#, "\"\\u0001\"", "12",
    ])
    func theEncodedSizeIsThatOfTheCompactText(_ text: String) {
        #expect(JSONValue(Array(text.utf8))?.encodedSize == text.utf8.count)
    }

    @Test(
        arguments: [
            (.integer(5), 5_000), (.number(1.5), 1_500), (.number(1e300), Milliseconds.largest),
            (.number(-1e300), -Milliseconds.largest), (.integer(.max), Milliseconds.largest),
            (.integer(.min), -Milliseconds.largest), (.string("5"), nil), (.null, nil),
        ] as [(JSONValue, Int64?)])
    func secondsOfAnySizeAreMilliseconds(_ value: JSONValue, _ milliseconds: Int64?) {
        #expect(value.milliseconds == milliseconds)
    }
}
