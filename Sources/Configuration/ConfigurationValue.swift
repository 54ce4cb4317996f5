import Yams

/// A configuration document as a tree in which every value knows where it was written. YAML, JSON (which is read as
/// YAML) and environment variables all become such a tree before anything is interpreted.
struct ConfigurationValue: Equatable {
    enum Content: Equatable {
        /// The text as written, without quotes. `plain` is false when it was quoted.
        case scalar(String, plain: Bool)
        case list([ConfigurationValue])
        case map([Entry])
        /// Nothing was written after the key.
        case empty
    }

    struct Entry: Equatable {
        var key: String
        var keyLocation: ConfigurationProblem.Location
        var value: ConfigurationValue
    }

    var content: Content
    var location: ConfigurationProblem.Location

    /// Kind of the value, for messages.
    var kind: String {
        switch content {
        case .scalar: "a single value"
        case .list: "a list"
        case .map: "a map"
        case .empty: "nothing"
        }
    }

    /// Reads a YAML or JSON document. `name` is the file's name in messages.
    static func parse(_ text: String, name: String) throws(ConfigurationError) -> ConfigurationValue {
        let node: Node?
        do {
            node = try Yams.compose(yaml: text)
        } catch let error as YamlError {
            throw ConfigurationError(problems: [problem(from: error, name: name)])
        } catch {
            let whole = ConfigurationProblem.Location.file(name: name, line: 0, column: 0)
            throw ConfigurationError(problems: [
                ConfigurationProblem(key: "", location: whole, message: "\(error)")
            ])
        }
        guard let node else {
            return ConfigurationValue(content: .empty, location: .file(name: name, line: 0, column: 0))
        }
        var problems: [ConfigurationProblem] = []
        var room = mostValues
        let value = convert(node, path: "", name: name, room: &room, problems: &problems)
        if room < 0 {
            problems = [
                ConfigurationProblem(
                    key: "", location: .file(name: name, line: 0, column: 0),
                    message: "has more than \(mostValues) values; check for aliases that repeat other aliases"
                )
            ]
        }
        if !problems.isEmpty { throw ConfigurationError(problems: problems) }
        return value
    }

    /// Most values of a document, because aliases within aliases could make even more of a few lines.
    private static let mostValues = 1_000_000

    private static func convert(
        _ node: Node, path: String, name: String, room: inout Int, problems: inout [ConfigurationProblem]
    ) -> ConfigurationValue {
        room -= 1
        guard room >= 0 else {
            return ConfigurationValue(content: .empty, location: .file(name: name, line: 0, column: 0))
        }
        let location = ConfigurationProblem.Location.file(
            name: name, line: node.mark?.line ?? 0, column: node.mark?.column ?? 0)
        switch node {
        case .scalar(let scalar):
            let plain = scalar.style == .plain || scalar.style == .any
            if plain, ["", "~", "null", "Null", "NULL"].contains(scalar.string) {
                return ConfigurationValue(content: .empty, location: location)
            }
            return ConfigurationValue(content: .scalar(scalar.string, plain: plain), location: location)
        case .sequence(let sequence):
            let elements = sequence.enumerated().map { index, element in
                convert(
                    element, path: "\(path)[\(index)]", name: name, room: &room, problems: &problems)
            }
            return ConfigurationValue(content: .list(elements), location: location)
        case .mapping(let mapping):
            var entries: [Entry] = []
            for (key, value) in mapping {
                let keyLocation = ConfigurationProblem.Location.file(
                    name: name, line: key.mark?.line ?? 0, column: key.mark?.column ?? 0)
                guard case .scalar(let scalar) = key else {
                    problems.append(
                        ConfigurationProblem(
                            key: path, location: keyLocation, message: "a key must be a single word"))
                    continue
                }
                let childPath = path.isEmpty ? scalar.string : "\(path).\(scalar.string)"
                entries.append(
                    Entry(
                        key: scalar.string, keyLocation: keyLocation,
                        value: convert(value, path: childPath, name: name, room: &room, problems: &problems)))
            }
            return ConfigurationValue(content: .map(entries), location: location)
        case .alias:
            // The composer replaces an alias by its anchor's node. An alias left over names nothing.
            problems.append(
                ConfigurationProblem(key: path, location: location, message: "the alias has no anchor"))
            return ConfigurationValue(content: .empty, location: location)
        }
    }

    private static func problem(from error: YamlError, name: String) -> ConfigurationProblem {
        func problem(_ message: String, _ mark: Mark?) -> ConfigurationProblem {
            ConfigurationProblem(
                key: "",
                location: .file(name: name, line: mark?.line ?? 0, column: mark?.column ?? 0),
                message: message)
        }
        switch error {
        case .scanner(let context, let text, let mark, _),
            .parser(let context, let text, let mark, _),
            .composer(let context, let text, let mark, _):
            let prefix = context.map { "\($0.text), which begins at line \($0.mark.line): " } ?? ""
            return problem("is not valid YAML: \(prefix)\(text)", mark)
        case .reader(let text, _, _, _):
            return problem("is not valid YAML: \(text)", nil)
        case .duplicatedKeysInMapping(let keys, let context):
            let names = keys.map { "`\($0)`" }.joined(separator: ", ")
            return problem("is written more than once in the same section: \(names)", context.mark)
        case .dataCouldNotBeDecoded:
            return problem("is not UTF-8 text", nil)
        default:
            return problem("cannot be read as YAML: \(error)", nil)
        }
    }
}
