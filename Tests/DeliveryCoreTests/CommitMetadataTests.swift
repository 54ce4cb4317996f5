import SluiceModel
import StreamScheduling
import Testing

@testable import DeliveryCore

@Suite struct CommitMetadataTests {
    @Test func noCompletedOffsetsEncodeAsEmptyText() {
        #expect(CommitMetadata.encode(watermark: 7, completed: []) == "")
        #expect(CommitMetadata.decode("", committedOffset: 7) == .init(completed: .none, problem: nil))
    }

    @Test func longRunsEncodeAsRunsAndScatteredOffsetsAsBitmap() {
        let runs = CommitMetadata.encode(watermark: 1000, completed: [1001..<500_000, 500_001..<900_000])
        #expect(runs.hasPrefix("sluice1r:"))
        #expect(runs.utf8.count < 40)
        let scattered = every(3, from: 1001, length: 1, count: 1000)
        let bitmap = CommitMetadata.encode(watermark: 1000, completed: scattered)
        #expect(bitmap.hasPrefix("sluice1b:"))
        #expect(bitmap.utf8.count < 600)
        let cases: [(String, [Range<Int64>])] = [
            (runs, [1001..<500_000, 500_001..<900_000]), (bitmap, scattered),
        ]
        for (text, ranges) in cases {
            let decoded = CommitMetadata.decode(text, committedOffset: 1000)
            #expect(decoded.completed.ranges == ranges)
            #expect(decoded.problem == nil)
        }
    }

