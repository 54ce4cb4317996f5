/// Counts of the intake so far.
public struct IntakeCounters: Sendable, Equatable {
    /// Records handed to the shards.
    public var records = 0
    /// Records that a commit's metadata reports as finished before a restart.
    public var alreadyCompleted = 0
    /// Records whose offsets were completed: the outcome or dead letter is in Kafka, or the store has the item.
    public var finished = 0
    /// Outcomes, dead letters and changes of the store that did not reach Kafka.
    public var undelivered = 0
    /// Plain commits that Kafka answered, failed ones included, and committed transactions.
    public var commits = 0
    /// Plain commits that failed or whose fate is unknown, and aborted transactions.
    public var commitErrors = 0
    /// Failures of the store, each attempt counted.
    public var storeFailures = 0
    /// Assignments and revocations of partitions.
    public var rebalances = 0
    /// Pauses at the limit of jobs or bytes in flight.
    public var pauses = 0
    /// Pauses of one partition alone, because its long-held jobs took too much room or its window was full.
    public var partitionPauses = 0
    /// Partitions whose logs had lost their ends, which the group's offsets showed when reading began.
    public var lostTails = 0
    /// Failed calls to Kafka: take-overs, restores, steps of transactions, and others that the owner reports.
    public var kafkaErrors = 0
    /// Failed workers of this process, in whose place another worker was started.
    public var restarts = 0

    /// Checks that found the worker's machine in an impossible state. Any number but 0 shows an error.
    public var brokenInvariants = 0

    public init() {}
}
