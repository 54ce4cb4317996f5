import Configuration
import SluiceModel

/// The JSON form has the keys and texts of the YAML form.
extension FaultTimeline: Codable {
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: JSONKey.self)
        try container.encode(seed, forKey: "seed")
        try container.encodeIfPresent(repeats.map(DurationText.format), forKey: "repeat")
        try container.encode(entries, forKey: "faults")
    }

    /// Reads the JSON form with the rules of ``parse(_:name:)``.
    public init(from decoder: any Decoder) throws {
        let value = try JSONTree(from: decoder).text
        do throws(ConfigurationError) {
            self = try FaultTimeline.parse(value, name: "faults")
        } catch {
            // The lines are those of a text that nobody has seen.
            let problems = error.problems.map { $0.key.isEmpty ? $0.message : "\($0.key): \($0.message)" }
            throw DecodingError.dataCorrupted(
                .init(codingPath: decoder.codingPath, debugDescription: problems.joined(separator: "; ")))
        }
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

/// Any JSON value, read to be written as text again.
private indirect enum JSONTree: Decodable {
    case null, bool(Bool), integer(Int64), number(Double), string(String), list([JSONTree])
    case object([(String, JSONTree)])

    init(from decoder: any Decoder) throws {
        if let container = try? decoder.container(keyedBy: JSONKey.self) {
            self = .object(
                try container.allKeys.map {
                    ($0.stringValue, try container.decode(JSONTree.self, forKey: $0))
                })
        } else if var container = try? decoder.unkeyedContainer() {
            var elements: [JSONTree] = []
            while !container.isAtEnd { elements.append(try container.decode(JSONTree.self)) }
            self = .list(elements)
        } else {
            let container = try decoder.singleValueContainer()
            if container.decodeNil() {
                self = .null
            } else if let value = try? container.decode(Bool.self) {
                self = .bool(value)
            } else if let value = try? container.decode(Int64.self) {
                self = .integer(value)
            } else if let value = try? container.decode(Double.self) {
                self = .number(value)
            } else {
                self = .string(try container.decode(String.self))
            }
        }
    }

    var text: String {
        switch self {
        case .null: "null"
        case .bool(let value): "\(value)"
        case .integer(let value): "\(value)"
        case .number(let value): "\(value)"
        case .string(let value): Self.quoted(value)
        case .list(let elements): "[" + elements.map(\.text).joined(separator: ", ") + "]"
        case .object(let members):
            "{" + members.map { "\(Self.quoted($0.0)): \($0.1.text)" }.joined(separator: ", ") + "}"
        }
    }

    private static func quoted(_ text: String) -> String {
        var writer = ByteWriter(minimumCapacity: text.utf8.count + 16)
        var text = text
        text.withUTF8 { writer.append(jsonString: UnsafeRawBufferPointer($0)) }
        return writer.bytes.text
    }
}
