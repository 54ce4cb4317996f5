import DeliveryCore
import SluiceModel
import StreamScheduling

/// ``ProduceOrder``s of several shards over a modelled producer with one transaction at a time. The coordinator's
/// messages arrive late, twice, or in another order. Everything visible from outside is checked as it happens.
struct ProduceWorld: ~Copyable {
    struct Record {
        var shard: Int
        var partition: UInt16
        var kind: ProduceOrder.Kind
        var isJob: Bool
        /// Records that belong into one transaction have the same group.
        var group: Int
        /// Cuts with which the producer takes the record, and the broker; above 3: never.
        var producerCuts: UInt8 = 0
        var brokerCuts: UInt8 = 0
        /// Its partition has ended since it was written.
        var hasEnded = false
        /// The producer took the record, in any transaction.
        var wasTaken = false
        /// Number of the committed transaction that contains the record; nil: none.
        var committed: UInt64?
    }

    enum Message {
        case freeze(UInt64, atOnce: Bool)
        case thaw(UInt64, repeating: Set<UInt16>?, refused: [Int: UInt8])
        case end(UInt16)
        case begin(UInt16)

        var isOfTransactions: Bool {
            switch self {
            case .freeze, .thaw: true
            case .end, .begin: false
            }
        }
    }

    enum Phase { case between, open, closing }

    var draw: SeededGenerator
    var shards: [Int: [Message]] = [:]
    let count: Int
    let orders: UnsafeMutablePointer<ProduceOrder>
    var bytes: [[UInt32: Int]]
    var hasTimer: [Bool]
    /// Slots of the partitions that have begun in each shard.
    var known: [Set<UInt16>]
    var late: [(shard: Int, message: Message)] = []
    var answers: [(shard: Int, number: UInt64, produced: Int)] = []

    var records: [Record] = []
    var groups = 0
    var committed: [Int] = []
    var gaveBack = 0
    var tickets: [(shard: Int, before: Int, isReleased: Bool)] = []

    // The producer's state.
    var isOpen = false
    var isDoomed = false
    var room = 8
    var content: [(record: Int, cuts: UInt8)] = []
    var producedIn = [Int]()

    // The coordinator's state.
    var number: UInt64 = 0
    var phase = Phase.between
    var awaited: Set<Int> = []
    var mustAbort = false
    /// Whether the last thawed transaction was aborted.
    var wasAborted = false
    /// Records that the broker has refused since the last commit, with the cuts of their next forms.
    var refused: [Int: UInt8] = [:]
    var stops = 0
    var live: Set<UInt16> = [0, 1, 2, 3]
    var ended: Set<UInt16> = []
    var commits = 0
    var aborts = 0
    var isCalm = false

    init(seed: UInt64, shards count: Int) {
        draw = SeededGenerator(seed: seed)
        self.count = count
        orders = .allocate(capacity: count)
        for shard in 0..<count {
            (orders + shard).initialize(to: ProduceOrder(isTransactional: true))
            shards[shard] = []
        }
        bytes = Array(repeating: [:], count: count)
        hasTimer = Array(repeating: false, count: count)
        producedIn = Array(repeating: 0, count: count)
        known = Array(repeating: live, count: count)
    }

    deinit {
        orders.deinitialize(count: count)
        orders.deallocate()
    }

    mutating func below(_ bound: Int) -> Int { Int(draw.next() % UInt64(bound)) }

    mutating func chance(_ percent: Int) -> Bool { below(100) < percent }

    // MARK: The producer

    mutating func produce(_ index: Int, by shard: Int, cuts: UInt8) throws -> ProduceAnswer {
        try expect(!orders[shard].isFrozen, "record \(index) is produced by a frozen shard")
        guard isOpen, !isDoomed else { return .noTransaction }
        try expect(
            orders[shard].transaction == number && phase != .between,
            "record \(index) is produced into \(number), the shard has seen \(orders[shard].transaction)")
        try expect(
            phase == .open || awaited.contains(shard), "record \(index) follows its shard's frozen report")
        let record = records[index]
        try expect(record.committed == nil, "record \(index) is produced again after its commit")
        if !isCalm {
            if room == 0 { return chance(50) ? .queueFull : .failedForNow }
            room -= 1
            if below(1_000) == 0 {
                isDoomed = true
                return .noTransaction
            }
        }
        try expect(
            cuts <= max(record.producerCuts, record.brokerCuts), "record \(index) has more cuts than it needs"
        )
        if cuts < record.producerCuts { return .tooLarge }
        records[index].wasTaken = true
        content.append((index, cuts))
        producedIn[shard] += 1
        if cuts < record.brokerCuts {
            refused[index] = cuts + 1
            mustAbort = true
        }
        return .queued
    }

    // MARK: Shards

