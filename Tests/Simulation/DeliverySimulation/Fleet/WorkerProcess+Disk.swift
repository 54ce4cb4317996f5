import DeliveryCore
import SluiceModel

/// Orders to the disk and to the changelog's reader, and their answers.
extension WorkerProcess {
    enum DiskTask {
        case open(PartitionRestore.Attempt)
        case openCopies([PartitionRestore.Attempt])
        case loadMarks(PartitionRestore.Attempt)
        case scanItems(UInt16, Int32)
        case scanDue(DueSchedule.Look, Int32)
        case scanSuspended(SuspendedSchedule.Look, Int32)
        case scanExpired(ExpirySchedule.Look, Int32)
        case batch(FleetBatch, shard: Int)
        case sync
        case checkpoint(FleetPart, position: Int64)
        case dropCopies(except: Set<Int32>)
    }

    /// A partition of the changelog that is read up to the end that it had when the reading began.
    struct ChangelogReading {
        var attempt: PartitionRestore.Attempt
        var part: FleetPart
        var position: Int64
        var end: Int64
    }

    func perform(_ action: PartitionRestore.Action) {
        switch action {
        case .open(let attempt): diskTasks.append(.open(attempt))
        case .openCopies(let attempts):
            for attempt in attempts { parts[attempt.partition] = nil }
            diskTasks.append(.openCopies(attempts))
        case .loadMarks(let attempt): diskTasks.append(.loadMarks(attempt))
        case .restore(let attempts):
            for attempt in attempts {
                guard let part = parts[attempt.partition] else { continue }
                restores.append(
                    .init(
                        attempt: attempt, part: part, position: positions[attempt.partition] ?? 0,
                        end: kafka.log(.changelog, Int(attempt.partition)).end))
            }
        case .cancel(let partitions): restores.removeAll { partitions.contains($0.attempt.partition) }
        }
    }

    /// A shard hands over what it asks of the store.
    func submit(_ batch: FleetBatch, of shard: Int) { diskTasks.append(.batch(batch, shard: shard)) }

    func handOver(_ migration: ShardProcess.Migration, to shard: Int) {
        shards[shard].send(.importItem(migration))
    }

    func released(_ device: DeviceKey, at shard: Int) { shards[shard].send(.released(device)) }

    /// Carries out an order to the disk, which may fail.
    func turnDisk() {
        if hearsOfFailure != disk.isFailing {
            hearsOfFailure = disk.isFailing
            machine.storeFails(hearsOfFailure, at: world.now)
            act()
        }
        guard let task = diskTasks.first, isRunning else { return }
        // Writes wait until the disk takes them.
        if case .batch = task, disk.isFailing { return }
        _ = diskTasks.popFirst()
        world.counts.events += 1
        let now = world.now
        let isDone = !disk.isFailing && !world.failsOnce(10)
        switch task {
        case .open(let attempt):
            if isDone { parts[attempt.partition] = disk.open(attempt.partition) }
            machine.opened(attempt, isOpen: isDone, at: now)
        case .openCopies(let attempts):
            if isDone { openCopies(attempts) }
            machine.openedCopies(attempts, isOpen: isDone, at: now)
        case .loadMarks(let attempt):
            let part = parts[attempt.partition]
            if isDone, let part { marks[attempt.partition] = part.marks }
            machine.loadedMarks(attempt, isLoaded: isDone && part != nil, at: now)
        case .scanItems(let slot, let partition): scanItems(slot, partition, isDone: isDone)
        case .scanDue(let look, let partition): scanDue(look, partition, isDone: isDone)
        case .scanSuspended(let look, let partition): scanSuspended(look, partition, isDone: isDone)
        case .scanExpired(let look, let partition): scanExpired(look, partition, isDone: isDone)
        case .batch(let batch, let shard): perform(batch, shard)
        case .sync:
            if isDone { disk.sync() }
            machine.synced(isDone: isDone, at: now)
        case .checkpoint(let part, let position): checkpoint(part, position, isDone: isDone)
        case .dropCopies(let kept):
            if isDone { disk.drop(except: kept, reachedAfter: time.wallMilliseconds - Self.longestAbsence) }
            machine.droppedCopies(areMore: isDone ? false : nil, at: now)
        }
        act()
    }

    /// Milliseconds for which a copy counts.
    private static let longestAbsence: Int64 = 30_000

    func openCopies(_ attempts: [PartitionRestore.Attempt]) {
        let kept = disk.openCopies(
            attempts.map(\.partition), reachedAfter: time.wallMilliseconds - Self.longestAbsence,
            notAfter: time.wallMilliseconds + 1000)
        for attempt in attempts {
            parts[attempt.partition] = disk.open(attempt.partition)
            positions[attempt.partition] = kept[attempt.partition]
        }
    }

    func perform(_ batch: FleetBatch, _ shard: Int) {
        let number = disk.beginBatch()
        for (part, change) in batch.writes { part.perform(change, batch: number, world.keys) }
        let loaded = batch.loads.map { part, token, withItems in
            FleetLoaded(presence: part.presences[token], items: withItems ? part.items(of: token) : [])
        }
        for migration in batch.migrations {
            handOver(
                migration,
                to: shardIndex(
                    ofHash: migration.item.facts.device.low, shards: world.scenario.shards))
        }
        shards[shard].send(.batchEnded(batch, loaded))
    }

