import Configuration
import SluiceModel

extension FaultTimeline {
    /// Reads a timeline from YAML or JSON.
    /// - Parameter name: the document's name in messages.
    /// - Throws: `ConfigurationError` with every mistake, each with key and line.
    public static func parse(_ text: String, name: String) throws(ConfigurationError) -> FaultTimeline {
        try SettingsDocument.read(text, name: name, read)
    }

    /// Reads a timeline from a YAML or JSON file.
    /// - Throws: `ConfigurationError` with every mistake, each with key and line.
    public static func load(path: String) throws(ConfigurationError) -> FaultTimeline {
        try SettingsDocument.read(path: path, read)
    }

    static func read(_ reader: SectionReader) -> FaultTimeline {
        var timeline = FaultTimeline()
        timeline.seed = UInt64(
            reader.integer("seed", 0...Int.max, default: 1, help: "seed of random choices") ?? 1)
        if reader.contains("repeat") {
            timeline.repeats = reader.duration(
                "repeat", .milliseconds(100)...longest, default: .seconds(60),
                help: "time after which the timeline begins again")
        }
        let repeats = timeline.repeats
        timeline.entries = reader.sectionList("faults", most: mostEntries) { entry($0, repeats: repeats) }
        return timeline
    }

    private static func entry(_ reader: SectionReader, repeats: Duration?) -> Entry? {
        let at = reader.duration("at", .zero...longest, default: .zero, help: "beginning")
        let lasts = reader.optionalDuration("for", .milliseconds(1)...longest)
        let written = reader.keys.filter { Kind.keys.contains($0) }
        guard let key = written.first else {
            reader.expect(Kind.keys)
            // A misspelt fault is reported as an unknown setting.
            if reader.keys.allSatisfy({ ["at", "for"].contains($0) }) {
                reader.problem("needs a fault; there are: \(Kind.keys.joined(separator: ", "))")
            }
            return nil
        }
        guard written.count == 1 else {
            reader.expect(Kind.keys)
            reader.problem(written[1], "is a second fault; write an entry of its own for each fault")
            return nil
        }
        guard let kind = kind(key, reader) else { return nil }
        reader.expect(Kind.keys)
        let entry = Entry(at: at, lasts: lasts, kind)
        if let fault = entry.fault(repeats: repeats) {
            reader.problem(at: fault.key, fault.text)
            return nil
        }
        return entry
    }

    private static func kind(_ key: String, _ reader: SectionReader) -> Kind? {
        switch key {
        case "answers": answers(reader).map { .answers($0) }
        case "latency": reader.section(key, latency).map { .latency($0) }
        case "unanswered":
            reader.number(key, 0...1, help: "share of the requests").map { .unanswered(share: $0) }
        case "goaway": .goAway(reader.section(key, goAway))
        case "disconnect":
            reader.section(key) { reader -> Kind? in
                .disconnect(share: share(reader), every: reader.optionalDuration("every", intervals))
            }
        case "stream-limit": reader.section(key, streamLimit).map { .streamLimit($0) }
        case "black-hole": .blackHole(share: reader.section(key, share))
        case "no-window-updates": .noWindowUpdates(share: reader.section(key, share))
        case "slow-reads":
            reader.section(key) { reader -> Kind? in
                let bytes = reader.requiredInteger("bytes-per-second", 1...Int(UInt32.max))
                let share = share(reader)
                return bytes.map { .slowReads(bytesPerSecond: $0, share: share) }
            }
        case "throttle":
            reader.section(key) { reader -> Kind? in
                .throttle(
                    perDevice: reader.integer("per-device", 0...1_000_000_000, help: "requests"),
                    perSecond: reader.integer("per-second", 0...1_000_000_000, help: "requests"))
            }
        case "certificate":
            reader.section(key) { reader -> Kind? in
                reader.choice(
                    "expired", of: ExpiredCertificate.self, default: nil, required: true,
                    help: "the certificate that counts as expired"
                ).map { .certificate($0) }
            }
        default:
            reader.section(key) { reader -> Kind? in
                let part = reader.choice(
                    "of", of: MixedUp.self, default: nil, required: true,
                    help: "the part whose environment is the other one")
                let share = share(reader)
                return part.map { .environment($0, share: share) }
            }
        }
    }

    private static let intervals = shortestInterval...longest

    private static func share(_ reader: SectionReader) -> Double {
        reader.number("share", 0...1, default: 1, help: "share, 0 to 1") ?? 1
    }

