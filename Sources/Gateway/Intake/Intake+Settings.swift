import Configuration
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
        /// Longest time that a revocation may wait for jobs in flight.
        var revokeDeadline: Duration
        /// Share of the limits that one partition's jobs may take when they are held for long.
        var partitionShare: Double
        /// The consumer's session timeout.
        var sessionTimeout: Duration
        /// Whether a partition without a committed offset is read from its beginning: `auto.offset.reset` of the
        /// consumer.
        var readsFromBeginning: Bool
        /// Limits of the consumer's queue.
        var fetchLimits: FetchWatch.Limits
        /// Milliseconds after which a local copy of a partition is useless.
        var longestAbsence: Int64
        /// Offsets between a partition's watermark and its end at which the partition is paused.
        var spanLimit: Int
        /// Limits of the pushes that are begun and not committed.
        var window: PushWindow.Limits

        var machine: WorkerMachine.Settings {
            var machine = WorkerMachine.Settings(
                mode: mode, shards: shards,
                gate: .init(jobs: maximumInFlight, bytes: maximumBytes, partitionShare: partitionShare),
                commitInterval: commitInterval.wholeNanoseconds,
                transactionInterval: transactionInterval.wholeNanoseconds,
                drainDeadline: drainDeadline.wholeNanoseconds,
                revokeDeadline: revokeDeadline.wholeNanoseconds,
                sessionTimeout: sessionTimeout.wholeNanoseconds, readsFromBeginning: readsFromBeginning,
                highestOffset: OutcomeSource.offsets.upperBound)
            machine.window = window
            machine.spanLimit = spanLimit
            return machine
        }
    }
}

extension PushWindow.Limits {
    init(_ delivery: Configuration.Delivery, first: Int) {
        self.init()
        self.first = first
        most = delivery.maxUncommitted
        patience = delivery.commitPatience.wholeNanoseconds
    }
}
