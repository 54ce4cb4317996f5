/// Measured costs. Deploy/capacity.md names the source of each.
public struct CapacityCosts: Sendable, Equatable {
    /// Seconds of processor time of a job from Kafka to outcome, librdkafka included.
    public var cpuPerJob = 6.4e-6
    /// Cores that wake-ups of a worker take which is not full, whose batches are small.
    public var coresOfWakeUps = 0.1
    /// Seconds of processor time that a payload's byte adds beyond ``payloadOfCost``.
    public var cpuPerPayloadByte = 4e-9
    /// Bytes of the payload with which ``cpuPerJob`` was measured.
    public var payloadOfCost: Double = 250
    /// Further seconds of processor time of a push that the store takes: put, load, delete, changelog.
    public var cpuPerHeld = 20e-6
    /// Highest rate of a shard, in jobs a second.
    public var ratePerShard: Double = 100_000
    /// Highest rate of a worker, whose one Kafka thread polls and commits, in jobs a second.
    public var ratePerWorker: Double = 200_000
    /// Share of a connection's streams that stay busy when pushes wait.
    public var streamEfficiency = 0.965
    /// Seconds from an answer to the outcome's acknowledgement by Kafka, and waits for a turn.
    public var outcomeTime = 0.05

    /// Bytes of an idle worker in memory.
    public var residentIdle = 60e6
    /// Bytes of a connection in memory.
    public var residentPerConnection = 2e6
    /// Bytes of an unfinished job in memory, without its record: tables of the core, and librdkafka's messages.
    public var residentPerJob: Double = 2_000
    /// Bytes of the Kafka clients' queues in memory: 16 MiB fetched ahead, and librdkafka's part of each record.
    public var residentQueues = 40e6
    /// Bytes of fetch responses that jobs which wait keep, at most.
    public var mostResponses: Double = 48 * 1_048_576
    /// Bytes that the consumer fetches ahead, at most.
    public var mostAhead: Double = 128 * 1_048_576
    /// Bytes of a partition in memory.
    public var residentPerPartition: Double = 16_384
    /// Bytes of a store in memory: write buffer, cache and RocksDB's own.
    public var residentStore = 330e6

    /// Bytes of a job's record without payload: key, headers, Kafka's own.
    public var recordOverhead: Double = 290
    /// Bytes of an outcome's record.
    public var outcomeBytes: Double = 480
    /// Bytes of a stored push without payload.
    public var storedOverhead: Double = 350
    /// Bytes on disk ÷ bytes of the stored pushes.
    public var diskFactor = 1.57
    /// Bytes of a deletion in the changelog.
    public var tombstoneBytes: Double = 80
    /// Bytes on the wire of a push without payload: header block, frames, TLS.
    public var pushOverhead: Double = 145
    /// Items a second that a worker restores from a changelog.
    public var restoreRate: Double = 200_000
    /// Records of the changelog ÷ items, before compaction removes the others.
    public var changelogFactor: Double = 2
    /// Seconds in which a group notices a dead worker.
    public var sessionTimeout: Double = 10
    /// Seconds in which a group assigns partitions anew.
    public var rebalance: Double = 5
    /// Seconds in which a stopping worker ends its jobs, beside the round trip.
    public var drain: Double = 1
    /// Seconds from the end of a process until its successor joins the group.
    public var restart: Double = 10
    /// Bytes a second of a partition, beyond which brokers and consumers suffer.
    public var partitionBytes = 5e6

    public init() {}
}
