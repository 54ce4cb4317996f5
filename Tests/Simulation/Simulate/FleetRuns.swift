import ArgumentParser
import DeliveryCore
import DeliverySimulation
import Foundation

/// Runs of whole workers.
extension Simulate {
    /// The result of many seeds.
    private struct FleetRuns: Sendable {
        var next = 0
        var seeds = 0
        var counts = FleetCounts()
        var coverage = FleetCoverage()
        var violations: [(violation: FleetViolation, events: Int)] = []
        /// By seed: the numbers of what it enters.
        var entered: [UInt64: [Int]] = [:]
    }

    func runFleet(_ mode: StoreMode) throws {
        // The tests run the chosen seeds within these limits.
        guard let limits = chooseSeeds && limit.isEmpty ? FleetExpectation.limits : FleetLimits(limit) else {
            throw ValidationError("--limit \(limit): e.g. workers=1,shards=1,devices=4,faults=kill+freeze")
        }
        if let replay { return try replayFleet(replay, mode, limits) }
        let expected = FleetExpectation(mode)
        let start = ContinuousClock.now
        let runs = runFleets(mode, limits, expected)
        let seconds = (ContinuousClock.now - start) / .seconds(1)
        for (violation, events) in runs.violations.sorted(by: { $0.violation.seed < $1.violation.seed }) {
            for line in violation.trace where !keepGoing { print("  \(line)") }
            print(violation)
            print("replay: \(Self.replay(violation.seed, events, mode, limits))")
            guard !keepGoing else { continue }
            if shrink { printSmallest(violation, events, limits) }
            throw ExitCode(1)
        }
        print(
            "\(runs.counts.events) events over \(runs.seeds) seeds in \(text(seconds)) s: "
                + "\(Int(Double(runs.counts.events) / seconds)) events/s")
        print(runs.counts)
        if counts { for line in runs.coverage.lines { print("  \(line)") } }
        if chooseSeeds { printChosen(runs.entered) }
        if coverage, limit.isEmpty { try check(runs.coverage, expected) }
    }

    /// Fails when an entry of the list was never entered. The listed seeds, which are run as well, are enough to enter
    /// all of it.
    private func check(_ coverage: FleetCoverage, _ expected: FleetExpectation) throws {
        for transition in coverage.unexpected(expected) {
            print("not in the list of transitions: \(transition), \(coverage[transition]) times")
        }
        let missing = coverage.missing(expected)
        let count = expected.transitions.count + expected.milestones.count
        print("coverage: \(count - missing.count) of \(count) transitions and milestones")
        guard !missing.isEmpty else { return }
        print("never entered:")
        for name in missing { print("  \(name)") }
        print("choose other seeds: --fleet \(expected.mode) --seeds 20000 --events 3000 --choose-seeds")
        throw ExitCode(1)
    }

    private func replayFleet(_ seed: UInt64, _ mode: StoreMode, _ limits: FleetLimits) throws {
        var (counts, coverage) = (FleetCounts(), FleetCoverage())
        let violation = FleetSimulation.run(
            seed: seed, events: events, mode: mode, limits: limits, counts: &counts, coverage: &coverage,
            printsTrace: !shrink)
        print(counts)
        guard let violation else { return print("seed \(seed): no promise broken") }
        print(violation)
        if shrink { printSmallest(violation, events, limits) }
        throw ExitCode(1)
    }

    private static func replay(
        _ seed: UInt64, _ events: Int, _ mode: StoreMode, _ limits: FleetLimits
    ) -> String {
        let bounds = limits.description
        return ".build/release/sluice-simulate --fleet \(mode) --replay \(seed) --events \(events)"
            + (bounds.isEmpty ? "" : " --limit \(bounds)")
    }

    private func printSmallest(_ violation: FleetViolation, _ events: Int, _ limits: FleetLimits) {
        var shrinker = FleetSimulation.shrinker(violation, events: events, limits: limits)
        let smallest = shrinker.shrink()
        print("the smallest of \(shrinker.runs) runs:")
        for line in smallest.violation.trace { print("  \(line)") }
        print(smallest.violation)
        print("replay: \(Self.replay(smallest.seed, smallest.events, violation.mode, smallest.limits))")
    }

    private func runFleets(
        _ mode: StoreMode, _ limits: FleetLimits, _ expected: FleetExpectation
    ) -> FleetRuns {
        let shared = Shared(FleetRuns())
        // Seeds that enter all of the list come first.
        let listed = coverage && limit.isEmpty ? FleetExpectation.seeds(mode) : []
        let (count, firstSeed) = (listed.count + seeds, firstSeed)
        let (events, keepGoing, chooses) = (events, keepGoing, chooseSeeds)
        DispatchQueue.concurrentPerform(iterations: jobs) { _ in
            var (counts, coverage) = (FleetCounts(), FleetCoverage())
            while true {
                let next = shared.with { runs -> Int? in
                    guard runs.violations.isEmpty || keepGoing, runs.next < count else { return nil }
                    runs.next += 1
                    return runs.next - 1
                }
                guard let next else { break }
                let isListed = next < listed.count
                let seed = isListed ? listed[next] : firstSeed + UInt64(next - listed.count)
                let events = isListed ? FleetExpectation.steps : events
                let limits = isListed ? FleetExpectation.limits : limits
                var own = FleetCoverage()
                let violation = FleetSimulation.run(
                    seed: seed, events: events, mode: mode, limits: limits, counts: &counts, coverage: &own)
                coverage.add(own)
                let entered = chooses ? own.seenNumbers : nil
                shared.with { runs in
                    runs.seeds += 1
                    runs.entered[seed] = entered
                    if let violation { runs.violations.append((violation, events)) }
                }
            }
            shared.with { runs in
                runs.counts.add(counts)
                runs.coverage.add(coverage)
            }
        }
        return shared.with { $0 }
    }

    /// Prints seeds that together cover all that any of them covers: each time the one that adds most.
    private func printChosen(_ entered: [UInt64: [Int]]) {
        var open = entered.values.reduce(into: Set<Int>()) { $0.formUnion($1) }
        var chosen: [UInt64] = []
        var left = entered
        while !open.isEmpty {
            left = left.compactMapValues { list in
                let rest = list.filter { open.contains($0) }
                return rest.isEmpty ? nil : rest
            }
            guard let best = left.max(by: { ($0.value.count, $1.key) < ($1.value.count, $0.key) }) else {
                break
            }
            chosen.append(best.key)
            open.subtract(best.value)
        }
        print("chosen seeds: \(chosen.sorted().map { "\($0)" }.joined(separator: ", "))")
    }
}
