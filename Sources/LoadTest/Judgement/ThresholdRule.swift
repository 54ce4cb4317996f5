import Configuration

/// Bound of a figure of a run: `latency-p99: ≤ 50ms`, `alerts.rate: ≥ 90/s`, `lost: 0`.
public struct ThresholdRule: Sendable, Equatable {
    public enum Relation: String, Sendable {
        case most = "≤"
        case least = "≥"
    }

    enum Unit: String {
        case count = ""
        case milliseconds = "ms"
        case perSecond = "/s"
        case microseconds = "µs"
    }

    /// Name of the figure in the scenario, with its scope.
    public var name: String
    /// Name of a load or phase whose figure is meant; nil: the whole run, without warm-up.
    public var scope: String?
    var figure: Figure
    public var relation: Relation
    /// Bound in the figure's unit.
    public var bound: Double

    enum Figure: Equatable {
        case count(CountFigure)
        case share(String)
        case duplicatedShare
        case latency(percentile: Double)
        case latencyMean
        case rate
        case producedRate
        case delay(percentile: Double)
        case cpuPerJob
        case attemptsPerJob
        case slowdown
    }

    /// Figures of the audit.
    enum CountFigure: String, CaseIterable {
        case lost, duplicated, unknown, unreadable, refused, early
        case notProduced = "not-produced"
    }

    /// Kinds of outcomes, for shares.
    private static let kinds = [
        "accepted", "rejected", "expired", "superseded", "undeliverable", "cancelled", "confirmed",
        "dead-letter",
    ]

    /// Names of all figures.
    public static let figures: [String] =
        CountFigure.allCases.map(\.rawValue) + kinds.map { "\($0)-share" } + [
            "duplicated-share",
            "latency-p50", "latency-p90", "latency-p95", "latency-p99", "latency-p99.9", "latency-max",
            "latency-mean", "rate", "produced-rate", "generator-delay-p99", "cpu-per-job", "attempts-per-job",
            "slowdown",
        ]

    private static func figure(_ name: String) -> Figure? {
        if let count = CountFigure(rawValue: name) { return .count(count) }
        if name.hasSuffix("-share"), kinds.contains(String(name.dropLast(6))) {
            return .share(String(name.dropLast(6)))
        }
        if name == "latency-max" { return .latency(percentile: 100) }
        if name.hasPrefix("latency-p"), let percentile = Double(name.dropFirst(9)),
            (0...100).contains(percentile)
        {
            return .latency(percentile: percentile)
        }
        if name.hasPrefix("generator-delay-p"), let percentile = Double(name.dropFirst(17)),
            (0...100).contains(percentile)
        {
            return .delay(percentile: percentile)
        }
        switch name {
        case "duplicated-share": return .duplicatedShare
        case "latency-mean": return .latencyMean
        case "rate": return .rate
        case "produced-rate": return .producedRate
        case "cpu-per-job": return .cpuPerJob
        case "attempts-per-job": return .attemptsPerJob
        case "slowdown": return .slowdown
        default: return nil
        }
    }

    private static func unit(_ figure: Figure) -> Unit {
        switch figure {
        case .count, .share, .duplicatedShare, .attemptsPerJob, .slowdown: .count
        case .latency, .latencyMean, .delay: .milliseconds
        case .rate, .producedRate: .perSecond
        case .cpuPerJob: .microseconds
        }
    }

    /// Reads a threshold.
    /// - Parameter scopes: names of loads and phases.
    package static func parse(
        _ name: String, _ text: String, scopes: [String]
    ) -> Result<ThresholdRule, SettingFault> {
        var figureName = name[...]
        var scope: String?
        if figure(name) == nil, let point = name.firstIndex(of: ".") {
            scope = String(name[..<point])
            figureName = name[name.index(after: point)...]
        }
        if let scope, !scopes.contains(scope) {
            return .failure(
                SettingFault(
                    "there is no load and no phase `\(scope)`; there are \(scopes.joined(separator: ", "))"))
        }
        guard let figure = figure(String(figureName)) else {
            return .failure(
                SettingFault(
                    "there is no figure `\(figureName)`; there are \(figures.joined(separator: ", "))"))
        }
        if scope != nil {
            switch figure {
            case .latency, .latencyMean, .rate, .producedRate, .share: break
            default: return .failure(SettingFault("the figure `\(figureName)` exists for the whole run only"))
            }
        }
        let unit = unit(figure)
        var rest = text.trimmed
        var relation: Relation = [.rate, .producedRate, .share("accepted")].contains(figure) ? .least : .most
        for (sign, meant) in [("≤", Relation.most), ("<=", .most), ("≥", .least), (">=", .least)]
        where rest.hasPrefix(sign) {
            relation = meant
            rest = String(rest.dropFirst(sign.count)).trimmed
            break
        }
        guard let bound = value(rest, unit), bound >= 0, bound.isFinite else {
            let example =
                switch unit {
                case .milliseconds: "≤ 250ms"
                case .perSecond: "≥ 900/s"
                case .microseconds: "≤ 12.5µs"
                case .count: "≤ 0.01"
                }
            return .failure(SettingFault("`\(text)` is no bound; expected a bound such as `\(example)`"))
        }
        return .success(
            ThresholdRule(name: name, scope: scope, figure: figure, relation: relation, bound: bound))
    }

