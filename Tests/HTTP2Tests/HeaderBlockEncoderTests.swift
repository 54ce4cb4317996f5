import CNghttp2
import Testing

@testable import HTTP2

/// Checks our encoder with nghttp2's inflater, as a server would run it.
@Suite struct HeaderBlockEncoderTests {
    final class Peer {
        var inflater: OpaquePointer?
        init() { nghttp2_hd_inflate_new(&inflater) }
        deinit { nghttp2_hd_inflate_del(inflater) }

        func changeTableSize(_ size: Int) {
            nghttp2_hd_inflate_change_table_size(inflater, size)
        }

        func decode(_ block: [UInt8]) -> [String] {
            var result: [String] = []
            var block = block
            var offset = 0
            while true {
                var pair = nghttp2_nv()
                var flags: Int32 = 0
                let used = block.withUnsafeMutableBufferPointer {
                    nghttp2_hd_inflate_hd2(
                        inflater, &pair, &flags, $0.baseAddress! + offset, $0.count - offset, 1)
                }
                guard used >= 0 else { return result + ["error \(used)"] }
                offset += used
                if flags & Int32(NGHTTP2_HD_INFLATE_EMIT.rawValue) != 0 {
                    let name = UnsafeBufferPointer(start: pair.name, count: pair.namelen)
                    let value = UnsafeBufferPointer(start: pair.value, count: pair.valuelen)
                    result.append(
                        "\(String(decoding: name, as: UTF8.self))=\(String(decoding: value, as: UTF8.self))")
                }
                if flags & Int32(NGHTTP2_HD_INFLATE_FINAL.rawValue) != 0 { break }
            }
            nghttp2_hd_inflate_end_headers(inflater)
            return result
        }
    }

    func block(_ encoder: inout HeaderBlockEncoder, _ body: (inout HeaderBlockEncoder) -> Void) -> [UInt8] {
        let room = UnsafeMutableRawBufferPointer.allocate(byteCount: 8192, alignment: 1)
        defer { room.deallocate() }
        encoder.start(at: room.baseAddress!, capacity: room.count)
        body(&encoder)
        return Array(room.prefix(encoder.finish(from: room.baseAddress!)))
    }

    func value(_ text: String, _ body: (UnsafeRawBufferPointer) -> Void) {
        Array(text.utf8).withUnsafeBytes(body)
    }

    @Test func repeatedStableFieldsTakeOneByte() {
        let fields = StableFields()
        let topic = fields.add(name: "apns-topic", value: Array("com.example.app".utf8))
        let id = fields.add(name: "apns-id")
        var encoder = HeaderBlockEncoder(fields: fields)
        let peer = Peer()
        var sizes: [Int] = []
        for number in 0..<3 {
            let bytes = block(&encoder) { block in
                block.indexedStatic(3)
                value("0a1b") { block.path("/3/device/", $0) }
                block.stable(topic)
                value("value-\(number)") { block.value(id, $0) }
            }
            sizes.append(bytes.count)
            #expect(
                peer.decode(bytes) == [
                    ":method=POST", ":path=/3/device/0a1b", "apns-topic=com.example.app",
                    "apns-id=value-\(number)",
                ])
        }
        #expect(sizes[1] == sizes[2])
        // method 1, path 2 + 11, topic 1, apns-id: index 2 (over the prefix), length 1, value 6.
        #expect(sizes[1] < 26)
    }

    @Test func printableTextSurvivesHuffmanCoding() {
        let fields = StableFields()
        let name = fields.add(name: "x")
        var encoder = HeaderBlockEncoder(fields: fields)
        let peer = Peer()
        var state: UInt64 = 88_172_645_463_325_252
        for length in [0, 1, 2, 5, 31, 126, 127, 128, 129, 200, 255, 400, 1000] {
            let text = String(
                decoding: (0..<length).map { _ -> UInt8 in
                    state ^= state << 13
                    state ^= state >> 7
                    state ^= state << 17
                    return UInt8(0x20 + state % 0x5f)
                }, as: UTF8.self)
            let bytes = block(&encoder) { block in
                value(text) { block.path("/", $0) }
                value(text) { block.value(name, $0) }
            }
            #expect(peer.decode(bytes) == [":path=/\(text)", "x=\(text)"])
        }
    }

    @Test func fieldsBeyondTheTableStillDecode() {
        let fields = StableFields()
        var ids: [StableFields.ID] = []
        for number in 0..<100 {
            ids.append(
                fields.add(name: "apns-topic", value: Array("com.example.application.number.\(number)".utf8)))
        }
        var encoder = HeaderBlockEncoder(fields: fields)
        let peer = Peer()
        for round in 0..<3 {
            for (number, id) in ids.enumerated() {
                let bytes = block(&encoder) { $0.stable(id) }
                #expect(
                    peer.decode(bytes) == ["apns-topic=com.example.application.number.\(number)"], "\(round)")
            }
        }
    }

    @Test func replacedProviderTokenStaysDecodableAndIndexed() {
        let fields = StableFields()
        let authorization = fields.add(name: "authorization", value: Array("bearer one".utf8))
        let topic = fields.add(name: "apns-topic", value: Array("a.b".utf8))
        var encoder = HeaderBlockEncoder(fields: fields)
        let peer = Peer()
        let request = { (block: inout HeaderBlockEncoder) in
            block.stable(authorization)
            block.stable(topic)
        }
        #expect(peer.decode(block(&encoder, request)) == ["authorization=bearer one", "apns-topic=a.b"])
        #expect(block(&encoder, request).count == 2)
        for number in 2..<200 {
            fields.replace(authorization, value: Array("bearer \(number)".utf8))
            #expect(
                peer.decode(block(&encoder, request)) == ["authorization=bearer \(number)", "apns-topic=a.b"])
            #expect(
                peer.decode(block(&encoder, request)) == ["authorization=bearer \(number)", "apns-topic=a.b"])
        }
        #expect(block(&encoder, request).count == 2)
    }

    @Test func encoderKeepsToTheServersTableSize() {
        let fields = StableFields()
        let topic = fields.add(name: "apns-topic", value: Array("a.b".utf8))
        var encoder = HeaderBlockEncoder(fields: fields)
        let peer = Peer()
        #expect(peer.decode(block(&encoder) { $0.stable(topic) }) == ["apns-topic=a.b"])
        nghttp2_hd_inflate_change_table_size(peer.inflater, 0)
        encoder.peerTableSize(0)
        for _ in 0..<2 {
            #expect(peer.decode(block(&encoder) { $0.stable(topic) }) == ["apns-topic=a.b"])
        }
        nghttp2_hd_inflate_change_table_size(peer.inflater, 100)
        encoder.peerTableSize(100)
        #expect(peer.decode(block(&encoder) { $0.stable(topic) }) == ["apns-topic=a.b"])
        #expect(block(&encoder) { $0.stable(topic) }.count == 1)
        // The server allows more than our own limit, to which the table grows.
        nghttp2_hd_inflate_change_table_size(peer.inflater, 65_536)
        encoder.peerTableSize(65_536)
        #expect(peer.decode(block(&encoder) { $0.stable(topic) }) == ["apns-topic=a.b"])
    }
}
