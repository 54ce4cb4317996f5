extension KafkaModel {
    /// Settings of brokers and clients. Times are nanoseconds.
    struct Configuration {
        var partitions = 4
        var outcomePartitions = 3
        var deadLetterPartitions = 1

        // MARK: Network

        /// A request's way, or an answer's.
        var delay: ClosedRange<UInt64> = 200_000...2_000_000
        /// The same, while the network is slow.
        var slowDelay: ClosedRange<UInt64> = 50_000_000...3_000_000_000
        /// Ways out of a thousand that are slow in any case.
        var slowPerMille = 5
        /// From a decision to a partition's marker.
        var markerDelay: ClosedRange<UInt64> = 500_000...20_000_000
        /// Before a client asks a coordinator again.
        var retryPause: UInt64 = 100_000_000

        // MARK: Producers

        var linger: UInt64 = 5_000_000
        var queueLimit = 100_000
        var deliveryTimeout: UInt64 = 300_000_000_000
        var batchLimit = 1_000
        /// Batches out of a thousand that arrive although their client has given them up, when a leader is back.
        var lateAppendPerMille = 300

        // MARK: Transactions

        var transactionTimeout: UInt64 = 15_000_000_000
        /// The coordinator looks for old transactions once in so long.
        var transactionSweep: UInt64 = 10_000_000_000
        /// A step that takes longer ends as retriable, and goes on.
        var stepTimeout: UInt64 = 15_000_000_000
        /// Steps out of a thousand whose caller waits for no more than a few milliseconds.
        var hastyPerMille = 0

        // MARK: Consumers

        var isolation = Isolation.committed
        var resetPolicy = ResetPolicy.earliest
        var fetchLimit = 500
        var metadataAge: UInt64 = 300_000_000_000

        // MARK: Group

        var assignor = Assignor.cooperative
        var sessionTimeout: UInt64 = 45_000_000_000
        var heartbeatInterval: UInt64 = 3_000_000_000
        var rebalanceTimeout: UInt64 = 300_000_000_000
        /// A client that isn't polled for so long leaves.
        var maximumPollInterval: UInt64 = 300_000_000_000
        var initialRebalanceDelay: UInt64 = 3_000_000_000
        /// Commits are refused as soon as a member joins, as librdkafka's embedded cluster does.
        var refusesCommitsWhileJoining = false
        /// `offset.metadata.max.bytes`
        var metadataLimit = 4096
        /// Commits out of a thousand that are taken without their client ever hearing so.
        var answerLostPerMille = 0

        // MARK: Compaction

        var deleteRetention: UInt64 = 86_400_000_000_000
    }
}
