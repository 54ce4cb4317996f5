import Kafka
import Logging

extension Intake {
    func handle(_ event: KafkaConsumerEvent) {
        switch event {
        case .assigned(let assigned): take(assigned)
        case .revoked(let revoked): beginRevocation(revoked, isLost: false)
        case .lost(let lost): beginRevocation(lost, isLost: true)
        case .committed(let result): committed(result)
        case .error(let error):
            counters.kafkaErrors += 1
            if error.isFatal {
                fail(
                    error.isInstanceTaken
                        ? "another worker of the group has this one's kafka.instance-id (or POD_NAME); give each its own: \(error)"
                        : "the consumer has failed: \(error)", error)
            } else {
                logger.warning("Kafka", metadata: ["error": "\(error)"])
            }
        case .partitionError(let partition, let error):
            counters.kafkaErrors += 1
            logger.error("Kafka", metadata: ["partition": "\(partition)", "error": "\(error)"])
        case .log(let line):
            logger.log(
                level: line.level <= 3
                    ? .error : line.level == 4 ? .warning : line.level <= 6 ? .info : .debug,
                "librdkafka", metadata: ["facility": "\(line.facility)", "text": "\(line.message)"])
        case .endOfPartition, .statistics: break
        }
    }

    /// The worker can't go on: it stops in an orderly way, and says why. After an error of Kafka that a fresh start mends it
    /// stops at once: nothing that it could still do in order would get through.
    func fail(_ reason: String, _ error: KafkaError? = nil) {
        guard failure == nil else { return }
        if let error, error.isMendedByStartingOver { return failAtOnce(reason, error) }
        failure = WorkerFailure(reason: reason, startsOver: false)
        logger.critical("the worker stops", metadata: ["reason": "\(reason)"])
        beginDrain()
    }

    func attempt(_ what: String, _ body: () throws(KafkaError) -> Void) {
        do throws(KafkaError) {
            try body()
        } catch {
            counters.kafkaErrors += 1
            logger.error("Kafka", metadata: ["call": "\(what)", "error": "\(error)"])
        }
    }
}

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

    public init() {}
}
