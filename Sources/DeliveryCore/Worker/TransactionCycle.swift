/// Decides which step of a `TransactionalProducer` is next, and when: transactions one after the other, each committed an
/// interval after the first thing it holds; what is retried, aborted, given up.
///
/// A value without I/O, clock or thread. The owner tells events with the time, starts the step of the returned `Turn`,
/// and tells its result; `wakeAt` says when to call `wake` at the latest. Times are nanoseconds of a monotonic clock.
///
/// ```
///         start        begin          interval over             sent
/// unstarted → initializing → beginning → open → sendingOffsets → committing ─┐
///                               ↑          └──────┬── abortable ──┘          │
///                               ├── after a pause ┴ aborting                 │
///                               └────────────────────────────────────────────┘
/// ```
///
/// The owner's part:
/// - It produces only while `acceptsRecords`, tells each record with `recordProduced`, and keeps what it can't produce.
/// - It keeps everything of a transaction until that has ended. Ended as aborted: all of it is produced again in the next
///   one, before anything newer, or dropped.
/// - From the turn that says `sendOffsets` on, the transaction is closed: the offsets to send are exactly those that its
///   records stand for. When the step comes again, the same offsets.
public struct TransactionCycle: Sendable {
    public struct Timing: Sendable, Hashable {
        /// From a transaction's first record to its commit.
        public var interval: UInt64
        /// Before a step is tried again; doubles each time.
        public var firstPause: UInt64
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

    /// One call to a transactional producer.
    public enum Step: UInt8, Sendable, Hashable, CaseIterable {
        /// Gets the producer's identity, once. Ends what an earlier producer of the same identifier left open.
        case initialize
        case begin
        /// Adds consumer offsets to the open transaction.
        case sendOffsets
        case commit
        case abort
    }

    /// Why a step did not succeed, by what has to follow.
    public enum Failure: Error, Sendable, Equatable {
        /// Undecided: the same step is started again after a pause.
        case retriable(KafkaFault)
        /// The open transaction is lost: `abort` is next.
        case abortable(KafkaFault)
        /// The producer is at its end.
        case fatal(KafkaFault)

        public var fault: KafkaFault {
            switch self {
            case .retriable(let fault), .abortable(let fault), .fatal(let fault): fault
            }
        }

        var isFinal: Bool { if case .fatal = self { true } else { false } }
    }

    /// How a step ended.
    public struct StepResult: Sendable, Equatable {
        public var step: Step
        /// Nil: the step succeeded.
        public var failure: Failure?

        public init(_ step: Step, _ failure: Failure? = nil) {
            self.step = step
            self.failure = failure
        }
    }

    public enum State: UInt8, Sendable, Hashable, CaseIterable {
        case unstarted, initializing, beginning, open, sendingOffsets, committing, aborting
        /// Stopped, with nothing open.
        case stopped
        /// A new producer is needed, see ``Failure/fatal(_:)``.
        case failed
    }

    /// One transaction.
    public struct Transaction: Sendable, Hashable {
        /// Counts from 1.
        public var number: UInt64
        /// How many records `recordProduced` told of.
        public var records = 0
    }

    public enum Ending: Sendable, Equatable {
        case committed(Transaction)
        /// Nothing of it counts. The error is the one that made it necessary.
        case aborted(Transaction, KafkaFault)
    }

    /// What follows from an event.
    public struct Turn: Sendable, Equatable {
        /// To be started now.
        public var step: Step?
        /// A transaction has ended.
        public var ended: Ending?
        /// The producer has failed: close it and drop the state. Told once.
        public var failure: KafkaFault?

        static let nothing = Turn()
    }

    public let timing: Timing
    public private(set) var state = State.unstarted
    /// The one that begins, is open or ends; the last one when there is none.
    public private(set) var transaction = Transaction(number: 0)
    /// When to call `wake`; `nil`: an event has to come first.
    public private(set) var wakeAt: UInt64?

    /// A step waits for `wakeAt` to be started.
    private var delayed: Step?
    /// The transaction has a record, or offsets wait.
    private var hasContent = false
    private var isStopping = false
    /// Why the open transaction is being aborted.
    private var cause: KafkaFault?
    /// Why it has to be, as soon as the step under way has ended.
    private var pendingCause: KafkaFault?
    private var attempts = 0
    private var abortsInARow = 0

    public init(_ timing: Timing = Timing()) { self.timing = timing }

    /// Whether records can be produced now.
    public var acceptsRecords: Bool { state == .open }

    /// No transaction holds a record or an offset whose fate is open.
    public var isClean: Bool { !hasContent }

    /// The next step waits for ``wakeAt``.
    package var isPausing: Bool { delayed != nil }

    // MARK: Events

