import DeliveryCore
import SluiceModel
import StreamScheduling
import Testing

/// The rules as documented, evaluated over the entire history.
private struct NaiveRemovalOrder {
    struct Step {
        var device: UInt64
        var offset: Int64
        var isRemoval: Bool
        var acknowledged: Int

        var item: EndedItem {
            .init(device: device, place: RecordPlace(partitionSlot: UInt16(offset % 3), offset: offset))
        }
        /// Moment of the request or completion (`asked`), and of the removal or completion (`done`); nil: not yet.
        var asked: Int?
        var done: Int?
    }

    var steps: [Step] = []
    var commits: [(issued: Int, isUnderWay: Bool, isAccepted: Bool)] = []
    var moment = 0

    func before(_ index: Int) -> [Step] { steps[..<index].filter { $0.device == steps[index].device } }

    func isBusy(_ device: UInt64) -> Bool { steps.contains { $0.device == device && $0.done == nil } }

    /// Moment after which a commit must be issued for the removal. Nil: the removal isn't next, or was requested.
    func turn(_ index: Int) -> Int? {
        guard steps[index].isRemoval, steps[index].asked == nil else { return nil }
        var turn = steps[index].acknowledged
        for step in before(index) where !step.isRemoval {
            guard let done = step.done else { return nil }
            turn = max(turn, done)
        }
        return turn
    }

    func isDue(_ index: Int) -> Bool {
        guard steps[index].isRemoval else {
            return steps[index].done == nil && before(index).allSatisfy { $0.done != nil }
        }
        guard let turn = turn(index) else { return false }
        return commits.contains { $0.isAccepted && $0.issued > turn }
    }

    var needsCommit: Bool {
        steps.indices.contains { index in
            turn(index).map { turn in !commits.contains { $0.isUnderWay && $0.issued > turn } } ?? false
        }
    }

    /// Forgets the steps of a partition. Removals that are next because of it wait for a commit issued after it.
    mutating func forget(_ slot: UInt16) {
        let waited = steps.indices.map { index in before(index).contains { !$0.isRemoval && $0.done == nil } }
        let isGone = { (step: Step) in step.done == nil && step.item.place.partitionSlot == slot }
        for index in steps.indices where waited[index] {
            guard !before(index).contains(where: { !$0.isRemoval && $0.done == nil && !isGone($0) }) else {
                continue
            }
            steps[index].acknowledged = moment
        }
        steps.removeAll(where: isGone)
    }

    /// Performs everything that is due, each device's earliest step first.
    mutating func act() -> [UInt64: [DeferredDeletes.Action]] {
        var actions: [UInt64: [DeferredDeletes.Action]] = [:]
        while let index = steps.indices.first(where: isDue) {
            let step = steps[index]
            steps[index].asked = moment
            if step.isRemoval {
                actions[step.device, default: []].append(.remove(step.item))
            } else {
                steps[index].done = moment
                actions[step.device, default: []].append(.complete(step.item.place))
            }
        }
        return actions
    }
}

