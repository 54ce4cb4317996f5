import DeliveryCore
import SluiceModel

/// Outcomes, dead letters and changes of the store on their way to Kafka.
extension ShardProcess {
    /// - Parameter facts: of a push that has ended; nil: the record is no push, or never was one of the machine's.
    func write(
        _ topic: KafkaModel.Topic, _ copy: Held, _ facts: OutcomeFacts?, isRefused: Bool = false
    ) {
        switch facts?.removal {
        // In one transaction with the outcome.
        case .now:
            if let part = stored[copy.slot]?.part {
                change(copy.slot, part, .remove(copy.changelogKey, due: nil))
            }
        case .later(let ended): changelogKeys[ended] = copy.changelogKey
        case nil, .some(.none): break
        }
        var word = FleetWord(
            slot: copy.slot, job: copy.job, token: topic == .outcomes ? copy.address : 0)
        word.isStored = facts?.isStored ?? false
        word.isOffsetDone = facts?.isOffsetDone ?? false
        write(
            Output(topic: topic, job: copy.job, word: word, isRefused: isRefused), slot: copy.slot,
            isJob: !word.isOffsetDone)
    }

    /// Writes the store's value of a key to the changelog, or its removal.
    func change(_ slot: UInt16, _ part: FleetPart, _ change: FleetChange) {
        var output = Output(
            topic: .changelog, job: -1, word: FleetWord(change: machine.changeEpoch), change: change)
        output.partition = Int(part.partition)
        write(output, slot: slot, isJob: false)
        machine.changed()
    }

    private func write(_ output: Output, slot: UInt16, isJob: Bool) {
        let kind: ProduceOrder.Kind =
            output.topic == .outcomes ? .outcome : output.topic == .deadLetters ? .deadLetter : .change
        switch order.write(kind, partition: slot, isJob: isJob, isPermitted: isPermitted) {
        case .produce(let handle):
            let answer = produce(output, cuts: 0)
            if order.answered(handle, answer) { outputs[handle] = output }
        case .wait(let handle): outputs[handle] = output
        case .drop: break
        }
        produce()
    }

    /// Calls `body` once another shard's later records follow all records written here so far.
    func afterThis(_ body: @escaping () -> Void) {
        afterwards.append((nextTicket, body))
        order.afterThis(ticket: nextTicket)
        nextTicket += 1
        produce()
    }

    func produce() {
        observeOrder()
        while let action = order.nextAction() {
            count(action)
            switch action {
            case .produce(let handle, let cuts):
                guard let output = outputs[handle] else {
                    world.broken(.sound, "the order asks for a record that it never got")
                    return
                }
                if !order.answered(handle, produce(output, cuts: cuts)) { outputs[handle] = nil }
                observeOrder()
            case .forget(let handle):
                for key in outputs.keys where Int32(bitPattern: key &- handle) < 0 { outputs[key] = nil }
            case .gaveBack(let slot, _):
                process.report(number, .gaveBack(slot: slot))
            case .frozen(let number, let produced):
                process.report(self.number, .frozen(number: number, produced: produced))
            case .armTimer: timerAt = world.now + 5_000_000
            case .neverFits(let handle):
                guard let word = outputs[handle]?.word else { break }
                process.report(
                    self.number, .neverFits(word.outcome(world), topic: "", .of(.tooLarge)))
            case .failed: world.note("a record of process # can't be produced", process.serial)
            case .refused(let number): process.report(self.number, .refused(number: number))
            case .released(let ticket):
                guard let index = afterwards.firstIndex(where: { $0.ticket == ticket }) else { break }
                afterwards.remove(at: index).body()
            case .droppedChange(let handle):
                guard let epoch = outputs[handle]?.word.epoch else { break }
                process.report(self.number, .droppedChange(epoch))
            case .resumed: break
            }
        }
    }

    private func produce(_ output: Output, cuts: UInt8) -> ProduceAnswer {
        var word = output.word
        word.cuts = cuts
        let record: KafkaModel.Record
        if let change = output.change {
            record = .init(
                payload: world.change(change), key: change.key, isTombstone: change.isTombstone)
        } else {
            record = .init(
                payload: world.output(of: output.job, by: process, isRefused: output.isRefused),
                key: world.jobs[output.job].token)
            world.note(
                "process # produces the outcome of job #, slot #", process.serial, output.job, Int(word.slot))
        }
        if case .put(_, let item, _) = output.change {
            world.note("process # produces the item of job #, shard #", process.serial, item.job, number)
        }
        if case .remove(let key, _) = output.change {
            world.note(
                "process # produces the removal of offset # under token #", process.serial, Int(key.offset),
                key.token)
        }
        let answer = process.produce(
            record, to: output.topic, output.job, word, changelogPartition: output.partition)
        switch answer {
        case .queued: return .queued
        case .queueFull: return .queueFull
        case .noTransaction: return .noTransaction
        case .failed(.tooLarge): return .tooLarge
        case .failed: return .failed
        }
    }
}
