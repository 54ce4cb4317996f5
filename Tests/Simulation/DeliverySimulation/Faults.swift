import DeliveryCore
import SluiceModel

/// What goes wrong with workers, partitions and clocks.
extension World {
    /// The wall clock of a worker is set.
    func stepClock() {
        let worker = anyWorker()
        let step = Int64(draw.spread(1...90_000)) * (draw.chance(500) ? -1 : 1)
        worker.clockError = max(-120_000, min(120_000, worker.clockError + step))
        worker.clockSteps += 1
        happened(step < 0 ? .clockBack : .clockForward)
        note("the clock of worker # is # ms wrong", worker.number, Int(worker.clockError))
    }

    /// A worker is gone with all it had in memory; a new one begins from what is committed and stored.
    func crash(_ worker: WorkerModel) {
        happened(.crash)
        note("worker # crashes", worker.number)
        // What was asked of the store is there in part, and in order.
        for _ in 0..<draw.below(worker.writes.count + 1) {
            if let write = worker.writes.popFirst(), isCurrent(write, worker), !isBlocked(write) {
                put(write)
            }
        }
        for partition in owner.indices where owner[partition] == worker.number {
            // A commit on its way may have arrived.
            if draw.chance(500) { _ = settle(worker, partition, isTaken: true) }
            release(partition, worker)
        }
        // Requests on their way may have been processed.
        for shard in worker.shards {
            for lane in shard.lanes {
                for connection in lane.connections {
                    for slot in connection.streams {
                        let copy = shard.copies[Int(slot)]
                        if draw.chance(500), tokens[copy.address].invalidSince == 0 { seen(copy) }
                    }
                }
            }
        }
        workers[worker.number] = newWorker(worker.number)
        workers[worker.number].clockError = worker.clockError
        workers[worker.number].clockSteps = worker.clockSteps
    }

