/// State of a worker in a view.
struct TopWorker: Sendable {
    enum State: Sendable, Equatable {
        /// Nothing is known yet.
        case asking
        case ready
        /// Reasons of `/readyz`.
        case notReady([String])
        /// The endpoint gave no metrics, and why.
        case down(String)
    }

    /// Name that the view shows; the address of the endpoint.
    var name: String
    var state: State
    /// Nil without metrics.
    var figures: WorkerFigures?
    /// Faults of the metrics' text, in words.
    var faults: [String] = []
}

/// Choices of the person who looks.
struct TopChoices: Sendable, Equatable {
    enum Order: String, CaseIterable, Sendable {
        case name, jobs, latency, lag, busy
    }

    /// Worker whose figures are shown below; nil for the sum of all.
    var selected: Int?
    var order: Order = .name
    /// Number of lines above the first line shown.
    var scroll = 0
    var isPaused = false

    /// Selects the next worker, or after the last worker the sum.
    mutating func selectNext(of count: Int) {
        guard count > 1 else { return }
        let next = (selected ?? -1) + 1
        selected = next < count ? next : nil
        scroll = 0
    }

    /// Selects the worker before, or before the first worker the sum.
    mutating func selectPrevious(of count: Int) {
        guard count > 1 else { return }
        let last = (selected ?? count) - 1
        selected = last >= 0 ? last : nil
        scroll = 0
    }

    mutating func nextOrder() {
        let all = Order.allCases
        order = all[((all.firstIndex(of: order) ?? 0) + 1) % all.count]
    }
}

/// Lines that show workers. Pure: time, workers and choices in, lines out.
struct TopView {
    var workers: [TopWorker]
    var choices = TopChoices()
    /// Seconds since the epoch.
    var now: Double
    /// Text of the time, for the heading.
    var clock = ""

    private typealias N = TopNumbers

    /// Sum of all workers, with their number where several are shown.
    private var sum: WorkerFigures {
        var sum = WorkerFigures()
        for worker in workers {
            if let figures = worker.figures {
                sum.add(figures, worker: workers.count > 1 ? worker.name : nil)
            }
        }
        return sum
    }

    // MARK: Frames

    /// Returns a frame for a terminal: a heading, a part of the lines, and the keys. Has `rows` lines at most.
    func frame(columns: Int, rows: Int) -> [TopLine] {
        guard columns > 0, rows > 0 else { return [] }
        let lines = lines()
        guard rows >= 4 else { return lines.prefix(rows).map { $0.clipped(to: columns) } }
        let body = Array(lines.dropFirst())
        let room = rows - 2
        let first = min(max(0, choices.scroll), maximumScroll(rows: rows, lines: body.count))
        var frame = [lines[0]] + body[first..<min(body.count, first + room)]
        while frame.count < rows - 1 { frame.append(TopLine()) }
        frame.append(keys(hidden: max(0, body.count - first - room), above: first))
        return frame.map { $0.clipped(to: columns) }
    }

    /// Returns the scroll position that shows the last line.
    func maximumScroll(rows: Int) -> Int { maximumScroll(rows: rows, lines: lines().count - 1) }

    private func maximumScroll(rows: Int, lines: Int) -> Int { max(0, lines - max(1, rows - 2)) }

    private func keys(hidden: Int, above: Int) -> TopLine {
        var text = "q quit  p pause  s sort (\(choices.order.rawValue))"
        if workers.count > 1 { text += "  Tab worker" }
        if hidden > 0 || above > 0 { text += "  ↑↓ scroll (\(above) above, \(hidden) below)" }
        return TopLine(text, .faint)
    }

