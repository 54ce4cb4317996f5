import DeliveryCore
import SluiceModel

/// Faults of workers, partitions and clocks.
extension World {
    /// Sets the wall clock of a worker.
    func stepClock() {
        let worker = anyWorker()
        let step = Int64(draw.spread(1...90_000)) * (draw.chance(500) ? -1 : 1)
        worker.clockError = max(-120_000, min(120_000, worker.clockError + step))
        worker.clockSteps += 1
        for shard in worker.shards {
            for slot in shard.copies.indices { shard.copies[slot].overdueSince = 0 }
        }
        happened(step < 0 ? .clockBack : .clockForward)
        note("the clock of worker # is # ms wrong", worker.number, Int(worker.clockError))
    }

    /// Crashes a worker with all it had in memory. Its successor begins from the commits and the store.
    func crash(_ worker: WorkerModel) {
        happened(.crash)
        note("worker # crashes", worker.number)
        // The store has processed some of the worker's batches, in order.
        for shard in worker.shards where draw.chance(500) { _ = submit(worker, shard) }
        for _ in 0..<draw.below(worker.batches.count + 1) where worker.storeWaitsUntil == 0 {
            if let batch = worker.batches.popFirst() { apply(batch) }
        }
        for partition in owner.indices where owner[partition] == worker.number {
            // Kafka may have processed a commit that was on its way.
            if worker.partitions[partition].commit?.isSent == true, draw.chance(500) {
                _ = settle(worker, partition, isAccepted: true)
            }
        }
        if scenario.hasPowerLoss, draw.chance(400) { losePower(worker) }
        for partition in owner.indices where owner[partition] == worker.number { release(partition, worker) }
        // APNs may have processed requests that were on their way.
        for shard in worker.shards {
            for pool in shard.pools {
                for connection in pool.connections {
                    for slot in connection.streams {
                        let copy = shard.copies[Int(slot)]
                        if draw.chance(500), tokens[copy.address].invalidSince == 0 { seen(copy) }
                    }
                }
            }
        }
        workers[worker.number] = newWorker(worker.number)
        workers[worker.number].nextLook = monotonic
        workers[worker.number].clockError = worker.clockError
        workers[worker.number].clockSteps = worker.clockSteps
    }

    /// Undoes unsynced writes from a drawn batch on.
    private func losePower(_ worker: WorkerModel) {
        let partitions = owner.indices.filter { owner[$0] == worker.number }
        let batches = store.unsyncedBatches(partitions)
        guard !batches.isEmpty else { return }
        happened(.powerLoss)
        note("worker # loses power, and # batches", worker.number, batches.count)
        let first = batches[draw.below(batches.count)]
        for partition in partitions { store.losePower(partition, from: first) }
    }

    /// Stops a worker in order: the worker ends pushes in flight and commits, and a successor starts.
    func stop(_ worker: WorkerModel) {
        guard !worker.isDraining else { return }
        happened(.stop)
        note("worker # is stopped", worker.number)
        worker.isDraining = true
        worker.patience = draw.spread(1...600)
        for shard in worker.shards {
            shard.machine.abandon(partition: nil, at: now(worker))
            drain(worker, shard)
        }
        abandonWaiting(nil, worker)
    }

    private func checkStop(_ worker: WorkerModel) {
        let isDone =
            worker.partitions.allSatisfy {
                !$0.isOwned || ($0.live == 0 && $0.outcomes.isEmpty && $0.removals.order.isEmpty)
            }
        worker.patience -= 1
        guard isDone || worker.patience <= 0 else { return }
        for partition in owner.indices where owner[partition] == worker.number {
            commitLast(worker, partition)
        }
        crash(worker)
    }

    /// Issues the last commit of a partition and awaits an answer, which Kafka may not send.
    private func commitLast(_ worker: WorkerModel, _ partition: Int) {
        while settle(worker, partition, isAccepted: !draw.chance(200)) {}
        if issueCommit(worker, partition) {
            while settle(worker, partition, isAccepted: !draw.chance(200)) {}
        }
    }

