import Yams

extension ConfigurationValue {
    /// Reads a YAML or JSON document. `name` is the file's name in messages.
    ///
    /// The time is linear in the text's size, and bounded by ``ConfigurationDocument/mostBytes``.
    package static func parse(
        _ text: String, name: String
    ) throws(ConfigurationError) -> ConfigurationValue {
        let whole = ConfigurationProblem.Location.file(name: name, line: 0, column: 0)
        func failure(_ message: String) -> ConfigurationError {
            ConfigurationError(problems: [ConfigurationProblem(key: "", location: whole, message: message)])
        }
        guard text.utf8.count <= ConfigurationDocument.mostBytes else {
            throw failure(ConfigurationDocument.tooLarge)
        }
        guard let sentinel = ConfigurationDocument.sentinel(absentFrom: text) else {
            throw failure("contains too many characters of Unicode's private area")
        }
        var document = ConfigurationDocument(name: name, sentinel: sentinel)
        do {
            // A node refers weakly to its anchor, which the parser owns.
            // Without rules no type is guessed, because the tree has texts only. Guesses took a third of the time.
            let parser = try Parser(
                yaml: text.replacing("*", with: String(sentinel)), resolver: .basic)
            guard let node = try parser.singleRoot() else {
                return ConfigurationValue(content: .empty, location: whole)
            }
            let value = withExtendedLifetime(parser) { document.convert(node, path: "").value }
            if document.room < 0 {
                throw failure(
                    "has more than \(ConfigurationDocument.mostValues) values; check for aliases that repeat other aliases"
                )
            }
            if !document.problems.isEmpty { throw ConfigurationError(problems: document.problems) }
            return value
        } catch let error as YamlError {
            throw ConfigurationError(problems: [document.problem(from: error)])
        } catch let error as ConfigurationError {
            throw error
        } catch {
            throw failure("\(error)")
        }
    }
}

/// Converts the nodes of a YAML document, and expands its aliases.
///
/// Yams replaces an alias by the anchor's node, and compares such nodes as keys. Aliases within aliases would then take
/// exponential time. So the parser gets a document without aliases: a sentinel stands for each `*`. A plain text that
/// begins with the sentinel is an alias, because no plain text may begin with `*` (YAML 1.2, 7.3.3).
struct ConfigurationDocument {
    /// Largest size of a document in bytes.
    static let mostBytes = 1 << 20
    /// Most values of a document with its aliases expanded.
    static let mostValues = 500_000
    static let tooLarge =
        "is larger than 1 MB, which no configuration needs; check that the file is a configuration"

    let name: String
    /// Character that stands for `*` in the parser's text.
    let sentinel: Character
    /// Values that the document may still have; negative when it has too many.
    private(set) var room = mostValues
    private(set) var problems: [ConfigurationProblem] = []
    /// Values of the anchors so far, each with its number of values.
    private var anchors: [String: (value: ConfigurationValue, count: Int)] = [:]

    init(name: String, sentinel: Character) {
        self.name = name
        self.sentinel = sentinel
    }

    /// Returns a character of Unicode's private area that the text doesn't contain; nil when it contains all tried.
    static func sentinel(absentFrom text: String) -> Character? {
        (UInt32(0xE000)...0xE00F).lazy.compactMap(Unicode.Scalar.init).map(Character.init)
            .first { !text.contains($0) }
    }

