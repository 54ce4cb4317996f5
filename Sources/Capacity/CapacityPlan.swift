/// Answer to a ``CapacityLoad``: sizes, their formulas, and warnings.
public struct CapacityPlan: Sendable, Equatable {
    /// A figure with the formula that gave it.
    public struct Line: Sendable, Equatable {
        /// Subject, such as "connections of a worker".
        public var name: String
        /// Key in JSON.
        public var key: String
        public var value: Double
        /// Unit of ``value``, such as "bytes" or "bytes/s"; empty for a number.
        public var unit: String
        /// Formula with its inputs.
        public var formula: String
    }

    /// Limit that a growing load meets first.
    public enum Bottleneck: String, Sendable {
        case processor
        case connections
        case intake = "the worker's Kafka thread"
        case shards
    }

    public var load: CapacityLoad
    /// Pushes a second at the peak.
    public var peakRate: Double
    /// Workers, those that may fail included.
    public var workers: Int
    /// Workers that carry the peak.
    public var workersNeeded: Int
    /// Workers that remain after the failure planned for: a zone, or one worker.
    public var workersLeft: Int
    /// `delivery.shards` of each worker.
    public var shards: Int
    public var partitions: Int
    /// Connections of a pool at the peak with ``workersLeft``.
    public var connectionsPerPool: Int
    /// Connections of a worker at the peak with ``workersLeft``.
    public var connectionsPerWorker: Int
    /// Connections of the group, with all workers and the average load.
    public var connectionsUsual: Int
    /// Seconds of processor time of a job.
    public var cpuPerJob: Double
    /// Jobs a second that a worker can carry, all of its processor time used.
    public var workerLimit: Double
    /// `delivery.max-in-flight` of each worker.
    public var maxInFlight: Int
    /// `delivery.max-in-flight-bytes` of each worker, in bytes.
    public var maxInFlightBytes: Double
    /// Pushes that the stores of the group have.
    public var heldItems: Double
    /// Bytes on the disk of a worker.
    public var diskPerWorker: Double
    /// Bytes of memory of a worker under the planned load.
    public var memoryPerWorker: Double
    /// Most bytes of memory of a worker, whatever producers write.
    public var mostMemoryPerWorker: Double
    /// Cores of a worker used at the average rate with all workers.
    public var coresUsual: Double
    /// Seconds in which a new owner restores a partition.
    public var restoreOfPartition: Double
    /// Seconds in which the remaining workers restore all partitions of the failed ones.
    public var restoreAfterFailure: Double
    /// Seconds until the pushes of the failed workers are sent again and the backlog is gone.
    public var recoveryAfterFailure: Double
    /// Age of the oldest job after the failure, in seconds.
    public var lagAfterFailure: Double
    /// Age of the oldest job when a worker restarts as planned, in seconds.
    public var lagAtRestart: Double
    /// Seconds from such a restart until the worker's backlog is gone.
    public var recoveryAfterRestart: Double
    /// Seconds of a rolling restart that waits for the readiness of each worker.
    public var rollingRestart: Double
    /// Held pushes whose devices come back within a minute.
    public var returning: Double
    /// Seconds in which these pushes return.
    public var massReturn: Double
    public var bottleneck: Bottleneck
    public var lines: [Line]
    public var warnings: [String]
}

extension CapacityPlan {
    /// Plans for a load. ``CapacityLoad/fault`` of the load must be nil.
    public init(_ load: CapacityLoad, costs: CapacityCosts = .init()) {
        var sizes = CapacitySizes(load, costs)
        sizes.divide()
        sizes.fill()
        self.init(sizes)
        lines = sizes.lines(self)
        warnings = sizes.warnings(self)
    }

    private init(_ s: CapacitySizes) {
        self.init(
            load: s.load, peakRate: s.peak, workers: s.workers, workersNeeded: s.needed, workersLeft: s.left,
            shards: s.shards, partitions: s.partitions, connectionsPerPool: s.perPool,
            connectionsPerWorker: s.perWorker, connectionsUsual: s.connectionsUsual,
            cpuPerJob: s.cpuPerJob, workerLimit: s.fullWorker,
            maxInFlight: s.maxInFlight, maxInFlightBytes: s.maxInFlightBytes, heldItems: s.heldItems,
            diskPerWorker: s.disk, memoryPerWorker: s.memory,
            mostMemoryPerWorker: s.mostMemory, coresUsual: s.coresUsual,
            restoreOfPartition: s.restoreOfPartition, restoreAfterFailure: s.restoreAfterFailure,
            recoveryAfterFailure: s.recovery, lagAfterFailure: s.lag, lagAtRestart: s.restartLag,
            recoveryAfterRestart: s.restartRecovery, rollingRestart: s.rollingRestart,
            returning: s.returning, massReturn: s.massReturn,
            bottleneck: s.bottleneck, lines: [], warnings: [])
    }
}