    /// Returns all lines. The first is the heading.
    func lines() -> [TopLine] {
        var lines = [heading]
        lines += workerTable
        let figures: WorkerFigures
        if let selected = choices.selected, workers.indices.contains(selected) {
            let worker = workers[selected]
            lines += [TopLine(), TopLine("worker \(worker.name)", .heading)]
            guard let own = worker.figures else { return lines }
            figures = own
        } else {
            figures = sum
            if !workers.contains(where: { $0.figures != nil }) { return lines }
            if workers.count > 1 { lines += [TopLine(), TopLine("all workers", .heading)] }
        }
        for section in [
            heldPushes(figures), operatorPauses(figures), rates(figures), pools(figures), queues(figures),
            partitions(figures),
            store(figures),
            loops(figures),
            errors(figures),
        ] where !section.isEmpty {
            lines.append(TopLine())
            lines += section
        }
        return lines
    }

    private var heading: TopLine {
        var line = TopLine("sluice top", .heading)
        line.add("  \(Numbers.counted(workers.count, "worker"))")
        let ready = workers.count { $0.state == .ready }
        line.add(", \(ready) ready", ready == workers.count ? .good : .warning)
        let down = workers.count { if case .down = $0.state { true } else { false } }
        if down > 0 { line.add(", \(down) down", .bad) }
        if !clock.isEmpty { line.add("  \(clock)") }
        if choices.isPaused { line.add("  paused", .warning) }
        return line
    }

    // MARK: Workers

    private var workerTable: [TopLine] {
        var table = TopTable(
            leftColumns: 2,
            [
                "WORKER", "STATE", "JOBS/S", "PUSHES/S", "OUT/S", "P50", "P99", "IN FLIGHT", "LAG",
                "OLDEST", "BUSY",
                "CPU", "MEMORY", "FDS",
            ])
        for index in ordered {
            table.add(row(workers[index].name, workers[index], isSelected: choices.selected == index))
        }
        if workers.count > 1 {
            let total = TopWorker(name: "sum", state: .ready, figures: sum)
            table.add(row("sum", total, isSelected: choices.selected == nil, isSum: true))
        }
        var lines = table.lines
        for worker in ordered.map({ workers[$0] }) {
            switch worker.state {
            case .down(let reason): lines.append(TopLine("  \(worker.name): \(reason)", .bad))
            case .notReady(let reasons):
                lines += reasons.prefix(4).map { TopLine("  \(worker.name): \($0)", .warning) }
            case .asking, .ready: break
            }
            lines += worker.faults.map { TopLine("  \(worker.name): metrics: \($0)", .warning) }
        }
        return lines
    }

    /// Indices of the workers in the order chosen. Unknown figures are last.
    private var ordered: [Int] {
        func figure(_ index: Int) -> Double {
            guard let figures = workers[index].figures else { return -1 }
            switch choices.order {
            case .name: return 0
            case .jobs: return figures.jobs ?? -1
            case .latency: return figures.jobLatency?.quantile(0.99) ?? -1
            case .lag: return Self.lag(figures) ?? -1
            case .busy: return figures.loops.map(\.busy).max() ?? -1
            }
        }
        if choices.order == .name { return Array(workers.indices) }
        return workers.indices.sorted { (figure($0), -$0) > (figure($1), -$1) }
    }

    private static func lag(_ figures: WorkerFigures) -> Double? {
        let known = figures.partitions.compactMap(\.lag)
        return known.isEmpty ? nil : known.reduce(0, +)
    }

    private func row(
        _ name: String, _ worker: TopWorker, isSelected: Bool, isSum: Bool = false
    )
        -> [TopLine]
    {
        let state: TopLine =
            switch worker.state {
            case .asking: TopLine("…", .faint)
            case .ready: isSum ? TopLine("") : TopLine("ready", .good)
            case .notReady: TopLine("not ready", .warning)
            case .down: TopLine("down", .bad)
            }
        let figures = worker.figures ?? WorkerFigures()
        let outcomes = figures.outcomes.isEmpty ? nil : figures.outcomes.values.reduce(0, +)
        let busiest = figures.loops.map(\.busy).max()
        let cells: [TopLine] = [
            TopLine(name, isSelected ? .heading : .plain), state, TopLine(N.count(figures.jobs)),
            TopLine(N.count(figures.pushes)), TopLine(N.count(outcomes)),
            TopLine(N.seconds(figures.jobLatency?.quantile(0.5))),
            TopLine(N.seconds(figures.jobLatency?.quantile(0.99))),
            TopLine(N.ratio(N.count(figures.outstanding), N.count(figures.outstandingLimit))),
            TopLine(N.count(Self.lag(figures))),
            TopLine(N.seconds(figures.partitions.compactMap(\.headOfLine).max())),
            TopLine(N.percent(busiest), busiest ?? 0 > 0.8 ? .warning : .plain),
            TopLine(N.percent(figures.cpu)),
            TopLine(N.bytes(figures.memory)),
            TopLine(
                N.ratio(N.count(figures.descriptors), isSum ? N.unknown : N.count(figures.descriptorsLimit))
            ),
        ]
        return cells
    }

