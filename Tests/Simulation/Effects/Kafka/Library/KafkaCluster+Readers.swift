import EventLoop

/// States of the group's readers, for reports and checks of the world.
extension KafkaCluster {
    /// Describes the readers of a partition.
    public func describeReaders(of topic: String, _ partition: Int32) -> String {
        guard let log = log(TopicPartition(topic, partition)) else { return "" }
        let place = model.place(log.topic, log.partition)
        let readers = clients.filter { $0.isConsumer && $0.state.readings[place].isActive }
        return readers.map { client in
            let reading = client.state.readings[place]
            return
                "\(client.process?.name ?? "-") at \(reading.position) of \(log.end), fetched to \(reading.limit)"
                + (reading.isPaused ? ", paused" : "") + (reading.isFetching ? ", fetching" : "")
                + (log.isAway ? ", leader away" : "")
        }.joined(separator: "; ")
    }

    /// Nanoseconds at which a process gave a jobs partition up, and no longer reads it; nil: it reads the partition, or
    /// never did.
    public func leftAt(_ partition: Int32, by process: SimulatedProcess) -> UInt64? {
        clients.last { $0.subscribes && $0.process === process }?.left[partition]
    }

    /// Process of the group's member that has a jobs partition, as the coordinator knows; nil: no member has it.
    public func owner(of partition: Int32) -> SimulatedProcess? {
        model.group.members.first { $0.assignment.contains(Int(partition)) }
            .flatMap { member in clients.first { $0.id == member.client }?.process }
    }
}
