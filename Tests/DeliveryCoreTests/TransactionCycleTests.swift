import SluiceModel
import TestSupport
import Testing

@testable import DeliveryCore

private let millisecond: UInt64 = 1_000_000

private func error(_ text: String) -> KafkaFault { KafkaFault(text) }

/// Plays the owner of a cycle: reports events, and records the steps that follow.
private struct Script {
    var cycle = TransactionCycle(
        .init(interval: 200 * millisecond, firstPause: 50 * millisecond, longestPause: 300 * millisecond))
    var now: UInt64 = 1_000 * millisecond

    mutating func open() {
        #expect(cycle.start() == .init(step: .initialize))
        #expect(succeed(.initialize) == .init(step: .begin))
        #expect(succeed(.begin) == .nothing)
        #expect(cycle.acceptsRecords)
    }

    mutating func succeed(_ step: TransactionCycle.Step) -> TransactionCycle.Turn {
        cycle.finished(TransactionCycle.StepResult(step), at: now)
    }

    mutating func fail(
        _ step: TransactionCycle.Step, _ failure: TransactionCycle.Failure
    ) -> TransactionCycle.Turn {
        cycle.finished(TransactionCycle.StepResult(step, failure), at: now)
    }

    mutating func after(_ milliseconds: UInt64) -> TransactionCycle.Turn {
        now += milliseconds * millisecond
        return cycle.wake(at: now)
    }
}

@Suite struct TransactionCycleTests {
    @Test func recordsAreCommittedAnIntervalAfterTheFirst() {
        var script = Script()
        script.open()
        #expect(script.cycle.wakeAt == nil)
        #expect(script.after(10_000) == .nothing)
        let first = script.now
        #expect(script.cycle.recordProduced(at: script.now) == 1)
        #expect(script.after(150) == .nothing)
        #expect(script.cycle.recordProduced(at: script.now) == 1)
        #expect(script.cycle.wakeAt == first + 200 * millisecond)
        #expect(script.after(49) == .nothing)
        #expect(script.after(1) == .init(step: .sendOffsets))
        #expect(!script.cycle.acceptsRecords)
        #expect(!script.cycle.isClean)
        #expect(script.succeed(.sendOffsets) == .init(step: .commit))
        let committed = TransactionCycle.Ending.committed(.init(number: 1, records: 2))
        #expect(script.succeed(.commit) == .init(step: .begin, ended: committed))
        #expect(!script.cycle.acceptsRecords)
        #expect(script.cycle.isClean)
        #expect(script.succeed(.begin) == .nothing)
        #expect(script.cycle.recordProduced(at: script.now) == 2)
    }

    @Test func offsetsWithoutRecordsAreCommitted() {
        var script = Script()
        script.open()
        script.cycle.offsetsChanged(at: script.now)
        #expect(script.after(200) == .init(step: .sendOffsets))
        _ = script.succeed(.sendOffsets)
        #expect(script.succeed(.commit).ended == .committed(.init(number: 1, records: 0)))
    }

    @Test func commitNowSkipsTheIntervalUnlessEmpty() {
        var script = Script()
        script.open()
        #expect(script.cycle.commitNow() == .nothing)
        script.cycle.recordProduced(at: script.now)
        #expect(script.cycle.commitNow() == .init(step: .sendOffsets))
        #expect(script.cycle.commitNow() == .nothing)
        #expect(script.after(1_000) == .nothing)
    }

