import SluiceModel
import TestSupport
import Testing

@testable import HTTP2

/// Tests templates and value writers against nghttp2's inflater, while the table changes.
@Suite struct RequestTemplateTests {
    private let support = HeaderBlockEncoderTests()

    @Test(arguments: UInt64(1)...8)
    func nghttp2DecodesRandomRequestsAsEncoded(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let fields = StableFields()
        let authority = fields.add(name: ":authority", value: Array("api.push.apple.com".utf8))
        let authorization = fields.add(name: "authorization", value: Array("bearer 0".utf8))
        let identifier = fields.add(name: "apns-id")
        let expiration = fields.add(name: "apns-expiration")
        let collapse = fields.add(name: "apns-collapse-id")
        var topics: [String] = []
        var topicFields: [StableFields.ID] = []
        var templates: [StableFields.TemplateID] = []
        let makeTopic = { (random: inout SeededGenerator) in
            // Some topics don't fit into the table, and some fill the table.
            let length = Int.random(in: 1...(topics.count % 5 == 4 ? 900 : 60), using: &random)
            topics.append(
                String(repeating: "t", count: length) + String(Int.random(in: 0..<9, using: &random)))
            topicFields.append(fields.add(name: "apns-topic", value: Array(topics.last!.utf8)))
            templates.append(
                fields.addTemplate(
                    leading: [.indexedStatic(3), .indexedStatic(7), .stable(authority)],
                    pathPrefix: "/3/device/", trailing: [authorization, topicFields.last!]))
        }
        makeTopic(&random)
        var encoder = HeaderBlockEncoder(fields: fields)
        let peer = HeaderBlockEncoderTests.Peer()
        var token = "bearer 0"
        for step in 0..<600 {
            switch Int.random(in: 0..<40, using: &random) {
            case 0: makeTopic(&random)
            case 1:
                token =
                    "bearer \(step)" + String(repeating: "x", count: Int.random(in: 0...300, using: &random))
                fields.replace(authorization, value: Array(token.utf8))
            case 2:
                let size = [0, 100, 1000, 4096, 65_536].randomElement(using: &random)!
                peer.changeTableSize(size)
                encoder.peerTableSize(UInt32(size))
            default: break
            }
            let which = Int.random(in: 0..<topics.count, using: &random)
            let device = Self.device(&random)
            let high = UInt64.random(in: 0 ... .max, using: &random)
            let low = UInt64.random(in: 0 ... .max, using: &random)
            let seconds = Self.number(&random)
            let bytes = support.block(&encoder) { block in
                support.value(device) { block.request(templates[which], path: $0) }
                block.value(identifier, identifier: high, low)
                block.value(expiration, decimal: seconds)
                support.value(device) { block.value(collapse, $0) }
            }
            let expected = [
                ":method=POST", ":scheme=https", ":authority=api.push.apple.com", ":path=/3/device/\(device)",
                "authorization=\(token)", "apns-topic=\(topics[which])", "apns-id=\(Self.uuid(high, low))",
                "apns-expiration=\(seconds)", "apns-collapse-id=\(device)",
            ]
            let read = peer.decode(bytes)
            guard read == expected else {
                Issue.record("seed \(seed) step \(step): \(read) instead of \(expected)")
                return
            }
        }
    }

    @Test func repeatedRequestIsEncodedFromIndexedFields() {
        let fields = StableFields()
        let topic = fields.add(name: "apns-topic", value: Array("com.example.app".utf8))
        let template = fields.addTemplate(
            leading: [.indexedStatic(3)], pathPrefix: "/3/device/", trailing: [topic])
        var encoder = HeaderBlockEncoder(fields: fields)
        let request = { (block: inout HeaderBlockEncoder) in
            Array("0123456789abcdef".utf8).withUnsafeBytes { block.request(template, path: $0) }
        }
        let first = support.block(&encoder, request)
        let second = support.block(&encoder, request)
        let third = support.block(&encoder, request)
        #expect(first.count > second.count)
        #expect(second == third)
        // Method 1, path 2 and 58 + 90 bits, topic 1.
        #expect(third.count == 1 + 2 + 19 + 1)
    }

    @Test func overflowIsReportedWhenTheBufferIsTooSmall() {
        let fields = StableFields()
        let template = fields.addTemplate(
            leading: [.indexedStatic(3)], pathPrefix: "/3/device/", trailing: [])
        var encoder = HeaderBlockEncoder(fields: fields)
        let room = UnsafeMutableRawBufferPointer.allocate(byteCount: 4096, alignment: 1)
        defer { room.deallocate() }
        encoder.start(at: room.baseAddress!, capacity: 100)
        Array(repeating: UInt8(ascii: "a"), count: 64).withUnsafeBytes { encoder.request(template, path: $0) }
        let overflowed = encoder.overflowed
        #expect(overflowed)
    }

    /// A device token of random length: mostly hexadecimal, at times with other characters.
    private static func device(_ random: inout SeededGenerator) -> String {
        let length = Int.random(in: 0...200, using: &random)
        let digits = Array("0123456789abcdef".utf8)
        var bytes = (0..<length).map { _ in digits.randomElement(using: &random)! }
        if length > 0, Int.random(in: 0..<3, using: &random) == 0 {
            // Characters next to the digits' ranges must not pass for digits.
            for byte in [UInt8]("/:@GABF`g~zZ09af".utf8).shuffled(using: &random).prefix(4) {
                bytes[Int.random(in: 0..<length, using: &random)] = byte
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    private static func number(_ random: inout SeededGenerator) -> UInt32 {
        let edges: [UInt32] = [0, 1, 9, 10, 99, 100, 101, 1000, 99_999, 100_000, 999_999_999, 4_294_967_295]
        return Bool.random(using: &random)
            ? edges.randomElement(using: &random)! : UInt32.random(in: 0 ... .max, using: &random)
    }

    private static func uuid(_ high: UInt64, _ low: UInt64) -> String {
        let digits = { (value: UInt64) in
            String(repeating: "0", count: 16 - String(value, radix: 16).count) + String(value, radix: 16)
        }
        let text = Array(digits(high) + digits(low))
        return [text[0..<8], text[8..<12], text[12..<16], text[16..<20], text[20..<32]]
            .map { String($0) }.joined(separator: "-")
    }
}
