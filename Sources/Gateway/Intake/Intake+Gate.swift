import DeliveryCore
import EventLoop
import Kafka
import Logging

/// What the gate decides is done here.
extension Intake {
    /// Jobs of assigned partitions whose outcome is not there yet.
    var outstanding: Int { max(0, gate.load.jobs - drained) }

    /// Jobs that shards still hold, those of partitions that went away included.
    var unfinished: Int { gate.total.jobs - drained }

    /// Pauses and resumes what the gate says; not while draining, where all stays paused.
    func followGate() {
        guard gate.hasActions else { return }
        var run: [TopicPartition] = []
        var isPause = false
        func flush() {
            guard !run.isEmpty, phase == .running else { return run.removeAll() }
            if isPause {
                attempt("pause") { () throws(KafkaError) in try consumer.pause(run) }
            } else {
                attempt("resume") { () throws(KafkaError) in try consumer.resume(run) }
            }
            run.removeAll()
        }
        while let action = gate.nextAction() {
            switch action {
            case .pause(let place, let reason):
                if !isPause { flush() }
                isPause = true
                run.append(partitions[place].topicPartition)
                if phase == .running { tell(reason, place) }
            case .resume(let place):
                if isPause { flush() }
                isPause = false
                run.append(partitions[place].topicPartition)
            }
        }
        flush()
    }

    private func tell(_ reason: IntakeGate.Reason, _ place: Int) {
        let state = partitions[place]
        switch reason {
        case .window:
            counters.partitionPauses += 1
            logger.warning(
                "a job holds its partition's watermark; the partition is paused until it is finished",
                metadata: [
                    "partition": "\(state.topicPartition)", "offset": "\(state.tracker.watermark)",
                    "finished-above": "\(state.tracker.completedInWindow)",
                ])
        case .share:
            counters.partitionPauses += 1
            let load = gate.load(place)
            logger.warning(
                "one partition's jobs are held for long and take too much room; it is paused alone",
                metadata: [
                    "partition": "\(state.topicPartition)", "jobs": "\(load.jobs)", "bytes": "\(load.bytes)",
                ])
        default: break
        }
    }

    /// The gate gave no room for a while.
    func advanceGate() {
        let pauses = gate.limitPauses
        gate.advance(to: loop.now.nanoseconds)
        if gate.limitPauses != pauses {
            counters.pauses += 1
            logger.info(
                "at the limit of jobs in flight; partitions paused",
                metadata: ["jobs": "\(outstanding)", "bytes": "\(gate.total.bytes)"])
        }
        followGate()
    }

    /// After jobs have ended: whether polling goes on that had stopped.
    func settleGate() -> Bool {
        gate.bytesHeld = bytesInFlight.count
        let goesOn = gate.settle(at: loop.now.nanoseconds)
        followGate()
        return goesOn
    }

    // MARK: Windows of offsets

    /// Tells the gate when a partition's window is full.
    func checkWindow(_ place: Int) {
        relieve(place)
        guard partitions[place].tracker.isFull || !partitions[place].held.isEmpty else { return }
        gate.window(place, isFull: true, hasRoom: false)
    }

    /// Has the shards put what holds the watermark into the store, when the commit's metadata runs out of room.
    private func relieve(_ place: Int, again: Bool = false) {
        guard store != nil, let offset = partitions[place].tracker.askRelief(again: again) else { return }
        let slot = partitions[place].slot
        for shard in shards {
            shard.loop.execute { shard.relieve(partitionSlot: slot, below: offset) }
        }
    }

    /// The same for partitions that are paused until their watermark moves: what was in flight may wait by now.
    func relieveFullWindows() {
        guard loop.now >= lastRelief + .seconds(1) else { return }
        lastRelief = loop.now
        for place in partitions.places where gate.reasons(place).contains(.window) {
            relieve(place, again: true)
            reopenWindow(place)
        }
    }

    /// Takes the records that the window could not hold, when it has room for them again.
    func reopenWindow(_ place: Int) {
        guard gate.reasons(place).contains(.window), !partitions[place].isEnding,
            partitions[place].tracker.hasRoom
        else { return }
        let partition = partitions[place].topicPartition
        let held = partitions[place].held
        partitions[place].held = []
        for (index, record) in held.enumerated() {
            guard gate.total.jobs < settings.maximumInFlight else {
                // No room for them among all jobs: the next tick tries again.
                partitions[place].held = Array(held[index...])
                break
            }
            take(record)
            // The log went back: the partition has begun anew, and its records will be read again.
            guard partitions.place(of: partition) == place else {
                for record in held[(index + 1)...] { record.destroy() }
                break
            }
        }
        signalShards()
        // It may have begun anew, at another place.
        guard let place = partitions.place(of: partition), partitions[place].held.isEmpty else { return }
        gate.window(
            place, isFull: partitions[place].tracker.isFull, hasRoom: partitions[place].tracker.hasRoom)
    }

    // MARK: Reports

    func partitionReports() -> [PartitionReport] {
        let now = loop.now.nanoseconds
        return partitions.places.map { place in
            let state = partitions[place]
            let oldest = state.tracker.oldestOutstanding.flatMap { state.pollTimes.time(of: $0) }
            return PartitionReport(
                topic: state.topicPartition.topic, partition: state.topicPartition.partition,
                watermark: state.tracker.watermark, end: state.tracker.end,
                outstanding: state.tracker.outstanding, outstandingBytes: state.tracker.outstandingBytes,
                headOfLineAge: .nanoseconds(oldest.map { now > $0 ? now - $0 : 0 } ?? 0),
                pauseReasons: gate.reasons(place), isEnding: state.isEnding)
        }.sorted { $0.partition < $1.partition }
    }
}

/// One assigned partition at one moment.
public struct PartitionReport: Sendable, Equatable {
    public var topic: String
    public var partition: Int32
    /// The next offset to commit: everything below it is finished.
    public var watermark: Int64
    /// One above the highest offset taken.
    public var end: Int64
    /// Jobs taken and not finished.
    public var outstanding: Int
    /// Their records' bytes, about.
    public var outstandingBytes: Int
    /// How long ago the oldest unfinished record was polled: the one that holds the watermark. Overstated by at most a
    /// tenth of a second or 1/128. Zero: all is finished.
    public var headOfLineAge: Duration
    /// Empty: it is being read.
    public var pauseReasons: IntakeGate.Reason
    /// The group takes it away; its jobs in flight still end.
    public var isEnding: Bool
}
