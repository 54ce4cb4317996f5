import EventLoop
import Kafka
import Logging
import SluiceModel

/// Which record an outcome is for, packed into the producer's opaque word: the delivery report brings it back.
struct OutcomeSource {
    var partitionSlot: UInt16
    var offset: Int64
    /// The store has the item, or is about to: it is to be removed there.
    var isStored = false
    /// The offset is complete already, as the store has the item.
    var isOffsetDone = false

    private static let slotShift: UInt = 48
    private static let storedBit: UInt = 1 << 47
    private static let doneBit: UInt = 1 << 46

    init(record: ConsumedRecord, partitionSlot: UInt16) {
        self.partitionSlot = partitionSlot
        offset = record.offset
    }

    init(job: UnsafeMutablePointer<Job>) {
        partitionSlot = job.pointee.partitionSlot
        offset = job.pointee.offset
    }

    /// Of an item that came from the store.
    init(storedIn partitionSlot: UInt16, offset: Int64) {
        self.partitionSlot = partitionSlot
        self.offset = offset
        isStored = true
        isOffsetDone = true
    }

    init(opaque: UInt) {
        partitionSlot = UInt16(truncatingIfNeeded: opaque >> Self.slotShift)
        isStored = opaque & Self.storedBit != 0
        isOffsetDone = opaque & Self.doneBit != 0
        offset = Int64(opaque & (Self.doneBit - 1))
    }

    var opaque: UInt {
        UInt(partitionSlot) << Self.slotShift | (isStored ? Self.storedBit : 0)
            | (isOffsetDone ? Self.doneBit : 0) | UInt(offset)
    }
}

/// Produces one shard's outcomes and dead letters. When the producer's queue is full they wait here, and the shard
/// sends nothing until it has room again. Shard's thread only.
final class OutcomeWriter: TimerHandler {
    private let producer: KafkaProducer
    private let outcomes: KafkaTopic
    private let deadLetters: KafkaTopic
    private let changelog: KafkaTopic?
    private let logger: Logger
    /// A produce call that can't succeed ends the worker: an outcome must not be lost.
    private let fail: @Sendable (String) -> Void
    private unowned var loop: EventLoop!
    private var writer = ByteWriter()
    private var timer: TimerID?

    /// Called when a blocked writer has room again.
    var resume: () -> Void = {}

    private struct Pending {
        var topic: KafkaTopic
        var partition: Int32 = -1
        var key: [UInt8]?
        var value: [UInt8]?
        var headers: [(name: String, value: [UInt8]?)]
        var opaque: UInt
    }
    private var pending: [Pending] = []

    init(
        producer: KafkaProducer, outcomes: KafkaTopic, deadLetters: KafkaTopic, changelog: KafkaTopic? = nil,
        logger: Logger,
        fail: @escaping @Sendable (String) -> Void
    ) {
        self.producer = producer
        self.outcomes = outcomes
        self.deadLetters = deadLetters
        self.changelog = changelog
        self.logger = logger
        self.fail = fail
    }

    func attach(to loop: EventLoop) {
        self.loop = loop
    }

    /// The producer takes nothing at the moment.
    var isBlocked: Bool { !pending.isEmpty }

    func write(_ outcome: borrowing Outcome, source: OutcomeSource) {
        writer.removeAll()
        OutcomeEncoder.encode(outcome, into: &writer)
        if pending.isEmpty {
            switch producer.produce(
                outcomes, key: outcome.deviceToken, value: writer.bytes, opaque: source.opaque)
            {
            case .queued: return
            case .queueFull, .noTransaction: break
            case .failed(let error): return fail("an outcome can't be produced: \(error)")
            }
        }
        wait(
            Pending(
                topic: outcomes, key: Array(outcome.deviceToken), value: Array(writer.bytes), headers: [],
                opaque: source.opaque))
    }

    /// What is stored goes to other replicas as well.
    var hasChangelog: Bool { changelog != nil }

    /// Says what the store has under a key, or (nil) that it has nothing any more.
    func change(
        _ partition: Int32, key: UnsafeRawBufferPointer, value: UnsafeRawBufferPointer?, opaque: UInt
    ) {
        guard let changelog else { return }
        if pending.isEmpty {
            switch producer.produce(changelog, key: key, value: value, opaque: opaque, partition: partition) {
            case .queued: return
            case .queueFull, .noTransaction: break
            case .failed(let error): return fail("a change of the store can't be produced: \(error)")
            }
        }
        wait(
            Pending(
                topic: changelog, partition: partition, key: Array(key), value: value.map { Array($0) },
                headers: [], opaque: opaque))
    }

    func deadLetter(_ record: JobRecord, error: JobError, source: OutcomeSource) {
        var headers: [(name: String, value: [UInt8]?)] = record.headers.compactMap { header in
            DeadLetter.isOwnHeader(header.name)
                ? nil : (String(decoding: header.name, as: UTF8.self), header.value.map { Array($0) })
        }
        headers += DeadLetter.headers(for: error, record: record).map { ($0.name, Optional($0.value)) }
        logger.debug(
            "not a job, dead-lettered",
            metadata: [
                "partition": "\(record.partition)", "offset": "\(record.offset)", "field": "\(error.field)",
                "rule": "\(error.rule.rawValue)",
            ])
        let letter = Pending(
            topic: deadLetters, key: record.key.map { Array($0) }, value: record.value.map { Array($0) },
            headers: headers, opaque: source.opaque)
        guard pending.isEmpty else { return wait(letter) }
        switch produce(letter) {
        case .queued: return
        case .queueFull, .noTransaction: wait(letter)
        case .failed(let error): fail("a dead letter can't be produced: \(error)")
        }
    }

    private func produce(_ letter: Pending) -> ProduceResult {
        let result = tryProduce(letter)
        guard case .failed(let error) = result, letter.topic === deadLetters, letter.value != nil else {
            return result
        }
        // Larger with its headers than the producer takes: without its value it must fit.
        var shorter = letter
        shorter.value = nil
        shorter.headers.append((DeadLetter.valueOmittedHeader, Array(error.name.utf8)))
        return tryProduce(shorter)
    }

    private func tryProduce(_ letter: Pending) -> ProduceResult {
        withBytes(letter.key) { key in
            withBytes(letter.value) { value in
                letter.headers.isEmpty
                    ? producer.produce(
                        letter.topic, key: key, value: value, opaque: letter.opaque,
                        partition: letter.partition)
                    : producer.produce(
                        letter.topic, key: key, value: value, headers: letter.headers, opaque: letter.opaque)
            }
        }
    }

    private func wait(_ letter: Pending) {
        pending.append(letter)
        armTimer()
    }

    private func armTimer() {
        guard timer == nil else { return }
        timer = loop.schedule(after: .milliseconds(5), handler: self)
    }

    func timerFired(_ timer: TimerID) {
        self.timer = nil
        flushPending()
        if pending.isEmpty { resume() } else { armTimer() }
    }

    /// Produces what waits, as far as there is room.
    func flushPending() {
        guard !pending.isEmpty else { return }
        var done = 0
        loop: for letter in pending {
            switch produce(letter) {
            case .queued: done += 1
            case .queueFull, .noTransaction: break loop
            case .failed(let error):
                fail("an outcome can't be produced: \(error)")
                break loop
            }
        }
        pending.removeFirst(done)
    }
}

func withBytes<Result>(_ bytes: [UInt8]?, _ body: (UnsafeRawBufferPointer?) -> Result) -> Result {
    guard let bytes else { return body(nil) }
    return bytes.withUnsafeBytes { body($0) }
}
