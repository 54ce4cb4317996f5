import Foundation
import TestSupport
import Testing

@testable import Kafka

/// Clients whose destruction takes long. Other tests destroy clients too, so counts are compared by their growth.
@Suite(.serialized) struct ClientDestructionTests {
    @Test func aDestructionThatEndsIsAwaited() {
        let hasRun = Flag()
        #expect(ClientDestruction.run(patience: 60) { hasRun.set() })
        #expect(hasRun.isSet)
    }

    @Test func aDestructionThatTakesLongHoldsNobodyUpAndCountsUntilItEnds() throws {
        let mayEnd = Flag()
        let hasEnded = Flag()
        #expect(
            !ClientDestruction.run(patience: 0) {
                while !mayEnd.isSet { usleep(1000) }
                hasEnded.set()
            })
        let kept = ClientDestruction.keptClients
        #expect(kept > 0)
        mayEnd.set()
        try eventually("the client is destroyed") { hasEnded.isSet && ClientDestruction.keptClients < kept }
    }

    private final class Flag: Sendable {
        private let lock = NSLock()
        nonisolated(unsafe) private var value = false

        var isSet: Bool { lock.withLock { value } }

        func set() { lock.withLock { value = true } }
    }
}