    private static func answers(_ reader: SectionReader) -> [SimulatorOptions.Fault]? {
        let answers = reader.scalars("answers", kind: "REASON: SHARE") {
            name, text -> Result<SimulatorOptions.Fault, SettingFault> in
            var name = name
            let reason = name.withUTF8 { Reason.parse(name: UnsafeRawBufferPointer($0)) }
            guard reason.status >= 400 else {
                return .failure(.init("is no reason of APNs, such as InternalServerError"))
            }
            guard let share = Double(text), (0...1).contains(share) else {
                return .failure(.init("`\(text)` is not allowed; expected a share from 0 to 1"))
            }
            return .success(SimulatorOptions.Fault(reason: reason, share: share))
        }
        // Members of a JSON object have no order, which the random choices depend on.
        return answers.isEmpty ? nil : answers.sorted { "\($0.reason.name)" < "\($1.reason.name)" }
    }

    private static func latency(_ reader: SectionReader) -> LatencyDistribution? {
        let times = Duration.zero...LatencyDistribution.longest
        let known = ["constant", "uniform", "lognormal", "percentiles"]
        let written = known.filter { reader.contains($0) }
        defer { reader.expect(known) }
        guard written.count == 1 else {
            reader.problem("needs exactly one distribution of: \(known.joined(separator: ", "))")
            return nil
        }
        switch written[0] {
        case "constant":
            return .constant(reader.duration("constant", times, default: .zero, help: "time of each answer"))
        case "uniform":
            return reader.section("uniform") { reader -> LatencyDistribution? in
                guard let from = reader.requiredDuration("from", times),
                    let to = reader.requiredDuration("to", times)
                else { return nil }
                return .uniform(from: from, to: to)
            }
        case "lognormal":
            return reader.section("lognormal") { reader -> LatencyDistribution? in
                let sigma = reader.number("sigma", 0...10, default: 0.5, help: "deviation of the logarithm")
                let most = reader.duration("most", times, default: .seconds(60), help: "longest time")
                guard let median = reader.requiredDuration("median", times) else { return nil }
                return .lognormal(median: median, sigma: sigma ?? 0.5, most: most)
            }
        default:
            let points = reader.scalars("percentiles", kind: "PERCENT: TIME") {
                name, text -> Result<LatencyDistribution.Percentile, SettingFault> in
                guard let percent = Double(name), percent > 0, percent <= 100 else {
                    return .failure(.init("is no percentile; expected a number above 0 and at most 100"))
                }
                guard let time = DurationText.parse(text), times.contains(time) else {
                    return .failure(.init("`\(text)` is not \(DurationText.grammar), up to 1h"))
                }
                return .success(.init(percent: percent, latency: time))
            }
            return points.isEmpty ? nil : .percentiles(points.sorted { $0.percent < $1.percent })
        }
    }

    private static func goAway(_ reader: SectionReader) -> GoAway {
        var goAway = GoAway()
        let text = reader.text("text", help: "debug data in place of the reason")
        if let text {
            goAway.text = text
            goAway.reason = ""
            if reader.contains("reason") { reader.problem("text", "excludes `reason`; remove either") }
        }
        if let reason = reader.text("reason", help: "reason in the debug data") { goAway.reason = reason }
        goAway.code = UInt32(reader.integer("code", 0...Int(UInt32.max), default: 0, help: "error code") ?? 0)
        goAway.end = reader.choice("end", default: .drain, help: "end of the connection")
        goAway.connections = reader.choice("connections", default: .open, help: "connections concerned")
        goAway.unprocessed =
            reader.integer("unprocessed", 0...1_000_000, default: 0, help: "requests not processed") ?? 0
        goAway.share = share(reader)
        goAway.every = reader.optionalDuration("every", intervals)
        return goAway
    }

    private static func streamLimit(_ reader: SectionReader) -> StreamLimit? {
        let limits = 0...1_000_000
        let low = reader.requiredInteger("low", limits)
        let high = reader.integer("high", limits, help: "streams in the second half of a period")
        let period = reader.optionalDuration("period", intervals)
        return low.map { StreamLimit(low: UInt32($0), high: high.map { UInt32($0) }, period: period) }
    }
}

extension SectionReader {
    fileprivate func optionalDuration(_ key: String, _ range: ClosedRange<Duration>) -> Duration? {
        guard contains(key) else {
            expect([key])
            return nil
        }
        return duration(key, range, default: range.lowerBound, help: "time")
    }

    fileprivate func requiredDuration(_ key: String, _ range: ClosedRange<Duration>) -> Duration? {
        if !contains(key) { problem(key, "is required: \(DurationText.grammar)") }
        return optionalDuration(key, range)
    }

    fileprivate func requiredInteger(_ key: String, _ range: ClosedRange<Int>) -> Int? {
        if !contains(key) { problem(key, "is required: integer \(range.lowerBound)…\(range.upperBound)") }
        return integer(key, range, help: "number")
    }
}
