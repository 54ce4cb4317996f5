import Foundation
import Synchronization

/// A fixed calculation whose time shows how fast the machine is.
///
/// The time is the thread's processor time. So a wait for a core that the load itself keeps busy is no noise, but a
/// slower clock, a neighbour on the same core and time stolen by a hypervisor are.
struct Calibration: Sendable {
    /// Rounds of the calculation, about a millisecond.
    private let rounds: Int
    /// Least of several times before the load, in nanoseconds.
    let quietNanoseconds: Double

    /// Measures for about 30 ms. Call this before the load's processes start.
    init() {
        var rounds = 20_000
        while true {
            let time = (0..<3).map { _ in Self.time(rounds) }.min() ?? 0
            if time > 500_000 || rounds > 1 << 26 { break }
            rounds *= 2
        }
        self.rounds = rounds
        quietNanoseconds = (0..<20).map { _ in Self.time(rounds) }.min() ?? 1
    }

    /// Calculates, and returns the time ÷ the quiet time.
    func slowdown() -> Double { Self.time(rounds) / max(quietNanoseconds, 1) }

    private static func time(_ rounds: Int) -> Double {
        let start = processorTime()
        calculate(rounds)
        return processorTime() - start
    }

    /// Number that each calculation changes. Without such an effect the compiler may move a calculation away from the
    /// readings of the clock around it, or leave the calculation out.
    private static let number = Atomic<UInt64>(0x9E37_79B9_7F4A_7C15)

    @inline(never)
    private static func calculate(_ rounds: Int) {
        var value = number.load(ordering: .relaxed)
        for _ in 0..<rounds {
            value ^= value << 13
            value ^= value >> 7
            value ^= value << 17
        }
        number.store(value, ordering: .relaxed)
    }

    private static func processorTime() -> Double {
        var time = timespec()
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        return Double(time.tv_sec) * 1e9 + Double(time.tv_nsec)
    }
}
