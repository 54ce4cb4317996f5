/// Properties of a Kafka client, in librdkafka's names and units (librdkafka CONFIGURATION.md). The `kafka.*` settings
/// of Sluice's configuration are passed through unchanged, TLS (`ssl.*`) and SASL (`sasl.*`) included.
///
/// A later value for the same name replaces an earlier value.
public struct KafkaProperties: Sendable, Equatable, CustomStringConvertible {
    /// Names and values, in the order of their first setting.
    public private(set) var pairs: [(name: String, value: String)] = []

    public init() {}

    public init(_ pairs: [(name: String, value: String)]) {
        for pair in pairs { self[pair.name] = pair.value }
    }

    /// Creates properties that name the first brokers, comma-separated `host:port`.
    public init(bootstrapServers: String) {
        self["bootstrap.servers"] = bootstrapServers
    }

    /// Value of a property; nil when the property isn't set. Setting nil removes the property.
    public subscript(name: String) -> String? {
        get { pairs.first { $0.name == name }?.value }
        set {
            guard let index = pairs.firstIndex(where: { $0.name == name }) else {
                if let newValue { pairs.append((name, newValue)) }
                return
            }
            if let newValue { pairs[index].value = newValue } else { pairs.remove(at: index) }
        }
    }

    /// Returns these properties, replaced and extended by those of `other`.
    public func overridden(by other: KafkaProperties) -> KafkaProperties {
        var result = self
        for pair in other.pairs { result[pair.name] = pair.value }
        return result
    }

    public static func == (left: KafkaProperties, right: KafkaProperties) -> Bool {
        left.pairs.elementsEqual(right.pairs) { $0.name == $1.name && $0.value == $1.value }
    }

    /// Properties as `name=value`, with secret values left out.
    public var description: String {
        pairs.map { "\($0.name)=\(Self.isSecret($0.name) ? "(secret)" : $0.value)" }.joined(separator: " ")
    }

    /// Whether a property's value is a password, a key or a token and must not be shown.
    public static func isSecret(_ name: String) -> Bool {
        name.contains("password") || name.contains("secret") || name.hasSuffix(".pem")
            || name.hasSuffix("key.pem") || name == "sasl.oauthbearer.config"
            || name == "sasl.kerberos.kinit.cmd"
    }
}