    /// A worker is told to stop: it ends what is in flight, commits, and a new one follows.
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
    }

    private func checkStop(_ worker: WorkerModel) {
        let isDone =
            worker.partitions.allSatisfy { !$0.isOwned || ($0.live == 0 && $0.outcomes.isEmpty) }
        worker.patience -= 1
        guard isDone || worker.patience <= 0 else { return }
        for partition in owner.indices where owner[partition] == worker.number {
            commitLast(worker, partition)
        }
        crash(worker)
    }

    /// The last commit of a partition waits for its answer, which may not come.
    private func commitLast(_ worker: WorkerModel, _ partition: Int) {
        _ = settle(worker, partition, isTaken: !draw.chance(200))
        if issueCommit(worker, partition) { _ = settle(worker, partition, isTaken: !draw.chance(200)) }
    }

    /// The group takes a partition from a worker: orderly, or at once when it was thought dead.
    func handOver() {
        guard let (worker, partition) = anyPartition(), !worker.isDraining else { return }
        if worker.partitions[partition].isEnding { return }
        let isLost = draw.chance(300)
        happened(isLost ? .lossOfPartition : .handOver)
        note("worker # is to give partition # up", worker.number, partition)
        worker.partitions[partition].patience = draw.spread(1...600)
        abandon(partition, worker)
        if isLost { release(partition, worker) }
    }

    /// The machines give back what they can of a partition.
    private func abandon(_ partition: Int, _ worker: WorkerModel) {
        worker.partitions[partition].isEnding = true
        for shard in worker.shards {
            shard.machine.abandon(partition: worker.partitions[partition].slot, at: now(worker))
            drain(worker, shard)
            // What happens to its devices from here on, another one hears.
            for token in tokens.indices where self.partition(of: token) == partition {
                (shard.presenceAt[token], shard.isOffline[token]) = (.min, false)
            }
        }
    }

    private func checkHandOver(_ worker: WorkerModel, _ partition: Int) {
        let state = worker.partitions[partition]
        let waits = state.live > 0 || !state.outcomes.isEmpty || !state.removals.isEmpty
        worker.partitions[partition].patience -= 1
        guard !waits || state.patience <= 0 else { return }
        commitLast(worker, partition)
        release(partition, worker)
    }

    /// What is being stopped or handed over goes on with each step, not only when its kind is drawn.
    func goOnEnding() {
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

    /// An operator sets the group's offset back while nobody has the partition.
    func resetOffset() {
        guard let (worker, partition) = anyPartition() else { return }
        abandon(partition, worker)
        release(partition, worker)
        let index = max(0, log.committed[partition].index - draw.spread(1...30))
        guard index < log.committed[partition].index else { return }
        happened(.offsetReset)
        log.committed[partition].index = index
        log.committed[partition].offset = log.records[log.partitions[partition][index]].offset
        for number in log.partitions[partition][index...] { log.records[number].isCommitted = false }
        note("partition # begins at offset # again", partition, Int(log.committed[partition].offset))
    }

    // MARK: The healthy part

    /// All faults end, and then everything must.
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
                for lane in shard.lanes {
                    for index in lane.connections.indices {
                        lane.connections[index].limit = scenario.streams
                        lane.report(index)
                    }
                }
            }
        }
        for device in devices.indices { devices[device].isOnline = true }
        for token in tokens.indices { reportOnline(token) }
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
            monotonic += pause
            pause = min(pause * 2, 20_000_000_000)
            for worker in workers { advance(worker) }
            let milliseconds = Int64((monotonic - beginning) / 1_000_000)
            if milliseconds > Self.healthyMilliseconds, !wasChecked {
                wasChecked = true
                checkProgress()
            }
            // In a world that met its limits, one after the other may have to expire first.
            if milliseconds > Self.maximumExpiration * (metLimit ? 400 : 1) + 300_000 {
                return broken(.progress, "the world is healthy, and something doesn't end")
            }
        }
    }

    private func doAll(_ worker: WorkerModel) -> Int {
        let before = counts.events
        for partition in owner.indices where owner[partition] == worker.number {
            restoreSome(worker, partition)
            while violation == nil, poll(worker, partition) {}
            while violation == nil, acknowledge(worker, partition) {}
        }
        for shard in worker.shards {
            _ = sendAll(worker, shard, atMost: 1000)
            for lane in shard.lanes {
                for index in lane.connections.indices {
                    while violation == nil, let slot = lane.connections[index].streams.last {
                        answer(slot, worker, shard, lane)
                    }
                }
            }
        }
        while violation == nil, serveStore(worker, fails: false) {}
        for partition in owner.indices where owner[partition] == worker.number {
            if issueCommit(worker, partition) { _ = settle(worker, partition, isTaken: true) }
            _ = settle(worker, partition, isTaken: true)
        }
        return counts.events - before
    }

    private var isAllDone: Bool {
        for partition in owner.indices {
            guard owner[partition] >= 0 else { return false }
            let state = workers[owner[partition]].partitions[partition]
            guard state.position == log.partitions[partition].count, state.live == 0, state.outcomes.isEmpty,
                state.toRestore.isEmpty, state.removals.isEmpty, state.commit == nil, !state.isDirty
            else { return false }
        }
        return workers.allSatisfy { $0.used == 0 && $0.writes.isEmpty }
    }

    /// Only what waits for a device that never confirms anything may still be there.
    private func checkProgress() {
        guard !metLimit else { return }
        for worker in workers {
            for shard in worker.shards {
                for copy in shard.copies where copy.isLive {
                    let isMute = devices[tokens[copy.address].device].isMute
                    // The receipts of a push that has moved go to the worker that has the new token's partition.
                    let isApart = partition(of: copy.address) != copy.partition
                    if jobs[copy.job].facts.delivery == .confirm, isMute { continue }
                    if jobs[copy.job].facts.delivery != .accept, isApart { continue }
                    broken(
                        .progress,
                        "push \(copy.job) has not ended in a healthy world: a \(jobs[copy.job].facts.delivery)"
                    )
                }
            }
        }
    }
}
