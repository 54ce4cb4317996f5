import Foundation
import SluiceModel
import Testing

@testable import LoadTest

@Suite("Load test: comparison")
struct ComparisonTests {
    @Test("Student's quantiles equal those of published tables")
    func studentQuantiles() {
        // Quantile 0.975, rounded to three decimals.
        let table: [(Double, Double)] = [
            (1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (10, 2.228), (30, 2.042),
            (120, 1.980),
        ]
        for (freedom, quantile) in table {
            #expect(abs(Statistics.studentQuantile(freedom: freedom) - quantile) < 0.002, "\(freedom)")
        }
        #expect(abs(Statistics.studentQuantile(freedom: 1e9) - 1.96) < 0.001)
    }

    @Test("intervals of two samples by hand")
    func byHand() throws {
        // Variances 1 and 1, three values each: standard error √(2/3), four degrees of freedom.
        let welch = try #require(Statistics.welch([1, 2, 3], [4, 5, 6]))
        let reach = 2.776 * (2.0 / 3).squareRoot()
        #expect(abs(welch.low - (3 - reach)) < 0.01 && abs(welch.high - (3 + reach)) < 0.01)
        // Differences 2, 3, 4: mean 3, standard error 1/√3, two degrees of freedom.
        let paired = try #require(Statistics.paired([1, 2, 3], [3, 5, 7]))
        let pairReach = 4.303 / 3.0.squareRoot()
        #expect(abs(paired.low - (3 - pairReach)) < 0.01 && abs(paired.high - (3 + pairReach)) < 0.01)
        #expect(Statistics.welch([1], [2, 3]) == nil)
        #expect(Statistics.welch([1, 1], [2, 2]) == nil)
        #expect(Statistics.paired([1, 2], [1, 2]) == nil)
    }

    /// Share of intervals that hold the true difference of 0.
    private func coverage(
        _ trials: Int, _ interval: (inout SeededGenerator) -> Statistics.Interval?
    ) -> Double {
        var random = SeededGenerator(seed: 11)
        var held = 0
        for _ in 0..<trials where interval(&random).map({ !$0.excludesZero }) ?? false { held += 1 }
        return Double(held) / Double(trials)
    }

    @Test("intervals of three runs hold the true difference in 95 of 100 comparisons")
    func coverageOfRuns() {
        func runs(_ random: inout SeededGenerator) -> [Double] {
            (0..<3).map { _ in SampleResults.normal(&random) }
        }
        let paired = coverage(800) { Statistics.paired(runs(&$0), runs(&$0)) }
        let welch = coverage(800) { Statistics.welch(runs(&$0), runs(&$0)) }
        #expect((0.93...0.97).contains(paired), "\(paired)")
        #expect((0.93...0.99).contains(welch), "\(welch)")
    }

    /// A run with given outcomes in each second.
    private func run(outcomes: [Int], started: Int64 = 0) -> RunResult {
        var result = SampleResults.run(warmUp: 0, main: 1, drain: 0, hasOutage: false)
        var latency = HDRHistogram()
        latency.record(microseconds: 5_000)
        result.seconds = outcomes.map { count in
            var second = RunResult.Second()
            second.outcomes = ["accepted": count]
            second.latency = latency
            return second
        }
        result.phases = [
            .init(
                name: "main", kind: .main, from: 0, to: Double(outcomes.count), intended: 0, produced: 0,
                outcomes: outcomes.reduce(0, +), latency: latency)
        ]
        result.environment.startedMilliseconds = started
        return result
    }

    @Test("blocks of seconds hold the true difference of correlated seconds more often than single seconds")
    func coverageOfSeconds() throws {
        func seconds(_ random: inout SeededGenerator) -> [Int] {
            var level = 0.0
            return (0..<60).map { _ in
                level = 0.6 * level + SampleResults.normal(&random)
                return Int((1_000 + 40 * level).rounded())
            }
        }
        func interval(_ random: inout SeededGenerator, block: Int?) -> Statistics.Interval? {
            guard let one = SecondsSample([run(outcomes: seconds(&random))], block: block),
                let two = SecondsSample([run(outcomes: seconds(&random))], block: block)
            else { return nil }
            let difference = (two.figures[.rate] ?? 0) - (one.figures[.rate] ?? 0)
            return Comparison.intervals(one, two, seed: 1, draws: 200)[.rate].map {
                .init(low: $0.low + difference, high: $0.high + difference)
            }
        }
        let blocks = coverage(120) { interval(&$0, block: nil) }
        let single = coverage(120) { interval(&$0, block: 1) }
        #expect(blocks >= 0.8, "\(blocks)")
        #expect(single <= blocks - 0.1, "\(single) \(blocks)")
    }

    private func line(_ name: String, _ pair: Comparison.Pair) throws -> Comparison.Line {
        try #require(pair.lines.first { $0.name == name })
    }

    @Test("runs that alternate are compared in pairs, and a slower group is shown as such")
    func pairs() throws {
        let groups = [
            Comparison.Group(
                name: "a", results: (0..<3).map { SampleResults.run(seed: UInt64($0 + 1), started: $0 * 200) }
            ),
            Comparison.Group(
                name: "b",
                results: (0..<3).map {
                    SampleResults.run(seed: UInt64($0 + 5), slower: 1.3, started: $0 * 200 + 100)
                }),
        ]
        let pair = try #require(Comparison(groups).pairs.first)
        #expect(pair.method == .paired(3))
        #expect(try line("Latency, p50", pair).verdict == "higher: worse")
        #expect(try line("Outcomes a second", pair).verdict == "no difference shown")
        #expect(try line("Jobs lost", pair).verdict == "equal; no interval")
        let page = ComparisonReport(Comparison(groups)).page()
        #expect(page.contains("The runs alternated."))
        #expect(page.contains("no difference shown"))
    }

    @Test("the method follows number and order of the runs")
    func methods() {
        func group(_ starts: [Int64]) -> Comparison.Group {
            .init(
                name: "g", results: starts.map { run(outcomes: Array(repeating: 10, count: 12), started: $0) }
            )
        }
        #expect(Comparison.method(group([0, 2, 4]), group([1, 3, 5])) == .paired(3))
        #expect(Comparison.method(group([0, 3, 4]), group([1, 2, 5])) == .paired(3))
        #expect(Comparison.method(group([0, 1, 2]), group([3, 4, 5])) == .welch(3, 3))
        #expect(Comparison.method(group([0, 2]), group([1, 3])) == .welch(2, 2))
        #expect(Comparison.method(group([0, 2]), group([1])) == .seconds)
        let short = Comparison.Group(name: "s", results: [run(outcomes: [1, 2, 3])])
        #expect(Comparison.method(group([0]), short) == .none)
    }

    @Test("single runs are compared by blocks of seconds, with the same interval for the same seed")
    func singleRuns() throws {
        func pair(slower: Double, rate: Int, seed: UInt64) throws -> Comparison.Pair {
            try #require(
                Comparison(
                    [
                        .init(name: "a", results: [SampleResults.run(seed: 2, hasOutage: false)]),
                        .init(
                            name: "b",
                            results: [
                                SampleResults.run(seed: 3, rate: rate, slower: slower, hasOutage: false)
                            ]),
                    ], seed: seed, draws: 200
                ).pairs.first)
        }
        let equal = try pair(slower: 1, rate: 200, seed: 1)
        #expect(equal.method == .seconds)
        #expect(try line("Outcomes a second", equal).verdict == "no difference shown")
        let again = try pair(slower: 1, rate: 200, seed: 1)
        let other = try pair(slower: 1, rate: 200, seed: 2)
        #expect(equal.lines.map(\.low) == again.lines.map(\.low))
        #expect(equal.lines.map(\.low) != other.lines.map(\.low))
        let faster = try pair(slower: 1.5, rate: 260, seed: 1)
        #expect(try line("Outcomes a second", faster).verdict == "higher: better")
        #expect(try line("Latency, p50", faster).verdict == "higher: worse")
        #expect(try line("CPU of workers an outcome", faster).verdict == "higher: worse")
        // The greatest value of a sample can't exceed that of the run: no interval.
        #expect(try line("Latency, greatest", faster).low == nil)
    }

