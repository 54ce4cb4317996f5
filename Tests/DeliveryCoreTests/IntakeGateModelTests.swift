import DeliveryCore
import SluiceModel
import StreamScheduling
import Testing

/// Compares the gate with lists of jobs that are counted at every step.
@Suite struct IntakeGateModelTests {
    @Test(arguments: UInt64(1)...40)
    func randomOperationsMatchTheModel(seed: UInt64) {
        let model = IntakeModel(seed: seed)
        for step in 0..<2000 {
            model.step()
            if let problem = model.problem {
                Issue.record("seed \(seed), step \(step): \(problem)")
                return
            }
        }
        model.finishAll()
        if let problem = model.problem { Issue.record("seed \(seed), at the end: \(problem)") }
    }

    /// Proves that the seeds reach the states to check.
    @Test func seedsReachEveryKindOfPause() {
        var limitPauses = 0
        var sharePauses = 0
        for seed in UInt64(1)...10 {
            let model = IntakeModel(seed: seed)
            for _ in 0..<2000 { model.step() }
            limitPauses += model.gate.limitPauses
            sharePauses += model.gate.sharePauses
        }
        #expect(limitPauses > 10)
        #expect(sharePauses > 10)
    }
}

private final class IntakeModel {
    struct Job {
        var offset: Int64
        var bytes: Int
        var turn: Int
    }

    struct Partition {
        var jobs: [Job] = []
        var next: Int64 = 0
        /// State after the gate's actions.
        var isPaused = false
        var isEnding = false
        var isWindowFull = false
        var tookInTurn = false
        /// Percentage of chances to finish that the partition uses. Some partitions are stuck at times.
        var speed = 50
    }

    private(set) var gate: IntakeGate
    private(set) var problem: String?
    private var random: SeededGenerator
    private var partitions: [Int: Partition] = [:]
    private var orphans = 0
    private var now: UInt64 = 0
    private var turns = 0
    private var nextTurn: UInt64
    private var stalledSince: UInt64?
    private let limits: IntakeGate.Limits
    private let batch: Int
    private static let largestJob = 100

    init(seed: UInt64) {
        random = SeededGenerator(seed: seed)
        let share = [0.25, 0.5, 0.5, 0.8, 1].randomElement(using: &random)!
        limits = .init(
            jobs: Int.random(in: 1...400, using: &random),
            bytes: Int.random(in: 100...40_000, using: &random), partitionShare: share, longHold: 2000,
            stall: 500
        )
        batch = Int.random(in: 1...64, using: &random)
        gate = IntakeGate(limits: limits, now: 0)
        nextTurn = limits.longHold
    }

    func step() {
        now += UInt64.random(in: 0...60, using: &random)
        switch Int.random(in: 0..<100, using: &random) {
        case 0: add()
        case 1: removeOrEnd()
        case 2:
            if let index = anyone() {
                partitions[index]!.speed = [0, 0, 3, 50, 100].randomElement(using: &random)!
            }
        case 3: if let index = anyone() { toggleWindow(index) }
        case 4: if orphans > 0 { finishOrphans(Int.random(in: 1...orphans, using: &random)) }
        case 5..<35: poll()
        case 35..<75: finishSome()
        default: advance()
        }
    }

    /// All jobs finish, and every paused partition must resume.
    func finishAll() {
        for index in partitions.keys.sorted() {
            for job in partitions[index]!.jobs { gate.finish(index, offset: job.offset, bytes: job.bytes) }
            partitions[index]!.jobs = []
        }
        finishOrphans(orphans)
        settle()
        for (index, partition) in partitions where !partition.isEnding && partition.isPaused {
            expect(partition.isWindowFull, "\(index) stays paused without any job")
        }
        expect(gate.total == .init(), "jobs are left: \(gate.total)")
        expect(gate.room(atMost: batch, at: now) > 0, "no room without any job")
    }

    // MARK: Events

    private func anyone() -> Int? { partitions.keys.sorted().randomElement(using: &random) }

    private func add() {
        guard let index = (0..<6).first(where: { partitions[$0] == nil }) else { return }
        partitions[index] = Partition()
        gate.add(index)
        follow()
    }

    private func removeOrEnd() {
        guard let index = anyone(), let partition = partitions[index] else { return }
        if !partition.isEnding, Bool.random(using: &random) {
            partitions[index]!.isEnding = true
            gate.revoke(index)
            let given = Int.random(in: 0...partition.jobs.count, using: &random)
            gate.returnJobs(index, jobs: given)
            partitions[index]!.jobs.removeLast(given)
        } else {
            orphans += partition.jobs.count
            partitions[index] = nil
            let wasPaused = gate.remove(index)
            expect(wasPaused == partition.isPaused, "\(index) was paused: \(partition.isPaused)")
        }
        follow()
    }

