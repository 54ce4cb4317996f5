import Testing

@testable import SimulatedKafka

/// The consumer group of the simulated Kafka.
struct KafkaModelGroupTests {
    @Test func handOverTakesTwoRounds() {
        let kafka = calm()
        let first = kafka.member()
        var events = kafka.settle([first], for: 5 * second)
        #expect(events[first]?.map(\.name) == ["assigned [0, 1, 2, 3]"])
        let generation = kafka.group.generation
        let second = kafka.member()
        events = kafka.settle([first, second], for: 20_000_000_000)
        #expect(kafka.group.generation == generation + 2)
        #expect(events[first]?.first?.name.hasPrefix("revoked") == true)
        #expect(events[second]?.first?.name == "assigned []")
        #expect(kafka.owned(first).count == 2)
        #expect(kafka.owned(second).count == 2)
        #expect(kafka.owned(first).intersection(kafka.owned(second)).isEmpty)
    }

    @Test func unansweredRevocationBlocksTheGroup() {
        let kafka = calm()
        let first = kafka.member()
        kafka.settle([first], for: 5 * second)
        for partition in 0..<4 {
            kafka.append(Kafka.Record(payload: partition, key: 0), to: .jobs, partition)
        }
        let other = kafka.member()
        while !kafka.hasEvents(first) { kafka.pass(millisecond) }
        kafka.settle([other], for: 60 * second)
        guard case .revoked(let revoked)? = kafka.nextEvent(first) else {
            Issue.record("nothing is revoked")
            return
        }
        #expect(kafka.owned(other).isEmpty)
        #expect(kafka.owned(first).count == 4)
        // Nothing is read meanwhile.
        #expect(kafka.poll(first, atMost: 10) { _ in } == 0)
        // A commit is still accepted.
        #expect(kafka.commitResult(first, [.init(partition: 0, offset: 1)]) == .some(nil))
        kafka.unassign(first)
        kafka.settle([first, other], for: 20 * second)
        #expect(kafka.owned(other) == revoked)
    }

    @Test func memberLateInRevocationIsRemoved() {
        let kafka = calm { $0.rebalanceTimeout = 30 * second }
        let first = kafka.member()
        kafka.settle([first], for: 5 * second)
        let other = kafka.member()
        let third = kafka.member()
        var events = kafka.settle([other, third], for: 20 * second)
        kafka.settle([other, third], for: 120 * second, keeping: &events)
        // The first member had joined without revoking its partitions, so the group waits with another member's
        // rebalance.
        kafka.leave(third)
        kafka.settle([other], for: 120 * second)
        #expect(kafka.owned(other).count == 4)
        #expect(!kafka.isMember(first))
        kafka.settle([first, other], for: 30 * second)
        #expect(kafka.owned(first).count == 2)
    }

    @Test func eagerMembersRevokeAllPartitions() {
        let kafka = calm { $0.assignor = .eager }
        let first = kafka.member()
        kafka.settle([first], for: 5 * second)
        let other = kafka.member()
        let events = kafka.settle([first, other], for: 20 * second)
        #expect(events[first]?.map(\.name) == ["revoked [0, 1, 2, 3]", "assigned [0, 1]"])
        #expect(events[other]?.map(\.name) == ["assigned [2, 3]"])
    }

    @Test func stoppedMemberLearnsOfItsLossOnResume() {
        let kafka = calm { $0.sessionTimeout = 10 * second }
        let first = kafka.member()
        let other = kafka.member()
        kafka.settle([first, other], for: 20 * second)
        let owned = kafka.owned(first)
        kafka.stop(first)
        kafka.settle([other], for: 30 * second)
        #expect(kafka.owned(other).count == 4)
        #expect(kafka.owned(first) == owned)
        #expect(!kafka.isMember(first))
        kafka.resume(first)
        // Until a heartbeat the member knows nothing of its loss.
        let events = kafka.settle([first, other], for: 30 * second)
        #expect(events[first]?.first?.name == "lost \(Array(owned))")
        #expect(kafka.owned(first).count == 2)
    }

    @Test func shortStopKeepsTheMembership() {
        let kafka = calm { $0.sessionTimeout = 10 * second }
        let first = kafka.member()
        kafka.settle([first], for: 5 * second)
        kafka.stop(first)
        kafka.pass(5 * second)
        kafka.resume(first)
        #expect(kafka.settle([first], for: 30 * second).isEmpty)
    }

    @Test func crashedMembersPartitionsMoveAfterItsSession() {
        let kafka = calm { $0.sessionTimeout = 10 * second }
        let first = kafka.member()
        let other = kafka.member()
        kafka.settle([first, other], for: 20 * second)
        kafka.crash(first)
        kafka.settle([other], for: 5 * second)
        #expect(kafka.owned(other).count == 2)
        kafka.settle([other], for: 20 * second)
        #expect(kafka.owned(other).count == 4)
    }

