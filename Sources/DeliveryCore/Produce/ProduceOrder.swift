/// Decides what becomes of each record that a shard writes: outcomes, dead letters and changes of its store.
///
/// A value without I/O, clock or thread. Records are known by handles, never by their bytes. The owner keeps the bytes of
/// what ``write(_:partition:isJob:isPermitted:)`` and ``answered(_:_:)`` tell it to keep. After each call it does what
/// ``nextAction()`` says, until that is nil.
///
/// All records lie in one row, in the order in which they were written:
///
/// ```
///       front               cut                  end
///         │ kept for an abort │ waits to be produced │
///         └───────────────────┴──────────────────────┘
/// produced:    cut moves right past one record; without transactions front moves with it
/// committed:   front moves to cut
/// aborted:     cut moves back to front, so that all is produced once more, in the same order
/// ```
///
/// With transactions, the owner's coordinator numbers them from 1. A thaw opens the transaction of its number, and tells
/// how the one ended that was thawed before. A freeze closes the transaction of its number.
///
/// ```
///            thaw(n)            freeze(n), some wait
///   frozen ───────────→ open(n) ────────────────────→ freezing(n)
///     ↑                   │ freeze(n), none waits;        │ these are produced, or dropped with their partition;
///     │    frozen(n)      │ freeze(n, at once)            │ freeze(n, at once); the producer refuses
///     └───────────────────┴───────────────────────────────┘
/// ```
///
/// - A freeze or thaw of a number that was overtaken is ignored, and so is one that comes twice.
/// - `frozen` comes once at most for each number.
/// - A thaw that comes after a freeze of its number tells how the one before ended, and opens nothing.
/// - A thaw of a later number while one is open closes that one first.
/// - A transaction that refuses a record takes no other.
/// - Without transactions it is as if one were always open, whose records are committed when they are produced.
///
/// The coordinator's part: it lets a transaction end only after all shards are frozen in it. No other rule keeps a record
/// from being produced into a transaction that this machine hasn't heard of.
public struct ProduceOrder: ~Copyable {
    /// So many may wait for the next transaction before the shard stops to send.
    public static let mostWaiting = 20_000

    public let isTransactional: Bool
    private let inPlace = InPlace()
    private var phase: Phase
    /// Number of the transaction that was thawed last; 0: none was.
    private var opened: UInt64 = 0
    /// Highest number of a freeze; 0: none came.
    private var closed: UInt64 = 0
    /// Sequence number of the first record that waits for the next transaction, while one is freezing.
    private var freezeEnd: UInt64 = 0
    /// The producer has refused a record of the open transaction.
    private var isRefused = false
    /// With transactions: the producer will never take the first record that waits.
    private var hasFailed = false
    private var hasEnded = false

    /// All records from `front` on.
    private var records = RingQueue<Record>(capacity: 1024)
    /// Sequence number of the first record; counts from 0.
    private var front: UInt64 = 0
    /// Records at the front that were produced, and dropped ones between them.
    private var cut = 0
    /// Records that the open transaction has, kept for an abort. Zero without transactions.
    public private(set) var retained = 0
    /// Records that are not produced yet.
    public private(set) var waiting = 0
    /// Records that the producer has taken in all transactions. Zero without transactions.
    public private(set) var produced = 0

    /// Dead letters go without their values.
    private var omitsValues = false
    /// What waits is produced, record by record.
    private var isFlushing = false
    /// The record at `cut` was handed to the producer, whose answer is to come.
    private var isAsked = false
    private var isTimerArmed = false
    /// The shard is to be told when nothing waits any more.
    private var owesRoom = false
    /// Bytes before `front` were not told to be forgotten.
    private var owesForget = false
    private var tickets = RingQueue<Ticket>(capacity: 16)
    private var actions = RingQueue<ProduceAction>(capacity: 64)
    /// Slots of partitions that have ended.
    private var endedSlots = SlotSet()

    public init(isTransactional: Bool) {
        self.isTransactional = isTransactional
        phase = isTransactional ? .frozen : .open
    }

