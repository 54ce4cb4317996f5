import DeliveryCore
import Kafka

extension KafkaFault {
    init(_ error: KafkaError) {
        var traits: Traits = []
        if error.isFatal { traits.insert(.fatal) }
        if error.isRetriable { traits.insert(.retriable) }
        if error.isOfRebalance { traits.insert(.rebalance) }
        if error.isGroupMembershipLost { traits.insert(.membershipLost) }
        if error.isOfRecord { traits.insert(.ofRecord) }
        if error.isMetadataTooLarge { traits.insert(.metadataTooLarge) }
        if !error.isMendedByStartingOver { traits.insert(.lasting) }
        if error.isFenced { traits.insert(.fenced) }
        if error.isUnknownPartition { traits.insert(.unknownPartition) }
        self.init(error.name, traits, message: error.message)
    }
}

extension TransactionCycle.StepResult {
    init(_ result: TransactionResult) {
        let step: TransactionCycle.Step =
            switch result.step {
            case .initialize: .initialize
            case .begin: .begin
            case .sendOffsets: .sendOffsets
            case .commit: .commit
            case .abort: .abort
            }
        self.init(step, result.failure.map { TransactionCycle.Failure($0) })
    }
}

extension TransactionCycle.Failure {
    init(_ failure: TransactionFailure) {
        let fault = KafkaFault(failure.error)
        switch failure {
        case .retriable: self = .retriable(fault)
        case .abortable: self = .abortable(fault)
        case .fatal, .misuse: self = .fatal(fault)
        }
    }
}
