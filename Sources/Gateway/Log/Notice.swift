/// Notices that a server, broker, record, credential or disk can cause again and again.
///
/// Lines without a case are rare by themselves, as once for an assignment, a key, an operator's change or a life of the
/// worker. Lines on level debug have no limit. librdkafka itself holds repetitions of a broker's error back.
enum Notice: UInt8 {
    // About a pool, by its index.
    case connectionOpened, connectionClosed, connectionLost, connectionReplaced, connectionSuspect, goAway
    case hostUnresolved, resolverSilent, resolverAnswers
    case circuitOpen, circuitHalfOpen, circuitClosed
    case poolStopped, poolSuspended, poolResumed, poolOverloaded
    case tokenUnsigned, tokenExpired, headersTooLong, certificateRefused
    case keyReplaced, keyRests, keysRefused, keyServes, renewalUndone

    // About a topic, by its number.
    case topicRefused, tokensRefused, topicOverloaded, topicRecovered, pushIsolated

    // About an app on a pool, by the number of the app's first topic there.
    case appParked, appReadsAhead, appUnparked, appCrowds

    // About a partition, by its number.
    case stateUndecryptable, itemUndecryptable, itemUnreadable, itemUnsendable
    case recordsSkipped, restoreWaits, restoreInterrupted
    case windowFull, shareUsedUp, secondOutcome, partitionError

    // About outcomes or dead letters, by the kind of record.
    case recordLost, recordRefused

    // About a Kafka client, by the error's code.
    case consumerError, producerError

    // About the worker or a shard.
    case takeOverFailed, restoreTroubled, limitReached, membershipInDoubt, kafkaCallFailed
    case commitFailed, transactionStepFailed, transactionAborted, transactionRecordRefused
    case pushesHeld, pushesResumed
    case storeFailed, storeWorks, storeIsBehind, storeHasCaughtUp
    case scanFailed, syncFailed, copiesNotDropped
    case switchNotKept, switchUnreadable, switchProducerError
    case invariantBroken

    /// First notice of those that describe the same state as this one; the notice itself when it describes no state.
    var series: Notice {
        switch self {
        case .resolverAnswers: .resolverSilent
        case .circuitHalfOpen, .circuitClosed: .circuitOpen
        case .poolResumed: .poolSuspended
        case .keyServes: .keysRefused
        case .appReadsAhead, .appUnparked: .appParked
        case .tokensRefused, .topicOverloaded, .topicRecovered: .topicRefused
        case .pushesResumed: .pushesHeld
        case .storeWorks: .storeFailed
        case .storeHasCaughtUp: .storeIsBehind
        default: self
        }
    }
}
