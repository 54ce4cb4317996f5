import SluiceModel
import TestSupport
import Testing

@testable import HTTP2

@Suite struct AddressOrderTests {
    private func v4(_ last: Int) -> SocketAddress { SocketAddress("10.0.0.\(last)", port: 443)! }
    private func v6(_ last: Int) -> SocketAddress { SocketAddress("fd00::\(last)", port: 443)! }

    @Test func familiesAlternateAndAddressesRotate() {
        var order = AddressOrder()
        let all = [v6(1), v6(2), v4(1), v4(2), v4(3)]
        #expect(order.next(all, inUse: [], now: 0) == [v6(1), v4(1), v6(2), v4(2), v4(3)])
        #expect(order.next(all, inUse: [], now: 0) == [v4(1), v6(1), v4(2), v6(2), v4(3)])
        #expect(order.next(all, inUse: [], now: 0) == [v6(2), v4(2), v6(1), v4(3), v4(1)])
        #expect(order.next(all, inUse: [], now: 0) == [v4(2), v6(2), v4(3), v6(1), v4(1)])
    }

    @Test func addressesInUseComeLaterAndFailedOnesLast() {
        var order = AddressOrder()
        order.failed(v4(1), now: 0)
        order.failed(v4(2), now: 1)
        let next = order.next([v4(1), v4(2), v4(3), v4(4)], inUse: [v4(3), v4(1)], now: 2)
        #expect(next == [v4(4), v4(3), v4(1), v4(2)])
    }

    @Test func failedAddressIsRememberedForAMinute() {
        var order = AddressOrder()
        let addresses = [v4(1), v4(2)]
        order.failed(v4(1), now: 5)
        #expect(order.next(addresses, inUse: [], now: 5 + AddressOrder.failureMemory - 1).last == v4(1))
        #expect(order.remembered == 1)
        _ = order.next(addresses, inUse: [], now: 5 + AddressOrder.failureMemory)
        #expect(order.remembered == 0)
        order.failed(v4(1), now: 10)
        order.connected(v4(1))
        #expect(order.remembered == 0)
    }

    @Test func paddingBytesDoNotMakeAddressesDiffer() {
        var padded = v4(1)
        withUnsafeMutableBytes(of: &padded.storage) { $0[12] = 7 }
        #expect(padded == v4(1))
        #expect(Set([padded, v4(1)]).count == 1)
        #expect(SocketAddress("10.0.0.1", port: 444)! != v4(1))
        #expect(SocketAddress("no address", port: 1) == nil)
        var order = AddressOrder()
        #expect(order.next([padded, v4(1), v6(1)], inUse: [], now: 0).count == 2)
    }

    /// Results are permutations in the order of the three classes. Families alternate within a class that has
    /// both. Each address without failures leads at some point.
    @Test func randomHistoriesKeepTheOrderingRules() {
        let seed = UInt64.random(in: .min ... .max)
        var random = SeededGenerator(seed: seed)
        for _ in 0..<300 {
            var order = AddressOrder()
            let sixes = Int.random(in: 0...4, using: &random)
            let fours = Int.random(in: (sixes == 0 ? 1 : 0)...5, using: &random)
            let all = (0..<sixes).map { v6($0) } + (0..<fours).map { v4($0) }
            var failedAt: [SocketAddress: UInt64] = [:]
            var now: UInt64 = 0
            for _ in 0..<20 {
                now += UInt64.random(in: 0...10_000_000_000, using: &random)
                if Bool.random(using: &random), let address = all.randomElement(using: &random) {
                    order.failed(address, now: now)
                    failedAt[address] = now
                }
                let used = Set(all.filter { _ in Int.random(in: 0..<3, using: &random) == 0 })
                let next = order.next(all.shuffled(using: &random), inUse: Array(used), now: now)
                #expect(Set(next) == Set(all) && next.count == all.count, "seed \(seed)")
                let ranks = next.map { address -> Int in
                    if let time = failedAt[address], now - time < AddressOrder.failureMemory { return 2 }
                    return used.contains(address) ? 1 : 0
                }
                #expect(ranks == ranks.sorted(), "seed \(seed)")
                for rank in 0...1 {
                    let members = zip(next, ranks).filter { $0.1 == rank }.map(\.0.family)
                    let least = min(members.count { $0 == members[0] }, members.count { $0 != members[0] })
                    for index in 1..<max(1, 2 * least) {
                        #expect(members[index] != members[index - 1], "seed \(seed)")
                    }
                }
            }
            var leaders: Set<SocketAddress> = []
            let late = now + AddressOrder.failureMemory
            for _ in 0..<2 * max(sixes, fours) {
                leaders.insert(order.next(all, inUse: [], now: late)[0])
            }
            #expect(leaders == Set(all), "seed \(seed)")
        }
    }

    @Test func rememberedFailuresAreBoundedToTheLatest() {
        var order = AddressOrder()
        for number in 0..<1000 {
            let address = SocketAddress("10.1.\(number / 250).\(number % 250)", port: 1)!
            order.failed(address, now: UInt64(number))
        }
        #expect(order.remembered == AddressOrder.capacity)
        // The latest failures are kept.
        let first = SocketAddress("10.1.0.0", port: 1)!
        let last = SocketAddress("10.1.3.249", port: 1)!
        #expect(order.next([last, first], inUse: [], now: 1000) == [first, last])
    }
}
