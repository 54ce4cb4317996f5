/// Figures of the main phases.
extension RunResult {
    var mainPhases: [Phase] { phases.filter { $0.kind == .main } }

    /// Length of the main phases in seconds.
    public var mainSeconds: Double { mainPhases.reduce(0) { $0 + max(0, $1.to - $1.from) } }

    /// Latency of all jobs of the main phases.
    public var mainLatency: HDRHistogram {
        mainPhases.reduce(into: HDRHistogram()) { $0.add($1.latency) }
    }

    public var mainIntended: Int { mainPhases.reduce(0) { $0 + $1.intended } }
    public var mainProduced: Int { mainPhases.reduce(0) { $0 + $1.produced } }
    public var mainOutcomes: Int { mainPhases.reduce(0) { $0 + $1.outcomes } }

    /// Outcomes a second in the main phases; nil when these have no length.
    public var mainRate: Double? { mainSeconds > 0 ? Double(mainOutcomes) / mainSeconds : nil }

    /// Processor time of the gateway's processes ÷ outcomes in the main phases, in microseconds; nil when not measured.
    public var mainCPUMicrosecondsPerOutcome: Double? {
        var (time, outcomes) = (0.0, 0.0)
        for phase in mainPhases {
            guard let cost = phase.cpuMicrosecondsPerOutcome else { continue }
            time += cost * Double(phase.outcomes)
            outcomes += Double(phase.outcomes)
        }
        return outcomes > 0 ? time / outcomes : nil
    }

    /// Pushes with an intended time in the main phases: by the kind of their first outcome, and all that Kafka has. A
    /// result without counts of phases has those of the whole run, device events included.
    var mainPushes: (byKind: [String: Int], jobs: Int) {
        let kinds = mainPhases.compactMap(\.byKind)
        guard kinds.count == mainPhases.count, !kinds.isEmpty else {
            return (audit.byKind, audit.produced - audit.refused)
        }
        let byKind = kinds.reduce(into: [:]) { $0.merge($1, uniquingKeysWith: +) }
        let counts = mainPhases.compactMap(\.jobs)
        let jobs = counts.count == kinds.count ? counts.reduce(0, +) : byKind.values.reduce(0, +)
        return (byKind, jobs)
    }

    /// Attempts at delivery ÷ jobs with an outcome, of the pushes with an intended time in the main phases; nil without such
    /// jobs. A result without attempts of phases has the figure of the whole run.
    var attemptsPerJob: Double? {
        let attempts = mainPhases.compactMap(\.attempts)
        guard attempts.count == mainPhases.count, !attempts.isEmpty else {
            let finished = audit.once + audit.doubled
            return finished > 0 ? Double(audit.attempts) / Double(finished) : nil
        }
        let finished = mainPushes.byKind.values.reduce(0, +)
        return finished > 0 ? Double(attempts.reduce(0, +)) / Double(finished) : nil
    }

    /// Whether the gateway has kept up with loads in the main phases: 98 % of their intended jobs have an outcome within a
    /// second, and a fiftieth of the main phases' length, after they were due. False without jobs.
    /// - Parameter names: names of open loops.
    public func hasKeptUp(loads names: Set<String>) -> Bool {
        let chosen = (loads ?? []).filter { names.contains($0.name) }
        let intended = chosen.reduce(0) { $0 + $1.intended }
        let longest = 1e6 + mainSeconds * 1e6 / 50
        let timely = chosen.reduce(0) { sum, load in
            load.latency.buckets.reduce(sum) { Double($1.microseconds) <= longest ? $0 + $1.count : $0 }
        }
        return intended > 0 && Double(timely) >= 0.98 * Double(intended)
    }

    /// Whole seconds within the main phases.
    var mainSecondIndices: [Int] {
        seconds.indices.filter { index in
            mainPhases.contains { $0.from <= Double(index) + 0.001 && Double(index + 1) <= $0.to + 0.001 }
        }
    }

