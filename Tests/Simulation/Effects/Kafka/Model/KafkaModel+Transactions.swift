/// A transactional identifier, as its coordinator knows it.
struct KafkaTransactionalID {
    enum State: UInt8 {
        case empty, ongoing
        /// The transaction is decided, and some markers aren't written yet.
        case ending
    }

    var epoch: Int32 = -1
    var state = State.empty
    /// Last transaction; -1 before the first.
    var transaction: Int32 = -1
}

/// A transaction.
struct KafkaTransaction {
    enum Decision: UInt8 {
        case open, commit, abort
    }

    var identifier: Int
    var decision = Decision.open
    /// By topic: its partitions.
    var places = SIMD4<UInt64>()
    var hasOffsets = false
    var offsets: [(commit: KafkaModel.OffsetCommit, serial: Int)] = []
    /// Markers to be written.
    var unmarked = 0
}

/// The coordinator of transactions.
extension KafkaModel {
    enum Standing {
        case valid, fenced
        /// Some markers of the last transaction aren't written yet.
        case concurrent
    }

    func setTransactionCoordinator(isAway: Bool) {
        guard isAway != isTransactionCoordinatorAway else { return }
        isTransactionCoordinatorAway = isAway
        if isAway { transactionCoordinatorEpoch += 1 }
    }

    /// Whether a client's request may take part in its identifier's open transaction, or begin one.
    func standing(_ client: KafkaTransactionalClient) -> Standing {
        let identifier = identifiers[client.identifier]
        if identifier.epoch != client.epoch { return .fenced }
        return identifier.state == .ending ? .concurrent : .valid
    }

    /// The open transaction of an identifier. A new one begins where there is none.
    func openTransaction(_ identifier: Int) -> Int32 {
        guard identifiers[identifier].state != .ongoing else { return identifiers[identifier].transaction }
        let number = transactions.count
        transactions.append(KafkaTransaction(identifier: identifier))
        identifiers[identifier].transaction = Int32(number)
        identifiers[identifier].state = .ongoing
        timers.add(
            .transactionExpires,
            at: now + configuration.transactionTimeout + drawn(0...configuration.transactionSweep),
            subject: number)
        return Int32(number)
    }

    /// The decision is durable: markers follow, each at its own time.
    func decide(_ identifier: Int, _ decision: KafkaTransaction.Decision) {
        let number = Int(identifiers[identifier].transaction)
        identifiers[identifier].state = .ending
        transactions[number].decision = decision
        var unmarked = 0
        for topic in Topic.allCases {
            for partition in PartitionSet(rawValue: transactions[number].places[topic.rawValue]) {
                unmarked += 1
                let log = log(topic, partition)
                timers.add(
                    .marker, at: now + markerWay(), place: place(topic, partition),
                    epoch: Int32(truncatingIfNeeded: log.incarnation), subject: number)
            }
        }
        if transactions[number].hasOffsets {
            unmarked += 1
            timers.add(.offsetsMarker, at: now + markerWay(), subject: number)
        }
        transactions[number].unmarked = unmarked
        if unmarked == 0 { identifiers[identifier].state = .empty }
    }

    private func markerWay() -> UInt64 { isSlow ? drawDelay() : drawn(configuration.markerDelay) }

    func marker(_ timer: KafkaTimers.Timer) {
        let log = logs[Int(timer.place)]
        guard Int32(truncatingIfNeeded: log.incarnation) == timer.epoch else {
            return markerDone(timer.subject)
        }
        guard !isTransactionCoordinatorAway else {
            return timers.add(
                .marker, at: now + configuration.retryPause, place: Int(timer.place), epoch: timer.epoch,
                subject: timer.subject)
        }
        guard !log.isAway else { return log.waitingMarkers.append(Int32(timer.subject)) }
        writeMarker(Int32(timer.subject), log)
        markerDone(timer.subject)
    }

