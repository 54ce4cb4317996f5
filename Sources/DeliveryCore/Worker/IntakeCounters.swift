/// What the intake has done so far.
public struct IntakeCounters: Sendable, Equatable {
    /// Records handed to the shards.
    public var records = 0
    /// Records that a commit's metadata says were finished before a restart.
    public var alreadyCompleted = 0
    /// Records whose outcome or dead letter is in Kafka.
    public var finished = 0
    /// Outcomes that had to be produced again.
    public var undelivered = 0
    public var commits = 0
    public var commitErrors = 0
    /// Times that the store failed, each attempt counted.
    public var storeFailures = 0
    public var rebalances = 0
    /// Pauses at the limit of jobs or bytes in flight.
    public var pauses = 0
    /// Pauses of one partition alone: its jobs were held for long and took too much room, or its window was full.
    public var partitionPauses = 0
    public var kafkaErrors = 0
    /// Workers of this process that have failed, so that another one has started in their place.
    public var restarts = 0

    /// Looks that found the worker's machine in a state that can't be: 0, or something is wrong.
    public var brokenInvariants = 0

    public init() {}
}
