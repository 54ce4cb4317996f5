/// Reason why results can't be merged.
public struct MergeFault: Error, Equatable {
    /// Names the results, by their numbers from 1 on, and the remedy.
    public var message: String
}

extension RunResult {
    /// Merges results of several generators of one load.
    ///
    /// Counts and histograms add. Seconds are aligned by the start of each generator, to the nearest second. Figures of
    /// workers and machines, which each generator may have observed, are the greater ones.
    ///
    /// - Parameter judge: thresholds of the merged result.
    public static func merged(
        _ results: [RunResult], judge: (RunResult) throws -> [Threshold]
    ) throws -> RunResult {
        guard let first = results.first else { throw MergeFault(message: "there is no result to merge") }
        guard results.count > 1 else {
            throw MergeFault(
                message: "there is a single result; a merge needs the results of several generators")
        }
        try checkSame(results)
        let start = results.map(\.environment.startedMilliseconds).min() ?? 0
        let offsets = results.map { Double($0.environment.startedMilliseconds - start) / 1_000 }
        try checkOverlap(results, offsets)

        var merged = first
        merged.environment = environment(results, start: start)
        merged.scenario.overrides = unique(results.flatMap(\.scenario.overrides))
        merged.loads = try loads(results)
        merged.seconds = addedSeconds(results, offsets)
        merged.phases = try first.phases.indices.map { try phase(at: $0, results, offsets, merged.seconds) }
        merged.processes = processes(results)
        merged.annotations = zip(results, offsets).flatMap { result, offset in
            result.annotations.map { annotation in
                var moved = annotation
                moved.at += offset
                moved.until = annotation.until.map { $0 + offset }
                return moved
            }
        }
        // Several generators may note the same step of the same fault timeline.
        var seen: [Annotation] = []
        for annotation in merged.annotations.sorted(by: { $0.at < $1.at })
        where !seen.reversed().prefix(while: { annotation.at - $0.at < 1 })
            .contains(where: { $0.kind == annotation.kind && $0.text == annotation.text })
        {
            seen.append(annotation)
        }
        merged.annotations = seen
        if let last = offsets.max(), last > 0.05 {
            merged.annotations.append(
                Annotation(
                    at: 0, until: nil, kind: .note,
                    text:
                        "the generators began within \(FigureText.number(last)) s of each other; a phase lasts while it"
                        + " lasts for all of them"))
        }
        merged.annotations = merged.annotations.bounded()
        merged.audit = results.dropFirst().reduce(into: first.audit) { $0.add($1.audit) }
        if readOneCluster(results) {
            merged.audit.unknown = unknownOutcomes(results)
            // Each generator reads the same topics, and so counts the same unreadable records.
            merged.audit.unreadable = results.map(\.audit.unreadable).max() ?? 0
        }
        merged.generator = Generator(
            producers: results.reduce(0) { $0 + $1.generator.producers },
            wasLimit: results.contains(where: \.generator.wasLimit),
            reason: results.enumerated().filter(\.element.generator.wasLimit)
                .map { "generator \($0.offset + 1): \($0.element.generator.reason)" }.joined(separator: "; "),
            delay: results.reduce(into: HDRHistogram()) { $0.add($1.generator.delay) })
        merged.reader = reader(results)
        merged.thresholds = []
        merged.thresholds = try judge(merged)
        return merged
    }

    /// Merges results, and judges the whole by the thresholds of the scenario.
    /// - Throws: ``MergeFault``
    public static func merged(_ results: [RunResult]) throws -> RunResult {
        try merged(results) { whole in
            do {
                return try LoadScenario.read(whole.scenario.text, name: "scenario of the results")
                    .judged(whole)
            } catch {
                throw MergeFault(message: "the results' scenario can't be read: \(error)")
            }
        }
    }

    // MARK: Conditions

