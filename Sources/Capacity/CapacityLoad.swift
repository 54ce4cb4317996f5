/// The load to plan for, and the choices of the operator. All rates are those of the whole group.
public struct CapacityLoad: Sendable, Equatable {
    /// Pushes a second on average.
    public var rate: Double = 10_000
    /// Highest rate of a minute ÷ ``rate``, at least 1.
    public var peakFactor: Double = 2
    /// Seconds from sending a push to APNs' answer.
    public var roundTrip: Double = 0.1
    /// Bytes of a payload.
    public var payloadBytes: Double = 250
    /// Share of the pushes that the store takes (held, scheduled, long retries), 0…1.
    public var heldShare: Double = 0
    /// Seconds that such a push stays in the store on average.
    public var holdTime: Double = 86_400
    /// Streams that APNs permits on a connection.
    public var streams: Double = 1_000
    /// Share of the streams to use at the peak, 0…1.
    public var streamUse: Double = 0.8
    /// Credentials among which the pushes divide evenly.
    public var credentials = 1
    /// Processor cores of a worker.
    public var cores = 4
    /// Share of the cores' time to use at the peak, 0…1.
    public var coreUse: Double = 0.6
    /// Zones among which the workers divide; 1: no zones, and one worker may fail.
    public var zones = 1
    /// Workers, those that may fail included; nil: to be computed.
    public var workers: Int?
    /// Partitions of the jobs topic; nil: to be recommended.
    public var partitions: Int?
    /// Replicas of each Kafka topic.
    public var replicationFactor: Double = 3
    /// Whether the workers have a store; held pushes need one.
    public var hasStore = true
    /// Whether the stores have a changelog; without a store false.
    public var hasChangelog = true
    /// Seconds of `apns.growth-interval`.
    public var growthInterval: Double = 2
    /// `apns.connections`: connections that each pool keeps open.
    public var leastConnections = 2
    /// `apns.max-connections`: highest number of connections of a pool.
    public var mostConnections = 16
    /// `delivery.return-rate`: held pushes a second that a worker sends to devices that are back.
    public var returnRate: Double = 2_000
    /// Held pushes whose devices come back within a minute; nil: a tenth of the held pushes.
    public var returning: Double?

    public init() {}

    /// Returns the first value that can't be planned with, as the name of its option and the permitted range; else nil.
    public var fault: (name: String, range: String)? {
        let ranges: [(String, Double, ClosedRange<Double>)] = [
            ("rate", rate, 0.001...1e9), ("peak", peakFactor, 1...1_000),
            ("round-trip", roundTrip, 1e-6...600),
            ("payload", payloadBytes, 1...5_120), ("held-share", heldShare, 0...1),
            ("hold", holdTime, 0...30 * 86_400), ("streams", streams, 1...1e6),
            ("stream-use", streamUse, 0.01...1), ("credentials", Double(credentials), 1...10_000),
            ("cores", Double(cores), 1...256), ("core-use", coreUse, 0.01...1),
            ("zones", Double(zones), 1...100),
            ("partitions", Double(partitions ?? 1), 1...100_000),
            ("workers", Double(workers ?? 1), 1...100_000),
            ("replication-factor", replicationFactor, 1...15), ("growth-interval", growthInterval, 0...600),
            ("connections", Double(leastConnections), 1...1_000),
            ("max-connections", Double(mostConnections), 1...1_000), ("return-rate", returnRate, 1...1e6),
            ("returning", returning ?? 0, 0...1e12),
        ]
        for (name, value, range) in ranges where !range.contains(value) {
            return (name, "\(figure(range.lowerBound)) to \(figure(range.upperBound))")
        }
        if leastConnections > mostConnections { return ("connections", "at most max-connections") }
        return nil
    }

    private func figure(_ value: Double) -> String {
        value == value.rounded() ? "\(Int(value))" : "\(value)"
    }
}
