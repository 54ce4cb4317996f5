import DequeModule

/// Orders the records that a shard writes, and decides when each is produced: outcomes, dead letters and changes of
/// its store.
///
/// A value without I/O, clock or thread. Handles identify records; the order never sees their bytes. The owner keeps
/// the bytes that ``write(_:partition:isJob:isPermitted:)`` and ``answered(_:_:)`` ask it to keep. After each call
/// the owner does the actions of ``nextAction()``, until that is nil.
///
/// All records form one row, in the order in which they were written:
///
///           front               cut                  end
///             │ kept for an abort │ waits to be produced │
///             └───────────────────┴──────────────────────┘
///     produced:    cut moves right past one record; without transactions front moves with it
///     committed:   front moves to cut
///     aborted:     cut moves back to front, so that all is produced once more, in the same order
///
/// With transactions, the owner's coordinator numbers them from 1. A thaw opens the transaction of its number, and
/// reports how the transaction ended that was thawed before. A freeze closes the transaction of its number.
///
///               thaw(n)            freeze(n), some wait
///     frozen ────────────→ open(n) ────────────────────→ freezing(n)
///       ↑                    │ freeze(n), none waits;       │ the waiting ones are produced or dropped;
///       │    frozen(n)       │ freeze(n, at once)           │ freeze(n, at once); the producer refuses
///       └────────────────────┴──────────────────────────────┘
///
/// Waiting records are dropped with their partition.
///
/// - A freeze or thaw of a number that was overtaken is ignored, and so is a repeated one.
/// - `frozen` comes at most once for each number.
/// - A thaw that comes after a freeze of its number reports how the transaction before ended, and opens nothing.
/// - A thaw of a later number while a transaction is open closes that transaction first.
/// - A transaction that refuses a record accepts no other.
/// - A record that is too large is made again in a smaller form, see ``Kind/mostCuts``. One that the producer has refused
///   follows at once, one that a broker has refused at the thaw after the abort.
/// - Without transactions the order acts as if one were always open, and committed each record once it is produced.
///
/// The coordinator lets a transaction end only after all shards are frozen in it. No other rule keeps a record from
/// being produced into a transaction that this machine doesn't know of.
public struct ProduceOrder: ~Copyable {
    /// Records that may wait for the next transaction before the shard stops sending.
    public static let mostWaiting = 20_000

    /// True when records are produced in transactions only.
    public let isTransactional: Bool
    private let inPlace = InPlace()
    private var phase: Phase
    /// Number of the transaction that was thawed last; 0 when none was.
    private var opened: UInt64 = 0
    /// Highest number of a freeze; 0 when none came.
    private var closed: UInt64 = 0
    /// Sequence number of the first record that waits for the next transaction, while one is freezing.
    private var freezeEnd: UInt64 = 0
    /// True when the producer has refused a record of the open transaction.
    private var isRefused = false
    /// True when the producer will never accept the first waiting record. Only with transactions.
    private var hasFailed = false
    /// True when the first waiting record fits in no form, until its partition has ended. Only with transactions.
    private var awaitsEnd = false
    private var hasEnded = false

    /// Records from `front` on.
    private var records = Deque<Record>(minimumCapacity: 1024)
    /// Sequence number of the first record; counts from 0.
    private var front: UInt64 = 0
    /// Count of records at the front that were produced, with the dropped ones between them.
    private var cut = 0
    /// Records that the open transaction has, kept for an abort. Zero without transactions.
    public private(set) var retained = 0
    /// Records that are not produced yet.
    public private(set) var waiting = 0
    /// Records that the producer has accepted in all transactions. Zero without transactions.
    public private(set) var produced = 0

    /// True while waiting records are produced, record by record.
    private var isFlushing = false
    /// True while the record at `cut` is with the producer, which hasn't answered yet.
    private var isAsked = false
    private var isTimerArmed = false
    /// True when ``ProduceAction/resumed`` is owed to the shard as soon as nothing waits any more.
    private var owesRoom = false
    /// True when ``ProduceAction/forget(before:)`` is owed to the owner, for the bytes before `front`.
    private var owesForget = false
    private var tickets = Deque<Ticket>(minimumCapacity: 16)
    private var actions = Deque<ProduceAction>(minimumCapacity: 64)
    /// Slots of partitions that have ended.
    private var endedSlots = SlotSet()

