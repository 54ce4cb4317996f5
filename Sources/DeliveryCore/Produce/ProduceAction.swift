/// Orders of a ``ProduceOrder`` to its owner, in the order in which they come.
public enum ProduceAction: Equatable, Sendable, BitwiseCopyable {
    /// Hand this record to the producer. ``ProduceOrder/answered(_:_:)`` has to follow before anything else. A dead letter may
    /// have to go without its value.
    case produce(UInt32, omitsValue: Bool)
    /// The bytes of all records before this one are of no use any more. The record itself need not be there yet.
    case forget(before: UInt32)
    /// The outcome of a job that waited will never be produced: its partition has gone. `wasProduced`: an aborted transaction
    /// had it, and a report has come for it. Nothing is told of what is kept: its report was, or is to come.
    case gaveBack(partition: UInt16, wasProduced: Bool)
    /// Nothing more is produced in the transaction of this number. `produced` counts the records of all transactions.
    case frozen(number: UInt64, produced: Int)
    /// All that was written before this ticket was asked for is produced, and with transactions committed.
    case released(ticket: UInt64)
    /// Call ``ProduceOrder/timerDue(isPermitted:)`` in some milliseconds: the producer may have room then.
    case armTimer
    /// Nothing waits any more, and records are taken at once.
    case resumed
    /// The producer takes no record of the open transaction: it can only be aborted.
    case refused(number: UInt64)
    /// A change of the store that waited was dropped with its partition, which is lost. Only without transactions.
    case droppedChange(UInt32)
    /// The producer will never take this record: the worker has to end.
    case failed(UInt32)
}

/// Answers of a producer to a record that was handed to it.
public enum ProduceAnswer: Equatable, Sendable, BitwiseCopyable {
    /// Taken: exactly one report follows.
    case queued
    /// No room at the moment.
    case queueFull
    /// No transaction is open, or the open one can only be aborted.
    case noTransaction
    /// Not taken, for a cause that may pass.
    case failedForNow
    /// Larger than the producer takes.
    case tooLarge
    /// Not taken, and never will be.
    case failed
}
