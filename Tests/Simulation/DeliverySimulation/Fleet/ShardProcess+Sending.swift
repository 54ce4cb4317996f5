import DeliveryCore
import SluiceModel

/// Pushes to APNs, and the answers.
extension ShardProcess {
    /// Suspends a pool that has no connection while others have, or resumes it.
    func setPoolAvailable(_ isAvailable: Bool) {
        guard !machine.hasEnded else { return }
        if isAvailable { machine.resume(pool: 0, at: now) } else { machine.suspend(pool: 0, at: now) }
        act()
    }

    func send() {
        while inFlight.count < world.scenario.streams, !waiting.isEmpty, process.pushes.claim() {
            let slot = waiting.removeFirst()
            held[Int(slot)].isQueued = false
            guard machine.beginAttempt(slot, at: now) else {
                process.pushes.giveBack()
                act(about: slot)
                continue
            }
            observeItems(slot)
            let copy = held[Int(slot)]
            checkPauses(copy.job)
            world.auditor.pushed(copy.job, to: copy.address, by: process, slot: copy.slot, world)
            world.auditor.begins(copy.job, by: process, world)
            world.pushed(copy.job)
            world.note("process # sends job #, slot #", process.serial, copy.job, Int(copy.slot))
            world.counts.pushes += 1
            world.counts.events += 1
            let length = world.chance(20) ? world.below(5_000_000_000) : world.below(60_000_000)
            inFlight.append(Request(slot: slot, answersAt: world.now + UInt64(length)))
        }
    }

    func answer() {
        var index = 0
        while index < inFlight.count {
            guard inFlight[index].answersAt <= world.now else {
                index += 1
                continue
            }
            let slot = inFlight[index].slot
            inFlight.swapAt(index, inFlight.count - 1)
            inFlight.removeLast()
            world.counts.events += 1
            let job = held[Int(slot)].job
            answer(slot)
            act(about: slot)
            process.commitAudit.returned(job)
        }
    }

    private func answer(_ slot: UInt32) {
        let topic = world.jobs[held[Int(slot)].job].facts.topic
        if let refusal = world.refusal(of: topic) { return machine.answered(slot, refusal, at: now) }
        guard !world.isHealthy, world.chance(world.scenario.badAnswerPerMille) else {
            world.shown(held[Int(slot)].job, to: held[Int(slot)].address)
            return machine.accepted(slot, at: now)
        }
        switch world.below(4) {
        case 0: machine.failed(slot, processed: world.chance(500), at: now)
        case 1: machine.answered(slot, AttemptAnswer(class: .later, reason: .serviceUnavailable), at: now)
        case 2: machine.answered(slot, AttemptAnswer(class: .later, reason: .tooManyRequests), at: now)
        default: machine.answered(slot, AttemptAnswer(class: .job, reason: .payloadTooLarge), at: now)
        }
    }
}
