@testable import SimulatedKafka

extension KafkaSoak {
    func check() {
        checkFeed()
        checkOwners()
        while commitsRead < kafka.commits.count {
            if case .transaction(let number) = kafka.commits[commitsRead].origin,
                kafka.transactions[number].decision != .commit
            {
                fail("offsets of a transaction that isn't committed")
            }
            commitsRead += 1
        }
    }

    private func checkFeed() {
        while feedRead < kafka.feed.count {
            let record = kafka.feed[feedRead]
            feedRead += 1
            let place = kafka.place(record.topic, record.partition)
            if record.incarnation != lastIncarnation[place] {
                lastIncarnation[place] = record.incarnation
                lastOffset[place] = -1
            }
            if record.offset <= lastOffset[place] { fail("offsets decrease in \(record.topic)") }
            lastOffset[place] = record.offset
            guard record.payload >= 0 else { continue }
            produced[record.payload].timesSeen += 1
            let known = produced[record.payload]
            if known.place != place { fail("\(record.payload) is in another partition") }
            if known.timesSeen > 1 { fail("\(record.payload) is in the log twice") }
            if known.report?.isKnownUnwritten == true { fail("\(record.payload) was reported as unwritten") }
            if let report = known.report, report.failure == nil, report.offset != record.offset {
                fail("\(record.payload) has another offset")
            }
            if known.transaction >= 0, fates[known.transaction] == .aborted {
                fail("\(record.payload) was aborted and is visible")
            }
            while lastPayload.count <= known.client {
                lastPayload.append(Array(repeating: -1, count: kafka.logs.count))
            }
            if lastPayload[known.client][place] > record.payload { fail("\(record.payload) is out of order") }
            lastPayload[known.client][place] = record.payload
        }
    }

    /// Each partition has one owner that the group knows, apart from stopped clients.
    private func checkOwners() {
        var all = PartitionSet()
        for client in kafka.clients where client.isRunning && kafka.isMember(client.id) {
            let owned = client.consumer.owned
            // The client knows of its loss, and has to return the partitions.
            guard client.pending != .lost, !client.consumer.isLostAfter else { continue }
            if !all.intersection(owned).isEmpty {
                fail("partitions \(Array(all.intersection(owned))) have two owners")
            }
            all.formUnion(owned)
        }
    }

    /// Repairs every fault, after which everything must complete.
    func heal() {
        guard broken == nil else { return }
        mend()
        isHealed = true
        for turn in 0..<2_000 where broken == nil {
            kafka.advance(to: kafka.now + 50 * millisecond)
            // A killed static member may have left a partition unowned until the next rebalance.
            if turn == 800 {
                kafka.close(workers[1].client)
                start(1)
            }
            for worker in workers {
                handle(worker)
                continueTransaction(worker)
            }
            readOutcomes()
            check()
        }
        guard broken == nil else { return }
        let owners = workers.map { kafka.owned($0.client) }
        for partition in 0..<kafka.partitionCount(.jobs)
        where owners.count(where: { $0.contains(partition) }) != 1 {
            fail("partition \(partition) doesn't have exactly one owner: \(owners.map { Array($0) })")
        }
        for log in kafka.logs where log.lastStable != log.end || !log.open.isEmpty {
            fail("\(log.topic) \(log.partition) has an open transaction")
        }
        if kafka.group.unstable.contains(where: { $0 != 0 }) { fail("offsets are unstable") }
        for identifier in kafka.identifiers where identifier.state != .empty {
            fail("a transaction doesn't end")
        }
        for worker in workers where kafka.queued(worker.client) != 0 { fail("records have no report") }
        checkRecords()
        for partition in 0..<3
        where readPayloads[kafka.place(.outcomes, partition)] != kafka.payloads(.outcomes, partition) {
            fail("a reader of partition \(partition) has read other records")
        }
    }

    private func checkRecords() {
        for (payload, record) in produced.enumerated() {
            let isOutcome = record.place / Kafka.stride == Kafka.Topic.outcomes.rawValue
            guard isOutcome, let report = record.report, report.failure == nil else { continue }
            if record.transaction < 0 || fates[record.transaction] == .committed, record.timesSeen != 1 {
                fail("\(payload) was acknowledged, but isn't in the log")
            }
        }
    }
}
