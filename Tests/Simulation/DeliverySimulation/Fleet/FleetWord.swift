import DeliveryCore
import SluiceModel

/// Facts that ride with a record to its delivery report.
struct FleetWord {
    var slot: UInt16
    var offset: Int64
    var isStored = false
    var isOffsetDone = false
    var isOmitted = false
    var isChange = false
    var epoch = ChangeEpoch(shard: 0, epoch: 0)
    /// The partition of the jobs topic.
    var partition = 0
    /// The outcome's device token.
    var token = 0

    var place: RecordPlace { RecordPlace(partitionSlot: slot, offset: offset) }

    init(slot: UInt16, offset: Int64, partition: Int, token: Int = 0) {
        self.slot = slot
        self.offset = offset
        self.partition = partition
        self.token = token
    }

    init(change epoch: ChangeEpoch) {
        (slot, offset, isChange) = (.max, 0, true)
        self.epoch = epoch
    }

    init(opaque: Int) {
        let bits = UInt64(bitPattern: Int64(opaque))
        slot = UInt16(truncatingIfNeeded: bits >> 48)
        isChange = slot == .max
        offset = 0
        if isChange {
            epoch = ChangeEpoch(
                shard: UInt16(truncatingIfNeeded: bits >> 32), epoch: UInt32(truncatingIfNeeded: bits))
        } else {
            isStored = bits >> 47 & 1 == 1
            isOffsetDone = bits >> 46 & 1 == 1
            isOmitted = bits >> 45 & 1 == 1
            partition = Int(bits >> 39 & 63)
            token = Int(bits >> 27 & 4095)
            offset = Int64(bits & (1 << 27 - 1))
        }
    }

    var opaque: Int {
        var bits = UInt64(slot) << 48
        if isChange {
            bits |= UInt64(epoch.shard) << 32 | UInt64(epoch.epoch)
        } else {
            bits |= (isStored ? 1 : 0) << 47 | (isOffsetDone ? 1 : 0) << 46 | (isOmitted ? 1 : 0) << 45
            bits |= UInt64(partition) << 39 | UInt64(token) << 27 | UInt64(offset)
        }
        return Int(Int64(bitPattern: bits))
    }

    func job(in world: FleetWorld) -> Int { world.job(partition, offset) }
}

extension KafkaFault {
    private static let all: [KafkaFault] = (UInt8(0)..<24).map { raw in
        guard let failure = KafkaModel.Failure(rawValue: raw) else { return KafkaFault("?") }
        var traits: Traits = []
        switch failure {
        case .timedOut, .leaderAway, .coordinatorAway, .unstableOffsets: traits = .retriable
        case .rebalanceInProgress: traits = [.retriable, .rebalance]
        case .illegalGeneration: traits = [.rebalance, .membershipLost]
        case .unknownMember: traits = .membershipLost
        case .fencedInstance: traits = [.membershipLost, .lasting, .fatal]
        case .tooLarge: traits = [.tooLarge, .lasting]
        case .notAuthorised, .misuse: traits = .lasting
        case .metadataTooLarge: traits = [.metadataTooLarge, .lasting]
        case .fenced: traits = [.fatal, .fenced]
        case .unknownPartition: traits = .unknownPartition
        case .recordLost, .purged, .outOfRange: traits = []
        }
        return KafkaFault("failure \(raw)", traits)
    }

    static func of(_ failure: KafkaModel.Failure) -> KafkaFault { all[Int(failure.rawValue)] }
}

extension TransactionCycle.StepResult {
    init(_ step: KafkaModel.TransactionStep, _ result: KafkaModel.StepResult) {
        let step: TransactionCycle.Step =
            switch step {
            case .initialize: .initialize
            case .begin: .begin
            case .sendOffsets: .sendOffsets
            case .commit: .commit
            case .abort: .abort
            }
        switch result {
        case .done: self.init(step)
        case .retriable(let failure): self.init(step, .retriable(.of(failure)))
        case .abortable(let failure): self.init(step, .abortable(.of(failure)))
        case .fatal(let failure): self.init(step, .fatal(.of(failure)))
        case .misuse: self.init(step, .fatal(.of(.misuse)))
        }
    }
}
