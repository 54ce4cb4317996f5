/// Environment variables as settings.
///
/// A variable's name is `SLUICE_`, then the path of the setting in capitals. `__` separates the levels. `_` stands for
/// each `-` and, in the names of librdkafka properties, for each `.`:
///
/// | setting | variable |
/// |---|---|
/// | `kafka.bootstrap-servers` | `SLUICE_KAFKA__BOOTSTRAP_SERVERS` |
/// | `kafka.properties.sasl.password` | `SLUICE_KAFKA__PROPERTIES__SASL_PASSWORD` |
/// | `kafka.properties.sasl.password-file` | `SLUICE_KAFKA__PROPERTIES__SASL_PASSWORD_FILE` |
/// | `credentials.team.key-file` | `SLUICE_CREDENTIALS__TEAM__KEY_FILE` |
/// | `topics` of the app named `news` | `SLUICE_APPS__NEWS__TOPICS` |
///
/// Lists are comma-separated. A variable overrides the file. Variables that begin with `SLUICE_` and name no setting
/// are mistakes. The exceptions are `SLUICE_TEST_…` (the test suite's) and the variables that Kubernetes sets for a
/// Service named `sluice…`.
enum EnvironmentOverrides {
    static let prefix = "SLUICE_"

    private static let propertyMaps: Set<String> = [
        "properties", "consumer-properties", "producer-properties",
    ]

    /// Returns the variable of a setting; `apps[].topics` gives `SLUICE_APPS__<NAME>__TOPICS`.
    static func variable(forPath path: String) -> String {
        var segments: [String] = []
        let parts = path.split(separator: ".").map(String.init)
        for (index, part) in parts.enumerated() {
            if index > 2, parts[0] == "kafka", propertyMaps.contains(parts[1]) {
                segments[2] += "_" + part
                continue
            }
            if let bracket = part.firstIndex(of: "[") {
                segments.append(String(part[..<bracket]))
                segments.append("<name>")
            } else {
                segments.append(part)
            }
        }
        let text = segments.map { $0.uppercased().map { $0 == "-" || $0 == "." ? "_" : String($0) }.joined() }
        return prefix + text.joined(separator: "__")
    }

    /// Applies the variables to a document. Returns the names of variables that can't be settings at all.
    static func apply(
        _ environment: [String: String], to document: ConfigurationValue,
        problems: inout [ConfigurationProblem]
    ) -> (document: ConfigurationValue, unknown: [String]) {
        var document = document
        var unknown: [String] = []
        for (variable, text) in environment.sorted(by: { $0.key < $1.key }) {
            guard variable.hasPrefix(prefix), !variable.hasPrefix("SLUICE_TEST_") else { continue }
            let segments = split(String(variable.dropFirst(prefix.count)))
            if segments.count < 2 || segments.contains("") {
                if !isSetByKubernetes(variable, value: text) { unknown.append(variable) }
                continue
            }
            let location = ConfigurationProblem.Location.environment(variable: variable)
            let value = ConfigurationValue(content: .scalar(text, plain: false), location: location)
            set(value, at: path(of: segments), in: &document, location: location, problems: &problems)
        }
        return (document, unknown)
    }

    /// Splits a text at `__`.
    private static func split(_ text: String) -> [String] {
        var segments: [String] = [""]
        var rest = Substring(text)
        while let character = rest.first {
            if rest.hasPrefix("__") {
                segments.append("")
                rest = rest.dropFirst(2)
            } else {
                segments[segments.count - 1].append(character)
                rest = rest.dropFirst()
            }
        }
        return segments
    }

    private static func path(of segments: [String]) -> [String] {
        var keys = segments.map(normalized)
        if keys.count > 2, keys[0] == "kafka", propertyMaps.contains(keys[1]) {
            var property = keys[2...].joined(separator: "-").map { $0 == "-" ? "." : String($0) }.joined()
            // No property of librdkafka ends like this.
            if property.hasSuffix(".file") { property = property.dropLast(5) + "-file" }
            keys = [keys[0], keys[1], property]
        }
        return keys
    }

