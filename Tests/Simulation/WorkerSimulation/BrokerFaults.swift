import EventLoop
import Kafka

/// Faults of Kafka's brokers, of the workers' clients, and of the jobs topic.
final class BrokerFaults {
    private let scene: FaultScene
    private var kafka: KafkaCluster { scene.kafka }
    /// Whether the jobs topic was deleted and created again. Once is enough, because that exempts its records.
    private var wasRecreated = false

    private static let mostPartitions: Int32 = 10

    init(_ scene: FaultScene) { self.scene = scene }

    func end() {
        kafka.setGroupCoordinator(isAway: false)
        kafka.setTransactionCoordinator(isAway: false)
        kafka.isSlow = false
        kafka.isUnreachable = false
        kafka.queueLimit = nil
        for topic in topics {
            kafka.setForbidden(topic, false)
            for partition in 0..<kafka.partitionCount(of: topic) {
                kafka.setLeader(topic, partition, isAway: false)
            }
        }
        extendChangelog()
    }

    private var topics: [String] {
        let always = [WorkerWorld.jobsTopic, WorkerWorld.outcomes, WorkerWorld.deadLetters]
        return always
            + (scene.scenario.mode.hasChangelog ? [WorkerWorld.changelog, WorkerWorld.switches] : [])
    }

    /// Returns nil when nothing is there to be hit.
    func begin(_ fault: WorkerFault, _ host: WorkerHost) -> FaultScene.Effect? {
        switch fault {
        case .growth, .retention, .lostTail, .recreation:
            return changeJobs(fault) ? FaultScene.Effect() : nil
        case .compaction:
            guard scene.scenario.mode.hasChangelog else { return nil }
            let partition = Int32(scene.draw(0...Int(kafka.partitionCount(of: WorkerWorld.changelog)) - 1))
            scene.note("partition \(partition) of the changelog is compacted")
            kafka.compact(WorkerWorld.changelog, partition)
            return FaultScene.Effect()
        case .hostWithoutKafka, .failedClient:
            guard let process = host.process else { return nil }
            scene.note("worker \(host.number): \(fault)")
            return FaultScene.Effect(
                host: host.number,
                nanoseconds: fault == .failedClient ? fail(clientOf: process) : cutOff(process))
        default:
            scene.note("Kafka: \(fault)")
            return FaultScene.Effect(nanoseconds: beginForAll(fault))
        }
    }

    // MARK: Clients

    private func cutOff(_ process: SimulatedProcess) -> UInt64 {
        let length = UInt64(scene.draw(100...30_000)) * 1_000_000
        kafka.cutOff(process, until: scene.scheduler.now + length)
        scene.auditor.cutOff(process, until: scene.scheduler.now + length)
        return length
    }

    private func fail(clientOf process: SimulatedProcess) -> UInt64 {
        let errors: [(KafkaCluster.ClientKind, code: Int32, isFatal: Bool)] = [
            // FENCED_INSTANCE_ID, ALL_BROKERS_DOWN
            (.consumer, 82, true), (.consumer, -187, false),
            // OUT_OF_ORDER_SEQUENCE_NUMBER, _FENCED, _TRANSPORT
            (.producer, 45, true), (.producer, -144, true), (.producer, -195, false),
        ]
        let (kind, code, isFatal) = scene.choose(errors)
        scene.note("error \(code) of a \(kind)")
        kafka.raise(code, "simulated fault", isFatal: isFatal, in: kind, of: process)
        return 0
    }

    // MARK: Brokers

