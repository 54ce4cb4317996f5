/// Decides which step of a `TransactionalProducer` is next, and when. Transactions follow one another. Each is
/// committed an interval after its first record or offset change. The cycle also decides what is retried, what is
/// aborted, and when the producer is given up.
///
/// A value without I/O, clock or thread. The owner reports each event with its time. The owner starts the step of the
/// returned `Turn`, and reports the step's result. `wakeAt` is the latest time for the next call of `wake`. Times are
/// nanoseconds of a monotonic clock.
///
/// ```
///             start        begin          interval over             sent
///     unstarted → initializing → beginning → open → sendingOffsets → committing ─┐
///                                   ↑          └──────┬── abortable ──┘          │
///                                   ├── after a pause ┴ aborting                 │
///                                   └────────────────────────────────────────────┘
/// ```
///
/// The owner's part:
/// - The owner produces only while `acceptsRecords`. The owner reports each record with `recordProduced`, and keeps
///   records that it can't produce.
/// - The owner keeps everything of a transaction until the transaction has ended. Records of an aborted transaction are
///   produced again in the next one, before anything newer, or dropped.
/// - From the turn with `sendOffsets` on, the transaction is closed. The offsets to send are exactly the offsets that
///   the transaction's records stand for. When the step is repeated, the offsets stay the same.
public struct TransactionCycle: Sendable {
    /// Interval of the commits, and pauses before retries.
    public struct Timing: Sendable, Hashable {
        /// Nanoseconds from a transaction's first record or offset change to its commit.
        public var interval: UInt64
        /// Nanoseconds before a step's first retry. The pause doubles with each retry, up to `longestPause`.
        public var firstPause: UInt64
        /// Longest pause before a retry, in nanoseconds.
        public var longestPause: UInt64

        public init(
            interval: UInt64 = 200_000_000, firstPause: UInt64 = 50_000_000,
            longestPause: UInt64 = 5_000_000_000
        ) {
            self.interval = interval
            self.firstPause = firstPause
            self.longestPause = longestPause
        }
    }

    /// A call to a transactional producer.
    public enum Step: UInt8, Sendable, Hashable, CaseIterable {
        /// Gets the producer's identity, once. Ends the transaction that an earlier producer of the same identifier
        /// left open.
        case initialize
        /// Begins a transaction.
        case begin
        /// Adds consumer offsets to the open transaction.
        case sendOffsets
        /// Commits the open transaction.
        case commit
        /// Aborts the open transaction.
        case abort
    }

    /// A step's failure, by what has to follow.
    public enum Failure: Error, Sendable, Equatable {
        /// The step's outcome is undecided: the same step is started again after a pause.
        case retriable(KafkaFault)
        /// The open transaction is lost: `abort` is next.
        case abortable(KafkaFault)
        /// The producer is unusable: a new producer is needed.
        case fatal(KafkaFault)

        /// Kafka's error.
        public var fault: KafkaFault {
            switch self {
            case .retriable(let fault), .abortable(let fault), .fatal(let fault): fault
            }
        }

        var isFinal: Bool { if case .fatal = self { true } else { false } }
    }

    /// Result of a step.
    public struct StepResult: Sendable, Equatable {
        public var step: Step
        /// Failure of the step; nil when the step succeeded.
        public var failure: Failure?

        public init(_ step: Step, _ failure: Failure? = nil) {
            self.step = step
            self.failure = failure
        }
    }

    /// State of the producer and its transaction.
    public enum State: UInt8, Sendable, Hashable, CaseIterable {
        case unstarted, initializing, beginning, open, sendingOffsets, committing, aborting
        /// Stopped, with no transaction open.
        case stopped
        /// Failed: a new producer is needed, see ``Failure/fatal(_:)``.
        case failed
    }

    /// A transaction.
    public struct Transaction: Sendable, Hashable {
        /// Number of the transaction, from 1; 0 before the first.
        public var number: UInt64
        /// Records that `recordProduced` has reported.
        public var records = 0
    }

    /// End of a transaction.
    public enum Ending: Sendable, Equatable {
        /// Records and offsets of the transaction count.
        case committed(Transaction)
        /// Nothing of the transaction counts. The fault is the cause of the abort.
        case aborted(Transaction, KafkaFault)
    }

