/// The client's side of transactions.
struct KafkaTransactionalClient {
    enum Phase: Equatable {
        case unready, ready, open
        case abortable(KafkaModel.Failure)
        case failed(KafkaModel.Failure)
    }

    let identifier: Int
    var epoch: Int32 = -1
    var nextEpoch: Int32 = -1
    var phase = Phase.unready
    /// The coordinator's number of the open transaction.
    var transaction: Int32 = -1

    // MARK: Partitions

    /// By topic: partitions in the transaction, wanted by the client, and named by the request under way.
    var registered = SIMD4<UInt64>()
    var wanted = SIMD4<UInt64>()
    var asked = SIMD4<UInt64>()
    var isRegistering = false
    var registerEpoch: Int32 = 0
    var hasOffsets = false

    // MARK: Steps

    /// Step under way, also after its caller got a retriable result; nil: none.
    var step: KafkaModel.TransactionStep?
    var stage = 0
    var stepEpoch: Int32 = 0
    var isAwaited = false
    var waitEpoch: Int32 = 0
    /// Result on its way to the client.
    var answer = KafkaModel.StepResult.done
    /// Result that arrived while no caller waited; nil: none.
    var unheard: KafkaModel.StepResult?
    var offsets: [KafkaModel.OffsetCommit] = []
    var membership = KafkaModel.Membership.unfenced

    init(identifier: Int) { self.identifier = identifier }

    var acceptsRecords: Bool {
        phase == .open && (step == nil || step == .sendOffsets)
    }

    func isRegistered(_ place: Int) -> Bool {
        registered[place / KafkaModel.stride] >> UInt64(place % KafkaModel.stride) & 1 == 1
    }
}

extension KafkaModel {
    // MARK: Calls

    /// Each call starts a step, and returns false while another step's result is awaited.
    @discardableResult
    func initialize(_ id: ClientID, timeout: UInt64? = nil) -> Bool { start(.initialize, id, timeout) }

    @discardableResult
    func begin(_ id: ClientID) -> Bool { start(.begin, id, nil) }

    @discardableResult
    func sendOffsets(
        _ id: ClientID, _ offsets: [OffsetCommit], _ membership: Membership, timeout: UInt64? = nil
    ) -> Bool {
        guard let transactional = clients[id].transactional, !transactional.isAwaited else { return false }
        clients[id].transactional!.offsets = offsets
        clients[id].transactional!.membership = membership
        return start(.sendOffsets, id, timeout)
    }

    @discardableResult
    func commitTransaction(_ id: ClientID, timeout: UInt64? = nil) -> Bool { start(.commit, id, timeout) }

    @discardableResult
    func abortTransaction(_ id: ClientID, timeout: UInt64? = nil) -> Bool { start(.abort, id, timeout) }

    /// Returns whether a step's result is awaited.
    func isBusy(_ id: ClientID) -> Bool { clients[id].transactional?.isAwaited ?? false }

    private func start(_ step: TransactionStep, _ id: ClientID, _ timeout: UInt64?) -> Bool {
        let client = clients[id]
        guard let transactional = client.transactional, !transactional.isAwaited, !client.isDead else {
            return false
        }
        client.transactional!.isAwaited = true
        client.transactional!.waitEpoch &+= 1
        if case .failed(let failure) = transactional.phase {
            finish(client, step, .fatal(failure))
            return true
        }
        if let current = transactional.step {
            guard current == step else {
                client.transactional!.isAwaited = false
                client.events.append(.step(step, .misuse))
                return true
            }
            // The step continued after its caller got a retriable result, and may have ended.
            if let result = transactional.unheard {
                client.transactional!.unheard = nil
                finish(client, step, result)
            } else {
                limit(client, step, timeout)
            }
            return true
        }
        begin(client, step, timeout)
        return true
    }

    private func begin(_ client: Client, _ step: TransactionStep, _ timeout: UInt64?) {
        switch (step, client.transactional!.phase) {
        case (.begin, .ready):
            return finish(client, step, .done)
        case (.sendOffsets, .open) where client.transactional!.offsets.isEmpty:
            return finish(client, step, .done)
        case (.initialize, .unready), (.sendOffsets, .open), (.commit, .open), (.abort, .open),
            (.abort, .abortable):
            break
        case (.sendOffsets, .abortable(let failure)), (.commit, .abortable(let failure)):
            return finish(client, step, .abortable(failure))
        default:
            client.transactional!.isAwaited = false
            return client.events.append(.step(step, .misuse))
        }
        client.transactional!.step = step
        client.transactional!.stage = 0
        client.transactional!.stepEpoch &+= 1
        limit(client, step, timeout)
        switch step {
        case .initialize, .sendOffsets: sendStep(client, after: 0, isFirst: true)
        case .commit: continueSteps(client)
        case .abort:
            for place in client.queues.indices where !client.queues[place].records.isEmpty {
                purge(client, place)
            }
            continueSteps(client)
        case .begin: break
        }
    }

    /// Sets how long the caller waits.
    private func limit(_ client: Client, _ step: TransactionStep, _ timeout: UInt64?) {
        var wait = timeout ?? configuration.stepTimeout
        if configuration.hastyPerMille > 0, draw.chance(configuration.hastyPerMille) {
            wait = drawn(0...5_000_000)
        }
        timers.add(
            .stepTimedOut, at: now + wait, client: client.id, epoch: client.transactional!.waitEpoch)
    }

    // MARK: Progress

