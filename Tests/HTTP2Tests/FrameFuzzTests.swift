import Foundation
import FrameFuzzing
import Testing

/// Replays the fuzzer's corpus, its former failures and its seed conversations without the fuzzer.
@Suite struct FrameFuzzTests {
    private static let corpus = URL(filePath: #filePath).deletingLastPathComponent()
        .deletingLastPathComponent().appending(path: "Fuzz/Corpus")

    private static func inputs(_ folder: String) throws -> [(name: String, bytes: Data)] {
        try FileManager.default.contentsOfDirectory(
            at: corpus.appending(path: folder), includingPropertiesForKeys: nil
        )
        .map { ($0.lastPathComponent, try Data(contentsOf: $0)) }
    }

    @Test func corpusInputsBreakNoInvariant() throws {
        let inputs = try Self.inputs("frames")
        try #require(inputs.count > 100)
        for (name, bytes) in inputs {
            let violation = bytes.withUnsafeBytes { FrameDriver.run($0) }
            #expect(violation == nil, "frames/\(name): \(violation!)")
        }
    }

    @Test(arguments: FrameSeeds.all.map(\.name)) func seedsBreakNoInvariantAtAnyChunkSize(
        _ name: String
    ) throws {
        let seed = try #require(FrameSeeds.all.first { $0.name == name })
        // In one piece, byte by byte, and in two sizes between.
        for chunk in 0..<4 as Range<UInt8> {
            var bytes = seed.bytes
            bytes[0] = bytes[0] & 0xcf | chunk << 4
            let violation = bytes.withUnsafeBytes { FrameDriver.run($0) }
            #expect(violation == nil, "\(violation!)")
        }
    }
}
