import Testing

@testable import SluiceModel

@Suite struct IdentityTests {
    @Test func canonicalTextRoundTrips() throws {
        let text = "00112233-4455-6677-8899-aabbccddeeff"
        let id = try #require(text.withBytes { APNSID(canonical: $0) })
        #expect(id.high == 0x0011_2233_4455_6677)
        #expect(id.low == 0x8899_aabb_ccdd_eeff)
        #expect(id.description == text)
        var random = SeededGenerator(seed: 1)
        for _ in 0..<1000 {
            let id = APNSID(high: random.next(), low: random.next())
            #expect(id.description.withBytes { APNSID(canonical: $0) } == id)
            #expect(id.description.uppercased().withBytes { APNSID(anyCase: $0) } == id)
        }
    }

    @Test(arguments: [
        "", "0", "00112233-4455-6677-8899-aabbccddeef", "00112233-4455-6677-8899-aabbccddeeff0",
        "00112233-4455-6677-8899-AABBCCDDEEFF", "0011223344556677-8899-aabbccddeeff----",
        "{0112233-4455-6677-8899-aabbccddeef}", "00112233-4455-6677-8899-aabbccddeefg",
        "001122334-455-6677-8899-aabbccddeeff",
    ])
    func nonCanonicalTextIsRefused(_ text: String) {
        #expect(text.withBytes { APNSID(canonical: $0) } == nil)
    }

    /// Values of the reference implementation and OpenSSL: key 00…0f, message 00, 01, 02….
    @Test(arguments: [
        (0, "A3817F04BA25A8E66DF67214C7550293"), (1, "DA87C1D86B99AF44347659119B22FC45"),
        (2, "8177228DA4A45DC7FCA38BDEF60AFFE4"), (3, "9C70B60C5267A94E5F33B6B02985ED51"),
        (8, "3B62A9BA6258F5610F83E264F31497B4"), (15, "5493E99933B0A8117E08EC0F97CFC3D9"),
    ])
    func sipHashMatchesTheReference(_ length: Int, _ expected: String) {
        var hash = SipHash128(key0: 0x0706_0504_0302_0100, key1: 0x0f0e_0d0c_0b0a_0908)
        for byte in 0..<length { hash.append(UInt8(byte)) }
        let (first, second) = hash.finish()
        let bytes = [first, second].flatMap { word in
            (0..<8).map { UInt8(truncatingIfNeeded: word >> ($0 * 8)) }
        }
        let text = bytes.map { hex in "0123456789ABCDEF".pick(hex >> 4) + "0123456789ABCDEF".pick(hex & 15) }
        #expect(text.joined() == expected)
    }

    @Test func derivedIdentifiersAreStableAndDistinct() {
        func derive(_ topic: String, _ partition: Int32, _ offset: Int64) -> APNSID {
            topic.withBytes { APNSID.derived(topic: $0, partition: partition, offset: offset) }
        }
        // Fixed for ever: a change would give a redelivered job another identifier after an upgrade.
        #expect(derive("jobs", 3, 42).description == "5cfc0873-89e2-857d-a2f9-64b135c054d5")
        #expect(derive("jobs", 3, 42) == derive("jobs", 3, 42))
        var seen = Set<APNSID>()
        for topic in ["jobs", "job", "jobs2"] {
            for partition in Int32(0)..<8 {
                for offset in Int64(0)..<500 {
                    let id = derive(topic, partition, offset)
                    seen.insert(id)
                    #expect(id.high >> 12 & 15 == 8, "version 8")
                    #expect(id.low >> 62 == 0b10, "variant of RFC 9562")
                }
            }
        }
        #expect(seen.count == 3 * 8 * 500)
    }

    @Test(arguments: [
        (String(repeating: "a", count: 31), JobRule.evenLength), (String(repeating: "a", count: 30), .length),
        (String(repeating: "a", count: 402), .length), (String(repeating: "a", count: 63) + "g", .hex),
        ("", .length), (String(repeating: "a", count: 62) + " \n", .hex),
    ])
    func invalidDeviceTokensNameTheirRule(_ token: String, _ rule: JobRule) {
        #expect(token.withBytes { DeviceToken.violation($0) } == rule)
        #expect(!DeviceToken.isValid(token))
    }

    @Test(arguments: [32, 64, 160, 400])
    func deviceTokensOfAllowedLengthsAreAccepted(_ length: Int) {
        for digit in ["0", "f", "F"] {
            let token = String(repeating: digit, count: length)
            #expect(token.withBytes { DeviceToken.violation($0) } == nil)
            #expect(DeviceToken.isValid(token))
        }
    }
}

extension String {
    fileprivate func pick(_ index: UInt8) -> String {
        String(self[self.index(startIndex, offsetBy: Int(index))])
    }
}