    public init(isTransactional: Bool) {
        self.isTransactional = isTransactional
        phase = isTransactional ? .frozen : .open
    }

    /// True when the shard should send nothing: many records wait for the next transaction, or some for room in the
    /// producer.
    public var isBlocked: Bool { phase == .frozen ? waiting > Self.mostWaiting : waiting > 0 }

    /// True while nothing is produced until the next transaction begins.
    public var isFrozen: Bool { phase == .frozen }

    /// True when the last records wait for the next transaction. True also while frozen, even if no record was
    /// written.
    public var writesForNext: Bool {
        phase == .frozen || phase == .freezing && front &+ UInt64(records.count) > freezeEnd
    }

    /// Number of the transaction that was thawed last; 0 when none was.
    public var transaction: UInt64 { opened }

    /// Tickets that wait.
    public var ticketsWaiting: Int { tickets.count }

    /// Records whose bytes the owner has, including dropped ones between them.
    public var recordsHeld: Int { records.count }

    // MARK: Records

    /// Adds a record that was written.
    /// - Parameters:
    ///   - isJob: true when a job of the intake ends with the record.
    ///   - isPermitted: true when the worker's membership is not in doubt. Ignored with transactions, which fence.
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

    /// Records the producer's answer.
    /// - Returns: true when the record's bytes are still needed.
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
        case .tooLarge:
            guard records[cut].cuts == records[cut].kind.mostCuts else {
                records[cut].cuts += 1
                isFlushing = true
                return true
            }
            return giveUp(handle, isEnd: records[cut].kind == .change)
        case .failed:
            return giveUp(handle, isEnd: true)
        }
        return true
    }

    /// Produces the first waiting record in no form.
    /// - Parameter isEnd: the worker has to end, not only the partition.
    private mutating func giveUp(_ handle: UInt32, isEnd: Bool) -> Bool {
        actions.append(isEnd ? .failed(handle) : .neverFits(handle))
        owesRoom = true
        guard !isTransactional else {
            // Without the record the transaction would be torn: nothing follows.
            if isEnd { hasFailed = true } else { awaitsEnd = true }
            isFlushing = false
            return true
        }
        // The record's job never ends; after a restart, Kafka delivers the job again.
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

    /// Produces waiting records, as far as there is room.
    public mutating func flush(isPermitted: Bool) {
        isFlushing = waiting > 0 && !hasEnded && mayProduce(isPermitted)
    }

    /// Flushes because the time of ``ProduceAction/armTimer`` is over.
    public mutating func timerDue(isPermitted: Bool) {
        isTimerArmed = false
        flush(isPermitted: isPermitted)
    }

    /// Returns the next action; nil when there is none before the next call.
    public mutating func nextAction() -> ProduceAction? {
        if let action = actions.popFirst() { return action }
        if isFlushing, !isAsked {
            isAsked = true
            return .produce(handle(cut), cuts: records[cut].cuts)
        }
        guard owesForget else { return nil }
        owesForget = false
        return .forget(before: handle(0))
    }

    @inline(__always)
    private func mayProduce(_ isPermitted: Bool) -> Bool {
        phase != .frozen && !isRefused && !hasFailed && !awaitsEnd && (isTransactional || isPermitted)
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
        // A record that was produced as it was written has no bytes to free.
        if isTransactional || owesRoom || isFlushing { owesForget = true }
    }

    /// Passes dropped records at `cut`. When no record before them is kept, they leave the row.
    private mutating func skipDropped() {
        while cut < records.count, records[cut].has(Record.dropped) {
            if cut == 0 { removeFirst(1) } else { cut += 1 }
        }
    }

    /// Does the work that follows when nothing waits, or all records before a ticket are produced.
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

    /// Asks for ``ProduceAction/released(ticket:)``. Another writer's records then come after all records written
    /// here so far, even if the open transaction is aborted and repeated.
    public mutating func afterThis(ticket: UInt64) {
        tickets.append(Ticket(position: front &+ UInt64(records.count), number: ticket))
        releaseTickets()
    }

    // MARK: Partitions

    /// Begins a partition in the slot: another partition, or the same one again.
    public mutating func beginPartition(_ slot: UInt16) {
        endedSlots.remove(slot)
    }

    /// Ends a partition that was revoked; its next worker writes the outcomes of its jobs. Nothing more is written
    /// for it here until it begins again.
    public mutating func endPartition(_ slot: UInt16) {
        guard !hasEnded else { return }
        endedSlots.insert(slot)
        for index in 0..<cut where records[index].partition == slot { records[index].flags |= Record.ended }
        let dropsChanges = isTransactional
        dropWaiting(reportsJobs: true) { $0.partition == slot && (dropsChanges || $0.kind != .change) }
        settle()
    }

    /// Returns true when a record of the partition isn't produced any more. Without transactions, changes of the
    /// store are still produced, because a deletion reports to others that an item has ended.
    @inline(__always)
    private func isEnded(_ kind: Kind, _ slot: UInt16) -> Bool {
        endedSlots.contains(slot) && (isTransactional || kind != .change)
    }

    /// Drops the waiting records of a lost partition, because another worker reports them. Only without transactions.
    /// - Returns: the number of jobs whose outcomes were dropped.
    public mutating func abandon(_ slot: UInt16) -> Int {
        guard !isTransactional, !hasEnded else { return 0 }
        let jobs = dropWaiting(reportsJobs: false) { $0.partition == slot }
        settle()
        return jobs
    }

    /// - Returns: the number of jobs whose outcomes were dropped.
    @discardableResult
    private mutating func dropWaiting(reportsJobs: Bool, _ isDropped: (Record) -> Bool) -> Int {
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
            guard reportsJobs else { continue }
            actions.append(
                .gaveBack(
                    partition: records[index].partition, wasProduced: records[index].has(Record.produced)))
        }
        isAsked = false
        if awaitsEnd, records[cut].has(Record.dropped) {
            awaitsEnd = false
            isFlushing = mayProduce(true)
        }
        skipDropped()
        return jobs
    }

    // MARK: Transactions

    /// Freezes the transaction of this number because it is about to end. Once all records written so far are
    /// produced, nothing more is produced in it. Records that belong together are written between two facts of the
    /// coordinator, and are therefore in one transaction.
    ///
    /// - Parameter atOnce: true when it is about to be aborted. Records that aren't produced yet wait for the next
    ///   transaction.
    public mutating func freeze(_ number: UInt64, atOnce: Bool) {
        guard isTransactional, !hasEnded, number >= opened else { return }
        if number > opened {
            // Its thaw has not come: the open transaction is over, and no record is in this one.
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

    /// Begins the transaction of this number.
    /// - Parameters:
    ///   - repeating: slots of partitions to repeat; nil when the transaction thawed before was committed. Otherwise
    ///     that transaction was aborted. Its records of these partitions are produced again before newer ones.
    ///     Waiting records of other partitions are dropped.
    ///   - refused: records of the aborted transaction that Kafka has refused in their last form.
    public mutating func thaw(_ number: UInt64, repeating: Set<UInt16>?, refused: [Refusal] = []) {
        guard isTransactional, !hasEnded, number > opened else { return }
        opened = number
        isAsked = false
        isRefused = false
        awaitsEnd = false
        for refusal in refused {
            let index = Int(refusal.handle &- handle(0))
            guard index < records.count else { continue }
            records[index].cuts = min(max(records[index].cuts, refusal.cuts), records[index].kind.mostCuts)
        }
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
        dropWaiting(reportsJobs: true) { !live.contains($0.partition) }
        for index in 0..<cut where !records[index].has(Record.dropped) {
            if records[index].has(Record.ended) || !live.contains(records[index].partition) {
                records[index].flags |= Record.dropped
            } else {
                waiting += 1
            }
        }
    }

    /// Ends the order because the worker ends: nothing more is produced, and later records are dropped.
    public mutating func stop() -> Ending {
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
