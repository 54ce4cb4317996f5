import Testing

@testable import DeliveryCore

@Suite struct PoolWatchTests {
    private static let second: UInt64 = 1_000_000_000

    /// Looks once a second, and carries the changes out. Returns them with their seconds.
    private func run(
        _ watch: inout PoolWatch, _ suspended: inout Set<Int>, seconds: ClosedRange<UInt64>,
        connected: Set<Int>
    ) -> [String] {
        var changes: [String] = []
        for second in seconds {
            let now = second * Self.second
            #expect(watch.isDue(at: now))
            let isSuspended = suspended
            for (pool, change) in watch.look(
                at: now, hasConnection: { connected.contains($0) }, isSuspended: { isSuspended.contains($0) })
            {
                changes.append("\(second): \(pool) \(change)")
                if change == .suspend { suspended.insert(pool) } else { suspended.remove(pool) }
            }
        }
        return changes
    }

    @Test func aPoolIsSuspendedAfterAWhileAndResumesWithItsConnection() {
        var watch = PoolWatch(pools: 2)
        var suspended: Set<Int> = []
        #expect(run(&watch, &suspended, seconds: 1...5, connected: [0, 1]) == [])
        #expect(run(&watch, &suspended, seconds: 6...20, connected: [0]) == ["16: 1 suspend"])
        #expect(
            run(&watch, &suspended, seconds: 21...40, connected: [0, 1])
                == ["21: 1 resume(isConnected: true)"])
    }

    @Test func noPoolIsSuspendedWhenAllAreDown() {
        var watch = PoolWatch(pools: 2)
        var suspended: Set<Int> = []
        #expect(run(&watch, &suspended, seconds: 1...20, connected: [1]) == ["11: 0 suspend"])
        #expect(
            run(&watch, &suspended, seconds: 21...60, connected: []) == ["21: 0 resume(isConnected: false)"])
        #expect(run(&watch, &suspended, seconds: 61...62, connected: [0]) == ["61: 1 suspend"])
    }

    @Test func aShortGapAndASinglePoolCountForNothing() {
        var watch = PoolWatch(pools: 2)
        var suspended: Set<Int> = []
        #expect(run(&watch, &suspended, seconds: 1...9, connected: [0]) == [])
        #expect(run(&watch, &suspended, seconds: 10...10, connected: [0, 1]) == [])
        #expect(run(&watch, &suspended, seconds: 11...20, connected: [0]) == [])
        #expect(!PoolWatch(pools: 1).isDue(at: 100 * Self.second))
    }

    @Test func looksAreHalfASecondApart() {
        var watch = PoolWatch(pools: 2)
        _ = watch.look(at: Self.second, hasConnection: { _ in true }, isSuspended: { _ in false })
        #expect(!watch.isDue(at: Self.second + 499_999_999))
        #expect(watch.isDue(at: Self.second + 500_000_000))
    }
}