    /// Returns the value of a node, and the number of values in it.
    fileprivate mutating func convert(_ node: Node, path: String) -> (value: ConfigurationValue, count: Int) {
        let location = location(of: node)
        let nothing = ConfigurationValue(content: .empty, location: location)
        room -= 1
        guard room >= 0 else { return (nothing, 1) }
        let before = room
        let value: ConfigurationValue
        switch node {
        case .scalar(let scalar):
            let plain = scalar.style == .plain || scalar.style == .any
            if plain, scalar.string.first == sentinel {
                guard let target = anchor(of: scalar.string, path: path, location) else {
                    return (nothing, 1)
                }
                room -= target.count
                return target
            }
            let text = restored(scalar.string)
            let isEmpty = plain && ["", "~", "null", "Null", "NULL"].contains(text)
            value = isEmpty ? nothing : .init(content: .scalar(text, plain: plain), location: location)
        case .sequence(let sequence):
            var elements: [ConfigurationValue] = []
            elements.reserveCapacity(sequence.count)
            for (index, element) in sequence.enumerated() where room >= 0 {
                elements.append(convert(element, path: "\(path)[\(index)]").value)
            }
            value = ConfigurationValue(content: .list(elements), location: location)
        case .mapping(let mapping):
            var entries: [Entry] = []
            var merged: [Entry] = []
            for (key, value) in mapping where room >= 0 {
                if case .scalar(let text) = key, text.string == "<<", text.style == .plain {
                    merged += mergedEntries(of: value, path: path)
                } else if let entry = entry(key, value, path: path) {
                    entries.append(entry)
                }
            }
            if !merged.isEmpty {
                var names = Set(entries.map(\.key))
                entries += merged.filter { names.insert($0.key).inserted }
            }
            value = ConfigurationValue(content: .map(entries), location: location)
        case .alias:
            // The parser's text has no aliases.
            return (nothing, 1)
        }
        let count = 1 + before - room
        if let anchor = node.anchor { anchors[anchor.rawValue] = (value, count) }
        return (value, count)
    }

    private typealias Entry = ConfigurationValue.Entry

    private mutating func entry(_ key: Node, _ value: Node, path: String) -> Entry? {
        let keyLocation = location(of: key)
        guard case .scalar(let text, _) = convert(key, path: path).value.content else {
            // An alias without an anchor has been reported.
            if room >= 0, problems.last?.location != keyLocation {
                problems.append(
                    ConfigurationProblem(
                        key: path, location: keyLocation, message: "a key must be a single word"))
            }
            return nil
        }
        let childPath = path.isEmpty ? text : "\(path).\(text)"
        return Entry(key: text, keyLocation: keyLocation, value: convert(value, path: childPath).value)
    }

    /// Returns the entries that a merge (`<<`, YAML's merge key) adds where a map has none of its own: those of a map, or
    /// of a list of maps, of which an earlier one counts first.
    private mutating func mergedEntries(of node: Node, path: String) -> [Entry] {
        let value = convert(node, path: path).value
        let maps = if case .list(let elements) = value.content { elements } else { [value] }
        var entries: [Entry] = []
        for map in maps {
            guard case .map(let own) = map.content else {
                if room >= 0, problems.last?.location != map.location {
                    problems.append(
                        ConfigurationProblem(
                            key: path, location: map.location,
                            message: "the merge `<<` takes a map, or a list of maps, but not \(map.kind)"))
                }
                continue
            }
            entries += own
        }
        return entries
    }

    /// Returns the value that an alias stands for; nil, with a problem, when there is no such anchor.
    private mutating func anchor(
        of alias: String, path: String, _ location: ConfigurationProblem.Location
    ) -> (value: ConfigurationValue, count: Int)? {
        if let target = anchors[String(alias.dropFirst())] { return target }
        problems.append(
            ConfigurationProblem(
                key: path, location: location,
                message: "the alias `\(restored(alias))` has no anchor before it"))
        return nil
    }

    private func restored(_ text: String) -> String {
        text.contains(sentinel) ? text.replacing(String(sentinel), with: "*") : text
    }

    private func location(of node: Node) -> ConfigurationProblem.Location {
        .file(name: name, line: node.mark?.line ?? 0, column: node.mark?.column ?? 0)
    }

    fileprivate func problem(from error: YamlError) -> ConfigurationProblem {
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
            let names = keys.map { "`\(restored($0))`" }.joined(separator: ", ")
            return problem("is written more than once in the same section: \(names)", context.mark)
        case .dataCouldNotBeDecoded:
            return problem("is not UTF-8 text", nil)
        default:
            return problem("cannot be read as YAML: \(error)", nil)
        }
    }
}
