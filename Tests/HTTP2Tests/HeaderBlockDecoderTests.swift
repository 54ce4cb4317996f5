import CNghttp2
import SluiceModel
import TestSupport
import Testing

@testable import HTTP2

/// Compares the decoder and its short cut for common answers with an inflater that sees every block.
@Suite struct HeaderBlockDecoderTests {
    /// nghttp2's encoder, as a server runs it.
    final class Server {
        var deflater: OpaquePointer?
        init() { nghttp2_hd_deflate_new(&deflater, 4096) }
        deinit { nghttp2_hd_deflate_del(deflater) }

        func encode(_ fields: [(String, String, isIndexed: Bool)]) -> [UInt8] {
            var texts: [[UInt8]] = []
            for field in fields { texts += [Array(field.0.utf8), Array(field.1.utf8)] }
            let copies = texts.map { text in
                let copy = UnsafeMutablePointer<UInt8>.allocate(capacity: text.count + 1)
                copy.update(from: text, count: text.count)
                return copy
            }
            defer { copies.forEach { $0.deallocate() } }
            var pairs = fields.indices.map { index in
                nghttp2_nv(
                    name: copies[2 * index], value: copies[2 * index + 1],
                    namelen: texts[2 * index].count, valuelen: texts[2 * index + 1].count,
                    flags: fields[index].isIndexed
                        ? UInt8(NGHTTP2_NV_FLAG_NONE.rawValue) : UInt8(NGHTTP2_NV_FLAG_NO_INDEX.rawValue))
            }
            var output = [UInt8](repeating: 0, count: 4096)
            let count = nghttp2_hd_deflate_hd(deflater, &output, output.count, &pairs, pairs.count)
            precondition(count >= 0)
            return Array(output[..<count])
        }
    }

    private func decode(_ decoder: inout HeaderBlockDecoder, _ block: [UInt8]) -> ResponseFields? {
        block.withUnsafeBytes { try? decoder.decode($0) }
    }

    /// Whatever the server indexes, both tables stay the same.
    @Test(arguments: UInt64(1)...20)
    func shortCutDecodesRandomAnswersLikeTheInflater(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let server = Server()
        var decoder = HeaderBlockDecoder()
        var reference = HeaderBlockDecoder()
        for step in 0..<500 {
            let flip = { (share: Int, random: inout SeededGenerator) in
                Int.random(in: 0..<100, using: &random) < share
            }
            var fields: [(String, String, isIndexed: Bool)] = [
                (":status", flip(80, &random) ? "200" : "503", flip(95, &random))
            ]
            let names = ["apns-id", "apns-unique-id", "date", "server", "retry-after", "content-type"]
            for name in names where flip(30, &random) {
                let value =
                    name == "retry-after" ? "\(step % 100)" : random.hexadecimal(bytes: step % 3 + 1)
                fields.append((name, value, isIndexed: flip(20, &random)))
            }
            if flip(2, &random) { fields.append((":status", "200", isIndexed: flip(50, &random))) }
            if flip(2, &random) {
                nghttp2_hd_deflate_change_table_size(server.deflater, step % 2 == 0 ? 0 : 4096)
            }
            let block = server.encode(fields)
            let ours = decode(&decoder, block)
            let theirs = block.withUnsafeBytes { try? reference.inflate($0) }
            guard let ours, let theirs, ours.status == theirs.status, ours.isMalformed == theirs.isMalformed,
                ours.status == 200 || ours.retryAfterSeconds == theirs.retryAfterSeconds,
                Array(decoder.uniqueID(ours)) == Array(reference.uniqueID(theirs))
            else {
                Issue.record("seed \(seed) step \(step): \(fields) read as \(String(describing: ours))")
                return
            }
        }
    }

    /// The first answer puts the name into the table, the later ones name it by its index.
    @Test func uniqueIdentifierIsReadFromEachAnswer() throws {
        let server = Server()
        var decoder = HeaderBlockDecoder()
        for number in 0..<5 {
            let block = server.encode([
                (":status", "200", isIndexed: true),
                ("apns-unique-id", "id-\(number)", isIndexed: number == 0),
            ])
            let fields = try #require(decode(&decoder, block))
            #expect(Array(decoder.uniqueID(fields)) == Array("id-\(number)".utf8))
        }
        let plain = try #require(decode(&decoder, server.encode([(":status", "200", isIndexed: true)])))
        #expect(decoder.uniqueID(plain).isEmpty)
    }

