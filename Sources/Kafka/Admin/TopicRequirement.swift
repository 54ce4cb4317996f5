/// A topic's configuration as the brokers report it, defaults included.
public struct TopicConfiguration: Sendable, Equatable {
    public let topic: String
    /// Values by Kafka's names, for example `cleanup.policy`. Values that the brokers keep secret are missing.
    public let values: [String: String]

    public init(topic: String, values: [String: String]) {
        self.topic = topic
        self.values = values
    }

    /// Returns the requirements that the topic does not meet, in the order of the requirements.
    public func differences(from requirements: [TopicRequirement]) -> [TopicDifference] {
        requirements.compactMap { requirement in
            let actual = values[requirement.name]
            guard !requirement.rule.accepts(actual) else { return nil }
            return TopicDifference(topic: topic, requirement: requirement, actual: actual)
        }
    }
}

/// Required value of one topic setting.
public struct TopicRequirement: Sendable, Equatable {
    /// Condition on the value.
    public enum Rule: Sendable, Equatable {
        /// This text exactly.
        case equal(String)
        /// A number, this or more; -1 counts as more, because Kafka uses it for "no limit".
        case atLeast(Int64)
        /// A number, this or less, and not -1.
        case atMost(Int64)
        /// As `atMost`, for a fraction such as `min.cleanable.dirty.ratio`.
        case fractionAtMost(Double)
        /// A list separated by commas, such as `cleanup.policy`, with exactly these elements in any order.
        case list([String])

        func accepts(_ value: String?) -> Bool {
            guard let value else { return false }
            switch self {
            case .equal(let wanted): return value == wanted
            case .atLeast(let least): return Int64(value).map { $0 >= least || $0 == -1 } ?? false
            case .atMost(let most): return Int64(value).map { $0 <= most && $0 != -1 } ?? false
            case .fractionAtMost(let most): return Double(value).map { $0 <= most } ?? false
            case .list(let wanted):
                let elements = value.split(separator: ",").map { element in
                    String(element.drop { $0 == " " }.prefix { $0 != " " })
                }
                return elements.sorted() == wanted.sorted()
            }
        }
    }

    /// Kafka's name of the setting.
    public var name: String
    public var rule: Rule
    /// Consequence of an unmet requirement, for people.
    public var reason: String

    public init(_ name: String, _ rule: Rule, reason: String) {
        self.name = name
        self.rule = rule
        self.reason = reason
    }
}

/// A setting of a topic that differs from its requirement.
public struct TopicDifference: Sendable, Equatable, CustomStringConvertible {
    public let topic: String
    public let requirement: TopicRequirement
    /// Value that the brokers reported; `nil`: none.
    public let actual: String?

    public var description: String {
        let wanted =
            switch requirement.rule {
            case .equal(let value): "\"\(value)\""
            case .atLeast(let number): "at least \(number)"
            case .atMost(let number): "at most \(number)"
            case .fractionAtMost(let number): "at most \(number)"
            case .list(let elements): "\"\(elements.joined(separator: ","))\""
            }
        let found = actual.map { "is \"\($0)\"" } ?? "is not set"
        return "topic \"\(topic)\": \(requirement.name) \(found) and must be \(wanted): \(requirement.reason)"
    }
}

/// Whether topics have the same number of partitions, so that partition n of one belongs to partition n of the others.
public struct CoPartitioning: Sendable, Equatable {
    /// Partition counts in the requested order; `nil`: the topic does not exist.
    public let counts: [(topic: String, partitions: Int?)]

    public init(_ counts: [(topic: String, partitions: Int?)]) { self.counts = counts }

    /// Description of the error and its remedy; `nil`: no error. The other topics must follow the first topic.
    public var problem: String? {
        let missing = counts.filter { $0.partitions == nil }.map { "\"\($0.topic)\"" }
        guard missing.isEmpty else {
            return "there is no topic \(missing.joined(separator: ", ")): create it"
        }
        guard let first = counts.first, let wanted = first.partitions else { return nil }
        let others = counts.dropFirst().filter { $0.partitions != wanted }
        guard !others.isEmpty else { return nil }
        let list = others.map { "\"\($0.topic)\" has \($0.partitions ?? 0)" }.joined(separator: ", ")
        return "topics must have the same number of partitions: \"\(first.topic)\" has \(wanted), \(list). "
            + "Add partitions to the smaller topic only while it is empty, because keys change their partition"
    }

    /// Whether all topics exist, the first has more partitions than another, and none has more than the first.
    public var hasGrown: Bool {
        guard let first = counts.first?.partitions else { return false }
        let others = counts.dropFirst().map { $0.partitions ?? .max }
        return others.contains { $0 < first } && others.allSatisfy { $0 <= first }
    }

    public static func == (left: CoPartitioning, right: CoPartitioning) -> Bool {
        left.counts.elementsEqual(right.counts) { $0.topic == $1.topic && $0.partitions == $1.partitions }
    }
}
