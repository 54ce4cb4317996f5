@testable import SimulatedKafka

/// A random history. The rules are checked with the clients' events and the observers' feed.
final class KafkaSoak {
    enum Fate {
        case open, committed, aborted
        /// The client got no result.
        case unknown
    }

    struct Produced {
        var client: ClientID
        var place: Int
        /// Index of the transaction; -1 without one.
        var transaction: Int
        var report: Kafka.Report?
        var timesSeen = 0
        var incarnation: Int
    }

    final class Worker {
        var client: ClientID
        let isTransactional: Bool
        var transaction = -1
        var state = "unready"
        var isStopped = false
        var position: [Int64] = Array(repeating: 0, count: 64)

        init(_ client: ClientID, _ isTransactional: Bool) {
            self.client = client
            self.isTransactional = isTransactional
        }
    }

    let kafka: Kafka
    var draw: Draw
    var workers: [Worker] = []
    var reader: ClientID
    var produced: [Produced] = []
    var fates: [Fate] = []
    var counts: [String: Int] = [:]
    var broken: String?
    var feedRead = 0
    var commitsRead = 0
    var lastOffset: [Int64]
    var lastIncarnation: [Int]
    var lastPayload: [[Int]] = []
    var readPayloads: [[Int]]
    private var awayLeaders: Set<Int> = []
    var isHealed = false

    init(seed: UInt64) {
        draw = Draw(seed: seed &* 7919)
        var configuration = Kafka.Configuration()
        configuration.initialRebalanceDelay = 500 * millisecond
        configuration.sessionTimeout = 10 * second
        configuration.rebalanceTimeout = 30 * second
        configuration.transactionTimeout = 15 * second
        configuration.transactionSweep = 2 * second
        configuration.deliveryTimeout = seed % 2 == 0 ? 5 * second : 30 * second
        configuration.stepTimeout = 4 * second
        configuration.hastyPerMille = 50
        configuration.answerLostPerMille = 20
        configuration.metadataLimit = 8
        configuration.metadataAge = 5 * second
        configuration.queueLimit = 500
        configuration.slowPerMille = 10
        configuration.batchLimit = 20
        configuration.fetchLimit = 10
        configuration.deleteRetention = 5 * second
        configuration.assignor = seed % 5 == 0 ? .eager : .cooperative
        configuration.resetPolicy = seed % 3 == 0 ? .none : .earliest
        kafka = Kafka(seed: seed, configuration: configuration)
        lastOffset = Array(repeating: -1, count: kafka.logs.count)
        lastIncarnation = Array(repeating: 0, count: kafka.logs.count)
        readPayloads = Array(repeating: [], count: kafka.logs.count)
        reader = 0
        reader = kafka.addClient()
        for partition in 0..<3 { kafka.read(reader, .outcomes, partition, from: 0) }
        for number in 0..<3 {
            workers.append(Worker(0, seed % 4 != 0))
            start(number)
        }
    }

    func start(_ number: Int) {
        let worker = workers[number]
        worker.client = kafka.addClient()
        worker.state = "unready"
        worker.transaction = -1
        worker.isStopped = false
        kafka.makeProducer(worker.client, transactionalID: worker.isTransactional ? number : nil)
        kafka.join(worker.client, instance: number == 0 ? 0 : -1)
    }

    func fail(_ what: String) { if broken == nil { broken = "\(what), at \(kafka.now)" } }

    func count(_ what: String) { counts[what, default: 0] += 1 }

    func run(steps: Int) {
        for _ in 0..<steps where broken == nil {
            step()
            check()
        }
        heal()
    }

    private func step() {
        let worker = workers[draw.below(workers.count)]
        switch draw.below(100) {
        case 0..<12: passTime()
        case 12..<22:
            kafka.append(
                .init(payload: -1, key: draw.below(20)), to: .jobs,
                draw.below(kafka.partitionCount(.jobs)), gap: draw.chance(100) ? draw.below(4) : 0)
        case 22..<55: handle(worker)
        case 55..<75: work(worker)
        case 75..<85: continueTransaction(worker)
        case 85..<88: query(worker)
        case 88..<91: readOutcomes()
        case 91..<94: operate()
        default: if draw.chance(400) { fault() }
        }
    }

    private func passTime() {
        let drawn = draw.below(100)
        let time: UInt64
        if drawn < 60 {
            time = UInt64(draw.below(5_000_000))
        } else if drawn < 85 {
            time = UInt64(draw.below(300)) * millisecond
        } else if drawn < 97 {
            time = UInt64(draw.below(3_000)) * millisecond
        } else {
            time = UInt64(draw.below(20)) * second
        }
        kafka.advance(to: kafka.now + time)
    }

    // MARK: Workers

