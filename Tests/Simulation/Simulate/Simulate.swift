import ArgumentParser
import DeliveryCore
import DeliverySimulation
import Foundation

/// Runs the deterministic simulation of the delivery core over many seeds.
@main
struct Simulate: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "sluice-simulate",
        abstract:
            "Drives the delivery core through seeded worlds full of faults, and checks what Sluice promises.",
        discussion: """
            Each seed is a world of its own: Kafka, APNs, devices, stores, clocks and workers, all of which fail, and \
            at last a healthy part in which everything must end. The first broken promise ends the run with exit \
            status 1, its seed, and the last steps before it.
            """)

    @Option(help: "How many seeds to run.")
    var seeds = 1000

    @Option(help: "The first seed; the others follow it.")
    var firstSeed: UInt64 = 1

    @Option(help: "Steps of each seed's faulty part.")
    var events = 10_000

    @Option(help: "Threads.")
    var jobs = 1

    @Option(help: "A seed that takes longer than so many seconds doesn't end: exit status 2.")
    var secondsPerSeed = 120

    @Option(help: "Run this seed alone and print every step.")
    var replay: UInt64?

    @Option(help: "Whole workers in this mode: none, local, changelog, transactions.")
    var fleet: String?

    @Flag(help: "Go on after a broken promise: one line for each seed that breaks one.")
    var keepGoing = false

    @Flag(help: "Print what happened and how often, all of it.")
    var counts = false

    @Option(help: "Bounds of the world: workers=1,shards=1,partitions=1,devices=4,apps=1,faults=kill+freeze.")
    var limit = ""

    @Flag(help: "Look for the smallest run that breaks the same promise.")
    var shrink = false

    @Flag(
        help:
            "With --fleet: print states and transitions that were never entered; exit status 1 if there were enough seeds."
    )
    var coverage = false

    @Flag(help: "With --fleet: print a few of the seeds that together enter all that any of them enters.")
    var chooseSeeds = false

    func validate() throws {
        guard seeds > 0, events > 0, (1...256).contains(jobs) else {
            throw ValidationError("--seeds, --events and --jobs must be at least 1")
        }
    }

    func run() throws {
        if let fleet {
            guard let mode = StoreMode.allCases.first(where: { "\($0)" == fleet }) else {
                throw ValidationError("--fleet \(fleet): none, local, changelog or transactions")
            }
            return try runFleet(mode)
        }
        guard let limits = SimulationLimits(limit) else {
            throw ValidationError("--limit \(limit): e.g. workers=1,shards=1,apps=1,faults=crash+stop")
        }
        if let replay {
            var counts = SimulationCounts()
            let violation = Simulation.run(
                seed: replay, events: events, limits: limits, counts: &counts, printsTrace: !shrink)
            if let violation {
                print(violation)
                if shrink { printSmallest(violation, limits) }
                throw ExitCode(1)
            }
            return print("seed \(replay): \(counts.events) events, no promise broken")
        }
        let start = ContinuousClock.now
        let result = runAll(limits)
        let seconds = (ContinuousClock.now - start) / .seconds(1)
        print(
            "\(result.counts.events) events over \(result.seeds) seeds in \(text(seconds)) s: "
                + "\(Int(Double(result.counts.events) / seconds)) events/s on \(jobs) threads")
        if counts {
            for what in Happening.allCases {
                print("  \(what): \(result.counts[what])")
            }
        } else if !result.counts.missing.isEmpty {
            print("never happened: " + result.counts.missing.map { "\($0)" }.joined(separator: ", "))
        }
        guard let violation = result.violation else { return print("no promise broken") }
        for line in violation.trace { print("  \(line)") }
        print(violation)
        print("replay: \(Self.replay(violation.seed, events, limits))")
        if shrink { printSmallest(violation, limits) }
        throw ExitCode(1)
    }

    private static func replay(_ seed: UInt64, _ events: Int, _ limits: SimulationLimits) -> String {
        let bounds = limits.description
        return ".build/release/sluice-simulate --replay \(seed) --events \(events)"
            + (bounds.isEmpty ? "" : " --limit \(bounds)")
    }

    private func printSmallest(_ violation: Violation, _ limits: SimulationLimits) {
        var shrinker = Simulation.shrinker(violation, events: events, limits: limits)
        let smallest = shrinker.shrink()
        print("the smallest of \(shrinker.runs) runs:")
        for line in smallest.violation.trace { print("  \(line)") }
        print(smallest.violation)
        print("replay: \(Self.replay(smallest.seed, smallest.events, smallest.limits))")
    }

    func text(_ seconds: Double) -> String { "\((seconds * 10).rounded() / 10)" }

    /// Ends the process when a seed never ends: its thread can't be stopped.
    private func watch(_ progress: Shared<Progress>) {
        let (limit, events) = (Duration.seconds(secondsPerSeed), events)
        Thread.detachNewThread {
            while true {
                Thread.sleep(forTimeInterval: 1)
                let late = progress.with { progress in progress.running.first { .now - $0.value > limit }?.key
                }
                guard let late else { continue }
                print("seed \(late) does not end")
                print("replay: .build/release/sluice-simulate --replay \(late) --events \(events)")
                Foundation.exit(2)
            }
        }
    }

    private func runAll(_ limits: SimulationLimits) -> Progress {
        let progress = Shared(Progress(next: firstSeed))
        let last = firstSeed + UInt64(seeds) - 1
        let (events, keepGoing) = (events, keepGoing)
        watch(progress)
        DispatchQueue.concurrentPerform(iterations: jobs) { _ in
            while true {
                let seed = progress.with { progress -> UInt64? in
                    guard progress.violation == nil || keepGoing, progress.next <= last else { return nil }
                    progress.next += 1
                    progress.running[progress.next - 1] = .now
                    return progress.next - 1
                }
                guard let seed else { return }
                var counts = SimulationCounts()
                let violation = Simulation.run(
                    seed: seed, events: events, limits: limits, counts: &counts)
                progress.with {
                    $0.counts.add(counts)
                    $0.seeds += 1
                    $0.running[seed] = nil
                    if let violation, keepGoing { print(violation) }
                    if $0.violation == nil { $0.violation = violation }
                }
            }
        }
        return progress.with { $0 }
    }
}

private struct Progress: Sendable {
    var next: UInt64
    var seeds = 0
    /// Since when.
    var running: [UInt64: ContinuousClock.Instant] = [:]
    var counts = SimulationCounts()
    var violation: Violation?

    init(next: UInt64) { self.next = next }
}

/// A value behind a lock.
// Sendable: the value is only touched with the lock held.
final class Shared<Value: Sendable>: @unchecked Sendable {
    private var value: Value
    private let lock = NSLock()

    init(_ value: Value) { self.value = value }

    func with<Result>(_ body: (inout Value) -> Result) -> Result {
        lock.withLock { body(&value) }
    }
}