    /// Reasons to doubt the figures, in sentences; empty when there is none.
    public var warnings: [String] {
        var found: [String] = []
        let noise = environment.noise
        if generator.wasLimit {
            found.append(
                "The generator, not the gateway, limited the load"
                    + (generator.reason.isEmpty ? "." : ": \(generator.reason).")
                    + " Rate and latency describe the generator.")
        }
        if let reader, reader.wasLimit {
            found.append(
                "The reader of outcomes, not the gateway, was slow"
                    + (reader.reason.isEmpty ? "." : ": \(reader.reason).")
                    + " Latency, and the rate of closed loops, describe the reader.")
        }
        if noise.medianSlowdown >= 1.2 || noise.worstSlowdown >= 3 {
            found.append(
                "The machine was slow beside the load: a fixed calculation took"
                    + " \(FigureText.number(noise.medianSlowdown)) times its quiet time in the median, and"
                    + " \(FigureText.number(noise.worstSlowdown)) times at the 99th percentile.")
        }
        if noise.stolenShare >= 0.01 {
            found.append(
                "The hypervisor gave \(FigureText.percent(noise.stolenShare)) of the processor time to other machines."
            )
        }
        if let others = noise.othersShare, others >= 0.1 {
            found.append(
                "Processes outside of the run used \(FigureText.percent(others)) of the processor time.")
        }
        if environment.loadBefore > Double(environment.cores) / 2 {
            found.append(
                "The machine was busy before the load: load average \(FigureText.number(environment.loadBefore)) on"
                    + " \(FigureText.count(environment.cores)) cores.")
        }
        let jobs = mainLatency.count
        if jobs == 0 {
            found.append("No job of a main phase has an outcome, so that there is no latency.")
        } else if jobs < 1_000 {
            found.append(
                "The main phases have \(FigureText.count(jobs)) jobs with an outcome. Percentiles above"
                    + " \(FigureText.number(100 - 1_000 / Double(max(11, jobs)))) rest on fewer than ten of them."
            )
        }
        if mainIntended > 0, Double(mainProduced) < 0.99 * Double(mainIntended), !generator.wasLimit {
            found.append(
                "Only \(FigureText.count(mainProduced)) of \(FigureText.count(mainIntended)) intended jobs were produced in the"
                    + " main phases.")
        }
        return found
    }

