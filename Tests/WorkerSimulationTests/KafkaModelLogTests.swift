import Testing

@testable import SimulatedKafka

/// Logs, readers and plain producers of the simulated Kafka.
struct KafkaModelLogTests {
    // MARK: Producers

    @Test func recordsArriveInOrderAndEachHasOneReport() {
        let kafka = calm()
        let client = kafka.addClient()
        kafka.makeProducer(client)
        for payload in 0..<30 {
            #expect(kafka.produce(client, payload, to: .outcomes, payload % 3) == .queued)
        }
        kafka.pass(second)
        let reports = kafka.reports(client)
        #expect(reports.count == 30)
        #expect(reports.allSatisfy { $0.failure == nil })
        for partition in 0..<3 {
            #expect(kafka.payloads(.outcomes, partition) == (0..<10).map { $0 * 3 + partition })
            #expect(reports.filter { $0.partition == partition }.map(\.offset) == Array(0..<10))
        }
        #expect(kafka.queued(client) == 0)
    }

    @Test func lostAnswerDoesNotDuplicateARecord() {
        var found = 0
        for wait in 0..<12 {
            let kafka = calm()
            let client = kafka.addClient()
            kafka.makeProducer(client)
            _ = kafka.produce(client, 7)
            kafka.pass(UInt64(wait) * millisecond)
            kafka.setLeader(.outcomes, 0, isAway: true)
            let wasAppended = kafka.endOffset(.outcomes, 0) == 1 && kafka.queued(client) == 1
            if wasAppended && kafka.reports(client).isEmpty { found += 1 }
            kafka.pass(10 * second)
            kafka.setLeader(.outcomes, 0, isAway: false)
            kafka.pass(second)
            #expect(kafka.payloads() == [7])
            #expect(kafka.queued(client) == 0)
        }
        #expect(found > 0)
    }

    @Test func timedOutRecordMayBeInTheLog() {
        var inLog = 0
        var late = 0
        for wait in 0..<24 {
            let kafka = calm {
                $0.deliveryTimeout = 5 * second
                $0.lateAppendPerMille = wait % 2 == 0 ? 1000 : 0
            }
            let client = kafka.addClient()
            kafka.makeProducer(client)
            _ = kafka.produce(client, 7)
            kafka.pass(UInt64(wait / 2) * millisecond)
            kafka.setLeader(.outcomes, 0, isAway: true)
            kafka.pass(2 * second)
            // This record is never sent.
            if kafka.queued(client) > 0 { _ = kafka.produce(client, 8) }
            kafka.pass(10 * second)
            let reports = kafka.reports(client)
            if reports.count == 2 {
                #expect(reports.map(\.failure) == [.timedOut, .timedOut])
                #expect(reports.map(\.isKnownUnwritten) == [false, true])
            }
            let before = kafka.endOffset(.outcomes, 0)
            kafka.setLeader(.outcomes, 0, isAway: false)
            kafka.pass(second)
            if reports.count == 2, before == 1 { inLog += 1 }
            if kafka.endOffset(.outcomes, 0) > before { late += 1 }
            #expect(!kafka.payloads().contains(8))
        }
        #expect(inLog > 0 && late > 0)
    }

    @Test func refusedRecordsReportTheirReasons() {
        let kafka = calm { $0.queueLimit = 2 }
        let client = kafka.addClient()
        kafka.makeProducer(client)
        var record = Kafka.Record(payload: 1, key: 1)
        record.size = .tooLargeForClient
        #expect(kafka.produce(client, record, to: .outcomes, 0, opaque: 1) == .failed(.tooLarge))
        record.size = .tooLargeForTopic
        #expect(kafka.produce(client, record, to: .outcomes, 0, opaque: 1) == .queued)
        #expect(kafka.produce(client, 2) == .queued)
        #expect(kafka.produce(client, 3) == .queueFull)
        kafka.pass(second)
        let reports = kafka.reports(client)
        #expect(reports.map(\.failure) == [.tooLarge, .tooLarge], "a batch is refused as a whole")
        #expect(reports.allSatisfy { $0.isKnownUnwritten })
        kafka.setUnauthorised(.outcomes, true)
        #expect(kafka.produce(client, 4) == .queued)
        kafka.pass(second)
        #expect(kafka.reports(client).map(\.failure) == [.notAuthorised])
        kafka.setUnauthorised(.outcomes, false)
        #expect(kafka.payloads() == [])
        #expect(kafka.produce(client, 5, to: .outcomes, 3) == .failed(.unknownPartition))
    }

    @Test func crashLosesUnsentRecords() {
        let kafka = calm()
        let client = kafka.addClient()
        kafka.makeProducer(client)
        _ = kafka.produce(client, 1)
        kafka.setLeader(.outcomes, 0, isAway: true)
        kafka.pass(second)
        kafka.crash(client)
        kafka.setLeader(.outcomes, 0, isAway: false)
        kafka.pass(second)
        #expect(kafka.payloads().isEmpty)
        #expect(kafka.nextEvent(client) == nil)
    }

    // MARK: Reading

    @Test func readersPassOffsetGaps() {
        let kafka = calm()
        kafka.append(Kafka.Record(payload: 1, key: 1), to: .jobs, 0)
        kafka.append(Kafka.Record(payload: 2, key: 1), to: .jobs, 0, gap: 5)
        let client = kafka.addClient()
        kafka.read(client, .jobs, 0, from: 1)
        kafka.pass(second)
        var offsets: [Int64] = []
        kafka.poll(client, atMost: 10) { offsets.append($0.offset) }
        #expect(offsets == [6])
        #expect(kafka.position(client, .jobs, 0) == 7)
        // A new record wakes a waiting reader.
        kafka.poll(client, atMost: 10) { _ in }
        kafka.append(Kafka.Record(payload: 3, key: 1), to: .jobs, 0)
        kafka.pass(second)
        #expect(kafka.hasRecords(client))
        kafka.pause(client, .jobs, 0)
        #expect(kafka.poll(client, atMost: 10) { _ in } == 0)
        kafka.resume(client, .jobs, 0)
        #expect(kafka.poll(client, atMost: 10) { _ in } == 1)
    }