    private static func checkSame(_ results: [RunResult]) throws {
        let first = results[0]
        for (index, result) in results.enumerated().dropFirst() {
            let number = index + 1
            guard result.scenario.name == first.scenario.name else {
                throw MergeFault(
                    message:
                        "result 1 is of scenario \(first.scenario.name), result \(number) of \(result.scenario.name);"
                        + " merge results of one scenario")
            }
            let different = differences(first.scenario, result.scenario)
            guard different.isEmpty else {
                throw MergeFault(
                    message: "results 1 and \(number) of scenario \(first.scenario.name) differ in"
                        + " \(different.joined(separator: ", ")); run all generators with the same load, and with seeds of"
                        + " their own")
            }
            guard result.phases.map(\.name) == first.phases.map(\.name),
                result.phases.map(\.kind) == first.phases.map(\.kind)
            else {
                throw MergeFault(
                    message: "results 1 and \(number) have different phases; merge results of one scenario")
            }
        }
        for (index, result) in results.enumerated() {
            if let other = results[..<index].firstIndex(where: { $0 == result }) {
                throw MergeFault(
                    message: "results \(other + 1) and \(index + 1) are the same run; name each result once")
            }
        }
    }

    private static func checkOverlap(_ results: [RunResult], _ offsets: [Double]) throws {
        for (index, (result, offset)) in zip(results, offsets).enumerated() {
            let other = offsets.firstIndex(of: 0) ?? 0
            let end = results[other].phases.filter { $0.kind != .drain }.map(\.to).max() ?? 0
            guard offset > 0, offset >= end || offset > 500_000 else { continue }
            throw MergeFault(
                message:
                    "result \(index + 1) of scenario \(result.scenario.name) began \(FigureText.number(offset)) s after"
                    + " result \(other + 1), when that load was over; start all generators together, and compare the"
                    + " machines' clocks")
        }
    }

    /// Settings by which the scenarios of two results describe different loads; empty when they agree. Seed, target,
    /// workers and threads of the generator may differ.
    private static func differences(_ one: Scenario, _ two: Scenario) -> [String] {
        guard let first = try? LoadScenario.read(one.text, name: one.name),
            let second = try? LoadScenario.read(two.text, name: two.name)
        else { return withoutSeed(one.text) == withoutSeed(two.text) ? [] : ["text"] }
        var found: [String] = []
        if first.timeScale != second.timeScale { found.append("time-scale") }
        if first.devices != second.devices { found.append("devices") }
        if first.apps != second.apps { found.append("apps") }
        if first.loads != second.loads { found.append("loads") }
        if first.phases != second.phases { found.append("phases") }
        if first.thresholds != second.thresholds { found.append("thresholds") }
        return found
    }

    /// Whether all generators read the topics of one cluster. Each generator with an embedded cluster has its own.
    private static func readOneCluster(_ results: [RunResult]) -> Bool {
        let target = results[0].scenario.target
        // "simulator apns:443" and "staging apns:443" have an embedded cluster, with a third word they have brokers.
        let words = target.split(separator: " ")
        let isGiven = words.first == "kafka" ? words.count > 1 : words.count > 2
        return isGiven && results.allSatisfy { $0.scenario.target == target }
    }

    /// Outcomes of no generator, when all generators read the topics of one cluster.
    ///
    /// Each generator counts the outcomes of the others as unknown. An excess over these is unknown to all.
    private static func unknownOutcomes(_ results: [RunResult]) -> Int {
        results.indices.map { index in
            let others = results.indices.filter { $0 != index }
                .reduce(0) { $0 + results[$1].audit.once + 2 * results[$1].audit.doubled }
            return max(0, results[index].audit.unknown - others)
        }.max() ?? 0
    }

    /// Scenario without the seed, which generators of one load have of their own.
    private static func withoutSeed(_ text: String) -> [Substring] {
        text.split(separator: "\n").filter { !$0.hasPrefix("seed:") }
    }

