import SluiceModel
import Testing

@Suite("Redriven jobs")
struct RedrivenMarkTests {
    @Test func addressesAndMarksAreReadAsWritten() throws {
        let address = RecordAddress(topic: "sluice.dead-letters", partition: 3, offset: 1_042)
        #expect(address.description == "sluice.dead-letters/3/1042")
        #expect(RecordAddress(text: address.description) == address)
        let mark = RedrivenMark(place: address, count: 2)
        #expect(mark.text == "sluice.dead-letters/3/1042;count=2")
        #expect(RedrivenMark(text: mark.text) == mark)
        let dated = RedrivenMark(place: address, count: 2, firstMilliseconds: 1_700_000_000_000)
        #expect(dated.text == "sluice.dead-letters/3/1042;count=2;first=1700000000000")
        #expect(RedrivenMark(text: dated.text) == dated)
        for text in ["", "a/1", "a/1/2/3", "/1/2", "a/-1/2", "a/1/-2", "a/1/x", "a/1/99999999999999999999"] {
            #expect(RecordAddress(text: text) == nil, "\(text)")
        }
        for text in [
            "", "a/1/2", "a/1/2;count=0", "a/1/2;count=", "a/1/2;n=1", "a/1/2;count=1;x",
            "a/1/2;count=9999999", "a/1/2;count=1;first=", "a/1/2;count=1;first=x", "a/1/2;count=1;first=1;x",
        ] {
            #expect(RedrivenMark(text: text) == nil, "\(text)")
        }
    }

    @Test func addressesSortInTheOrderOfReading() {
        let texts = ["a/0/10", "a/0/9", "a/2/1", "a/10/0", "B/0/0"]
        let sorted = texts.compactMap { RecordAddress(text: $0) }.sorted().map(\.description)
        #expect(sorted == ["B/0/0", "a/0/9", "a/0/10", "a/2/1", "a/10/0"])
    }

    @Test func theDecoderTakesTheFirstProductionAlone() throws {
        let decoder = TestDecoder()
        let plain = try #require(decoder.push(.push([("ttl", "60")])))
        for mark in ["dl/3/1042;count=2", "dl/3/1042;count=2;first=x", "nonsense;", ""] {
            #expect(decoder.push(.push([("ttl", "60"), ("sluice-redriven", mark)])) == plain, "\(mark)")
        }
        let first = try #require(
            decoder.push(
                .push([("ttl", "60"), ("sluice-redriven", "dl/3/1042;count=2;first=1600000000000")])))
        #expect(first.created == 1_600_000_000_000 && first.expiration != plain.expiration)
    }

    @Test func glimpsesShowFieldsOfAnyMode() {
        func glimpse(_ record: TestRecord) -> JobGlimpse { record.withRecord { JobGlimpse($0) } }
        let headers = glimpse(.push([("apns-priority", "7"), ("apns-id", "42")], value: "not JSON"))
        #expect(headers.topic == "com.example.app" && headers.pushType == "alert" && headers.apnsID == "42")
        let packed = glimpse(
            TestRecord(key: "x", value: "apns-topic:a.b\napns-push-type:voip\nno colon\n\n{}"))
        #expect(packed.topic == "a.b" && packed.pushType == "voip" && packed.apnsID == nil)
        let document = glimpse(
            TestRecord(document: #"{"topic":"a.b","push-type":7,"apns-id":"x","payload":{"topic":"c"}}"#))
        #expect(document.topic == "a.b" && document.pushType == nil && document.apnsID == "x")
        let event = glimpse(TestRecord(document: #"{"specversion":"1.0","data":{"topic":"a.b"}}"#))
        #expect(event.topic == "a.b")
        for value in ["", "{", "[]", #"{"topic":"#, "apns-topic"] {
            #expect(
                glimpse(TestRecord(key: nil, value: value)) == glimpse(TestRecord(key: nil, value: nil)),
                "\(value)")
        }
        let long = String(repeating: "x", count: 300)
        #expect(glimpse(TestRecord(key: nil, value: nil, headers: [("apns-topic", long)])).topic == nil)
    }
}