    @Test func closedMembersPartitionsMoveAtOnce() {
        let kafka = calm()
        let first = kafka.member()
        let other = kafka.member()
        kafka.settle([first, other], for: 20 * second)
        kafka.close(first)
        kafka.settle([other], for: 5 * second)
        #expect(kafka.owned(other).count == 4)
    }

    @Test func restartedStaticMemberKeepsItsPartitions() {
        let kafka = calm()
        let first = kafka.member(instance: 1)
        let other = kafka.member(instance: 2)
        kafka.settle([first, other], for: 20 * second)
        let owned = kafka.owned(first)
        let generation = kafka.group.generation
        kafka.crash(first)
        let again = kafka.member(instance: 1)
        kafka.settle([again, other], for: 10 * second)
        #expect(kafka.owned(again) == owned)
        #expect(kafka.group.generation == generation)
        // A second member with the same name fences the older one.
        let twin = kafka.member(instance: 1)
        let events = kafka.settle([again, twin, other], for: 10 * second)
        #expect(events[again]?.last?.name == "fenced")
        #expect(kafka.owned(twin) == owned)
    }

    @Test func staticMemberKilledBetweenRoundsLeavesPartitionsUnowned() {
        let kafka = calm()
        let first = kafka.member(instance: 1)
        kafka.settle([first], for: 5 * second)
        let other = kafka.member(instance: 2)
        while !kafka.hasEvents(first) { kafka.settle([other], for: 50 * millisecond) }
        guard case .revoked(let revoked)? = kafka.nextEvent(first) else {
            Issue.record("nothing is revoked")
            return
        }
        kafka.crash(first)
        let again = kafka.member(instance: 1)
        kafka.settle([again, other], for: 300 * second)
        // The new process gets the first round's assignment, and no member requests the second round.
        #expect(kafka.owned(again).intersection(revoked).isEmpty)
        #expect(kafka.owned(other).isEmpty)
        let third = kafka.member()
        kafka.settle([again, other, third], for: 60 * second)
        #expect(kafka.owned(again).count + kafka.owned(other).count + kafka.owned(third).count == 4)
    }

    @Test func unpolledMemberLosesItsPartitions() {
        let kafka = calm { $0.maximumPollInterval = 20 * second }
        let first = kafka.member()
        let other = kafka.member()
        kafka.settle([first, other], for: 20 * second)
        let owned = kafka.owned(first)
        kafka.settle([other], for: 40 * second)
        #expect(kafka.owned(other).count == 4)
        #expect(kafka.nextEvent(first)?.name == "lost \(Array(owned))")
    }

    @Test func addedPartitionsAreAssigned() {
        let kafka = calm()
        let first = kafka.member()
        kafka.settle([first], for: 5 * second)
        kafka.grow(.jobs, to: 6)
        let events = kafka.settle([first], for: 310 * second)
        #expect(events[first]?.map(\.name) == ["assigned [4, 5]"])
    }

    // MARK: The coordinator

    @Test func unavailableCoordinatorFailsCommitsAndFetches() {
        let kafka = calm()
        let first = kafka.member()
        kafka.settle([first], for: 5 * second)
        kafka.setGroupCoordinator(isAway: true)
        #expect(kafka.commitResult(first, [.init(partition: 0, offset: 1)]) == .some(.coordinatorAway))
        #expect(kafka.committed(first, 0)?.1 == .coordinatorAway)
        kafka.setGroupCoordinator(isAway: false)
        #expect(kafka.settle([first], for: 20 * second).isEmpty)
        #expect(kafka.commitResult(first, [.init(partition: 0, offset: 1)]) == .some(nil))
    }

    @Test func clientLosesItsPartitionsAfterItsOwnSession() {
        let kafka = calm { $0.sessionTimeout = 10 * second }
        let first = kafka.member()
        kafka.settle([first], for: 5 * second)
        kafka.setGroupCoordinator(isAway: true)
        let events = kafka.settle([first], for: 20 * second)
        #expect(events[first]?.map(\.name) == ["lost [0, 1, 2, 3]"])
        #expect(kafka.membership(first) == nil)
        kafka.setGroupCoordinator(isAway: false)
        kafka.settle([first], for: 30 * second)
        #expect(kafka.owned(first).count == 4)
    }

    @Test func rebalanceRestartsAfterCoordinatorLoss() {
        for wait in 0..<40 {
            let kafka = calm { $0.sessionTimeout = 10 * second }
            let first = kafka.member()
            kafka.settle([first], for: 5 * second)
            let other = kafka.member()
            kafka.settle([first, other], for: UInt64(wait) * 100 * millisecond)
            kafka.setGroupCoordinator(isAway: true)
            kafka.settle([first, other], for: second)
            kafka.setGroupCoordinator(isAway: false)
            kafka.settle([first, other], for: 60 * second)
            #expect(kafka.owned(first).count == 2)
            #expect(kafka.owned(other).count == 2)
        }
    }