    /// Returns the nanoseconds for which the fault lasts.
    private func beginForAll(_ fault: WorkerFault) -> UInt64 {
        let kafka = kafka
        switch fault {
        case .leader:
            let topic = scene.choose(topics)
            let partition = Int32(scene.draw(0...Int(kafka.partitionCount(of: topic)) - 1))
            scene.note("partition \(partition) of \(topic) has no leader")
            kafka.setLeader(topic, partition, isAway: true)
            return scene.after(seconds: scene.chance(700) ? 1...15 : 15...60) {
                kafka.setLeader(topic, partition, isAway: false)
            }
        case .groupCoordinator, .forgottenGroup:
            kafka.setGroupCoordinator(isAway: true)
            if fault == .forgottenGroup { kafka.forgetMembers() }
            return scene.after(seconds: 1...10) { kafka.setGroupCoordinator(isAway: false) }
        case .transactionCoordinator:
            kafka.setTransactionCoordinator(isAway: true)
            return scene.after(seconds: 1...10) { kafka.setTransactionCoordinator(isAway: false) }
        case .lostAnswers: return loseAnswers()
        case .silentBrokers:
            kafka.isUnreachable = true
            return scene.after(seconds: 1...30) { kafka.isUnreachable = false }
        case .fullQueue:
            kafka.queueLimit = scene.draw(0...20)
            return scene.after(seconds: 1...10) { kafka.queueLimit = nil }
        case .forbiddenTopic:
            // The jobs topic has no writer among the workers.
            let topic = scene.choose(topics.filter { $0 != WorkerWorld.jobsTopic })
            scene.note("nobody may write to \(topic)")
            kafka.setForbidden(topic, true)
            return scene.after(seconds: 1...20) { kafka.setForbidden(topic, false) }
        default:
            kafka.isSlow = true
            return scene.after(seconds: 1...10) { kafka.isSlow = false }
        }
    }

    /// All connections to brokers break for a moment, so that answers under way are lost: acknowledgements, and the ends
    /// of transactions, joins and commits.
    private func loseAnswers() -> UInt64 {
        let kafka = kafka
        let places = topics.flatMap { topic in
            (0..<kafka.partitionCount(of: topic)).map { (topic, $0) }
        }
        for (topic, partition) in places { kafka.setLeader(topic, partition, isAway: true) }
        kafka.setGroupCoordinator(isAway: true)
        kafka.setTransactionCoordinator(isAway: true)
        return scene.after(milliseconds: 0...300) {
            for (topic, partition) in places { kafka.setLeader(topic, partition, isAway: false) }
            kafka.setGroupCoordinator(isAway: false)
            kafka.setTransactionCoordinator(isAway: false)
        }
    }

    // MARK: The jobs topic

    /// Returns false when nothing is there to be hit.
    private func changeJobs(_ fault: WorkerFault) -> Bool {
        let topic = WorkerWorld.jobsTopic
        let count = kafka.partitionCount(of: topic)
        let partition = Int32(scene.draw(0...Int(count) - 1))
        guard let log = kafka.ends(of: topic, partition) else { return false }
        switch fault {
        case .growth:
            guard count < Self.mostPartitions else { return false }
            scene.note("the jobs topic grows to \(count + 1) partitions")
            kafka.addPartitions(to: topic, total: Int(count) + 1)
            scene.after(seconds: 0...20) { [weak self] in self?.extendChangelog() }
        case .retention:
            let start = log.low + Int64(scene.draw(0...Int(log.high - log.low)))
            scene.note("partition \(partition) loses its records below \(start)")
            scene.auditor.retained(
                partition, below: start, committed: kafka.committedOffset(partition)?.offset ?? 0)
            kafka.retain(topic, partition, from: start)
        case .lostTail:
            guard log.high > log.low, !wasRecreated else { return false }
            let end = log.high - Int64(scene.draw(1...Int(min(20, log.high - log.low))))
            scene.note("partition \(partition) loses its records from \(end) on")
            scene.auditor.lostTail(partition, from: end, end: log.high)
            kafka.loseTail(topic, partition, from: end)
        default:
            guard !wasRecreated else { return false }
            wasRecreated = true
            scene.note("the jobs topic is deleted, and created again")
            scene.auditor.recreated((0..<count).map { kafka.ends(of: topic, $0)?.high ?? 0 })
            kafka.recreate(topic, keepsOffsets: scene.chance(300))
        }
        return true
    }

    private func extendChangelog() {
        guard scene.scenario.mode.hasChangelog else { return }
        let count = kafka.partitionCount(of: WorkerWorld.jobsTopic)
        kafka.addPartitions(to: WorkerWorld.changelog, total: Int(count))
    }
}
