import DeliveryCore
import SluiceModel

/// Facts that ride with a record to its delivery report.
struct FleetWord {
    var slot: UInt16
    /// Number of the job whose record it ends; -1: it is a change.
    var job: Int
    var isStored = false
    var isOffsetDone = false
    /// Cuts of the outcome or dead letter.
    var cuts: UInt8 = 0
    var epoch = ChangeEpoch(shard: 0, epoch: 0)
    /// The outcome's device token.
    var token = 0

    var isChange: Bool { job < 0 }

    func place(_ world: FleetWorld) -> RecordPlace {
        RecordPlace(partitionSlot: slot, offset: world.jobs[job].offset)
    }

    func outcome(_ world: FleetWorld) -> OutcomePlace {
        OutcomePlace(place(world), isOffsetDone: isOffsetDone)
    }

    init(slot: UInt16, job: Int, token: Int = 0) {
        self.slot = slot
        self.job = job
        self.token = token
    }

    init(change epoch: ChangeEpoch) {
        (slot, job) = (.max, -1)
        self.epoch = epoch
    }

    init(opaque: Int) {
        let bits = UInt64(bitPattern: Int64(opaque))
        slot = UInt16(truncatingIfNeeded: bits >> 48)
        guard slot < .max else {
            job = -1
            epoch = ChangeEpoch(
                shard: UInt16(truncatingIfNeeded: bits >> 32), epoch: UInt32(truncatingIfNeeded: bits))
            return
        }
        isStored = bits >> 47 & 1 == 1
        isOffsetDone = bits >> 46 & 1 == 1
        cuts = UInt8(bits >> 44 & 3)
        token = Int(bits >> 32 & 4095)
        job = Int(bits & (1 << 32 - 1))
    }

    var opaque: Int {
        var bits = UInt64(slot) << 48
        if isChange {
            bits |= UInt64(epoch.shard) << 32 | UInt64(epoch.epoch)
        } else {
            bits |= (isStored ? 1 : 0) << 47 | (isOffsetDone ? 1 : 0) << 46 | UInt64(cuts) << 44
            bits |= UInt64(token) << 32 | UInt64(job)
        }
        return Int(Int64(bitPattern: bits))
    }
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
        case .tooLarge: traits = [.ofRecord, .lasting]
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