    // MARK: Sections

    private func rates(_ figures: WorkerFigures) -> [TopLine] {
        var lines = [TopLine("OUTCOMES/S", .heading)]
        var outcomes = TopLine("  ")
        let order = [
            "accepted", "confirmed", "rejected", "expired", "superseded", "cancelled", "undeliverable",
        ]
        let others = figures.outcomes.keys.filter { !order.contains($0) }.sorted()
        for kind in order + others {
            let rate = figures.outcomes[kind] ?? (figures.outcomes.isEmpty ? nil : 0)
            let isBad = kind == "rejected" || kind == "undeliverable"
            outcomes.add("\(kind) ", .faint)
            outcomes.add("\(N.count(rate))  ", isBad && rate ?? 0 > 0 ? .warning : .plain)
        }
        outcomes.add("dead letters ", .faint)
        outcomes.add(N.count(figures.deadLetters), figures.deadLetters ?? 0 > 0 ? .warning : .plain)
        lines.append(outcomes)
        var pushes = TopLine("  ")
        for (name, value) in [
            ("pushes", figures.pushes), ("retries", figures.retries), ("unanswered", figures.unanswered),
        ] {
            pushes.add("\(name) ", .faint)
            pushes.add("\(N.count(value))  ")
        }
        lines.append(pushes)
        lines.append(TopLine())
        var table = TopTable(leftColumns: 1, ["LATENCY", "P50", "P99", "OBSERVED"])
        for (name, histogram) in [
            ("due → outcome", figures.jobLatency), ("polled → sent", figures.pickupLatency),
            ("sent → answered", figures.pushLatency),
        ] {
            table.add([
                TopLine(name), TopLine(N.seconds(histogram?.quantile(0.5))),
                TopLine(N.seconds(histogram?.quantile(0.99))), TopLine(N.count(histogram?.total)),
            ])
        }
        return lines + table.lines
    }

    private func pools(_ figures: WorkerFigures) -> [TopLine] {
        guard !figures.pools.isEmpty else { return [] }
        var table = TopTable(
            leftColumns: 3,
            [
                "CREDENTIAL", "ENVIRONMENT", "CONNECTIONS", "STREAMS", "FREE", "WAITING", "OLDEST", "P50",
                "P99",
                "CIRCUIT", "TOKEN", "EXPIRES",
            ])
        for (key, pool) in figures.pools.sorted(by: { $0.key < $1.key }) {
            table.add([
                TopLine(key.credential.isEmpty ? "all" : key.credential),
                TopLine(key.environment.isEmpty ? N.unknown : key.environment), connections(pool),
                TopLine(N.count(pool.streamsInUse)), TopLine(N.count(pool.streamsFree)),
                TopLine(N.count(pool.waiting)),
                TopLine(N.seconds(pool.oldest)), TopLine(N.seconds(pool.latency?.quantile(0.5))),
                TopLine(N.seconds(pool.latency?.quantile(0.99))), circuit(pool),
                pool.resting ?? 0 > 0
                    ? TopLine("rests", .warning) : TopLine(N.seconds(pool.tokenIssued.map { now - $0 })),
                expiry(pool),
            ])
        }
        return table.lines
    }