    @Test func uniqueIdentifierOverItsLimitIsNotKept() throws {
        let server = Server()
        var decoder = HeaderBlockDecoder()
        let limit = HeaderBlockDecoder.maximumUniqueID
        for count in [limit, limit + 1] {
            let text = String(repeating: "x", count: count)
            let block = server.encode([
                (":status", "200", isIndexed: true), ("apns-unique-id", text, isIndexed: false),
            ])
            let fields = try #require(decode(&decoder, block))
            #expect(fields.status == 200)
            #expect(decoder.uniqueID(fields).count == (count == limit ? count : 0))
        }
    }

    @Test func allFieldsAreKeptWhenAsked() throws {
        let server = Server()
        var decoder = HeaderBlockDecoder(keepsFields: true)
        for number in 0..<3 {
            let block = server.encode([
                (":status", "201", isIndexed: true), ("apns-channel-id", "c\(number)", isIndexed: false),
                ("date", "now", isIndexed: true),
            ])
            _ = try #require(decode(&decoder, block))
            #expect(
                decoder.fields == [
                    AnswerField(name: "apns-channel-id", value: "c\(number)"),
                    AnswerField(name: "date", value: "now"),
                ])
        }
    }

    @Test func commonAnswersAreRecognised() {
        #expect(CommonAnswer.reads([0x88]) == 0)
        // A literal never indexed under a name of the static table (content-type, 31).
        #expect(CommonAnswer.reads([0x88, 0x1f, 0x10, 0x02, 0x61, 0x62]) == 0)
        // The same without indexing, under the dynamic table's first name.
        #expect(CommonAnswer.reads([0x88, 0x0f, 0x2f, 0x01, 0x61]) == 62)
        #expect(CommonAnswer.reads([0x88, 0x0f, 0x2f, 0x01, 0x61, 0x1f, 0x2f, 0x00]) == 62)
    }

    @Test(
        arguments: [
            [], [0x89], [0x8d],
            [0x88, 0xbe],  // an indexed field
            [0x88, 0x40, 0x01, 0x61, 0x01, 0x61],  // with indexing
            [0x88, 0x3f, 0xe1, 0x1f],  // a table size update
            [0x88, 0x00, 0x01, 0x61, 0x01, 0x61],  // a name of its own
            [0x88, 0x08, 0x03, 0x32, 0x30, 0x30],  // another status
            [0x88, 0x0f, 0x26, 0x01, 0x35],  // retry-after
            [0x88, 0x0f, 0x2f, 0x02, 0x61],  // cut short
            [0x88, 0x0f, 0x2f], [0x88, 0x0f], [0x88, 0x0f, 0x04, 0x81, 0x1f],  // the last one Huffman coded
            [0x88, 0x0f, 0x2f, 0x01, 0x61, 0x0f, 0x30, 0x01, 0x61],  // two names
            [0x88, 0x0f, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x01, 0x61],  // an endless integer
        ] as [[UInt8]])
    func otherAnswersAreLeftToTheInflater(block: [UInt8]) {
        #expect(CommonAnswer.reads(block) == nil)
    }

    /// Found by the fuzzer: padding of a Huffman code that is not all ones (RFC 7541 §5.2).
    @Test func wrongHuffmanPaddingIsAnError() {
        var decoder = HeaderBlockDecoder()
        #expect(decode(&decoder, [0x88, 0x0f, 0x04, 0x81, 0x1f])?.status == 200)
        #expect(decode(&decoder, [0x88, 0x0f, 0x04, 0x81, 0x33]) == nil)
    }

    @Test func indexBeyondTheTableIsAnError() {
        var decoder = HeaderBlockDecoder()
        #expect(decode(&decoder, [0x88, 0x0f, 0x2f, 0x01, 0x61]) == nil)
    }
}

extension CommonAnswer {
    fileprivate static func reads(_ block: [UInt8]) -> UInt32? {
        let answer = block.withUnsafeBytes { CommonAnswer($0) }
        return answer.isOK ? answer.nameIndex : nil
    }
}
