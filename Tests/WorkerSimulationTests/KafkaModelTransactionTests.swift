import Testing

@testable import SimulatedKafka

/// Transactions of the simulated Kafka.
struct KafkaModelTransactionTests {
    @Test func recordsBecomeVisibleWithTheCommit() {
        let kafka = calm()
        let client = kafka.transactionalClient()
        #expect(kafka.produce(client, 0) == .noTransaction)
        kafka.begin(client)
        #expect(kafka.result(client) == .done)
        #expect(kafka.produce(client, 1) == .queued)
        kafka.pass(second)
        #expect(kafka.reports(client).map(\.failure) == [nil])
        kafka.append(Kafka.Record(payload: 2, key: 0), to: .outcomes, 0)
        #expect(kafka.lastStableOffset(.outcomes, 0) == 0)
        #expect(kafka.readAll().isEmpty)
        #expect(kafka.readAll(isolation: .uncommitted) == [1, 2])
        kafka.commitTransaction(client)
        #expect(kafka.result(client) == .done)
        #expect(kafka.readAll() == [1, 2])
        #expect(kafka.payloads() == [1, 2])
        // The marker takes an offset of its own.
        #expect(kafka.endOffset(.outcomes, 0) == 3)
    }

    @Test func abortedRecordsAreInvisible() {
        let kafka = calm()
        let client = kafka.transactionalClient()
        kafka.begin(client)
        _ = kafka.produce(client, 1)
        kafka.pass(second)
        // A record that isn't sent yet is purged.
        _ = kafka.produce(client, 2, to: .outcomes, 1)
        kafka.abortTransaction(client)
        #expect(kafka.produce(client, 3) == .noTransaction)
        kafka.pass(second)
        let events = kafka.events(client)
        let reports = events.compactMap { event -> Kafka.Report? in
            if case .report(let report) = event { report } else { nil }
        }
        #expect(reports.map(\.failure) == [nil, .purged])
        guard case .step(.abort, .done)? = events.last else {
            Issue.record("no result")
            return
        }
        kafka.begin(client)
        _ = kafka.produce(client, 4)
        kafka.commitTransaction(client)
        #expect(kafka.result(client) == .done)
        #expect(kafka.readAll() == [4])
        #expect(kafka.readAll(isolation: .uncommitted) == [1, 4])
        #expect(kafka.payloads() == [4])
        #expect(kafka.payloads(.outcomes, 1).isEmpty)
    }

    @Test func commitWaitsForDeliveryReports() {
        let kafka = calm()
        let client = kafka.transactionalClient()
        kafka.begin(client)
        kafka.setLeader(.outcomes, 0, isAway: true)
        _ = kafka.produce(client, 1)
        kafka.commitTransaction(client)
        kafka.pass(5 * second)
        #expect(kafka.isBusy(client))
        kafka.setLeader(.outcomes, 0, isAway: false)
        #expect(kafka.result(client) == .done)
        #expect(kafka.payloads() == [1])
    }

    @Test func transactionWithLostRecordCanOnlyBeAborted() {
        let kafka = calm()
        let client = kafka.transactionalClient()
        kafka.begin(client)
        _ = kafka.produce(client, 1)
        var record = Kafka.Record(payload: 2, key: 0)
        record.size = .tooLargeForTopic
        _ = kafka.produce(client, record, to: .outcomes, 0, opaque: 2)
        kafka.commitTransaction(client)
        #expect(kafka.result(client) == .abortable(.recordLost))
        #expect(kafka.produce(client, 3) == .noTransaction)
        kafka.commitTransaction(client)
        #expect(kafka.result(client) == .abortable(.recordLost))
        kafka.abortTransaction(client)
        #expect(kafka.result(client) == .done)
        #expect(kafka.payloads().isEmpty)
    }

    @Test func partitionsBecomeVisibleOneByOne() {
        let kafka = calm { $0.markerDelay = 1_000_000...500_000_000 }
        let client = kafka.transactionalClient()
        kafka.begin(client)
        for partition in 0..<3 { _ = kafka.produce(client, partition, to: .outcomes, partition) }
        kafka.commitTransaction(client)
        while kafka.steps(client).last != .done { kafka.pass(millisecond) }
        var seen: Set<Int> = []
        while seen.count < 4, kafka.now < 60 * second {
            seen.insert((0..<3).count { !kafka.payloads(.outcomes, $0).isEmpty })
            kafka.pass(millisecond)
            if kafka.payloads(.outcomes, 0) + kafka.payloads(.outcomes, 1) + kafka.payloads(.outcomes, 2) == [
                0, 1, 2,
            ] {
                break
            }
        }
        #expect(seen.count > 1)
        // A later transaction of another partition completes without this leader.
        kafka.setLeader(.outcomes, 0, isAway: true)
        kafka.begin(client)
        _ = kafka.produce(client, 3, to: .outcomes, 1)
        kafka.commitTransaction(client)
        #expect(kafka.result(client) == .done)
    }