    private func finishOrphans(_ count: Int) {
        orphans -= count
        gate.finishOrphans(count)
        settle()
    }

    private func toggleWindow(_ index: Int) {
        partitions[index]!.isWindowFull.toggle()
        let isFull = partitions[index]!.isWindowFull
        if partitions[index]!.isEnding { partitions[index]!.isWindowFull = false }
        gate.window(index, isFull: isFull, hasRoom: !isFull)
        follow()
    }

    private func poll() {
        let total = total
        let isAtLimit = total.jobs >= limits.jobs || total.bytes >= limits.bytes
        let room = gate.room(atMost: batch, at: now)
        if gate.isPausedForLimit {
            expect(room == 1, "room \(room) while paused")
        } else if isAtLimit {
            expect(room == 0, "room \(room) at the limit")
            if stalledSince == nil { stalledSince = now }
        } else {
            expect(
                room == min(batch, limits.jobs - total.jobs), "room \(room) of \(limits.jobs - total.jobs)")
        }
        let open = partitions.keys.sorted().filter { !partitions[$0]!.isPaused && !partitions[$0]!.isEnding }
        guard !open.isEmpty else { return }
        for _ in 0..<room {
            // A single partition has most of the records, and later another.
            let index = open[now / 10_000 % 3 == 0 ? 0 : Int.random(in: 0..<open.count, using: &random)]
            let bytes = Int.random(in: 1...Self.largestJob, using: &random)
            let offset = partitions[index]!.next
            partitions[index]!.tookInTurn = true
            partitions[index]!.next += Int64.random(in: 1...3, using: &random)
            partitions[index]!.jobs.append(Job(offset: offset, bytes: bytes, turn: turns))
            gate.admit(index, offset: offset, bytes: bytes)
        }
        follow()
    }

    private func finishSome() {
        guard let index = anyone(), let partition = partitions[index], !partition.jobs.isEmpty else { return }
        for _ in 0..<Int.random(in: 1...40, using: &random) {
            guard let place = partitions[index]!.jobs.indices.randomElement(using: &random) else { break }
            guard Int.random(in: 0..<100, using: &random) < partition.speed else { continue }
            let job = partitions[index]!.jobs.remove(at: place)
            gate.finish(index, offset: job.offset, bytes: job.bytes)
        }
        settle()
    }

    private func settle() {
        gate.settle(at: now)
        follow()
        let total = total
        if total.jobs < limits.jobs, total.bytes < limits.bytes { stalledSince = nil }
        if gate.isPausedForLimit {
            expect(!hasRoomForAll, "all stay paused although there is room")
        } else {
            expect(gate.isStalled == (stalledSince != nil), "stalled: \(gate.isStalled)")
        }
    }

    private func advance() {
        let wasPaused = gate.isPausedForLimit
        let before = reasons
        gate.advance(to: now)
        if now >= nextTurn {
            turns += 1
            nextTurn = now + limits.longHold
            checkTurn()
        }
        let due = !wasPaused && stalledSince.map { now >= $0 + limits.stall } == true && isAtLimit
        for (index, now) in reasons where now.contains(.share) && before[index]?.contains(.share) == false {
            let isEntitled = isOver(old(index)) || (due && isOver(load(index)))
            expect(isEntitled && live > 1, "\(index) is paused alone without need")
            if stalledSince != nil { stalledSince = self.now }
        }
        if gate.isPausedForLimit, !wasPaused {
            expect(due, "paused for the limit without a stall")
            expect(
                live < 2 || !partitions.keys.contains { before[$0] == [] && isOver(load($0)) && isOpen($0) },
                "all are paused before the one that holds so much")
            stalledSince = nil
        } else if due {
            expect(reasons != before, "a stall paused nothing")
            stalledSince = now
        }
        follow()
        settle()
    }

    // MARK: What must hold

    private func expect(_ holds: Bool, _ what: @autoclosure () -> String) {
        if !holds, problem == nil { problem = what() }
    }

    private var reasons: [Int: IntakeGate.Reason] {
        partitions.keys.reduce(into: [:]) { $0[$1] = gate.reasons($1) }
    }

    private var live: Int { partitions.values.count { !$0.isEnding } }

    private func isOpen(_ index: Int) -> Bool { partitions[index]?.isEnding == false }