    /// Revokes a partition from a worker: in order, or at once as if the worker was thought dead.
    func handOver() {
        guard let (worker, partition) = anyPartition(), !worker.isDraining else { return }
        if worker.partitions[partition].isEnding { return }
        let isLost = draw.chance(300)
        happened(isLost ? .lossOfPartition : .handOver)
        note("worker # is to give partition # up", worker.number, partition)
        worker.partitions[partition].patience = draw.spread(1...600)
        abandon(partition, worker)
        if isLost {
            if draw.chance(500) { _ = bringToDisk(worker, fails: weather.isStoreBroken) }
            release(partition, worker)
        }
    }

    /// Abandons the pushes of a partition that aren't in flight.
    private func abandon(_ partition: Int, _ worker: WorkerModel) {
        worker.partitions[partition].isEnding = true
        for shard in worker.shards {
            shard.machine.abandon(partition: worker.partitions[partition].slot, at: now(worker))
            drain(worker, shard)
            // From here on, another worker reads the events of the partition's devices.
            // A presence stays when another partition has items of its device after a token change.
            for token in tokens.indices
            where self.partition(of: token) == partition
                && !shard.machine.knowsPresence(of: tokens[token].key)
            {
                (shard.presenceAt[token], shard.isOffline[token]) = (.none, false)
            }
        }
        abandonWaiting(partition, worker)
    }

    private func checkHandOver(_ worker: WorkerModel, _ partition: Int) {
        let state = worker.partitions[partition]
        let waits = state.live > 0 || !state.outcomes.isEmpty || !state.removals.order.isEmpty
        worker.partitions[partition].patience -= 1
        guard !waits || state.patience <= 0 else { return }
        commitLast(worker, partition)
        release(partition, worker)
    }

    /// Continues stops and handovers at each step, not only when their kind is drawn.
    func continueEnding() {
        for worker in workers {
            if worker.isDraining {
                checkStop(worker)
            } else {
                for partition in owner.indices
                where owner[partition] == worker.number && worker.partitions[partition].isEnding {
                    checkHandOver(worker, partition)
                }
            }
        }
    }

    /// Sets the group's offset back, as an operator does, while nobody owns the partition.
    func resetOffset() {
        guard let (worker, partition) = anyPartition() else { return }
        abandon(partition, worker)
        release(partition, worker)
        let index = max(0, log.committed[partition].index - draw.spread(1...30))
        guard index < log.committed[partition].index else { return }
        // Committed records don't reveal that their items have other tokens, so that the items would live twice.
        let hasMoved = log.partitions[partition][index...].contains { number in
            let record = log.records[number]
            guard record.kind == .push else { return false }
            let token = store.token(of: record.subject)
            return token >= 0 && token != record.token
        }
        guard !hasMoved else { return }
        happened(.offsetReset)
        log.committed[partition].index = index
        log.committed[partition].offset = log.records[log.partitions[partition][index]].offset
        for number in log.partitions[partition][index...] {
            log.records[number].isCommitted = false
        }
        note("partition # begins at offset # again", partition, Int(log.committed[partition].offset))
    }

    // MARK: The healthy part

