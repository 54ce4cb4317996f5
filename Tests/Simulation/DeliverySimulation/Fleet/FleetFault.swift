/// Faults of a fleet's world, and events there beside plain pushes.
public enum FleetFault: UInt8, CaseIterable, Hashable, Sendable {
    case kill, freeze, stop, leader, groupCoordinator, transactionCoordinator, slowNetwork, clock, compaction,
        failingDisk, powerLoss, lostDisk
    /// APNs refuses the credential, takes all tokens for wrong, or can't be reached by one worker.
    case refusedCredential, wrongTokens, lostPool
    /// The jobs topic gets another partition, loses its oldest or its newest records, or is deleted and made anew.
    case growth, retention, lostTail, recreation
    /// Single failures, of the disk and of the changelog's reader, and answers of Kafka that are lost.
    case failedOrder, lostAnswer
    case badAnswer, presence, tokenChange, cancel, invalidRecord
    /// An operator pauses all sending or a topic.
    case pause
    /// Workers bound the pushes that they have begun and not committed.
    case window
    /// The data of a device is erased, instead of its end being reported.
    case erase
}

public typealias FleetLimits = WorldLimits<FleetFault>