    @Test func markerWaitsForItsLeaderAndDelaysTheNextTransaction() {
        let kafka = calm()
        let client = kafka.transactionalClient()
        kafka.begin(client)
        _ = kafka.produce(client, 1, to: .outcomes, 0)
        _ = kafka.produce(client, 2, to: .outcomes, 1)
        kafka.pass(second)
        kafka.setLeader(.outcomes, 0, isAway: true)
        kafka.commitTransaction(client)
        #expect(kafka.result(client) == .done)
        #expect(kafka.payloads(.outcomes, 0).isEmpty)
        #expect(kafka.payloads(.outcomes, 1) == [2])
        kafka.begin(client)
        _ = kafka.produce(client, 3, to: .outcomes, 1)
        kafka.pass(second)
        #expect(kafka.reports(client).isEmpty)
        kafka.setLeader(.outcomes, 0, isAway: false)
        kafka.pass(second)
        #expect(kafka.payloads(.outcomes, 0) == [1])
        #expect(kafka.reports(client).count == 1)
    }

    @Test func newClientFencesTheOlderOne() {
        let kafka = calm()
        let old = kafka.transactionalClient()
        kafka.begin(old)
        _ = kafka.produce(old, 1)
        kafka.pass(second)
        _ = kafka.events(old)
        let new = kafka.transactionalClient()
        #expect(kafka.readAll(isolation: .uncommitted) == [1])
        #expect(kafka.lastStableOffset(.outcomes, 0) == kafka.endOffset(.outcomes, 0))
        // The older client's record and commit are refused, even while the newer client's transaction has the
        // partition.
        kafka.begin(new)
        _ = kafka.produce(new, 4)
        kafka.pass(second)
        _ = kafka.produce(old, 2)
        kafka.pass(second)
        #expect(kafka.reports(old).map(\.failure) == [.fenced])
        kafka.abortTransaction(old)
        kafka.pass(second)
        let events = kafka.events(old)
        guard case .producerFailed(.fenced)? = events.first,
            case .step(.abort, .fatal(.fenced))? = events.last
        else {
            Issue.record("not fenced")
            return
        }
        #expect(kafka.produce(old, 3) == .failed(.fenced))
        kafka.commitTransaction(new)
        #expect(kafka.result(new) == .done)
        #expect(kafka.payloads() == [4])
    }

    @Test func timedOutTransactionIsAbortedAndItsClientFenced() {
        let kafka = calm { $0.transactionTimeout = 10 * second }
        let client = kafka.transactionalClient()
        kafka.begin(client)
        _ = kafka.produce(client, 1)
        kafka.pass(5 * second)
        #expect(kafka.lastStableOffset(.outcomes, 0) == 0)
        kafka.pass(6 * second)
        #expect(kafka.lastStableOffset(.outcomes, 0) == 2)
        _ = kafka.events(client)
        kafka.commitTransaction(client)
        #expect(kafka.result(client) == .fatal(.fenced))
        #expect(kafka.payloads().isEmpty)
    }

    @Test func openTransactionOutlivesItsProcess() {
        let kafka = calm { $0.transactionTimeout = 60 * second }
        let client = kafka.transactionalClient()
        kafka.begin(client)
        _ = kafka.produce(client, 1)
        kafka.pass(second)
        kafka.crash(client)
        kafka.pass(10 * second)
        #expect(kafka.lastStableOffset(.outcomes, 0) == 0)
        let next = kafka.transactionalClient()
        #expect(kafka.lastStableOffset(.outcomes, 0) == 2)
        kafka.begin(next)
        #expect(kafka.result(next) == .done)
        #expect(kafka.payloads().isEmpty)
    }

    @Test func unavailableCoordinatorMakesStepsRetriable() {
        let kafka = calm { $0.stepTimeout = 2 * second }
        let client = kafka.addClient()
        kafka.makeProducer(client, transactionalID: 0)
        kafka.setTransactionCoordinator(isAway: true)
        kafka.initialize(client)
        #expect(kafka.initialize(client) == false)
        #expect(kafka.result(client, within: 3 * second) == .retriable(.timedOut))
        // Another step doesn't fit the state.
        kafka.begin(client)
        #expect(kafka.result(client) == .misuse)
        kafka.initialize(client)
        kafka.setTransactionCoordinator(isAway: false)
        #expect(kafka.result(client) == .done)
    }