    /// Consequences of an event.
    public struct Turn: Sendable, Equatable {
        /// Step to be started now; nil: none.
        public var step: Step?
        /// End of a transaction; nil: no transaction has ended.
        public var ended: Ending?
        /// Failure of the producer: the owner closes the producer and drops the state. Reported once; nil otherwise.
        public var failure: KafkaFault?

        static let nothing = Turn()
    }

    public let timing: Timing
    public private(set) var state = State.unstarted
    /// Transaction that begins, is open or ends; the last transaction when there is none.
    public private(set) var transaction = Transaction(number: 0)
    /// Time of the next `wake`, in nanoseconds; nil: an event has to happen first.
    public private(set) var wakeAt: UInt64?

    /// Step that waits for `wakeAt`; nil: no step waits.
    private var delayed: Step?
    /// The transaction has a record, or offsets wait.
    private var hasContent = false
    private var isStopping = false
    /// Cause of the abort under way; nil: no abort is under way.
    private var cause: KafkaFault?
    /// Cause of an abort that begins when the step under way has ended; nil: no abort is pending.
    private var pendingCause: KafkaFault?
    private var attempts = 0
    private var abortsInARow = 0

    public init(_ timing: Timing = Timing()) { self.timing = timing }

    /// True when records can be produced now.
    public var acceptsRecords: Bool { state == .open }

    /// No transaction holds a record or an offset whose fate is open.
    public var isClean: Bool { !hasContent }

    // MARK: Events

    /// Begins with `initialize`. A later call changes nothing.
    public mutating func start() -> Turn {
        guard state == .unstarted else { return .nothing }
        state = .initializing
        return Turn(step: .initialize)
    }

    /// Counts a record of the open transaction.
    /// - Returns: the transaction's number.
    @discardableResult
    public mutating func recordProduced(at now: UInt64) -> UInt64 {
        transaction.records += 1
        if !hasContent { contentCame(now) }
        return transaction.number
    }

    /// Notes that there are offsets to commit, whether or not a record was produced.
    public mutating func offsetsChanged(at now: UInt64) {
        if state == .open, !hasContent { contentCame(now) }
    }

    private mutating func contentCame(_ now: UInt64) {
        hasContent = true
        let (due, overflow) = now.addingReportingOverflow(timing.interval)
        wakeAt = overflow ? .max : due
    }

    /// Commits the open transaction without waiting for the interval. Does nothing when the transaction holds nothing.
    public mutating func commitNow() -> Turn {
        guard state == .open, hasContent else { return .nothing }
        return close()
    }

    /// Aborts the open transaction, because a delivery report shows that one of its records is lost.
    /// - Parameter isStepUnderWay: the producer is at the step that was requested last. librdkafka fails that step by
    ///   itself.
    public mutating func recordLost(_ error: KafkaFault, isStepUnderWay: Bool) -> Turn {
        switch state {
        case .open: return abort(error)
        case .sendingOffsets where !isStepUnderWay:
            delayed = nil
            return abort(error)
        default: return .nothing
        }
    }

    /// True when the offsets have to be sent, without a pause before.
    public var awaitsOffsets: Bool { state == .sendingOffsets && delayed == nil }

    /// Aborts the open transaction, because partitions whose offsets belong to it were revoked or lost. Without these
    /// offsets the transaction's outcomes must not be seen, because another worker reports the same jobs. Once the
    /// commit has begun, the transaction includes the offsets and continues.
    /// - Parameter isStepUnderWay: the producer is at the step that was requested last.
    public mutating func partitionsLost(_ error: KafkaFault, isStepUnderWay: Bool) -> Turn {
        switch state {
        case .open:
            return abort(error)
        case .sendingOffsets where delayed == nil && isStepUnderWay:
            pendingCause = error
            return .nothing
        case .sendingOffsets:
            delayed = nil
            return abort(error)
        case .unstarted, .initializing, .beginning, .committing, .aborting, .stopped, .failed:
            return .nothing
        }
    }

    /// Fails the producer, because the client has reported a fatal error outside of a step.
    public mutating func clientFailed(_ error: KafkaFault) -> Turn { fail(error) }

    /// Commits the open transaction, then stops. No other transaction begins.
    public mutating func stop() -> Turn {
        isStopping = true
        switch state {
        case .unstarted:
            state = .stopped
        case .open where hasContent:
            return close()
        case .open:
            state = .stopped
        case .beginning where delayed != nil:
            delayed = nil
            wakeAt = nil
            state = .stopped
        default: break
        }
        return .nothing
    }

