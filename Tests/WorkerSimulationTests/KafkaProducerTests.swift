import SimulatedEventLoop
import SimulatedKafka
import Testing

/// The simulated Kafka: producers and transactions.
@Suite struct KafkaProducerTests {
    private static let properties = KafkaProperties(bootstrapServers: "kafka:9092")

    private static func values(_ count: Int) -> [[UInt8]] { (0..<count).map { Array("\($0)".utf8) } }

    private static func committed(_ bed: KafkaBed, _ topic: String = KafkaBed.outcomes) -> [String] {
        bed.kafka.committedRecords(of: topic).map { String(decoding: $0.value ?? [], as: UTF8.self) }
    }

    // MARK: Reports

    @Test func reportsComeInTheOrderOfTheRecords() throws {
        try KafkaBed.run { bed in
            let producer = try KafkaProducer(properties: Self.properties)
            let topic = try producer.topic(KafkaBed.outcomes)
            #expect(
                KafkaBed.produce(producer, topic, Self.values(50)) == Array(repeating: "queued", count: 50))
            var reports: [UInt] = []
            var offsets: [Int64] = []
            try producer.flush(timeoutMilliseconds: 10_000) { report in
                reports.append(report.opaque)
                offsets.append(report.offset)
                let (isDelivered, place) = (report.isDelivered, "\(report.topic) \(report.partition)")
                #expect(isDelivered && place == "sluice.outcomes 0")
            }
            #expect(reports == Array(0..<50) && offsets == Array(0..<50))
            #expect(Self.committed(bed) == (0..<50).map(String.init))
            #expect(producer.queued == 0)
            producer.close()
        }
    }

    @Test func aReportWakesItsLoop() throws {
        try KafkaBed.run { bed in
            let loop = try EventLoop(name: "loop")
            let producer = try KafkaProducer(properties: Self.properties)
            let topic = try producer.topic(KafkaBed.outcomes)
            var rounds = 0
            let wakeup = try loop.makeWakeup { if producer.pollDeliveryReports({ _ in }) > 0 { rounds += 1 } }
            producer.notify(fileDescriptor: wakeup.signalDescriptor)
            loop.start()
            for round in 1...3 {
                #expect(KafkaBed.produce(producer, topic, Self.values(10)).count == 10)
                #expect(bed.run(seconds: 10) { rounds == round })
            }
            producer.close()
            loop.stop()
            loop.join()
        }
    }

    @Test func aRecordThatIsTooLargeIsRefusedAlone() throws {
        try KafkaBed.run { bed in
            bed.kafka.configure(KafkaBed.outcomes, "max.message.bytes", "1000")
            var properties = Self.properties
            properties["batch.size"] = "1000"
            let producer = try KafkaProducer(properties: properties)
            let topic = try producer.topic(KafkaBed.outcomes)
            let large = [UInt8](repeating: 1, count: 2_000)
            let tooLarge = [UInt8](repeating: 1, count: 1_000_001)
            let results = KafkaBed.produce(producer, topic, [[0], large, [2], tooLarge])
            #expect(results == ["queued", "queued", "queued", "MSG_SIZE_TOO_LARGE"])
            var reports: [UInt: String] = [:]
            try producer.flush(timeoutMilliseconds: 10_000) { report in
                reports[report.opaque] = report.error?.name ?? "delivered"
                if report.opaque == 1 {
                    let (isUnwritten, bytes) = (report.isKnownUnwritten, report.value?.count)
                    #expect(isUnwritten && bytes == 2_000)
                }
            }
            #expect(reports == [0: "delivered", 1: "MSG_SIZE_TOO_LARGE", 2: "delivered"])
            producer.close()
        }
    }

    @Test func recordsWaitForTheirLeader() throws {
        try KafkaBed.run { bed in
            var properties = Self.properties
            properties["message.timeout.ms"] = "20000"
            let producer = try KafkaProducer(properties: properties)
            let topic = try producer.topic(KafkaBed.outcomes)
            bed.kafka.setLeader(KafkaBed.outcomes, 0, isAway: true)
            #expect(KafkaBed.produce(producer, topic, Self.values(2)) == ["queued", "queued"])
            #expect(throws: KafkaError.self) { try producer.flush(timeoutMilliseconds: 5_000) }
            bed.kafka.setLeader(KafkaBed.outcomes, 0, isAway: false)
            var delivered = 0
            try producer.flush(timeoutMilliseconds: 5_000) { delivered += $0.isDelivered ? 1 : 0 }
            #expect(delivered == 2)
            // A record is given up after a while.
            bed.kafka.setLeader(KafkaBed.outcomes, 0, isAway: true)
            #expect(KafkaBed.produce(producer, topic, [[3]]) == ["queued"])
            var names: [String?] = []
            try producer.flush(timeoutMilliseconds: 30_000) { names.append($0.error?.name) }
            #expect(names == ["_MSG_TIMED_OUT"])
            producer.close()
        }
    }

    @Test func faultsReachTheProducer() throws {
        try KafkaBed.run { bed in
            nonisolated(unsafe) var errors: [KafkaError] = []
            let producer = try KafkaProducer(properties: Self.properties) { event in
                if case .error(let error) = event { errors.append(error) }
            }
            let topic = try producer.topic(KafkaBed.outcomes)
            bed.kafka.queueLimit = 1
            #expect(KafkaBed.produce(producer, topic, Self.values(2)) == ["queued", "full"])
            bed.kafka.setForbidden(KafkaBed.outcomes, true)
            var names: [String?] = []
            try producer.flush(timeoutMilliseconds: 1_000) { names.append($0.error?.name) }
            #expect(names == ["TOPIC_AUTHORIZATION_FAILED"])
            bed.kafka.raise(-195, "connection refused", isFatal: false, in: .producer, of: nil)
            bed.kafka.raise(45, "out of order", isFatal: true, in: .producer, of: nil)
            producer.pollDeliveryReports { _ in }
            #expect(errors.map(\.code) == [-195, 45] && errors.map(\.isFatal) == [false, true])
            #expect(KafkaBed.produce(producer, topic, [[1]]) == ["_FATAL"])
            producer.close()
        }
    }

    // MARK: Transactions

    private static func transactional(
        _ bed: KafkaBed, _ name: String = "store"
    ) throws -> TransactionalProducer {
        let producer = try TransactionalProducer(properties: properties, transactionalID: name)
        #expect(producer.wait(timeoutMilliseconds: 0) == nil)
        try producer.initialize()
        #expect(producer.wait() == TransactionResult(.initialize))
        return producer
    }

    @Test func aTransactionIsSeenWhole() throws {
        try KafkaBed.run { bed in
            let member = try KafkaMember(bed, "member")
            bed.produceJobs(0..<4)
            #expect(bed.run { member.values.count == 4 })
            let producer = try Self.transactional(bed)
            let topic = try producer.producer.topic(KafkaBed.outcomes)
            #expect(KafkaBed.produce(producer.producer, topic, [[1]]) == ["no transaction"])
            for isCommitted in [false, true] {
                try producer.beginTransaction()
                #expect(producer.wait() == TransactionResult(.begin))
                for partition: Int32 in 0..<3 {
                    let answers = KafkaBed.produce(
                        producer.producer, topic, Self.values(5), partition: partition)
                    #expect(answers == Array(repeating: "queued", count: 5))
                }
                let offsets = [OffsetCommit(topic: KafkaBed.jobs, partition: 2, offset: 1)]
                try producer.sendOffsets(offsets, group: member.consumer.groupMetadata())
                var reports = 0
                let sent = producer.wait { report in
                    reports += report.isDelivered ? 1 : 0
                }
                #expect(sent == TransactionResult(.sendOffsets))
                bed.run(seconds: 1)
                producer.producer.pollDeliveryReports { reports += $0.isDelivered ? 1 : 0 }
                #expect(reports == 15)
                // Everything is in the logs, and no reader of committed records sees it.
                #expect(bed.kafka.records(of: KafkaBed.outcomes, 0).last?.state == .open)
                #expect(Self.committed(bed).isEmpty && bed.kafka.committedOffset(2) == nil)
                try isCommitted ? producer.commit() : producer.abort()
                #expect(producer.wait() == TransactionResult(isCommitted ? .commit : .abort))
                // The markers follow, each at its own time.
                bed.run(seconds: 1)
                #expect(Self.committed(bed).count == (isCommitted ? 15 : 0))
                #expect(bed.kafka.committedOffset(2)?.offset == (isCommitted ? 1 : nil))
            }
            producer.close()
        }
    }

    @Test func offsetsOfAnEarlierGenerationAreRefused() throws {
        try KafkaBed.run { bed in
            let member = try KafkaMember(bed, "member")
            #expect(bed.run { member.owned.count == 4 })
            let metadata = try member.consumer.groupMetadata()
            let other = try KafkaMember(bed, "other")
            #expect(bed.run { other.owned.count == 2 })
            let producer = try Self.transactional(bed)
            try producer.beginTransaction()
            #expect(producer.wait() == TransactionResult(.begin))
            try producer.sendOffsets(
                [OffsetCommit(topic: KafkaBed.jobs, partition: 0, offset: 1)], group: metadata)
            guard case .abortable(let error)? = producer.wait()?.failure else {
                Issue.record("the offsets were taken")
                return
            }
            #expect(error.isGroupMembershipLost)
            try producer.abort()
            #expect(producer.wait() == TransactionResult(.abort))
            producer.close()
        }
    }

    @Test func aSuccessorFencesAProducer() throws {
        try KafkaBed.run { bed in
            let first = try Self.transactional(bed)
            let topic = try first.producer.topic(KafkaBed.outcomes)
            try first.beginTransaction()
            #expect(first.wait() == TransactionResult(.begin))
            #expect(KafkaBed.produce(first.producer, topic, Self.values(3)).count == 3)
            bed.run(seconds: 1)
            #expect(bed.kafka.records(of: KafkaBed.outcomes, 0).map(\.state) == [.open, .open, .open])
            let second = try Self.transactional(bed)
            #expect(
                bed.kafka.records(of: KafkaBed.outcomes, 0).map(\.state) == [.aborted, .aborted, .aborted])
            try first.commit()
            guard case .fatal(let error)? = first.wait()?.failure else {
                Issue.record("the producer isn't fenced")
                return
            }
            #expect(error.isFenced)
            first.close()
            second.close()
        }
    }

    @Test func aKilledProducersTransactionIsAborted() throws {
        try KafkaBed.run { bed in
            let process = SimulatedProcess("worker")
            let producer = try process.run { try Self.transactional(bed) }
            let topic = try producer.producer.topic(KafkaBed.changelog)
            try process.run {
                try producer.beginTransaction()
                #expect(producer.wait() == TransactionResult(.begin))
                #expect(KafkaBed.produce(producer.producer, topic, [[1]]).count == 1)
            }
            bed.run(seconds: 1)
            process.kill()
            // A reader waits for the transaction, and gets none of its records.
            var isWaiting = false
            let reader = try ChangelogReader(properties: KafkaBed.properties) { event in
                if case .waitingForTransaction = event { isWaiting = true }
            }
            try reader.read([TopicPartitionOffset(topic: KafkaBed.changelog, partition: 0, start: .beginning)]
            )
            let buffer = UnsafeMutableBufferPointer<ConsumedRecord>.allocate(capacity: 100)
            defer { buffer.deallocate() }
            let before = bed.scheduler.now
            for _ in 0..<1_000 where !reader.isComplete {
                #expect(reader.poll(into: buffer, timeoutMilliseconds: 100) == 0)
            }
            #expect(reader.isComplete && isWaiting)
            #expect(bed.scheduler.now > before + 10 * KafkaBed.second)
            reader.close()
        }
    }

    @Test func aStepWaitsForItsCoordinator() throws {
        try KafkaBed.run { bed in
            let producer = try Self.transactional(bed)
            let topic = try producer.producer.topic(KafkaBed.outcomes)
            try producer.beginTransaction()
            #expect(producer.wait() == TransactionResult(.begin))
            #expect(KafkaBed.produce(producer.producer, topic, [[1]]).count == 1)
            bed.run(seconds: 1)
            bed.kafka.setTransactionCoordinator(isAway: true)
            try producer.commit(timeoutMilliseconds: 1_000)
            guard case .retriable? = producer.wait()?.failure else {
                Issue.record("the commit has ended")
                return
            }
            bed.kafka.setTransactionCoordinator(isAway: false)
            try producer.commit()
            #expect(producer.wait() == TransactionResult(.commit))
            bed.run(seconds: 1)
            #expect(Self.committed(bed).count == 1)
            producer.close()
        }
    }
}