    /// Ends all faults; then everything must end.
    func beHealthy() {
        isHealthy = true
        counts[.healthy] += 1
        weather = Weather(scenario)
        note("all is well from here on")
        for worker in workers {
            worker.clockError = 0
            worker.clockSteps += 1
            if worker.isDraining || worker.partitions.contains(where: { $0.isOwned && $0.isEnding }) {
                crash(worker)
            }
        }
        assignPartitions()
        for worker in workers {
            for shard in worker.shards {
                for pool in shard.pools {
                    for index in pool.connections.indices {
                        pool.connections[index].limit = scenario.streams
                        pool.report(index)
                    }
                }
            }
        }
        for device in devices.indices { devices[device].isOnline = true }
        // Some worlds report no device again.
        isQuiet = draw.chance(400)
        if !isQuiet { for token in tokens.indices where !isChannel(token) { reportOnline(token) } }
        metLimit = false
        let beginning = monotonic
        var pause: UInt64 = 1_000_000
        var wasChecked = false
        while violation == nil {
            var work = 0
            for worker in workers { work += doAll(worker) }
            while !receipts.isEmpty { sendReceipt() }
            if work > 0 {
                pause = 1_000_000
                continue
            }
            if isAllDone { return }
            counts[.healthyPause] += 1
            monotonic += pause
            pause = min(pause * 2, 20_000_000_000)
            for worker in workers { advance(worker) }
            let milliseconds = Int64((monotonic - beginning) / 1_000_000)
            if milliseconds > Self.healthyMilliseconds, !wasChecked {
                wasChecked = true
                checkProgress()
            }
            // In a world that met its limits, items may have to expire in turn.
            if milliseconds > Self.maximumExpiration * (metLimit ? 400 : 1) + 300_000 {
                return broken(.progress, "the world is healthy, and something doesn't end: \(whatIsLeft)")
            }
        }
    }

    private func doAll(_ worker: WorkerModel) -> Int {
        let before = counts.events
        for partition in owner.indices where owner[partition] == worker.number {
            while violation == nil, poll(worker, partition) {}
            while violation == nil, acknowledge(worker, partition) {}
        }
        for shard in worker.shards {
            _ = sendAll(worker, shard, atMost: 1000)
            for pool in shard.pools {
                for index in pool.connections.indices {
                    while violation == nil, let slot = pool.connections[index].streams.last {
                        answer(slot, worker, shard, pool)
                    }
                }
            }
        }
        repeat {
            while violation == nil, serveStore(worker, fails: false) {}
        } while violation == nil && (handDue(worker) || scanSome(worker) || lookForSuspended(worker))
        for partition in owner.indices where owner[partition] == worker.number {
            if !settle(worker, partition, isAccepted: true) { _ = issueCommit(worker, partition) }
        }
        return counts.events - before
    }

    private var whatIsLeft: String {
        let partitions = owner.indices.map { partition in
            let state = workers[max(0, owner[partition])].partitions[partition]
            return "\(state.position)/\(log.partitions[partition].count) live \(state.live)"
        }
        let shards = workers.flatMap(\.shards).map {
            "\($0.used) used, \($0.store.waiting) waiting, \($0.store.comingOver.count) coming, done \($0.store.isDone)"
        }
        return "\(partitions); \(shards); \(store.count) stored, marks \(store.marks)"
    }

    private var isAllDone: Bool {
        for partition in owner.indices {
            guard owner[partition] >= 0 else { return false }
            let state = workers[owner[partition]].partitions[partition]
            guard state.position == log.partitions[partition].count, state.live == 0, state.outcomes.isEmpty,
                !state.isScanning, state.removals.order.isEmpty, state.commit == nil, !state.isDirty
            else { return false }
        }
        return store.count == 0 && store.marks.allSatisfy(\.isEmpty)
            && workers.allSatisfy { worker in
                worker.used == 0 && worker.batches.isEmpty && worker.answers.isEmpty
                    && worker.shards.allSatisfy {
                        $0.store.isDone
                    }
            }
    }

    /// Checks that only pushes for devices that never confirm are left.
    private func checkProgress() {
        guard !metLimit, !isQuiet else { return }
        for token in tokens.indices {
            for partition in owner.indices {
                for entry in store.entries(partition, token) { checkProgress(entry.copy) }
            }
        }
        for worker in workers {
            for shard in worker.shards {
                for copy in shard.copies where copy.isLive { checkProgress(copy) }
            }
        }
    }

    private func checkProgress(_ copy: Copy) {
        let delivery = jobs[copy.job].facts.delivery
        let isMute = devices[tokens[copy.address].device].isMute
        // The receipts of a moved push reach the worker that owns the new token's partition.
        let isApart = partition(of: copy.address) != copy.partition
        if (delivery == .confirm && isMute) || (delivery != .accept && isApart) { return }
        broken(.progress, "push \(copy.job) has not ended in a healthy world: a \(delivery)")
    }
}
