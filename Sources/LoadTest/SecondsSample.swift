import Foundation
import SluiceModel

/// Seconds of the main phases of some runs, from which samples are drawn again and again (circular block bootstrap).
///
/// Neighbouring seconds resemble each other, so that blocks of them are drawn, not single seconds.
struct SecondsSample {
    /// Figures that a sample has.
    enum Figure: CaseIterable {
        case rate, meanLatency, p50, p90, p99, p999, cpuPerOutcome
    }

    private struct Chunk {
        var outcomes: Double
        var seconds: Double
        /// Processor time of the workers in seconds; nil when it was not measured.
        var cpu: Double?
        /// Indices of `values`, with counts.
        var latency: [(bucket: Int, count: Int)]
    }

    static let leastSeconds = 10
    private static let mostChunks = 300
    /// Chunks of each run.
    private var runs: [[Chunk]] = []
    /// Latencies in milliseconds, ascending.
    private var values: [Double] = []

    /// Length of a block; nil: by the number of chunks.
    private let block: Int?

    /// nil when a run has fewer than ten whole seconds of main phases.
    init?(_ results: [RunResult], block: Int? = nil) {
        self.block = block
        var seconds: [[(second: RunResult.Second, workers: Set<String>)]] = []
        for result in results {
            let indices = result.mainSecondIndices
            guard indices.count >= Self.leastSeconds else { return nil }
            let workers = Set(result.processes.filter { $0.role == .worker }.map(\.name))
            seconds.append(indices.map { (result.seconds[$0], workers) })
        }
        guard !seconds.isEmpty else { return nil }
        let buckets = Set(seconds.joined().flatMap { $0.second.latency.buckets.map(\.microseconds) }).sorted()
        values = buckets.map { Double($0) / 1_000 }
        let places = Dictionary(uniqueKeysWithValues: zip(buckets, buckets.indices))
        for run in seconds {
            let width = (run.count + Self.mostChunks - 1) / Self.mostChunks
            runs.append(
                stride(from: 0, to: run.count, by: width).map { start in
                    let part = run[start..<min(start + width, run.count)]
                    var sum = part[start].second
                    for other in part.dropFirst() { sum.add(other.second) }
                    let times = sum.cpuSeconds.filter { part[start].workers.contains($0.key) }.values
                    return Chunk(
                        outcomes: Double(sum.allOutcomes), seconds: Double(part.count),
                        cpu: times.isEmpty ? nil : times.reduce(0, +),
                        latency: sum.latency.buckets.map { (places[$0.microseconds] ?? 0, $0.count) })
                })
        }
    }

    /// Figures of the seconds as they were.
    var figures: [Figure: Double] { figures(of: runs.map { $0.map { _ in 1 } }) }

    /// Figures of a sample that is drawn with replacement, in blocks, as many seconds from each run as it has.
    func drawn(_ random: inout SeededGenerator) -> [Figure: Double] {
        figures(
            of: runs.map { run in
                let length = block ?? Self.block(of: run.count)
                var weights = [Int](repeating: 0, count: run.count)
                var left = run.count
                while left > 0 {
                    let start = Int.random(in: 0..<run.count, using: &random)
                    for step in 0..<min(length, left) { weights[(start + step) % run.count] += 1 }
                    left -= length
                }
                return weights
            })
    }

    /// Length of a block: 1.5 times the cube root of the number of chunks, 2 at least.
    static func block(of count: Int) -> Int { max(2, Int((1.5 * cbrt(Double(count))).rounded(.up))) }

    private func figures(of weights: [[Int]]) -> [Figure: Double] {
        var counts = [Int](repeating: 0, count: values.count)
        var (outcomes, seconds, cpu, cpuOutcomes) = (0.0, 0.0, 0.0, 0.0)
        for (run, runWeights) in zip(runs, weights) {
            for (chunk, weight) in zip(run, runWeights) where weight > 0 {
                outcomes += chunk.outcomes * Double(weight)
                seconds += chunk.seconds * Double(weight)
                if let time = chunk.cpu {
                    cpu += time * Double(weight)
                    cpuOutcomes += chunk.outcomes * Double(weight)
                }
                for (bucket, count) in chunk.latency { counts[bucket] += count * weight }
            }
        }
        var figures: [Figure: Double] = [:]
        if seconds > 0 { figures[.rate] = outcomes / seconds }
        if cpuOutcomes > 0 { figures[.cpuPerOutcome] = cpu * 1e6 / cpuOutcomes }
        let total = counts.reduce(0, +)
        guard total > 0 else { return figures }
        figures[.meanLatency] = zip(counts, values).reduce(0) { $0 + Double($1.0) * $1.1 } / Double(total)
        let wanted: [(Figure, Double)] = [(.p50, 0.5), (.p90, 0.9), (.p99, 0.99), (.p999, 0.999)]
        var next = 0
        var seen = 0
        for (count, value) in zip(counts, values) where next < wanted.count {
            seen += count
            while next < wanted.count, Double(seen) >= wanted[next].1 * Double(total) {
                figures[wanted[next].0] = value
                next += 1
            }
        }
        return figures
    }
}
