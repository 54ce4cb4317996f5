import Foundation
import SluiceModel
import Testing

@testable import LoadTest

@Suite("Load test: arrivals")
struct ArrivalTests {
    private func all(_ arrivals: Arrivals) -> [Double] {
        var arrivals = arrivals
        var times: [Double] = []
        while let time = arrivals.next() { times.append(time) }
        return times
    }

    private let segments = [
        Arrivals.Segment(from: 1, to: 11, rate: 200), Arrivals.Segment(from: 20, to: 30, rate: 800),
    ]

    @Test func constantArrivalsHaveTheExactCountAndEvenSpacing() {
        let times = all(Arrivals(segments, isRandom: false, seed: 1))
        #expect(times.count == 10_000)
        #expect(times.count { $0 < 11 } == 2_000)
        #expect(times.allSatisfy { (1..<11).contains($0) || (20..<30).contains($0) })
        #expect(zip(times, times.dropFirst()).prefix(1_999).allSatisfy { abs($1 - $0 - 0.005) < 1e-9 })
    }

    @Test(arguments: [UInt64(1), 2, 3])
    func poissonArrivalsHaveTheExpectedCountAndExponentialGaps(seed: UInt64) {
        let times = all(Arrivals(segments, isRandom: true, seed: seed))
        // Five standard deviations.
        #expect(abs(Double(times.count) - 10_000) < 500)
        #expect(abs(Double(times.count { $0 < 11 }) - 2_000) < 225)
        #expect(zip(times, times.dropFirst()).allSatisfy { $0 <= $1 })
        let gaps = zip(times, times.dropFirst()).filter { $0.0 > 20 }.map { $1 - $0 }
        let mean = gaps.reduce(0, +) / Double(gaps.count)
        let variance = gaps.reduce(0) { $0 + ($1 - mean) * ($1 - mean) } / Double(gaps.count)
        #expect(abs(mean * 800 - 1) < 0.06)
        #expect(
            abs(variance.squareRoot() * 800 - 1) < 0.1, "an exponential distribution deviates by its mean")
        #expect(abs(Double(gaps.count { $0 * 800 > 1 }) / Double(gaps.count) - 0.3679) < 0.03)
    }

    @Test func sameSeedGivesTheSameTimesAndAnotherSeedOthers() {
        let first = all(Arrivals(segments, isRandom: true, seed: 5))
        #expect(first == all(Arrivals(segments, isRandom: true, seed: 5)))
        #expect(first != all(Arrivals(segments, isRandom: true, seed: 6)))
    }

    @Test func burstsCarryTheWholeLoadOfTheirIntervals() {
        let bursts = Arrivals.bursts(.init(from: 10, to: 20, rate: 100), every: 5, length: 0.5)
        let times = all(Arrivals(bursts, isRandom: false, seed: 1))
        #expect(times.count == 1_000)
        #expect(times.allSatisfy { (10..<10.5).contains($0) || (15..<15.5).contains($0) })
    }

    @Test func noRateGivesNoArrival() {
        #expect(all(Arrivals([.init(from: 0, to: 10, rate: 0)], isRandom: true, seed: 1)).isEmpty)
        #expect(all(Arrivals([], isRandom: false, seed: 1)).isEmpty)
    }

    @Test func traceOfTimesIsPlayedAsRecorded() throws {
        let trace = try ArrivalTrace("# recorded\n0\n0.5\n\n0.5\n2.25\n9\n", name: "t")
        #expect(all(trace.arrivals(from: 10, to: 15, scale: 1, seed: 1)) == [10, 10.5, 10.5, 12.25])
    }

    @Test func traceOfCountsSpreadsJobsToTheNextLine() throws {
        let trace = try ArrivalTrace("0,100\n1,0\n3,50", name: "t")
        let times = all(trace.arrivals(from: 0, to: 100, scale: 1, seed: 1))
        #expect(times.count { $0 < 1 } == 100)
        #expect(times.count { (1..<3).contains($0) } == 0)
        #expect(times.count { (3..<5).contains($0) } == 50)
        #expect(times.count == 150)
    }

    @Test func scaledTraceKeepsItsRates() throws {
        let counts = try ArrivalTrace("0,1000\n10,1000", name: "t")
        let scaled = all(counts.arrivals(from: 0, to: 100, scale: 0.1, seed: 1))
        #expect(scaled.count == 200)
        #expect(scaled.allSatisfy { $0 < 2 })
        let lines = (0..<1_000).map { "\(Double($0) / 100)" }.joined(separator: "\n")
        let single = all(try ArrivalTrace(lines, name: "t").arrivals(from: 0, to: 100, scale: 0.1, seed: 1))
        #expect(single.count == 100)
        #expect(single.allSatisfy { $0 < 1 })
    }

    @Test(arguments: [
        ("", "t: has no arrivals"), ("1\nx", "t:2: `x` is not `seconds` or `seconds,jobs`"),
        ("1\n0.5", "t:2: the times of a trace ascend"), ("1,5\n2", "t:2: either all lines"),
        ("1,-5", "t:1: `-5` is no number of jobs"), ("-1", "t:1: `-1`"), ("1,2,3", "t:1:"), ("nan", "t:1:"),
    ])
    func mistakeInATraceIsReportedWithItsLine(text: String, message: String) {
        let fault = #expect(throws: ArrivalTrace.Fault.self) { try ArrivalTrace(text, name: "t") }
        #expect(fault?.description.hasPrefix(message) == true, "\(fault?.description ?? "")")
    }
}

