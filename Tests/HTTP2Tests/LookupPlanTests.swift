import Testing

@testable import HTTP2

/// Tests which look-ups run, by scripts of requests, results and times.
@Suite struct LookupPlanTests {
    private let apns = LookupPlan.Name(host: "api.push.apple.com", port: 443)
    private let proxy = LookupPlan.Name(host: "proxy.example", port: 3128)
    private let address = SocketAddress("10.0.0.1", port: 443)!

    @Test func requestsForTheSameNameShareALookUp() {
        var plan = LookupPlan()
        let first = plan.ask(apns, now: 0)
        let second = plan.ask(apns, now: 5)
        let other = plan.ask(proxy, now: 6)
        #expect(first.start == LookupPlan.Start(number: 1, name: apns))
        #expect(second.start == nil)
        #expect(other.start == LookupPlan.Start(number: 2, name: proxy))
        #expect(plan.running == 2)
        let end = plan.ended(1, [address], now: 7)
        #expect(end.answered == [first.ticket, second.ticket])
        #expect(end.start == nil)
        // The next request starts a new look-up.
        #expect(plan.ask(apns, now: 8).start?.number == 3)
        #expect(plan.ended(99, [address], now: 9).answered.isEmpty)
    }

    @Test func hangingLookUpIsRestartedUpToThreadLimit() {
        var plan = LookupPlan()
        var now: UInt64 = 0
        var started = 0
        for _ in 0..<10 {
            if plan.ask(apns, now: now).start != nil { started += 1 }
            #expect(plan.ask(apns, now: now + 1).start == nil)
            now += LookupPlan.patience
        }
        #expect(started == LookupPlan.threadsPerName)
        // Another name still has threads.
        #expect(plan.ask(proxy, now: now).start != nil)
        #expect(plan.waiting == 21)
        // The first answer serves all requests for the name.
        let end = plan.ended(1, [address], now: now)
        #expect(end.answered.count == 20)
        #expect(plan.waiting == 1)
        #expect(plan.running == LookupPlan.threadsPerName)
        // Late look-ups answer no request, but their result serves new requests for a while.
        #expect(plan.ended(2, [address], now: now).answered.isEmpty)
        #expect(plan.ask(apns, now: now + LookupPlan.lateMemory - 1).addresses == [address])
        #expect(plan.ended(3, [address], now: now).answered.isEmpty)
        #expect(plan.ask(apns, now: now + LookupPlan.lateMemory).addresses == nil)
    }

    @Test func failureAnswersOnlyRequestsOfThatLookUp() {
        var plan = LookupPlan()
        let first = plan.ask(apns, now: 0)
        let second = plan.ask(apns, now: LookupPlan.patience)
        #expect(plan.ended(first.start!.number, nil, now: LookupPlan.patience + 1).answered == [first.ticket])
        #expect(plan.waiting == 1)
        plan.withdraw(second.ticket)
        #expect(plan.waiting == 0)
        // A failure without waiting requests is forgotten.
        #expect(plan.ended(second.start!.number, nil, now: LookupPlan.patience + 2).answered.isEmpty)
        #expect(plan.ask(apns, now: LookupPlan.patience + 3).start != nil)
    }

    @Test func lookUpThreadsAreBoundedAndQueueInOrder() {
        var plan = LookupPlan()
        var starts: [LookupPlan.Start] = []
        for number in 0..<40 {
            if let start = plan.ask(.init(host: "host-\(number)", port: 1), now: 0).start {
                starts.append(start)
            }
        }
        #expect(starts.count == LookupPlan.threads)
        #expect(plan.running == LookupPlan.threads)
        // A withdrawn request leaves the queue; the others run in order.
        let late = plan.ask(.init(host: "late", port: 1), now: 0)
        plan.withdraw(late.ticket)
        var next = LookupPlan.threads
        while let start = starts.popLast() {
            let end = plan.ended(start.number, [address], now: 1)
            #expect(end.answered.count == 1)
            if let started = end.start {
                #expect(started.name.host == "host-\(next)")
                next += 1
                starts.insert(started, at: 0)
            }
        }
        #expect(next == 40)
        #expect(plan.running == 0)
        #expect(plan.waiting == 0)
    }
}

/// Tests a pool's known addresses, for a resolver that doesn't answer.
@Suite struct KnownAddressesTests {
    private func address(_ last: Int) -> SocketAddress { SocketAddress("10.0.0.\(last)", port: 443)! }
    private let temporary = ResolverError(host: "a", reason: "try again", isTemporary: true)

    @Test func latestConnectedAddressComesFirstWhenTheResolverFails() {
        var known = KnownAddresses()
        var step = known.apply(.late, host: "a", afterMilliseconds: 50)
        #expect(step.addresses.isEmpty)
        #expect(step.change == .silent(host: "a", reason: "no answer in 50 ms", known: 0))
        #expect(known.apply(.failed(temporary), host: "a", afterMilliseconds: 1).change == nil)
        step = known.apply(.addresses([address(1), address(2), address(3)]), host: "a", afterMilliseconds: 1)
        #expect(step.addresses == [address(1), address(2), address(3)])
        #expect(step.change == .answers(host: "a"))
        known.connected(address(3))
        known.connected(address(9))
        known.connected(address(2))
        step = known.apply(.failed(temporary), host: "a", afterMilliseconds: 1)
        #expect(step.addresses == [address(2), address(9), address(3), address(1)])
        #expect(step.change == .silent(host: "a", reason: "try again", known: 4))
        #expect(step.error == nil)
        #expect(known.apply(.late, host: "a", afterMilliseconds: 1).change == nil)
    }

    /// An unknown name is an answer of the resolver.
    @Test func unknownNameYieldsAnErrorInsteadOfKnownAddresses() {
        var known = KnownAddresses()
        known.connected(address(1))
        _ = known.apply(.late, host: "a", afterMilliseconds: 1)
        let step = known.apply(
            .failed(ResolverError(host: "a", reason: "unknown")), host: "a", afterMilliseconds: 1)
        #expect(step.addresses.isEmpty)
        #expect(step.error?.reason == "unknown")
        #expect(step.change == .answers(host: "a"))
    }

    @Test func numberOfKnownAddressesIsBounded() {
        var known = KnownAddresses()
        for number in 0..<200 { known.connected(address(number)) }
        _ = known.apply(.addresses((0..<200).map(address)), host: "a", afterMilliseconds: 1)
        let step = known.apply(.late, host: "a", afterMilliseconds: 1)
        #expect(step.addresses.count == 2 * KnownAddresses.capacity)
        #expect(step.addresses.first == address(199))
    }
}