    @Test func commitThatTimedOutMayHaveTakenPlace() {
        var tookPlace = 0
        for wait in 0..<8 {
            let kafka = calm { $0.stepTimeout = 2 * second }
            let client = kafka.transactionalClient()
            kafka.begin(client)
            _ = kafka.produce(client, 1)
            kafka.pass(second)
            _ = kafka.events(client)
            kafka.commitTransaction(client)
            kafka.pass(UInt64(wait) * millisecond / 2)
            kafka.setTransactionCoordinator(isAway: true)
            guard kafka.result(client, within: 3 * second) == .retriable(.timedOut) else { continue }
            if kafka.transactions[0].decision == .commit { tookPlace += 1 }
            kafka.setTransactionCoordinator(isAway: false)
            kafka.pass(second)
            // The commit completes in the background.
            #expect(kafka.payloads() == [1])
            kafka.commitTransaction(client)
            #expect(kafka.result(client) == .done)
            #expect(kafka.payloads() == [1])
        }
        #expect(tookPlace > 0)
    }

    // MARK: Offsets

    @Test func offsetsBecomeStableWithTheMarker() {
        let kafka = calm { $0.markerDelay = 300_000_000...300_000_000 }
        let client = kafka.transactionalClient()
        kafka.join(client)
        kafka.settle([client], for: 5 * second)
        kafka.begin(client)
        _ = kafka.produce(client, 1)
        kafka.sendOffsets(
            client, [.init(partition: 0, offset: 5, metadata: "a")], kafka.membership(client)!)
        #expect(kafka.result(client) == .done)
        #expect(kafka.committedOffset(0).offset == -1)
        #expect(kafka.committed(client, 0)?.1 == .unstableOffsets)
        #expect(kafka.committed(client, 1)?.1 == nil)
        kafka.commitTransaction(client)
        kafka.pass(100 * millisecond)
        #expect(kafka.steps(client).last == .done)
        #expect(kafka.committed(client, 0, within: 50 * millisecond)?.1 == .unstableOffsets)
        kafka.pass(second)
        #expect(kafka.committed(client, 0)?.0 == .init(partition: 0, offset: 5, metadata: "a"))
        #expect(kafka.commits.map(\.origin) == [.transaction(0)])
    }

    @Test func abortedOffsetsAreNeverCommitted() {
        let kafka = calm()
        let client = kafka.transactionalClient()
        kafka.join(client)
        kafka.settle([client], for: 5 * second)
        kafka.begin(client)
        kafka.sendOffsets(client, [.init(partition: 0, offset: 5)], kafka.membership(client)!)
        #expect(kafka.result(client) == .done)
        kafka.abortTransaction(client)
        #expect(kafka.result(client) == .done)
        #expect(kafka.committed(client, 0)?.0?.offset == -1)
        #expect(kafka.commits.isEmpty)
        #expect(kafka.group.unstable[0] == 0)
    }

    @Test func offsetsOfALostMembershipAreRefused() {
        let kafka = calm { $0.sessionTimeout = 10 * second }
        let client = kafka.transactionalClient()
        let other = kafka.member()
        kafka.join(client)
        kafka.settle([client, other], for: 20 * second)
        let old = kafka.membership(client)!
        kafka.begin(client)
        _ = kafka.produce(client, 1)
        kafka.pass(second)
        kafka.stop(client)
        kafka.settle([other], for: 30 * second)
        kafka.resume(client)
        kafka.sendOffsets(client, [.init(partition: 0, offset: 5)], old)
        kafka.pass(100 * millisecond)
        let result = kafka.steps(client).last
        #expect(result == .abortable(.unknownMember) || result == .fatal(.fenced))
        #expect(kafka.committedOffset(0).offset == -1)
    }

    @Test func offsetsOfAnOldGenerationAreRefused() {
        let kafka = calm { $0.transactionTimeout = 600 * second }
        let client = kafka.transactionalClient()
        kafka.join(client)
        kafka.settle([client], for: 5 * second)
        let old = kafka.membership(client)!
        let other = kafka.member()
        kafka.settle([client, other], for: 20 * second)
        kafka.begin(client)
        kafka.sendOffsets(client, [.init(partition: 0, offset: 5)], old)
        #expect(kafka.result(client) == .abortable(.illegalGeneration))
        kafka.commitTransaction(client)
        #expect(kafka.result(client) == .abortable(.illegalGeneration))
        kafka.abortTransaction(client)
        #expect(kafka.result(client) == .done)
        // Offsets without a member are not checked.
        kafka.begin(client)
        kafka.sendOffsets(client, [.init(partition: 0, offset: 5)], .unfenced)
        #expect(kafka.result(client) == .done)
    }

    @Test func repeatedCommitReturnsTheResultOfATimedOutOne() {
        let kafka = calm()
        let client = kafka.transactionalClient()
        kafka.begin(client)
        _ = kafka.produce(client, 1)
        kafka.pass(second)
        kafka.commitTransaction(client, timeout: 1000)
        #expect(kafka.result(client) == .retriable(.timedOut))
        #expect(kafka.payloads() == [1])
        kafka.abortTransaction(client)
        #expect(kafka.result(client) == .misuse)
        kafka.commitTransaction(client)
        #expect(kafka.result(client) == .done)
    }
}
