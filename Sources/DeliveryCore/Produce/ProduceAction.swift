/// Action of a ``ProduceOrder`` for its owner. Actions are done in the order in which they come.
public enum ProduceAction: Equatable, Sendable, BitwiseCopyable {
    /// Hand this record to the producer, with so many cuts. ``ProduceOrder/answered(_:_:)`` has to follow before any
    /// other call.
    case produce(UInt32, cuts: UInt8)
    /// Free the bytes of all records before this one. The record itself need not exist yet.
    case forget(before: UInt32)
    /// Report that the outcome of a waiting job will never be produced, because its partition was revoked.
    /// `wasProduced` is true when an aborted transaction had the record, and its report has arrived. Kept records
    /// have no such action, because their reports have arrived or will arrive.
    case gaveBack(partition: UInt16, wasProduced: Bool)
    /// Report that nothing more is produced in the transaction of this number. `produced` counts records of all
    /// transactions.
    case frozen(number: UInt64, produced: Int)
    /// Report that all records written before this ticket was asked for are produced, and with transactions
    /// committed.
    case released(ticket: UInt64)
    /// Call ``ProduceOrder/timerDue(isPermitted:)`` in some milliseconds: the producer may have room then.
    case armTimer
    /// Report that nothing waits any more: records are produced at once.
    case resumed
    /// Report that the producer accepts no record of the open transaction, which can only be aborted.
    case refused(number: UInt64)
    /// Report that a waiting change of the store was dropped with its lost partition. Only without transactions.
    case droppedChange(UInt32)
    /// Report that Kafka takes this record in no form: its partition has to stop. With transactions, nothing more is
    /// produced until the partition has ended, or the next transaction begins.
    case neverFits(UInt32)
    /// Report that the producer will never accept this record: the worker has to end.
    case failed(UInt32)
}

/// Answer of a producer to a record that was handed to it.
public enum ProduceAnswer: Equatable, Sendable, BitwiseCopyable {
    /// Accepted: exactly one report follows.
    case queued
    /// No room at the moment.
    case queueFull
    /// No transaction is open, or the open one can only be aborted.
    case noTransaction
    /// Not accepted, for a cause that may pass.
    case failedForNow
    /// Not accepted in this form, because the record is larger than the producer or the topic allows.
    case tooLarge
    /// Not accepted, and never will be.
    case failed
}