    /// Returns a name in the form that compares with segments of variables: small letters, `-` for `_` and `.`.
    private static func normalized(_ name: String) -> String {
        name.lowercased().map { $0 == "_" || $0 == "." ? "-" : String($0) }.joined()
    }

    private static func set(
        _ value: ConfigurationValue, at path: [String], in target: inout ConfigurationValue,
        location: ConfigurationProblem.Location, problems: inout [ConfigurationProblem],
        insideProperties: Bool = false
    ) {
        guard let key = path.first else {
            target = value
            return
        }
        let rest = Array(path.dropFirst())
        switch target.content {
        case .map(var entries):
            let isProperties = propertyMaps.contains(key)
            if insideProperties {
                // A variable overrides the property of the file in both forms: the value, and the value's file.
                let twin = key.hasSuffix("-file") ? String(key.dropLast(5)) : "\(key)-file"
                entries.removeAll { $0.key == twin && !$0.keyLocation.isEnvironment }
            }
            let index = entries.firstIndex {
                insideProperties ? $0.key == key : normalized($0.key) == key
            }
            if let index {
                set(
                    value, at: rest, in: &entries[index].value, location: location, problems: &problems,
                    insideProperties: isProperties)
                if rest.isEmpty { entries[index].keyLocation = location }
            } else {
                var child = ConfigurationValue(content: .empty, location: location)
                if key == "apps", !rest.isEmpty { child.content = .list([]) }
                set(
                    value, at: rest, in: &child, location: location, problems: &problems,
                    insideProperties: isProperties)
                entries.append(ConfigurationValue.Entry(key: key, keyLocation: location, value: child))
            }
            target.content = .map(entries)
        case .empty, .scalar:
            // The settings below replace a single value. An app's credential may be a name in the file and be written
            // out in the environment.
            target.content = .map([])
            set(
                value, at: path, in: &target, location: location, problems: &problems,
                insideProperties: insideProperties)
        case .list(var elements):
            let index = elements.firstIndex { element in
                guard case .map(let entries) = element.content,
                    case .scalar(let name, _)? = entries.first(where: { $0.key == "name" })?.value.content
                else { return false }
                return normalized(name) == key
            }
            if rest.isEmpty {
                problems.append(
                    ConfigurationProblem(
                        key: key, location: location, message: "names an element of a list, not a setting"))
                return
            }
            if let index {
                set(value, at: rest, in: &elements[index], location: location, problems: &problems)
            } else {
                let name = ConfigurationValue(content: .scalar(key, plain: false), location: location)
                var element = ConfigurationValue(
                    content: .map([.init(key: "name", keyLocation: location, value: name)]),
                    location: location)
                set(value, at: rest, in: &element, location: location, problems: &problems)
                elements.append(element)
            }
            target.content = .list(elements)
        }
    }

    /// Returns whether Kubernetes may have set the variable, such as `SLUICE_SERVICE_HOST` or
    /// `SLUICE_PORT_9090_TCP_ADDR`. Kubernetes sets such variables in every pod for each Service of its namespace, and
    /// a Service may well be named `sluice`.
    static func isSetByKubernetes(_ variable: String, value: String) -> Bool {
        if variable.contains("__") { return false }
        let words = variable.split(separator: "_")
        for index in words.indices.dropFirst() {
            let rest = words[(index + 1)...]
            switch words[index] {
            case "SERVICE":
                if rest.first == "HOST" || rest.first == "PORT" { return true }
            case "PORT":
                // SLUICE_PORT=tcp://10.0.0.1:9090
                if rest.isEmpty { return value.contains("://") }
                if let number = rest.first, Int(number) != nil,
                    let transport = rest.dropFirst().first, ["TCP", "UDP", "SCTP"].contains(transport)
                {
                    return true
                }
            default: break
            }
        }
        return false
    }
}