    func scanItems(_ slot: UInt16, _ partition: Int32, isDone: Bool) {
        guard let part = parts[partition] else { return }
        guard isDone else { return machine.scanFailed(slot: slot) }
        let awaited = part.presences.filter { $0.value.isAwaited }.keys.sorted()
        for shard in shards { shard.send(.awaited(slot, awaited)) }
        var left = part.dues.sorted { ($0.device.low, $0.offset) < ($1.device.low, $1.offset) }[...]
        while !left.isEmpty {
            let some = Array(left.prefix(3))
            left = left.dropFirst(3)
            for shard in shards { shard.send(.found(slot, some)) }
        }
        for shard in shards { shard.send(.scanned(slot)) }
    }

    func scanDue(_ look: DueSchedule.Look, _ partition: Int32, isDone: Bool) {
        guard isDone, let part = parts[partition] else {
            return machine.found(look.slot, nil, isEnd: true, at: world.now)
        }
        var found = part.dues.filter { item in
            item.due <= look.through && (look.after.map { key(item) > key($0) } ?? true)
        }.sorted { key($0) < key($1) }
        let isEnd = found.count <= 5
        if !isEnd { found.removeLast(found.count - 5) }
        machine.found(look.slot, found, isEnd: isEnd, at: world.now)
    }

    /// The order of due entries.
    func key(_ item: DueItem) -> (Int64, UInt64, UInt64, Int64) {
        (item.due, item.device.high, item.device.low, item.offset)
    }

    /// Reads a few entries at once, as the store reads many.
    func scanSuspended(_ look: SuspendedSchedule.Look, _ partition: Int32, isDone: Bool) {
        guard isDone, let part = parts[partition] else {
            return machine.foundSuspended(look, nil, cursor: nil, isEnd: true, at: world.now)
        }
        let entries = part.dues.filter { item in look.after.map { key(item) > key($0) } ?? true }
            .sorted { key($0) < key($1) }
        let read = entries.prefix(7)
        let found = read.compactMap { item -> SuspendedSchedule.Entry? in
            guard let topic = part.suspendedTopic(of: item, world),
                look.topic.map({ $0 == topic }) ?? !look.stopped.contains(topic)
            else { return nil }
            return SuspendedSchedule.Entry(item: item, topic: topic)
        }
        machine.foundSuspended(
            look, found, cursor: read.last ?? look.after, isEnd: read.count == entries.count, at: world.now)
    }

    /// Finds a few devices at once, in the order of their tokens.
    func scanExpired(_ look: ExpirySchedule.Look, _ partition: Int32, isDone: Bool) {
        guard isDone, let part = parts[partition] else {
            return machine.foundExpired(look, nil, last: nil, isEnd: true, at: world.now)
        }
        let after = look.after.flatMap { world.token(of: $0) } ?? -1
        let tokens = part.presences.keys.filter { $0 > after }.sorted()
        let read = tokens.prefix(5)
        let found = read.filter { part.presences[$0]!.expiryMilliseconds <= look.through }
        machine.foundExpired(
            look, found.map { world.keys[$0] }, last: read.last.map { world.keys[$0] } ?? look.after,
            isEnd: read.count == tokens.count, at: world.now)
    }

    func checkpoint(_ part: FleetPart, _ position: Int64, isDone: Bool) {
        guard isDone else { return }
        disk.checkpoint(part, .init(offset: position, reachedMilliseconds: time.wallMilliseconds))
    }

    /// Orders to the store are carried out before the store closes, unless the store fails.
    func closeStore() {
        guard !disk.isFailing else { return }
        while let task = diskTasks.popFirst() {
            switch task {
            case .batch(let batch, let shard): perform(batch, shard)
            case .checkpoint(let part, let position): checkpoint(part, position, isDone: true)
            default: break
            }
        }
    }

    func readChangelog() {
        guard !restores.isEmpty else { return }
        var index = 0
        while index < restores.count {
            if !read(&restores[index]) { index += 1 } else { restores.remove(at: index) }
        }
        act()
    }

    /// Reads some of the changelog. True when it ends.
    func read(_ reading: inout ChangelogReading) -> Bool {
        guard Int(reading.attempt.partition) < kafka.partitionCount(.changelog) else {
            machine.restoreInterrupted(reading.attempt, .of(.unknownPartition), at: world.now)
            return true
        }
        let log = kafka.log(.changelog, Int(reading.attempt.partition))
        guard !log.isAway else { return false }
        if world.failsOnce(5) {
            machine.restoreInterrupted(reading.attempt, .of(.leaderAway), at: world.now)
            return true
        }
        var position = log.index(of: reading.position)
        var count = 0
        let batch = disk.beginBatch()
        while position < log.entries.count, count < 100 {
            let entry = log.entries[position]
            guard entry.offset < log.lastStable else { break }
            reading.position = entry.offset + 1
            position += 1
            count += 1
            guard !entry.isMarker, !kafka.isAborted(entry) else { continue }
            reading.part.perform(world.changes[entry.payload], batch: batch, world.keys)
        }
        if position == log.entries.count { reading.position = max(reading.position, log.end) }
        guard reading.position >= reading.end else { return false }
        machine.restored(reading.attempt, position: reading.position, at: world.now)
        return true
    }
}