    func markerDone(_ transaction: Int) {
        transactions[transaction].unmarked -= 1
        let identifier = transactions[transaction].identifier
        guard transactions[transaction].unmarked == 0,
            identifiers[identifier].transaction == Int32(transaction)
        else { return }
        identifiers[identifier].state = .empty
    }

    func offsetsMarker(_ timer: KafkaTimers.Timer) {
        guard !group.isAway, !isTransactionCoordinatorAway else {
            return timers.add(
                .offsetsMarker, at: now + configuration.retryPause, subject: timer.subject)
        }
        let transaction = transactions[timer.subject]
        transactions[timer.subject].offsets = []
        for (commit, serial) in transaction.offsets {
            group.unstable[commit.partition] -= 1
            // A later commit outside of the transaction takes precedence.
            guard transaction.decision == .commit, serial > group.offsets[commit.partition].serial else {
                continue
            }
            setOffset(commit, .transaction(timer.subject), serial: serial)
        }
        markerDone(timer.subject)
    }

    /// An old transaction is aborted, and its producer fenced.
    func transactionExpires(_ number: Int) {
        let identifier = transactions[number].identifier
        guard identifiers[identifier].transaction == Int32(number), identifiers[identifier].state == .ongoing
        else { return }
        guard !isTransactionCoordinatorAway else {
            return timers.add(.transactionExpires, at: now + 1_000_000_000, subject: number)
        }
        identifiers[identifier].epoch += 1
        decide(identifier, .abort)
    }

    /// Removes a recreated partition from all open transactions.
    func forgetPlace(_ place: Int) {
        let bit = UInt64(1) << UInt64(place % Self.stride)
        for identifier in identifiers where identifier.state == .ongoing {
            transactions[Int(identifier.transaction)].places[place / Self.stride] &= ~bit
        }
    }

    // MARK: Requests

    /// A batch's transaction, -1 for none; nil when the leader refuses it.
    func transactionOfBatch(_ client: Client, _ place: Int) -> Int32? {
        guard let transactional = client.transactional else { return -1 }
        let identifier = identifiers[transactional.identifier]
        guard identifier.epoch == transactional.epoch, identifier.state == .ongoing,
            identifier.transaction == transactional.transaction,
            transactions[Int(identifier.transaction)].has(place)
        else { return nil }
        return identifier.transaction
    }

    /// Partitions join the transaction.
    func registerArrives(_ client: Client, _ timer: KafkaTimers.Timer) {
        guard let transactional = client.transactional, transactional.registerEpoch == timer.epoch else {
            return
        }
        let isFirst = timer.subject == 0
        guard isFirst || client.isRunning else { return putOff(client, timer) }
        let standing = standing(transactional)
        guard !isTransactionCoordinatorAway, standing != .concurrent else {
            return timers.add(
                .registerArrives,
                at: now + (isTransactionCoordinatorAway ? configuration.retryPause : 20_000_000),
                client: client.id, epoch: timer.epoch, subject: 1)
        }
        if standing == .valid {
            let number = openTransaction(transactional.identifier)
            client.transactional!.transaction = number
            transactions[Int(number)].places |= transactional.wanted
            client.transactional!.asked = transactional.wanted
        }
        timers.add(
            .registered, at: now + drawDelay(), client: client.id, place: standing == .valid ? 1 : 0,
            epoch: timer.epoch, subject: transactionCoordinatorEpoch)
    }

    /// Defers a request whose process is stopped; drops it when the process is dead.
    private func putOff(_ client: Client, _ timer: KafkaTimers.Timer) {
        if !client.isDead { client.deferred.append(timer) }
    }