    private static func unique(_ texts: [String]) -> [String] {
        var seen: [String] = []
        for text in texts where !seen.contains(text) { seen.append(text) }
        return seen
    }

    // MARK: Parts

    private static func environment(_ results: [RunResult], start: Int64) -> Environment {
        let all = results.map(\.environment)
        var merged = all[0]
        func joined(_ text: (Environment) -> String) -> String {
            unique(all.map(text)).joined(separator: "; ")
        }
        merged.startedMilliseconds = start
        merged.version = joined(\.version)
        merged.commit = joined(\.commit)
        merged.system = joined(\.system)
        merged.processor = joined(\.processor)
        merged.cores = all.reduce(0) { $0 + $1.cores }
        merged.memoryBytes = all.reduce(0) { $0 + $1.memoryBytes }
        merged.loadBefore = all.map(\.loadBefore).max() ?? 0
        merged.noise = Noise(
            quietNanoseconds: all.map(\.noise.quietNanoseconds).max() ?? 0,
            medianSlowdown: all.map(\.noise.medianSlowdown).max() ?? 0,
            worstSlowdown: all.map(\.noise.worstSlowdown).max() ?? 0,
            stolenShare: all.map(\.noise.stolenShare).max() ?? 0,
            othersShare: all.compactMap(\.noise.othersShare).max())
        return merged
    }

    /// A phase lasts while it lasts for all generators; its counts are those of this time. Latency is that of all jobs.
    private static func phase(
        at index: Int, _ results: [RunResult], _ offsets: [Double], _ seconds: [Second]
    ) throws -> Phase {
        var merged = results[0].phases[index]
        merged.from += offsets[0]
        merged.to += offsets[0]
        var outcomes = merged.outcomes
        var time = merged.cpuMicrosecondsPerOutcome.map { $0 * Double(merged.outcomes) }
        for (result, offset) in zip(results, offsets).dropFirst() {
            let phase = result.phases[index]
            merged.from = max(merged.from, phase.from + offset)
            merged.to = min(merged.to, phase.to + offset)
            merged.latency.add(phase.latency)
            merged.byKind = phase.byKind.flatMap { merged.byKind?.merging($0, uniquingKeysWith: +) }
            merged.jobs = sum(merged.jobs, phase.jobs)
            merged.attempts = sum(merged.attempts, phase.attempts)
            outcomes += phase.outcomes
            if let cost = phase.cpuMicrosecondsPerOutcome {
                time = (time ?? 0) + cost * Double(phase.outcomes)
            }
        }
        merged.cpuMicrosecondsPerOutcome = outcomes > 0 ? time.map { $0 / Double(outcomes) } : nil
        guard merged.from < merged.to || merged.kind != .main else {
            throw MergeFault(
                message:
                    "no time is in phase \(merged.name) of all results of scenario \(results[0].scenario.name); start all"
                    + " generators together, and compare the machines' clocks")
        }
        merged.to = max(merged.from, merged.to)
        var (intended, produced, read) = (0.0, 0.0, 0.0)
        for (place, second) in seconds.enumerated() {
            let share = min(merged.to, Double(place + 1)) - max(merged.from, Double(place))
            guard share > 0 else { continue }
            intended += share * Double(second.intended)
            produced += share * Double(second.produced)
            read += share * Double(second.allOutcomes + second.deadLetters)
        }
        merged.intended = Int(intended.rounded())
        merged.produced = Int(produced.rounded())
        merged.outcomes = Int(read.rounded())
        return merged
    }

    private static func loads(_ results: [RunResult]) throws -> [Load]? {
        guard var merged = results[0].loads else { return nil }
        for (number, result) in results.enumerated().dropFirst() {
            guard let loads = result.loads, loads.map(\.name) == merged.map(\.name) else {
                throw MergeFault(
                    message: "results 1 and \(number + 1) have different loads; merge results of one scenario"
                )
            }
            for (index, load) in loads.enumerated() {
                merged[index].seconds = max(merged[index].seconds, load.seconds)
                merged[index].intended += load.intended
                merged[index].produced += load.produced
                merged[index].outcomes += load.outcomes
                merged[index].latency.add(load.latency)
                merged[index].byKind.merge(load.byKind, uniquingKeysWith: +)
                merged[index].jobs = sum(merged[index].jobs, load.jobs)
            }
        }
        return merged
    }

