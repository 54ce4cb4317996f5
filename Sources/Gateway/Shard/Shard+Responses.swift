import DeliveryCore
import HTTP2
import Kafka

/// Moves records that wait out of the consumer's memory.
extension Shard {
    /// Ends a round, see ``ResponseRounds``. Returns the records that became much smaller since the last round.
    func leaveResponses() -> [ShrunkRecord] {
        guard !machine.hasEnded else { return [] }
        waiting.leaveResponses { shrank($0, by: $1) }
        // A request whose content waits for the server's window reads the content from the job.
        var unsent: Set<UInt32> = []
        for pool in pools {
            pool.connections.forEachUnsent { unsent.insert($0) }
            pool.isolated?.forEachUnsent { unsent.insert($0) }
        }
        jobs.forEachWithRecord { slot, job in
            guard job.pointee.responseRound != responseRound, !unsent.contains(slot) else { return }
            keepInOwnMemory(slot)
        }
        responseRound &+= 1
        defer { shrunk = [] }
        return shrunk
    }

    /// Moves a job into memory of its own. A given token replaces the job's device token.
    func keepInOwnMemory(_ slot: UInt32, deviceToken: UnsafeRawBufferPointer? = nil) {
        shrank(
            machine.delivery.recordPlace(slot),
            by: jobs[slot].pointee.moveToOwnMemory(deviceToken: deviceToken))
    }

    private func shrank(_ place: RecordPlace, by bytes: Int) {
        freedBytes += bytes
        if bytes >= Self.leastShrinking { shrunk.append(ShrunkRecord(place: place, bytes: bytes)) }
    }

    /// Bytes from which on a smaller record is reported. Others keep their share of the limit until they end.
    private static let leastShrinking = 4_096
}
