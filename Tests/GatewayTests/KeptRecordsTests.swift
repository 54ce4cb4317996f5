import SluiceModel
import Testing

@testable import Gateway

@Suite struct KeptRecordsTests {
    private func text(_ bytes: UnsafeRawBufferPointer?) -> String? {
        bytes.map { String(decoding: $0, as: UTF8.self) }
    }

    private func keep(_ number: UInt32, in kept: inout KeptRecords, bytes: Int = 8) {
        let key = Array("key \(number)".utf8)
        let value = [UInt8](repeating: UInt8(truncatingIfNeeded: number), count: bytes)
        key.withUnsafeBytes { key in
            value.withUnsafeBytes { value in
                kept.keep(
                    number, .outcome, partition: Int32(number & 7), key: key, value: value,
                    opaque: UInt(number))
            }
        }
    }

    private func isThere(_ number: UInt32, in kept: borrowing KeptRecords, bytes: Int = 8) -> Bool {
        guard let entry = kept[number] else { return false }
        let parts = kept.parts(of: entry)
        return entry.opaque == UInt(number) && entry.partition == Int32(number & 7)
            && text(parts.key) == "key \(number)" && parts.value?.count == bytes && parts.headers.isEmpty
            && parts.value?.allSatisfy { $0 == UInt8(truncatingIfNeeded: number) } == true
    }

    @Test func keptRecordsAreFoundWhileOlderOnesAreForgotten() {
        var kept = KeptRecords()
        // The handles overflow to zero during the test.
        let first = UInt32.max - 4_000
        var oldest = first
        for step in UInt32(0)..<20_000 {
            keep(first &+ step, in: &kept)
            guard step % 3_000 == 2_999 else { continue }
            for number in [oldest, oldest &+ 700, first &+ step] {
                let isFound = isThere(number, in: kept)
                #expect(isFound, "step \(step): \(number)")
            }
            oldest = first &+ step &- 500
            kept.forget(before: oldest)
            let isGone = kept[oldest &- 1] == nil
            #expect(isGone && kept.count == 501)
        }
        kept.forget(before: first &+ 20_000)
        #expect(kept.count == 0 && kept.byteCount == 0)
    }

    @Test func handlesNeverKeptFindNoRecord() {
        var kept = KeptRecords()
        keep(5, in: &kept)
        keep(9, in: &kept)
        let (first, last) = (isThere(5, in: kept), isThere(9, in: kept))
        let isBefore = kept[4] == nil
        #expect(first && last && isBefore)
        kept.forget(before: 3)
        #expect(kept.count == 5)
        kept.forget(before: 100)
        #expect(kept.count == 0)
        keep(200, in: &kept)
        let isLater = isThere(200, in: kept)
        #expect(isLater)
    }

    @Test func memoryOfForgottenBacklogIsReleased() {
        var kept = KeptRecords()
        for number in UInt32(0)..<70 { keep(number, in: &kept, bytes: 1 << 20) }
        kept.forget(before: 70)
        keep(70, in: &kept)
        let isFound = isThere(70, in: kept)
        #expect(isFound && kept.byteCount == 14)
    }

    @Test func absentAndEmptyPartsStayDistinct() {
        var kept = KeptRecords()
        let empty = UnsafeRawBufferPointer(start: nil, count: 0)
        kept.keep(0, .change, partition: 3, key: empty, value: nil, opaque: 1)
        kept.keep(1, .change, partition: 3, key: nil, value: empty, opaque: 2)
        let parts = [UInt32(0), 1].map { kept.parts(of: kept[$0]!) }
        #expect(parts[0].key != nil && parts[0].value == nil)
        #expect(parts[1].key == nil && parts[1].value != nil)
    }

    @Test func headersAreKeptUnchanged() {
        var row = ByteWriter()
        let headers: [(name: String, value: [UInt8]?)] = [("a", [1, 2, 3]), ("", nil), ("später", [])]
        for header in headers {
            Array(header.name.utf8).withUnsafeBytes { name in
                if let value = header.value {
                    value.withUnsafeBytes { HeaderBytes.append(name, $0, to: &row) }
                } else {
                    HeaderBytes.append(name, nil, to: &row)
                }
            }
        }
        let decoded = HeaderBytes.decode(row.bytes)
        #expect(decoded.map(\.name) == headers.map(\.name))
        #expect(decoded.map(\.value) == headers.map(\.value))
    }
}