    /// Sum of two counts; nil unless both are known.
    private static func sum(_ one: Int?, _ two: Int?) -> Int? {
        guard let one, let two else { return nil }
        return one + two
    }

    private static func addedSeconds(_ results: [RunResult], _ offsets: [Double]) -> [Second] {
        let names = processNames(results)
        var seconds: [Second] = []
        for (place, (result, offset)) in zip(results, offsets).enumerated() {
            let shift = Int(offset.rounded())
            for (index, second) in result.seconds.enumerated() {
                while seconds.count <= index + shift { seconds.append(Second()) }
                var named = second
                named.cpuSeconds = [:]
                for (name, time) in second.cpuSeconds { named.cpuSeconds[names[place][name] ?? name] = time }
                named.residentBytes = [:]
                for (name, size) in second.residentBytes {
                    named.residentBytes[names[place][name] ?? name] = size
                }
                let open = seconds[index + shift].open + second.open
                seconds[index + shift].add(named)
                seconds[index + shift].open = open
            }
        }
        return seconds
    }

    /// New names of each result's processes: a name that several results have is followed by the result's number.
    private static func processNames(_ results: [RunResult]) -> [[String: String]] {
        let all = results.map { result in
            Set(result.processes.map(\.name)).union(result.seconds.flatMap { $0.cpuSeconds.keys })
                .union(result.seconds.flatMap { $0.residentBytes.keys })
        }
        return all.enumerated().map { index, names in
            Dictionary(
                uniqueKeysWithValues: names.map { name in
                    let isShared = all.filter { $0.contains(name) }.count > 1
                    return (name, isShared ? "\(name) of generator \(index + 1)" : name)
                })
        }
    }

    /// Readers of all generators; nil when no result has one.
    private static func reader(_ results: [RunResult]) -> Reader? {
        let readers = results.compactMap(\.reader)
        guard !readers.isEmpty else { return nil }
        let reasons = results.enumerated().compactMap { index, result in
            result.reader.flatMap { $0.wasLimit ? "generator \(index + 1): \($0.reason)" : nil }
        }
        return Reader(
            wasLimit: !reasons.isEmpty, reason: reasons.joined(separator: "; "),
            delay: readers.reduce(into: HDRHistogram()) { $0.add($1.delay) })
    }

    private static func processes(_ results: [RunResult]) -> [Process] {
        let names = processNames(results)
        let outcomes = results.reduce(0) { $0 + $1.mainOutcomes }
        return results.enumerated().flatMap { index, result in
            result.processes.map { process in
                var named = process
                named.name = names[index][process.name] ?? process.name
                named.cpuMicrosecondsPerOutcome =
                    outcomes > 0 ? process.cpuSeconds * 1e6 / Double(outcomes) : nil
                return named
            }
        }
    }
}

extension RunResult.Audit {
    /// Adds the counts of another generator.
    mutating func add(_ other: RunResult.Audit) {
        func sum(_ one: Int?, _ two: Int?) -> Int? {
            guard let one, let two else { return one ?? two }
            return one + two
        }
        produced += other.produced
        refused += other.refused
        once += other.once
        missing += other.missing
        doubled += other.doubled
        unknown += other.unknown
        unreadable += other.unreadable
        byKind.merge(other.byKind, uniquingKeysWith: +)
        byReason.merge(other.byReason, uniquingKeysWith: +)
        attempts += other.attempts
        simulatorRequests = sum(simulatorRequests, other.simulatorRequests)
        early += other.early
        notProduced += other.notProduced
    }
}
