/// Progress of one record of the jobs topic, for people who look for its job.
public enum RecordStage: Equatable, Sendable {
    /// The partition isn't this worker's.
    case elsewhere
    /// The partition is being taken over: its part of the store is opened or restored.
    case arriving
    /// The record is at or behind the next offset to read. The partition is paused for these reasons, or being read.
    case unread(next: Int64, IntakeGate.Reason)
    /// The job was taken, and neither has its outcome been acknowledged nor has the store kept the job.
    case outstanding
    /// The job has ended, or the store has it.
    case complete
}

extension WorkerMachine {
    /// Returns the progress of a record.
    public func stage(ofPartition partition: Int32, offset: Int64) -> RecordStage {
        guard let index = partitions.index(ofPartition: partition) else {
            if let next = stopped[partition] { return .unread(next: next, .refused) }
            return opening.contains(partition) || restoring.contains(partition) ? .arriving : .elsewhere
        }
        if offset >= partitions[index].end {
            return .unread(next: partitions[index].end, gate.reasons(index))
        }
        return partitions[index].isOutstanding(offset) ? .outstanding : .complete
    }
}