    mutating func write(_ shard: Int) throws {
        groups += 1
        for _ in 0...below(3) {
            let partition = UInt16(below(4))
            // A shard writes nothing for a partition that hasn't begun there.
            guard known[shard].contains(partition) || !live.contains(partition) else { continue }
            let kind: ProduceOrder.Kind = chance(20) ? .deadLetter : chance(40) ? .change : .outcome
            let index = records.count
            var record = Record(
                shard: shard, partition: partition, kind: kind,
                isJob: kind == .deadLetter || (kind == .outcome && chance(70)), group: groups)
            let most = Int(kind.mostCuts)
            if most > 0, chance(10) { record.producerCuts = UInt8(1 + below(most)) }
            if most > 0, chance(2) { record.brokerCuts = UInt8(1 + below(most)) }
            if most > 0, !isCalm, below(300) == 0 { record.producerCuts = .max }
            record.hasEnded = !live.contains(partition)
            records.append(record)
            switch orders[shard].write(kind, partition: partition, isJob: record.isJob, isPermitted: true) {
            case .produce(let handle):
                let answer = try produce(index, by: shard, cuts: 0)
                if orders[shard].answered(handle, answer) { bytes[shard][handle] = index }
            case .wait(let handle): bytes[shard][handle] = index
            case .drop: break
            }
            try carryOut(shard)
        }
        if chance(10) {
            tickets.append((shard, records.count, false))
            orders[shard].afterThis(ticket: UInt64(tickets.count - 1))
            try carryOut(shard)
        }
    }

    mutating func carryOut(_ shard: Int) throws {
        while let action = orders[shard].nextAction() {
            switch action {
            case .produce(let handle, let cuts):
                guard let index = bytes[shard][handle] else { throw Broken("bytes of \(handle) are gone") }
                let answer = try produce(index, by: shard, cuts: cuts)
                let isKept = orders[shard].answered(handle, answer)
                try expect(isKept, "transactions keep every record")
            case .forget(let before):
                for handle in bytes[shard].keys where Int32(bitPattern: handle &- before) < 0 {
                    bytes[shard][handle] = nil
                }
            case .gaveBack(_, let wasProduced): if !wasProduced { gaveBack += 1 }
            case .frozen(let number, let produced): answers.append((shard, number, produced))
            case .released(let ticket): try released(Int(ticket))
            case .armTimer:
                try expect(!hasTimer[shard], "two timers")
                hasTimer[shard] = true
            case .resumed: try expect(!orders[shard].isBlocked, "resumed while blocked")
            case .droppedChange: break
            case .refused(let number): try expect(number == self.number, "refused in \(number)")
            case .neverFits(let handle):
                guard let index = bytes[shard][handle] else { throw Broken("bytes of \(handle) are gone") }
                try expect(records[index].producerCuts == .max, "record \(index) fits in some form")
                stops += 1
                if live.contains(records[index].partition) { end(records[index].partition) }
            case .failed: throw Broken("an unexpected failure is reported")
            }
        }
        try expect(
            orders[shard].recordsHeld >= orders[shard].retained + orders[shard].waiting,
            "held records are miscounted")
    }

    mutating func released(_ ticket: Int) throws {
        try expect(!tickets[ticket].isReleased, "ticket \(ticket) is released twice")
        tickets[ticket].isReleased = true
        for (index, record) in records[..<tickets[ticket].before].enumerated()
        where record.shard == tickets[ticket].shard && !record.hasEnded {
            try expect(record.committed != nil, "ticket \(ticket) is released before record \(index)")
        }
    }

    mutating func deliver(_ shard: Int) throws {
        guard let messages = shards[shard], !messages.isEmpty else { return }
        var index = 0
        // A thaw and the freeze of its number may change places. Other messages keep their order.
        if !isCalm, messages.count > 1, chance(10), case .thaw = messages[0], case .freeze = messages[1] {
            index = 1
        }
        let message = messages[index]
        shards[shard]!.remove(at: index)
        if !isCalm, message.isOfTransactions, chance(20) { late.append((shard, message)) }
        try take(message, shard)
    }

    mutating func take(_ message: Message, _ shard: Int) throws {
        switch message {
        case .freeze(let number, let atOnce): orders[shard].freeze(number, atOnce: atOnce)
        case .thaw(let number, let repeating, let refused):
            let refusals = bytes[shard].compactMap { handle, index in
                refused[index].map { ProduceOrder.Refusal(handle: handle, cuts: $0) }
            }
            orders[shard].thaw(number, repeating: repeating, refused: refusals)
        case .end(let slot):
            known[shard].remove(slot)
            orders[shard].endPartition(slot)
        case .begin(let slot):
            known[shard].insert(slot)
            orders[shard].beginPartition(slot)
        }
        try carryOut(shard)
    }

    mutating func send(_ message: Message) { for shard in 0..<count { shards[shard]!.append(message) } }

    // MARK: The coordinator