    /// The shard should send nothing: many wait for the next transaction, or some for room in the producer.
    public var isBlocked: Bool { phase == .frozen ? waiting > Self.mostWaiting : waiting > 0 }

    /// Nothing is produced until the next transaction begins.
    public var isFrozen: Bool { phase == .frozen }

    /// Records written last wait for the next transaction. True also while frozen, whether or not any was written.
    public var writesForNext: Bool {
        phase == .frozen || phase == .freezing && front &+ UInt64(records.count) > freezeEnd
    }

    package enum State: UInt8, CaseIterable, Sendable {
        case frozen, open, freezing
        /// The open transaction takes no record.
        case refused
        /// The producer will never take the first record that waits.
        case failed
        case ended
    }

    package var state: State {
        if hasEnded { return .ended }
        if hasFailed { return .failed }
        switch phase {
        case .frozen: return .frozen
        case .open: return isRefused ? .refused : .open
        case .freezing: return .freezing
        }
    }

    /// Number of the transaction that was thawed last; 0: none was.
    public var transaction: UInt64 { opened }

    /// Tickets that wait.
    public var ticketsWaiting: Int { tickets.count }

    /// Records whose bytes the owner has, those between that were dropped included.
    public var recordsHeld: Int { records.count }

    // MARK: Records

    /// A record was written.
    /// - Parameters:
    ///   - isJob: a job of the intake ends with it.
    ///   - isPermitted: the worker's membership is not in doubt. Of no meaning with transactions, which fence.
    public mutating func write(
        _ kind: Kind, partition: UInt16, isJob: Bool, isPermitted: Bool
    ) -> Step {
        guard !hasEnded else { return .drop }
        if isEnded(kind, partition) {
            if isJob { actions.append(.gaveBack(partition: partition, wasProduced: false)) }
            return .drop
        }
        let mayGo = mayProduce(isPermitted)
        let goesNow = waiting == 0 && mayGo
        let handle = handle(records.count)
        records.append(Record(partition: partition, kind: kind, flags: isJob ? Record.job : 0))
        waiting &+= 1
        if goesNow, kind != .deadLetter {
            isAsked = true
            return .produce(handle)
        }
        owesRoom = true
        if goesNow { isFlushing = true } else if mayGo, !isFlushing { armTimer() }
        return .wait(handle)
    }

    /// The producer has answered.
    /// - Returns: whether the record's bytes are needed further on.
    public mutating func answered(_ handle: UInt32, _ answer: ProduceAnswer) -> Bool {
        guard isAsked, handle == self.handle(cut) else {
            return handle &- self.handle(0) < UInt32(truncatingIfNeeded: records.count)
        }
        isAsked = false
        switch answer {
        case .queued:
            waiting &-= 1
            if isTransactional {
                records[cut].flags |= Record.produced
                cut &+= 1
                retained &+= 1
                produced &+= 1
            } else {
                removeFirst(1)
            }
            if cut < records.count { skipDropped() }
            settle()
            return isTransactional
        case .queueFull, .failedForNow:
            waitForRoom()
        case .noTransaction where isTransactional:
            isRefused = true
            isFlushing = false
            owesRoom = true
            actions.append(.refused(number: opened))
            if phase == .freezing { freezeNow() }
        case .noTransaction:
            waitForRoom()
        case .tooLarge, .failed:
            return refused(handle)
        }
        return true
    }

    private mutating func refused(_ handle: UInt32) -> Bool {
        // Larger with its headers than the producer takes: without its value it must fit.
        if records[cut].kind == .deadLetter, !records[cut].has(Record.omitted) {
            records[cut].flags |= Record.omitted
            isFlushing = true
            return true
        }
        actions.append(.failed(handle))
        owesRoom = true
        guard !isTransactional else {
            // Without it the transaction would be torn: nothing follows.
            hasFailed = true
            isFlushing = false
            return true
        }
        // Its job never ends: a fresh start brings it again.
        waiting -= 1
        removeFirst(1)
        skipDropped()
        settle()
        return false
    }

