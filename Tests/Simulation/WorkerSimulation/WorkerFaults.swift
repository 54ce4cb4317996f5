import EventLoop
import Kafka

/// Faults of a world of whole workers. Each fault ends by itself or with ``end()``.
final class WorkerFaults {
    private let scene: FaultScene
    private let connections: ConnectionFaults
    private let brokers: BrokerFaults
    private let disks: DiskFaults
    let operators: WorkerOperators
    /// Whether all faults have ended but suspensions.
    private var areOver = false
    /// Nanoseconds until which a process may be suspended.
    private var suspendedUntil: UInt64 = 0
    /// Faults that may end processes, with the nanoseconds until which they may.
    private var begun: [(fault: WorkerFault, until: UInt64)] = []

    /// Nanoseconds after a fault in which a process may end because of it.
    private static let aftermath = FaultScene.seconds(120)

    init(_ scene: FaultScene) {
        self.scene = scene
        connections = ConnectionFaults(scene)
        brokers = BrokerFaults(scene)
        disks = DiskFaults(scene)
        operators = WorkerOperators(scene)
    }

    /// Begins one of the scenario's faults.
    func begin() {
        let fault = scene.choose(scene.scenario.faults)
        guard let effect = carryOut(fault, scene.choose(scene.hosts)) else { return }
        switch fault.excuse {
        case .nothing: break
        case .host:
            if let host = effect.host {
                scene.auditor.disturbed(host: host, nanoseconds: effect.nanoseconds, forgets: fault.forgets)
            }
        case .group: scene.auditor.disturbed(nanoseconds: effect.nanoseconds, forgets: fault.forgets)
        }
        let until = scene.scheduler.now + effect.nanoseconds
        if fault == .suspension { suspended(until: until) }
        if !fault.endings.isEmpty { begun.append((fault, max(until, suspendedUntil) + Self.aftermath)) }
        if fault.delaysPauses { operators.areUnheard(until: until) }
    }

    /// A process is suspended. It meets the faults of this time afterwards.
    private func suspended(until: UInt64) {
        suspendedUntil = max(suspendedUntil, until)
        for index in begun.indices where begun[index].until >= scene.scheduler.now {
            begun[index].until = max(begun[index].until, until + Self.aftermath)
        }
    }

    /// Goes on with what operators have begun. Called at each step of the world.
    func attend() { operators.attend() }

    /// Whether a fault may have ended a process for this reason.
    func explains(_ failure: String) -> Bool {
        begun.removeAll { $0.until < scene.scheduler.now }
        return begun.contains { begun in begun.fault.endings.contains { failure.contains($0) } }
    }

    /// Whether a process may be suspended.
    var maySuspend: Bool { scene.scheduler.now < suspendedUntil }

    /// Ends all faults but suspensions.
    func end() {
        areOver = true
        for host in scene.hosts { host.process?.wallDeviation = 0 }
        connections.end()
        brokers.end()
        disks.end()
        operators.end()
    }

    /// Returns nil when nothing is there to be hit.
    private func carryOut(_ fault: WorkerFault, _ host: WorkerHost) -> FaultScene.Effect? {
        switch fault {
        case .kill, .secondKill, .stop, .earlyStop, .rollingRestart, .stopInRebalance, .suspension, .clock:
            hitProcess(fault, host)
        case .cut, .halfClose, .blackHole, .slowConnection, .goAway, .hostWithoutAPNs, .nameService,
            .refusedDial, .refusedTLS:
            connections.begin(fault, host)
        case .leader, .groupCoordinator, .forgottenGroup, .transactionCoordinator, .slowKafka, .lostAnswers,
            .silentBrokers, .hostWithoutKafka, .fullQueue, .failedClient, .forbiddenTopic, .compaction,
            .growth, .retention, .lostTail, .recreation:
            brokers.begin(fault, host)
        case .fullDisk, .failingDisk, .failedSync, .failedRead, .failedOpening, .damagedDisk, .slowDisk,
            .powerLoss, .lostDisk:
            disks.begin(fault, host)
        case .pause, .renewal, .tornKey: operators.begin(fault, host)
        }
    }

    // MARK: Processes

    private func hitProcess(_ fault: WorkerFault, _ host: WorkerHost) -> FaultScene.Effect? {
        guard let process = host.process else { return nil }
        var effect = FaultScene.Effect(host: host.number)
        scene.note("worker \(host.number): \(fault)")
        switch fault {
        case .kill: host.kill()
        case .secondKill:
            host.kill()
            afterStart(of: host, milliseconds: 0...8000) { $0.kill() }
            // The next process has started by then.
            effect.nanoseconds = FaultScene.seconds(20)
        case .stop: host.requestStop()
        case .earlyStop:
            host.requestStop()
            afterStart(of: host, milliseconds: 0...3000) { $0.requestStop() }
        case .rollingRestart:
            for each in scene.hosts { scene.after(milliseconds: 0...5000) { each.requestStop() } }
        case .stopInRebalance:
            host.kill()
            let other = scene.choose(scene.hosts)
            effect.nanoseconds = scene.after(milliseconds: 0...13_000) { other.requestStop() }
        case .suspension:
            let lengths = [10...3000, 3000...25_000, 25_000...400_000]
            effect.nanoseconds = UInt64(scene.draw(scene.choose(lengths))) * 1_000_000
            scene.note("for \(effect.nanoseconds / 1_000_000) ms")
            scene.kafka.suspend(process, until: scene.scheduler.now + effect.nanoseconds)
        default:
            process.wallDeviation = Int64(scene.draw(-1500...1500))
            scene.note("its clock is wrong by \(process.wallDeviation) ms")
        }
        return effect
    }

    /// Runs `body` a while after the host's next process has started, unless all faults have ended.
    private func afterStart(
        of host: WorkerHost, milliseconds: ClosedRange<Int>, _ body: @escaping (WorkerHost) -> Void
    ) {
        let starts = host.starts
        scene.after(milliseconds: 50...100) { [weak self] in
            guard let self, !areOver else { return }
            guard host.starts > starts else {
                return afterStart(of: host, milliseconds: milliseconds, body)
            }
            scene.after(milliseconds: milliseconds) { [weak self] in
                if self?.areOver == false { body(host) }
            }
        }
    }
}
