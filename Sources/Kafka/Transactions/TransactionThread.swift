import CRdkafka
import Glibc
import Synchronization

/// The thread on which librdkafka's transactional calls block. The thread runs one step at a time and stores one
/// result. After `stop` and the return of the running step, the thread ends and releases the client.
final class TransactionThread: Sendable {
    /// Arguments of a step.
    struct Order: Sendable {
        let step: TransactionStep
        var offsets: [OffsetCommit] = []
        var group: ConsumerGroupMetadata?
        let timeoutMilliseconds: Int32
    }

    private struct State {
        var order: Order?
        /// Whether a step was ordered and its result was not taken.
        var isBusy = false
        var result: TransactionResult?
        var isEnding = false
        /// Descriptor that signals results; -1: none.
        var descriptor: Int32 = -1
    }

    private let client: ProducerClient
    private let state = Mutex(State())
    // nonisolated(unsafe): a POSIX semaphore is made for several threads; destroyed in deinit, when no thread refers to
    // it.
    nonisolated(unsafe) private let signal: UnsafeMutablePointer<sem_t>

    init(_ client: ProducerClient) throws(KafkaError) {
        self.client = client
        signal = .allocate(capacity: 1)
        sem_init(signal, 0, 0)
        try start()
    }

    deinit {
        sem_destroy(signal)
        signal.deallocate()
    }

    /// Signals results by writing 8 bytes (the value 1) to the descriptor.
    func notify(_ descriptor: Int32) {
        state.withLock { $0.descriptor = descriptor }
    }

    /// - Throws: `_CONFLICT` when a step is running, its result was not taken, or the thread is ending.
    func start(_ order: Order) throws(KafkaError) {
        let other = state.withLock { state -> Bool in
            guard !state.isBusy, !state.isEnding else { return true }
            state.isBusy = true
            state.order = order
            return false
        }
        guard !other else {
            throw KafkaError(
                RD_KAFKA_RESP_ERR__CONFLICT, "transaction: \(order.step)",
                detail: "the previous step has not ended, or its result was not taken")
        }
        sem_post(signal)
    }

    func takeResult() -> TransactionResult? {
        state.withLock { state in
            guard let result = state.result else { return nil }
            state.result = nil
            state.isBusy = false
            return result
        }
    }

    var isBusy: Bool { state.withLock { $0.isBusy } }

    /// Ends the thread as soon as the running step has returned. Nothing is written to the descriptor any more.
    func stop() {
        state.withLock { state in
            state.isEnding = true
            state.descriptor = -1
        }
        sem_post(signal)
    }

    // MARK: On the thread

    private func start() throws(KafkaError) {
        pthread_detach(try startThread(for: "transactional producer") { self.run() })
    }

    private func run() {
        while true {
            while sem_wait(signal) != 0 {}
            let (order, isEnding) = state.withLock { state in
                defer { state.order = nil }
                return (state.order, state.isEnding)
            }
            if isEnding { return }
            if let order { finish(TransactionResult(order.step, perform(order))) }
        }
    }

    private func finish(_ result: TransactionResult) {
        state.withLock { state in
            state.result = result
            // Written within the lock, so that `stop` has removed the descriptor when it returns.
            if state.descriptor >= 0 {
                var one: UInt64 = 1
                _ = write(state.descriptor, &one, 8)
            }
        }
        // Ends the poll of a caller that blocks for delivery reports.
        rd_kafka_queue_yield(client.queue)
    }

    private func perform(_ order: Order) -> TransactionFailure? {
        let handle = client.handle
        let answer: OpaquePointer?
        switch order.step {
        case .initialize: answer = rd_kafka_init_transactions(handle, order.timeoutMilliseconds)
        case .begin: answer = rd_kafka_begin_transaction(handle)
        case .sendOffsets:
            let list = PartitionList(order.offsets)
            answer = rd_kafka_send_offsets_to_transaction(
                handle, list.pointer, order.group?.handle, order.timeoutMilliseconds)
        case .commit: answer = rd_kafka_commit_transaction(handle, order.timeoutMilliseconds)
        case .abort: answer = rd_kafka_abort_transaction(handle, order.timeoutMilliseconds)
        }
        guard let answer else { return nil }
        let error = KafkaError(consuming: answer, "transaction: \(order.step)")
        let isClientFailed = rd_kafka_fatal_error(handle, nil, 0) != RD_KAFKA_RESP_ERR_NO_ERROR
        return TransactionFailure(error, isClientFailed: isClientFailed)
    }
}