    /// For returned and orphaned jobs, the bytes are the gate's own estimates.
    private func load(_ index: Int) -> IntakeGate.Load {
        let partition = partitions[index]!
        return .init(
            jobs: partition.jobs.count,
            bytes: partition.isEnding ? gate.load(index).bytes : partition.jobs.reduce(0) { $0 + $1.bytes })
    }

    private func old(_ index: Int) -> IntakeGate.Load {
        let jobs = partitions[index]!.jobs.filter { $0.turn <= turns - 2 }
        return .init(jobs: jobs.count, bytes: jobs.reduce(0) { $0 + $1.bytes })
    }

    private var total: IntakeGate.Load {
        partitions.keys.reduce(into: .init(jobs: orphans, bytes: gate.orphans.bytes)) { sum, index in
            sum.jobs += load(index).jobs
            sum.bytes += load(index).bytes
        }
    }

    private var isAtLimit: Bool { total.jobs >= limits.jobs || total.bytes >= limits.bytes }

    private func isOver(_ load: IntakeGate.Load) -> Bool {
        guard limits.partitionShare < 1 else { return false }
        return load.jobs >= max(1, Int(limits.partitionShare * Double(limits.jobs)))
            || load.bytes >= max(1, Int(limits.partitionShare * Double(limits.bytes)))
    }

    private var hasRoomForAll: Bool {
        let held = partitions.keys.filter { gate.reasons($0).contains(.share) }.map { load($0) }
        func isEnough(_ part: (IntakeGate.Load) -> Int, _ limit: Int) -> Bool {
            let heldPart = held.reduce(0) { $0 + part($1) }
            return part(total) - heldPart <= (limit - heldPart) / 2
                && limit - part(total) >= max(1, limit / 16)
        }
        return isEnough(\.jobs, limits.jobs) && isEnough(\.bytes, limits.bytes)
    }

    /// After a turn, each partition whose old jobs exceed the share is paused, if others have work.
    private func checkTurn() {
        for index in partitions.keys.sorted() where isOpen(index) && isOver(old(index)) && live > 1 {
            let others = partitions.filter { $0.key != index && !$0.value.isEnding }.values
            guard others.contains(where: { !$0.jobs.isEmpty || $0.tookInTurn }) else { continue }
            expect(
                gate.reasons(index).contains(.share), "\(index) holds its share for long, and is not paused")
        }
        for index in partitions.keys { partitions[index]!.tookInTurn = false }
    }

    /// Carries out the gate's actions, and checks the invariants.
    private func follow() {
        while let action = gate.nextAction() {
            switch action {
            case .pause(let index, let reason):
                expect(isOpen(index), "a pause of \(index), which is not there")
                expect(partitions[index]?.isPaused == false, "a second pause of \(index)")
                expect(!reason.isEmpty, "a pause of \(index) without a reason")
                partitions[index]?.isPaused = true
            case .resume(let index):
                expect(isOpen(index), "a resume of \(index), which is not there")
                expect(partitions[index]?.isPaused == true, "a resume of \(index), which is not paused")
                partitions[index]?.isPaused = false
            }
        }
        for index in partitions.keys.sorted() {
            let partition = partitions[index]!
            let reasons = gate.reasons(index)
            expect(
                reasons.isEmpty != partition.isPaused, "\(index): \(reasons) and paused \(partition.isPaused)"
            )
            expect(gate.load(index) == load(index), "\(index): \(gate.load(index)), not \(load(index))")
            guard !partition.isEnding else { continue }
            expect(reasons.contains(.window) == partition.isWindowFull, "\(index): window")
            expect(reasons.contains(.limit) == gate.isPausedForLimit, "\(index): limit")
            guard reasons.contains(.share) else { continue }
            let share = limits.partitionShare
            let isAboveHalf =
                load(index).jobs > max(1, Int(share * Double(limits.jobs))) / 2
                || load(index).bytes > max(1, Int(share * Double(limits.bytes))) / 2
            expect(isAboveHalf && live > 1, "\(index) stays paused alone with \(load(index))")
        }
        expect(gate.orphans.jobs == orphans, "orphans: \(gate.orphans.jobs), not \(orphans)")
        expect(gate.total == total, "total: \(gate.total), not \(total)")
        // While all are paused, only records of a partition that isn't paused arrive.
        expect(total.jobs <= limits.jobs, "\(total.jobs) jobs at a limit of \(limits.jobs)")
        expect(
            total.bytes < limits.bytes + batch * Self.largestJob,
            "\(total.bytes) bytes at a limit of \(limits.bytes)")
    }
}
