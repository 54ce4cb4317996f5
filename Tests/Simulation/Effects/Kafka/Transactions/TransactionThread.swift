import CRdkafka

/// Runs the steps of transactions: one at a time, with one result.
// Sendable: as `Scheduler`.
final class TransactionThread: @unchecked Sendable {
    /// Arguments of a step.
    struct Order: Sendable {
        let step: TransactionStep
        var offsets: [OffsetCommit] = []
        var group: ConsumerGroupMetadata?
        let timeoutMilliseconds: Int32
    }

    private let owner: ProducerClient
    private let client: KafkaClient
    private(set) var isBusy = false
    private var isEnding = false

    init(_ owner: ProducerClient) throws(KafkaError) {
        self.owner = owner
        client = object(owner.handle)
    }

    func notify(_ descriptor: Int32) { client.stepDescriptor = descriptor }

    /// - Throws: `_CONFLICT` when a step is running, its result was not taken, or the thread is ending.
    func start(_ order: Order) throws(KafkaError) {
        guard !isBusy, !isEnding else {
            throw KafkaError(
                RD_KAFKA_RESP_ERR__CONFLICT, "transaction: \(order.step)",
                detail: "the previous step has not ended, or its result was not taken")
        }
        isBusy = true
        client.world.call { perform(order) }
    }

    private func perform(_ order: Order) {
        let (model, id) = (client.world.model, client.id)
        let timeout =
            order.timeoutMilliseconds < 0 ? nil : UInt64(order.timeoutMilliseconds) * 1_000_000
        switch order.step {
        case .initialize: model.initialize(id, timeout: timeout)
        case .begin: model.begin(id)
        case .sendOffsets:
            let offsets = order.offsets.map {
                KafkaModel.OffsetCommit(
                    partition: Int($0.topicPartition.partition), offset: $0.offset, metadata: $0.metadata)
            }
            let membership = order.group.map { object($0.handle, as: GroupMetadata.self).membership }
            model.sendOffsets(id, offsets, membership ?? .unfenced, timeout: timeout)
        case .commit: model.commitTransaction(id, timeout: timeout)
        case .abort: model.abortTransaction(id, timeout: timeout)
        }
    }

    /// Returns the result, once the reports before it were polled.
    func takeResult() -> TransactionResult? {
        guard let (step, result) = client.stepResult, client.operations.isEmpty else { return nil }
        client.stepResult = nil
        isBusy = false
        return TransactionResult(TransactionStep(step), failure(result, TransactionStep(step)))
    }

    private func failure(_ result: KafkaModel.StepResult, _ step: TransactionStep) -> TransactionFailure? {
        func error(
            _ code: rd_kafka_resp_err_t, isFatal: Bool = false, isRetriable: Bool = false,
            requiresAbort: Bool = false
        ) -> KafkaError {
            KafkaError(
                code: code.rawValue,
                message: "transaction: \(step.rawValue): \(String(cString: rd_kafka_err2str(code)))",
                isFatal: isFatal, isRetriable: isRetriable, requiresAbort: requiresAbort)
        }
        return switch result {
        case .done: nil
        case .retriable(let failure):
            TransactionFailure(
                error(failure.code, isRetriable: true), isClientFailed: client.fatalError != nil)
        case .abortable(.recordLost): TransactionFailure(error(client.lostRecord, requiresAbort: true))
        case .abortable(let failure): TransactionFailure(error(failure.code, requiresAbort: true))
        case .fatal(let failure): TransactionFailure(error(failure.code, isFatal: true))
        case .misuse: TransactionFailure(error(RD_KAFKA_RESP_ERR__STATE))
        }
    }

    /// Ends the thread. Nothing is signalled any more.
    func stop() {
        isEnding = true
        client.stepDescriptor = -1
    }
}

extension TransactionStep {
    init(_ step: KafkaModel.TransactionStep) {
        switch step {
        case .initialize: self = .initialize
        case .begin: self = .begin
        case .sendOffsets: self = .sendOffsets
        case .commit: self = .commit
        case .abort: self = .abort
        }
    }
}