    @Test func offsetsBelowTheWatermarkAreLeftOut() {
        #expect(
            CommitMetadata.encode(watermark: 1000, completed: [900..<950, 990..<1000, 1001..<1040])
                == CommitMetadata.encode(watermark: 1000, completed: [1001..<1040]))
    }

    /// Evidence is a pair without offsets, which earlier versions read as nothing.
    @Test(arguments: [[], [1001..<1040, 1050..<1060]])
    func evidenceIsKeptBesideRuns(ranges: [Range<Int64>]) {
        let time: Int64 = 1_764_000_000_123
        let text = CommitMetadata.encode(watermark: 1000, completed: ranges, newestMilliseconds: time)
        #expect(text.hasPrefix("sluice1r:"))
        let decoded = CommitMetadata.decode(text, committedOffset: 1000)
        #expect(decoded.completed.ranges == ranges)
        #expect(decoded.newestMilliseconds == time && decoded.problem == nil)
        #expect(CommitMetadata.decode(text, committedOffset: 999).newestMilliseconds == 0)
    }

    /// Offsets go first. Where the bitmap holds more of them than runs, or runs fill the text, there is no evidence.
    @Test func evidenceTakesNoRoomFromOffsets() {
        let scattered = every(3, from: 1001, length: 1, count: 4000)
        let plain = CommitMetadata.encode(watermark: 1000, completed: scattered)
        #expect(
            CommitMetadata.encode(watermark: 1000, completed: scattered, newestMilliseconds: 9_000_000)
                == plain)
        let tight = CommitMetadata.encode(watermark: 1, completed: [2..<9], maximumBytes: 20)
        #expect(!tight.isEmpty)
        #expect(
            CommitMetadata.encode(
                watermark: 1, completed: [2..<9], newestMilliseconds: 1_764_000_000_123, maximumBytes: 20)
                == tight)
    }

    @Test func encodedTextIsPrintable() {
        let text = CommitMetadata.encode(watermark: 1, completed: [3..<9, 12..<4000])
        #expect(text.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F })
    }

    @Test func offsetsBeyondTheSizeLimitAreDroppedFromTheTop() {
        var generator = SeededGenerator(seed: 7)
        var ranges: [Range<Int64>] = []
        var position: Int64 = 1
        for _ in 0..<20_000 {
            let lower = position + Int64.random(in: 1...90, using: &generator)
            position = lower + Int64.random(in: 1...90, using: &generator)
            ranges.append(lower..<position)
        }
        let text = CommitMetadata.encode(watermark: 1, completed: ranges)
        #expect(text.utf8.count <= 4096)
        #expect(text.utf8.count > 4000)
        let decoded = CommitMetadata.decode(text, committedOffset: 1)
        #expect(decoded.problem == nil)
        let kept = decoded.completed.ranges
        #expect(kept.count > 1000)
        #expect(kept.dropLast() == ranges.prefix(kept.count - 1))
        #expect(kept.last.map { $0.lowerBound == ranges[kept.count - 1].lowerBound } == true)
    }

    @Test(arguments: [
        ("hello", CommitMetadata.Problem.foreign),
        ("sluice", .malformed), ("sluice1", .malformed), ("sluice1r:", .malformed),
        ("sluice2r:AAAA", .unknownVersion), ("sluice1x:AAAAAAAA", .malformed),
        ("sluice1r-AAAAAAAA", .malformed),
        ("sluice1r:AAAA AAA", .malformed), ("sluice1r:AAAAAAAAA", .malformed),
        ("sluice1r:AAAAAAAA", .corrupted),
        ("\u{0}\u{1}\u{2}", .foreign),
    ])
    func invalidTextDecodesAsEmptyWithReason(text: String, problem: CommitMetadata.Problem) {
        #expect(CommitMetadata.decode(text, committedOffset: 0) == .init(completed: .none, problem: problem))
    }

    @Test func metadataOfAnotherOffsetIsIgnored() {
        let text = CommitMetadata.encode(watermark: 500, completed: [501..<510])
        #expect(CommitMetadata.decode(text, committedOffset: 499).problem == .otherOffset)
        #expect(CommitMetadata.decode(text, committedOffset: -1).problem == .otherOffset)
    }

    @Test func validChecksumWithInvalidContentIsMalformed() {
        // Right checksum, wrong content: a number cut off, one above 64 bits, and a run past the last offset.
        let bodies: [[UInt8]] = [
            [0, 0x80], [0, 1], [0] + Array(repeating: 0xFF, count: 9) + [0x02, 1],
            [0, 1] + Array(repeating: 0xFF, count: 8) + [0x7F, 1, 1],
        ]
        for body in bodies {
            let sum = CommitMetadata.checksum(form: CommitMetadata.runs, body)
            let sealed = body + [24, 16, 8, 0].map { UInt8(truncatingIfNeeded: sum >> UInt32($0)) }
            let text = "sluice1r:" + String(decoding: Base64Text.encode(sealed), as: UTF8.self)
            #expect(CommitMetadata.decode(text, committedOffset: 0).problem == .malformed, "\(body)")
        }
    }

    @Test(arguments: UInt64(1)...60)
    func metadataRoundTripsWithinTheSizeLimit(seed: UInt64) {
        var generator = SeededGenerator(seed: seed)
        let watermark = Int64.random(in: 0...1 << 50, using: &generator)
        let longest = Int64.random(in: 1...300, using: &generator)
        let limit = Int.random(in: 20...4096, using: &generator)
        var ranges: [Range<Int64>] = []
        var position = watermark
        for _ in 0..<Int.random(in: 0...4000, using: &generator) {
            let lower = position + Int64.random(in: 1...longest, using: &generator)
            position = lower + Int64.random(in: 1...longest, using: &generator)
            ranges.append(lower..<position)
        }
        let all = CompletedOffsets(ranges)
        let text = CommitMetadata.encode(watermark: watermark, completed: ranges, maximumBytes: limit)
        let decoded = CommitMetadata.decode(text, committedOffset: watermark)
        #expect(text.utf8.count <= limit)
        #expect(decoded.problem == nil)
        // Never contains an unfinished offset, and misses none below the highest kept offset.
        let past = decoded.completed.ranges.last?.upperBound ?? watermark
        let expected = CompletedOffsets(all.ranges.map { $0.clamped(to: watermark..<past) })
        #expect(decoded.completed == expected)
        if limit == 4096, ranges.count < 200 { #expect(decoded.completed == all) }
    }

    /// A changed byte must never make a record look finished.
    @Test(arguments: UInt64(1)...30)
    func damagedTextIsRejected(seed: UInt64) {
        var generator = SeededGenerator(seed: seed)
        let ranges = every(7, from: 101, length: 3, count: 40)
        let text = Array(CommitMetadata.encode(watermark: 100, completed: ranges).utf8)
        for _ in 0..<200 {
            var damaged = text
            switch Int.random(in: 0..<3, using: &generator) {
            case 0:
                let index = Int.random(in: 0..<text.count, using: &generator)
                damaged[index] ^= UInt8.random(in: 1...255, using: &generator)
            case 1: damaged.removeLast(Int.random(in: 1..<text.count, using: &generator))
            default: damaged.insert(UInt8.random(in: 0...255, using: &generator), at: text.count)
            }
            let decoded = CommitMetadata.decode(damaged, committedOffset: 100)
            if decoded.problem == nil || !decoded.completed.isEmpty {
                Issue.record("seed \(seed): accepted \(damaged)")
                return
            }
        }
    }

    @Test func adjacentAndOverlappingRangesAreMerged() {
        let set = CompletedOffsets([10..<12, 3..<5, 5..<7, 11..<20, 30..<30])
        #expect(set.ranges == [3..<7, 10..<20])
        #expect(set.count == 14)
        let members = (Int64(0)..<25).filter { set.contains($0) }
        #expect(members == Array(3..<7) + Array(10..<20))
    }

    private func every(_ stride: Int64, from start: Int64, length: Int64, count: Int64) -> [Range<Int64>] {
        (0..<count).map { index in
            let lower = start + stride * index
            return lower..<lower + length
        }
    }

    /// A committed offset is never negative. No value of a broker overflows.
    @Test(arguments: [Int64.min, -1])
    func negativeCommittedOffsetIsRejected(_ offset: Int64) {
        var body: [UInt8] = []
        var rest = UInt64(bitPattern: offset)
        while rest >= 0x80 {
            body.append(UInt8(truncatingIfNeeded: rest) | 0x80)
            rest >>= 7
        }
        body += [UInt8(rest), 0xFF]
        let sum = CommitMetadata.checksum(form: CommitMetadata.bitmap, body)
        let sealed = body + withUnsafeBytes(of: sum.bigEndian) { Array($0) }
        let text = Array("sluice1b:".utf8) + Base64Text.encode(sealed)
        let decoded = CommitMetadata.decode(text, committedOffset: offset)
        #expect(decoded == .init(completed: .none, problem: .otherOffset))
    }
}
