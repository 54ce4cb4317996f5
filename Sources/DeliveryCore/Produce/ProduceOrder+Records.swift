extension ProduceOrder {
    /// Kind of a record; `change` is a change of the store, for the changelog.
    public enum Kind: UInt8, Sendable, BitwiseCopyable {
        case outcome, deadLetter, change

        /// Cuts that a record of this kind can have; with the last one it is a few kilobytes at most.
        ///
        /// | cuts | dead letter | outcome |
        /// |---|---|---|
        /// | 0 | whole | whole |
        /// | 1 | without its value | without the job's headers |
        /// | 2 | also without foreign headers | – |
        /// | 3 | also with the key cut | – |
        public var mostCuts: UInt8 {
            switch self {
            case .deadLetter: 3
            case .outcome: 1
            case .change: 0
            }
        }
    }

    /// Record of an aborted transaction that Kafka has refused. It is made again with at least so many cuts.
    public struct Refusal: Equatable, Sendable, BitwiseCopyable {
        public var handle: UInt32
        public var cuts: UInt8

        public init(handle: UInt32, cuts: UInt8) {
            self.handle = handle
            self.cuts = cuts
        }
    }

    /// Step that follows from a written record.
    public enum Step: Equatable, Sendable {
        /// Hand the record to the producer at once, and report the answer to ``ProduceOrder/answered(_:_:)``. Its
        /// bytes need not be kept before.
        case produce(UInt32)
        /// Keep the record's bytes.
        case wait(UInt32)
        /// Free the record: nobody produces it.
        case drop
    }

    /// State of the order at its end.
    public struct Ending: Equatable, Sendable {
        /// Records that the producer has accepted in all transactions. Zero without transactions.
        public var produced: Int
        /// Changes of the store that will never be produced.
        public var changesLeft: Int
        /// True when the open transaction lacks a record that belongs in it, so that it must not be committed.
        public var isTorn: Bool

        public init(produced: Int, changesLeft: Int, isTorn: Bool) {
            self.produced = produced
            self.changesLeft = changesLeft
            self.isTorn = isTorn
        }
    }

    enum Phase: Equatable, BitwiseCopyable {
        case frozen, open, freezing
    }

    struct Record: BitwiseCopyable {
        /// Slot of the jobs' partition.
        var partition: UInt16
        var kind: Kind
        var flags: UInt8
        /// Cuts of the form to produce, see ``Kind/mostCuts``.
        var cuts: UInt8 = 0

        /// Set for the outcome of a job that takes room in the intake until its report comes.
        static let job: UInt8 = 1
        /// Set when the record isn't produced any more: it counts neither as kept nor as waiting.
        static let dropped: UInt8 = 2
        /// Set for a kept record whose partition has ended: the record isn't produced again.
        static let ended: UInt8 = 4
        /// Set when an aborted transaction had the record, or the open transaction has it.
        static let produced: UInt8 = 8

        @inline(__always) func has(_ flag: UInt8) -> Bool { flags & flag != 0 }
    }

    struct Ticket: BitwiseCopyable {
        /// Sequence number of the first record that the ticket doesn't wait for.
        var position: UInt64
        var number: UInt64
    }
}
