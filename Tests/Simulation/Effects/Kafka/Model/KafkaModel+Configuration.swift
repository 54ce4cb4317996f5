extension KafkaModel {
    /// Settings of brokers and clients. Times are nanoseconds.
    struct Configuration {
        var partitions = 4
        var outcomePartitions = 3
        var deadLetterPartitions = 1

        // MARK: Network

        /// Nanoseconds that a request or an answer is under way.
        var delay: ClosedRange<UInt64> = 200_000...2_000_000
        /// Nanoseconds that a request or an answer is under way in a slow network.
        var slowDelay: ClosedRange<UInt64> = 50_000_000...3_000_000_000
        /// Requests and answers out of a thousand that are slow in any network.
        var slowPerMille = 5
        /// Nanoseconds from a transaction's decision to a partition's marker.
        var markerDelay: ClosedRange<UInt64> = 500_000...20_000_000
        /// Nanoseconds before a client retries a request to a coordinator.
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
        /// Nanoseconds between the coordinator's checks for expired transactions.
        var transactionSweep: UInt64 = 10_000_000_000
        /// A step that takes longer ends as retriable, and continues.
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
        /// Nanoseconds without a poll after which a client leaves the group.
        var maximumPollInterval: UInt64 = 300_000_000_000
        var initialRebalanceDelay: UInt64 = 3_000_000_000
        /// Commits are refused as soon as a member joins, as librdkafka's embedded cluster does.
        var refusesCommitsWhileJoining = false
        /// `offset.metadata.max.bytes`
        var metadataLimit = 4096
        /// Commits out of a thousand whose answers are lost although the commits are taken.
        var answerLostPerMille = 0

        // MARK: Compaction

        var deleteRetention: UInt64 = 86_400_000_000_000
    }
}
