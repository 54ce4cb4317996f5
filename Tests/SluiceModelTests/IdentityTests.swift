import SluiceModel
import Testing

@Suite struct IdentityTests {
    @Test func canonicalTextRoundTrips() throws {
        let text = "00112233-4455-6677-8899-aabbccddeeff"
        let id = try #require(text.withBytes { APNSID(canonical: $0) })
        #expect(id.high == 0x0011_2233_4455_6677)
        #expect(id.low == 0x8899_aabb_ccdd_eeff)
        #expect(id.description == text)
    }
}
