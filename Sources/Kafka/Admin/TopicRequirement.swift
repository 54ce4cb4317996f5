/// A topic's configuration as the brokers tell it, defaults included.
public struct TopicConfiguration: Sendable, Equatable {
    public let topic: String
    /// By Kafka's names, for example `cleanup.policy`. Values that the brokers keep secret are missing.
    public let values: [String: String]

    public init(topic: String, values: [String: String]) {
        self.topic = topic
        self.values = values
    }

    /// What does not meet the requirements, in their order.
    public func differences(from requirements: [TopicRequirement]) -> [TopicDifference] {
        requirements.compactMap { requirement in
            let actual = values[requirement.name]
            guard !requirement.rule.accepts(actual) else { return nil }
            return TopicDifference(topic: topic, requirement: requirement, actual: actual)
        }
    }
}

/// What one setting of a topic must be.
public struct TopicRequirement: Sendable, Equatable {
    public enum Rule: Sendable, Equatable {
        case equal(String)
        /// A number, this one or more; -1 counts as more, Kafka's word for "no limit".
        case atLeast(Int64)
        /// A number, this one or less, and not -1.
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
    /// For people: what happens otherwise.
    public var reason: String

    public init(_ name: String, _ rule: Rule, reason: String) {
        self.name = name
        self.rule = rule
        self.reason = reason
    }
}

/// A setting of a topic that is not as it must be.
public struct TopicDifference: Sendable, Equatable, CustomStringConvertible {
    public let topic: String
    public let requirement: TopicRequirement
    /// `nil`: the brokers told none.
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
    /// In the order asked for; `nil`: there is no such topic.
    public let counts: [(topic: String, partitions: Int?)]

    public init(_ counts: [(topic: String, partitions: Int?)]) { self.counts = counts }

    /// What is wrong and what to do about it; `nil`: nothing. The first topic is the one that the others must follow.
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
            + "Partitions can be added to the smaller one only while it is empty, because keys change their partition"
    }

    /// All topics are there, and the first has more partitions than another, and none has more than it.
    public var hasGrown: Bool {
        guard let first = counts.first?.partitions else { return false }
        let others = counts.dropFirst().map { $0.partitions ?? .max }
        return others.contains { $0 < first } && others.allSatisfy { $0 <= first }
    }

    public static func == (left: CoPartitioning, right: CoPartitioning) -> Bool {
        left.counts.elementsEqual(right.counts) { $0.topic == $1.topic && $0.partitions == $1.partitions }
    }
}