    /// Connections by state, such as `3/4 active 2 opening 1`.
    private func connections(_ pool: WorkerFigures.PoolFigures) -> TopLine {
        guard !pool.connections.isEmpty else { return TopLine(N.unknown) }
        var line = TopLine(N.ratio(N.count(pool.connections.values.reduce(0, +)), N.count(pool.target)))
        for (state, count) in pool.connections.sorted(by: { $0.key < $1.key })
        where count > 0 && !state.isEmpty {
            line.add(" \(state) \(N.count(count))", state == "suspected" ? .warning : .faint)
        }
        return line
    }

    private func circuit(_ pool: WorkerFigures.PoolFigures) -> TopLine {
        if let stopped = pool.stopped, stopped > 0 {
            return TopLine("\(N.count(stopped)) stopped", .bad)
        }
        guard let open = pool.openCircuits else { return TopLine(N.unknown) }
        return open > 0 ? TopLine("\(N.count(open)) open", .bad) : TopLine("closed", .good)
    }

    private func expiry(_ pool: WorkerFigures.PoolFigures) -> TopLine {
        if pool.faulty ?? 0 > 0 { return TopLine("faulty file", .bad) }
        guard let expiry = pool.expiry else { return TopLine(N.unknown) }
        let rest = expiry - now
        if rest <= 0 { return TopLine("expired", .bad) }
        return TopLine("in \(N.seconds(rest))", rest < 14 * 86_400 ? .warning : .plain)
    }

    private func queues(_ figures: WorkerFigures) -> [TopLine] {
        var lines = [TopLine("QUEUES", .heading)]
        var held = TopLine("  in memory: ", .faint)
        held.add("\(N.ratio(N.count(figures.outstanding), N.count(figures.outstandingLimit))) jobs, ")
        held.add(N.ratio(N.bytes(figures.bytes), N.bytes(figures.bytesLimit)))
        for (state, count) in figures.held.sorted(by: { $0.key < $1.key }) where count > 0 {
            held.add("  \(state) ", .faint)
            held.add(N.count(count))
        }
        lines.append(held)
        if !figures.priorities.isEmpty {
            var line = TopLine("  waiting for a stream:", .faint)
            for (priority, queue) in figures.priorities.sorted(by: { Int($0.key) ?? 0 > Int($1.key) ?? 0 }
            ) {
                line.add("  priority \(priority.isEmpty ? N.unknown : priority) ", .faint)
                line.add("\(N.count(queue.depth)), oldest \(N.seconds(queue.oldest))")
            }
            lines.append(line)
        }
        if !figures.apps.isEmpty {
            var line = TopLine("  by app (waiting, in flight):", .faint)
            let most = figures.apps.sorted {
                ($0.value.waiting + $0.value.inFlight, $1.key) > (
                    $1.value.waiting + $1.value.inFlight, $0.key
                )
            }
            for (app, queue) in most.prefix(8) {
                line.add("  \(app) ", .faint)
                line.add("\(N.count(queue.waiting)), \(N.count(queue.inFlight))")
            }
            if most.count > 8 { line.add("  and \(most.count - 8) more", .faint) }
            lines.append(line)
        }
        if let stopped = figures.topicsStopped, stopped > 0 {
            lines.append(
                TopLine("  \(Numbers.counted(Int(min(stopped, 1e9)), "topic")) stopped: see the log", .bad))
        }
        return lines
    }

    /// Pauses by operators, so that nobody searches for a fault of pushes that were told to wait.
    private func operatorPauses(_ figures: WorkerFigures) -> [TopLine] {
        guard !figures.operatorPauses.isEmpty else { return [] }
        let scopes = figures.operatorPauses.sorted()
        var line = TopLine("PAUSED BY AN OPERATOR", .heading)
        line.add("  " + scopes.prefix(8).joined(separator: ", "), .warning)
        if scopes.count > 8 { line.add("  and \(scopes.count - 8) more", .faint) }
        return [line]
    }