    /// Commit and abort wait until each record has its report; without anything at the coordinator they are done then.
    private func continueSteps(_ client: Client) {
        guard let transactional = client.transactional, let step = transactional.step,
            step == .commit || step == .abort, transactional.stage == 0, client.producer.queued == 0
        else { return }
        if step == .commit, case .abortable(let failure) = transactional.phase {
            return ended(client, .abortable(failure))
        }
        guard !transactional.isRegistering else { return }
        guard transactional.registered != SIMD4<UInt64>() || transactional.hasOffsets else {
            return ended(client, .done)
        }
        client.transactional!.stage = 1
        sendStep(client, after: 0, isFirst: true)
    }

    /// Records that a record of the client has its report.
    func reported(_ client: Client, _ failure: Failure?) {
        if let failure, failure != .purged, client.transactional!.phase == .open {
            client.transactional!.phase = .abortable(failure == .fenced ? .fenced : .recordLost)
        }
        if client.producer.queued == 0 { continueSteps(client) }
    }

    func stepAnswered(_ client: Client, _ timer: KafkaTimers.Timer) {
        guard let transactional = client.transactional, transactional.stepEpoch == timer.epoch,
            let step = transactional.step
        else { return }
        let epoch =
            step == .sendOffsets && transactional.stage == 1 ? group.epoch : transactionCoordinatorEpoch
        // The coordinator became unreachable before its answer arrived.
        guard timer.subject == epoch else {
            return sendStep(client, after: configuration.retryPause, isFirst: false)
        }
        ended(client, transactional.answer)
    }

    func stepTimedOut(_ client: Client, _ epoch: Int32) {
        guard let transactional = client.transactional, transactional.isAwaited,
            transactional.waitEpoch == epoch, let step = transactional.step
        else { return }
        client.transactional!.isAwaited = false
        if step == .sendOffsets {
            client.transactional!.step = nil
            client.transactional!.stepEpoch &+= 1
        }
        client.events.append(.step(step, .retriable(.timedOut)))
    }

    private func ended(_ client: Client, _ result: StepResult) {
        guard let step = client.transactional!.step else { return }
        client.transactional!.stepEpoch &+= 1
        if case .fatal(let failure) = result { return fail(client, failure) }
        guard client.transactional!.isAwaited else {
            client.transactional!.unheard = result
            return
        }
        finish(client, step, result)
    }

    /// Ends a step, and passes its result to the caller.
    private func finish(_ client: Client, _ step: TransactionStep, _ result: StepResult) {
        client.transactional!.step = nil
        client.transactional!.isAwaited = false
        switch (step, result) {
        case (.initialize, .done):
            client.transactional!.epoch = client.transactional!.nextEpoch
            client.transactional!.phase = .ready
        case (.begin, .done):
            client.transactional!.phase = .open
            client.transactional!.transaction = -1
            client.transactional!.registered = SIMD4()
            client.transactional!.wanted = SIMD4()
            client.transactional!.hasOffsets = false
        case (.commit, .done), (.abort, .done):
            client.transactional!.phase = .ready
        case (_, .abortable(let failure)):
            client.transactional!.phase = .abortable(failure)
        default: break
        }
        client.events.append(.step(step, result))
    }

    /// Fails the producer, and returns all queued records with failed reports.
    private func fail(_ client: Client, _ failure: Failure) {
        let transactional = client.transactional!
        if case .failed = transactional.phase { return }
        client.transactional!.phase = .failed(failure)
        client.transactional!.stepEpoch &+= 1
        client.transactional!.registerEpoch &+= 1
        client.transactional!.isRegistering = false
        client.transactional!.step = nil
        for place in client.queues.indices where !client.queues[place].records.isEmpty {
            purge(client, place, failure)
        }
        client.events.append(.producerFailed(failure))
        guard transactional.isAwaited, let step = transactional.step else { return }
        client.transactional!.isAwaited = false
        client.events.append(.step(step, .fatal(failure)))
    }

    // MARK: Partitions

    /// Asks the coordinator to take a partition into the transaction.
    func register(_ client: Client, _ place: Int) {
        client.transactional!.wanted[place / Self.stride] |= 1 << UInt64(place % Self.stride)
        guard !client.transactional!.isRegistering else { return }
        client.transactional!.isRegistering = true
        sendRegistration(client)
    }

    private func sendRegistration(_ client: Client, isFirst: Bool = true) {
        timers.add(
            .registerArrives, at: now + (isFirst ? 1_000_000 : configuration.retryPause) + drawDelay(),
            client: client.id, epoch: client.transactional!.registerEpoch, subject: isFirst ? 0 : 1)
    }

    func registered(_ client: Client, _ timer: KafkaTimers.Timer) {
        guard client.transactional!.registerEpoch == timer.epoch else { return }
        guard timer.subject == transactionCoordinatorEpoch else {
            return sendRegistration(client, isFirst: false)
        }
        guard timer.place == 1 else { return fail(client, .fenced) }
        let asked = client.transactional!.asked
        client.transactional!.registered |= asked
        client.transactional!.wanted &= ~asked
        client.transactional!.isRegistering = client.transactional!.wanted != SIMD4<UInt64>()
        if client.transactional!.isRegistering { sendRegistration(client) }
        for topic in Topic.allCases {
            for partition in PartitionSet(rawValue: asked[topic.rawValue]) {
                let place = place(topic, partition)
                guard client.queues[place].state == .unregistered else { continue }
                if client.queues[place].records.isEmpty {
                    client.queues[place].state = .idle
                } else {
                    startQueue(client, place, after: 0)
                }
            }
        }
        continueSteps(client)
    }
}