@Suite("Load test: devices")
struct DevicePopulationTests {
    @Test(arguments: [0.5, 1.0, 1.1, 2.0])
    func zipfRanksHaveTheirProbabilities(exponent: Double) {
        let zipf = ZipfDistribution(count: 1_000, exponent: exponent)
        var random = SeededGenerator(seed: 7)
        var counts = [Int](repeating: 0, count: 1_001)
        let draws = 200_000
        for _ in 0..<draws { counts[zipf.draw(&random)] += 1 }
        let weights = (1...1_000).map { 1 / pow(Double($0), exponent) }
        let all = weights.reduce(0, +)
        #expect(counts[0] == 0)
        for rank in [1, 2, 3, 10, 100] {
            let expected = Double(draws) * weights[rank - 1] / all
            #expect(abs(Double(counts[rank]) - expected) < 5 * expected.squareRoot() + 1, "rank \(rank)")
        }
        let tail = Double(draws) * weights[500...].reduce(0, +) / all
        #expect(abs(Double(counts[501...].reduce(0, +)) - tail) < 5 * tail.squareRoot() + 1)
    }

    @Test(arguments: [1, 2, 3, 10, 97, 1_000, 65_536])
    func eachRankHasItsOwnDevice(count: Int) {
        let population = DevicePopulation(.init(count: count), seed: 3)
        #expect(Set((0..<count).map { population.device(rank: $0) }).count == count)
        #expect((0..<count).allSatisfy { population.device(rank: $0) < UInt32(count) })
    }

    @Test func offlineShareIsKept() {
        let population = DevicePopulation(.init(count: 20_000, offlineShare: 0.25, returnOver: 4), seed: 9)
        let offline = population.offline
        #expect(abs(offline.count - 5_000) < 310)
        #expect(offline.allSatisfy { population.isOffline($0) })
        let times = offline.map { population.returnTime($0, begin: 10) }
        #expect(times.allSatisfy { (10..<14).contains($0) })
        #expect(abs(times.reduce(0, +) / Double(times.count) - 12) < 0.1)
    }

    @Test func tokensChangeAsOftenAsDemanded() {
        let population = DevicePopulation(.init(count: 6_000, churnPerMinute: 600), seed: 2)
        let changes = (0..<UInt32(6_000)).reduce(0) {
            $0 + Int(population.generation(of: $1, at: 120)) - Int(population.generation(of: $1, at: 0))
        }
        #expect(abs(changes - 1_200) < 175)
    }
}