    /// Mistake that the types don't exclude, such as a negative count, in words; nil for a sound result. Figures of a sound
    /// result can be added without overflow.
    public var fault: String? {
        if version != Self.currentVersion {
            return "version is \(version); this program reads version \(Self.currentVersion)"
        }
        if seconds.count > 1_000_000 {
            return "seconds has \(seconds.count) members; at most 1,000,000 are read"
        }
        if phases.count > 1_000 { return "phases has \(phases.count) members; at most 1,000 are read" }
        if annotations.count > Self.mostReadAnnotations {
            return "annotations has \(annotations.count) members; at most 10,000 are read"
        }
        let most = 1 << 40
        func bad(_ values: (String, Int?)...) -> String? {
            values.first { !(0...most).contains($0.1 ?? 0) }
                .map { "\($0.0) is \($0.1 ?? 0); the range is 0 to 2^40" }
        }
        func bad(_ values: (String, Double?)...) -> String? {
            values.first { !(0...1e12).contains($0.1 ?? 0) }
                .map { "\($0.0) is \($0.1 ?? 0); the range is 0 to 10^12" }
        }
        func bad(_ name: String, _ values: [String: Int]) -> String? {
            values.count > 10_000
                ? "\(name) has \(values.count) members; at most 10,000 are read"
                : values.lazy.compactMap { bad(("\(name).\($0.key)", $0.value)) }.first
        }
        func bad(_ name: String, _ latency: HDRHistogram) -> String? {
            bad(("\(name).count", latency.count), ("\(name).max_us", latency.greatest >> 3))
                ?? (latency.sum.isFinite && latency.sum >= 0 ? nil : "\(name).sum_us is not positive")
        }
        for (index, phase) in phases.enumerated() {
            let at = "phases[\(index)]"
            if phase.from > phase.to { return "\(at).from is after \(at).to" }
            if let fault = bad(("\(at).from", phase.from), ("\(at).to", phase.to))
                ?? bad(
                    ("\(at).intended", phase.intended), ("\(at).produced", phase.produced),
                    ("\(at).outcomes", phase.outcomes), ("\(at).jobs", phase.jobs),
                    ("\(at).attempts", phase.attempts))
                ?? bad(("\(at).cpuMicrosecondsPerOutcome", phase.cpuMicrosecondsPerOutcome))
                ?? bad("\(at).byKind", phase.byKind ?? [:]) ?? bad("\(at).latency", phase.latency)
            {
                return fault
            }
        }
        for (index, second) in seconds.enumerated() {
            let at = "seconds[\(index)]"
            if let fault = bad(
                ("\(at).intended", second.intended), ("\(at).produced", second.produced),
                ("\(at).deadLetters", second.deadLetters), ("\(at).open", second.open))
                ?? bad(
                    ("\(at).workers", second.workers), ("\(at).connections", second.connections),
                    ("\(at).streamsInUse", second.streamsInUse), ("\(at).streamsFree", second.streamsFree),
                    ("\(at).circuitsOpen", second.circuitsOpen), ("\(at).queued", second.queued),
                    ("\(at).stored", second.stored), ("\(at).lagRecords", second.lagRecords),
                    ("\(at).storeBytes", second.storeBytes.map { $0 >> 20 }))
                ?? bad(
                    ("\(at).generatorDelayMilliseconds", second.generatorDelayMilliseconds),
                    ("\(at).readerDelayMilliseconds", second.readerDelayMilliseconds),
                    ("\(at).slowdown", second.slowdown), ("\(at).queueAgeSeconds", second.queueAgeSeconds),
                    ("\(at).lagSeconds", second.lagSeconds), ("\(at).loopBusy", second.loopBusy))
                ?? bad("\(at).outcomes", second.outcomes) ?? bad("\(at).latency", second.latency)
                ?? bad("\(at).residentBytes", second.residentBytes.mapValues { $0 >> 20 })
                ?? second.cpuSeconds.lazy.compactMap({ bad(("\(at).cpuSeconds.\($0.key)", $0.value)) }).first
            {
                return fault
            }
        }
        for (index, load) in (loads ?? []).enumerated() {
            let at = "loads[\(index)]"
            if let fault = bad(("\(at).seconds", load.seconds))
                ?? bad(
                    ("\(at).intended", load.intended), ("\(at).produced", load.produced),
                    ("\(at).outcomes", load.outcomes), ("\(at).jobs", load.jobs))
                ?? bad("\(at).latency", load.latency) ?? bad("\(at).byKind", load.byKind)
            {
                return fault
            }
        }
        for (index, process) in processes.enumerated() {
            let at = "processes[\(index)]"
            if let fault = bad(
                ("\(at).cpuSeconds", process.cpuSeconds),
                ("\(at).cpuMicrosecondsPerOutcome", process.cpuMicrosecondsPerOutcome))
                ?? bad(("\(at).maximumResidentBytes", process.maximumResidentBytes >> 20))
            {
                return fault
            }
        }
        for (index, annotation) in annotations.enumerated() {
            if let fault = bad(
                ("annotations[\(index)].at", annotation.at), ("annotations[\(index)].until", annotation.until)
            ) {
                return fault
            }
        }
        return bad(
            ("audit.produced", audit.produced), ("audit.refused", audit.refused), ("audit.once", audit.once),
            ("audit.missing", audit.missing), ("audit.doubled", audit.doubled),
            ("audit.unknown", audit.unknown),
            ("audit.unreadable", audit.unreadable), ("audit.attempts", audit.attempts),
            ("audit.simulatorRequests", audit.simulatorRequests),
            ("audit.early", audit.early), ("audit.notProduced", audit.notProduced))
            ?? bad("audit.byKind", audit.byKind) ?? bad("audit.byReason", audit.byReason)
            ?? bad(
                ("generator.producers", generator.producers), ("environment.cores", environment.cores),
                ("environment.memoryBytes", environment.memoryBytes >> 20))
            ?? bad("generator.delay", generator.delay)
            ?? reader.flatMap { bad("reader.delay", $0.delay) }
            ?? bad(
                ("environment.startedMilliseconds", Double(environment.startedMilliseconds) / 1_000),
                ("environment.loadBefore", environment.loadBefore),
                ("environment.noise.quietNanoseconds", environment.noise.quietNanoseconds),
                ("environment.noise.medianSlowdown", environment.noise.medianSlowdown),
                ("environment.noise.worstSlowdown", environment.noise.worstSlowdown),
                ("environment.noise.stolenShare", environment.noise.stolenShare),
                ("environment.noise.othersShare", environment.noise.othersShare))
    }
}
