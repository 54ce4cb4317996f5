import SluiceModel
import Testing

@testable import DeliveryCore

/// Pushes whose connections end again and again are sent alone, and end when they alone are the cause.
@Suite struct IsolationTests {
    /// Sends a push that loses its connection.
    private func lose(_ harness: inout DeliveryHarness, _ name: String) {
        guard let slot = harness.begin(named: name) else {
            Issue.record("\(name) doesn't wait")
            return
        }
        harness.fail(slot, processed: true, isLoss: true)
    }

    private func isIsolated(_ harness: borrowing DeliveryHarness, _ name: String) -> Bool? {
        harness.names.first { $0.value == name }.map { harness.machine.isIsolated($0.key) }
    }

    @Test func aPushThatLosesTwoConnectionsIsIsolated() {
        var harness = DeliveryHarness()
        harness.push("a")
        lose(&harness, "a")
        #expect(isIsolated(harness, "a") == false)
        lose(&harness, "a")
        #expect(isIsolated(harness, "a") == true)
        #expect(harness.others == [.isolated(topic: 0)])
        #expect(harness.waiting == ["a"])
    }

    @Test func othersOfTheConnectionAreClearedByTheirAnswers() {
        var harness = DeliveryHarness()
        for name in ["a", "b"] { harness.push(name, device: name) }
        for _ in 0..<2 { for name in ["a", "b"] { lose(&harness, name) } }
        let slot = harness.begin(named: "b")!
        harness.answer(slot, .internalServerError)
        #expect(isIsolated(harness, "b") == false, "it is retried with the others")
        #expect(isIsolated(harness, "a") == true)
    }

    @Test func aResetOrAnExpiredRequestIsNoLoss() {
        var harness = DeliveryHarness()
        harness.push("a")
        for _ in 0..<3 {
            harness.pass(milliseconds: 900_000)
            harness.fail(harness.begin()!, processed: true)
        }
        #expect(isIsolated(harness, "a") == false)
    }

    /// Ends a push's connections until it is isolated, and then while it is alone.
    private func loseAlone(_ harness: inout DeliveryHarness, _ times: Int, serving: Bool) {
        for _ in 0..<times {
            harness.pass(milliseconds: 60_000)
            if serving {
                harness.push("other \(harness.now.wallMilliseconds)", device: "other")
                let slot = harness.begin(named: harness.waiting.first { $0 != "a" }!)!
                harness.accept(slot)
            }
            lose(&harness, "a")
        }
    }

    @Test func aPushThatEndsItsOwnConnectionsIsUndeliverable() {
        var harness = DeliveryHarness { $0.isolatedAttempts = 3 }
        harness.push("a")
        for _ in 0..<2 { lose(&harness, "a") }
        loseAlone(&harness, 2, serving: true)
        #expect(!harness.ended.contains { $0.hasPrefix("a ") })
        loseAlone(&harness, 1, serving: true)
        #expect(harness.ended.last == "a undeliverable endsConnections")
    }

    @Test func aReceiptOrANewerPushDecidesInPlaceOfTheConnection() {
        for isConfirmed in [false, true] {
            var harness = DeliveryHarness { $0.isolatedAttempts = 1 }
            harness.push("a", collapse: "c") { $0.delivery = .confirm }
            for _ in 0..<2 { lose(&harness, "a") }
            harness.pass(milliseconds: 60_000)
            let slot = harness.begin(named: "a")!
            if isConfirmed {
                _ = harness.machine.receipt(
                    DeliveryHarness.device("d"), notificationKey: DeliveryHarness.key("a"),
                    occurred: .at(harness.now.wallMilliseconds), partition: 0, at: harness.now)
                harness.drain()
            } else {
                harness.push("b", collapse: "c")
            }
            harness.push("other", device: "other")
            harness.accept(harness.begin(named: "other")!)
            harness.fail(slot, processed: true, isLoss: true)
            #expect(harness.ended.last == (isConfirmed ? "a confirmed" : "a superseded by b"))
        }
    }

    @Test func aServerThatAcceptsNothingIsTheCauseItself() {
        var harness = DeliveryHarness { $0.isolatedAttempts = 1 }
        harness.push("a")
        for _ in 0..<2 { lose(&harness, "a") }
        loseAlone(&harness, 20, serving: false)
        #expect(harness.ended == [])
    }

    @Test func aPushThatIsNotAloneIsNotTheCause() {
        var harness = DeliveryHarness { $0.isolatedAttempts = 1 }
        for name in ["a", "b", "c"] { harness.push(name, device: name) }
        for _ in 0..<2 { for name in ["a", "b", "c"] { lose(&harness, name) } }
        #expect(harness.machine.isolationRoom(0) == 1)
        // An answer makes room for one more.
        harness.accept(harness.begin(named: "c")!)
        #expect(harness.machine.isolationRoom(0) == 2)
        let (a, b) = (harness.begin(named: "a")!, harness.begin(named: "b")!)
        #expect(harness.machine.isolationRoom(0) == 0)
        harness.push("other", device: "other")
        harness.accept(harness.begin(named: "other")!)
        harness.fail(a, processed: true, isLoss: true)
        harness.fail(b, processed: true, isLoss: true)
        #expect(!harness.ended.contains { $0.hasSuffix("endsConnections") })
        #expect(harness.machine.isolationRoom(0) == 1, "they are sent one by one")
    }

    @Test func isolatedPushesStayInMemory() {
        var harness = DeliveryHarness {
            $0.storeAfterMilliseconds = 500
            $0.storeIsDurable = true
        }
        harness.push("a")
        for _ in 0..<8 {
            lose(&harness, "a")
            harness.pass(milliseconds: 500)
            #expect(harness.waiting == ["a"])
        }
        #expect(harness.stored == [:])
    }

    @Test func aNewerPushTakesThePlaceOfAnIsolatedOne() {
        var harness = DeliveryHarness()
        harness.push("a", collapse: "c")
        for _ in 0..<2 { lose(&harness, "a") }
        harness.push("b", collapse: "c")
        #expect(isIsolated(harness, "b") == true, "it waits where the older push waited")
        harness.accept(harness.begin(named: "b")!)
        #expect(harness.ended.last == "b accepted")
    }

    @Test func mistakenlyIsolatedPushesAreSentFasterAndFaster() {
        var harness = DeliveryHarness { $0.capacity = 256 }
        let names = (0..<200).map { "\($0)" }
        for name in names { harness.push(name, device: name) }
        for _ in 0..<2 { for name in names { lose(&harness, name) } }
        var rounds = 0
        while !harness.waiting.isEmpty {
            rounds += 1
            var slots: [UInt32] = []
            for _ in 0..<harness.machine.isolationRoom(0) {
                guard !harness.waiting.isEmpty, let slot = harness.begin() else { break }
                slots.append(slot)
            }
            for slot in slots { harness.accept(slot) }
        }
        #expect(rounds == 8)
        #expect(harness.ended.count == 200)
    }
}
