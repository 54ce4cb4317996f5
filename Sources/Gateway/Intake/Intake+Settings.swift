extension Intake {
    struct Settings: Sendable {
        var maximumInFlight: Int
        var maximumBytes: Int
        var commitInterval: Duration
        var drainDeadline: Duration
        /// How long a revocation may wait for what is in flight.
        var revokeDeadline: Duration
        /// Part of the limits that one partition's jobs may take when they are held for long.
        var partitionShare: Double
        /// Of the consumer.
        var sessionTimeout: Duration
        /// A partition that has no committed offset is read from its beginning: `auto.offset.reset` of the consumer.
        var readsFromBeginning: Bool
    }
}
