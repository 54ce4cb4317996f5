import SluiceModel
import Testing

@testable import DeliveryCore

/// Rounds in which records that wait leave the consumer's memory.
@Suite struct ResponseRoundsTests {
    private static let interval = ResponseRounds.interval

    @Test func twoRoundsFollowTheLastRecord() {
        var rounds = ResponseRounds(shards: 1)
        #expect(begins(&rounds, at: Self.interval) == false)
        rounds.polled(100)
        #expect(begins(&rounds, at: Self.interval) == false)
        #expect(begins(&rounds, at: 2 * Self.interval - 1) == false)
        #expect(begins(&rounds, at: 2 * Self.interval))
        // The record was polled after no round, so the shards copy it in the next one.
        rounds.shardEnded()
        #expect(begins(&rounds, at: 3 * Self.interval - 1) == false)
        #expect(begins(&rounds, at: 3 * Self.interval))
        rounds.shardEnded()
        #expect(begins(&rounds, at: 100 * Self.interval) == false)
    }

    @Test func manyBytesBeginARoundAtOnce() {
        var rounds = ResponseRounds(shards: 2)
        rounds.polled(ResponseRounds.bytesPerRound - 1)
        #expect(begins(&rounds, at: 1) == false)
        rounds.polled(1)
        #expect(begins(&rounds, at: 1))
        #expect(!rounds.isBehind)
    }

    @Test func pollingStopsUntilAllShardsHaveEndedTheRound() {
        var rounds = ResponseRounds(shards: 2)
        rounds.polled(ResponseRounds.bytesPerRound)
        #expect(begins(&rounds, at: 1))
        rounds.polled(ResponseRounds.bytesPerRound)
        #expect(begins(&rounds, at: 1) == false)
        rounds.shardEnded()
        #expect(rounds.isBehind)
        rounds.shardEnded()
        #expect(!rounds.isBehind)
        #expect(begins(&rounds, at: 1))
    }

    @Test func workerPollsNothingWhileShardsAreBehind() {
        let script = WorkerScript()
        script.assign([0])
        script.apply { machine, now in
            let size = ResponseRounds.bytesPerRound
            _ = machine.accept(
                partition: 0, offset: 0, bytes: size, milliseconds: 1, shard: 0, handle: 1, at: now)
            machine.polled(1, bytes: size)
            _ = machine.accept(
                partition: 0, offset: 1, bytes: size, milliseconds: 1, shard: 0, handle: 2, at: now)
            machine.polled(1, bytes: size)
        }
        #expect(script.actions.filter { $0 == .requestAll(.leaveResponses) }.count == 1)
        #expect(room(script) == 0)
        script.reportAll { _ in .leftResponses([]) }
        #expect(script.actions.last == .poll)
        #expect(room(script) > 0)
    }

    private func begins(_ rounds: inout ResponseRounds, at now: UInt64) -> Bool { rounds.begins(at: now) }

    private func room(_ script: WorkerScript) -> Int {
        var room = 0
        script.apply { room = $0.room(atMost: 10, bytesHeld: 0, storeQueueBytes: 0, at: $1) }
        return room
    }

    @Test func copiedRecordTakesLessOfTheLimit() {
        let script = WorkerScript()
        script.assign([0])
        var slot: UInt16?
        script.apply { machine, now in
            for offset in Int64(0)..<2 {
                let fate = machine.accept(
                    partition: 0, offset: offset, bytes: 500_000, milliseconds: 1, shard: 0, handle: 1,
                    at: now)
                if case .hand(let number, _) = fate { slot = number }
            }
        }
        let place = RecordPlace(partitionSlot: slot ?? 0, offset: 0)
        script.apply { $0.shard(0, .leftResponses([ShrunkRecord(place: place, bytes: 499_000)]), at: $1) }
        #expect(script.read { $0.gate.load } == .init(jobs: 2, bytes: 501_000))
        // Another report of a record that has ended changes nothing.
        for offset in Int64(0)..<2 {
            script.apply {
                $0.delivered(
                    OutcomePlace(RecordPlace(partitionSlot: slot ?? 0, offset: offset), isOffsetDone: false),
                    isStored: false, device: 0, at: $1)
            }
        }
        script.apply { $0.shard(0, .leftResponses([ShrunkRecord(place: place, bytes: 499_000)]), at: $1) }
        #expect(script.read { $0.gate.load } == .init())
    }
}