    func handle(_ worker: Worker) {
        let client = worker.client
        for _ in 0..<draw.among(1...20) {
            guard let event = kafka.nextEvent(client) else { break }
            take(event, worker)
        }
        guard client == worker.client else { return }
        // Some members answer late.
        guard !worker.isStopped, isHealed || draw.chance(600) else { return }
        switch kafka.clients[client].pending {
        case .assign:
            kafka.assign(client, (0..<8).map { ($0, max(0, kafka.committedOffset($0).offset)) })
        case .revoke, .lost: kafka.unassign(client)
        case .none: break
        }
    }

    private func take(_ event: Kafka.Event, _ worker: Worker) {
        switch event {
        case .assigned: count("assigned")
        case .revoked: count("revoked")
        case .lost: count("lost")
        case .instanceFenced:
            count("instance fenced")
            kafka.crash(worker.client)
            start(workers.firstIndex { $0 === worker }!)
        case .report(let report):
            count(report.failure.map { "report \($0)" } ?? "report")
            guard produced[report.opaque].report == nil else {
                return fail("two reports of \(report.opaque)")
            }
            produced[report.opaque].report = report
        case .step(let step, let result):
            switch result {
            case .done: count("\(step) done")
            case .retriable: count("\(step) retriable")
            case .abortable: count("\(step) abortable")
            case .fatal: count("\(step) fatal")
            case .misuse: fail("\(step) does not fit \(worker.state)")
            }
            finished(worker, step, result)
        case .producerFailed: count("producer failed")
        case .committed(_, let failure): count(failure.map { "committed \($0)" } ?? "committed")
        case .fetchedCommitted(_, _, let failure): count(failure.map { "fetched \($0)" } ?? "fetched")
        case .listed(_, _, _, let failure): count(failure.map { "listed \($0)" } ?? "listed")
        case .outOfRange(let topic, let partition, _):
            count("out of range")
            kafka.read(worker.client, topic, partition, from: nil)
        }
    }

    private func finished(_ worker: Worker, _ step: Kafka.TransactionStep, _ result: Kafka.StepResult) {
        switch result {
        case .fatal: worker.state = "failed"
        case .abortable: worker.state = "abortable"
        case .retriable: worker.state = "again \(step)"
        case .misuse: break
        case .done:
            switch step {
            case .initialize: worker.state = "ready"
            case .begin:
                worker.state = "open"
                worker.transaction = fates.count
                fates.append(.open)
            case .sendOffsets: worker.state = "sent"
            case .commit, .abort:
                if step == .commit, kafka.transactions.indices.contains(0) { checkReports(worker) }
                fates[worker.transaction] = step == .commit ? .committed : .aborted
                worker.state = "ready"
            }
        }
    }

    /// Each record of a committed transaction was acknowledged.
    private func checkReports(_ worker: Worker) {
        for (payload, record) in produced.enumerated().suffix(2_000)
        where record.transaction == worker.transaction && record.client == worker.client {
            if record.report == nil || record.report?.failure != nil {
                fail("\(payload) is committed without an acknowledgement")
            }
        }
    }

    func continueTransaction(_ worker: Worker) {
        let client = worker.client
        guard worker.isTransactional, !worker.isStopped, !kafka.isBusy(client) else { return }
        // Results are taken first.
        guard !kafka.hasEvents(client) else { return }
        switch worker.state {
        case "unready", "again initialize": kafka.initialize(client)
        case "ready", "again begin": if isHealed { return } else { kafka.begin(client) }
        case "open", "again sendOffsets":
            guard let membership = kafka.membership(client) else {
                kafka.abortTransaction(client)
                return
            }
            if draw.chance(100) {
                kafka.abortTransaction(client)
            } else {
                kafka.sendOffsets(client, offsets(worker), membership)
            }
        case "sent", "again commit": kafka.commitTransaction(client)
        case "abortable", "again abort": kafka.abortTransaction(client)
        case "failed":
            kafka.close(client)
            start(workers.firstIndex { $0 === worker }!)
        default: break
        }
    }

    private func offsets(_ worker: Worker) -> [Kafka.OffsetCommit] {
        let metadata = draw.chance(20) ? "too long a text" : "ok"
        return kafka.owned(worker.client).map {
            Kafka.OffsetCommit(partition: $0, offset: worker.position[$0], metadata: metadata)
        }
    }