    /// Starts the delayed step, or closes the open transaction, once `wakeAt` has passed. Does nothing before.
    public mutating func wake(at now: UInt64) -> Turn {
        guard let time = wakeAt, time <= now else { return .nothing }
        wakeAt = nil
        if let step = delayed {
            delayed = nil
            return Turn(step: step)
        }
        return state == .open && hasContent ? close() : .nothing
    }

    /// Takes the result of a step. Ignores results of steps that aren't under way.
    public mutating func finished(_ result: StepResult, at now: UInt64) -> Turn {
        guard result.step == stepUnderWay else { return .nothing }
        if let pendingCause, result.failure?.isFinal != true { return abort(pendingCause) }
        switch result.failure {
        case nil:
            attempts = 0
            return succeeded(now)
        case .retriable:
            return retry(result.step, now)
        case .abortable(let error):
            switch state {
            case .beginning, .sendingOffsets, .committing: return abort(error)
            case .aborting: return retry(result.step, now)
            default: return fail(error)
            }
        case .fatal(let error):
            return fail(error)
        }
    }

    // MARK: Transitions

    /// Step whose result is awaited; nil: no step is under way.
    private var stepUnderWay: Step? {
        guard delayed == nil else { return nil }
        return switch state {
        case .initializing: .initialize
        case .beginning: .begin
        case .sendingOffsets: .sendOffsets
        case .committing: .commit
        case .aborting: .abort
        case .unstarted, .open, .stopped, .failed: nil
        }
    }

    private mutating func succeeded(_ now: UInt64) -> Turn {
        switch state {
        case .initializing:
            return beginTransaction(after: 0, now)
        case .beginning:
            state = isStopping ? .stopped : .open
            return .nothing
        case .sendingOffsets:
            state = .committing
            return Turn(step: .commit)
        case .committing:
            abortsInARow = 0
            let ended = Ending.committed(transaction)
            var turn = beginTransaction(after: 0, now)
            turn.ended = ended
            return turn
        case .aborting:
            abortsInARow += 1
            let ended = Ending.aborted(
                transaction, cause ?? .partitionsLost)
            // The first abort causes no pause. Each further abort in a row makes the pause longer.
            var turn = beginTransaction(after: abortsInARow < 2 ? 0 : pause(abortsInARow - 1), now)
            turn.ended = ended
            return turn
        case .unstarted, .open, .stopped, .failed:
            return .nothing
        }
    }

    private mutating func beginTransaction(after pause: UInt64, _ now: UInt64) -> Turn {
        hasContent = false
        cause = nil
        guard !isStopping else {
            state = .stopped
            return .nothing
        }
        state = .beginning
        transaction = Transaction(number: transaction.number + 1)
        guard pause > 0 else { return Turn(step: .begin) }
        delay(.begin, pause, now)
        return .nothing
    }

    private mutating func close() -> Turn {
        wakeAt = nil
        state = .sendingOffsets
        return Turn(step: .sendOffsets)
    }

    private mutating func abort(_ error: KafkaFault) -> Turn {
        wakeAt = nil
        attempts = 0
        cause = error
        pendingCause = nil
        state = .aborting
        return Turn(step: .abort)
    }

    private mutating func fail(_ error: KafkaFault) -> Turn {
        guard state != .failed, state != .stopped else { return .nothing }
        state = .failed
        wakeAt = nil
        delayed = nil
        return Turn(failure: error)
    }

    private mutating func retry(_ step: Step, _ now: UInt64) -> Turn {
        attempts += 1
        delay(step, pause(attempts), now)
        return .nothing
    }

    private mutating func delay(_ step: Step, _ pause: UInt64, _ now: UInt64) {
        delayed = step
        let (time, overflow) = now.addingReportingOverflow(pause)
        wakeAt = overflow ? .max : time
    }

    /// Returns the nanoseconds to wait before the retry that follows `failures` failures in a row.
    private func pause(_ failures: Int) -> UInt64 {
        let doublings = min(failures - 1, 62)
        let (wait, overflow) = timing.firstPause.multipliedReportingOverflow(by: 1 << UInt64(doublings))
        return overflow ? timing.longestPause : min(wait, timing.longestPause)
    }
}
