import DeliveryCore

extension Intake {
    struct Settings: Sendable {
        var mode: StoreMode
        var shards: Int
        var maximumInFlight: Int
        var maximumBytes: Int
        var commitInterval: Duration
        var transactionInterval: Duration
        var drainDeadline: Duration
        /// How long a revocation may wait for what is in flight.
        var revokeDeadline: Duration
        /// Part of the limits that one partition's jobs may take when they are held for long.
        var partitionShare: Double
        /// Of the consumer.
        var sessionTimeout: Duration
        /// A partition that has no committed offset is read from its beginning: `auto.offset.reset` of the consumer.
        var readsFromBeginning: Bool
        /// Milliseconds after which a local copy of a partition is of no use.
        var longestAbsence: Int64

        var machine: WorkerMachine.Settings {
            let machine = WorkerMachine.Settings(
                mode: mode, shards: shards,
                gate: .init(jobs: maximumInFlight, bytes: maximumBytes, partitionShare: partitionShare),
                commitInterval: commitInterval.wholeNanoseconds,
                transactionInterval: transactionInterval.wholeNanoseconds,
                drainDeadline: drainDeadline.wholeNanoseconds,
                revokeDeadline: revokeDeadline.wholeNanoseconds,
                sessionTimeout: sessionTimeout.wholeNanoseconds, readsFromBeginning: readsFromBeginning,
                highestOffset: OutcomeSource.offsets.upperBound)
            return machine
        }
    }
}
