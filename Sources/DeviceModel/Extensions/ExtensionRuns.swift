import HeapModule

/// Service extensions that run, with the work that they wait for. Bounded by ``DeviceSettings/maximumExtensionRuns``.
struct ExtensionRuns: Sendable {
    private struct Deadline: Comparable, Sendable {
        var time: Int64
        var run: UInt64

        static func < (left: Deadline, right: Deadline) -> Bool {
            (left.time, left.run) < (right.time, right.run)
        }
        static func == (left: Deadline, right: Deadline) -> Bool {
            left.time == right.time && left.run == right.run
        }
    }

    private var runs: [UInt64: ExtensionRun] = [:]
    /// Runs by the work that they wait for.
    private var works: [UInt64: UInt64] = [:]
    /// Pushes by device whose runs ended because the device was switched off.
    private var interrupted: [UInt32: [TransitPush]] = [:]
    /// Pushes of all devices that wait for their device.
    private(set) var interruptedCount = 0
    /// Work that no effect has taken yet.
    private var waiting: [DeviceWork] = []
    /// Deadlines of the runs, and some of runs that have ended.
    private var deadlines = Heap<Deadline>()
    /// Deadline that is scheduled in milliseconds since 1970; nil: none.
    private var scheduled: Int64?
    private var nextRun: UInt64 = 1
    private var nextWork: UInt64 = 1
    var attachments = AttachmentStore()

    var count: Int { runs.count }

    /// Numbers a new run.
    mutating func number() -> UInt64 {
        defer { nextRun += 1 }
        return nextRun
    }

    /// Keeps a run that waits.
    /// - Parameter isNew: whether the run has waited for nothing before.
    mutating func keep(_ run: ExtensionRun, _ id: UInt64, isNew: Bool) {
        runs[id] = run
        guard isNew else { return }
        if deadlines.count > 2 * runs.count + 64 {
            deadlines = Heap(deadlines.unordered.filter { runs[$0.run] != nil })
        }
        deadlines.insert(Deadline(time: run.deadline, run: id))
    }

    mutating func take(_ id: UInt64) -> ExtensionRun? { runs.removeValue(forKey: id) }

    /// Takes the runs of a device, in the order of their start.
    /// - Parameter app: index of the app; nil: all apps.
    mutating func takeAll(of device: UInt32, app: UInt16? = nil) -> [ExtensionRun] {
        guard !runs.isEmpty else { return [] }
        let chosen = runs.filter {
            $0.value.push.device == device && (app ?? $0.value.push.app) == $0.value.push.app
        }
        return chosen.sorted { $0.key < $1.key }.map { id, run in
            runs[id] = nil
            if let work = run.awaited { works[work] = nil }
            return run
        }
    }

    // MARK: - Pushes of interrupted runs

    mutating func interrupt(_ push: TransitPush) {
        interrupted[push.device, default: []].append(push)
        interruptedCount += 1
    }

    /// Takes the pushes whose runs a device has interrupted.
    /// - Parameter app: index of the app; nil: all apps.
    mutating func takeInterrupted(_ device: UInt32, app: UInt16? = nil) -> [TransitPush] {
        guard let found = interrupted.removeValue(forKey: device) else { return [] }
        let taken = found.filter { (app ?? $0.app) == $0.app }
        if taken.count < found.count { interrupted[device] = found.filter { $0.app != app } }
        interruptedCount -= taken.count
        return taken
    }

    // MARK: - Deadlines

    /// Deadline to schedule; nil when it is scheduled already, or no run has one.
    mutating func deadlineToSchedule() -> Int64? {
        while let first = deadlines.min, runs[first.run] == nil { deadlines.removeMin() }
        guard let first = deadlines.min, scheduled.map({ first.time < $0 }) ?? true else { return nil }
        scheduled = first.time
        return first.time
    }

    /// Whether an entry in the queue of what is due applies: 0 is the next deadline, other numbers are runs.
    func awaits(_ run: UInt64, at time: Int64) -> Bool { run == 0 ? scheduled == time : runs[run] != nil }

    /// Takes the runs whose time is over, in the order of their deadlines.
    mutating func takeLate(now: Int64) -> [(id: UInt64, run: ExtensionRun)] {
        if let time = scheduled, time <= now { scheduled = nil }
        var late: [(id: UInt64, run: ExtensionRun)] = []
        while let first = deadlines.min, first.time <= now {
            deadlines.removeMin()
            guard let run = take(first.run) else { continue }
            if let work = run.awaited { works[work] = nil }
            late.append((first.run, run))
        }
        return late
    }

    // MARK: - Work

    /// Hands a run's work to the effects. Returns the work's number.
    mutating func request(_ kind: DeviceWork.Kind, for run: UInt64) -> UInt64 {
        // Work of runs that have ended is dropped, so that work nobody takes stays bounded.
        if waiting.count > 2 * runs.count + 64 { waiting.removeAll { works[$0.id] == nil } }
        defer { nextWork += 1 }
        works[nextWork] = run
        waiting.append(DeviceWork(id: nextWork, kind: kind))
        return nextWork
    }

    mutating func takeWork() -> [DeviceWork] {
        let taken = waiting.filter { works[$0.id] != nil }
        waiting = []
        return taken
    }

    /// Takes the run that waits for a result; nil for a late, double or unknown result.
    mutating func take(work: UInt64) -> (id: UInt64, run: ExtensionRun)? {
        guard let id = works.removeValue(forKey: work), let run = take(id) else { return nil }
        return (id, run)
    }

    /// Ends all runs without result. Numbers are not used again, so that late results find nothing.
    mutating func removeAll() {
        runs = [:]
        works = [:]
        interrupted = [:]
        interruptedCount = 0
        waiting = []
        deadlines = Heap()
        scheduled = nil
        attachments.removeAll()
    }
}