    @Test("a figure that a run lacks is not compared")
    func missingFigures() throws {
        let pair = try #require(
            Comparison([
                .init(name: "a", results: [SampleResults.oneSecond]),
                .init(name: "b", results: [SampleResults.empty]),
            ]).pairs.first)
        #expect(pair.method == .none)
        #expect(try line("Latency, p99", pair).verdict == "not measured in both")
        #expect(Comparison([]).pairs.isEmpty)
        #expect(Comparison([.init(name: "a", results: [])]).groups.isEmpty)
        #expect(!ComparisonReport(Comparison([])).page().isEmpty)
    }

    @Test("warnings of a group that differ in numbers alone become one")
    func joinedWarnings() {
        let group = Comparison.Group(
            name: "g",
            results: (0..<3).map { index in
                var result = SampleResults.oneSecond
                result.environment.noise.stolenShare = index == 0 ? 0 : 0.1 * Double(index)
                return result
            })
        let page = ComparisonReport(Comparison([group])).page()
        #expect(page.contains("g, 2 of 3 runs, the first being run 2: The hypervisor gave 10 %"))
        #expect(!page.contains("gave 20 %"))
    }

    @Test("a difference beyond the axis is a number, and the interval's end an arrow")
    func cutInterval() {
        var line = Comparison.Line(name: "x", unit: "ms", isLowerBetter: true)
        (line.base, line.other, line.difference, line.low, line.high) = (10, 30, 20, -5, 45)
        let figure = IntervalPlot(identifier: "i", title: "t", lines: [line]).figure()
        #expect(figure.contains("+200 %</text>"))
        #expect(figure.components(separatedBy: #"class="arrow"#).count == 2)
        (line.difference, line.low, line.high) = (2, -1, 5)
        #expect(!IntervalPlot(identifier: "i", title: "t", lines: [line]).figure().contains("arrow"))
    }

    @Test("conditions that differ are named")
    func conditions() {
        var other = SampleResults.run(seed: 9, rate: 210)
        other.environment.processor = "Other 1"
        let page = ComparisonReport(
            Comparison(
                [.init(name: "a", results: [SampleResults.run()]), .init(name: "b", results: [other])],
                draws: 50)
        ).page()
        #expect(page.contains("The runs were made on different machines."))
        #expect(page.contains("- seed: 1\n") && page.contains("+ seed: 9\n"))
        #expect(page.contains("differs"))
    }
}