    public mutating func start() -> Turn {
        guard state == .unstarted else { return .nothing }
        state = .initializing
        return Turn(step: .initialize)
    }

    /// A record was queued in the open transaction.
    /// - Returns: the transaction's number.
    @discardableResult
    public mutating func recordProduced(at now: UInt64) -> UInt64 {
        transaction.records += 1
        if !hasContent { contentCame(now) }
        return transaction.number
    }

    /// There are offsets to commit, whether or not a record was produced.
    public mutating func offsetsChanged(at now: UInt64) {
        if state == .open, !hasContent { contentCame(now) }
    }

    private mutating func contentCame(_ now: UInt64) {
        hasContent = true
        let (due, overflow) = now.addingReportingOverflow(timing.interval)
        wakeAt = overflow ? .max : due
    }

    /// Commits what is open without waiting for the interval; nothing, if that is nothing.
    public mutating func commitNow() -> Turn {
        guard state == .open, hasContent else { return .nothing }
        return close()
    }

    /// A delivery report says that a record of the open transaction is lost.
    /// - Parameter isStepUnderWay: the producer is at the step that was asked for last: librdkafka fails the step by itself.
    public mutating func recordLost(_ error: KafkaFault, isStepUnderWay: Bool) -> Turn {
        switch state {
        case .open: return abort(error)
        case .sendingOffsets where !isStepUnderWay:
            delayed = nil
            return abort(error)
        default: return .nothing
        }
    }

    /// The offsets are to be sent, and no pause is to be kept before.
    public var awaitsOffsets: Bool { state == .sendingOffsets && delayed == nil }

    /// Partitions have gone whose offsets belong to the transaction: without them, what it says of their jobs must not be
    /// seen, as another worker says it too. Once the commit has begun they are in it, and it goes on.
    /// - Parameter isStepUnderWay: the producer is at the step that was asked for last.
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

    /// The client has told a fatal error outside of a step.
    public mutating func clientFailed(_ error: KafkaFault) -> Turn { fail(error) }

    /// Commits what is open, then stops: no other transaction begins.
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

    /// The time has come, or not yet.
    public mutating func wake(at now: UInt64) -> Turn {
        guard let time = wakeAt, time <= now else { return .nothing }
        wakeAt = nil
        if let step = delayed {
            delayed = nil
            return Turn(step: step)
        }
        return state == .open && hasContent ? close() : .nothing
    }

    /// A step has ended.
    public mutating func finished(_ result: StepResult, at now: UInt64) -> Turn {
        guard result.step == stepUnderWay else { return .nothing }
        if let pendingCause, result.failure?.isFinal != true { return abort(pendingCause) }
        switch result.failure {
        case nil:
            attempts = 0
            return succeeded(now)
        case .retriable:
            return again(result.step, now)
        case .abortable(let error):
            switch state {
            case .beginning, .sendingOffsets, .committing: return abort(error)
            case .aborting: return again(result.step, now)
            default: return fail(error)
            }
        case .fatal(let error):
            return fail(error)
        }
    }

    // MARK: Transitions

    /// What a result is expected of.
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
            return begin(after: 0, now)
        case .beginning:
            state = isStopping ? .stopped : .open
            return .nothing
        case .sendingOffsets:
            state = .committing
            return Turn(step: .commit)
        case .committing:
            abortsInARow = 0
            let ended = Ending.committed(transaction)
            var turn = begin(after: 0, now)
            turn.ended = ended
            return turn
        case .aborting:
            abortsInARow += 1
            let ended = Ending.aborted(
                transaction, cause ?? .partitionsLost)
            // The first time at once; what fails again and again waits longer and longer.
            var turn = begin(after: abortsInARow < 2 ? 0 : pause(abortsInARow - 1), now)
            turn.ended = ended
            return turn
        case .unstarted, .open, .stopped, .failed:
            return .nothing
        }
    }

    private mutating func begin(after pause: UInt64, _ now: UInt64) -> Turn {
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

    private mutating func again(_ step: Step, _ now: UInt64) -> Turn {
        attempts += 1
        delay(step, pause(attempts), now)
        return .nothing
    }

    private mutating func delay(_ step: Step, _ pause: UInt64, _ now: UInt64) {
        delayed = step
        let (time, overflow) = now.addingReportingOverflow(pause)
        wakeAt = overflow ? .max : time
    }

    /// The wait before the try that follows `failures` failures in a row.
    private func pause(_ failures: Int) -> UInt64 {
        let doublings = min(failures - 1, 62)
        let (wait, overflow) = timing.firstPause.multipliedReportingOverflow(by: 1 << UInt64(doublings))
        return overflow ? timing.longestPause : min(wait, timing.longestPause)
    }
}