    private func work(_ worker: Worker) {
        let client = worker.client
        guard !worker.isStopped, !isHealed else { return }
        var last: [Int: Int64] = [:]
        kafka.poll(client, atMost: 5) { record in
            if let before = last[record.partition], before >= record.offset {
                fail("offsets decrease in a poll")
            }
            last[record.partition] = record.offset
            worker.position[record.partition] = record.offset + 1
        }
        // The transaction has begun, but the worker hasn't received the result.
        guard !worker.isTransactional || worker.state != "ready" else { return }
        for _ in 0..<draw.below(4) {
            let topic: Kafka.Topic = draw.chance(300) ? .changelog : .outcomes
            let partition = draw.below(kafka.partitionCount(topic))
            var record = Kafka.Record(payload: produced.count, key: draw.below(10))
            record.isTombstone = draw.chance(200)
            if draw.chance(2) { record.size = .tooLargeForTopic }
            guard kafka.produce(client, record, to: topic, partition, opaque: produced.count) == .queued
            else {
                break
            }
            if worker.isTransactional, worker.transaction < 0 { fail("a record without a transaction") }
            let place = kafka.place(topic, partition)
            produced.append(
                Produced(
                    client: client, place: place,
                    transaction: worker.isTransactional ? worker.transaction : -1,
                    incarnation: kafka.logs[place].incarnation))
        }
        if !worker.isTransactional, draw.chance(200) { _ = kafka.commit(client, offsets(worker)) }
    }

    private func query(_ worker: Worker) {
        guard !worker.isStopped else { return }
        if draw.chance(500) {
            _ = kafka.fetchCommitted(worker.client, [draw.below(4)])
        } else {
            _ = kafka.listOffsets(worker.client, .changelog, draw.below(4))
        }
        // Also commits of partitions that the worker no longer owns.
        if draw.chance(100) { _ = kafka.commit(worker.client, offsets(worker)) }
    }

    func readOutcomes() {
        kafka.poll(reader, atMost: 50) { record in
            readPayloads[kafka.place(record.topic, record.partition)].append(record.payload)
        }
    }

    // MARK: Outside

    private func operate() {
        switch draw.below(6) {
        case 0...2: kafka.compact(.changelog, draw.below(kafka.partitionCount(.changelog)))
        case 3:
            let partition = draw.below(kafka.partitionCount(.jobs))
            kafka.retain(.jobs, partition, from: kafka.endOffset(.jobs, partition) - Int64(draw.below(20)))
        case 4:
            if draw.chance(30), kafka.partitionCount(.jobs) < 8 {
                kafka.grow(.jobs, to: kafka.partitionCount(.jobs) + 1)
            } else if draw.chance(60) {
                count("recreated")
                kafka.makeAnew(draw.chance(700) ? .jobs : .changelog, keepsOffsets: draw.chance(500))
            }
        default: if kafka.resetOffset(draw.below(4), to: 0) { count("reset") }
        }
    }

    private func fault() {
        let number = draw.below(workers.count)
        let worker = workers[number]
        switch draw.below(10) {
        case 0, 1:
            let place = kafka.place(Kafka.Topic(rawValue: draw.below(4))!, draw.below(3))
            let log = kafka.logs[place]
            kafka.setLeader(log.topic, log.partition, isAway: !log.isAway)
        case 2: kafka.setGroupCoordinator(isAway: !kafka.group.isAway)
        case 3: kafka.setTransactionCoordinator(isAway: !kafka.isTransactionCoordinatorAway)
        case 4, 5:
            worker.isStopped.toggle()
            if worker.isStopped { kafka.stop(worker.client) } else { kafka.resume(worker.client) }
        case 6:
            guard !draw.chance(300) else {
                // Both processes live for a while. The name and the transactional identifier belong to the newer
                // one.
                let old = worker.client
                start(number)
                if draw.chance(500) { kafka.continueUnobserved(old) }
                strays.append(old)
                return
            }
            count("crash")
            if draw.chance(700) { kafka.crash(worker.client) } else { kafka.close(worker.client) }
            start(number)
        case 7: kafka.isSlow.toggle()
        default:
            // Most faults are short.
            mend()
        }
    }

    private var strays: [ClientID] = []

    func mend() {
        for log in kafka.logs where log.isAway { kafka.setLeader(log.topic, log.partition, isAway: false) }
        kafka.setGroupCoordinator(isAway: false)
        kafka.setTransactionCoordinator(isAway: false)
        kafka.isSlow = false
        for worker in workers where worker.isStopped {
            worker.isStopped = false
            kafka.resume(worker.client)
        }
        // A stray's events include its fencing.
        for stray in strays {
            kafka.resume(stray)
            while let event = kafka.nextEvent(stray) {
                if case .instanceFenced = event { count("instance fenced") }
            }
            kafka.crash(stray)
        }
        strays = []
    }
}

extension KafkaModel {
    /// The process continues for a while, unobserved.
    func continueUnobserved(_ client: ClientID) {
        if isBusy(client) { return }
        abortTransaction(client)
    }
}