    /// Workers that begin no push, so that nobody searches for a fault of APNs.
    private func heldPushes(_ figures: WorkerFigures) -> [TopLine] {
        guard let held = figures.heldWorkers, held > 0 else { return [] }
        var line = TopLine("PUSHES HELD", .heading)
        line.add(
            "  \(Numbers.counted(Int(min(held, 1e9)), "worker")) can't commit: see /readyz and the log", .bad)
        return [line]
    }

    private func partitions(_ figures: WorkerFigures) -> [TopLine] {
        guard figures.assigned != nil || !figures.partitions.isEmpty else { return [] }
        var title = TopLine("PARTITIONS", .heading)
        title.add("  \(N.count(figures.assigned)) assigned")
        for (cause, count) in figures.paused.sorted(by: { $0.key < $1.key }) {
            title.add(
                "  \(N.count(count)) paused\(cause.isEmpty ? "" : " (\(cause == "paused" ? "operator" : cause))")",
                .warning)
        }
        let hasWorkers = choices.selected == nil && workers.count > 1
        var table = TopTable(
            leftColumns: hasWorkers ? 2 : 1,
            (hasWorkers ? ["WORKER"] : []) + [
                "PARTITION", "LAG", "LAG TIME", "UNCOMMITTED", "HEAD OF LINE",
            ])
        let worst = figures.partitions.sorted {
            ($0.lag ?? 0, $0.headOfLine ?? 0) > ($1.lag ?? 0, $1.headOfLine ?? 0)
        }
        for partition in worst.prefix(Self.mostPartitions) {
            let place =
                partition.topic.isEmpty ? partition.partition : "\(partition.topic)[\(partition.partition)]"
            table.add(
                (hasWorkers ? [TopLine(partition.worker)] : []) + [
                    TopLine(place), TopLine(N.count(partition.lag)), TopLine(N.seconds(partition.lagSeconds)),
                    TopLine(N.count(partition.uncommitted)), TopLine(N.seconds(partition.headOfLine)),
                ])
        }
        var lines = [title] + (worst.isEmpty ? [] : table.lines)
        if worst.count > Self.mostPartitions {
            lines.append(TopLine("  and \(worst.count - Self.mostPartitions) with less lag", .faint))
        }
        return lines
    }

    /// Most partitions that are listed; those with the greatest lag.
    private static let mostPartitions = 16

    private func store(_ figures: WorkerFigures) -> [TopLine] {
        guard let store = figures.store else { return [] }
        var line = TopLine("STORE", .heading)
        line.add(
            "  \(N.count(store.items)) items, \(N.bytes(store.disk)) on disk, \(N.bytes(store.free)) free"
        )
        line.add(", \(N.bytes(store.queued)) queued")
        if store.isFailing { line.add("  FAILING", .bad) }
        if store.isWriteStopped { line.add("  writes wait for compactions", .warning) }
        if let restoring = store.restoring, restoring > 0 {
            line.add(
                "  \(N.count(restoring)) partitions being restored, \(N.count(store.remaining)) records remain",
                .warning)
        }
        return [line]
    }

    private func loops(_ figures: WorkerFigures) -> [TopLine] {
        guard !figures.loops.isEmpty else { return [] }
        var line = TopLine("LOOPS", .heading)
        for (name, busy) in figures.loops {
            line.add("  \(name) ", .faint)
            line.add(N.percent(busy), busy > 0.8 ? .warning : .plain)
        }
        return [line]
    }

    private func errors(_ figures: WorkerFigures) -> [TopLine] {
        guard !figures.errors.isEmpty else { return [] }
        var table = TopTable(leftColumns: 2, ["ERRORS", "REASON", "PER S", "SINCE START"])
        let sorted = figures.errors.sorted {
            ($0.value.rate ?? 0, $0.value.total, $1.key) > ($1.value.rate ?? 0, $1.value.total, $0.key)
        }
        for (key, error) in sorted.prefix(20) {
            let style: TopLine.Style = error.rate ?? 0 > 0 ? .warning : .plain
            table.add([
                TopLine(key.family, style), TopLine(key.reason), TopLine(N.count(error.rate)),
                TopLine(N.count(error.total)),
            ])
        }
        return table.lines
    }
}