    private mutating func waitForRoom() {
        isFlushing = false
        owesRoom = true
        armTimer()
    }

    /// Produces what waits, as far as there is room.
    public mutating func flush(isPermitted: Bool) {
        isFlushing = waiting > 0 && !hasEnded && mayProduce(isPermitted)
    }

    /// The time of ``ProduceAction/armTimer`` is over.
    public mutating func timerDue(isPermitted: Bool) {
        isTimerArmed = false
        flush(isPermitted: isPermitted)
    }

    /// Nil: nothing is to be done before the next call.
    public mutating func nextAction() -> ProduceAction? {
        if let action = actions.popFirst() { return action }
        if isFlushing, !isAsked {
            isAsked = true
            if records[cut].kind == .deadLetter, omitsValues { records[cut].flags |= Record.omitted }
            return .produce(handle(cut), omitsValue: records[cut].has(Record.omitted))
        }
        guard owesForget else { return nil }
        owesForget = false
        return .forget(before: handle(0))
    }

    @inline(__always)
    private func mayProduce(_ isPermitted: Bool) -> Bool {
        phase != .frozen && !isRefused && !hasFailed && (isTransactional || isPermitted)
    }

    @inline(__always)
    private func handle(_ index: Int) -> UInt32 { UInt32(truncatingIfNeeded: front &+ UInt64(index)) }

    private mutating func armTimer() {
        guard !isTimerArmed else { return }
        isTimerArmed = true
        actions.append(.armTimer)
    }

    @inline(__always)
    private mutating func removeFirst(_ count: Int) {
        records.removeFirst(count)
        front &+= UInt64(count)
        // What was produced as it was written has no bytes to forget.
        if isTransactional || owesRoom || isFlushing { owesForget = true }
    }

    /// Passes records at `cut` that were dropped. Where nothing before is kept, they leave the row.
    private mutating func skipDropped() {
        while cut < records.count, records[cut].has(Record.dropped) {
            if cut == 0 { removeFirst(1) } else { cut += 1 }
        }
    }

    /// Does what follows where nothing waits, or all before a ticket has gone.
    @inline(__always)
    private mutating func settle() {
        if waiting == 0 {
            isFlushing = false
            if owesRoom, phase == .open {
                owesRoom = false
                actions.append(.resumed)
            }
        }
        if phase == .freezing, front &+ UInt64(cut) >= freezeEnd { freezeNow() }
        if !tickets.isEmpty { releaseTickets() }
    }

    private mutating func releaseTickets() {
        while let ticket = tickets.first, ticket.position <= front {
            tickets.removeFirst(1)
            actions.append(.released(ticket: ticket.number))
        }
    }

    /// Asks for ``ProduceAction/released(ticket:)``: another writer's records come after all that was written here so far,
    /// also if the open transaction is aborted and repeated.
    public mutating func afterThis(ticket: UInt64) {
        tickets.append(Ticket(position: front &+ UInt64(records.count), number: ticket))
        releaseTickets()
    }

    // MARK: Partitions

    /// The slot is another partition's, or the same one's once more.
    public mutating func beginPartition(_ slot: UInt16) {
        endedSlots.remove(slot)
    }

    /// The partition has gone, and whoever has it now writes the outcomes of its jobs. Nothing more is written for it here
    /// until it begins again.
    public mutating func endPartition(_ slot: UInt16) {
        guard !hasEnded else { return }
        endedSlots.insert(slot)
        for index in 0..<cut where records[index].partition == slot { records[index].flags |= Record.ended }
        let dropsChanges = isTransactional
        dropWaiting(tellsJobs: true) { $0.partition == slot && (dropsChanges || $0.kind != .change) }
        settle()
    }

    /// Without transactions changes of the store are produced all the same: a deletion tells others of what has ended.
    @inline(__always)
    private func isEnded(_ kind: Kind, _ slot: UInt16) -> Bool {
        endedSlots.contains(slot) && (isTransactional || kind != .change)
    }