    @Test(arguments: [TransactionCycle.Step.initialize, .begin, .sendOffsets, .commit, .abort])
    func retriableFailureRepeatsTheStepAfterGrowingPauses(step: TransactionCycle.Step) {
        var script = Script()
        let path: [TransactionCycle.Step] = [
            .initialize, .begin, .sendOffsets, step == .abort ? .abort : .commit,
        ]
        _ = script.cycle.start()
        for reached in path {
            if reached == .sendOffsets {
                script.cycle.recordProduced(at: script.now)
                if step == .abort {
                    #expect(
                        script.cycle.recordLost(error("lost"), isStepUnderWay: false) == .init(step: .abort))
                    break
                }
                #expect(script.after(200) == .init(step: .sendOffsets))
            }
            if reached == step { break }
            _ = script.succeed(reached)
        }
        for pause: UInt64 in [50, 100, 200, 300, 300] {
            #expect(script.fail(step, .retriable(error("again"))) == .nothing)
            #expect(script.cycle.wakeAt == script.now + pause * millisecond)
            #expect(!script.cycle.acceptsRecords)
            // An unexpected result changes nothing.
            #expect(script.succeed(step) == .nothing)
            #expect(script.after(pause - 1) == .nothing)
            #expect(script.after(1) == .init(step: step))
        }
        #expect(script.succeed(step) != .init(step: step))
        #expect(script.cycle.wakeAt == nil)
    }

    @Test(arguments: [TransactionCycle.Step.sendOffsets, .commit])
    func abortableFailureAbortsAndReportsItsCause(step: TransactionCycle.Step) {
        var script = Script()
        script.open()
        script.cycle.recordProduced(at: script.now)
        _ = script.after(200)
        if step == .commit { _ = script.succeed(.sendOffsets) }
        #expect(script.fail(step, .abortable(error("lost"))) == .init(step: .abort))
        #expect(!script.cycle.isClean)
        let aborted = TransactionCycle.Ending.aborted(.init(number: 1, records: 1), error("lost"))
        #expect(script.succeed(.abort) == .init(step: .begin, ended: aborted))
        _ = script.succeed(.begin)
        #expect(script.cycle.acceptsRecords)
        #expect(script.cycle.recordProduced(at: script.now) == 2)
    }

    @Test func lostRecordAbortsTheOpenTransactionOnce() {
        var script = Script()
        script.open()
        script.cycle.recordProduced(at: script.now)
        #expect(script.cycle.recordLost(error("timed out"), isStepUnderWay: false) == .init(step: .abort))
        // The other records of the transaction are reported as purged.
        #expect(script.cycle.recordLost(error("purged"), isStepUnderWay: true) == .nothing)
        #expect(
            script.succeed(.abort).ended == .aborted(.init(number: 1, records: 1), error("timed out")))
    }

    /// The owner's writers can't flush their records into a closed transaction.
    @Test func lostRecordAbortsBeforeOffsetsAreSent() {
        var script = Script()
        script.open()
        script.cycle.recordProduced(at: script.now)
        #expect(script.after(200) == .init(step: .sendOffsets))
        #expect(script.cycle.awaitsOffsets)
        #expect(script.cycle.recordLost(error("refused"), isStepUnderWay: false) == .init(step: .abort))
        #expect(
            script.succeed(.abort).ended == .aborted(.init(number: 1, records: 1), error("refused")))
    }

    @Test func lostPartitionsAbortTheTransactionUnlessCommitting() {
        let gone = error("partitions lost")
        let aborted = TransactionCycle.Ending.aborted(.init(number: 1, records: 1), gone)
        func script(_ prepare: (inout Script) -> Void) -> Script {
            var script = Script()
            script.open()
            script.cycle.recordProduced(at: script.now)
            prepare(&script)
            return script
        }
        var open = script { _ in }
        #expect(open.cycle.partitionsLost(gone, isStepUnderWay: false) == .init(step: .abort))
        #expect(open.succeed(.abort) == .init(step: .begin, ended: aborted))

        // Closed, while its reports are still awaited.
        var closed = script { #expect($0.after(200) == .init(step: .sendOffsets)) }
        #expect(closed.cycle.partitionsLost(gone, isStepUnderWay: false) == .init(step: .abort))
        #expect(closed.succeed(.sendOffsets) == .nothing)
        #expect(closed.succeed(.abort) == .init(step: .begin, ended: aborted))

        // Between two attempts to send the offsets.
        var waiting = script {
            _ = $0.after(200)
            _ = $0.fail(.sendOffsets, .retriable(error("no coordinator")))
        }
        #expect(waiting.cycle.partitionsLost(gone, isStepUnderWay: false) == .init(step: .abort))
        #expect(waiting.after(1_000) == .nothing)
        #expect(waiting.succeed(.abort) == .init(step: .begin, ended: aborted))

        // The step under way may end in any way.
        let failures: [TransactionCycle.Failure?] = [nil, .retriable(error("r")), .abortable(error("a"))]
        for failure in failures {
            var sending = script { _ = $0.after(200) }
            #expect(sending.cycle.partitionsLost(gone, isStepUnderWay: true) == .nothing)
            let turn = sending.cycle.finished(
                TransactionCycle.StepResult(.sendOffsets, failure), at: sending.now)
            #expect(turn == .init(step: .abort))
            #expect(sending.succeed(.abort) == .init(step: .begin, ended: aborted))
            // The next transaction is unaffected.
            _ = sending.succeed(.begin)
            sending.cycle.recordProduced(at: sending.now)
            _ = sending.after(200)
            #expect(sending.succeed(.sendOffsets) == .init(step: .commit))
        }

        var committing = script {
            _ = $0.after(200)
            _ = $0.succeed(.sendOffsets)
        }
        #expect(committing.cycle.partitionsLost(gone, isStepUnderWay: true) == .nothing)
        #expect(committing.succeed(.commit).ended == .committed(.init(number: 1, records: 1)))
    }

    @Test func consecutiveAbortsAreSpacedUntilACommit() {
        var script = Script()
        script.open()
        func abortOne(_ script: inout Script) -> TransactionCycle.Turn {
            script.cycle.recordProduced(at: script.now)
            _ = script.after(200)
            _ = script.fail(.sendOffsets, .abortable(error("no")))
            return script.succeed(.abort)
        }
        #expect(abortOne(&script).step == .begin)
        for pause: UInt64 in [50, 100, 200, 300, 300] {
            _ = script.succeed(.begin)
            let turn = abortOne(&script)
            #expect(turn.step == nil)
            #expect(turn.ended != nil)
            #expect(script.after(pause - 1) == .nothing)
            #expect(script.after(1) == .init(step: .begin))
        }
        _ = script.succeed(.begin)
        script.cycle.recordProduced(at: script.now)
        _ = script.after(200)
        _ = script.succeed(.sendOffsets)
        _ = script.succeed(.commit)
        _ = script.succeed(.begin)
        #expect(abortOne(&script).step == .begin)
    }

    @Test(arguments: [TransactionCycle.Step.initialize, .begin, .sendOffsets, .commit, .abort])
    func fatalFailureEndsTheCycleOnce(step: TransactionCycle.Step) {
        var script = Script()
        _ = script.cycle.start()
        if step != .initialize { _ = script.succeed(.initialize) }
        if step != .initialize, step != .begin {
            _ = script.succeed(.begin)
            script.cycle.recordProduced(at: script.now)
            _ =
                step == .abort
                ? script.cycle.recordLost(error("lost"), isStepUnderWay: false) : script.after(200)
            if step == .commit { _ = script.succeed(.sendOffsets) }
        }
        #expect(script.fail(step, .fatal(error("fenced"))) == .init(failure: error("fenced")))
        #expect(script.cycle.state == .failed)
        #expect(!script.cycle.acceptsRecords)
        #expect(script.cycle.clientFailed(error("fenced")) == .nothing)
        #expect(script.after(10_000) == .nothing)
        #expect(script.cycle.commitNow() == .nothing)
    }

    @Test func fatalErrorsOfStepsAndClientEndTheCycle() {
        var script = Script()
        script.open()
        script.cycle.recordProduced(at: script.now)
        _ = script.after(200)
        #expect(
            script.fail(.sendOffsets, .fatal(error("state"))) == .init(failure: error("state")))

        var other = Script()
        other.open()
        other.cycle.recordProduced(at: other.now)
        #expect(other.cycle.clientFailed(error("fenced")) == .init(failure: error("fenced")))
        #expect(!other.cycle.isClean)
    }

    @Test func stopCommitsTheOpenTransactionAndBeginsNone() {
        var script = Script()
        script.open()
        script.cycle.recordProduced(at: script.now)
        #expect(script.cycle.stop() == .init(step: .sendOffsets))
        _ = script.succeed(.sendOffsets)
        #expect(script.succeed(.commit) == .init(ended: .committed(.init(number: 1, records: 1))))
        #expect(script.cycle.state == .stopped)

        var empty = Script()
        empty.open()
        #expect(empty.cycle.stop() == .nothing)
        #expect(empty.cycle.state == .stopped)

        var starting = Script()
        _ = starting.cycle.start()
        #expect(starting.cycle.stop() == .nothing)
        #expect(starting.succeed(.initialize) == .nothing)
        #expect(starting.cycle.state == .stopped)
    }

    @Test(arguments: [1, 2, 3, 4, 5, 6, 7, 8] as [UInt64])
    func randomEventsEndEachTransactionOnceInOrder(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        var cycle = TransactionCycle(.init())
        var now: UInt64 = 0
        var underWay: TransactionCycle.Step?
        var records: [UInt64: Int] = [:]
        var ended: UInt64 = 0

        func take(_ turn: TransactionCycle.Turn) {
            if let step = turn.step {
                #expect(underWay == nil, "\(step) over \(underWay!), seed \(seed)")
                underWay = step
            }
            guard let ending = turn.ended else { return }
            let transaction =
                switch ending {
                case .committed(let transaction), .aborted(let transaction, _): transaction
                }
            #expect(transaction.number == ended + 1, "seed \(seed)")
            #expect(transaction.records == records[transaction.number, default: 0], "seed \(seed)")
            ended = transaction.number
        }

        take(cycle.start())
        for _ in 0..<5_000 {
            now += UInt64.random(in: 0...30 * millisecond, using: &random)
            #expect(!(cycle.acceptsRecords && underWay != nil), "seed \(seed)")
            switch Int.random(in: 0..<10, using: &random) {
            case 0..<4 where cycle.acceptsRecords:
                records[cycle.recordProduced(at: now), default: 0] += 1
            case 4 where cycle.acceptsRecords: cycle.offsetsChanged(at: now)
            case 5 where Int.random(in: 0..<20, using: &random) == 0:
                take(cycle.recordLost(error("lost"), isStepUnderWay: underWay != nil))
            case 6 where Int.random(in: 0..<20, using: &random) == 0: take(cycle.commitNow())
            case 7...:
                guard let step = underWay else { break }
                underWay = nil
                let failure: TransactionCycle.Failure? =
                    switch Int.random(in: 0..<10, using: &random) {
                    case 0: .retriable(error("again"))
                    case 1 where step == .sendOffsets || step == .commit: .abortable(error("lost"))
                    default: nil
                    }
                take(cycle.finished(TransactionCycle.StepResult(step, failure), at: now))
            default: break
            }
            take(cycle.wake(at: now))
        }
        #expect(ended > 50, "seed \(seed)")
        #expect(cycle.state != .failed, "seed \(seed)")
    }
}
