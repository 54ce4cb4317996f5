import ArgumentParser
import DeliveryCore
import Foundation
import WorkerSimulation

/// Runs worlds of whole workers.
@main
struct Simulate: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "sluice-simulate",
        abstract: "Runs the workers that ship in simulated worlds, and checks Sluice's promises.")

    @Option(help: "kind of store: none, local, changelog or transactions") var mode = "transactions"
    @Option(help: "number of seeds") var seeds = 20
    @Option(help: "first seed") var first: UInt64 = 1
    @Option(help: "records that each world's service produces") var events = 300
    @Option(help: "longest time of a seed; a seed that takes longer ends the program with status 2")
    var secondsPerSeed = 120
    @Flag(help: "worlds without faults") var withoutFaults = false
    @Flag(help: "print each world's steps") var trace = false
    @Flag(help: "print the log lines of workers") var log = false
    @Flag(help: "go on after a broken promise") var keepGoing = false

    func run() throws {
        let modes: [String: StoreMode] = [
            "none": .none, "local": .local, "changelog": .changelog, "transactions": .transactions,
        ]
        guard let mode = modes[mode] else {
            throw ValidationError("--mode: none, local, changelog or transactions")
        }
        // Sets and dictionaries of the workers have the same order in each run.
        if ProcessInfo.processInfo.environment["SWIFT_DETERMINISTIC_HASHING"] == nil { startAgain() }
        stayOnProcessor()
        SeedWatch.start(seconds: secondsPerSeed)
        let directory = FileManager.default.temporaryDirectory.appending(path: "sluice-simulate-\(getpid())")
        try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: directory) }
        let files = try SimulationFiles(directory: directory.path(percentEncoded: false))
        SimulationLog.isPrinted = log
        var counts = WorkerCounts()
        var violations = 0
        let began = ContinuousClock.now
        for seed in first..<first + UInt64(seeds) {
            SeedWatch.begins(seed)
            let violation = try WorkerSimulation.run(
                seed: seed, events: events, mode: mode, withoutFaults: withoutFaults, files: files,
                printsTrace: trace, counts: &counts)
            guard let violation else { continue }
            print(violation)
            if !trace, !keepGoing { print(violation.trace.joined(separator: "\n")) }
            print(
                "replay: sluice-simulate --mode \(mode) --first \(seed) --seeds 1 --events \(events) --trace"
            )
            violations += 1
            if !keepGoing { break }
        }
        let seconds = (ContinuousClock.now - began) / .seconds(1)
        print("\(counts)")
        print("\(counts.turns) turns in \(seconds) s: \(Int(Double(counts.turns) / seconds)) a second")
        if violations > 0 { throw ExitCode.failure }
    }

    /// Keeps all threads on one processor, because they run in turns and hand over much faster there. Swift's Glibc module
    /// leaves both functions out.
    private func stayOnProcessor() {
        typealias Processor = @convention(c) () -> Int32
        typealias SetAffinity = @convention(c) (Int32, Int, UnsafeRawPointer) -> Int32
        guard let current = dlsym(nil, "sched_getcpu"), let set = dlsym(nil, "sched_setaffinity") else {
            return
        }
        let processor = Int(unsafeBitCast(current, to: Processor.self)())
        var bytes = [UInt8](repeating: 0, count: MemoryLayout<cpu_set_t>.size)
        guard bytes.indices.contains(processor / 8) else { return }
        bytes[processor / 8] = 1 << UInt8(processor % 8)
        _ = unsafeBitCast(set, to: SetAffinity.self)(0, bytes.count, bytes)
    }

    private func startAgain() {
        setenv("SWIFT_DETERMINISTIC_HASHING", "1", 1)
        var arguments = CommandLine.arguments.map { strdup($0) }
        arguments.append(nil)
        execv("/proc/self/exe", arguments)
    }
}
