import RetryStore

/// Faults of the workers' disks.
final class DiskFaults {
    private let scene: FaultScene

    init(_ scene: FaultScene) { self.scene = scene }

    func end() {
        for disk in scene.hosts.compactMap({ disk(of: $0) }) {
            disk.faults = SimulatedDisk.Faults()
            disk.durations = SimulatedDisk.Durations()
        }
    }

    private func disk(of host: WorkerHost) -> SimulatedDisk? { host.store.map { SimulatedDisk.at($0) } }

    /// Returns nil when nothing is there to be hit.
    func begin(_ fault: WorkerFault, _ host: WorkerHost) -> FaultScene.Effect? {
        // Without a changelog a lost disk loses pushes, as the documents say.
        guard let disk = disk(of: host), fault != .lostDisk || scene.scenario.mode != .local else {
            return nil
        }
        scene.note("the disk of worker \(host.number): \(fault)")
        return FaultScene.Effect(host: host.number, nanoseconds: hit(disk, fault, host))
    }

    /// Returns the nanoseconds for which the fault lasts.
    private func hit(_ disk: SimulatedDisk, _ fault: WorkerFault, _ host: WorkerHost) -> UInt64 {
        func fail(_ seconds: ClosedRange<Int>, _ part: WritableKeyPath<SimulatedDisk.Faults, Bool>) -> UInt64
        {
            disk.faults[keyPath: part] = true
            return scene.after(seconds: seconds) { disk.faults[keyPath: part] = false }
        }
        switch fault {
        case .fullDisk: return fail(1...30, \.isFull)
        case .failingDisk: return fail(1...60, \.failsWrites)
        case .failedRead: return fail(1...20, \.failsReads)
        case .failedSync:
            disk.faults.dropsUnsynced = scene.chance(500)
            return fail(1...20, \.failsSyncs)
        case .failedOpening, .damagedDisk:
            host.kill()
            return fail(1...20, fault == .damagedDisk ? \.isDamaged : \.failsOpenings)
        case .slowDisk:
            disk.durations.opening = 100_000_000...8_000_000_000
            disk.durations.write = 1_000_000...50_000_000
            disk.durations.sync = 50_000_000...2_000_000_000
            disk.durations.flush = 100_000_000...3_000_000_000
            disk.durations.read = 0...20_000_000
            return scene.after(seconds: 1...20) { disk.durations = SimulatedDisk.Durations() }
        case .powerLoss:
            disk.cutPower(inOrder: scene.chance(500))
            host.kill()
        default:
            host.kill()
            disk.lose()
        }
        return 0
    }
}
