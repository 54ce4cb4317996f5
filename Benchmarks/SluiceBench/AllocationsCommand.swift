import ArgumentParser
import CAllocationCounter
import EventLoop
import Glibc

struct AllocationsCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "allocations",
        abstract:
            "Count the heap allocations of the loop's thread while pushes go through the connection layer.",
        discussion:
            "Swift's (objects, array storage, memory taken by hand), and all calls of malloc and its kin, whose callers are "
            + "listed. The counter is checked first: a measurement that would not see an allocation fails.")

    @OptionGroup var load: LoadOptions
    @Option(help: "Pushes to measure.") var pushes = 200_000
    @Option(help: "Pushes before the measurement begins.") var warmUp = 200_000

    func run() throws {
        sluice_allocations_prepare()
        try Self.checkCounter()
        var settings = load.settings
        settings.warmUp = .pushes(warmUp)
        settings.measured = .pushes(pushes)
        settings.countsAllocations = true
        settings.sources = [.init(slots: load.inFlight * load.connections)]
        let result = try PushLoad(settings).run()
        let counts = result.allocations
        var line = result.line
        line.add("swift_allocations", Int(counts.swift))
        line.add("mallocs", Int(counts.mallocs))
        line.add("swift_allocations_per_push", Double(counts.swift) / Double(result.pushes))
        line.add("mallocs_per_push", Double(counts.mallocs) / Double(result.pushes))
        line.add("callers", counts.mallocs > 0 ? Self.callers() : "")
        line.print()
    }

    static func callers() -> String {
        withUnsafeTemporaryAllocation(of: CChar.self, capacity: 16_384) { text in
            sluice_allocations_describe(text.baseAddress, Int32(text.count))
            return String(cString: text.baseAddress!)
        }
    }

    // MARK: - The counter's own check

    private final class Object {
        var value: Int
        init(_ value: Int) { self.value = value }
    }

    @inline(never) private static func makeObject(_ value: Int) -> Object { Object(value) }
    @inline(never) private static func makeArray(_ count: Int) -> [Int] { Array(repeating: 1, count: count) }
    @inline(never) private static func makeRaw(_ count: Int) -> UnsafeMutableRawPointer {
        .allocate(byteCount: count, alignment: 16)
    }

    /// Makes `rounds` allocations of each kind of Swift, and as many of C.
    private static func allocate(rounds: Int) -> Int {
        var sum = 0
        for round in 1...rounds {
            let object = makeObject(round)
            let array = makeArray(round)
            let raw = makeRaw(round)
            let copy = strdup("sluice")
            sum += object.value + array.count + Int(bitPattern: raw) & 1 + Int(copy![0])
            raw.deallocate()
            free(copy)
        }
        return sum
    }

    /// Makes known numbers of allocations of each kind, and compares them with the counter.
    static func checkCounter() throws {
        let rounds = 100
        sluice_allocations_begin(0)
        var sum = allocate(rounds: rounds)
        let counts = sluice_allocations_end()
        sluice_allocations_begin(0)
        for round in 1...rounds { sum &+= round }
        let none = sluice_allocations_end()
        let expected = UInt64(rounds)
        guard sum > 0, counts.swift == 3 * expected, counts.mallocs == 4 * expected, none.mallocs == 0 else {
            throw LoadError(
                description:
                    "the counter does not count: of \(3 * rounds) allocations of Swift \(counts.swift), of "
                    + "\(4 * rounds) in all \(counts.mallocs), of none \(none.mallocs)")
        }
    }

    /// Makes known numbers of allocations on another thread and on this one, and compares them with the counter of all
    /// threads, which must not see this thread's.
    static func checkCounterOfAllThreads() throws {
        let rounds = 100
        let loop = try EventLoop(name: "check")
        loop.start()
        _ = loop.runBlocking { allocate(rounds: 1) }
        var sum = 0
        func count(_ rounds: Int) -> sluice_allocation_counts {
            sluice_allocations_begin_all(0, "check")
            sum += loop.runBlocking { rounds == 0 ? 1 : allocate(rounds: rounds) } + allocate(rounds: 1_000)
            return sluice_allocations_end_all()
        }
        _ = count(0)
        // The loop itself may allocate when it is given work.
        let own = count(0)
        let counted = count(rounds)
        loop.stop()
        loop.join()
        let difference = Int(counted.swift) - Int(own.swift)
        guard sum > 0, own.swift < rounds, difference == 3 * rounds, counted.named == counted.swift else {
            throw LoadError(
                description:
                    "the counter does not count: of \(3 * rounds) allocations of Swift on another thread "
                    + "\(difference), by the thread's name \(counted.named), of none \(own.swift)")
        }
    }
}