struct DeferredDeletesPropertyTests {
    /// Acknowledgements, lost, late and successful commits, and removals happen at random. Each action occurs at the
    /// very moment at which the rules allow it, and in the end all is done.
    @Test(arguments: Array(UInt64(1)...24)) func randomHistoriesFollowTheRemovalRules(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        var order = DeferredDeletes()
        var naive = NaiveRemovalOrder()
        var serials: [UInt64] = []
        var devices: [Int64: UInt64] = [:]
        var asked: [(device: UInt64, offset: Int64)] = []
        let deviceCount = UInt64.random(in: 1...6, using: &random)
        let storedPercent = Int.random(in: 5...70, using: &random)
        var offset: Int64 = 0
        var differs = false

        func issue() {
            serials.append(order.commitIssued())
            naive.commits.append((naive.moment, true, false))
        }
        func settle(_ index: Int, isAccepted: Bool) {
            naive.commits[index].isUnderWay = false
            naive.commits[index].isAccepted = isAccepted
            if isAccepted { order.commitTaken(serials[index]) } else { order.commitFailed(serials[index]) }
        }
        func write(_ index: Int) {
            let (device, offset) = asked.remove(at: index)
            let place = naive.steps.firstIndex { $0.offset == offset && $0.isRemoval }!
            naive.steps[place].done = naive.moment
            if !order.removed(naive.steps[place].item) { differs = true }
        }
        /// Compares all actions that follow from the last step, device by device.
        func compare() {
            var actions: [UInt64: [DeferredDeletes.Action]] = [:]
            while let action = order.nextAction() {
                switch action {
                case .remove(let item):
                    actions[item.device, default: []].append(action)
                    asked.append((item.device, item.place.offset))
                case .complete(let place): actions[devices[place.offset]!, default: []].append(action)
                }
            }
            if actions != naive.act() { differs = true }
            let removals = naive.steps.filter { $0.isRemoval && $0.done == nil }.count
            let completions = naive.steps.filter { !$0.isRemoval && $0.done == nil }.count
            if order.needsCommit != naive.needsCommit || order.removals != removals
                || order.completions != completions || order.isEmpty != (removals + completions == 0)
            {
                differs = true
            }
            naive.moment += 1
        }

        for step in 0..<250 {
            let underWay = naive.commits.indices.filter { naive.commits[$0].isUnderWay }
            switch Int.random(in: 0..<100, using: &random) {
            case ..<45:
                let device = UInt64.random(in: 0..<deviceCount, using: &random)
                let isStored = Int.random(in: 0..<100, using: &random) < storedPercent
                let completes = !isStored || Int.random(in: 0..<8, using: &random) == 0
                devices[offset] = device
                let waits = naive.isBusy(device)
                let isComplete = order.acknowledged(
                    EndedItem(
                        device: device, place: RecordPlace(partitionSlot: UInt16(offset % 3), offset: offset)),
                    isStored: isStored, completes: completes)
                if isComplete != (completes && !waits) { differs = true }
                if completes, waits {
                    naive.steps.append(
                        .init(
                            device: device, offset: offset, isRemoval: false, acknowledged: naive.moment))
                }
                if isStored {
                    naive.steps.append(
                        .init(device: device, offset: offset, isRemoval: true, acknowledged: naive.moment))
                }
                offset += 1
            case ..<60: issue()
            case 60:
                let slot = UInt16.random(in: 0..<3, using: &random)
                let isGone = { (step: NaiveRemovalOrder.Step) in
                    step.done == nil && step.item.place.partitionSlot == slot
                }
                let waiting = naive.steps.count { isGone($0) && !$0.isRemoval }
                naive.forget(slot)
                asked.removeAll { $0.offset % 3 == Int64(slot) }
                if order.removeAll(slot) != waiting || order.has(slot) { differs = true }
            case ..<78:
                guard let index = underWay.randomElement(using: &random) else { continue }
                settle(index, isAccepted: Int.random(in: 0..<4, using: &random) > 0)
            default:
                // Only each device's first removal, and devices in any order.
                let firsts = asked.indices.filter { index in
                    !asked[..<index].contains { $0.device == asked[index].device }
                }
                guard let index = firsts.randomElement(using: &random) else { continue }
                write(index)
            }
            compare()
            guard !differs else {
                Issue.record("seed \(seed), step \(step): the order differs from the rules")
                return
            }
        }

        for index in naive.commits.indices where naive.commits[index].isUnderWay {
            settle(index, isAccepted: false)
            compare()
        }
        var rounds = 0
        while !order.isEmpty, rounds < 1_000, !differs {
            rounds += 1
            if order.needsCommit {
                issue()
                compare()
                settle(serials.count - 1, isAccepted: true)
                compare()
            }
            while !asked.isEmpty {
                write(0)
                compare()
            }
        }
        let isDone = order.isEmpty && naive.steps.allSatisfy { $0.done != nil }
        #expect(isDone && !differs, "seed \(seed): \(rounds) rounds")
    }
}
