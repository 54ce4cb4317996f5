import Configuration

/// The JSON form has the keys and texts of the YAML form, so that ``parse(_:name:)`` reads both.
extension FaultTimeline: Encodable {
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: JSONKey.self)
        try container.encode(seed, forKey: "seed")
        try container.encodeIfPresent(repeats.map(DurationText.format), forKey: "repeat")
        try container.encode(entries, forKey: "faults")
    }
}

/// A key of any name.
private struct JSONKey: CodingKey, ExpressibleByStringLiteral {
    let stringValue: String
    var intValue: Int? { nil }

    init(stringValue: String) { self.stringValue = stringValue }
    init?(intValue: Int) { nil }
    init(stringLiteral value: String) { stringValue = value }
}

extension FaultTimeline.Entry: Encodable {
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: JSONKey.self)
        try container.encode(DurationText.format(at), forKey: "at")
        try container.encodeIfPresent(lasts.map(DurationText.format), forKey: "for")
        let key = JSONKey(stringValue: kind.key)
        if case .unanswered(let share) = kind { return try container.encode(share, forKey: key) }
        var parts = container.nestedContainer(keyedBy: JSONKey.self, forKey: key)
        switch kind {
        case .answers(let faults):
            for fault in faults {
                try parts.encode(fault.share, forKey: JSONKey(stringValue: "\(fault.reason.name)"))
            }
        case .latency(let distribution): try encode(distribution, to: &parts)
        case .unanswered: break
        case .goAway(let goAway): try encode(goAway, to: &parts)
        case .disconnect(let share, let every):
            try parts.encode(share, forKey: "share")
            try parts.encodeIfPresent(every.map(DurationText.format), forKey: "every")
        case .streamLimit(let limit):
            try parts.encode(limit.low, forKey: "low")
            try parts.encodeIfPresent(limit.high, forKey: "high")
            try parts.encodeIfPresent(limit.period.map(DurationText.format), forKey: "period")
        case .blackHole(let share), .noWindowUpdates(let share): try parts.encode(share, forKey: "share")
        case .slowReads(let bytes, let share):
            try parts.encode(bytes, forKey: "bytes-per-second")
            try parts.encode(share, forKey: "share")
        case .throttle(let perDevice, let perSecond):
            try parts.encodeIfPresent(perDevice, forKey: "per-device")
            try parts.encodeIfPresent(perSecond, forKey: "per-second")
        case .certificate(let certificate): try parts.encode(certificate.rawValue, forKey: "expired")
        case .environment(let part, let share):
            try parts.encode(part.rawValue, forKey: "of")
            try parts.encode(share, forKey: "share")
        }
    }

    private func encode(
        _ distribution: LatencyDistribution, to container: inout KeyedEncodingContainer<JSONKey>
    ) throws {
        switch distribution {
        case .constant(let time): try container.encode(DurationText.format(time), forKey: "constant")
        case .uniform(let from, let to):
            var parts = container.nestedContainer(keyedBy: JSONKey.self, forKey: "uniform")
            try parts.encode(DurationText.format(from), forKey: "from")
            try parts.encode(DurationText.format(to), forKey: "to")
        case .lognormal(let median, let sigma, let most):
            var parts = container.nestedContainer(keyedBy: JSONKey.self, forKey: "lognormal")
            try parts.encode(DurationText.format(median), forKey: "median")
            try parts.encode(sigma, forKey: "sigma")
            try parts.encode(DurationText.format(most), forKey: "most")
        case .percentiles(let points):
            var parts = container.nestedContainer(keyedBy: JSONKey.self, forKey: "percentiles")
            for point in points {
                let percent = Int(exactly: point.percent).map(String.init) ?? "\(point.percent)"
                try parts.encode(DurationText.format(point.latency), forKey: JSONKey(stringValue: percent))
            }
        }
    }

    private func encode(
        _ goAway: FaultTimeline.GoAway, to container: inout KeyedEncodingContainer<JSONKey>
    ) throws {
        if !goAway.reason.isEmpty { try container.encode(goAway.reason, forKey: "reason") }
        if !goAway.text.isEmpty, goAway.reason.isEmpty { try container.encode(goAway.text, forKey: "text") }
        try container.encode(goAway.code, forKey: "code")
        try container.encode(goAway.end.rawValue, forKey: "end")
        try container.encode(goAway.connections.rawValue, forKey: "connections")
        try container.encode(goAway.unprocessed, forKey: "unprocessed")
        try container.encode(goAway.share, forKey: "share")
        try container.encodeIfPresent(goAway.every.map(DurationText.format), forKey: "every")
    }
}