    /// Without transactions: what waits for a lost partition is for another to say.
    /// - Returns: how many jobs' outcomes that are.
    public mutating func abandon(_ slot: UInt16) -> Int {
        guard !isTransactional, !hasEnded else { return 0 }
        let jobs = dropWaiting(tellsJobs: false) { $0.partition == slot }
        settle()
        return jobs
    }

    /// - Returns: how many jobs' outcomes were dropped.
    @discardableResult
    private mutating func dropWaiting(tellsJobs: Bool, _ isDropped: (Record) -> Bool) -> Int {
        var jobs = 0
        for index in cut..<records.count
        where !records[index].has(Record.dropped) && isDropped(records[index]) {
            records[index].flags |= Record.dropped
            waiting -= 1
            if !isTransactional, records[index].kind == .change {
                actions.append(.droppedChange(handle(index)))
            }
            guard records[index].has(Record.job) else { continue }
            jobs += 1
            guard tellsJobs else { continue }
            actions.append(
                .gaveBack(
                    partition: records[index].partition, wasProduced: records[index].has(Record.produced)))
        }
        isAsked = false
        skipDropped()
        return jobs
    }

    // MARK: Transactions

    /// The transaction of this number is about to end: nothing more is produced in it, as soon as all is that was written so
    /// far. What belongs together is written between two facts of the coordinator, and so is in one transaction.
    ///
    /// - Parameter atOnce: it is about to be aborted: what isn't produced yet waits for the next one.
    public mutating func freeze(_ number: UInt64, atOnce: Bool) {
        guard isTransactional, !hasEnded, number >= opened else { return }
        if number > opened {
            // Its thaw has not come: what was open is over, and nothing is in this one.
            guard number > closed else { return }
            closed = number
            return freezeNow()
        }
        guard phase == .open || (phase == .freezing && atOnce) else { return }
        closed = number
        if atOnce || isRefused { return freezeNow() }
        phase = .freezing
        freezeEnd = front &+ UInt64(records.count)
        isFlushing = waiting > 0 && mayProduce(true)
        settle()
    }

    private mutating func freezeNow() {
        phase = .frozen
        isFlushing = false
        isAsked = false
        owesRoom = true
        actions.append(.frozen(number: closed, produced: produced))
    }

    /// The transaction of this number has begun.
    /// - Parameters:
    ///   - repeating: nil: the one that was thawed before was committed. Otherwise it was aborted: what it had of these
    ///     partitions, by their slots, is produced again before anything newer, and what waits of others is dropped.
    ///   - omitsValues: dead letters go without their values, as Kafka has refused some with them.
    public mutating func thaw(_ number: UInt64, repeating: Set<UInt16>?, omitsValues: Bool) {
        guard isTransactional, !hasEnded, number > opened else { return }
        opened = number
        isAsked = false
        self.omitsValues = omitsValues
        isRefused = false
        if let repeating { repeatKept(repeating) } else { removeFirst(cut) }
        cut = 0
        retained = 0
        skipDropped()
        phase = number > closed ? .open : .frozen
        owesRoom = true
        isFlushing = waiting > 0 && mayProduce(true)
        settle()
    }

    private mutating func repeatKept(_ live: Set<UInt16>) {
        dropWaiting(tellsJobs: true) { !live.contains($0.partition) }
        for index in 0..<cut where !records[index].has(Record.dropped) {
            if records[index].has(Record.ended) || !live.contains(records[index].partition) {
                records[index].flags |= Record.dropped
            } else {
                waiting += 1
            }
        }
    }

    /// The worker ends: nothing more is produced, and what is written is nobody's.
    public mutating func end() -> Ending {
        var changesLeft = 0
        for index in cut..<records.count
        where records[index].kind == .change && !records[index].has(Record.dropped) { changesLeft += 1 }
        let ending = Ending(
            produced: produced, changesLeft: changesLeft,
            isTorn: isTransactional && phase != .frozen && waiting > 0)
        hasEnded = true
        isFlushing = false
        if isTransactional { phase = .frozen }
        return ending
    }
}