    private static func value(_ text: String, _ unit: Unit) -> Double? {
        switch unit {
        case .count: return Double(text)
        case .milliseconds:
            return DurationText.parse(text.filter { $0 != " " }).map { $0 / .milliseconds(1) }
                ?? (text.hasSuffix("ms") ? Double(text.dropLast(2).description.trimmed) : nil)
        case .perSecond:
            return Double(text.hasSuffix("/s") ? text.dropLast(2).description.trimmed : text)
        case .microseconds:
            for suffix in ["µs", "us"] where text.hasSuffix(suffix) {
                return Double(text.dropLast(suffix.count).description.trimmed)
            }
            return Double(text)
        }
    }

    /// The bound for people, such as "≤ 50 ms".
    public var boundText: String {
        let number = bound == bound.rounded() && bound < 1e15 ? "\(Int(bound))" : "\(bound)"
        let unit = Self.unit(figure)
        let space = unit == .milliseconds || unit == .microseconds ? " " : ""
        return "\(relation.rawValue) \(number)\(space)\(unit.rawValue)"
    }

    /// Measures the figure in a result, and judges it. A figure that can't be measured misses its bound.
    public func judged(_ result: RunResult) -> RunResult.Threshold {
        let value = measured(result).flatMap { $0.isFinite ? $0 : nil }
        let isMet = value.map { relation == .most ? $0 <= bound : $0 >= bound } ?? false
        return RunResult.Threshold(name: name, bound: boundText, value: value, isMet: isMet)
    }

    private func measured(_ result: RunResult) -> Double? {
        switch figure {
        case .count(let count):
            switch count {
            case .lost: return Double(result.audit.missing)
            case .duplicated: return Double(result.audit.doubled)
            case .unknown: return Double(result.audit.unknown)
            case .unreadable: return Double(result.audit.unreadable)
            case .refused: return Double(result.audit.refused)
            case .early: return Double(result.audit.early)
            case .notProduced: return Double(result.audit.notProduced)
            }
        case .share(let kind):
            if let scope, let load = result.loads?.first(where: { $0.name == scope }) {
                return Self.share(of: kind, load.byKind, jobs: load.jobs ?? load.produced)
            }
            if let scope {
                guard let phase = result.phases.first(where: { $0.name == scope }), let kinds = phase.byKind
                else { return nil }
                return Self.share(of: kind, kinds, jobs: phase.jobs)
            }
            let main = result.mainPushes
            return Self.share(of: kind, main.byKind, jobs: main.jobs)
        case .duplicatedShare:
            let audit = result.audit
            let jobs = audit.once + audit.doubled + audit.missing
            return jobs == 0 ? nil : Double(audit.doubled) / Double(jobs)
        case .latency(let percentile): return latency(result)?.milliseconds(atPercentile: percentile)
        case .latencyMean: return latency(result)?.meanMilliseconds
        case .rate:
            if let load = result.loads?.first(where: { $0.name == scope }) {
                return load.seconds > 0 ? Double(load.outcomes) / load.seconds : nil
            }
            return rate(result) { $0.outcomes }
        case .producedRate:
            if let load = result.loads?.first(where: { $0.name == scope }) {
                return load.seconds > 0 ? Double(load.produced) / load.seconds : nil
            }
            return rate(result) { $0.produced }
        case .delay(let percentile): return result.generator.delay.milliseconds(atPercentile: percentile)
        case .cpuPerJob:
            let phases = result.phases.filter { $0.kind == .main }
            let outcomes = phases.reduce(0) { $0 + $1.outcomes }
            guard outcomes > 0, phases.allSatisfy({ $0.outcomes == 0 || $0.cpuMicrosecondsPerOutcome != nil })
            else {
                return nil
            }
            return phases.reduce(0) { $0 + ($1.cpuMicrosecondsPerOutcome ?? 0) * Double($1.outcomes) }
                / Double(outcomes)
        case .attemptsPerJob: return result.attemptsPerJob
        case .slowdown: return result.environment.noise.medianSlowdown
        }
    }

    /// Returns the share of a kind among jobs.
    /// - Parameter jobs: jobs with and without an outcome; nil: those with one.
    private static func share(of kind: String, _ kinds: [String: Int], jobs: Int?) -> Double? {
        let jobs = jobs ?? kinds.values.reduce(0, +)
        return jobs > 0 ? Double(kinds[kind] ?? 0) / Double(jobs) : nil
    }

    /// Phases of the scope; the main phases without a scope.
    private func phases(_ result: RunResult) -> [RunResult.Phase] {
        result.phases.filter { scope == nil ? $0.kind == .main : $0.name == scope }
    }

    private func latency(_ result: RunResult) -> HDRHistogram? {
        if let scope, let load = result.loads?.first(where: { $0.name == scope }) { return load.latency }
        var all = HDRHistogram()
        for phase in phases(result) { all.add(phase.latency) }
        return all
    }

    private func rate(_ result: RunResult, _ count: (RunResult.Phase) -> Int) -> Double? {
        let phases = phases(result)
        let length = phases.reduce(0) { $0 + $1.to - $1.from }
        return length > 0 ? Double(phases.reduce(0) { $0 + count($1) }) / length : nil
    }
}

extension LoadScenario {
    /// Judges a result by all thresholds. Jobs that were not produced, and pushes accepted before their time, miss a bound
    /// of 0 when the scenario has no bound for them.
    public func judged(_ result: RunResult) -> [RunResult.Threshold] {
        let further = [ThresholdRule.CountFigure.notProduced, .early].filter { count in
            !thresholds.contains { $0.figure == .count(count) }
        }.map { count in
            ThresholdRule(
                name: count.rawValue, scope: nil, figure: .count(count), relation: .most, bound: 0)
        }
        return thresholds.map { $0.judged(result) }
            + further.map { $0.judged(result) }.filter { !$0.isMet }
    }
}