    // MARK: Commits

    @Test func commitMayBeTakenWithoutAnAnswer() {
        let kafka = calm { $0.answerLostPerMille = 1000 }
        let first = kafka.member()
        kafka.settle([first], for: 5 * second)
        #expect(
            kafka.commitResult(first, [.init(partition: 0, offset: 3, metadata: "x")]) == .some(.timedOut))
        #expect(kafka.committed(first, 0)?.0 == .init(partition: 0, offset: 3, metadata: "x"))

        var taken = 0
        for wait in 0..<10 {
            let kafka = calm()
            let first = kafka.member()
            kafka.settle([first], for: 5 * second)
            let reference = kafka.commit(first, [.init(partition: 0, offset: 3)])
            kafka.pass(UInt64(wait) * millisecond / 2)
            kafka.setGroupCoordinator(isAway: true)
            kafka.pass(second)
            guard case .committed(reference, .coordinatorAway)? = kafka.nextEvent(first) else { continue }
            if kafka.committedOffset(0).offset == 3 { taken += 1 }
        }
        #expect(taken > 0)
    }

    @Test func commitsOfNonMembersAreRefused() {
        let kafka = calm { $0.sessionTimeout = 10 * second }
        let first = kafka.member()
        let other = kafka.member()
        kafka.settle([first, other], for: 20 * second)
        let outsider = kafka.addClient()
        #expect(kafka.commitResult(outsider, [.init(partition: 0, offset: 1)]) == .some(.unknownMember))
        kafka.stop(first)
        kafka.settle([other], for: 30 * second)
        // Commits before the client learns that its membership was lost.
        kafka.resume(first)
        let reference = kafka.commit(first, [.init(partition: 0, offset: 1)])
        let events = kafka.settle([first, other], for: second)
        #expect(
            events[first]?.contains {
                if case .committed(reference, .unknownMember) = $0 { true } else { false }
            }
                == true)
        #expect(kafka.committedOffset(0).offset == -1)
    }

    @Test func commitAfterAJoinHasAnOldGeneration() {
        let kafka = calm()
        let first = kafka.member()
        let other = kafka.member()
        kafka.settle([first, other], for: 20 * second)
        let owned = kafka.owned(first)
        // The group waits for the stopped member.
        kafka.stop(other)
        let third = kafka.member()
        while kafka.group.index(of: kafka.clients[first].consumer.member).map({
            kafka.group.members[$0].isJoining
        })
            != true
        {
            kafka.pass(millisecond)
        }
        let reference = kafka.commit(first, [.init(partition: 0, offset: 1)])
        kafka.pass(second)
        #expect(!kafka.hasEvents(first))
        kafka.resume(other)
        let events = kafka.settle([first, other, third], for: 20 * second)
        guard case .committed(reference, let failure)? = events[first]?.first else {
            Issue.record("no answer")
            return
        }
        #expect(failure == .illegalGeneration)
        // librdkafka treats all partitions as lost.
        #expect(events[first]?[1].name == "lost \(Array(owned))")
    }

    @Test func commitMetadataIsLimited() {
        let kafka = calm { $0.metadataLimit = 4 }
        let first = kafka.member()
        kafka.settle([first], for: 5 * second)
        let commits: [Kafka.OffsetCommit] = [
            .init(partition: 0, offset: 1, metadata: "12345"),
            .init(partition: 1, offset: 1, metadata: "1234"),
        ]
        #expect(kafka.commitResult(first, commits) == .some(.metadataTooLarge))
        #expect(kafka.committedOffset(0).offset == -1)
        #expect(kafka.committedOffset(1).offset == 1)
    }

    @Test func operatorResetsOffsetsOnlyWithoutMembers() {
        let kafka = calm()
        let first = kafka.member()
        kafka.settle([first], for: 5 * second)
        #expect(!kafka.resetOffset(0, to: 7))
        kafka.leave(first)
        kafka.pass(second)
        #expect(kafka.resetOffset(0, to: 7))
        #expect(kafka.committedOffset(0).offset == 7)
        #expect(kafka.commits.last?.origin == .outside)
    }

    @Test func recreatedTopicForgetsItsOffsets() {
        let kafka = calm()
        let first = kafka.member()
        kafka.settle([first], for: 5 * second)
        _ = kafka.commitResult(first, [.init(partition: 0, offset: 7)])
        kafka.makeAnew(.jobs)
        #expect(kafka.committedOffset(0).offset == -1)
        #expect(kafka.endOffset(.jobs, 0) == 0)
    }
}
