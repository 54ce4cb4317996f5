import DeliveryCore

/// Checks that sending follows committing, from what an observer sees of one process: its pushes, their ends, the
/// outcomes that others can read, and Kafka's answers to commits.
///
/// The check counts no push that the process may have counted off. It never asks the process for its own count.
struct CommitAudit {
    private enum Progress {
        case inFlight
        /// An outcome was made. `awaitsCommit`: it only waits for a commit. `tick`: nanoseconds of the process's first tick
        /// since; nil: none yet.
        case ended(slot: UInt16, awaitsCommit: Bool, tick: UInt64?)
    }

    private let scenario: FleetScenario
    private let window: PushWindow.Limits
    /// Most pushes that may be begun and not committed.
    private var size: Int
    private var hasProducer: Bool
    private var pushes: [Int: Progress] = [:]
    /// Nanoseconds of the first tick after the last commit; nil: none yet. With a store, an acknowledged outcome counts as
    /// well, because a push from the store needs no commit.
    private var tickAfterProgress: UInt64?
    private var lastTick: UInt64 = 0

    init(_ scenario: FleetScenario, _ window: PushWindow.Limits) {
        self.scenario = scenario
        self.window = window
        size = min(window.first, window.most)
        hasProducer = scenario.mode != .transactions
    }

    /// Offsets above a gap don't fit into the metadata of such a world, so that no commit covers them.
    private var isExact: Bool { scenario.metadataBytes == CommitMetadata.maximumBytes }

    // MARK: The process

    mutating func begins(_ job: Int) { pushes[job] = .inFlight }

    /// The rule that the last begin has broken; nil: none.
    var problem: String? {
        guard hasProducer else { return "before its producer has an identifier" }
        guard isExact else { return nil }
        if pushes.count > size { return "as number \(pushes.count) of \(size) that aren't committed" }
        if let since = waitsSince, lastTick >= since, lastTick - since >= patience {
            return "though no commit has succeeded for \((lastTick - since) / 1_000_000) ms"
        }
        return nil
    }

    private var patience: UInt64 {
        switch scenario.mode {
        case .transactions: window.patience + WorkerProcess.transactionInterval
        case .none: window.patience + WorkerProcess.commitInterval
        // An acknowledged outcome of a push from the store counts from the next commit.
        case .local, .changelog: window.patience + 2 * WorkerProcess.commitInterval
        }
    }

    /// Nanoseconds of the tick since which an outcome waits, and no commit has succeeded; nil: none waits.
    private var waitsSince: UInt64? {
        var first: UInt64?
        for case .ended(_, _, let tick?) in pushes.values { first = min(first ?? tick, tick) }
        guard let first, let tickAfterProgress else { return nil }
        return max(first, tickAfterProgress)
    }

    /// The attempt has ended. Without an outcome, the push counts no more.
    mutating func returned(_ job: Int) {
        if case .inFlight = pushes[job] { pushes[job] = nil }
    }

    /// The push has ended, and its outcome is on its way.
    mutating func ended(_ job: Int, _ slot: UInt16) {
        if pushes[job] != nil { pushes[job] = .ended(slot: slot, awaitsCommit: false, tick: nil) }
    }

    mutating func gotProducer() { hasProducer = true }

    /// Kafka has reported a commit as taken.
    mutating func committed() {
        size = size > window.most / 2 ? window.most : size * 2
        tickAfterProgress = nil
        // Others see them a little later.
        if scenario.mode == .transactions { covered { _ in true } }
    }

    /// Kafka has acknowledged an outcome, as the process knows now.
    mutating func acknowledged() {
        if scenario.mode == .local || scenario.mode == .changelog { tickAfterProgress = nil }
    }

    /// The process sends its transaction's offsets, behind the outcomes.
    mutating func sentOffsets() {
        for (job, progress) in pushes {
            guard case .ended(let slot, _, let tick) = progress else { continue }
            pushes[job] = .ended(slot: slot, awaitsCommit: true, tick: tick)
        }
    }

    /// The process has given up partitions, and nobody there awaits the outcomes.
    mutating func lost(_ slots: [UInt16]) {
        for (job, progress) in pushes {
            if case .ended(let slot, _, _) = progress, slots.contains(slot) { pushes[job] = nil }
        }
    }

    mutating func ticked(at now: UInt64) {
        lastTick = now
        tickAfterProgress = tickAfterProgress ?? now
        for (job, progress) in pushes {
            guard case .ended(let slot, let awaitsCommit, nil) = progress else { continue }
            pushes[job] = .ended(slot: slot, awaitsCommit: awaitsCommit, tick: now)
        }
    }

    // MARK: What others see

    /// An outcome of the process can be read.
    mutating func seen(_ job: Int) {
        guard case .ended(let slot, _, let tick) = pushes[job] else { return }
        // With a store, the item's removal counts, which nobody sees.
        pushes[job] = scenario.mode == .none ? .ended(slot: slot, awaitsCommit: true, tick: tick) : nil
    }

    /// A commit covers outcomes that awaited one.
    mutating func covered(_ isCovered: (Int) -> Bool) {
        for (job, progress) in pushes where isCovered(job) {
            if case .ended(_, awaitsCommit: true, _) = progress { pushes[job] = nil }
        }
    }
}

extension FleetAuditor {
    /// Checks that a process may begin a push.
    func begins(_ job: Int, by process: WorkerProcess, _ world: FleetWorld) {
        process.commitAudit.begins(job)
        guard process.commitAudit.problem != nil else { return }
        // What others see was read some time ago.
        world.audit()
        guard let problem = process.commitAudit.problem else { return }
        world.broken(.bounded, "process \(process.serial) begins the push of job \(job) \(problem)")
    }

    /// Notes that an outcome can be read.
    func noteSeen(_ output: FleetOutput, _ world: FleetWorld) {
        world.processes[output.process].commitAudit.seen(output.job)
    }

    /// Notes that the group's offset of a partition has changed.
    func noteCommit(of partition: Int, _ world: FleetWorld, _ jobs: [FleetJob]) {
        for process in world.living { process.commitAudit.covered { jobs[$0].partition == partition } }
    }
}