    mutating func coordinate() throws {
        switch phase {
        case .between:
            number += 1
            // Some transactions can't begin, and no shard is notified.
            if !isCalm, chance(10) { return }
            isOpen = true
            isDoomed = false
            mustAbort = false
            phase = .open
            content = []
            send(.thaw(number, repeating: wasAborted ? live : nil, refused: refused))
        case .open:
            guard chance(40) else { return }
            phase = .closing
            awaited = Set(0..<count)
            send(.freeze(number, atOnce: mustAbort && chance(50)))
        case .closing:
            if !isCalm, chance(2) { mustAbort = true }
            if mustAbort || isDoomed, !awaited.isEmpty, chance(30) {
                mustAbort = true
                send(.freeze(number, atOnce: true))
            }
            guard awaited.isEmpty else { return }
            try finish()
        }
    }

    mutating func receiveAnswer() throws {
        guard !answers.isEmpty else { return }
        let answer = answers.remove(at: below(answers.count))
        guard answer.number == number else { throw Broken("frozen report of \(answer.number) in \(number)") }
        guard awaited.remove(answer.shard) != nil else { throw Broken("two frozen reports in \(number)") }
        try expect(
            answer.produced == producedIn[answer.shard],
            "shard \(answer.shard) miscounts its produced records")
    }

    mutating func finish() throws {
        isOpen = false
        phase = .between
        wasAborted = mustAbort || isDoomed
        guard !wasAborted else {
            aborts += 1
            return
        }
        commits += 1
        refused = [:]
        for (index, cuts) in content {
            try expect(records[index].committed == nil, "record \(index) is committed twice")
            try expect(cuts >= records[index].brokerCuts, "record \(index) is in a form that was refused")
            records[index].committed = number
            committed.append(index)
        }
    }

    /// A partition ends, so the open transaction with its records can't be committed any more.
    mutating func end(_ slot: UInt16) {
        live.remove(slot)
        ended.insert(slot)
        if phase != .between { mustAbort = true }
        for index in records.indices where records[index].partition == slot && records[index].committed == nil
        {
            records[index].hasEnded = true
        }
        send(.end(slot))
    }

    mutating func begin(_ slot: UInt16) {
        ended.remove(slot)
        live.insert(slot)
        send(.begin(slot))
    }

    // MARK: The run

    mutating func step() throws {
        let shard = below(count)
        switch below(100) {
        case 0..<30: try write(shard)
        case 30..<55: try deliver(shard)
        case 55..<65: try coordinate()
        case 65..<80: try receiveAnswer()
        case 80..<88 where hasTimer[shard]:
            hasTimer[shard] = false
            orders[shard].timerDue(isPermitted: true)
            try carryOut(shard)
        case 80..<88:
            orders[shard].flush(isPermitted: true)
            try carryOut(shard)
        case 88..<96: room = below(40)
        case 96 where !late.isEmpty:
            let old = late.remove(at: below(late.count))
            try take(old.message, old.shard)
        case 97: if let slot = live.min(), chance(10) { end(slot) }
        case 98: if let slot = ended.min(), shards.values.allSatisfy(\.isEmpty) { begin(slot) }
        default: break
        }
    }

    /// Completes everything that was begun.
    mutating func calmDown() throws {
        isCalm = true
        let target = commits + 3
        for _ in 0..<3_000 {
            for shard in 0..<count {
                while !shards[shard]!.isEmpty { try deliver(shard) }
                orders[shard].flush(isPermitted: true)
                try carryOut(shard)
            }
            while !answers.isEmpty { try receiveAnswer() }
            if commits >= target, phase == .open { break }
            try coordinate()
        }
        try expect(commits >= target, "no progress: \(commits) commits")
        for shard in 0..<count {
            while !shards[shard]!.isEmpty { try deliver(shard) }
            try expect(
                orders[shard].retained == 0 && orders[shard].waiting == 0, "shard \(shard) has records left")
            try expect(orders[shard].recordsHeld == 0 && bytes[shard].isEmpty, "shard \(shard) keeps bytes")
            try expect(orders[shard].ticketsWaiting == 0, "shard \(shard) has tickets")
        }
        try checkFinalState()
    }

    mutating func checkFinalState() throws {
        var last = Array(repeating: -1, count: count)
        for index in committed {
            try expect(last[records[index].shard] < index, "record \(index) is out of order")
            last[records[index].shard] = index
        }
        var transactions: [Int: Set<UInt64>] = [:]
        var neverTaken = 0
        for (index, record) in records.enumerated() {
            if record.hasEnded {
                if record.isJob, record.committed == nil, !record.wasTaken { neverTaken += 1 }
                continue
            }
            guard let number = record.committed else { throw Broken("record \(index) is lost") }
            transactions[record.group, default: []].insert(number)
        }
        try expect(gaveBack == neverTaken, "\(gaveBack) jobs given back, \(neverTaken) never produced")
        for (group, numbers) in transactions {
            try expect(numbers.count == 1, "group \(group) is in \(numbers.count) transactions")
        }
        try expect(tickets.allSatisfy(\.isReleased), "a ticket is not released")
    }

    func expect(_ isTrue: Bool, _ text: @autoclosure () -> String) throws {
        if !isTrue { throw Broken(text()) }
    }
}

/// A rule that was broken.
struct Broken: Error, CustomStringConvertible {
    var description: String

    init(_ description: String) { self.description = description }
}
