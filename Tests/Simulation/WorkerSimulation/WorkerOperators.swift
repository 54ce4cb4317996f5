import DeliveryCore
import EventLoop
import Gateway

/// Operators of the workers: pauses, renewed credentials, and offsets that workers can't explain.
// Sendable: one thread runs at a time, as `Scheduler` says.
final class WorkerOperators: @unchecked Sendable {
    private let scene: FaultScene
    /// Number of renewals so far.
    private var renewals = 0
    private var pause: Pause?
    /// Nanoseconds until which workers may not know of a pause.
    private var unheardUntil: UInt64 = 0
    /// Partitions whose offsets no worker can explain, until they are set.
    private var unexplained: [Int32] = []
    private var nextLook: UInt64 = 0

    /// A pause of sending.
    private struct Pause {
        enum Stage {
            case asked
            /// All workers that the pause reaches learn of it within a moment.
            case kept(since: UInt64)
            /// Not all workers have kept the end yet.
            case ending
        }

        var stage = Stage.asked
        var scope: PauseScope
        /// Process with which the pause ends, and which alone knows of it; nil: all workers learn of it, and keep it.
        var process: SimulatedProcess?

        /// Whether pushes of a topic are paused.
        func concerns(_ topic: String) -> Bool {
            if case .topic(let paused) = scope { topic == paused } else { true }
        }
    }

    init(_ scene: FaultScene) { self.scene = scene }

    /// Whether no worker may start, because operators wait until all have ended.
    var holdStarts: Bool { !unexplained.isEmpty }

    /// Goes on with what has begun.
    func attend() {
        look()
        if let process = pause?.process, !process.isAlive { pause = nil }
        if case .ending = pause?.stage { resumeSending() }
    }

    func end() {
        pause?.stage = .ending
        for host in scene.hosts { write(host, isTorn: false) }
    }

    /// Workers learn of pauses late, until a time.
    func areUnheard(until time: UInt64) { unheardUntil = max(unheardUntil, time) }

    /// Whether a push that arrives now breaks a pause.
    func forbids(_ push: SimulatedAPNS.Push) -> Bool {
        guard let pause, case .kept(let since) = pause.stage, let link = push.link,
            !scene.auditor.isDelayed(link: link.number), pause.concerns(push.topic),
            pause.process == nil || pause.process === push.process
        else { return false }
        return scene.scheduler.now > max(since, unheardUntil) + FaultScene.seconds(5)
    }

    /// Returns nil when nothing is there to be changed.
    func begin(_ fault: WorkerFault, _ host: WorkerHost) -> FaultScene.Effect? {
        guard let worker = host.worker, let process = host.process else { return nil }
        switch fault {
        case .pause: return begin(on: worker, of: process)
        case .renewal:
            renew(host)
            return FaultScene.Effect(host: host.number)
        default:
            scene.note("the key file of worker \(host.number) is torn")
            write(host, isTorn: true)
            scene.scheduler.startThread(of: process) { worker.renewCredentials() }
            let length = scene.after(seconds: 1...20) { [weak self] in self?.renew(host) }
            return FaultScene.Effect(host: host.number, nanoseconds: length)
        }
    }

    // MARK: Offsets

    /// Looks every few seconds for partitions whose offsets no worker can explain. These offsets are set as the runbook
    /// says: while no worker runs.
    private func look() {
        if !unexplained.isEmpty, !scene.hosts.contains(where: \.isRunning) { return resetOffsets() }
        guard scene.scheduler.now >= nextLook, unexplained.isEmpty else { return }
        nextLook = scene.scheduler.now + FaultScene.seconds(5)
        for worker in scene.hosts.compactMap(\.worker) {
            worker.ask(isDetailed: false) { [weak self] in
                if case .intake(let intake) = $0, !intake.unexplained.isEmpty {
                    self?.stopWorkers(intake.unexplained)
                }
            }
        }
    }

    private func stopWorkers(_ partitions: [Int32]) {
        guard unexplained.isEmpty else { return }
        scene.note("workers can't explain the offsets of \(partitions)")
        unexplained = partitions
        for host in scene.hosts { host.requestStop() }
    }

    private func resetOffsets() {
        unexplained.removeAll { partition in
            guard
                scene.kafka.resetOffset(
                    partition, to: scene.kafka.ends(of: WorkerWorld.jobsTopic, partition)?.low ?? 0)
            else { return false }
            scene.auditor.reset(partition)
            return true
        }
    }

    // MARK: Credentials

    /// The key file of a host gets another key.
    private func renew(_ host: WorkerHost) {
        scene.note("worker \(host.number) gets another key")
        renewals += 1
        write(host, isTorn: false)
        guard let worker = host.worker, let process = host.process else { return }
        scene.scheduler.startThread(of: process) { worker.renewCredentials() }
    }

    private func write(_ host: WorkerHost, isTorn: Bool) {
        do {
            try scene.files.writeKey(renewals, of: host.number, isTorn: isTorn)
        } catch {
            scene.report(.progress, "the key file can't be written: \(error)")
        }
    }

    // MARK: Pauses

    private func begin(on worker: Worker, of process: SimulatedProcess) -> FaultScene.Effect? {
        guard pause == nil else { return nil }
        let topic = PauseScope.topic(WorkerService.topics[0])
        let scope = scene.choose(
            [.all, scene.scenario.apps.count == 1 ? .app("app0") : topic, topic, .credential("team")])
        scene.note("an operator pauses \(scope) on \(process.name)")
        pause = Pause(scope: scope, process: scene.scenario.mode.hasStore ? nil : process)
        change(worker, scope, isPaused: true) { [unowned self] isKept in
            if isKept, case .asked = pause?.stage { pause?.stage = .kept(since: scene.scheduler.now) }
        }
        scene.after(seconds: 5...30) { [weak self] in self?.pause?.stage = .ending }
        return FaultScene.Effect()
    }

    /// Resumes sending on all workers, again and again until each has kept the end of the pause.
    private func resumeSending() {
        let workers = scene.hosts.compactMap(\.worker)
        guard let scope = pause?.scope, workers.count == scene.hosts.count else { return }
        scene.note("an operator resumes \(scope)")
        var left = workers.count
        for worker in workers {
            change(worker, scope, isPaused: false) { [unowned self] isKept in
                if isKept { left -= 1 }
                if left == 0, case .ending = pause?.stage { pause = nil }
            }
        }
    }

    private func change(
        _ worker: Worker, _ scope: PauseScope, isPaused: Bool, _ completion: @escaping (Bool) -> Void
    ) {
        // nonisolated(unsafe): a simulation runs on one thread at a time.
        nonisolated(unsafe) let completion = completion
        worker.switches.change(scope, isPaused: isPaused, by: "operator", note: "") { completion($0.isKept) }
    }
}
