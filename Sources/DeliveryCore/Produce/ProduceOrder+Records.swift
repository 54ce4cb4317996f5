extension ProduceOrder {
    public enum Kind: UInt8, Sendable, BitwiseCopyable {
        case outcome, deadLetter, change
    }

    /// Orders that follow from a written record.
    public enum Step: Equatable, Sendable {
        /// Hand it to the producer at once, and tell ``ProduceOrder/answered(_:_:)``. Its bytes need not be kept before.
        case produce(UInt32)
        /// Keep its bytes.
        case wait(UInt32)
        /// It is nobody's.
        case drop
    }

    /// State of the end.
    public struct Ending: Equatable, Sendable {
        /// Records that the producer has taken in all transactions. Zero without transactions.
        public var produced: Int
        /// Changes of the store that will never be produced.
        public var changesLeft: Int
        /// Some of what belongs into the open transaction is not in it, so that it must not be committed.
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

        /// The outcome of a job that takes room in the intake until its report comes.
        static let job: UInt8 = 1
        /// Not produced any more: it counts neither as kept nor as waiting.
        static let dropped: UInt8 = 2
        /// Kept, while its partition has ended: it isn't produced again.
        static let ended: UInt8 = 4
        /// A dead letter that goes without its value.
        static let omitted: UInt8 = 8
        /// An aborted transaction had it, or the open one has it.
        static let produced: UInt8 = 16

        @inline(__always) func has(_ flag: UInt8) -> Bool { flags & flag != 0 }
    }

    struct Ticket: BitwiseCopyable {
        /// Sequence number of the first record that it doesn't wait for.
        var position: UInt64
        var number: UInt64
    }
}
