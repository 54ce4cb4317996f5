import EventLoop

/// Memory of the records that a process has consumed. A killed process's memory is the system's again.
final class ConsumedMemory {
    let process: SimulatedProcess?
    /// Records in the memory of fetch responses, records in memory of their own, and responses that aren't freed.
    var records = 0
    var copies = 0
    var responses = 0
    /// Bytes of the records that have left clients' queues, headers included.
    var bytes = 0

    init(_ process: SimulatedProcess?) { self.process = process }
}

extension KafkaCluster {
    /// Memory of the process that runs.
    var memory: ConsumedMemory {
        let process = scheduler.process
        if let known = memories.first(where: { $0.process === process }) { return known }
        memories.removeAll { $0.process?.isAlive == false }
        memories.append(ConsumedMemory(process))
        return memories[memories.count - 1]
    }

    private func live(_ count: KeyPath<ConsumedMemory, Int>) -> Int {
        memories.reduce(0) { $1.process?.isAlive == false ? $0 : $0 + $1[keyPath: count] }
    }

    /// Bytes of the records that a process has taken from its clients' queues and hasn't destroyed.
    public func liveBytes(of process: SimulatedProcess?) -> Int {
        memories.first { $0.process === process }?.bytes ?? 0
    }

    /// Consumed records in the memory of fetch responses that aren't destroyed.
    public var liveRecords: Int { live(\.records) }
    /// Records in memory of their own that aren't destroyed.
    public var liveCopies: Int { live(\.copies) }
    /// Fetch responses whose memory isn't freed.
    public var liveResponses: Int { live(\.responses) }
}
