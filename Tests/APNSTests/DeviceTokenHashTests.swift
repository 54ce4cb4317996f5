import APNS
import SluiceModel
import TestSupport
import Testing

@Suite("Hash of device tokens")
struct DeviceTokenHashTests {
    private let token = String(repeating: "0123456789abcdef", count: 4)

    /// Values of `printf %s TOKEN | openssl dgst -sha256 -mac HMAC -macopt hexkey:KEY`.
    @Test func isTheBeginningOfHMACSHA256() {
        let key = (0..<32).map { UInt8($0) }
        let hash = DeviceTokenHash(key: key)
        #expect(hash.text(of: token) == "ca7eb12f3689793fd47c65dcd0f01941")
        #expect(hash.text(of: token.uppercased()) == hash.text(of: token))
        #expect(hash.text(of: "") == "d38b42096d80f45f826b44a9d5607de7")
        // A key that is longer than a block is hashed first.
        #expect(
            DeviceTokenHash(key: (0..<100).map { UInt8($0) }).text(of: token)
                == "a977f4c632a9be534cf664900ce92380")
        #expect(DeviceTokenHash(key: key).text(of: token) == hash.text(of: token))
    }

    @Test func tokensOfAllLengthsDiffer() {
        let hash = DeviceTokenHash(key: Array(repeating: 7, count: 32))
        var texts: Set<String> = []
        for count in 0..<300 {
            let text = hash.text(of: String(repeating: "a", count: count))
            #expect(text.utf8.count == DeviceTokenHash.textLength)
            texts.insert(text)
        }
        #expect(texts.count == 300)
    }
}