    @Test func partitionWithoutLeaderIsNotRead() {
        let kafka = calm()
        kafka.append(Kafka.Record(payload: 1, key: 1), to: .jobs, 0)
        kafka.setLeader(.jobs, 0, isAway: true)
        let client = kafka.addClient()
        kafka.read(client, .jobs, 0, from: 0)
        let reference = kafka.listOffsets(client, .jobs, 0)
        kafka.pass(second)
        #expect(kafka.poll(client, atMost: 10) { _ in } == 0)
        guard case .listed(reference, _, _, .leaderAway)? = kafka.nextEvent(client) else {
            Issue.record("no answer")
            return
        }
        kafka.setLeader(.jobs, 0, isAway: false)
        let other = kafka.listOffsets(client, .jobs, 0)
        kafka.pass(second)
        #expect(kafka.poll(client, atMost: 10) { _ in } == 1)
        guard case .listed(other, 0, 1, nil)? = kafka.nextEvent(client) else {
            Issue.record("no answer")
            return
        }
    }

    @Test func resetPolicyDecidesBeyondTheLogEnd() {
        for policy in [Kafka.ResetPolicy.earliest, .latest, .none] {
            let kafka = calm()
            for payload in 0..<10 {
                kafka.append(Kafka.Record(payload: payload, key: 1), to: .jobs, 0)
            }
            let client = kafka.addClient()
            kafka.read(client, .jobs, 0, from: 0, policy: policy)
            kafka.pass(second)
            #expect(kafka.poll(client, atMost: 100) { _ in } == 10)
            kafka.makeAnew(.jobs)
            kafka.append(Kafka.Record(payload: 10, key: 1), to: .jobs, 0)
            kafka.append(Kafka.Record(payload: 11, key: 1), to: .jobs, 0)
            kafka.pass(second)
            kafka.append(Kafka.Record(payload: 12, key: 1), to: .jobs, 0)
            kafka.pass(second)
            var payloads: [Int] = []
            kafka.poll(client, atMost: 100) { payloads.append($0.payload) }
            kafka.pass(second)
            kafka.poll(client, atMost: 100) { payloads.append($0.payload) }
            switch policy {
            case .earliest: #expect(payloads == [10, 11, 12])
            case .latest: #expect(payloads == [12])
            case .none:
                guard case .outOfRange(.jobs, 0, 10)? = kafka.nextEvent(client) else {
                    Issue.record("no event")
                    return
                }
            }
            #expect(kafka.feed(of: .jobs, 0).suffix(3).map(\.incarnation) == [1, 1, 1])
        }
    }

    @Test func retentionMovesTheLogStart() {
        let kafka = calm()
        for payload in 0..<10 { kafka.append(Kafka.Record(payload: payload, key: 1), to: .jobs, 0) }
        let client = kafka.addClient()
        kafka.retain(.jobs, 0, from: 4)
        kafka.read(client, .jobs, 0, from: 2)
        kafka.pass(second)
        var payloads: [Int] = []
        kafka.poll(client, atMost: 100) { payloads.append($0.payload) }
        #expect(payloads == [4, 5, 6, 7, 8, 9])
        #expect(kafka.firstOffset(.jobs, 0) == 4)
        #expect(kafka.payloads(.jobs) == Array(0..<10))
    }

    // MARK: Cleaning

    @Test func compactionKeepsTheNewestOfEachKey() {
        let kafka = calm { $0.deleteRetention = 100 * second }
        for payload in 0..<6 {
            kafka.append(
                Kafka.Record(payload: payload, key: payload % 2, isTombstone: payload == 4), to: .changelog, 0
            )
        }
        kafka.compact(.changelog, 0, below: 5)
        #expect(kafka.readAll(.changelog) == [3, 4, 5])
        // The tombstone stays, because its retention begins with its first compaction.
        kafka.pass(50 * second)
        kafka.compact(.changelog, 0, below: 5)
        #expect(kafka.readAll(.changelog) == [3, 4, 5])
        kafka.pass(60 * second)
        kafka.compact(.changelog, 0, below: 6)
        #expect(kafka.readAll(.changelog) == [5])
        #expect(kafka.endOffset(.changelog, 0) == 6)
        // A reader at a removed offset gets the next record.
        let client = kafka.addClient()
        kafka.read(client, .changelog, 0, from: 2)
        kafka.pass(second)
        var offsets: [Int64] = []
        kafka.poll(client, atMost: 10) { offsets.append($0.offset) }
        #expect(offsets == [5])
    }

    @Test func compactionStopsAtTheLastStableOffset() {
        let kafka = calm()
        kafka.append(Kafka.Record(payload: 0, key: 5), to: .changelog, 0)
        let client = kafka.transactionalClient()
        kafka.begin(client)
        _ = kafka.produce(client, 1, key: 5, to: .changelog)
        kafka.pass(second)
        kafka.append(Kafka.Record(payload: 2, key: 5), to: .changelog, 0)
        kafka.compact(.changelog, 0, below: .max)
        #expect(kafka.readAll(.changelog, isolation: .uncommitted) == [0, 1, 2])
        kafka.abortTransaction(client)
        kafka.pass(second)
        kafka.compact(.changelog, 0, below: 2)
        // The newest value is the committed one.
        #expect(kafka.readAll(.changelog, isolation: .uncommitted) == [0, 2])
    }
}