    /// A step's request reaches its coordinator. The timer's subject distinguishes the first request from later ones.
    func stepArrives(_ client: Client, _ timer: KafkaTimers.Timer) {
        guard let transactional = client.transactional, transactional.stepEpoch == timer.epoch,
            let step = transactional.step
        else { return }
        let isFirst = timer.subject == 0
        guard isFirst || client.isRunning else { return putOff(client, timer) }
        if step == .sendOffsets, transactional.stage == 1 { return offsetsArrive(client, timer) }
        guard !isTransactionCoordinatorAway else {
            return sendStep(client, after: configuration.retryPause, isFirst: false)
        }
        let identifier = identifiers[transactional.identifier]
        if step == .initialize { return initializeArrives(client, identifier) }
        guard identifier.epoch == transactional.epoch else { return answerStep(client, .fatal(.fenced)) }
        switch step {
        case .sendOffsets:
            guard identifier.state != .ending else {
                return sendStep(client, after: 20_000_000, isFirst: false)
            }
            let number = openTransaction(transactional.identifier)
            transactions[Int(number)].hasOffsets = true
            client.transactional!.transaction = number
            client.transactional!.hasOffsets = true
            client.transactional!.stage = 1
            sendStep(client, after: drawDelay(), isFirst: false)
        case .commit, .abort:
            if identifier.state == .ongoing {
                decide(transactional.identifier, step == .commit ? .commit : .abort)
            }
            answerStep(client, .done)
        case .initialize, .begin: break
        }
    }

    private func initializeArrives(_ client: Client, _ identifier: KafkaTransactionalID) {
        let number = client.transactional!.identifier
        switch identifier.state {
        case .ongoing:
            identifiers[number].epoch += 1
            decide(number, .abort)
            sendStep(client, after: 20_000_000, isFirst: false)
        case .ending:
            sendStep(client, after: 20_000_000, isFirst: false)
        case .empty:
            identifiers[number].epoch += 1
            client.transactional!.nextEpoch = identifiers[number].epoch
            answerStep(client, .done)
        }
    }

    /// The group's coordinator checks the membership, and keeps the offsets until the marker arrives.
    private func offsetsArrive(_ client: Client, _ timer: KafkaTimers.Timer) {
        guard !group.isAway else { return sendStep(client, after: configuration.retryPause, isFirst: false) }
        let transactional = client.transactional!
        let identifier = identifiers[transactional.identifier]
        guard identifier.epoch == transactional.epoch, identifier.state == .ongoing,
            identifier.transaction == transactional.transaction
        else { return answerStep(client, .fatal(.fenced)) }
        if let failure = refusal(of: transactional.membership) {
            return answerStep(client, .abortable(failure))
        }
        let number = Int(identifier.transaction)
        var failure: Failure?
        for commit in transactional.offsets {
            guard commit.metadata.utf8.count <= configuration.metadataLimit else {
                failure = .metadataTooLarge
                continue
            }
            let serial = group.nextSerial()
            let index = transactions[number].offsets.firstIndex { $0.commit.partition == commit.partition }
            if let index {
                transactions[number].offsets[index] = (commit, serial)
            } else {
                transactions[number].offsets.append((commit, serial))
                group.unstable[commit.partition] += 1
            }
        }
        answerStep(client, failure.map { .abortable($0) } ?? .done)
    }

    /// Sends or repeats a step's request.
    func sendStep(_ client: Client, after pause: UInt64, isFirst: Bool) {
        timers.add(
            .stepArrives, at: now + pause + drawDelay(), client: client.id,
            epoch: client.transactional!.stepEpoch,
            subject: isFirst ? 0 : 1)
    }

    private func answerStep(_ client: Client, _ result: StepResult) {
        client.transactional!.answer = result
        let epoch = client.transactional!.stage == 1 && client.transactional!.step == .sendOffsets
        timers.add(
            .stepAnswered, at: now + drawDelay(), client: client.id, epoch: client.transactional!.stepEpoch,
            subject: epoch ? group.epoch : transactionCoordinatorEpoch)
    }
}

extension KafkaTransaction {
    func has(_ place: Int) -> Bool {
        places[place / KafkaModel.stride] >> UInt64(place % KafkaModel.stride) & 1 == 1
    }
}
