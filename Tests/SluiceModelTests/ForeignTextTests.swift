import Foundation
import SluiceModel
import Testing

/// Text of producers, servers and files on its way to a terminal or a line of JSON.
@Suite struct ForeignTextTests {
    @Test(arguments: [
        ("plain text", "plain text"), ("é 日本 ±", "é 日本 ±"), ("", ""),
        ("\u{1b}[2J", #"\u001b[2J"#), ("a\nb\r\tc", #"a\nb\r\tc"#), ("\u{7f}\u{9b}", #"\u007f\u009b"#),
        ("\u{2028}\u{2029}\u{202e}", #"\u2028\u2029\u202e"#), ("\u{e0041}", #"\udb40\udc41"#),
    ])
    func obeyedCharactersAreEscaped(_ text: String, _ escaped: String) {
        #expect(ForeignText.escaped(text) == escaped)
        #expect(ForeignText.escaped(escaped) == escaped)
    }

    @Test func lengthIsBounded() {
        #expect(ForeignText.escaped("abcd", limit: 3) == "abc…")
        #expect(ForeignText.escaped("日本語", limit: 3) == "日本語")
    }

    @Test func everyScalarIsShownOrEscaped() {
        for value in UInt32(0)...0x10_FFFF {
            guard let scalar = Unicode.Scalar(value), ForeignText.isObeyed(scalar) else { continue }
            let text = ForeignText.escaped(String(Character(scalar)))
            #expect(text.utf8.allSatisfy { (0x20...0x7e).contains($0) }, "\(value)")
        }
    }

    @Test func lineOfJSONKeepsItsMeaning() throws {
        let document = "{\n\t\"a\u{2028}\": \"\u{9b}\\n\\u001b\u{7f}\u{e0041}é\"\r\n}"
        let line = try #require(ForeignText.jsonLine(Array(document.utf8)))
        #expect(line.unicodeScalars.allSatisfy { !ForeignText.isObeyed($0) })
        let read = try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: String]
        #expect(read == ["a\u{2028}": "\u{9b}\n\u{1b}\u{7f}\u{e0041}é"])
    }

    @Test func bytesThatAreNoJSONObjectHaveNoLine() {
        for bytes in [[], Array("1".utf8), Array("{} {}".utf8), [0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]]
            as [[UInt8]]
        {
            #expect(ForeignText.jsonLine(bytes) == nil)
        }
    }
}
