import Foundation
import Synchronization

/// Names the seed that runs, when the seed doesn't end in time or traps.
enum SeedWatch {
    private static let seed = Atomic<UInt64>(0)
    /// Begin of the seed, in seconds of the monotonic clock.
    private static let began = Atomic<Int>(now)
    /// Handlers of the traps' signals before those of this type.
    // nonisolated(unsafe): written before the first seed, and then read by a trap alone.
    private nonisolated(unsafe) static var previous: [Int32: sigaction] = [:]

    private static var now: Int { Int(ProcessInfo.processInfo.systemUptime) }

    /// Ends the process with status 2 once a seed takes longer than so many seconds.
    static func start(seconds: Int) {
        for signal in [SIGILL, SIGTRAP, SIGSEGV, SIGBUS, SIGABRT] {
            var action = sigaction()
            action.__sigaction_handler.sa_handler = { signal in
                SeedWatch.report("traps")
                // The trap repeats itself once this handler returns.
                sigaction(signal, &SeedWatch.previous[signal]!, nil)
            }
            var before = sigaction()
            sigaction(signal, &action, &before)
            previous[signal] = before
        }
        Thread.detachNewThread {
            while now - began.load(ordering: .relaxed) <= seconds { Thread.sleep(forTimeInterval: 1) }
            report("does not end")
            _exit(2)
        }
    }

    static func begins(_ number: UInt64) {
        seed.store(number, ordering: .relaxed)
        began.store(now, ordering: .relaxed)
    }

    private static func report(_ what: String) {
        print("seed \(seed.load(ordering: .relaxed)) \(what)")
        fflush(nil)
    }
}
